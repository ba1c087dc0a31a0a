"""Claude Code transcripts: each odd corner of the format, exactly."""

from __future__ import annotations

import msgspec
import pytest

from engrain.contracts.events import ToolCall
from engrain.contracts.imports import SessionBegins, Skipped, TurnRead
from engrain.rules.validation import check_append
from formats.reading import events, fixture, read, skips, source, told

S = "11111111-aaaa-4aaa-8aaa-000000000001"
OLDER = "11111111-aaaa-4aaa-8aaa-000000000000"
BEGIN = f"session {S} | Fix the cart total | 1775030410000000"


def shortened(lines: list[str]) -> list[str]:
    return [line if len(line) < 200 else f"{line[:20]}… {len(line):,}" for line in lines]


def test_a_transcript_becomes_turns_of_the_sessions_that_its_lines_name() -> None:
    assert shortened(told(read("claude_code", fixture("claude_code.jsonl")))) == [
        BEGIN,
        "--",
        "u-4 user: Why is the cart total wrong?",
        "a-2 assistant: I will read the code.",
        'a-4 call toolu_1 Read {"file_path":"cart.py"}',
        'a-5 call toolu_2 Bash {"command":"pytest"}',
        "r-1 result toolu_1 completed: def total(): ...",
        "r-2 result toolu_2 failed: 1 failed",
        "a-6 assistant: The tax is added twice.",
        'a-7 call toolu_3 Task {"prompt":"find callers"}',
        "r-3 result toolu_3 completed: Two callers.",
        "a-8 assistant: Fixed in both.",
        "--",
        "u-6 user: Now add a test.",
        'a-9 call toolu_4 Write {"file_path":"t.py"}',
        "a-9/missing result toolu_4 missing: ",
        "--",
        "u-8 user: Use the other file.",
        "a-14 assistant: Done.",
        "a-15 assistant: A line without time or known parent.",
        f"session {OLDER} | None | 1775030401000000",
        "--",
        "o-1 user: An older session, resumed in this file",
        "o-2 assistant: Its answer",
        BEGIN,
        "--",
        "u-9 user: Paste:\n012… 110,017",
        "a-17 assistant: Running.",
        'a-17/1 call toolu_1#2 Bash {"command":"make"}',
        "r-10 result toolu_1#2 completed: ok",
        f"session {S}/s-1 | None | 1775030423000000",
        "--",
        "s-1 System: find callers of total",
        "s-2 assistant: Two callers.",
    ]


def test_all_that_nobody_said_is_counted() -> None:
    items = read("claude_code", fixture("claude_code.jsonl"))
    assert skips(items) == {
        "api_error": 1,
        "branch": 2,
        "broken_line": 1,
        "compact_boundary": 1,
        "compact_summary": 1,
        "file_snapshot": 1,
        "injected": 1,
        "interrupted": 1,
        "meta": 1,
        "open_call": 1,
        "orphan_result": 1,
        "picture": 2,
        "progress": 3,
        "queue_operation": 1,
        "repeated": 1,
        "thinking": 1,
        "title": 1,
        "torn": 1,
    }
    assert Skipped("line 22", "broken_line") in items
    assert Skipped("a-18", "open_call") in items


def test_a_sidechains_own_file_is_a_session_below_its_parents() -> None:
    items = read("claude_code", fixture("agent-a1b2c3.jsonl"))
    assert told(items) == [
        f"session {S}/a1b2c3 | None | 1775030450000000",
        "--",
        "g-1 System: List the tests",
        'g-2 call toolu_g Glob {"pattern":"t*"}',
        "g-3 result toolu_g completed: t.py",
        "g-4 assistant: Only t.py.",
    ]
    assert skips(items) == {}


def test_directory_and_times_are_kept_and_a_line_without_time_has_none() -> None:
    items = read("claude_code", fixture("claude_code.jsonl"))
    assert isinstance(items[0], Skipped | SessionBegins)
    directories = {item.directory for item in items if isinstance(item, SessionBegins)}
    assert directories == {"/home/ana/shop"}
    found = events(items)
    assert found[f"{S}:u-4"].occurred_at == 1_775_030_414_000_000
    assert found[f"{S}:a-14"].occurred_at == 1_775_030_436_000_000
    assert found[f"{S}:a-15"].occurred_at is None
    assert {event.origin for event in found.values()} == {"import:claude_code"}


def test_a_transcript_may_be_read_again_after_every_line_that_it_grows_by() -> None:
    lines = fixture("claude_code.jsonl").open().read().split(b"\n")
    known: set[str] = set()
    calls: dict[str, set[str]] = {}
    for count in range(1, len(lines) + 1):
        session = ""
        for item in read("claude_code", source(b"\n".join(lines[:count]), "x.jsonl")):
            if isinstance(item, SessionBegins):
                session = item.source_id
            elif isinstance(item, TurnRead):
                new = [i for i in item.events if f"{session}:{i.source_id}" not in known]
                seen = calls.setdefault(session, set())
                if new:
                    check_append([i.event for i in new], known_calls=seen)
                seen |= {i.event.call_id for i in new if isinstance(i.event, ToolCall)}
                known |= {f"{session}:{i.source_id}" for i in new}
    whole = events(read("claude_code", fixture("claude_code.jsonl")))
    assert set(whole) <= known
    assert known - set(whole) == {f"{S}:u-3", f"{S}:a-3"}


def test_lines_without_ids_are_named_by_their_place() -> None:
    raw = b'{"type":"user","message":{"content":"hi"}}\n'
    raw += b'{"type":"assistant","message":{"content":"yo"}}'
    assert told(read("claude_code", source(raw, "folder/my-session.jsonl"))) == [
        "session my-session | None | None",
        "--",
        "1 user: hi",
        "2 assistant: yo",
    ]


@pytest.mark.parametrize("agents", [["a", "b"], [None, None]])
def test_sidechains_that_start_at_one_line_replace_neither_each_other_nor_a_person(
    agents: list[str | None],
) -> None:
    def line(line_id: str, parent: str | None, **fields: object) -> bytes:
        message = {"role": "user", "content": f"words of {line_id}"}
        known = {"type": "user", "sessionId": S, "uuid": line_id, "parentUuid": parent}
        return msgspec.json.encode({**known, "message": message, **fields}) + b"\n"

    asked = [
        line(f"s-{n}", "u-1", isSidechain=True, agentId=agent) for n, agent in enumerate(agents)
    ]
    items = read(
        "claude_code",
        source(b"".join([line("u-1", None), asked[0], line("u-2", "u-1"), asked[1]]), "x.jsonl"),
    )
    heard = sorted(line for line in told(items) if "words of" in line)
    assert heard == [
        "s-0 System: words of s-0",
        "s-1 System: words of s-1",
        "u-1 user: words of u-1",
        "u-2 user: words of u-2",
    ]
    assert skips(items) == {}
