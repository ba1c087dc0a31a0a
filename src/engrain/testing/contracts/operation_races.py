"""Six processes use one operation id at once: what they acknowledge against what is there."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from engrain.contracts.ids import OperationId
from engrain.contracts.sessions import Session
from engrain.testing.contracts import ANA
from engrain.testing.contracts.operation_verbs import (
    ONE_EFFECT,
    Author,
    begin_author,
    count_rows,
    effects_since,
    session_id_of,
)
from engrain.testing.engines import Engine, open_stores
from engrain.testing.races import RACERS, Racer, Racers, refusal


@pytest.mark.invariant("INV-13")
class TestOperationRaces:
    """Six processes use one operation id."""

    def test_one_request_from_six_processes_has_one_effect(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine) as stores:
            author = begin_author(stores)
            sessions = (author.source, author.written, author.moving)
            for verb in ("start", "set_title", "fork", "relink"):
                before = count_rows(shared_engine)
                ids = race.race(race_request, sessions, verb, uuid4())
                assert len(set(ids)) == 1
                assert effects_since(shared_engine, before) == ONE_EFFECT[verb]

    def test_six_requests_under_one_id_have_one_effect(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        prepared = race.race(race_prepare)
        for _ in range(8):
            before = count_rows(shared_engine)
            answers = race.race(race_any_verb, prepared, uuid4())
            done = [verb for verb, code in answers if not code]
            assert len(done) == 1
            assert sorted(code for _, code in answers)[1:] == ["operation_mismatch"] * (RACERS - 1)
            assert effects_since(shared_engine, before) == ONE_EFFECT[done[0]]


Sessions = tuple[Session, Session, Session]


def race_prepare(racer: Racer) -> Sessions:
    """Each process is an author of its own, who holds a session."""
    author = begin_author(racer.stores)
    racer.lease = author.lease
    return author.source, author.written, author.moving


def race_request(racer: Racer, sessions: Sessions, verb: str, operation: UUID) -> str:
    """Each process asks for the same."""
    author = Author(racer.stores, ANA, *sessions, lease=None)
    return str(session_id_of(author.do(verb, f"the same {verb}", OperationId(operation))))


def race_any_verb(racer: Racer, prepared: list[Sessions], operation: UUID) -> tuple[str, str]:
    """Each process asks for something else under the one operation id."""
    author = Author(racer.stores, ANA, *prepared[racer.number], lease=racer.lease)
    verb = list(ONE_EFFECT)[racer.number % len(ONE_EFFECT)]
    words = f"{operation} {racer.number}"
    return verb, refusal(lambda: author.do(verb, words, OperationId(operation)))
