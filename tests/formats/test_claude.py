"""Claude.ai exports: each odd corner of the format, exactly."""

from __future__ import annotations

import json

from engrain.contracts.imports import Skipped
from formats.reading import events, fixture, read, skips, source, told


def test_content_comes_before_text_and_the_current_leaf_chooses_the_line() -> None:
    assert told(read("claude", fixture("claude.json"))) == [
        "session conv-1 | Tomatoes | 1772355600000000",
        "--",
        "m1 user: When do I sow tomatoes?",
        "m2/1 assistant: Let me look.",
        'm2/2 call m2/2 web_search {"query":"sow tomatoes"}',
        "m2/3 result m2/2 completed: Six weeks before the last frost.",
        "m2/4 assistant: Six weeks before the last frost.",
        "--",
        "m3 user: Only the old field\n\n[attachment: beds.txt]\nbed A: sun\nbed B: shade",
        "m4 call t1 artifacts {}",
        'm4/1 call t2 repl {"code":"1"}',
        "m4/missing result t1 missing: ",
        "m4/2 result t2 failed: boom",
        "--",
        "m5 user: Bed A then.\n\nThanks.",
        "session conv-2 | None | 1772445600000000",
        "--",
        "w1 user: Name a river",
        "w2 assistant: Douro",
        "--",
        "w3 user: Which city?",
        "w4 assistant: Porto",
    ]


def test_all_that_was_not_said_is_counted() -> None:
    items = read("claude", fixture("claude.json"))
    assert skips(items) == {
        "branch": 2,
        "empty": 1,
        "empty_session": 1,
        "file": 2,
        "not_a_conversation": 1,
        "picture": 1,
        "thinking": 1,
        "truncated": 1,
        "unknown_part": 1,
        "unknown_sender": 1,
    }
    assert Skipped("m3", "file", 2) in items


def test_times_are_utc_and_a_broken_one_stays_unsaid() -> None:
    found = events(read("claude", fixture("claude.json")))
    assert found["conv-1:m2/1"].occurred_at == 1_772_355_605_500_000
    assert found["conv-1:m3"].occurred_at == 1_772_352_300_000_000
    assert found["conv-1:m4"].occurred_at is None
    assert {event.origin for event in found.values()} == {"import:claude"}


def test_a_parent_that_is_unknown_follows_the_message_before_it() -> None:
    messages = [
        {"uuid": "a", "sender": "human", "text": "one", "parent_message_uuid": "0" * 8},
        {"uuid": "b", "sender": "assistant", "text": "two", "parent_message_uuid": "gone"},
        {"sender": "human", "text": "three"},
    ]
    items = read("claude", source(json.dumps({"uuid": "x", "chat_messages": messages}).encode()))
    assert told(items)[1:] == ["--", "a user: one", "b assistant: two", "--", "3 user: three"]


def test_lone_surrogates_and_nul_are_repaired_and_marked() -> None:
    raw = rb'[{"uuid":"x","chat_messages":[{"uuid":"a","sender":"human","text":"a\ud800b\u0000"},'
    raw += rb'{"uuid":"b","sender":"human","text":"\ud83d\ude00"}]}]'
    found = events(read("claude", source(raw)))
    assert [(e.text, e.repaired) for e in found.values()] == [("a�b�", True), ("😀", False)]


def test_bytes_that_are_not_utf8_are_repaired_and_marked() -> None:
    raw = b'{"uuid":"x","chat_messages":[{"uuid":"a","sender":"human","text":"caf\xe9"}]}'
    (event,) = events(read("claude", source(raw))).values()
    assert (event.text, event.repaired) == ("caf�", True)


def test_an_element_outside_the_bounds_is_counted_and_the_rest_is_read() -> None:
    good = b'{"uuid":"x","chat_messages":[{"uuid":"a","sender":"human","text":"hi"}]}'
    bad = [
        b'{"chat_messages":NaN}',
        b'{"chat_messages":[],"chat_messages":[]}',
        b'{"chat_messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"chat_messages":1e999}',
        b'{"chat_messages":[}',
    ]
    items = read("claude", source(b"[" + b",".join([*bad[:2], good, *bad[2:]]) + b"]"))
    assert told(items) == ["session x | None | None", "--", "a user: hi"]
    assert skips(items) == {"invalid_json": 4, "limit_exceeded": 1, "torn": 1}


def test_a_torn_export_keeps_its_whole_conversations() -> None:
    raw = fixture("claude.json").open().read()
    items = read("claude", source(raw[: raw.index(b'"conv-2"')]))
    assert told(items)[0] == "session conv-1 | Tomatoes | 1772355600000000"
    assert skips(items)["torn"] == 1
