"""The promises of `LeaseStore`: one writer at a time, fenced in every write, frozen by no clock."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue, NotFound, SessionBusy, StaleLease
from engrain.contracts.ids import SessionId
from engrain.contracts.leases import SessionLease
from engrain.contracts.sessions import Session
from engrain.contracts.snapshots import SessionSnapshot
from engrain.storage.database import Writer
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, BEN, START_US, begin, hold, say
from engrain.testing.engines import Stores

SNAPSHOT = SessionSnapshot(configuration={"model": "m"})
YEAR_US = 365 * limits.DAY_US
TTL_US = limits.lease_ttl_us
AT_ONCE_S = 2.0
"""Far below the engine's bounded wait of 5 s, and far above what a busy machine needs."""


class TestClaiming:
    """`claim`."""

    def test_lease_lasts_300_seconds(self, stores: Stores, clock: HeldClock) -> None:
        session = begin(stores)
        lease = stores.leases.claim(ANA, session.id)
        assert lease.deadline_us - START_US == 300 * limits.SECOND_US
        clock.advance(TTL_US - 1)
        with pytest.raises(SessionBusy):
            stores.leases.claim(ANA, session.id)
        clock.advance(1)
        assert stores.leases.claim(ANA, session.id).epoch == 2

    def test_busy_says_until_when_and_keeps_the_holder(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        clock.advance(100 * limits.SECOND_US)
        with pytest.raises(SessionBusy) as busy:
            stores.leases.claim(ANA, session.id)
        assert busy.value.retryable
        assert busy.value.session_id == session.id
        assert busy.value.lease_until_us == START_US + TTL_US
        assert busy.value.retry_after_s == 200.0
        assert say(stores, lease, "still here").last_sequence == 1

    def test_epoch_grows_at_each_claim(self, stores: Stores) -> None:
        session = begin(stores)
        epochs = []
        for _ in range(3):
            lease = stores.leases.claim(ANA, session.id)
            epochs.append(lease.epoch)
            stores.leases.release(lease)
        assert epochs == [1, 2, 3]

    def test_shorter_lease_ends_sooner(self, stores: Stores, clock: HeldClock) -> None:
        session = begin(stores)
        stores.leases.claim(ANA, session.id, ttl_us=limits.import_lease_ttl_us)
        clock.advance(limits.import_lease_ttl_us)
        assert stores.leases.claim(ANA, session.id).epoch == 2

    @pytest.mark.parametrize("ttl_us", [0, -1, TTL_US + 1])
    def test_lease_time_is_bounded(self, stores: Stores, ttl_us: int) -> None:
        session = begin(stores)
        with pytest.raises(InvalidValue):
            stores.leases.claim(ANA, session.id, ttl_us=ttl_us)
        assert stores.sessions.read(ANA, session.id).leased_until is None

    def test_claim_opens_the_session(self, stores: Stores, clock: HeldClock) -> None:
        session = begin(stores)
        clock.advance(7)
        lease = stores.leases.claim(ANA, session.id)
        read = stores.sessions.read(ANA, session.id)
        assert read.opened_at == START_US + 7
        assert read.updated_at == read.created_at == START_US
        assert read.leased_until == lease.deadline_us

    @pytest.mark.invariant("INV-20")
    def test_session_of_another_scope_cannot_be_claimed(self, stores: Stores) -> None:
        session = begin(stores)
        begin(stores, BEN)
        for wrong in (session.id, SessionId(uuid4())):
            with pytest.raises(NotFound):
                stores.leases.claim(BEN, wrong)
        assert stores.leases.claim(ANA, session.id).epoch == 1


@pytest.mark.invariant("INV-10")
class TestFencing:
    """Token, epoch and deadline are checked in every write."""

    def test_overtaken_lease_is_refused_everywhere(self, stores: Stores, clock: HeldClock) -> None:
        session = begin(stores)
        old = hold(stores, session)
        clock.advance(TTL_US)
        new = hold(stores, session)
        for verb in _writes(stores, old):
            with pytest.raises(StaleLease):
                verb()
        stores.leases.release(old)
        assert say(stores, new, "mine alone").first_sequence == 1
        _is_held(stores, session)

    def test_expired_lease_cannot_write(self, stores: Stores, clock: HeldClock) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        clock.advance(TTL_US)
        for verb in _writes_content(stores, lease):
            with pytest.raises(StaleLease):
                verb()
        assert stores.sessions.read(ANA, session.id).event_count == 0

    def test_released_lease_is_refused_everywhere(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        stores.leases.release(lease)
        for verb in _writes(stores, lease):
            with pytest.raises(StaleLease):
                verb()

    def test_old_lease_stays_refused_after_the_next_is_released(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        session = begin(stores)
        old = hold(stores, session)
        clock.advance(TTL_US)
        stores.leases.release(stores.leases.claim(ANA, session.id))
        for verb in _writes(stores, old):
            with pytest.raises(StaleLease):
                verb()

    def test_epoch_alone_is_not_authority(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        forged = _forge(lease, token=b"\0" * 32)
        for verb in _writes(stores, forged):
            with pytest.raises(StaleLease):
                verb()
        stores.leases.release(forged)
        _is_held(stores, session)

    def test_token_of_another_epoch_is_not_authority(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        forged = _forge(lease, epoch=lease.epoch + 1)
        for verb in _writes(stores, forged):
            with pytest.raises(StaleLease):
                verb()
        stores.leases.release(forged)
        _is_held(stores, session)


class TestRenewing:
    """`renew`, and the renewal that appends bring along."""

    def test_renewal_gives_a_whole_lease(self, stores: Stores, clock: HeldClock) -> None:
        session = begin(stores)
        lease = stores.leases.claim(ANA, session.id)
        clock.advance(200 * limits.SECOND_US)
        stores.leases.renew(lease)
        assert lease.deadline_us == START_US + 500 * limits.SECOND_US
        assert stores.sessions.read(ANA, session.id).leased_until == lease.deadline_us

    @pytest.mark.invariant("INV-10")
    def test_expired_lease_that_nobody_took_is_renewed_by_its_own_token(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        clock.advance(10 * TTL_US)
        stores.leases.renew(lease)
        assert say(stores, lease, "back again").first_sequence == 1

    def test_append_prolongs_once_a_fifth_of_the_lease_is_over(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        clock.advance(limits.lease_renew_every_us - 1)
        say(stores, lease, "one")
        assert lease.deadline_us == START_US + TTL_US
        clock.advance(1)
        say(stores, lease, "two")
        assert lease.deadline_us == START_US + limits.lease_renew_every_us + TTL_US
        assert stores.sessions.read(ANA, session.id).leased_until == lease.deadline_us

    def test_renewal_of_a_short_lease_is_short(self, stores: Stores, clock: HeldClock) -> None:
        lease = stores.leases.claim(ANA, begin(stores).id, ttl_us=limits.import_lease_ttl_us)
        clock.advance(1)
        stores.leases.renew(lease)
        assert lease.deadline_us == START_US + 1 + limits.import_lease_ttl_us


@pytest.mark.invariant("INV-10")
class TestJumpingClock:
    """A clock that jumps ends authority, and freezes nothing."""

    @pytest.mark.parametrize("jump_us", [YEAR_US, -YEAR_US, -2 * limits.SECOND_US])
    def test_jump_ends_the_lease_and_frees_the_session(
        self, stores: Stores, clock: HeldClock, jump_us: int
    ) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        _jump(clock, jump_us)
        with pytest.raises(StaleLease):
            say(stores, lease, "too late, or too early")
        taken = hold(stores, session)
        assert say(stores, taken, "on it goes").first_sequence == 1
        assert begin(stores).created_at == START_US + jump_us

    @pytest.mark.parametrize("jump_us", [YEAR_US, -YEAR_US])
    def test_holder_goes_on_after_renewal(
        self, stores: Stores, clock: HeldClock, jump_us: int
    ) -> None:
        lease = hold(stores, begin(stores))
        say(stores, lease, "before")
        _jump(clock, jump_us)
        stores.leases.renew(lease)
        receipt = say(stores, lease, "after")
        assert (receipt.first_sequence, receipt.recorded_at) == (2, START_US + jump_us)

    def test_deadline_further_off_than_the_longest_lease_is_expired(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        session = begin(stores)
        stores.leases.claim(ANA, session.id)
        clock.step_back(1)
        assert stores.leases.claim(ANA, session.id).epoch == 2

    def test_step_back_over_a_minute_is_audited_once(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        lease = hold(stores, begin(stores))
        say(stores, lease, "before")
        clock.step_back(61 * limits.SECOND_US)
        stores.leases.renew(lease)
        say(stores, lease, "after")
        say(stores, lease, "and after")
        entries = stores.audit.list(ANA)
        assert [entry.name for entry in entries] == ["clock_stepped_back"]
        assert entries[0].facts == {"by_us": 61 * limits.SECOND_US}
        assert stores.audit.verify(ANA) == 1

    def test_step_back_of_a_minute_is_not_audited(self, stores: Stores, clock: HeldClock) -> None:
        lease = hold(stores, begin(stores))
        say(stores, lease, "before")
        clock.step_back(60 * limits.SECOND_US)
        stores.leases.renew(lease)
        say(stores, lease, "after")
        assert stores.audit.list(ANA) == ()


@pytest.mark.invariant("INV-26")
class TestOpacity:
    """A lease shows nothing and cannot be doubled."""

    def test_secrets_stand_in_no_repr(self, stores: Stores) -> None:
        lease = stores.leases.claim(ANA, begin(stores).id)
        binding, token = lease.reveal()
        shown = "".join(map(str, (repr(lease), lease, repr(binding), stores.scopes.ensure(ANA))))
        for secret in (token, binding.secret):
            assert secret.hex() not in shown
            assert repr(secret) not in shown

    @pytest.mark.parametrize("double", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_lease_cannot_be_copied_or_pickled(
        self, stores: Stores, double: Callable[[object], object]
    ) -> None:
        lease = stores.leases.claim(ANA, begin(stores).id)
        with pytest.raises(TypeError):
            double(lease)

    def test_token_is_fresh_for_each_claim(self, stores: Stores) -> None:
        leases = [stores.leases.claim(ANA, begin(stores).id) for _ in range(5)]
        assert len({lease.reveal()[1] for lease in leases}) == 5


class TestGuardDrop:
    """What a dropped writer does: its best, without waiting."""

    def test_release_at_once_frees_the_session(self, stores: Stores) -> None:
        session = begin(stores)
        stores.leases.release_at_once(stores.leases.claim(ANA, session.id))
        assert stores.leases.claim(ANA, session.id).epoch == 2

    def test_dropped_writer_frees_its_session(self, stores: Stores) -> None:
        session = begin(stores)
        writer = stores.memory.sessions.lease(ANA, session.id)
        _is_held(stores, session)
        del writer
        gc.collect()
        assert stores.leases.claim(ANA, session.id).epoch == 2

    def test_contended_drop_returns_at_once_and_expiry_recovers(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        session = begin(stores)
        lease = stores.leases.claim(ANA, session.id)
        dropped = threading.Thread(target=stores.leases.release_at_once, args=(lease,))
        with _being_written(stores, lease):
            dropped.start()
            dropped.join(AT_ONCE_S)
            was_quick = not dropped.is_alive()
        dropped.join()
        assert was_quick
        _is_held(stores, session)
        clock.advance(TTL_US)
        assert stores.leases.claim(ANA, session.id).epoch == 2

    def test_drop_in_the_middle_of_a_read_leaves_the_read_whole(self, stores: Stores) -> None:
        session = begin(stores, title="read")
        lease = stores.leases.claim(ANA, session.id)
        known = stores.scopes.ensure(ANA)
        where = {"scope_key": known.key.scope, "session_id": session.id.bytes}
        with stores.database.read() as reader:
            before = reader.one("sessions.read", **where)
            stores.leases.release_at_once(lease)
            assert before is not None
            assert reader.one("sessions.read", **where) == before
        assert stores.sessions.set_title(ANA, session.id, "written").title == "written"

    def test_release_is_durable_and_may_be_repeated(self, stores: Stores) -> None:
        session = begin(stores)
        lease = stores.leases.claim(ANA, session.id)
        for _ in range(2):
            stores.leases.release(lease)
        assert stores.sessions.read(ANA, session.id).leased_until is None


def _writes_content(stores: Stores, lease: SessionLease) -> list[Callable[[], object]]:
    return [
        lambda: say(stores, lease, "words"),
        lambda: stores.snapshots.bind(lease, SNAPSHOT),
    ]


def _writes(stores: Stores, lease: SessionLease) -> list[Callable[[], object]]:
    return [*_writes_content(stores, lease), lambda: stores.leases.renew(lease)]


def _forge(
    lease: SessionLease, *, token: bytes | None = None, epoch: int | None = None
) -> SessionLease:
    binding, right = lease.reveal()
    forged = SessionLease(
        lease.scope,
        lease.session_id,
        binding=binding,
        token=token or right,
        epoch=epoch or lease.epoch,
        deadline_us=lease.deadline_us,
    )
    forged.cursor = lease.cursor
    return forged


def _is_held(stores: Stores, session: Session) -> None:
    with pytest.raises(SessionBusy):
        stores.leases.claim(ANA, session.id)


def _jump(clock: HeldClock, us: int) -> None:
    clock.step_ahead(us) if us > 0 else clock.step_back(-us)


@contextmanager
def _being_written(stores: Stores, lease: SessionLease) -> Iterator[None]:
    """Another thread is in the middle of a write to the lease's session."""
    begun, ended = threading.Event(), threading.Event()
    key = lease.reveal()[0].key

    def body(writer: Writer) -> None:
        writer.one("leases.read", scope_key=key.scope, session_key=key.session)
        begun.set()
        ended.wait()

    thread = threading.Thread(target=stores.database.write, args=(key, body))
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        ended.set()
        thread.join()
