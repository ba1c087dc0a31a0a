"""Which format a file is, and that no bytes crash a reader."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engrain.contracts.errors import UnknownFormat
from engrain.contracts.events import ToolCall
from engrain.contracts.imports import TurnRead
from engrain.formats.registry import READERS, head_bytes, reader_named, recognise
from engrain.rules.validation import check_append
from formats.reading import FIXTURES, fixture, read, source

KINDS = {
    "archive.jsonl": "archive",
    "chatgpt.json": "chatgpt",
    "claude.json": "claude",
    "claude_code.jsonl": "claude_code",
    "agent-a1b2c3.jsonl": "claude_code",
    "locomo.json": "locomo",
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_each_fixture_is_recognised_as_its_format_alone(name: str, kind: str) -> None:
    head = (FIXTURES / name).read_bytes()[:head_bytes]
    assert [r.name for r in READERS if r.recognises(name, head)] == [kind]
    found = recognise(name, head)
    assert found is reader_named(kind)


def test_chatgpt_and_claude_share_a_name_and_are_told_apart() -> None:
    kinds = [
        recognise("conversations.json", (FIXTURES / name).read_bytes()[:head_bytes])
        for name in ("chatgpt.json", "claude.json")
    ]
    assert [kind and kind.name for kind in kinds] == ["chatgpt", "claude"]


@pytest.mark.parametrize("head", [b"", b"[]", b'{"users": []}', b"\x89PNG", b"dia_id", b"[1, 2"])
def test_other_files_are_not_recognised(head: bytes) -> None:
    for name in ("conversations.json", "users.json", "notes.jsonl", "picture.png"):
        assert recognise(name, head) is None


def test_a_quoted_key_inside_of_words_is_no_sign() -> None:
    head = b'[{"title": "\\"chat_messages\\": [] and \\"mapping\\": {}"}]'
    assert recognise("conversations.json", head) is None


def test_an_unknown_format_says_which_are_known() -> None:
    with pytest.raises(UnknownFormat, match="archive, chatgpt, claude, claude_code, locomo"):
        reader_named("diary")


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_the_same_file_gives_the_same_items(name: str, kind: str) -> None:
    assert read(kind, fixture(name)) == read(kind, fixture(name))


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_every_turn_may_be_appended(name: str, kind: str) -> None:
    assert_appendable(kind, (FIXTURES / name).read_bytes(), name)


def assert_appendable(kind: str, data: bytes, name: str = "x.jsonl") -> None:
    calls: dict[str, set[str]] = {}
    session = ""
    try:
        items = read(kind, source(data, name))
    except UnknownFormat:
        assert kind == "archive"
        return
    for item in items:
        if isinstance(item, TurnRead):
            turn = [imported.event for imported in item.events]
            check_append(turn, known_calls=calls.setdefault(session, set()))
            calls[session] |= {event.call_id for event in turn if isinstance(event, ToolCall)}
        else:
            session = getattr(item, "source_id", session)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(READERS), st.binary(max_size=400))
@example(READERS[0], b'{"engrain":"archive","version":1}\n{"session":7}\n{"end":[]}')
@example(READERS[1], b'{"message": "\\ud800", "type": {"a": 1}, "uuid": 3}')
def test_arbitrary_bytes_never_crash_a_reader(reader: object, data: bytes) -> None:
    assert_appendable(reader.name, data)  # type: ignore[attr-defined]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**32))
@example("agent-a1b2c3.jsonl", 543)
def test_a_damaged_file_never_crashes_a_reader(name: str, seed: int) -> None:
    assert_appendable(KINDS[name], damaged((FIXTURES / name).read_bytes(), seed), name)


def damaged(data: bytes, seed: int) -> bytes:
    """The file with some of its values swapped, cut or replaced by others."""
    chance = random.Random(seed)
    raw = bytearray(data[:20_000])
    for _ in range(chance.randint(1, 8)):
        start = chance.randrange(len(raw))
        end = min(len(raw), start + chance.choice([0, 1, 1, 5, 80]))
        other = chance.randrange(len(raw))
        patches = [
            b"",
            b"null",
            b'"',
            b"{",
            b"]",
            b"\xff",
            b"\\ud800",
            raw[other : other + 40],
            b"7",
        ]
        raw[start:end] = chance.choice(patches)
    return bytes(raw)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**32))
def test_fields_that_are_swapped_missing_or_of_other_types_never_crash_a_reader(
    name: str, seed: int
) -> None:
    chance = random.Random(seed)
    raw = (FIXTURES / name).read_text("utf-8-sig")
    is_lines = name.endswith(".jsonl")
    documents = [changed(d, chance) for d in (raw.splitlines() if is_lines else [raw])]
    assert_appendable(KINDS[name], "\n".join(documents).encode(), name)


def changed(document: str, chance: random.Random) -> str:
    """The document with up to three of its values gone, or replaced by others."""
    try:
        value = json.loads(document)
    except json.JSONDecodeError:
        return document
    for _ in range(chance.randint(0, 3)):
        places = list(containers(value))
        parent, key = chance.choice(places) if places else ({}, None)
        other_parent, other_key = chance.choice(places) if places else ({}, None)
        if chance.random() < 0.2 and places:
            del parent[key]
        elif places:
            values = [None, 7, [], {}, "", True, -1.5, "x", ["x"], other_parent[other_key]]
            parent[key] = json.loads(json.dumps(chance.choice(values)))
    return json.dumps(value)


def containers(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place below the value: the container and the key or index in it."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield value, key
        yield from containers(value[key])
