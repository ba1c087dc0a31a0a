"""The promises of `EpisodeStore.tombstone`: gone at once, everywhere, and for ever."""

from __future__ import annotations

from uuid import uuid4

import pytest

from engrain.contracts.episodes import EpisodeReceipt
from engrain.contracts.errors import NotFound
from engrain.contracts.ids import EpisodeId
from engrain.testing.contracts import ANA, BEN, begin
from engrain.testing.contracts.episodes import every_episode, remember, said
from engrain.testing.engines import Engine, Stores, open_stores


class TestForgetting:
    """`tombstone`: gone at once, and for ever."""

    @pytest.mark.invariant("INV-23")
    def test_a_forgotten_episode_is_not_found_anywhere(self, stores: Stores) -> None:
        session = begin(stores)
        kept, lost = remember(stores, session, "kept word", "lost word").ids
        assert stores.episodes.tombstone(ANA, [lost]) == 1
        with pytest.raises(NotFound):
            stores.episodes.read(ANA, lost)
        assert [one.id for one in every_episode(stores)] == [kept]
        assert [hit.episode.id for hit in stores.episodes.search(ANA, "word")] == [kept]
        assert stores.episodes.search(ANA, "lost") == ()

    @pytest.mark.invariant("INV-23")
    def test_a_late_append_does_not_bring_it_back(self, stores: Stores) -> None:
        session = begin(stores)
        lost, kept = remember(stores, session, "lost", "kept").ids
        stores.episodes.tombstone(ANA, [lost])
        for text in ("lost", "said again in other words"):
            again = stores.episodes.append(ANA, session.id, [said(text), said("kept", 2)])
            assert again == EpisodeReceipt((lost, kept), written=0, known=1, tombstoned=1)
        assert [one.id for one in every_episode(stores)] == [kept]
        assert stores.episodes.search(ANA, "lost again") == ()

    @pytest.mark.invariant("INV-23")
    def test_a_tombstone_outlives_its_process(self, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as first:
            session = begin(first)
            lost = remember(first, session, "lost").ids[0]
            first.episodes.tombstone(ANA, [lost])
        with open_stores(shared_engine) as later:
            assert remember(later, session, "lost").tombstoned == 1
            with pytest.raises(NotFound):
                later.episodes.read(ANA, lost)

    def test_forgetting_counts_what_was_there(self, stores: Stores) -> None:
        ids = remember(stores, begin(stores), "a", "b", "c").ids
        assert stores.episodes.tombstone(ANA, [ids[0], ids[0], ids[1], EpisodeId(uuid4())]) == 2
        assert stores.episodes.tombstone(ANA, ids) == 1
        assert stores.episodes.tombstone(ANA, ids) == 0
        assert stores.episodes.tombstone(ANA, []) == 0
        assert stores.episodes.tombstone(BEN, ids) == 0

    def test_numbers_of_forgotten_episodes_are_not_given_again(self, stores: Stores) -> None:
        session = begin(stores)
        ids = remember(stores, session, "a", "b").ids
        stores.episodes.tombstone(ANA, ids)
        stores.episodes.append(ANA, session.id, [said("c", 3)])
        assert [one.number for one in every_episode(stores)] == [3]

    def test_forgetting_many_sessions_at_once(self, stores: Stores) -> None:
        ids = [remember(stores, begin(stores), "a", "b").ids[1] for _ in range(5)]
        assert stores.episodes.tombstone(ANA, ids) == 5
        assert [one.text for one in every_episode(stores)] == ["a"] * 5
