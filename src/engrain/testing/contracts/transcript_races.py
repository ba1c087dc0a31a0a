"""Many writers of one session; what they acknowledge is what is there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from engrain.contracts import limits
from engrain.contracts.errors import Conflict
from engrain.contracts.ids import SessionId
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, START_US, begin, history, hold, say
from engrain.testing.engines import Engine, Stores, open_stores
from engrain.testing.races import RACERS, Racer, Racers, refusal


class TestAppendRaces:
    """Six processes, or six threads."""

    @pytest.mark.invariant("INV-14")
    def test_every_acknowledged_turn_of_six_processes_is_stored_once(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine) as stores:
            session = begin(stores)
            told = [turn for turns in race.race(race_turns, session.id, 4) for turn in turns]
            assert len(told) == 4 * RACERS
            stored = history(stores, session)
            assert [event.sequence for event in stored] == list(range(1, 8 * RACERS + 1))
            assert sorted(told) == [
                (question.sequence, answer.sequence, question.event.text)
                for question, answer in zip(stored[::2], stored[1::2], strict=True)
            ]
            assert stores.transcript.verify(ANA, session.id).event_count == 8 * RACERS

    @pytest.mark.invariant("INV-10")
    def test_of_six_overtaken_and_one_holder_one_appends(
        self, held_race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine, HeldClock(START_US)) as stores:
            session = begin(stores)
            for number in range(RACERS):
                held_race.ask(number, race_take_over, session.id)
            codes = held_race.race(race_append)
            assert codes == ["stale_lease"] * (RACERS - 1) + [""]
            assert [one.event.text for one in history(stores, session)] == [f"by {RACERS - 1}"]

    def test_of_threads_under_one_lease_those_that_saw_the_end_append(self, stores: Stores) -> None:
        session = begin(stores)
        lease, told = hold(stores, session), []
        gate = threading.Barrier(6)

        def append(number: int) -> None:
            gate.wait()
            for _ in range(5):
                try:
                    told.append(say(stores, lease, f"by {number}").first_sequence)
                except Conflict as refused:
                    assert refused.code == "stale_replay"

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(append, range(6)))
        assert sorted(told) == list(range(1, len(told) + 1))
        assert stores.transcript.verify(ANA, session.id).event_count == len(told) > 0


def race_turns(racer: Racer, session_id: SessionId, count: int) -> list[tuple[int, int, str]]:
    """Takes the session for one turn at a time, until `count` turns are acknowledged."""
    told: list[tuple[int, int, str]] = []
    session = racer.stores.sessions.read(ANA, session_id)
    while len(told) < count:
        text = f"turn {racer.number}.{len(told)}"

        def take(text: str = text) -> None:
            lease = hold(racer.stores, session)
            receipt = say(racer.stores, lease, text, reply="yes")
            told.append((receipt.first_sequence, receipt.last_sequence, text))
            racer.stores.leases.release(lease)

        assert refusal(take) in ("", "session_busy")
    return told


def race_take_over(racer: Racer, session_id: SessionId) -> None:
    """Claims an hour after the process before it, and replays."""
    racer.clock.advance((racer.number + 1) * 3_600 * limits.SECOND_US)
    racer.lease = hold(racer.stores, racer.stores.sessions.read(ANA, session_id))


def race_append(racer: Racer) -> str:
    lease = racer.lease
    assert lease is not None
    return refusal(lambda: say(racer.stores, lease, f"by {racer.number}"))
