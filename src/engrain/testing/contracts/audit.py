"""The promises of `AuditStore`: append-only, without content, one hash chain a scope."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from engrain.contracts import limits
from engrain.contracts.audit import AuditEntry
from engrain.contracts.errors import Corrupt, InvalidValue, LimitExceeded, Uncertain
from engrain.contracts.scope import Scope
from engrain.storage.database import Writer
from engrain.storage.stores.audit import add_entry
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, BEN, START_US, begin, hold, say
from engrain.testing.engines import Engine, Stores, open_stores
from engrain.testing.faults import Faults
from engrain.testing.races import RACERS, Racer, Racers

MINUTE_US = 60 * limits.SECOND_US


def note(stores: Stores, *names: str, scope: Scope = ANA) -> list[AuditEntry]:
    """An entry for each name."""
    return [stores.audit.record(scope, name, {"by": name, "count": 3}) for name in names]


class TestRecording:
    """`record`."""

    def test_recorded_entry_is_listed_as_it_was_returned(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        first = stores.audit.record(ANA, "noted", {"session": "0198", "count": 3})
        clock.advance(7)
        second = stores.audit.record(ANA, "noted", {})
        assert (first.number, first.name, first.recorded_at) == (1, "noted", START_US)
        assert first.facts == {"session": "0198", "count": 3}
        assert (second.number, second.facts, second.recorded_at) == (2, {}, START_US + 7)
        assert stores.audit.list(ANA) == (first, second)

    def test_recorded_entry_is_durable(self, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as first, open_stores(shared_engine) as second:
            entries = note(first, "one", "two")
            assert second.audit.list(ANA) == tuple(entries)
        with open_stores(shared_engine) as later:
            assert later.audit.verify(ANA) == 2
            assert note(later, "three")[0].number == 3

    @pytest.mark.invariant("INV-11")
    def test_link_binds_the_one_before_and_the_whole_entry(self, stores: Stores) -> None:
        first, second = note(stores, "one", "two")
        domain, link = b"engrain audit 1\0", b"\0" * 32
        for number, entry in ((1, first), (2, second)):
            body = b'{"facts":{"by":"%s","count":3},"name":"%s"}' % ((entry.name.encode(),) * 2)
            head = pack(">QqI", number, START_US, len(body))
            link = sha256(domain + link + head + body).digest()
            assert entry.link == link.hex()

    def test_facts_of_every_allowed_form_read_back(self, stores: Stores) -> None:
        facts: dict[str, str | int] = {
            "largest": 2**63 - 1,
            "smallest": -(2**63),
            "empty": "",
            "long": "é" * (limits.title_bytes_max // 2),
            "名": '北京 \n\t"\\',
        }
        stores.audit.record(ANA, "noted", facts)
        assert stores.audit.list(ANA)[0].facts == facts
        assert stores.audit.verify(ANA) == 1

    def test_entry_that_could_not_be_read_back_is_refused(self, stores: Stores) -> None:
        wrong: tuple[tuple[Any, Any], ...] = (
            ("", {}),
            (" ", {}),
            ("a\0", {}),
            (7, {}),
            ("noted", {"fact": 0.5}),
            ("noted", {"fact": True}),
            ("noted", {"fact": None}),
            ("noted", {"fact": ["a"]}),
            ("noted", {"fact": 2**63}),
            ("noted", {"fact": "a\ud800"}),
            ("noted", {"fact": "a" * (limits.title_bytes_max + 1)}),
            ("noted", {7: "fact"}),
            ("noted", {f"fact {number}": number for number in range(limits.labels_max + 1)}),
        )
        for name, facts in wrong:
            with pytest.raises(InvalidValue):
                stores.audit.record(ANA, name, facts)
        with pytest.raises(LimitExceeded):
            stores.audit.record(ANA, "n" * (limits.label_bytes_max + 1), {})
        assert stores.audit.list(ANA) == ()

    @pytest.mark.invariant("INV-07")
    def test_lost_acknowledgement_is_uncertain_and_the_chain_goes_on(self, stores: Stores) -> None:
        note(stores, "one")
        for point in ("commit.before", "commit.after"):
            with Faults() as faults:
                faults.fail(point)
                with pytest.raises(Uncertain):
                    note(stores, point)
        note(stores, "last")
        assert [entry.name for entry in stores.audit.list(ANA)] == ["one", "commit.after", "last"]
        assert stores.audit.verify(ANA) == 3


class TestPaging:
    """`list`: past an exclusive number, oldest first."""

    def test_pages_hold_every_entry_once(self, stores: Stores) -> None:
        names = [f"entry {number}" for number in range(1, 8)]
        note(stores, *names)
        found: list[AuditEntry] = []
        sizes = []
        while page := stores.audit.list(ANA, after=len(found), limit=3):
            sizes.append(len(page))
            found += page
        assert sizes == [3, 3, 1]
        assert [entry.number for entry in found] == list(range(1, 8))
        assert [entry.name for entry in found] == names

    def test_page_past_a_number_stays_the_same_while_entries_are_added(
        self, stores: Stores
    ) -> None:
        note(stores, "one", "two", "three")
        page = stores.audit.list(ANA, after=1, limit=2)
        note(stores, "four")
        assert stores.audit.list(ANA, after=1, limit=2) == page
        assert [entry.number for entry in stores.audit.list(ANA, after=3)] == [4]

    def test_page_past_the_end_is_empty(self, stores: Stores) -> None:
        assert stores.audit.list(ANA) == ()
        note(stores, "one")
        for after in (1, 2, limits.json_integer_max):
            assert stores.audit.list(ANA, after=after) == ()

    def test_page_is_bounded(self, stores: Stores) -> None:
        for limit in (0, -1, limits.page_items_max + 1):
            with pytest.raises(InvalidValue) as refused:
                stores.audit.list(ANA, limit=limit)
            assert refused.value.field == "limit"
        for after in (-1, limits.json_integer_max + 1):
            with pytest.raises(InvalidValue) as refused:
                stores.audit.list(ANA, after=after)
            assert refused.value.field == "after"


@pytest.mark.invariant("INV-20")
class TestScopes:
    """One chain a scope, and none of another's."""

    def test_each_scope_counts_and_links_for_itself(self, stores: Stores) -> None:
        ours = [*note(stores, "one"), *note(stores, "two")]
        theirs = note(stores, "one", "two", "three", scope=BEN)
        ours += note(stores, "three")
        assert [entry.number for entry in ours] == [1, 2, 3]
        assert [entry.link for entry in ours] == [entry.link for entry in theirs]
        assert (stores.audit.verify(ANA), stores.audit.verify(BEN)) == (3, 3)

    def test_entries_of_another_scope_are_not_found(self, stores: Stores) -> None:
        note(stores, "one", "two")
        begin(stores, BEN)
        assert stores.audit.list(BEN) == ()
        assert stores.audit.verify(BEN) == 0

    def test_damage_in_one_scope_stops_no_other(self, stores: Stores, engine: Engine) -> None:
        note(stores, "ours")
        note(stores, "theirs", scope=BEN)
        engine.alter("UPDATE audit SET name = 'other' WHERE name = 'theirs'")
        assert stores.audit.verify(ANA) == 1
        with pytest.raises(Corrupt):
            stores.audit.verify(BEN)


TAMPERINGS = {
    "a name": "UPDATE audit SET name = 'other' WHERE number = 2 AND scope_key = :scope",
    "a fact": """UPDATE audit SET facts = '{"by":"two","count":4}'
        WHERE number = 2 AND scope_key = :scope""",
    "facts of another form": """UPDATE audit SET facts = '{"by":0.5}'
        WHERE number = 2 AND scope_key = :scope""",
    "facts that are no JSON": """UPDATE audit SET facts = '{'
        WHERE number = 2 AND scope_key = :scope""",
    "facts that are never clean": r"""UPDATE audit SET facts = '{"by":"\u0000"}'
        WHERE number = 2 AND scope_key = :scope""",
    "a time": """UPDATE audit SET recorded_at = recorded_at - 1
        WHERE number = 2 AND scope_key = :scope""",
    "a link": """UPDATE audit SET link = (SELECT a.link FROM audit a
        WHERE a.number = 1 AND a.scope_key = :scope) WHERE number = 2 AND scope_key = :scope""",
    "the last link": """UPDATE audit SET link = (SELECT a.link FROM audit a
        WHERE a.number = 1 AND a.scope_key = :scope) WHERE number = 3 AND scope_key = :scope""",
    "the first entry gone": "DELETE FROM audit WHERE number = 1 AND scope_key = :scope",
    "a later entry gone": "DELETE FROM audit WHERE number = 2 AND scope_key = :scope",
    "a number": "UPDATE audit SET number = 4 WHERE number = 3 AND scope_key = :scope",
    "an entry put in behind": """INSERT INTO audit (scope_key, number, name, facts, recorded_at,
        link) SELECT scope_key, 4, name, facts, recorded_at, link FROM audit
        WHERE number = 3 AND scope_key = :scope""",
}


@pytest.mark.invariant("INV-11")
class TestVerifying:
    """`verify` recomputes every link."""

    def test_chain_as_it_was_written_holds(self, stores: Stores, clock: HeldClock) -> None:
        assert stores.audit.verify(ANA) == 0
        note(stores, "one")
        clock.step_back(MINUTE_US)
        note(stores, "two", "three")
        assert stores.audit.verify(ANA) == 3

    def test_any_change_to_the_rows_is_found(self, stores: Stores, engine: Engine) -> None:
        for name, tampering in TAMPERINGS.items():
            scope = Scope(org="acme", user=name)
            note(stores, "one", "two", "three", scope=scope)
            assert stores.audit.verify(scope) == 3
            engine.alter(tampering, scope=stores.scopes.ensure(scope).key.scope)
            with pytest.raises(Corrupt):
                stores.audit.verify(scope)

    def test_chain_longer_than_a_page_is_verified_to_its_end(
        self, stores: Stores, engine: Engine
    ) -> None:
        key = stores.scopes.ensure(ANA).key

        def write_many(writer: Writer) -> None:
            for number in range(1, 1_102):
                add_entry(writer, key, "noted", {"number": number})

        stores.database.write(key, write_many)
        assert stores.audit.verify(ANA) == 1_101
        engine.alter("UPDATE audit SET name = 'other' WHERE number = 1101")
        with pytest.raises(Corrupt) as found:
            stores.audit.verify(ANA)
        assert "1101" in found.value.message


class TestWhatIsAudited:
    """What the stores write by themselves: ids, counts and times, never content."""

    def test_clock_that_stepped_back_is_audited_past_a_minute(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        session = begin(stores)
        for step_us in (MINUTE_US, MINUTE_US + 1):
            lease = hold(stores, session)
            say(stores, lease, "before the step")
            stores.leases.release(lease)
            clock.step_back(step_us)
            lease = hold(stores, session)
            say(stores, lease, "after it")
            stores.leases.release(lease)
        (entry,) = stores.audit.list(ANA)
        assert (entry.name, entry.facts) == ("clock_stepped_back", {"by_us": MINUTE_US + 1})

    @pytest.mark.invariant("INV-26")
    def test_rows_of_the_log_hold_no_content(
        self, stores: Stores, engine: Engine, clock: HeldClock, tmp_path: Path
    ) -> None:
        old, new = tmp_path / "quince", tmp_path / "quince jam"
        old.mkdir()
        new.mkdir()
        sessions = stores.memory.sessions
        session = sessions.start(ANA, title="quince", workspace=old)
        for reply in ("quince", "quince jam"):
            lease = hold(stores, session)
            say(stores, lease, "quince", reply=reply)
            stores.leases.release(lease)
            clock.step_back(MINUTE_US + 1)
        sessions.relink_workspace(ANA, session.id, new)
        rows = engine.alter("SELECT name, facts FROM audit ORDER BY number")
        assert [row[0] for row in rows] == ["clock_stepped_back", "workspace_relinked"]
        assert "quince" not in repr(rows)
        assert str(session.id) in rows[1][1]


class TestAuditRaces:
    """Six processes write to the logs of two scopes."""

    def test_every_acknowledged_entry_stands_once_in_one_chain(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        answers = race.race(race_records, 8)
        with open_stores(shared_engine) as stores:
            for scope in (ANA, BEN):
                told = [one for answer in answers for one in answer[scope.user]]
                found = stores.audit.list(scope, limit=1_000)
                assert len(found) == len(told) == 8 * RACERS
                assert [entry.number for entry in found] == list(range(1, 8 * RACERS + 1))
                assert {(one.number, one.link, one.name) for one in found} == set(told)
                assert stores.audit.verify(scope) == 8 * RACERS


def race_records(racer: Racer, count: int) -> dict[str, list[tuple[int, str, str]]]:
    """What each scope's log acknowledged; nobody has written to either scope before."""
    told: dict[str, list[tuple[int, str, str]]] = {ANA.user: [], BEN.user: []}
    for number in range(count):
        for scope in (ANA, BEN):
            entry = racer.stores.audit.record(scope, f"by {racer.number}.{number}", {})
            told[scope.user].append((entry.number, entry.link, entry.name))
    return told
