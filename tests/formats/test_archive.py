"""Our own archive: what is written is what is read."""

from __future__ import annotations

from typing import get_args
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.contracts.errors import UnknownFormat
from engrain.contracts.events import (
    EVENT_KINDS,
    EVENT_TYPES,
    Approval,
    AssistantMessage,
    Audit,
    Erased,
    Failure,
    Recall,
    ResultStatus,
    StoredEvent,
    Summary,
    System,
    ToolCall,
    ToolResult,
    UserMessage,
)
from engrain.contracts.ids import SessionId
from engrain.contracts.imports import Skipped
from engrain.contracts.sessions import ForkPoint, Session
from engrain.contracts.workspace import DEFAULT_WORKSPACE, DirectoryIdentity, Workspace
from engrain.formats.archive import (
    ArchiveSession,
    iter_archive,
    iter_archive_lines,
)
from engrain.formats.registry import recognise
from engrain.rules.validation import check_append
from formats.reading import events, fixture, read, skips, source, told

FIRST = SessionId(UUID("01890000-0000-7000-8000-000000000001"))
SECOND = SessionId(UUID("01890000-0000-7000-8000-000000000002"))
THIRD = SessionId(UUID("01890000-0000-7000-8000-000000000003"))

DIRECTORY = Workspace(
    name="/home/ana/shop",
    identity=DirectoryIdentity(device=1, inode=2**62, generation=3, generation_kind="birth"),
)
SESSIONS = [
    Session(
        id=FIRST,
        title="Café ☕",
        workspace=DIRECTORY,
        created_at=1_700_000_000_000_000,
        updated_at=1_700_000_000_000_009,
        opened_at=1_700_000_000_000_010,
        event_count=11,
        leased_until=None,
    ),
    Session(
        id=SECOND,
        title=None,
        workspace=DEFAULT_WORKSPACE,
        created_at=1,
        updated_at=2,
        opened_at=3,
        event_count=0,
        leased_until=None,
        forked_from=ForkPoint(FIRST, 3),
    ),
]
EVENTS = [
    System(text="be kind"),
    UserMessage(text='"quoted"\n日本語 😀', speaker="Ana", occurred_at=-5, source_id="m-1"),
    Recall(text="what I know", episode_ids=("a", "b"), tokens=12),
    ToolCall(call_id="c1", name="read", arguments='{"a": 1.50}', repaired=True),
    Approval(call_id="c1", is_allowed=True, origin="user"),
    ToolResult(call_id="c1", status="failed", text="\u2028", origin="tool:read"),
    AssistantMessage(text="done"),
    Audit(name="cost", text="{}"),
    Failure(code="busy", text="x"),
    Erased(was="user_message"),
    Summary(text="so far", covers_sequence=2, covers_link="ab"),
]
STORED = [
    StoredEvent(sequence, 1 if sequence < 8 else 8, 1_700_000_000_000_000 + sequence, event)
    for sequence, event in enumerate(EVENTS, start=1)
]


def archive() -> bytes:
    return b"".join(iter_archive_lines(zip(SESSIONS, [STORED, []], strict=True)))


def test_an_archive_gives_back_equal_sessions_and_events() -> None:
    assert list(iter_archive(source(archive()))) == [
        ArchiveSession(SESSIONS[0]),
        *STORED,
        ArchiveSession(SESSIONS[1]),
    ]


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
integers = st.integers(-(2**63), 2**63 - 1)
told_by_all = {
    "text": text,
    "origin": st.sampled_from(["host", "user", "model", "tool:read", "import:claude"]),
    "speaker": st.none() | text,
    "occurred_at": st.none() | integers,
    "source_id": st.none() | text,
    "repaired": st.booleans(),
}
own_fields = {
    ToolCall: {"call_id": text, "name": text, "arguments": text},
    ToolResult: {"call_id": text, "status": st.sampled_from(get_args(ResultStatus))},
    Approval: {"call_id": text, "is_allowed": st.booleans()},
    Audit: {"name": text},
    Recall: {"episode_ids": st.lists(text, max_size=3).map(tuple), "tokens": integers},
    Summary: {"covers_sequence": integers, "covers_link": text},
    Failure: {"code": text},
    Erased: {"was": st.sampled_from(EVENT_KINDS)},
}
any_event = st.sampled_from([*EVENT_TYPES, Erased]).flatmap(
    lambda kind: st.builds(kind, **told_by_all, **own_fields.get(kind, {}))
)


@settings(max_examples=300, deadline=None)
@given(st.builds(StoredEvent, integers, integers, integers, any_event))
def test_any_event_is_read_equal_to_the_one_that_was_written(stored: StoredEvent) -> None:
    lines = b"".join(iter_archive_lines([(SESSIONS[0], [stored])]))
    assert list(iter_archive(source(lines))) == [ArchiveSession(SESSIONS[0]), stored]
    assert lines.count(b"\n") == 4


@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        Session,
        id=st.uuids().map(SessionId),
        title=st.none() | text,
        workspace=st.builds(
            Workspace,
            name=text.filter(str.strip),
            identity=st.none()
            | st.builds(
                DirectoryIdentity,
                device=integers,
                inode=integers,
                generation=integers,
                generation_kind=text,
            ),
        ),
        created_at=integers,
        updated_at=integers,
        opened_at=integers,
        event_count=integers,
        leased_until=st.none(),
        forked_from=st.none() | st.builds(ForkPoint, st.uuids().map(SessionId), integers),
    )
)
def test_any_session_is_read_equal_to_the_one_that_was_written(session: Session) -> None:
    lines = b"".join(iter_archive_lines([(session, [])]))
    assert list(iter_archive(source(lines))) == [ArchiveSession(session)]


def test_what_is_read_is_written_again_as_the_same_bytes() -> None:
    first = archive()
    read_back: list[tuple[Session, list[StoredEvent]]] = []
    for item in iter_archive(source(first)):
        if isinstance(item, ArchiveSession):
            read_back.append((item.session, []))
        elif isinstance(item, StoredEvent):
            read_back[-1][1].append(item)
    assert b"".join(iter_archive_lines(read_back)) == first


def test_an_import_keeps_origins_and_turns_and_leaves_out_what_it_may_not_write() -> None:
    items = read("archive", source(archive()))
    assert told(items) == [
        f"session {FIRST} | Café ☕ | 1700000000000000",
        "--",
        "1 System: be kind",
        'm-1 Ana: "quoted"\n日本語 😀',
        "3 Recall: what I know",
        "5 Approval: ",
        '4 call c1 read {"a": 1.50}',
        "6 result c1 failed: \u2028",
        "7 assistant: done",
        "--",
        "8 Audit: {}",
        "9 Failure: x",
        f"session {SECOND} | None | 1",
    ]
    assert skips(items) == {"erased": 1, "summary": 1}
    found = events(items)
    assert found[f"{FIRST}:6"].origin == "tool:read"
    assert found[f"{FIRST}:4"].repaired
    assert found[f"{FIRST}:m-1"].occurred_at == -5
    check_append(list(found.values()))


def test_an_event_that_says_no_time_happened_when_it_was_recorded() -> None:
    """But for one that was itself imported without a time: nobody knows when that was said."""
    said = [UserMessage(text="live"), UserMessage(text="old", origin="import:chatgpt")]
    stored = [StoredEvent(at, at, 1_700_000_000_000_000 + at, one) for at, one in enumerate(said)]
    whole = b"".join(iter_archive_lines([(SESSIONS[0], stored)]))
    found = [one.occurred_at for one in events(read("archive", source(whole))).values()]
    assert found == [1_700_000_000_000_000, None]


def test_the_documented_archive_is_read() -> None:
    items = read("archive", fixture("archive.jsonl"))
    assert told(items) == [
        "session 01890000-0000-7000-8000-00000000000a | Lisbon | 1767225600000000",
        "--",
        "1 user: Olá!",
        "2 assistant: Olá, Ana.",
    ]
    assert skips(items) == {
        "broken_line": 1,
        "invalid_value": 2,
        "no_session": 1,
        "torn": 1,
        "unknown_line": 1,
    }


def test_an_archive_without_its_last_line_is_torn() -> None:
    whole = archive()
    lines = whole.splitlines(keepends=True)
    assert skips(read("archive", source(b"".join(lines[:-1]))))["torn"] == 1
    assert Skipped("end", "torn") in read("archive", source(b"".join(lines[:5] + lines[6:])))
    assert "torn" not in skips(read("archive", source(whole)))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_events_below_a_broken_session_line_are_nobody_elses(count: int) -> None:
    said = [StoredEvent(n, 1, 7, UserMessage(text=f"first {n}")) for n in range(1, count + 1)]
    lost = [StoredEvent(n, 1, 7, UserMessage(text=f"second {n}")) for n in (1, 2, 3)]
    first = msgspec.structs.replace(SESSIONS[0], event_count=count)
    last = msgspec.structs.replace(SESSIONS[0], id=THIRD)
    whole = iter_archive_lines([(first, said), (SESSIONS[1], lost), (last, said)])
    lines = [b"{broken\n" if str(SECOND).encode() in line else line for line in whole]
    items = read("archive", source(b"".join(lines)))
    heard = [f"{n} user: first {n}" for n in range(1, count + 1)]
    turn = ["--", *heard] if heard else []
    assert [line for line in told(items) if "session" not in line] == [*turn, *turn]
    assert skips(items) == {"broken_line": 1, "no_session": 3, "torn": 1}


def test_an_event_that_stands_twice_costs_its_session_nothing() -> None:
    lines = archive().splitlines(keepends=True)
    items = read("archive", source(b"".join([*lines[:3], *lines[2:]])))
    assert told(items) == told(read("archive", source(archive())))
    assert skips(items) == {"erased": 1, "repeated": 1, "summary": 1, "torn": 1}


@pytest.mark.parametrize("head", [b"", b"{}\n", b'{"engrain":"archive","version":2}\n', b"\0\n"])
def test_another_header_is_refused(head: bytes) -> None:
    with pytest.raises(UnknownFormat):
        list(iter_archive(source(head)))


def test_an_archive_is_recognised_by_its_header_under_any_name() -> None:
    reader = recognise("backup.bin", archive()[:100])
    assert reader is not None
    assert reader.name == "archive"
