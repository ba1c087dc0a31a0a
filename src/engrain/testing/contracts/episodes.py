"""The promises of `EpisodeStore`: appended once, read, listed, and forgotten for ever."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from engrain.contracts import limits
from engrain.contracts.episodes import Episode, EpisodeReceipt, NewEpisode
from engrain.contracts.errors import InvalidValue, LimitExceeded, NotFound
from engrain.contracts.ids import EpisodeId, SessionId
from engrain.contracts.scope import Scope, Sensitivity
from engrain.contracts.sessions import Session
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, BEN, START_US, begin
from engrain.testing.engines import Engine, Stores, open_stores

FULL = NewEpisode(
    text="Ela mudou-se para o Porto em março. 她搬到了波尔图。",
    first_sequence=3,
    last_sequence=5,
    ordinal=2,
    occurred_from=START_US - 90,
    occurred_to=START_US - 30,
    speaker="Ana",
    importance=0.25,
    origin="import:locomo",
    sensitivity=Sensitivity.CONFIDENTIAL,
    labels=("travel", "home"),
)


def said(text: str, at: int = 1, ordinal: int = 0) -> NewEpisode:
    """What one event of a session said."""
    return NewEpisode(text=text, first_sequence=at, last_sequence=at, ordinal=ordinal)


def remember(stores: Stores, session: Session, *texts: str, scope: Scope = ANA) -> EpisodeReceipt:
    """An episode for each text, of the session's first events in turn."""
    new = [said(text, at) for at, text in enumerate(texts, 1)]
    return stores.episodes.append(scope, session.id, new)


def every_episode(stores: Stores, scope: Scope = ANA, limit: int = 1_000) -> list[Episode]:
    """All episodes of the scope, page by page."""
    page = stores.episodes.list(scope, limit=limit)
    found = list(page.items)
    while page.next:
        page = stores.episodes.list(scope, cursor=page.next, limit=limit)
        found += page.items
    return found


class TestAppending:
    """`append` and `read`."""

    def test_appended_episode_reads_back_whole(self, stores: Stores) -> None:
        session = begin(stores)
        receipt = stores.episodes.append(ANA, session.id, [FULL])
        assert (receipt.written, receipt.known, receipt.tombstoned) == (1, 0, 0)
        found = stores.episodes.read(ANA, receipt.ids[0])
        for field in FULL.__struct_fields__:
            assert getattr(found, field) == getattr(FULL, field)
        assert found.id == receipt.ids[0]
        assert found.session_id == session.id
        assert found.number == 1
        assert found.recorded_at == START_US
        assert found.tokens > 0

    def test_what_is_left_out_has_the_stated_defaults(self, stores: Stores) -> None:
        receipt = remember(stores, begin(stores), "plain")
        found = stores.episodes.read(ANA, receipt.ids[0])
        assert (found.occurred_from, found.occurred_to, found.speaker) == (None, None, None)
        assert (found.importance, found.origin, found.labels) == (0.5, "host", ())
        assert found.sensitivity is Sensitivity.INTERNAL

    def test_appended_episode_is_durable(self, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as first, open_stores(shared_engine) as second:
            receipt = remember(first, begin(first), "kept")
            assert second.episodes.read(ANA, receipt.ids[0]).text == "kept"
        with open_stores(shared_engine) as later:
            assert later.episodes.read(ANA, receipt.ids[0]).text == "kept"

    def test_same_coordinates_are_one_episode_and_the_first_text_stays(
        self, stores: Stores
    ) -> None:
        session = begin(stores)
        first = remember(stores, session, "as it was")
        again = remember(stores, session, "as it was told later")
        assert again == EpisodeReceipt(first.ids, written=0, known=1, tombstoned=0)
        assert [one.text for one in every_episode(stores)] == ["as it was"]

    def test_coordinates_that_stand_twice_in_one_append_are_one_episode(
        self, stores: Stores
    ) -> None:
        receipt = stores.episodes.append(ANA, begin(stores).id, [said("a"), said("a"), said("b")])
        assert (receipt.written, receipt.known) == (1, 2)
        assert len(set(receipt.ids)) == 1
        assert len(every_episode(stores)) == 1

    def test_an_append_that_overlaps_adds_what_is_new(self, stores: Stores) -> None:
        session = begin(stores)
        remember(stores, session, "one", "two")
        receipt = remember(stores, session, "one", "two", "three")
        assert (receipt.written, receipt.known) == (1, 2)
        assert [one.text for one in every_episode(stores)] == ["one", "two", "three"]

    def test_numbers_count_without_gaps_in_each_session(self, stores: Stores) -> None:
        first, second = begin(stores), begin(stores)
        for text in "abc":
            stores.episodes.append(ANA, first.id, [said(text, ord(text))])
            stores.episodes.append(ANA, second.id, [said(text, ord(text)), said("x", ord(text), 1)])
        for session, count in ((first, 3), (second, 6)):
            page = stores.episodes.list(ANA, session_id=session.id)
            assert [one.number for one in page.items] == list(range(1, count + 1))

    def test_nothing_to_append_is_no_error(self, stores: Stores) -> None:
        receipt = stores.episodes.append(ANA, begin(stores).id, [])
        assert receipt == EpisodeReceipt((), 0, 0, 0)

    def test_unknown_session_is_not_found(self, stores: Stores) -> None:
        remember(stores, begin(stores), "something")
        with pytest.raises(NotFound) as caught:
            stores.episodes.append(ANA, SessionId(uuid4()), [said("lost")])
        assert caught.value.kind == "session"

    def test_unknown_episode_is_not_found(self, stores: Stores) -> None:
        remember(stores, begin(stores), "something")
        with pytest.raises(NotFound) as caught:
            stores.episodes.read(ANA, EpisodeId(uuid4()))
        assert caught.value.kind == "episode"

    def test_one_bad_episode_refuses_the_whole_append(self, stores: Stores) -> None:
        session = begin(stores)
        with pytest.raises(InvalidValue):
            stores.episodes.append(ANA, session.id, [said("good"), said(" ", 2)])
        assert every_episode(stores) == []


class TestBounds:
    """What may be kept: text of at most 8 KiB, clean, with coordinates."""

    @pytest.mark.parametrize("letter", ["a", "é", "猫", "🌊"])
    def test_text_of_exactly_eight_kibibytes_is_kept(self, stores: Stores, letter: str) -> None:
        size = len(letter.encode())
        text = letter * (limits.episode_text_bytes_max // size)
        text += "." * (limits.episode_text_bytes_max - len(text.encode()))
        receipt = remember(stores, begin(stores), text)
        assert stores.episodes.read(ANA, receipt.ids[0]).text == text

    @pytest.mark.parametrize("letter", ["a", "é", "猫", "🌊"])
    def test_longer_text_is_refused_by_bytes(self, stores: Stores, letter: str) -> None:
        text = letter * (limits.episode_text_bytes_max // len(letter.encode()) + 1)
        with pytest.raises(LimitExceeded) as caught:
            remember(stores, begin(stores), text)
        assert caught.value.most == 8 * 1024
        assert every_episode(stores) == []

    @pytest.mark.invariant("INV-05")
    @pytest.mark.parametrize("text", ["", " \n\t", "a\0b", "a\ud800b", "\udc00"])
    def test_blank_and_unclean_text_is_refused(self, stores: Stores, text: str) -> None:
        with pytest.raises(InvalidValue):
            remember(stores, begin(stores), text)
        assert every_episode(stores) == []

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("first_sequence", 0),
            ("first_sequence", 2**32),
            ("last_sequence", 0),
            ("ordinal", -1),
            ("importance", 1.5),
            ("importance", float("nan")),
            ("occurred_from", 2**63),
            ("occurred_to", START_US - 1_000),
            ("origin", "somebody"),
            ("labels", ("",)),
            ("labels", ("x\0",)),
            ("speaker", ""),
        ],
    )
    def test_a_value_out_of_range_is_refused_and_named(
        self, stores: Stores, field: str, value: object
    ) -> None:
        session = begin(stores)
        fields = {name: getattr(FULL, name) for name in FULL.__struct_fields__}
        with pytest.raises(InvalidValue) as caught:
            stores.episodes.append(ANA, session.id, [NewEpisode(**(fields | {field: value}))])
        assert caught.value.field
        assert every_episode(stores) == []

    def test_more_episodes_than_one_append_may_hold_are_refused(self, stores: Stores) -> None:
        session = begin(stores)
        many = [said("x", at) for at in range(1, limits.episode_append_max + 2)]
        with pytest.raises(LimitExceeded):
            stores.episodes.append(ANA, session.id, many)
        assert stores.episodes.append(ANA, session.id, many[:-1]).written == len(many) - 1

    def test_too_many_labels_are_refused(self, stores: Stores) -> None:
        labels = tuple(f"label{at}" for at in range(limits.labels_max + 1))
        new = NewEpisode(text="x", first_sequence=1, last_sequence=1, labels=labels)
        with pytest.raises(LimitExceeded):
            stores.episodes.append(ANA, begin(stores).id, [new])


class TestIds:
    """Ids follow from coordinates under the scope's secret, never from words."""

    def test_an_id_does_not_depend_on_the_words(self, stores: Stores) -> None:
        session = begin(stores)
        first = stores.episodes.append(ANA, session.id, [said("these words")])
        again = stores.episodes.append(ANA, session.id, [said("quite other words")])
        assert first.ids == again.ids

    def test_same_words_elsewhere_have_another_id(self, stores: Stores) -> None:
        one, other = begin(stores), begin(stores)
        ids: set[EpisodeId] = set()
        for session in (one, other):
            for new in (said("same"), said("same", 2), said("same", 1, 1)):
                ids.update(stores.episodes.append(ANA, session.id, [new]).ids)
        wider = NewEpisode(text="same", first_sequence=1, last_sequence=2)
        ids.update(stores.episodes.append(ANA, one.id, [wider]).ids)
        assert len(ids) == 7

    def test_same_coordinates_have_another_id_under_another_secret(self, engine: Engine) -> None:
        """Two databases in which every id but the secret is the same."""
        found = []
        for secret in (b"a", b"b"):
            with open_stores(engine, HeldClock(START_US), ids=_ChosenIds(secret)) as stores:
                scope = Scope(org="acme", user=f"user {secret.decode()}")
                session = begin(stores, scope)
                found.append((session.id, remember(stores, session, "same", scope=scope).ids[0]))
        (one, first), (other, second) = found
        assert one == other
        assert first != second

    def test_ids_are_uuids_that_name_no_time(self, stores: Stores) -> None:
        receipt = remember(stores, begin(stores), "a", "b")
        assert {one.version for one in receipt.ids} == {8}
        assert {one.variant for one in receipt.ids} == {"specified in RFC 4122"}


class _ChosenIds:
    """Session ids from one seed, secrets and keys from another."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._count = 0

    def uuid7(self) -> UUID:
        self._count += 1
        return UUID(int=(0x0198_0000_0000_7000_8000 << 48) + self._count)

    def random_bytes(self, count: int) -> bytes:
        return (self._secret * count)[:count]

    def scope_key(self) -> int:
        return self._secret[0]


class TestListing:
    """`list`: in the order of sessions and numbers, page by page."""

    def test_a_scope_without_episodes_lists_none(self, stores: Stores) -> None:
        assert stores.episodes.list(ANA).items == ()
        begin(stores)
        assert stores.episodes.list(ANA) == stores.episodes.list(BEN)

    def test_pages_give_every_episode_once_whatever_their_size(self, stores: Stores) -> None:
        sessions = [begin(stores) for _ in range(3)]
        for at in range(4):
            for session in sessions:
                stores.episodes.append(ANA, session.id, [said(f"word {at}", at + 1)])
        whole = every_episode(stores)
        places = [(sessions.index(_session(sessions, one)), one.number) for one in whole]
        assert places == [(at, number) for at in range(3) for number in range(1, 5)]
        for size in (1, 2, 5, 11, 12, 13):
            assert every_episode(stores, limit=size) == whole

    def test_the_last_page_has_no_cursor(self, stores: Stores) -> None:
        remember(stores, begin(stores), "a", "b", "c")
        assert stores.episodes.list(ANA, limit=3).next is None
        page = stores.episodes.list(ANA, limit=2)
        assert page.next is not None
        assert stores.episodes.list(ANA, limit=2, cursor=page.next).next is None

    def test_a_session_lists_its_own_page_by_page(self, stores: Stores) -> None:
        first, second, third = (begin(stores) for _ in range(3))
        remember(stores, first, "a1", "a2")
        remember(stores, second, "b1", "b2", "b3")
        remember(stores, third, "c1")
        page = stores.episodes.list(ANA, session_id=second.id, limit=2)
        rest = stores.episodes.list(ANA, session_id=second.id, limit=2, cursor=page.next)
        assert [one.text for one in page.items + rest.items] == ["b1", "b2", "b3"]
        assert rest.next is None

    def test_a_cursor_stays_good_while_episodes_come_and_go(self, stores: Stores) -> None:
        session = begin(stores)
        receipt = remember(stores, session, "a", "b", "c", "d")
        page = stores.episodes.list(ANA, limit=2)
        stores.episodes.tombstone(ANA, receipt.ids[1:3])
        stores.episodes.append(ANA, session.id, [said("e", 5)])
        rest = stores.episodes.list(ANA, cursor=page.next, limit=10)
        assert [one.text for one in rest.items] == ["d", "e"]

    def test_an_unknown_session_is_not_found(self, stores: Stores) -> None:
        begin(stores)
        with pytest.raises(NotFound):
            stores.episodes.list(ANA, session_id=SessionId(uuid4()))

    @pytest.mark.parametrize("limit", [0, -1, limits.page_items_max + 1])
    def test_a_page_size_out_of_range_is_refused(self, stores: Stores, limit: int) -> None:
        begin(stores)
        with pytest.raises(InvalidValue):
            stores.episodes.list(ANA, limit=limit)

    def test_a_cursor_of_another_list_or_changed_is_refused(self, stores: Stores) -> None:
        for _ in range(2):
            remember(stores, begin(stores), "a", "b")
        own = stores.episodes.list(ANA, limit=1).next
        other = stores.sessions.list(ANA, limit=1).next
        assert own and other
        for cursor in (other, own[:-2] + "AA", own + "A", "", "cursor", "é" * 20, "\ud800"):
            if cursor:
                with pytest.raises(InvalidValue):
                    stores.episodes.list(ANA, cursor=cursor)

    def test_cursors_are_of_one_length(self, stores: Stores) -> None:
        """A length that follows a key would tell how much else the database holds."""
        for _ in range(3):
            remember(stores, begin(stores), *"abcdefghijkl")
        lengths = set()
        page = stores.episodes.list(ANA, limit=1)
        while page.next:
            lengths.add(len(page.next))
            page = stores.episodes.list(ANA, limit=1, cursor=page.next)
        assert len(lengths) == 1


def _session(sessions: list[Session], episode: Episode) -> Session:
    return next(one for one in sessions if one.id == episode.session_id)


class TestWatermark:
    """`extracted_through`: how far a session was read, moved with what was written."""

    def test_a_new_session_was_read_through_nothing(self, stores: Stores) -> None:
        assert stores.episodes.read_watermark(ANA, begin(stores).id) == 0

    def test_it_moves_with_an_append_and_without_one(self, stores: Stores) -> None:
        session = begin(stores)
        stores.episodes.append(ANA, session.id, [said("a")], extracted_through=3)
        assert stores.episodes.read_watermark(ANA, session.id) == 3
        stores.episodes.append(ANA, session.id, [], extracted_through=9)
        assert stores.episodes.read_watermark(ANA, session.id) == 9

    def test_it_never_moves_back(self, stores: Stores) -> None:
        session = begin(stores)
        stores.episodes.append(ANA, session.id, [], extracted_through=9)
        stores.episodes.append(ANA, session.id, [said("a")], extracted_through=3)
        stores.episodes.append(ANA, session.id, [said("b", 2)])
        assert stores.episodes.read_watermark(ANA, session.id) == 9

    def test_an_append_that_is_refused_does_not_move_it(self, stores: Stores) -> None:
        session = begin(stores)
        with pytest.raises(InvalidValue):
            stores.episodes.append(ANA, session.id, [said(" ")], extracted_through=5)
        assert stores.episodes.read_watermark(ANA, session.id) == 0

    def test_it_is_one_sessions_own(self, stores: Stores) -> None:
        one, other = begin(stores), begin(stores)
        stores.episodes.append(ANA, one.id, [], extracted_through=4)
        assert stores.episodes.read_watermark(ANA, other.id) == 0
        with pytest.raises(NotFound):
            stores.episodes.read_watermark(ANA, SessionId(uuid4()))
