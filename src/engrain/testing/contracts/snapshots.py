"""The promises of `SnapshotStore`: written once, for an empty session, and demanded ever after."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from engrain.contracts import limits
from engrain.contracts.errors import (
    NotFound,
    SnapshotMismatch,
    StaleLease,
    Uncertain,
    WorkspaceMismatch,
)
from engrain.contracts.ids import SessionId
from engrain.contracts.leases import SessionLease
from engrain.contracts.snapshots import SessionSnapshot, ToolAuthority
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, BEN, START_US, begin, history, hold, say
from engrain.testing.engines import Engine, Stores, open_stores
from engrain.testing.faults import Faults
from engrain.testing.races import RACERS, Racer, Racers, refusal

SEARCH = ToolAuthority(
    name="search",
    schema={"type": "object", "properties": {"query": {"type": "string"}}},
    implementation="search 3",
    limits={"calls_max": 8, "bytes_max": 2**40},
)
READ = ToolAuthority(name="read", schema={"type": "object"}, implementation="read 1")
SNAPSHOT = SessionSnapshot(
    configuration={"prompt": "Sê breve. 请简短。", "temperature": 0.5, "seed": 2**62 + 1},
    tools=(SEARCH, READ),
)
BARE = SessionSnapshot(configuration={})
OTHERS = {
    "another prompt": SessionSnapshot(
        configuration={**SNAPSHOT.configuration, "prompt": "Be long."}, tools=SNAPSHOT.tools
    ),
    "another number": SessionSnapshot(
        configuration={**SNAPSHOT.configuration, "seed": 2**62 + 2}, tools=SNAPSHOT.tools
    ),
    "one key more": SessionSnapshot(
        configuration={**SNAPSHOT.configuration, "stop": None}, tools=SNAPSHOT.tools
    ),
    "one tool less": SessionSnapshot(configuration=SNAPSHOT.configuration, tools=(SEARCH,)),
    "tools in another order": SessionSnapshot(
        configuration=SNAPSHOT.configuration, tools=(READ, SEARCH)
    ),
    "another schema": SessionSnapshot(
        configuration=SNAPSHOT.configuration,
        tools=(ToolAuthority(name="search", schema={}, implementation="search 3"), READ),
    ),
    "another implementation": SessionSnapshot(
        configuration=SNAPSHOT.configuration,
        tools=(SEARCH, ToolAuthority(name="read", schema=READ.schema, implementation="read 2")),
    ),
    "nothing": BARE,
}


def configured(value: Any) -> SessionSnapshot:
    """A snapshot with one value in its configuration."""
    return SessionSnapshot(configuration={"value": value})


def stored_snapshots(engine: Engine) -> int:
    """How many snapshots the database holds in all."""
    (row,) = engine.alter("SELECT count(*) FROM snapshots")
    return int(row[0])


@pytest.mark.invariant("INV-15")
class TestBinding:
    """`bind`."""

    def test_snapshot_of_an_empty_session_reads_back_as_it_was(self, stores: Stores) -> None:
        session = begin(stores)
        stores.snapshots.bind(hold(stores, session), SNAPSHOT)
        assert stores.snapshots.read(ANA, session.id) == SNAPSHOT

    def test_bound_snapshot_is_durable(self, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as first, open_stores(shared_engine) as second:
            session = begin(first)
            first.snapshots.bind(hold(first, session), SNAPSHOT)
            assert second.snapshots.read(ANA, session.id) == SNAPSHOT
        with open_stores(shared_engine) as later:
            assert later.snapshots.read(ANA, session.id) == SNAPSHOT

    def test_identical_snapshot_is_accepted_again_and_written_once(
        self, stores: Stores, engine: Engine, clock: HeldClock
    ) -> None:
        lease = hold(stores, begin(stores))
        for _ in range(3):
            stores.snapshots.bind(lease, SNAPSHOT)
            clock.advance(1)
        rows = engine.alter("SELECT recorded_at FROM snapshots")
        assert rows == [(START_US,)]

    def test_resume_offers_the_identical_snapshot(self, stores: Stores) -> None:
        session = begin(stores)
        first = hold(stores, session)
        stores.snapshots.bind(first, SNAPSHOT)
        say(stores, first, "hello")
        stores.leases.release(first)
        resumed = hold(stores, session)
        stores.snapshots.bind(resumed, SNAPSHOT)
        assert say(stores, resumed, "again").first_sequence == 2

    def test_order_of_keys_and_form_of_numbers_are_no_difference(self, stores: Stores) -> None:
        lease = hold(stores, begin(stores))
        stores.snapshots.bind(lease, SessionSnapshot(configuration={"a": 1, "b": {"c": 2, "d": 3}}))
        again = SessionSnapshot(configuration={"b": {"d": 3.0, "c": 2}, "a": 1.0})
        stores.snapshots.bind(lease, again)
        assert stores.snapshots.read(ANA, lease.session_id) == again

    def test_any_other_snapshot_is_a_mismatch_and_changes_nothing(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        stores.snapshots.bind(lease, SNAPSHOT)
        refused = dict.fromkeys(OTHERS, "snapshot_mismatch")
        assert _refusals(stores, lease, OTHERS) == refused
        say(stores, lease, "a turn makes no difference")
        assert _refusals(stores, lease, OTHERS) == refused
        assert stores.snapshots.read(ANA, session.id) == SNAPSHOT

    def test_history_without_a_snapshot_fails_closed(self, stores: Stores, engine: Engine) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        say(stores, lease, "no snapshot was bound")
        for snapshot in (SNAPSHOT, BARE):
            with pytest.raises(SnapshotMismatch) as refused:
                stores.snapshots.bind(lease, snapshot)
            assert "fork" in refused.value.message
        assert stored_snapshots(engine) == 0

    def test_history_that_was_erased_still_is_history(self, stores: Stores, engine: Engine) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        say(stores, lease, "forgotten")
        assert stores.transcript.redact(ANA, session.id, [1]) == 1
        with pytest.raises(SnapshotMismatch):
            stores.snapshots.bind(lease, SNAPSHOT)
        assert stored_snapshots(engine) == 0

    @pytest.mark.invariant("INV-26")
    def test_mismatch_says_what_is_wrong_without_a_word_of_either(self, stores: Stores) -> None:
        lease = hold(stores, begin(stores))
        stores.snapshots.bind(lease, configured("quince marmalade"))
        with pytest.raises(SnapshotMismatch) as refused:
            stores.snapshots.bind(lease, configured("plum jam"))
        facts = refused.value.facts()
        assert (facts["code"], facts["retryable"]) == ("snapshot_mismatch", False)
        assert "configuration or tool authority" in refused.value.message
        told = repr(refused.value) + repr(facts) + repr(refused.value.__cause__)
        assert not any(word in told for word in ("quince", "marmalade", "plum", "jam"))

    def test_snapshot_stands_outside_the_transcript(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        stores.snapshots.bind(lease, SNAPSHOT)
        assert history(stores, session) == []
        assert stores.sessions.read(ANA, session.id).event_count == 0
        assert say(stores, lease, "first").first_sequence == 1
        assert stores.transcript.verify(ANA, session.id).event_count == 1

    def test_lost_acknowledgement_repeated_is_bound_once(
        self, stores: Stores, engine: Engine
    ) -> None:
        lease = hold(stores, begin(stores))
        with Faults() as faults:
            faults.fail("commit.after")
            with pytest.raises(Uncertain):
                stores.snapshots.bind(lease, SNAPSHOT)
        stores.snapshots.bind(lease, SNAPSHOT)
        assert stored_snapshots(engine) == 1


class TestAuthority:
    """`bind` is a write under a lease like any other."""

    @pytest.mark.invariant("INV-10")
    def test_expired_or_released_lease_cannot_bind(
        self, stores: Stores, engine: Engine, clock: HeldClock
    ) -> None:
        expired, released = hold(stores, begin(stores)), hold(stores, begin(stores))
        stores.leases.release(released)
        clock.advance(limits.lease_ttl_us)
        for lease in (expired, released):
            with pytest.raises(StaleLease):
                stores.snapshots.bind(lease, SNAPSHOT)
        assert stored_snapshots(engine) == 0

    @pytest.mark.invariant("INV-09")
    @pytest.mark.invariant("INV-10")
    def test_replaced_directory_cannot_be_bound_to(
        self, stores: Stores, engine: Engine, tmp_path: Path
    ) -> None:
        project = tmp_path / "project"
        project.mkdir()
        session = stores.memory.sessions.start(ANA, workspace=project)
        with stores.memory.sessions.lease(ANA, session.id) as writer:
            project.rmdir()
            project.mkdir()
            with pytest.raises(WorkspaceMismatch):
                writer.bind_snapshot(SNAPSHOT)
        assert stored_snapshots(engine) == 0

    def test_pure_path_change_of_the_workspace_asks_for_no_other_snapshot(
        self, stores: Stores, tmp_path: Path
    ) -> None:
        project = tmp_path / "project"
        project.mkdir()
        sessions = stores.memory.sessions
        session = sessions.start(ANA, workspace=project)
        with sessions.lease(ANA, session.id) as writer:
            writer.bind_snapshot(SNAPSHOT)
        moved = project.rename(tmp_path / "moved")
        with sessions.lease(ANA, session.id, workspace=moved) as writer:
            writer.bind_snapshot(SNAPSHOT)
        assert sessions.read_snapshot(ANA, session.id) == SNAPSHOT


class TestReadingSnapshots:
    """`read`."""

    def test_session_without_a_snapshot_has_none(self, stores: Stores) -> None:
        session = begin(stores)
        with pytest.raises(NotFound) as missing:
            stores.snapshots.read(ANA, session.id)
        assert missing.value.kind == "snapshot of session"

    @pytest.mark.invariant("INV-20")
    def test_snapshot_of_another_scope_looks_like_an_unknown_session(self, stores: Stores) -> None:
        session, unknown = begin(stores), SessionId(uuid4())
        stores.snapshots.bind(hold(stores, session), SNAPSHOT)
        begin(stores, BEN)
        with pytest.raises(NotFound) as foreign:
            stores.snapshots.read(BEN, session.id)
        with pytest.raises(NotFound) as missing:
            stores.snapshots.read(BEN, unknown)
        facts = foreign.value.facts()
        facts["message"] = foreign.value.message.replace(str(session.id), str(unknown))
        assert facts == missing.value.facts()


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _cyclic() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


UNSAYABLE = {
    "lone surrogate": ("invalid_value", configured("a\ud800b")),
    "NUL": ("invalid_value", configured("a\0b")),
    "NaN": ("invalid_json", configured(float("nan"))),
    "infinity": ("invalid_json", configured(float("inf"))),
    "integer past 63 bits": ("invalid_json", configured(2**63)),
    "integer past 64 bits": ("invalid_json", configured(2**64)),
    "bytes of a key": ("invalid_value", configured({b"a": "one"})),
    "no JSON value": ("invalid_value", configured(object())),
    "too deep": ("limit_exceeded", configured(_nested(limits.json_depth_max))),
    "cyclic": ("limit_exceeded", configured(_cyclic())),
    "too many nodes": ("limit_exceeded", configured([0] * limits.json_nodes_max)),
    "too many bytes": ("limit_exceeded", configured("a" * limits.snapshot_bytes_max)),
    "tool without a name": (
        "invalid_value",
        SessionSnapshot(
            configuration={},
            tools=(ToolAuthority(name=None, schema={}, implementation="x"),),  # type: ignore[arg-type]
        ),
    ),
}
SCALARS = (2**63 - 1, -(2**63), 2**53, 1, 1.0, 1e300, 0.1, True, None, "", "né")


class TestSnapshotBounds:
    """What a snapshot may hold."""

    @pytest.mark.invariant("INV-05")
    @pytest.mark.invariant("INV-06")
    def test_snapshot_that_could_not_be_read_back_is_refused(
        self, stores: Stores, engine: Engine
    ) -> None:
        lease = hold(stores, begin(stores))
        wrong = {name: snapshot for name, (_, snapshot) in UNSAYABLE.items()}
        assert _refusals(stores, lease, wrong) == {n: code for n, (code, _) in UNSAYABLE.items()}
        assert stored_snapshots(engine) == 0

    def test_snapshot_as_large_as_the_bound_is_kept(self, stores: Stores) -> None:
        lease = hold(stores, begin(stores))
        frame = len('{"configuration":{"value":""},"tools":[]}')
        largest = configured("a" * (limits.snapshot_bytes_max - frame))
        stores.snapshots.bind(lease, largest)
        assert stores.snapshots.read(ANA, lease.session_id) == largest

    def test_every_scalar_reads_back_as_it_was(self, stores: Stores) -> None:
        lease = hold(stores, begin(stores))
        stores.snapshots.bind(lease, configured(list(SCALARS)))
        read = stores.snapshots.read(ANA, lease.session_id).configuration["value"]
        assert read == list(SCALARS)
        assert [type(value) for value in read] == [type(value) for value in SCALARS]


@pytest.mark.invariant("INV-15")
class TestSnapshotRaces:
    """Six processes bind snapshots to one session."""

    def test_one_of_six_snapshots_is_bound_and_its_holder_knows(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine) as stores:
            for _ in range(4):
                session = begin(stores)
                codes = race.race(race_claim_and_bind, session.id)
                assert sorted(codes) == [""] + ["session_busy"] * (RACERS - 1)
                bound = stores.snapshots.read(ANA, session.id)
                assert bound == configured(codes.index(""))
        assert stored_snapshots(shared_engine) == 4


def race_claim_and_bind(racer: Racer, session_id: SessionId) -> str:
    """Each process wants to write a snapshot of its own."""

    def claim_and_bind() -> None:
        racer.lease = racer.stores.leases.claim(ANA, session_id)
        racer.stores.snapshots.bind(racer.lease, configured(racer.number))

    return refusal(claim_and_bind)


def _refusals(
    stores: Stores, lease: SessionLease, snapshots: Mapping[str, SessionSnapshot]
) -> dict[str, str]:
    """What binding each of them is answered with."""

    def code(snapshot: SessionSnapshot) -> str:
        return refusal(lambda: stores.snapshots.bind(lease, snapshot))

    return {name: code(snapshot) for name, snapshot in snapshots.items()}
