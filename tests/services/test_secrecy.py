"""Whatever goes wrong, no error, repr or log record repeats what a memory holds (INV-26)."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from engrain import (
    EngrainError,
    EpisodeId,
    Memory,
    OperationId,
    Scope,
    SessionSnapshot,
    ToolAuthority,
    ToolCall,
    ToolResult,
    Turn,
    Uncertain,
    UserMessage,
)
from engrain.contracts import faults
from engrain.contracts.episodes import NewEpisode
from engrain.contracts.errors import Corrupt, LimitExceeded
from engrain.contracts.ids import SessionId
from engrain.testing.engines import Engine, PostgresEngine, SqliteFileEngine
from services.exports import ANA, conversation, write_export

CANARY = "canary-heron-sings-at-dawn"
pytestmark = pytest.mark.invariant("INV-26")


@pytest.fixture(autouse=True)
def no_log_tells(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Every logger is heard at its most talkative, and none of them says the word."""
    caplog.set_level(logging.DEBUG)
    yield
    for phase in ("setup", "call"):
        for record in caplog.get_records(phase):  # type: ignore[arg-type]
            assert CANARY not in f"{record.getMessage()}{record.args!r}{record.exc_info!r}"


@pytest.fixture
def session(memory: Memory) -> SessionId:
    """A session, an episode and a title that all hold the word."""
    session = memory.sessions.start(ANA, title=f"title {CANARY}", workspace=f"w-{CANARY}")
    with memory.sessions.lease(ANA, session.id) as writer:
        writer.bind_snapshot(snapshot("first"))
        writer.append(
            (
                UserMessage(text=f"text {CANARY}", speaker=CANARY, source_id=CANARY),
                ToolCall(call_id=CANARY, name=CANARY, arguments=json.dumps({CANARY: CANARY})),
                ToolResult(call_id=CANARY, text=CANARY),
            )
        )
    memory.enrichment.extract(ANA, session.id)
    return session.id


def snapshot(prompt: str) -> SessionSnapshot:
    tool = ToolAuthority(name=CANARY, schema={"title": CANARY}, implementation=CANARY)
    return SessionSnapshot(configuration={"prompt": f"{prompt} {CANARY}"}, tools=(tool,))


def assert_silent(error: BaseException) -> None:
    """Neither the error nor what led to it says the word; only lines of source may."""
    told: list[str] = []
    link: BaseException | None = error
    while link is not None:
        told += [str(link), repr(link), repr(link.args), *getattr(link, "__notes__", [])]
        if isinstance(link, EngrainError):
            told.append(json.dumps(link.facts(), default=str))
        told += traceback.format_exception_only(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    assert CANARY not in "\n".join(told)


def raised(verb: Callable[[], object]) -> BaseException:
    with pytest.raises(EngrainError) as caught:
        verb()
    assert_silent(caught.value)
    return caught.value


WRONG_TURNS = {
    "nul": (UserMessage(text=f"{CANARY}\0"),),
    "surrogate": (UserMessage(text=f"{CANARY}\ud800"),),
    "surrogate speaker": (UserMessage(text="x", speaker=f"{CANARY}\ud800"),),
    "origin": (UserMessage(text="x", origin=CANARY),),
    "open call": (ToolCall(call_id=f"{CANARY}2", name=CANARY),),
    "orphan result": (ToolResult(call_id=CANARY, text=CANARY),),
    "call id twice": (
        ToolCall(call_id=CANARY, name=CANARY),
        ToolResult(call_id=CANARY, text=CANARY),
    ),
    "arguments": (
        ToolCall(call_id="c", name="t", arguments=f'{{"{CANARY}": NaN}}'),
        ToolResult(call_id="c"),
    ),
    "no text": (UserMessage(text=CANARY.encode()),),  # type: ignore[arg-type]
    "no time": (UserMessage(text="x", occurred_at=CANARY),),  # type: ignore[arg-type]
    "status": (
        ToolCall(call_id="c", name="t"),
        ToolResult(call_id="c", status=CANARY),  # type: ignore[arg-type]
    ),
    "no event": ({"text": CANARY},),
    "too large": (UserMessage(text=CANARY * 200_000),),
}


@pytest.mark.parametrize("wrong", WRONG_TURNS)
def test_a_refused_turn_is_not_repeated(memory: Memory, session: SessionId, wrong: str) -> None:
    turn = WRONG_TURNS[wrong]
    with memory.sessions.lease(ANA, session) as writer:
        raised(lambda: writer.append(turn))  # type: ignore[arg-type]


def test_refusals_of_every_service_are_silent(memory: Memory, session: SessionId) -> None:
    stranger = Scope(org="acme", user="ben")
    episode = NewEpisode(text=CANARY, first_sequence=1, last_sequence=1, ordinal=9)
    operation = OperationId(UUID(int=2**127 + 7))
    for verb in (
        lambda: memory.sessions.start(ANA, title=f"{CANARY}\0"),
        lambda: memory.sessions.start(ANA, title=CANARY * 100),
        lambda: memory.sessions.start(ANA, workspace=f"{CANARY}/{CANARY}"),
        lambda: memory.sessions.set_title(ANA, session, f"{CANARY}\ud800"),
        lambda: memory.sessions.read(stranger, session),
        lambda: memory.sessions.fork(ANA, session, title=f"{CANARY}\0"),
        lambda: memory.sessions.lease(ANA, session, workspace=f"other-{CANARY}"),
        lambda: memory.sessions.list(ANA, cursor=CANARY),
        lambda: memory.episodes.list(ANA, cursor=CANARY),
        lambda: memory.episodes.read(ANA, EpisodeId(UUID(int=5))),
        lambda: memory.episodes.search(ANA, CANARY * 100_000),
        lambda: memory.episodes.append(ANA, session, [replaced(episode, text=f"{CANARY}\0")]),
        lambda: memory.episodes.append(ANA, session, [replaced(episode, labels=(CANARY * 9,))]),
        lambda: memory.episodes.append(ANA, session, [replaced(episode, origin=CANARY)]),
        lambda: memory.recall(ANA, CANARY, budget_tokens=-1),
        lambda: memory.imports.run(ANA, Path("/nonexistent"), format=CANARY),
        lambda: Scope(org=f"{CANARY}\0", user="ana"),
    ):
        raised(verb)
    with memory.sessions.lease(ANA, session) as writer:
        raised(lambda: writer.bind_snapshot(snapshot("second")))
        raised(lambda: memory.sessions.lease(ANA, session))
        writer.append(Turn.said(f"one {CANARY}"), operation_id=operation)
        raised(lambda: writer.append(Turn.said(f"two {CANARY}"), operation_id=operation))


def replaced(episode: NewEpisode, **fields: object) -> NewEpisode:
    import msgspec

    return msgspec.structs.replace(episode, **fields)


def test_a_lost_acknowledgement_is_silent(memory: Memory, session: SessionId) -> None:
    def lose(name: str) -> None:
        if name == "commit.after":
            raise OSError(f"the disk says {name}")

    with memory.sessions.lease(ANA, session) as writer:
        faults.arm(lose)
        try:
            error = raised(lambda: writer.append(Turn.said(f"lost {CANARY}")))
        finally:
            faults.arm(None)
        assert isinstance(error, Uncertain)


DAMAGE = {
    "payload": "UPDATE events SET payload = :bad WHERE kind = 'user_message'",
    "torn payload": "UPDATE events SET payload = :torn WHERE kind = 'user_message'",
    "salt": "UPDATE events SET salt = :bad",
    "link": "UPDATE batches SET link = :link",
    "kind": "UPDATE events SET kind = 'audit' WHERE kind = 'user_message'",
    "gone": "DELETE FROM events WHERE kind = 'tool_result'",
}


@pytest.mark.invariant("INV-11")
@pytest.mark.parametrize("damage", DAMAGE)
def test_corruption_is_found_and_told_without_content(
    memory: Memory, url: str, session: SessionId, damage: str
) -> None:
    bad = json.dumps({"kind": "user_message", "text": f"changed {CANARY}"}).encode()
    values = {"bad": bad, "torn": bad[:-9], "link": b"\1" * 32}
    engine_at(url).alter(DAMAGE[damage], **{k: v for k, v in values.items() if k in DAMAGE[damage]})
    for verb in (
        lambda: memory.sessions.verify(ANA, session),
        lambda: memory.sessions.lease(ANA, session),
    ):
        assert isinstance(raised(verb), Corrupt)


def engine_at(url: str) -> Engine:
    return PostgresEngine(url) if url.startswith("postgresql") else SqliteFileEngine(Path(url))


def test_the_database_own_errors_are_told_without_values(
    memory: Memory, url: str, session: SessionId
) -> None:
    """A table that lost a column makes the engine fail in the middle of a verb."""
    engine_at(url).alter("ALTER TABLE events DROP COLUMN source_mark")
    with pytest.raises(Exception) as caught, memory.sessions.lease(ANA, session) as writer:
        writer.append(Turn.said(f"text {CANARY}"))
    assert_silent(caught.value)


def test_reprs_of_what_is_open_are_silent(memory: Memory, session: SessionId) -> None:
    with memory.sessions.lease(ANA, session) as writer:
        lease = writer._lease
        opened = (memory, memory.sessions, memory.episodes, memory.recall, memory.imports)
        for thing in (*opened, memory.enrichment, memory.audit, memory.config, writer, lease):
            assert CANARY not in f"{thing!r}{thing!s}"
        binding, token = lease.reveal()
        for secret in (binding.secret, token):
            shown = f"{lease!r}{binding!r}{writer!r}"
            assert repr(secret) not in shown
            assert secret.hex() not in shown


def test_an_import_that_fails_is_silent(memory: Memory, session: SessionId, folder: Path) -> None:
    path = write_export(folder / "c.json", conversation("a", f"text {CANARY}", f"more {CANARY}"))
    report = memory.imports.run(ANA, path)
    assert CANARY not in repr(report)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engrain.contracts.limits.append_bytes_max", 1)
        grown = conversation("a", f"text {CANARY}", f"more {CANARY}", f"third {CANARY}")
        report = memory.imports.run(ANA, write_export(path, grown))
    assert report.skipped == {"refused_limit_exceeded": 1}
    assert CANARY not in repr(report)


def test_limits_tell_numbers_alone() -> None:
    assert str(LimitExceeded("title_bytes_max", 1_024, 4_000)) == (
        "title_bytes_max: at most 1,024, found 4,000"
    )
