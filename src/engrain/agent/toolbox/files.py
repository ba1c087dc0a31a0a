"""Files of the workspace: read, listed, written, edited."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from engrain.agent.toolbox.arguments import Recipe
from engrain.agent.tools import ToolContext, ToolFailure
from engrain.contracts import limits
from engrain.system.confined import ConfinedFolder

_READ_BYTES_MAX: Final = 16 * limits.MIB
_SHOWN_BYTES_MAX: Final = 256 * limits.KIB
_WRITTEN_BYTES_MAX: Final = 4 * limits.MIB
_LISTED_MAX: Final = 1_000
FilePath = Annotated[str, Meta(description="A path inside the workspace.", min_length=1)]


class ReadFile(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `read_file`."""

    path: FilePath
    first_line: Annotated[int, Meta(description="The first line to show, from 1.", ge=1)] = 1
    line_count: Annotated[int, Meta(description="How many lines.", ge=1, le=100_000)] = 2_000


class ListDirectory(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `list_directory`."""

    path: Annotated[str, Meta(description="A folder inside the workspace.")] = "."


class WriteFile(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `write_file`."""

    path: FilePath
    content: Annotated[str, Meta(description="The whole new content.")]
    make_folders: Annotated[bool, Meta(description="Make missing folders on the way.")] = False


class EditFile(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `edit_file`."""

    path: FilePath
    old: Annotated[str, Meta(description="Text that is there exactly once.", min_length=1)]
    new: Annotated[str, Meta(description="What stands there instead.")]
    replace_all: Annotated[bool, Meta(description="Replace it wherever it is.")] = False


def read_file(folder: ConfinedFolder, given: ReadFile, context: ToolContext) -> str:
    """Lines of a text file, cut to what a model can use; says what was left out."""
    lines = read_text(folder, given.path).splitlines(keepends=True)
    if given.first_line > max(len(lines), 1):
        raise ToolFailure(f"The file has {len(lines):,} lines.")
    start = given.first_line - 1
    shown: list[str] = []
    room = _SHOWN_BYTES_MAX
    for line in lines[start : start + given.line_count]:
        room -= len(line.encode())
        if room < 0:
            break
        shown.append(line)
    left = len(lines) - start - len(shown)
    text = "".join(shown)
    if not left:
        return text
    if not shown:
        raise ToolFailure(f"Line {given.first_line:,} alone is longer than {_SHOWN_BYTES_MAX:,}.")
    return f"{text}\n[{left:,} more lines; go on with first_line {start + len(shown) + 1}]"


def list_directory(folder: ConfinedFolder, given: ListDirectory, context: ToolContext) -> str:
    """Names, folders with '/', links with '@'."""
    names = folder.list_names(given.path)
    more = len(names) - _LISTED_MAX
    tail = [f"[{more:,} more]"] if more > 0 else []
    return "\n".join(names[:_LISTED_MAX] + tail) or "[empty]"


def write_file(folder: ConfinedFolder, given: WriteFile, context: ToolContext) -> str:
    """The whole content, at once and durably."""
    return put_text(folder, given.path, given.content, with_folders=given.make_folders)


def edit_file(folder: ConfinedFolder, given: EditFile, context: ToolContext) -> str:
    """One text for another, when it is clear which is meant."""
    content = read_text(folder, given.path)
    found = content.count(given.old)
    if found == 0:
        raise ToolFailure("The old text is not in the file; read it again.")
    if found > 1 and not given.replace_all:
        raise ToolFailure(f"The old text is there {found:,} times; give more of it.")
    return put_text(folder, given.path, content.replace(given.old, given.new))


def read_text(folder: ConfinedFolder, path: str) -> str:
    """A text file whole; `ToolFailure` for one that is too long or no text."""
    content = folder.read(path, _READ_BYTES_MAX + 1)
    if len(content) > _READ_BYTES_MAX:
        raise ToolFailure(f"The file is larger than {_READ_BYTES_MAX:,} bytes.")
    if b"\0" in content:
        raise ToolFailure("The file is binary.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ToolFailure("The file is no UTF-8 text.") from None


def put_text(folder: ConfinedFolder, path: str, text: str, *, with_folders: bool = False) -> str:
    """Writes it and says how much."""
    content = text.encode(errors="replace")
    if len(content) > _WRITTEN_BYTES_MAX:
        raise ToolFailure(f"More than {_WRITTEN_BYTES_MAX:,} bytes are not written at once.")
    is_new = folder.write(path, content, with_folders=with_folders)
    return f"{'Made' if is_new else 'Changed'} {path}: {len(content):,} bytes."


FILE_TOOLS: Final = (
    Recipe(
        name="read_file",
        description="Show lines of a text file in the workspace.",
        arguments=ReadFile,
        run=read_file,
    ),
    Recipe(
        name="list_directory",
        description="List a folder of the workspace.",
        arguments=ListDirectory,
        run=list_directory,
    ),
    Recipe(
        name="write_file",
        description="Write a whole text file in the workspace.",
        arguments=WriteFile,
        run=write_file,
        needs_approval=True,
    ),
    Recipe(
        name="edit_file",
        description="Replace a text in a file of the workspace.",
        arguments=EditFile,
        run=edit_file,
        needs_approval=True,
    ),
)
