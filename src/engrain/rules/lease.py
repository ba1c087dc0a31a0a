"""Who may write: when a lease is live, when it may be claimed, renewed and used.

The clock may jump either way: a deadline in the past and one further away than the longest lease
both count as expired, and the fencing epoch makes that safe (INV-10).
"""

from __future__ import annotations

from hmac import compare_digest
from uuid import UUID

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import ReplayRequired, SessionBusy, StaleLease, StaleReplay
from engrain.rules.transitions import LEASE, may


class HeldLease(msgspec.Struct, frozen=True):
    """The lease columns of a session row; `digest` is None while nobody holds it."""

    digest: bytes | None
    epoch: int
    deadline_us: int


def is_live(deadline_us: int, now_us: int, ttl_us: int = limits.lease_ttl_us) -> bool:
    """True while the deadline lies ahead, but no further than the longest lease."""
    return 0 < deadline_us - now_us <= ttl_us


def lease_state(held: HeldLease, now_us: int) -> str:
    """The state of `transitions.LEASE` that the row is in."""
    if held.digest is None:
        return "free"
    return "live" if is_live(held.deadline_us, now_us) else "expired"


def decide_claim(held: HeldLease, session_id: UUID, now_us: int) -> int:
    """The epoch of the new lease; raises `SessionBusy` while another is live."""
    check_unheld(held, session_id, now_us)
    return held.epoch + 1


def check_unheld(held: HeldLease, session_id: UUID, now_us: int) -> None:
    """Raises `SessionBusy` while a lease on the session is live."""
    if not may(LEASE, lease_state(held, now_us), "claim"):
        wait_s = (held.deadline_us - now_us) / limits.SECOND_US
        raise SessionBusy(session_id, held.deadline_us, wait_s)


def is_holder(held: HeldLease, digest: bytes, epoch: int) -> bool:
    """True when this token still is the one in the row."""
    return held.digest is not None and held.epoch == epoch and compare_digest(held.digest, digest)


def check_holder(held: HeldLease, digest: bytes, epoch: int) -> None:
    """Raises `StaleLease` unless this token is the one in the row, live or not."""
    if not is_holder(held, digest, epoch):
        raise StaleLease("the lease was released or taken over by another writer")


def check_authority(held: HeldLease, digest: bytes, epoch: int, now_us: int) -> None:
    """Raises `StaleLease` unless this token holds a live lease."""
    check_holder(held, digest, epoch)
    if not may(LEASE, lease_state(held, now_us), "write"):
        raise StaleLease("the lease has expired; renew it, or claim and replay again")


def check_cursor(cursor: int | None, last_sequence: int) -> None:
    """Raises unless the lease has seen the history up to its very end."""
    if cursor is None:
        raise ReplayRequired("replay the session before the first append under this lease")
    if cursor != last_sequence:
        raise StaleReplay("the history moved since this lease replayed it")


def next_deadline(deadline_us: int, now_us: int, ttl_us: int = limits.lease_ttl_us) -> int:
    """The deadline after a write: prolonged once a fifth of the lease is over."""
    age_us = ttl_us - (deadline_us - now_us)
    renew_after_us = ttl_us * limits.lease_renew_every_us // limits.lease_ttl_us
    return now_us + ttl_us if age_us >= renew_after_us else deadline_us
