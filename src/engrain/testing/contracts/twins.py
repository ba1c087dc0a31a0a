"""The promises about twins: near-identical text is shown once, with all its sources."""

from __future__ import annotations

import pytest

from engrain.contracts.episodes import NewEpisode
from engrain.contracts.ids import EpisodeId
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, begin
from engrain.testing.contracts.episodes import every_episode, remember, said
from engrain.testing.engines import Stores


class TestTwins:
    """Near-identical text: every source keeps its row, search shows one."""

    @pytest.mark.invariant("INV-25")
    def test_twins_are_shown_once_the_newest_with_all_its_sources(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        ids: list[EpisodeId] = []
        for text in ("The heron waits.", "the heron  waits", "“The HERON waits!”"):
            ids += remember(stores, begin(stores), text).ids
            clock.advance(1)
        (hit,) = stores.episodes.search(ANA, "heron")
        assert hit.episode.id == ids[-1]
        assert hit.sources == tuple(reversed(ids))
        assert len(every_episode(stores)) == 3

    @pytest.mark.invariant("INV-25")
    def test_of_twins_that_came_in_at_one_time_the_last_one_said_is_shown(
        self, stores: Stores
    ) -> None:
        ids = remember(stores, begin(stores), *["the heron waits"] * 12).ids
        (hit,) = stores.episodes.search(ANA, "heron")
        assert hit.sources == tuple(reversed(ids))
        assert hit.episode.id == ids[-1]

    @pytest.mark.invariant("INV-25")
    def test_what_differs_in_a_word_or_a_number_is_no_twin(self, stores: Stores) -> None:
        texts = ("the heron waits", "the heron waited", "the heron waits 2", "a heron waits")
        remember(stores, begin(stores), *texts)
        found = stores.episodes.search(ANA, "heron")
        assert {hit.episode.text for hit in found} == set(texts)
        assert all(len(hit.sources) == 1 for hit in found)

    @pytest.mark.invariant("INV-25")
    def test_the_same_words_of_two_persons_are_no_twins(self, stores: Stores) -> None:
        session = begin(stores)
        speakers = ("Caroline", "caroline", "Melanie", None)
        episodes = [
            NewEpisode(
                text="I am allergic to nuts", speaker=name, first_sequence=at, last_sequence=at
            )
            for at, name in enumerate(speakers, 1)
        ]
        ids = stores.episodes.append(ANA, session.id, episodes).ids
        found = {hit.sources for hit in stores.episodes.search(ANA, "nuts")}
        assert found == {(ids[1], ids[0]), (ids[2],), (ids[3],)}

    @pytest.mark.invariant("INV-25")
    def test_when_the_newest_twin_is_forgotten_the_next_is_shown(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        ids: list[EpisodeId] = []
        for _ in range(3):
            ids += remember(stores, begin(stores), "the heron waits").ids
            clock.advance(1)
        while ids:
            (hit,) = stores.episodes.search(ANA, "heron")
            assert hit.episode.id == ids[-1]
            assert hit.sources == tuple(reversed(ids))
            stores.episodes.tombstone(ANA, [ids.pop()])
        assert stores.episodes.search(ANA, "heron") == ()

    @pytest.mark.invariant("INV-25")
    def test_many_copies_hide_nothing_else(self, stores: Stores) -> None:
        session = begin(stores)
        copies = remember(stores, session, *["heron heron heron"] * 150)
        stores.episodes.append(
            ANA, session.id, [said(f"a heron in place{at}", 500 + 10 * at) for at in range(4)]
        )
        found = stores.episodes.search(ANA, "heron", limit=5)
        assert len(found) == 5
        (family,) = [hit for hit in found if hit.episode.text == "heron heron heron"]
        assert set(family.sources) == set(copies.ids)
