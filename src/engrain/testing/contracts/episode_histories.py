"""Random histories of episodes against a model of a few lines: a dict and word containment."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from engrain.contracts.episodes import Hit
from engrain.contracts.errors import NotFound
from engrain.contracts.ids import EpisodeId
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import Session
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import begin
from engrain.testing.contracts.episodes import every_episode, said
from engrain.testing.engines import Stores

WORDS = ("quartz", "violin", "harbor", "mango", "cobalt", "tundra")
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(tuple)
PLACES = 12
SESSIONS = 3
HISTORIES = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

Place = tuple[int, int]
"""(index of the session, sequence)."""


class Known(msgspec.Struct, frozen=True):
    """What the model keeps of an episode."""

    id: EpisodeId
    text: str
    recorded_at: int


class EpisodeHistory(RuleBasedStateMachine):
    """Appends, forgets, settles and searches one scope; the model knows what must be found."""

    def __init__(self, stores: Stores, clock: HeldClock, scope: Scope) -> None:
        super().__init__()
        self.episodes = stores.episodes
        self.stores = stores
        self.clock = clock
        self.scope = scope
        self.sessions: list[Session] = [begin(stores, scope)]
        self.alive: dict[Place, Known] = {}
        self.dead: dict[Place, EpisodeId] = {}

    @precondition(lambda self: len(self.sessions) < SESSIONS)
    @rule()
    def start(self) -> None:
        self.sessions.append(begin(self.stores, self.scope))

    @rule(us=st.integers(1, 3))
    def pass_time(self, us: int) -> None:
        self.clock.advance(us)

    @rule(at=st.integers(0, SESSIONS - 1), sequence=st.integers(1, PLACES), said_words=words)
    def append(self, at: int, sequence: int, said_words: tuple[str, ...]) -> None:
        """New, known, or forgotten: the place decides."""
        at %= len(self.sessions)
        place, text = (at, sequence), " ".join(said_words)
        receipt = self.episodes.append(self.scope, self.sessions[at].id, [said(text, sequence)])
        counts = (receipt.written, receipt.known, receipt.tombstoned)
        if place in self.dead:
            assert counts == (0, 0, 1)
            assert receipt.ids == (self.dead[place],)
        elif place in self.alive:
            assert counts == (0, 1, 0)
            assert receipt.ids == (self.alive[place].id,)
        else:
            assert counts == (1, 0, 0)
            self.alive[place] = Known(receipt.ids[0], text, self.clock.now_us())

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        places = data.draw(
            st.lists(st.sampled_from(sorted(self.alive)), min_size=1, max_size=4, unique=True)
        )
        ids = [self.alive[place].id for place in places]
        assert self.episodes.tombstone(self.scope, [*ids, *self.dead.values()]) == len(ids)
        for place in places:
            self.dead[place] = self.alive.pop(place).id

    @rule()
    def settle(self) -> None:
        moved = self.episodes.settle(self.scope)
        assert moved <= len(self.alive)
        assert self.episodes.unsettled(self.scope) == 0

    @rule(asked=words)
    def search(self, asked: tuple[str, ...]) -> None:
        hits = self.episodes.search(self.scope, " ".join(asked), limit=200)
        families = self._families()
        wanted = {text for text in families if set(asked) & set(text.split())}
        assert wanted <= {hit.episode.text for hit in hits}
        assert len({hit.episode.text for hit in hits}) == len(hits)
        for hit in hits:
            assert hit.episode.text in wanted or hit.reasons == ("neighbour",)
            self._check_family(hit, families[hit.episode.text])

    def _families(self) -> dict[str, list[Known]]:
        found: dict[str, list[Known]] = {}
        for one in self.alive.values():
            found.setdefault(one.text, []).append(one)
        return found

    def _check_family(self, hit: Hit, family: list[Known]) -> None:
        assert set(hit.sources) == {one.id for one in family}
        assert len(hit.sources) == len(family)
        assert hit.episode.recorded_at == max(one.recorded_at for one in family)
        assert hit.episode.id == hit.sources[0]

    @rule(size=st.integers(1, 5))
    def list_all(self, size: int) -> None:
        found = every_episode(self.stores, self.scope, limit=size)
        assert {one.id: one.text for one in found} == {
            one.id: one.text for one in self.alive.values()
        }
        assert len(found) == len(self.alive)

    @precondition(lambda self: self.dead)
    @rule(data=st.data())
    def read_forgotten(self, data: st.DataObject) -> None:
        lost = self.dead[data.draw(st.sampled_from(sorted(self.dead)))]
        with pytest.raises(NotFound):
            self.episodes.read(self.scope, lost)


class TestHistories:
    """Whatever happens in whatever order, what is found is what lives."""

    @pytest.mark.invariant("INV-23")
    @pytest.mark.invariant("INV-25")
    def test_any_history_leaves_what_the_model_says(self, stores: Stores, clock: HeldClock) -> None:
        scopes = _fresh_scopes()

        class History(EpisodeHistory):
            def __init__(self) -> None:
                super().__init__(stores, clock, next(scopes))

        run_state_machine_as_test(History, settings=HISTORIES)


def _fresh_scopes() -> Iterator[Scope]:
    """One database serves all histories: each has a scope of its own."""
    return (Scope(org="acme", user=f"history {number}") for number in count())
