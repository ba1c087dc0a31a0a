"""Six processes append, forget and settle at once: acknowledgements against what is there."""

from __future__ import annotations

import pytest

from engrain.contracts.ids import EpisodeId, SessionId
from engrain.contracts.sessions import Session
from engrain.rules.identity import episode_id
from engrain.testing.contracts import ANA, begin
from engrain.testing.contracts.episodes import every_episode, remember, said
from engrain.testing.engines import Engine, Stores, open_stores
from engrain.testing.races import RACERS, Racer, Racers


def _append_shared(racer: Racer, session_id: SessionId, count: int) -> int:
    """The same coordinates from every process, in an order of its own; how many it wrote."""
    places = [(at * (2 * racer.number + 1)) % count + 1 for at in range(count)]
    episodes = racer.stores.episodes
    return sum(
        episodes.append(ANA, session_id, [said(f"from {racer.number}", at)]).written
        for at in places
    )


def _append_own(racer: Racer, session_id: SessionId, count: int) -> list[EpisodeId]:
    found: list[EpisodeId] = []
    for at in range(1, count + 1):
        new = [said(f"own {at}", at, racer.number * 10 + part) for part in range(3)]
        found += racer.stores.episodes.append(ANA, session_id, new).ids
    return found


def _tombstone_each(racer: Racer, ids: list[EpisodeId]) -> int:
    return sum(racer.stores.episodes.tombstone(ANA, [one]) for one in ids)


def _append_or_tombstone(
    racer: Racer, session_id: SessionId, ids: list[EpisodeId]
) -> tuple[int, int]:
    """(written, forgotten): half of the processes append what the other half forgets."""
    written = forgotten = 0
    for at, one in enumerate(ids, 1):
        if racer.number % 2:
            forgotten += racer.stores.episodes.tombstone(ANA, [one])
        else:
            written += racer.stores.episodes.append(ANA, session_id, [said("x", at)]).written
    return written, forgotten


class TestEpisodeRaces:
    """Six processes on one database."""

    def test_raced_appends_write_each_episode_once(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine) as stores:
            session = begin(stores)
            written = race.race(_append_shared, session.id, 31)
            found = every_episode(stores)
        assert sum(written) == len(found) == 31
        assert [one.number for one in found] == list(range(1, 32))
        assert sorted(one.first_sequence for one in found) == list(range(1, 32))

    def test_raced_appends_lose_nothing(self, race: Racers, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as stores:
            session = begin(stores)
            acknowledged = race.race(_append_own, session.id, 8)
            found = every_episode(stores)
        ids = [one for ids in acknowledged for one in ids]
        assert len(ids) == len(set(ids)) == RACERS * 8 * 3
        assert {one.id for one in found} == set(ids)
        assert [one.number for one in found] == list(range(1, len(ids) + 1))

    @pytest.mark.invariant("INV-23")
    def test_raced_tombstones_forget_each_episode_once(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine) as stores:
            session = begin(stores)
            ids = list(remember(stores, session, *(f"word{at}" for at in range(24))).ids)
            forgotten = race.race(_tombstone_each, ids[:18])
            assert sum(forgotten) == 18
            assert [one.id for one in every_episode(stores)] == ids[18:]
            assert remember(stores, session, *["x"] * 24).tombstoned == 18

    @pytest.mark.invariant("INV-23")
    def test_raced_appends_and_tombstones_agree(self, race: Racers, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as stores:
            session = begin(stores)
            ids = _coming_ids(stores, session, 30)
            counts = race.race(_append_or_tombstone, session.id, ids)
            written = sum(count for count, _ in counts)
            forgotten = sum(count for _, count in counts)
            found = {one.id for one in every_episode(stores)}
            again = stores.episodes.append(
                ANA, session.id, [said("x", at) for at in range(1, len(ids) + 1)]
            )
        assert again.ids == tuple(ids)
        assert (again.written, again.known, again.tombstoned) == (0, len(found), forgotten)
        assert written == len(found) + forgotten == len(ids)


def _coming_ids(stores: Stores, session: Session, count: int) -> list[EpisodeId]:
    """The ids that the session's first events will have; found out without keeping them."""
    known = stores.scopes.find(ANA)
    assert known is not None
    places = range(1, count + 1)
    return [EpisodeId(episode_id(known.secret, session.id, at, at, 0)) for at in places]
