"""Bad input: a typed error or a counted skip, at once, and nothing that was stored is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engrain import Memory, Scope, SessionSnapshot, Turn, UserMessage
from engrain.contracts.episodes import NewEpisode
from engrain.contracts.errors import (
    EngrainError,
    InvalidJson,
    InvalidValue,
    LimitExceeded,
)
from engrain.contracts.events import ToolCall, ToolResult
from engrain.contracts.ids import SessionId

ANA = Scope(org="acme", user="ana")
QUICK_S = 2.0
"""The promise is a second; the rest is for machines that do other things meanwhile."""
HUGE_S = 5.0
"""What only reading 200 MB may take."""
HUGE = 200 * 1024 * 1024
DEEP = 100_000


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest) -> Iterator[Memory]:
    """A memory that holds a turn, an episode and an audit entry."""
    url = (
        request.getfixturevalue("fresh_postgres_url")
        if request.param == "postgres"
        else str(request.getfixturevalue("tmp_path") / "engrain.sqlite3")
    )
    with Memory.open(url) as memory:
        session = memory.sessions.start(ANA, title="kept")
        with memory.sessions.lease(ANA, session.id) as writer:
            writer.append(Turn.said("the heron waits", reply="by the canal"))
        memory.enrichment.extract(ANA, session.id)
        memory.audit.record(ANA, "kept", {})
        yield memory


def holdings(memory: Memory) -> list[object]:
    """All that the scope holds, verified on the way."""
    sessions = memory.sessions.list(ANA, limit=1_000).items
    return [
        {session.id: (session.title, session.event_count) for session in sessions},
        [memory.sessions.verify(ANA, session.id) for session in sessions],
        [list(memory.sessions.iter_events(ANA, session.id)) for session in sessions],
        memory.episodes.list(ANA, limit=1_000).items,
        memory.audit.verify(ANA),
        [hit.episode.id for hit in memory.episodes.search(ANA, "heron canal")],
    ]


@contextmanager
def quickly(most_s: float = QUICK_S) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < most_s


@contextmanager
def losing_nothing(memory: Memory) -> Iterator[None]:
    before = holdings(memory)
    yield
    assert holdings(memory) == before


@contextmanager
def refused(memory: Memory, *kinds: type[EngrainError]) -> Iterator[pytest.ExceptionInfo[Any]]:
    with losing_nothing(memory), quickly(), pytest.raises(kinds) as caught:
        yield caught
    assert type(caught.value).code not in ("error", "corrupt")
    assert len(caught.value.message) < 500, "an error does not repeat what it refuses"


def kept(memory: Memory) -> SessionId:
    return memory.sessions.list(ANA).items[-1].id


# Values of a turn


def _huge_text() -> Any:
    return (UserMessage(text="a" * HUGE),)


def _huge_arguments() -> Any:
    return (
        ToolCall(call_id="c", name="t", arguments=json.dumps({"x": "a" * HUGE})),
        ToolResult(call_id="c", text="done"),
    )


def _many_events() -> Any:
    return (UserMessage(text="a"),) * 4_097


def _nul() -> Any:
    return (UserMessage(text="a\0b"),)


def _lone_surrogate() -> Any:
    return (UserMessage(text="a\ud800b"),)


def _lone_surrogate_in_a_name() -> Any:
    return (ToolCall(call_id="c", name="\udc00"), ToolResult(call_id="c"))


def _blank() -> Any:
    return (UserMessage(text=" \n"),)


def _nothing() -> Any:
    return ()


def _not_an_event() -> Any:
    return ({"kind": "user_message", "text": "a"},)


def _text_that_is_bytes() -> Any:
    return (UserMessage(text=b"a"),)  # type: ignore[arg-type]


def _a_call_without_result() -> Any:
    return (ToolCall(call_id="c", name="t"),)


@pytest.mark.invariant("INV-05")
@pytest.mark.parametrize(
    "make",
    [
        _huge_text,
        _huge_arguments,
        _many_events,
        _nul,
        _lone_surrogate,
        _lone_surrogate_in_a_name,
        _blank,
        _nothing,
        _not_an_event,
        _text_that_is_bytes,
        _a_call_without_result,
    ],
)
def test_a_turn_that_breaks_a_rule_is_refused_whole(
    memory: Memory, make: Callable[[], Any]
) -> None:
    events = make()
    good = UserMessage(text="good")
    session = kept(memory)
    with memory.sessions.lease(ANA, session) as writer:
        with refused(memory, InvalidValue, LimitExceeded):
            writer.append((good, *events) if events else events)
        writer.append(Turn.said("still the writer"))
    assert memory.sessions.verify(ANA, session).event_count == 3


# JSON documents


def _deep_list() -> Any:
    found: Any = 0
    for _ in range(DEEP):
        found = [found]
    return found


def _cyclic() -> Any:
    found: dict[str, Any] = {}
    found["again"] = found
    return found


@pytest.mark.invariant("INV-06")
@pytest.mark.parametrize(
    "make",
    [
        _deep_list,
        _cyclic,
        lambda: "a" * HUGE,
        lambda: [0] * 70_000,
        lambda: float("nan"),
        lambda: float("inf"),
        lambda: 2**64,
        lambda: "a\0",
        lambda: "\ud800",
        lambda: {"\udfff": 1},
        lambda: {1: "a key that is no text"},
        lambda: object(),
    ],
    ids=[
        "deep",
        "cyclic",
        "huge",
        "many",
        "nan",
        "infinity",
        "wide integer",
        "nul",
        "surrogate",
        "surrogate key",
        "number as key",
        "object",
    ],
)
def test_a_configuration_outside_the_bounds_of_json_is_refused(
    memory: Memory, make: Callable[[], Any]
) -> None:
    value = make()
    session = memory.sessions.start(ANA)
    with (
        memory.sessions.lease(ANA, session.id) as writer,
        refused(memory, InvalidJson, InvalidValue, LimitExceeded),
    ):
        writer.bind_snapshot(SessionSnapshot(configuration={"value": value}))


def _line(text: str) -> str:
    return (
        '{"sequence":%d,"turn":%d,"recorded_at":1767225600000001,'
        '"event":{"kind":"user_message","text":' + text + "}}\n"
    )


HEAD = (
    '{"engrain":"archive","version":1}\n'
    '{"session":{"id":"01890000-0000-7000-8000-00000000000a","title":"Lisbon",'
    '"workspace":{"name":"default","identity":null},"created_at":1767225600000000,'
    '"opened_at":1767225600000000,"updated_at":1767225600000002,"event_count":3,'
    '"leased_until":null,"forked_from":null}}\n'
)


@pytest.mark.invariant("INV-06")
@pytest.mark.parametrize(
    ("bad", "most_s"),
    [
        (lambda: _line('"' + "a" * HUGE + '"') % (2, 2), HUGE_S),
        (lambda: "[" * DEEP + "]" * DEEP + "\n", QUICK_S),
        (lambda: '{"a":' * DEEP + "\n", QUICK_S),
        (lambda: _line("NaN") % (2, 2), QUICK_S),
        (lambda: _line('"x","text":"y"') % (2, 2), QUICK_S),
        (lambda: _line("1" * 400) % (2, 2), QUICK_S),
        (lambda: '{"sequence":2,"turn":2,"recor\n', QUICK_S),
        (lambda: "\0" * 4_096 + "\n", QUICK_S),
        (lambda: "[" + "0," * 500_000 + "0]\n", QUICK_S),
    ],
    ids=[
        "huge",
        "deep",
        "deep and open",
        "nan",
        "duplicate key",
        "wide integer",
        "broken",
        "nul",
        "many nodes",
    ],
)
def test_one_bad_line_of_an_import_is_counted_and_the_others_are_kept(
    memory: Memory, tmp_path: Path, bad: Callable[[], str], most_s: float
) -> None:
    file = tmp_path / "archive.jsonl"
    with file.open("w", encoding="utf-8") as out:
        out.write(HEAD)
        out.write(_line('"the first line"') % (1, 1))
        out.write(bad())
        out.write(_line('"the last line"') % (3, 3))
    known = memory.episodes.list(ANA).items
    with quickly(most_s):
        report = memory.imports.run(ANA, file)
    assert sum(report.skipped.values()) >= 1
    assert report.events_new == 2
    assert report.failed == []
    (session,) = [one for one in memory.sessions.list(ANA).items if one.title == "Lisbon"]
    texts = [stored.event.text for stored in memory.sessions.iter_events(ANA, session.id)]
    assert texts == ["the first line", "the last line"]
    assert set(known) < set(memory.episodes.list(ANA).items)


@pytest.mark.invariant("INV-05")
@pytest.mark.parametrize("text", [r'"a\u0000b"', r'"a\ud800b"', r'"a\udc00\ud800b"'])
def test_text_of_a_file_that_breaks_the_text_rule_is_repaired_and_marked(
    memory: Memory, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "archive.jsonl"
    file.write_text(HEAD + _line(text) % (1, 1), "utf-8")
    memory.imports.run(ANA, file)
    (session,) = [one for one in memory.sessions.list(ANA).items if one.title == "Lisbon"]
    (stored,) = memory.sessions.iter_events(ANA, session.id)
    assert "\ufffd" in stored.event.text
    assert stored.event.repaired  # type: ignore[union-attr]


# Queries, scopes, budgets, pages


@pytest.mark.invariant("INV-18")
@pytest.mark.parametrize(
    "query",
    [
        "(" * 3_000,
        "(heron" * 3_000,
        '"' * 3_001,
        "NEAR(" * 3_000,
        "a\0" * 9_000,
        "\ud800" * 9_000,
        "猫" * 20_000,
        "x" * 60_000,
        "a1-" * 20_000,
        " " * 60_000,
    ],
    ids=lambda query: repr(query[:6]),
)
def test_any_query_is_answered_at_once(memory: Memory, query: str) -> None:
    with losing_nothing(memory):
        with quickly():
            memory.episodes.search(ANA, query)
        with quickly():
            memory.recall(ANA, query, budget_tokens=500)
        with quickly():
            memory.recall(ANA, query * 20, budget_tokens=500)
        assert memory.episodes.search(ANA, f"heron {query}"[:20_000])


@pytest.mark.parametrize("field", ["org", "user"])
@pytest.mark.parametrize(
    "value",
    ["", " ", "\t", "*", "a*", "%", "a%b", "?", "a?", " a", "a ", "a\0", "\ud800", None, 5, b"acme",
     ["acme"], "a" * 257, "é" * 129],
    ids=repr,
)  # fmt: skip
def test_a_wrong_scope_cannot_be_made(field: str, value: Any) -> None:
    parts = {"org": "acme", "user": "ana"} | {field: value}
    with pytest.raises((InvalidValue, LimitExceeded)):
        Scope(**parts)


@pytest.mark.parametrize("scope", [None, "acme", ("acme", "ana"), {"org": "acme"}, 5], ids=repr)
def test_what_is_no_scope_is_refused_by_every_verb(memory: Memory, scope: Any) -> None:
    session = kept(memory)
    episode = NewEpisode(text="x", first_sequence=1, last_sequence=1)
    for verb in (
        lambda: memory.sessions.start(scope),
        lambda: memory.sessions.list(scope),
        lambda: memory.sessions.read(scope, session),
        lambda: memory.sessions.lease(scope, session),
        lambda: memory.sessions.verify(scope, session),
        lambda: list(memory.sessions.iter_events(scope, session)),
        lambda: memory.episodes.append(scope, session, [episode]),
        lambda: memory.episodes.list(scope),
        lambda: memory.episodes.search(scope, "heron"),
        lambda: memory.episodes.tombstone(scope, []),
        lambda: memory.episodes.settle(scope),
        lambda: memory.enrichment.extract(scope, session),
        lambda: memory.recall(scope, "heron", budget_tokens=100),
        lambda: memory.audit.list(scope),
        lambda: memory.audit.record(scope, "noted", {}),
    ):
        with refused(memory, InvalidValue) as caught:
            verb()
        assert caught.value.field == "scope"


def test_a_budget_of_nothing_is_an_empty_block(memory: Memory) -> None:
    with losing_nothing(memory), quickly():
        block = memory.recall(ANA, "heron", budget_tokens=0)
    assert (block.text, block.tokens, block.items) == ("", 0, ())
    with refused(memory, InvalidValue):
        memory.recall(ANA, "heron", budget_tokens=-1)


@pytest.mark.parametrize("limit", [0, -1, -(2**63), 2**63, 1_001])
def test_a_page_size_out_of_range_is_refused(memory: Memory, limit: int) -> None:
    for verb in (
        lambda: memory.sessions.list(ANA, limit=limit),
        lambda: memory.episodes.list(ANA, limit=limit),
        lambda: memory.episodes.search(ANA, "heron", limit=limit),
        lambda: memory.audit.list(ANA, limit=limit),
    ):
        with refused(memory, InvalidValue):
            verb()


@pytest.mark.parametrize("cursor", ["x", "é", "\ud800", "\0", "A" * 64, "A" * 10_000_000])
def test_a_cursor_that_we_did_not_give_is_refused(memory: Memory, cursor: str) -> None:
    for verb in (memory.sessions.list, memory.episodes.list):
        with refused(memory, InvalidValue) as caught:
            verb(ANA, cursor=cursor)
        assert caught.value.field == "cursor"


@pytest.mark.invariant("INV-05")
@pytest.mark.parametrize(
    "text", ["a\0", "\ud800", " ", "a" * (HUGE // 10)], ids=lambda it: repr(it[:3])
)
def test_names_that_break_a_rule_are_refused(memory: Memory, text: str) -> None:
    session = kept(memory)
    for verb in (
        lambda: memory.sessions.start(ANA, title=text),
        lambda: memory.sessions.start(ANA, workspace=text),
        lambda: memory.sessions.set_title(ANA, session, text),
        lambda: memory.sessions.list(ANA, workspace=text),
    ):
        with refused(memory, InvalidValue, LimitExceeded):
            verb()


@pytest.mark.parametrize(
    ("name", "facts"),
    [("a\0", {}), ("\ud800", {}), ("noted", {"fact": "a\0"}), ("noted", {"\ud800": 1}),
     ("noted", {"fact": 2**64})],
    ids=repr,
)  # fmt: skip
def test_an_audit_entry_that_breaks_the_text_rule_is_refused(
    memory: Memory, name: str, facts: dict[str, str | int]
) -> None:
    with refused(memory, InvalidValue, InvalidJson):
        memory.audit.record(ANA, name, facts)
    memory.audit.record(ANA, "noted", {"fact": "sound"})


def test_an_id_kept_as_text_is_refused_with_what_to_do() -> None:
    with Memory.open(":memory:") as memory:
        session = memory.sessions.start(ANA)
        text: Any = str(session.id)
        for verb in (memory.sessions.read, memory.sessions.lease, memory.episodes.read):
            with pytest.raises(InvalidValue, match="UUID"):
                verb(ANA, text)
