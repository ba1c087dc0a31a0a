"""The promises of the search index: what is found, settled or not, and what is erased with its row.

Scores are a rule's business; here they are only compared with each other.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterable, Sequence

import pytest

from engrain.contracts import limits
from engrain.contracts.episodes import Hit
from engrain.contracts.errors import InvalidValue, LimitExceeded
from engrain.contracts.ids import EpisodeId, SessionId
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, START_US, begin
from engrain.testing.contracts.episodes import every_episode, remember, said
from engrain.testing.engines import Engine, SqliteMemoryEngine, Stores, open_stores
from engrain.testing.ids import SeededIds
from engrain.testing.races import Racer, Racers

INDEX_TABLES = ("tail", "forward", "postings")
TABLES = ("episodes", *INDEX_TABLES)
BATCH = limits.settle_episodes_max


def vocabulary(count: int, seed: int = 1) -> list[str]:
    """Words that no stemmer takes for each other."""
    dice = random.Random(seed)
    return ["".join(dice.choices(string.ascii_lowercase, k=6)) + f"{at}" for at in range(count)]


def conversation(count: int, words: Sequence[str], seed: int = 1) -> list[str]:
    """Texts in which a few words are common and many are rare."""
    dice = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(len(words))]
    return [" ".join(dice.choices(words, weights, k=dice.randint(3, 12))) for _ in range(count)]


def ask(stores: Stores, queries: Iterable[str], limit: int = 20) -> list[tuple[Hit, ...]]:
    return [stores.episodes.search(ANA, query, limit=limit) for query in queries]


def holders(stores: Stores, query: str, limit: int = 200) -> list[Hit]:
    """Hits that share a term with the query themselves, not through their neighbours alone."""
    found = stores.episodes.search(ANA, query, limit=limit)
    return [hit for hit in found if hit.reasons != ("neighbour",)]


def settle_all(stores: Stores) -> int:
    total = 0
    while moved := stores.episodes.settle(ANA):
        total += moved
    return total


def bytes_of(engine: Engine, tables: Sequence[str]) -> bytes:
    """Everything that the tables hold, as bytes."""
    found = b""
    for table in tables:
        for row in engine.alter(f"SELECT * FROM {table}"):
            for value in row:
                found += value.encode() if isinstance(value, str) else b""
                found += bytes(value) if isinstance(value, bytes | memoryview) else b""
    return found


class TestSearching:
    """`search`: any text finds what shares a term with it."""

    def test_an_episode_is_found_by_each_of_its_words(self, stores: Stores) -> None:
        session = begin(stores)
        wanted = remember(stores, session, "The heron waits by the canal", "A quiet evening").ids[0]
        for query in ("heron", "HERON", "canal heron", "where is the heron?", "“Heron”!"):
            assert stores.episodes.search(ANA, query)[0].episode.id == wanted, query

    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("Mudei-me para o Porto em março", "porto"),
            ("Mudei-me para o Porto em março", "MARCO"),
            ("我去年搬到了北京", "北京"),
            ("京都の紅葉を見に行きました", "紅葉"),
            ("カタカナのメニュー", "メニュー"),
            ("ฉันชอบกินข้าวผัด", "ข้าวผัด"),
            ("서울에서 만나요", "서울"),
            ("Wir treffen uns in Köln 2026-03-14", "koln"),
            ("Wir treffen uns in Köln 2026-03-14", "2026-03-14"),
            ("mail ana@example.org about parse_line()", "ana@example.org"),
            ("mail ana@example.org about parse_line()", "parse_line"),
            ("order 4711 came, 我很高兴", "4711 高兴"),
            ("see you at the party 🎉", "🎉"),
            ("agreed 👍🏽", "👍"),
        ],
    )
    def test_scripts_and_identifiers_are_found(self, stores: Stores, text: str, query: str) -> None:
        wanted = remember(stores, begin(stores), text, "nothing of the kind").ids[0]
        assert [hit.episode.id for hit in holders(stores, query)] == [wanted]

    @pytest.mark.invariant("INV-18")
    @pytest.mark.parametrize(
        "query",
        [
            '"',
            "'; DROP TABLE episodes; --",
            "AND OR NOT NEAR(",
            "col:value -minus +plus * ? % _ ^ ~2",
            "(" * 3_000,
            ")" * 3_000 + "(" * 3_000,
            "\\" * 99,
            "a\0b",
            "\ud800\udc00\udfff",
            "\u202e\u200b\ufeff",
            "🌊👨‍👩‍👧",
            "\n\r\t",
            "",
            " ",
            "%s %(x)s {} :term",
            "𝕙𝕖𝕣𝕠𝕟",
        ],
    )
    def test_any_text_is_a_query(self, stores: Stores, query: str) -> None:
        remember(stores, begin(stores), "The heron waits", "a quiet evening")
        stores.episodes.search(ANA, query)
        found = stores.episodes.search(ANA, f"{query} heron")
        assert found[0].episode.text == "The heron waits"

    def test_nothing_to_find_finds_nothing(self, stores: Stores) -> None:
        assert stores.episodes.search(ANA, "heron") == ()
        remember(stores, begin(stores), "a quiet evening")
        assert stores.episodes.search(ANA, "heron") == ()
        assert stores.episodes.search(ANA, "") == ()

    def test_a_reason_names_each_term_that_was_found(self, stores: Stores) -> None:
        remember(stores, begin(stores), "the heron waits by the canal")
        (hit,) = stores.episodes.search(ANA, "heron canal bridge")
        assert set(hit.reasons) == {"term:heron", "term:canal"}

    def test_hits_come_best_first_and_a_shorter_list_is_the_beginning_of_a_longer(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        words = vocabulary(40)
        for part in range(4):
            remember(stores, begin(stores), *conversation(60, words, seed=part))
            clock.advance(1)
        for query in (*words[:8], " ".join(words[:3]), " ".join(words[10:20])):
            longest = stores.episodes.search(ANA, query, limit=200)
            scores = [hit.score for hit in longest]
            assert scores == sorted(scores, reverse=True)
            for limit in (1, 2, 7, 50):
                assert stores.episodes.search(ANA, query, limit=limit) == longest[:limit]

    def test_what_ties_is_ordered_by_time_the_newest_first_then_by_id(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        sessions = [begin(stores) for _ in range(30)]
        for at, session in enumerate(reversed(sessions)):
            remember(stores, session, f"heron number{at:04}")
            clock.advance(at % 2)
        found = [hit.episode for hit in stores.episodes.search(ANA, "heron", limit=200)]
        assert len({hit.score for hit in stores.episodes.search(ANA, "heron", limit=200)}) == 1
        assert found == sorted(found, key=lambda it: (-it.recorded_at, it.id.bytes))
        for limit in (1, 3, 10):
            again = stores.episodes.search(ANA, "heron", limit=limit)
            assert [hit.episode for hit in again] == found[:limit]

    @pytest.mark.parametrize("limit", [0, -1, limits.search_limit_max + 1])
    def test_a_limit_out_of_range_is_refused(self, stores: Stores, limit: int) -> None:
        with pytest.raises(InvalidValue):
            stores.episodes.search(ANA, "heron", limit=limit)

    @pytest.mark.parametrize("letter", ["a", "猫"])
    def test_a_query_is_bounded_by_bytes(self, stores: Stores, letter: str) -> None:
        remember(stores, begin(stores), "heron")
        most = limits.query_bytes_max // len(letter.encode())
        stores.episodes.search(ANA, letter * most)
        with pytest.raises(LimitExceeded):
            stores.episodes.search(ANA, letter * (most + 1))


class TestSettling:
    """`settle`: forward rows become postings, and nobody can tell by what is found."""

    def test_settling_moves_a_batch_and_counts_it(self, stores: Stores) -> None:
        assert stores.episodes.settle(ANA) == 0
        remember(stores, begin(stores), *conversation(BATCH + 44, vocabulary(30)))
        assert stores.episodes.unsettled(ANA) == BATCH + 44
        assert stores.episodes.settle(ANA) == BATCH
        assert stores.episodes.unsettled(ANA) == 44
        assert stores.episodes.settle(ANA) == 44
        assert (stores.episodes.unsettled(ANA), stores.episodes.settle(ANA)) == (0, 0)

    @pytest.mark.invariant("INV-19")
    def test_results_are_equal_before_amid_and_after_settling(self, stores: Stores) -> None:
        words = vocabulary(60)
        sessions = [begin(stores) for _ in range(3)]
        for part in range(6):
            texts = conversation(100, words, seed=part)
            new = [said(text, 100 * part + at) for at, text in enumerate(texts, 1)]
            stores.episodes.append(ANA, sessions[part % 3].id, new)
        queries = [*words[:20], *(" ".join(words[at : at + 4]) for at in range(0, 40, 5))]
        before = ask(stores, queries)
        assert sum(map(bool, before)) > 20
        while stores.episodes.settle(ANA):
            assert ask(stores, queries) == before

    @pytest.mark.invariant("INV-19")
    def test_results_do_not_depend_on_when_it_was_settled(self, engine: Engine) -> None:
        """One settles between appends to sessions old and new, the other never."""
        words = vocabulary(40)
        found = []
        for place, is_settled in ((engine, True), (SqliteMemoryEngine(), False)):
            clock = HeldClock(START_US)
            with open_stores(place, clock, ids=SeededIds("one", clock)) as stores:
                sessions = [begin(stores) for _ in range(3)]
                for part in range(12):
                    texts = conversation(20, words, seed=part)
                    new = [said(text, 100 * part + at) for at, text in enumerate(texts, 1)]
                    stores.episodes.append(ANA, sessions[-part % 3].id, new)
                    if is_settled and part % 2:
                        stores.episodes.settle(ANA)
                found.append(ask(stores, [*words[:20], " ".join(words[:9])], limit=100))
        assert found[0] == found[1]

    @pytest.mark.invariant("INV-19")
    def test_a_tail_of_any_length_is_searched(self, stores: Stores) -> None:
        session = begin(stores)
        count = 4 * limits.episode_append_max + 8
        for start in range(0, count, limits.episode_append_max):
            places = range(start + 1, min(start + limits.episode_append_max, count) + 1)
            new = [said(f"line{at} of the long story", at) for at in places]
            stores.episodes.append(ANA, session.id, new)
        (last,) = holders(stores, f"line{count}")
        assert last.episode.first_sequence == count
        common = stores.episodes.search(ANA, "story", limit=3)
        settle_all(stores)
        assert stores.episodes.search(ANA, "story", limit=3) == common

    @pytest.mark.invariant("INV-19")
    def test_ranking_is_the_same_as_on_another_engine(self, engine: Engine) -> None:
        words = vocabulary(50)
        queries = [*words[:12], *(" ".join(words[at : at + 3]) for at in range(0, 30, 3))]
        found = []
        for place in (engine, SqliteMemoryEngine()):
            clock = HeldClock(START_US)
            with open_stores(place, clock, ids=SeededIds("one", clock)) as stores:
                for part in range(3):
                    remember(stores, begin(stores), *conversation(120, words, seed=part))
                    clock.advance(1)
                    stores.episodes.settle(ANA)
                dead = [one.id for one in every_episode(stores)][::17]
                stores.episodes.tombstone(ANA, dead)
                found.append(ask(stores, queries, limit=50))
        assert found[0] == found[1]


class TestErasingTerms:
    """What is forgotten leaves the index with its row."""

    @pytest.mark.parametrize("settled", ["unsettled", "settled", "settled in two blocks"])
    def test_no_byte_of_a_forgotten_word_stays(
        self, engine: Engine, stores: Stores, settled: str
    ) -> None:
        session = begin(stores)
        lost = remember(stores, session, "zyxomma zyxomma petiolatum", "the heron waits").ids[0]
        if settled != "unsettled":
            settle_all(stores)
        if settled == "settled in two blocks":
            stores.episodes.append(ANA, session.id, [said("petiolatum is a dragonfly", 3)])
            settle_all(stores)
        before = bytes_of(engine, TABLES)
        assert b"zyxom" in before
        assert b"zyxom" in bytes_of(engine, INDEX_TABLES)
        stores.episodes.tombstone(ANA, [lost])
        after = bytes_of(engine, TABLES)
        assert b"zyxom" not in after
        assert b"heron" in after
        assert (b"petiol" in after) == (settled == "settled in two blocks")

    def test_when_all_is_forgotten_the_index_is_empty(self, engine: Engine, stores: Stores) -> None:
        ids = remember(stores, begin(stores), *conversation(BATCH + 20, vocabulary(30))).ids
        stores.episodes.settle(ANA)
        stores.episodes.tombstone(ANA, ids)
        for table in TABLES:
            assert engine.alter(f"SELECT count(*) FROM {table}") == [(0,)], table
        assert engine.alter("SELECT episode_count, total_length FROM settled") == [(0, 0)]
        assert stores.episodes.unsettled(ANA) == 0

    @pytest.mark.invariant("INV-19")
    def test_results_are_as_if_the_forgotten_had_never_been(self, stores: Stores) -> None:
        words = vocabulary(40)
        remember(stores, begin(stores), *conversation(150, words))
        stores.episodes.settle(ANA)
        before = ask(stores, words[:20], limit=50)
        other = begin(stores)
        ids = list(remember(stores, other, *conversation(200, words, seed=2)).ids)
        stores.episodes.settle(ANA)
        late = [said(text, 300 + at) for at, text in enumerate(conversation(50, words, seed=3))]
        ids += stores.episodes.append(ANA, other.id, late).ids
        assert ask(stores, words[:20], limit=50) != before
        stores.episodes.tombstone(ANA, ids)
        assert ask(stores, words[:20], limit=50) == before


def _settle_all(racer: Racer) -> int:
    return settle_all(racer.stores)


def _live(
    racer: Racer, session_id: SessionId, own: Sequence[str], doomed: Sequence[EpisodeId]
) -> list[int]:
    """Two processes settle, two append, two forget; all of them search on the way."""
    episodes, found = racer.stores.episodes, []
    for at, word in enumerate(own):
        if racer.number < 2:
            episodes.settle(ANA)
        elif racer.number < 4:
            place = 10_000 * racer.number + at
            episodes.append(ANA, session_id, [said(f"{word} by{racer.number}", place)])
        else:
            episodes.tombstone(ANA, doomed[at :: len(own)])
        found.append(len(holders(racer.stores, "steady")))
    return found


class TestIndexRaces:
    """Six processes settle, append, forget and search."""

    @pytest.mark.invariant("INV-19")
    def test_raced_settling_moves_each_row_once(self, race: Racers, shared_engine: Engine) -> None:
        words = vocabulary(40)
        with open_stores(shared_engine) as stores:
            remember(stores, begin(stores), *conversation(700, words))
            before = ask(stores, words)
            moved = race.race(_settle_all)
            assert sum(moved) == 700
            assert stores.episodes.unsettled(ANA) == 0
            assert ask(stores, words) == before
        blocks = shared_engine.alter("SELECT block, count(*) FROM forward GROUP BY block")
        assert sum(count for _, count in blocks) == 700

    @pytest.mark.invariant("INV-23")
    def test_raced_verbs_leave_an_index_of_exactly_what_lives(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        steady = [f"steady rock{at}" for at in range(90)]
        words = vocabulary(30)
        with open_stores(shared_engine) as stores:
            remember(stores, begin(stores), *steady)
            doomed = remember(stores, begin(stores), *(f"doomed leaf{at}" for at in range(90))).ids
            session = begin(stores)
            seen = race.race(_live, session.id, words, doomed)
            assert {count for counts in seen for count in counts} == {len(steady)}
            assert stores.episodes.search(ANA, "doomed leaf7") == ()
            for word in words:
                texts = {hit.episode.text for hit in holders(stores, word)}
                assert texts == {f"{word} by2", f"{word} by3"}
            alive = len(every_episode(stores))
            assert alive == len(steady) + 2 * len(words)
            settle_all(stores)
        assert shared_engine.alter("SELECT episode_count FROM settled") == [(alive,)]
        assert b"doomed" not in bytes_of(shared_engine, INDEX_TABLES)
