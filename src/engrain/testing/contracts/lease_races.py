"""Six processes want one session: leases are granted, renewed and freed one at a time."""

from __future__ import annotations

import pytest

from engrain.contracts import limits
from engrain.contracts.ids import SessionId
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, START_US, begin
from engrain.testing.engines import Engine, open_stores
from engrain.testing.races import RACERS, Racer, Racers, refusal

TTL_US = limits.lease_ttl_us


class TestLeaseRaces:
    """Six processes want one session."""

    @pytest.mark.invariant("INV-10")
    def test_one_process_holds_the_session(self, race: Racers, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as stores:
            for _ in range(6):
                session = begin(stores)
                assert sorted(race.race(race_claim, session.id)) == [""] + ["session_busy"] * 5
                assert len(race.race(race_release)) == RACERS
                assert stores.leases.claim(ANA, session.id).epoch == 2

    @pytest.mark.invariant("INV-10")
    def test_renewal_and_takeover_exclude_each_other(
        self, held_race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine, HeldClock(START_US)) as stores:
            for _ in range(8):
                session = begin(stores)
                assert held_race.ask(0, race_claim, session.id) == ""
                held_race.race(race_advance, TTL_US)
                codes = held_race.race(race_renew_or_claim, session.id)
                assert codes.count("") == 1
                assert codes[0] in ("", "stale_lease")
                assert set(codes[1:]) <= {"", "session_busy"}
                held_race.race(race_step_back, TTL_US)

    @pytest.mark.invariant("INV-10")
    def test_release_by_overtaken_processes_frees_nothing(
        self, held_race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine, HeldClock(START_US)) as stores:
            session = begin(stores)
        for number in range(RACERS):
            assert held_race.ask(number, race_claim, session.id) == ""
            held_race.race(race_advance, TTL_US)
        assert held_race.ask(RACERS - 1, race_renew) == ""
        held_race.race(race_release_unless, RACERS - 1)
        assert held_race.ask(0, race_claim, session.id) == "session_busy"
        assert held_race.ask(RACERS - 1, race_renew) == ""


def race_claim(racer: Racer, session_id: SessionId) -> str:
    racer.lease = None

    def claim() -> None:
        racer.lease = racer.stores.leases.claim(ANA, session_id)

    return refusal(claim)


def race_release(racer: Racer) -> None:
    if racer.lease is not None:
        racer.stores.leases.release(racer.lease)
        racer.lease = None


def race_release_unless(racer: Racer, holder: int) -> None:
    if racer.number != holder:
        race_release(racer)


def race_renew(racer: Racer) -> str:
    lease = racer.lease
    assert lease is not None
    return refusal(lambda: racer.stores.leases.renew(lease))


def race_renew_or_claim(racer: Racer, session_id: SessionId) -> str:
    """The first process renews its expired lease while the others claim the session."""
    return race_renew(racer) if racer.number == 0 else race_claim(racer, session_id)


def race_advance(racer: Racer, us: int) -> None:
    racer.clock.advance(us)


def race_step_back(racer: Racer, us: int) -> None:
    racer.clock.step_back(us)
