"""Files found by name, and lines by what they hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from engrain.agent.toolbox.arguments import Recipe
from engrain.agent.toolbox.files import read_text
from engrain.agent.tools import ToolContext, ToolFailure
from engrain.contracts.errors import EngrainError
from engrain.system.confined import ConfinedFolder

_FOUND_MAX: Final = 1_000
_MATCHES_MAX: Final = 500
_LINE_CHARS_MAX: Final = 500


class FindFiles(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `find_files`."""

    pattern: Annotated[
        str, Meta(description="Like src/**/*.py: * within a name, ** over folders.", max_length=500)
    ]
    path: Annotated[str, Meta(description="Where to look, a folder.")] = "."


class Grep(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `grep`."""

    text: Annotated[str, Meta(description="The text to find.", min_length=1, max_length=500)]
    path: Annotated[str, Meta(description="Where to look, a folder.")] = "."
    pattern: Annotated[
        str, Meta(description="Only files with such names, like **/*.py.", max_length=500)
    ] = "**"
    ignore_case: Annotated[bool, Meta(description="Take small and capital letters alike.")] = False


def find_files(folder: ConfinedFolder, given: FindFiles, context: ToolContext) -> str:
    """Paths that match, sorted within each folder."""
    found: list[str] = []
    for path in _iter_matching(folder, given.path, given.pattern, context):
        if len(found) == _FOUND_MAX:
            return "\n".join([*found, "[more; narrow the pattern]"])
        found.append(path)
    return "\n".join(found) or "[nothing found]"


def grep(folder: ConfinedFolder, given: Grep, context: ToolContext) -> str:
    """Lines with the text, as `path:number: line`.

    The text is taken as it is: a regular expression that a model wrote could run for ever.
    """
    wanted = given.text.casefold() if given.ignore_case else given.text
    lines: list[str] = []
    for path in _iter_matching(folder, given.path, given.pattern, context):
        content = ""
        with suppress(ToolFailure, EngrainError, OSError):  # binary, huge, or gone meanwhile
            content = read_text(folder, path)
        for number, line in enumerate(content.splitlines(), 1):
            if wanted not in (line.casefold() if given.ignore_case else line):
                continue
            if len(lines) == _MATCHES_MAX:
                return "\n".join([*lines, "[more; narrow the search]"])
            lines.append(f"{path}:{number}: {line[:_LINE_CHARS_MAX]}")
    return "\n".join(lines) or "[nothing found]"


def _iter_matching(
    folder: ConfinedFolder, path: str, pattern: str, context: ToolContext
) -> Iterator[str]:
    expression = _expression_of(pattern)
    for found in folder.iter_files(path):
        if context.cancelled.is_set():
            raise ToolFailure("Cancelled.")
        if expression.fullmatch(found):
            yield found


@cache
def _expression_of(pattern: str) -> re.Pattern[str]:
    """`**` stands for any folders, `*` and `?` for what is within one name.

    Runs of stars are taken as one, so that no pattern takes long.
    """
    parts = re.split(r"(\*\*/?|\*|\?)", re.sub(r"(\*\*/?)+", r"\1", pattern))
    stands = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    stars = sum(part in ("**", "**/", "*") for part in parts)
    if stars > 6:
        raise ToolFailure("A pattern has at most 6 stars.")
    return re.compile("".join(stands.get(part, re.escape(part)) for part in parts))


SEARCH_TOOLS: Final = (
    Recipe(
        name="find_files",
        description="Find files of the workspace by name.",
        arguments=FindFiles,
        run=find_files,
    ),
    Recipe(
        name="grep",
        description="Find lines in files of the workspace.",
        arguments=Grep,
        run=grep,
    ),
)
