"""The promises of `SessionStore`: started, read, listed and titled in one scope."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from uuid import UUID, uuid4

import pytest

from engrain.contracts import limits
from engrain.contracts.errors import (
    InvalidValue,
    LimitExceeded,
    NotFound,
    OperationMismatch,
)
from engrain.contracts.ids import OperationId, SessionId
from engrain.contracts.sessions import Session
from engrain.contracts.workspace import DEFAULT_WORKSPACE, named_workspace
from engrain.rules.retry import uuid7_time_us
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, BEN, START_US, begin, hold, say
from engrain.testing.engines import Engine, Stores, open_stores
from engrain.testing.races import RACERS, Racer, Racers, refusal

SOURCE = ("claude", "conversation-1")


class TestStarting:
    """`start`."""

    def test_new_session_is_empty_and_free(self, stores: Stores) -> None:
        session = begin(stores, title="trip")
        assert session.title == "trip"
        assert session.event_count == 0
        assert session.leased_until is None
        assert session.forked_from is None
        assert session.workspace == DEFAULT_WORKSPACE
        assert (session.created_at, session.opened_at, session.updated_at) == (START_US,) * 3

    def test_session_without_a_title_has_none(self, stores: Stores) -> None:
        assert begin(stores).title is None

    def test_started_session_reads_back_as_it_was_returned(self, stores: Stores) -> None:
        session = begin(stores, title="viagem à praia 🌊")
        assert stores.sessions.read(ANA, session.id) == session

    def test_returned_session_is_durable(self, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as first, open_stores(shared_engine) as second:
            session = begin(first)
            assert second.sessions.read(ANA, session.id) == session
        with open_stores(shared_engine) as later:
            assert later.sessions.read(ANA, session.id) == session

    def test_session_ids_are_uuids_of_version_7(self, stores: Stores) -> None:
        ids = [begin(stores).id for _ in range(20)]
        assert all(uuid7_time_us(session_id) is not None for session_id in ids)
        assert len(set(ids)) == 20

    def test_start_takes_no_lease(self, stores: Stores) -> None:
        session = begin(stores)
        assert stores.leases.claim(ANA, session.id).epoch == 1

    def test_same_source_is_the_same_session(self, stores: Stores) -> None:
        first = stores.sessions.start(ANA, DEFAULT_WORKSPACE, source=SOURCE)
        again = stores.sessions.start(ANA, DEFAULT_WORKSPACE, source=SOURCE, title="other")
        assert again == first
        assert stores.sessions.find_source(ANA, SOURCE) == first
        assert len(stores.sessions.list(ANA).items) == 1

    def test_another_source_is_another_session(self, stores: Stores) -> None:
        ids = {
            stores.sessions.start(ANA, DEFAULT_WORKSPACE, source=source).id
            for source in (SOURCE, ("chatgpt", SOURCE[1]), (SOURCE[0], "conversation-2"))
        }
        assert len(ids) == 3

    def test_source_of_another_scope_is_not_found(self, stores: Stores) -> None:
        first = stores.sessions.start(ANA, DEFAULT_WORKSPACE, source=SOURCE)
        assert stores.sessions.find_source(BEN, SOURCE) is None
        assert stores.sessions.start(BEN, DEFAULT_WORKSPACE, source=SOURCE).id != first.id

    @pytest.mark.invariant("INV-05")
    @pytest.mark.parametrize("title", ["", "  \n", "a\0b", "a\ud800b"])
    def test_title_that_is_blank_or_unclean_is_refused(self, stores: Stores, title: str) -> None:
        with pytest.raises(InvalidValue) as refused:
            begin(stores, title=title)
        assert refused.value.field == "title"
        assert stores.sessions.list(ANA).items == ()

    def test_title_is_bounded_in_bytes(self, stores: Stores) -> None:
        longest = "é" * (limits.title_bytes_max // 2)
        assert begin(stores, title=longest).title == longest
        with pytest.raises(LimitExceeded) as refused:
            begin(stores, title=longest + "a")
        assert refused.value.most == limits.title_bytes_max == 1024


class TestReading:
    """`read`."""

    def test_unknown_session_is_not_found(self, stores: Stores) -> None:
        begin(stores)
        with pytest.raises(NotFound):
            stores.sessions.read(ANA, SessionId(uuid4()))

    @pytest.mark.invariant("INV-20")
    def test_session_of_another_scope_looks_like_none(self, stores: Stores) -> None:
        session, unknown = begin(stores), SessionId(uuid4())
        begin(stores, BEN)
        with pytest.raises(NotFound) as foreign:
            stores.sessions.read(BEN, session.id)
        with pytest.raises(NotFound) as missing:
            stores.sessions.read(BEN, unknown)
        facts = foreign.value.facts()
        facts["message"] = foreign.value.message.replace(str(session.id), str(unknown))
        assert facts == missing.value.facts()


class TestListing:
    """`list`: pages that hold every session once, and nothing of another scope."""

    def test_most_recently_opened_comes_first(self, stores: Stores, clock: HeldClock) -> None:
        sessions = []
        for _ in range(3):
            sessions.append(begin(stores))
            clock.advance(limits.SECOND_US)
        assert _ids(stores) == [session.id for session in reversed(sessions)]
        stores.leases.claim(ANA, sessions[0].id)
        assert _ids(stores) == [sessions[0].id, sessions[2].id, sessions[1].id]

    def test_pages_hold_every_session_once(self, stores: Stores) -> None:
        started = {begin(stores).id for _ in range(10)}
        pages = _pages(stores, limit=3)
        assert [len(page) for page in pages] == [3, 3, 3, 1]
        listed = [session.id for page in pages for session in page]
        assert len(listed) == 10
        assert set(listed) == started

    def test_a_full_last_page_has_no_cursor(self, stores: Stores) -> None:
        for _ in range(3):
            begin(stores)
        assert stores.sessions.list(ANA, limit=3).next is None

    def test_pages_stay_stable_while_sessions_are_added(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        old = []
        for _ in range(6):
            old.append(begin(stores).id)
            clock.advance(1)
        first = stores.sessions.list(ANA, limit=2)
        for _ in range(5):
            begin(stores)
        second = stores.sessions.list(ANA, limit=2, cursor=first.next)
        begin(stores)
        third = stores.sessions.list(ANA, limit=2, cursor=second.next)
        listed = [session.id for page in (first, second, third) for session in page.items]
        assert listed == old[::-1]
        assert third.next is None

    def test_workspace_narrows_the_list(self, stores: Stores) -> None:
        work = named_workspace("work")
        ours = {stores.sessions.start(ANA, work).id for _ in range(3)}
        begin(stores)
        page = stores.sessions.list(ANA, workspace=work, limit=2)
        rest = stores.sessions.list(ANA, workspace=work, limit=2, cursor=page.next)
        assert {session.id for session in (*page.items, *rest.items)} == ours
        assert stores.sessions.list(ANA, workspace=named_workspace("none")).items == ()

    @pytest.mark.invariant("INV-20")
    def test_other_scopes_do_not_show(self, stores: Stores) -> None:
        ours = begin(stores)
        for _ in range(3):
            begin(stores, BEN)
        page = stores.sessions.list(ANA, limit=1)
        assert [session.id for session in page.items] == [ours.id]
        assert page.next is None

    def test_scope_that_was_never_written_to_lists_nothing(self, stores: Stores) -> None:
        page = stores.sessions.list(ANA)
        assert (page.items, page.next) == ((), None)

    @pytest.mark.invariant("INV-20")
    def test_cursor_of_another_scope_is_refused(self, stores: Stores) -> None:
        for scope in (ANA, BEN):
            for _ in range(2):
                begin(stores, scope)
        cursor = stores.sessions.list(ANA, limit=1).next
        with pytest.raises(InvalidValue) as refused:
            stores.sessions.list(BEN, limit=1, cursor=cursor)
        assert refused.value.field == "cursor"

    def test_cursor_shows_no_integer_key(self, stores: Stores) -> None:
        for _ in range(2):
            begin(stores)
        cursor = stores.sessions.list(ANA, limit=1).next
        assert cursor is not None
        sealed = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        key = stores.scopes.ensure(ANA).key.scope
        for value in (str(key), str(START_US)):
            assert value.encode() not in sealed
        for number in (key, START_US):
            assert number.to_bytes(8, "big") not in sealed
            assert number.to_bytes(8, "little") not in sealed

    def test_cursor_that_was_tampered_with_is_refused(self, stores: Stores) -> None:
        for _ in range(2):
            begin(stores)
        cursor = stores.sessions.list(ANA, limit=1).next
        assert cursor is not None
        turned = "B" if cursor[0] == "A" else "A"
        for wrong in (turned + cursor[1:], cursor[:-4], "x", "né", "A" * 10_000):
            with pytest.raises(InvalidValue):
                stores.sessions.list(ANA, limit=1, cursor=wrong)

    @pytest.mark.parametrize("limit", [0, -1, limits.page_items_max + 1])
    def test_page_limit_is_bounded(self, stores: Stores, limit: int) -> None:
        with pytest.raises(InvalidValue) as refused:
            stores.sessions.list(ANA, limit=limit)
        assert refused.value.field == "limit"


class TestTitles:
    """`set_title`."""

    def test_title_is_replaced(self, stores: Stores) -> None:
        session = begin(stores, title="old")
        named = stores.sessions.set_title(ANA, session.id, "new")
        assert named.title == "new"
        assert stores.sessions.read(ANA, session.id) == named

    def test_title_needs_no_lease_and_disturbs_none(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        stores.sessions.set_title(ANA, session.id, "while it is held")
        assert say(stores, lease, "still mine").first_sequence == 1

    @pytest.mark.invariant("INV-20")
    def test_title_of_another_scope_stays(self, stores: Stores) -> None:
        session = begin(stores, title="mine")
        begin(stores, BEN)
        with pytest.raises(NotFound):
            stores.sessions.set_title(BEN, session.id, "theirs")
        assert stores.sessions.read(ANA, session.id).title == "mine"

    @pytest.mark.parametrize("title", ["", " ", "a\0b", "a\udfffb"])
    def test_wrong_title_changes_nothing(self, stores: Stores, title: str) -> None:
        session = begin(stores, title="kept")
        with pytest.raises(InvalidValue):
            stores.sessions.set_title(ANA, session.id, title)
        assert stores.sessions.read(ANA, session.id).title == "kept"

    @pytest.mark.invariant("INV-13")
    def test_repeated_title_does_not_undo_a_later_one(self, stores: Stores) -> None:
        session, operation = begin(stores), OperationId(uuid4())
        stores.sessions.set_title(ANA, session.id, "first", operation_id=operation)
        stores.sessions.set_title(ANA, session.id, "second")
        stores.sessions.set_title(ANA, session.id, "first", operation_id=operation)
        assert stores.sessions.read(ANA, session.id).title == "second"
        with pytest.raises(OperationMismatch):
            stores.sessions.set_title(ANA, session.id, "third", operation_id=operation)
        assert stores.sessions.read(ANA, session.id).title == "second"


class TestSessionRaces:
    """Six processes start and name sessions; what they acknowledge is what is there."""

    def test_every_acknowledged_start_is_one_session(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        acknowledged = [UUID(text) for ids in race.race(race_starts, 8) for text in ids]
        with open_stores(shared_engine) as stores:
            listed = [session.id for session in stores.sessions.list(ANA, limit=1_000).items]
        assert len(listed) == len(acknowledged) == 8 * RACERS
        assert set(listed) == set(acknowledged)

    @pytest.mark.invariant("INV-13")
    def test_one_operation_id_starts_one_session(self, race: Racers, shared_engine: Engine) -> None:
        for _ in range(4):
            assert len(set(race.race(race_start_operation, uuid4()))) == 1
        with open_stores(shared_engine) as stores:
            assert len(stores.sessions.list(ANA).items) == 4

    def test_one_source_is_one_session(self, race: Racers, shared_engine: Engine) -> None:
        for number in range(4):
            assert len(set(race.race(race_start_source, f"conversation-{number}"))) == 1
        with open_stores(shared_engine) as stores:
            assert len(stores.sessions.list(ANA).items) == 4

    def test_every_acknowledged_title_was_written_once(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine) as stores:
            session = begin(stores)
            titles = [title for told in race.race(race_titles, session.id, 8) for title in told]
            assert len(titles) == 8 * RACERS
            assert stores.sessions.read(ANA, session.id).title in titles
        rows = shared_engine.alter("SELECT count(*) FROM operations WHERE verb = 'set_title'")
        assert rows == [(8 * RACERS,)]

    @pytest.mark.invariant("INV-13")
    def test_one_operation_id_never_names_two_sessions(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine) as stores:
            sessions = [begin(stores).id for _ in range(RACERS)]
            for _ in range(5):
                codes = race.race(race_title_operation, sessions, uuid4())
                assert sorted(codes) == [""] + ["operation_mismatch"] * (RACERS - 1)


def race_starts(racer: Racer, count: int) -> list[str]:
    """Starts sessions in a scope that nobody has written to before."""
    return [str(begin(racer.stores).id) for _ in range(count)]


def race_start_operation(racer: Racer, operation: UUID) -> str:
    started = racer.stores.sessions.start(
        ANA, DEFAULT_WORKSPACE, operation_id=OperationId(operation)
    )
    return str(started.id)


def race_start_source(racer: Racer, source_id: str) -> str:
    started = racer.stores.sessions.start(ANA, DEFAULT_WORKSPACE, source=("claude", source_id))
    return str(started.id)


def race_titles(racer: Racer, session_id: SessionId, count: int) -> list[str]:
    titles = [f"title {racer.number}.{number}" for number in range(count)]
    for title in titles:
        racer.stores.sessions.set_title(ANA, session_id, title)
    return titles


def race_title_operation(racer: Racer, sessions: list[SessionId], operation: UUID) -> str:
    """Each process names a session of its own under the one operation id."""
    return refusal(
        lambda: racer.stores.sessions.set_title(
            ANA, sessions[racer.number], "named", operation_id=OperationId(operation)
        )
    )


def _ids(stores: Stores) -> list[SessionId]:
    return [session.id for session in stores.sessions.list(ANA).items]


def _pages(stores: Stores, limit: int) -> list[tuple[Session, ...]]:
    pages, cursor = [], None
    while True:
        page = stores.sessions.list(ANA, limit=limit, cursor=cursor)
        pages.append(page.items)
        cursor = page.next
        if cursor is None:
            return pages
