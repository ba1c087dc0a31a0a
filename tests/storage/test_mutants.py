"""The suites catch what they are there for: with one rule taken out, a promise fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from engrain.contracts.errors import EngrainError
from engrain.rules import lease as lease_rules
from engrain.storage.postgres import database as postgres
from engrain.storage.queries import load_queries, with_numbers
from engrain.storage.sqlite import database as sqlite
from engrain.storage.stores import appending, history, leases, operations, snapshots, transcript
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import (
    START_US,
    chain,
    lease_races,
    racers,
    replay,
    sessions,
    tampering,
)
from engrain.testing.contracts import leases as lease_suite
from engrain.testing.contracts import snapshots as snapshot_suite
from engrain.testing.contracts import transcript as transcript_suite
from engrain.testing.engines import (
    PostgresEngine,
    SqliteFileEngine,
    SqliteMemoryEngine,
    open_stores,
)
from engrain.testing.races import Racers, plant

__all__ = ["racers"]

Promise = Callable[..., Any]
CAUGHT = (AssertionError, EngrainError, pytest.fail.Exception)


class Anything(bytes):
    """Equal to whatever it is compared with: a check that always holds."""

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def let_through(*_: object, **__: object) -> None:
    """A check that refuses nothing."""


def hold_everything(*_: object) -> Anything:
    return Anything()


def acknowledge_before_commit(_: object, batch: list[Any]) -> None:
    for work in batch:
        work.is_durable = True


RULES: dict[str, tuple[object, str, object, Promise, dict[str, object]]] = {
    "an append needs no authority": (
        appending,
        "check_authority",
        let_through,
        lease_suite.TestFencing().test_overtaken_lease_is_refused_everywhere,
        {},
    ),
    "an expired lease may bind": (
        snapshots,
        "check_authority",
        let_through,
        lease_suite.TestFencing().test_expired_lease_cannot_write,
        {},
    ),
    "anybody may renew": (
        leases,
        "check_holder",
        let_through,
        lease_suite.TestFencing().test_released_lease_is_refused_everywhere,
        {},
    ),
    "the epoch is not compared": (
        lease_rules,
        "is_holder",
        lambda held, digest, _: held.digest == digest,
        lease_suite.TestFencing().test_token_of_another_epoch_is_not_authority,
        {},
    ),
    "a deadline may lie as far off as it likes": (
        lease_rules,
        "is_live",
        lambda deadline_us, now_us: deadline_us > now_us,
        lease_suite.TestJumpingClock().test_deadline_further_off_than_the_longest_lease_is_expired,
        {},
    ),
    "a claim asks for no free session": (
        lease_rules,
        "check_unheld",
        let_through,
        lease_suite.TestClaiming().test_busy_says_until_when_and_keeps_the_holder,
        {},
    ),
    "nobody has to replay": (
        appending,
        "check_cursor",
        let_through,
        transcript_suite.TestReplayRule().test_append_before_any_replay_is_refused,
        {},
    ),
    "any turn may enter": (
        transcript,
        "check_append",
        let_through,
        transcript_suite.TestWhatMayEnter().test_broken_tool_pairs_are_refused,
        {"events": transcript_suite.PAIRS_REFUSED["results out of order"]},
    ),
    "any turn may be continued": (
        appending,
        "_check_continues",
        let_through,
        transcript_suite.TestAppending().test_only_the_last_agent_turn_can_be_continued,
        {"turn": 1},
    ),
    "commitments are not recomputed": (
        history,
        "first_uncommitted",
        let_through,
        replay.TestReplaying().test_what_was_tampered_with_is_never_returned,
        {},
    ),
    "links are not recomputed": (
        history,
        "batch_link",
        hold_everything,
        tampering.TestTampering().test_changed_header_of_a_batch_is_found,
        {"change": "recorded_at = recorded_at + 1"},
    ),
    "the head is not looked at": (
        transcript,
        "_check_end",
        let_through,
        tampering.TestTampering().test_lost_batch_is_found,
        {"number": 3},
    ),
    "replay has no bounds": (
        transcript,
        "_check_replay_bounds",
        let_through,
        replay.TestReplayBounds().test_longer_history_is_refused_and_can_be_paged,
        {"bound": "replay_events_max", "most": 4},
    ),
    "a repeat is not compared with the first request": (
        operations,
        "decide_repeat",
        lambda known, *_: known is not None,
        sessions.TestTitles().test_repeated_title_does_not_undo_a_later_one,
        {},
    ),
    "a repeat is not recognised": (
        operations,
        "decide_repeat",
        lambda *_: False,
        sessions.TestTitles().test_repeated_title_does_not_undo_a_later_one,
        {},
    ),
    "any snapshot will do": (
        snapshots,
        "_demand_same",
        let_through,
        snapshot_suite.TestBinding().test_any_other_snapshot_is_a_mismatch_and_changes_nothing,
        {},
    ),
    "a turn is acknowledged before its commit": (
        sqlite.SqliteDatabase,
        "_acknowledge",
        acknowledge_before_commit,
        transcript_suite.TestAppending().test_acknowledged_turn_is_durable,
        {},
    ),
}

STATEMENTS: dict[str, tuple[str, str, str, Promise]] = {
    "a release asks for no token": (
        "leases.release",
        "AND lease_digest = :digest",
        "AND :digest IS NOT NULL",
        lease_suite.TestFencing().test_epoch_alone_is_not_authority,
    ),
    "a list shows every scope": (
        "sessions.list",
        "WHERE s.scope_key = :scope_key",
        "WHERE :scope_key IS NOT NULL",
        sessions.TestListing().test_other_scopes_do_not_show,
    ),
    "a page begins with the last of the one before": (
        "sessions.list",
        "< (:before_opened_at, :before_session_id)",
        "<= (:before_opened_at, :before_session_id)",
        sessions.TestListing().test_pages_hold_every_session_once,
    ),
    "a session of any scope can be read": (
        "sessions.read",
        "WHERE s.scope_key = :scope_key",
        "WHERE :scope_key IS NOT NULL",
        sessions.TestReading().test_session_of_another_scope_looks_like_none,
    ),
    "an append does not prolong": (
        "transcript.advance",
        "lease_deadline = :deadline",
        "lease_deadline = lease_deadline + 0 * :deadline",
        lease_suite.TestRenewing().test_append_prolongs_once_a_fifth_of_the_lease_is_over,
    ),
    "a forgotten event keeps its payload": (
        "transcript.redact",
        "SET payload = NULL, salt = NULL",
        "SET payload = payload",
        chain.TestVerifying().test_forgotten_events_leave_the_chain_whole,
    ),
    "a forgotten event loses its mark": (
        "transcript.redact",
        "SET payload = NULL",
        "SET source_mark = NULL, payload = NULL",
        replay.TestSources().test_forgotten_event_stays_known_so_that_no_import_brings_it_back,
    ),
}


@pytest.mark.parametrize("mutant", RULES)
def test_missing_rule_breaks_a_promise(
    mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, name, replacement, promise, arguments = RULES[mutant]
    keep(promise, tmp_path / "whole", arguments)
    monkeypatch.setattr(holder, name, replacement)
    with pytest.raises(CAUGHT):
        keep(promise, tmp_path / "mutant", arguments)


@pytest.mark.parametrize("mutant", STATEMENTS)
def test_wrong_statement_breaks_a_promise(
    mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, old, new, promise = STATEMENTS[mutant]
    keep(promise, tmp_path / "whole", {})
    statement = load_queries("engrain.storage.sqlite")[query]
    assert statement.count(old) == 1
    monkeypatch.setitem(sqlite.QUERIES, query, with_numbers(statement.replace(old, new)))
    with pytest.raises(CAUGHT):
        keep(promise, tmp_path / "mutant", {})


def test_missing_lock_of_the_anchor_is_noticed_by_six_processes(
    racers: Racers, fresh_postgres_url: str
) -> None:
    anchor = planted(racers, "sessions.lock", "FOR NO KEY UPDATE", "")
    slow_read = planted(racers, "leases.read", "WHERE", "WHERE pg_sleep(0.02) IS NOT NULL AND")
    one_holder = lease_races.TestLeaseRaces().test_one_process_holds_the_session
    engine = PostgresEngine(fresh_postgres_url)
    with slow_read, racers.on(engine) as race:
        one_holder(race, engine)
        with anchor, pytest.raises(AssertionError):
            one_holder(race, engine)


@contextmanager
def planted(racers: Racers, query: str, old: str, new: str) -> Iterator[None]:
    """In every process the statement reads otherwise, on PostgreSQL."""
    statement = postgres.QUERIES[query]
    assert statement.count(old) == 1
    racers.race(plant, query, statement.replace(old, new))
    try:
        yield
    finally:
        racers.race(plant, query, statement)


def keep(promise: Promise, folder: Path, arguments: dict[str, object]) -> None:
    """Runs one test of a suite on databases of its own."""
    folder.mkdir(mode=0o700)
    engine, clock = SqliteMemoryEngine(), HeldClock(START_US)
    with open_stores(engine, clock) as stores, pytest.MonkeyPatch.context() as patch:
        given = {
            "stores": stores,
            "engine": engine,
            "clock": clock,
            "monkeypatch": patch,
            "shared_engine": SqliteFileEngine(folder / "engrain.sqlite3"),
            **arguments,
        }
        promise(**{name: given[name] for name in signature(promise).parameters})
