"""Two scopes never see each other: whatever others do, a scope's every answer is the same.

A random history runs twice: alone on a database of its own, and on the engine under test with
other scopes busy in between. Time is held and ids follow from seeds, so answers are compared whole:
ids, times, chain links, scores, counts and errors. Cursors are sealed, so they are followed and not
compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from engrain.contracts.clock import Clock
from engrain.contracts.episodes import NewEpisode
from engrain.contracts.errors import EngrainError
from engrain.contracts.events import Turn
from engrain.contracts.ids import EpisodeId, OperationId, SessionId
from engrain.contracts.scope import Scope
from engrain.contracts.snapshots import SessionSnapshot
from engrain.services.sessions import SessionWriter
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import START_US
from engrain.testing.engines import Engine, SqliteMemoryEngine, Stores, open_stores
from engrain.testing.ids import SeededIds

WORDS = ("heron", "canal", "evening", "quartz", "porto", "北京", "march")
ARCHIVE = (
    '{"engrain":"archive","version":1}\n'
    '{"session":{"id":"01890000-0000-7000-8000-00000000000a","title":"Lisbon",'
    '"workspace":{"name":"default","identity":null},"created_at":1767225600000000,'
    '"opened_at":1767225600000000,"updated_at":1767225600000002,"event_count":2,'
    '"leased_until":null,"forked_from":null}}\n'
    '{"sequence":1,"turn":1,"recorded_at":1767225600000001,'
    '"event":{"kind":"user_message","text":"Which tram goes by the heron canal?"}}\n'
    '{"sequence":2,"turn":1,"recorded_at":1767225600000001,'
    '"event":{"kind":"assistant_message","text":"The 28E, every evening."}}\n'
    '{"end":{"sessions":1,"events":2}}\n'
)
HISTORIES = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
NONCE = re.compile(r'memory nonce="[^"]*"')


class ScopedIds:
    """Every scope draws from a seed of its own, so that no other moves what it gets."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_seed: dict[str, SeededIds] = {}
        self.seed = ""

    def _now(self) -> SeededIds:
        return self._by_seed.setdefault(self.seed, SeededIds(self.seed, self._clock))

    def uuid7(self) -> UUID:
        return self._now().uuid7()

    def random_bytes(self, count: int) -> bytes:
        return self._now().random_bytes(count)

    def scope_key(self) -> int:
        return self._now().scope_key()


class Actor:
    """One scope's life: public verbs with arguments that only its own past decides."""

    def __init__(self, stores: Stores, ids: ScopedIds, scope: Scope, archive: Path) -> None:
        self._stores = stores
        self._memory = stores.memory
        self._ids = ids
        self._scope = scope
        self._archive = archive
        self._sessions: list[SessionId] = []
        self._episodes: list[EpisodeId] = []
        self._operations: list[OperationId] = []
        self._writers: list[SessionWriter] = []

    def do(self, verb: str, dice: int) -> Any:
        """The verb's answer, or its error as facts."""
        self._ids.seed = repr((self._scope.org, self._scope.user))
        try:
            return getattr(self, f"_{verb}")(dice)
        except EngrainError as error:
            return error.facts()

    def close(self) -> None:
        for writer in self._writers:
            self._ids.seed = ""
            writer.release()

    def _session(self, dice: int) -> SessionId:
        return (
            self._sessions[dice % len(self._sessions)] if self._sessions else SessionId(UUID(int=7))
        )

    def _text(self, dice: int) -> str:
        return " ".join(WORDS[(dice >> shift) % len(WORDS)] for shift in (0, 3, 6))

    def _start(self, dice: int) -> Any:
        operation = OperationId(self._ids.uuid7())
        if dice % 4 == 0 and self._operations:
            operation = self._operations[dice % len(self._operations)]
        self._operations.append(operation)
        title = self._text(dice) if dice % 3 else None
        found = self._memory.sessions.start(
            self._scope, title=title, workspace=WORDS[dice % 2], operation_id=operation
        )
        self._sessions.append(found.id)
        return found

    def _list_sessions(self, dice: int) -> Any:
        narrowed = WORDS[dice % 2] if dice % 3 == 0 else None
        return _every_page(
            lambda cursor: self._memory.sessions.list(
                self._scope, workspace=narrowed, cursor=cursor, limit=1 + dice % 3
            )
        )

    def _read_session(self, dice: int) -> Any:
        return self._memory.sessions.read(self._scope, self._session(dice))

    def _set_title(self, dice: int) -> Any:
        return self._memory.sessions.set_title(self._scope, self._session(dice), self._text(dice))

    def _lease(self, dice: int) -> Any:
        writer = self._memory.sessions.lease(self._scope, self._session(dice))
        self._writers.append(writer)
        return writer.history, writer.session_id

    def _append_turn(self, dice: int) -> Any:
        turn = Turn.said(self._text(dice), reply=self._text(dice // 7))
        return self._writers[dice % len(self._writers)].append(turn) if self._writers else None

    def _release(self, dice: int) -> Any:
        return self._writers.pop(dice % len(self._writers)).release() if self._writers else None

    def _snapshot(self, dice: int) -> Any:
        snapshot = SessionSnapshot(configuration={"prompt": self._text(dice % 9)})
        if self._writers and dice % 2:
            self._writers[dice % len(self._writers)].bind_snapshot(snapshot)
        return self._memory.sessions.read_snapshot(self._scope, self._session(dice))

    def _fork(self, dice: int) -> Any:
        found = self._memory.sessions.fork(self._scope, self._session(dice))
        self._sessions.append(found.id)
        return found

    def _events(self, dice: int) -> Any:
        session = self._session(dice)
        verified = self._memory.sessions.verify(self._scope, session)
        return verified, tuple(self._memory.sessions.iter_events(self._scope, session))

    def _remember(self, dice: int) -> Any:
        new = [
            NewEpisode(
                text=self._text(dice + at), first_sequence=1 + dice % 9, last_sequence=9, ordinal=at
            )
            for at in range(3)
        ]
        receipt = self._memory.episodes.append(self._scope, self._session(dice), new)
        self._episodes += receipt.ids
        return receipt

    def _extract(self, dice: int) -> Any:
        session = self._session(dice)
        report = self._memory.enrichment.extract(self._scope, session)
        return report, self._memory.episodes.read_watermark(self._scope, session)

    def _forget(self, dice: int) -> Any:
        lost = self._episodes[dice % 5 :: 5]
        return self._memory.episodes.tombstone(self._scope, lost)

    def _settle(self, dice: int) -> Any:
        before = self._memory.episodes.unsettled(self._scope)
        return before, self._memory.episodes.settle(self._scope)

    def _read_episode(self, dice: int) -> Any:
        if not self._episodes:
            return None
        wanted = self._episodes[dice % len(self._episodes)]
        return self._memory.episodes.read(self._scope, wanted)

    def _list_episodes(self, dice: int) -> Any:
        narrowed = self._session(dice) if dice % 2 else None
        return _every_page(
            lambda cursor: self._memory.episodes.list(
                self._scope, session_id=narrowed, cursor=cursor, limit=1 + dice % 4
            )
        )

    def _search(self, dice: int) -> Any:
        return self._memory.episodes.search(self._scope, self._text(dice), limit=1 + dice % 50)

    def _recall(self, dice: int) -> Any:
        block = self._memory.recall(self._scope, self._text(dice), budget_tokens=dice % 400)
        return NONCE.sub("memory", block.text), block.items, block.left_out

    def _record(self, dice: int) -> Any:
        return self._memory.audit.record(self._scope, "noted", {"dice": dice})

    def _audit(self, dice: int) -> Any:
        entries = self._memory.audit.list(self._scope, after=dice % 3)
        return entries, self._memory.audit.verify(self._scope)

    def _import(self, dice: int) -> Any:
        report = self._memory.imports.run(self._scope, self._archive)
        known = self._stores.sessions.find_source(
            self._scope, ("archive", "01890000-0000-7000-8000-00000000000a")
        )
        return report, known

    def _stranger(self, dice: int) -> Any:
        return self._memory.sessions.read(self._scope, SessionId(UUID(int=dice)))


VERBS = tuple(
    name.removeprefix("_")
    for name in vars(Actor)
    if name.startswith("_") and name not in ("_session", "_text") and not name.startswith("__")
)


def _every_page(read: Callable[[str | None], Any]) -> Any:
    page = read(None)
    found = [page.items]
    while page.next:
        page = read(page.next)
        found.append(page.items)
    return found


class Step:
    """Something that one scope does. Number 0 is the scope that is compared."""

    def __init__(self, who: int, verb: str, dice: int) -> None:
        self.who, self.verb, self.dice = who, verb, dice

    def __repr__(self) -> str:
        return f"{self.who}.{self.verb}({self.dice})"


steps = st.builds(Step, st.integers(0, 2), st.sampled_from(VERBS), st.integers(0, 2**16))
histories = st.lists(steps, min_size=40, max_size=80).map(
    lambda rest: [*(Step(who, "start", who) for who in (1, 0, 2)), *rest]
)


def answers(
    stores: Stores, ids: ScopedIds, scopes: Sequence[Scope], told: Sequence[Step], archive: Path
) -> list[tuple[str, Any]]:
    """What scope 0 was answered, step by step."""
    actors = [Actor(stores, ids, scope, archive) for scope in scopes]
    found = []
    for step in told:
        answer = actors[step.who].do(step.verb, step.dice)
        if step.who == 0:
            found.append((repr(step), answer))
    for actor in actors:
        actor.close()
    return found


class TestDifferential:
    """The same history, alone and among others."""

    @pytest.mark.invariant("INV-20")
    def test_no_answer_changes_by_what_other_scopes_do(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        archive = tmp_path / "archive.jsonl"
        archive.write_text(ARCHIVE, "utf-8")
        clock = HeldClock(START_US)
        ids = ScopedIds(clock)
        numbers = count()
        with open_stores(engine, clock, ids=ids) as busy:

            @HISTORIES
            @given(told=histories)
            def holds(told: list[Step]) -> None:
                scopes = _scopes(next(numbers))
                among = answers(busy, ids, scopes, told, archive)
                alone = _alone(scopes, [step for step in told if step.who == 0], archive)
                assert among == alone

            holds()


def _scopes(number: int) -> list[Scope]:
    """The one that is compared, its neighbour in the organisation, and its namesake elsewhere."""
    user = f"ana {number}"
    return [
        Scope(org="acme", user=user),
        Scope(org="acme", user=f"ben {number}"),
        Scope(org="umbrella", user=user),
    ]


def _alone(scopes: Sequence[Scope], told: Sequence[Step], archive: Path) -> list[tuple[str, Any]]:
    clock = HeldClock(START_US)
    ids = ScopedIds(clock)
    with open_stores(SqliteMemoryEngine(), clock, ids=ids) as stores:
        return answers(stores, ids, scopes, told, archive)
