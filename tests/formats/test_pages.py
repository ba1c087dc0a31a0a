"""The example that ships and the pages that describe the formats say what is true."""

from __future__ import annotations

import re
from pathlib import Path

from engrain.contracts.imports import Skipped, TurnRead
from engrain.formats.registry import READERS, head_bytes, recognise
from formats.reading import FIXTURES, read, skips, source

ROOT = Path(__file__).parents[2]
FORMATS_PAGE = (ROOT / "docs/reference/formats.md").read_text()
ARCHIVE_PAGE = (ROOT / "docs/reference/archive.md").read_text()


def test_the_example_is_read_whole() -> None:
    data = (ROOT / "examples/conversations.json").read_bytes()
    found = recognise("conversations.json", data[:head_bytes])
    assert found is not None
    assert found.name == "claude"
    items = read("claude", source(data))
    turns = [item for item in items if isinstance(item, TurnRead)]
    assert (len(turns), sum(len(turn.events) for turn in turns)) == (31, 65)
    assert [item for item in items if isinstance(item, Skipped)] == []


def test_the_archive_on_its_page_is_whole() -> None:
    block = re.search(r"```jsonl\n(.*?)```", ARCHIVE_PAGE, re.DOTALL)
    assert block is not None
    items = read("archive", source(block[1].encode()))
    assert skips(items) == {}
    assert [len(item.events) for item in items if isinstance(item, TurnRead)] == [4]


def test_every_format_and_skip_word_of_the_fixtures_is_documented() -> None:
    for reader in READERS:
        assert f"| `{reader.name}` |" in FORMATS_PAGE
    for path in sorted(path for path in FIXTURES.iterdir() if path.is_file()):
        reader = recognise(path.name, path.read_bytes()[:head_bytes])
        assert reader is not None
        page = FORMATS_PAGE + ARCHIVE_PAGE
        for word in skips(read(reader.name, source(path.read_bytes(), path.name))):
            assert f"`{word}`" in page
