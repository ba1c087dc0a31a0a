"""What a text tells a person to run can be run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.conftest import ROOT, Command
from docs.pages import pages
from engrain.apps.cli.main import app

_ADVICE = re.compile(r"(?:`|run: |: |\$ |\()engrain ((?:[a-z]+ ?)+)")


def advised(text: str) -> Iterator[list[str]]:
    """The commands that a text tells somebody to run, as words."""
    for match in _ADVICE.finditer(text):
        yield match[1].split()


def is_command(words: list[str]) -> bool:
    """Whether the words begin with a command; a group alone is none unless nothing follows it."""
    within = app
    for at, word in enumerate(words):
        if word not in within:
            return at > 0 and within.default_command is not None
        within = within[word]
    return True


def strings() -> Iterator[tuple[str, str]]:
    """Every text of the program and every page, with its place."""
    for page in pages():
        yield str(page.relative_to(ROOT)), page.read_text("utf-8")
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield str(path.relative_to(ROOT)), node.value


@pytest.mark.parametrize("words", [["doctor"], ["sessions", "nosuch"], ["nosuch"]])
def test_command_that_does_not_exist_is_known_as_none(words: list[str]) -> None:
    assert not is_command(words)


def test_no_text_names_a_command_that_does_not_exist() -> None:
    found = [(place, words) for place, text in strings() for words in advised(text)]
    assert len(found) > 30
    assert [one for one in found if not is_command(one[1])] == []


def test_no_command_is_advised_for_a_file_that_is_not_ours(
    engrain: Command, tmp_path: Path
) -> None:
    foreign = tmp_path / "passwords"
    foreign.touch()
    foreign.chmod(0o644)
    ran = engrain("search", "x", "--db", str(foreign))
    assert ran.code == 1
    assert "chmod" not in ran.err
    assert f"{foreign}: is not private (mode 0644 instead of 0600)" in ran.err
