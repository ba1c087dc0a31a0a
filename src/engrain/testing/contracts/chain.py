"""The promises of `verify`: any change to history is found, and what was forgotten is no change.

The chain is computed a second time here, from its description alone, by code that shares nothing
with the rules but the encoding of events.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engrain.contracts.errors import InvalidValue
from engrain.contracts.events import (
    KIND_OF,
    AssistantMessage,
    Audit,
    Erased,
    Event,
    ToolCall,
    ToolResult,
    UserMessage,
)
from engrain.contracts.ids import OperationId
from engrain.contracts.sessions import Session
from engrain.contracts.transcript import AppendReceipt
from engrain.rules.canonical import encode_event
from engrain.system.ids import SystemIds
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, begin, history, hold, say
from engrain.testing.engines import Engine, Stores, open_stores

_SALT = 16


class NotingIds(SystemIds):
    """Random bytes of the system, the last of them noted: a turn's salts are drawn last."""

    def __init__(self) -> None:
        self.last = b""

    def random_bytes(self, count: int) -> bytes:
        self.last = super().random_bytes(count)
        return self.last


@pytest.fixture
def noting_ids() -> NotingIds:
    return NotingIds()


@pytest.fixture
def noted(engine: Engine, clock: HeldClock, noting_ids: NotingIds) -> Iterator[Stores]:
    """Stores whose salts a test can know."""
    with open_stores(engine, clock, ids=noting_ids) as opened:
        yield opened


class Model:
    """What a session should hold, and the link that its chain should end with."""

    def __init__(self, session_id: UUID) -> None:
        self.session_id = session_id
        self.events: list[Event | Erased] = []
        self.turns: list[int] = []
        self.call_count = 0
        self.link = sha256(b"engrain genesis 1" + session_id.bytes).digest()

    def append(
        self, receipt: AppendReceipt, events: Sequence[Event], turn: int | None, salts: bytes
    ) -> None:
        first = len(self.events) + 1
        batch = [b"engrain link 1\0\0", self.link, self.session_id.bytes]
        batch += [receipt.operation_id.bytes, struct.pack(">Q", first)]
        batch += [struct.pack(">q", receipt.recorded_at), struct.pack(">I", len(events))]
        for at, event in enumerate(events):
            kind = KIND_OF[type(event)].encode()
            salt = salts[at * _SALT : (at + 1) * _SALT]
            batch += [struct.pack(">Q", turn or first), bytes([len(kind)]), kind]
            batch += [sha256(b"engrain event 1\0" + salt + encode_event(event)).digest()]
            batch += [struct.pack(">I", 0)]
        self.link = sha256(b"".join(batch)).digest()
        self.events += events
        self.turns += [turn or first] * len(events)

    def forget(self, sequence: int) -> None:
        event = self.events[sequence - 1]
        if not isinstance(event, Erased):
            self.events[sequence - 1] = Erased(was=KIND_OF[type(event)])


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["turn", "go on", "tools", "wait", "release"]), TEXTS),
        st.tuples(st.sampled_from(["refused", "repeat", "forget"]), st.integers(0, 50)),
    ),
    max_size=14,
)


@pytest.mark.invariant("INV-11")
class TestVerifying:
    """`verify`."""

    def test_empty_session_holds(self, stores: Stores) -> None:
        session = begin(stores)
        found = stores.transcript.verify(ANA, session.id)
        assert (found.session_id, found.event_count, found.erased) == (session.id, 0, 0)
        assert found.link == sha256(b"engrain genesis 1" + session.id.bytes).hexdigest()

    def test_each_turn_moves_the_link(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        links = []
        for number in range(3):
            receipt = say(stores, lease, "the same words")
            found = stores.transcript.verify(ANA, session.id)
            assert (found.event_count, found.link) == (number + 1, receipt.link)
            links.append(receipt.link)
        assert len(set(links)) == 3

    def test_same_words_have_different_commitments(self, stores: Stores, engine: Engine) -> None:
        stores.transcript.append_turn(
            hold(stores, begin(stores)), [UserMessage(text="yes"), UserMessage(text="yes")]
        )
        rows = engine.alter("SELECT DISTINCT commitment FROM events")
        assert len(rows) == 2

    def test_forgotten_events_leave_the_chain_whole(self, stores: Stores, engine: Engine) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        receipts = [say(stores, lease, f"quince {n}", reply="noted") for n in range(3)]
        assert stores.transcript.redact(ANA, session.id, [3, 4]) == 2
        assert stores.transcript.redact(ANA, session.id, [4, 5, 99]) == 1
        found = stores.transcript.verify(ANA, session.id)
        assert (found.event_count, found.erased, found.link) == (6, 3, receipts[-1].link)
        assert [type(one.event) is Erased for one in history(stores, session)] == [
            *[False] * 2,
            *[True] * 3,
            False,
        ]
        left = engine.alter("SELECT payload, salt FROM events WHERE payload IS NOT NULL")
        assert len(left) == 3
        assert not any(b"quince 1" in bytes(row[0]) for row in left)
        after = say(stores, lease, "and on")
        assert stores.transcript.verify(ANA, session.id).link == after.link

    @settings(
        max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(actions=ACTIONS)
    def test_chain_is_what_its_description_says(
        self,
        noted: Stores,
        noting_ids: NotingIds,
        clock: HeldClock,
        actions: list[tuple[str, str | int]],
    ) -> None:
        session = begin(noted)
        run = _Run(noted, noting_ids, clock, session)
        for name, argument in actions:
            run.act(name, argument)
        model = run.model
        found = noted.transcript.verify(ANA, session.id)
        erased = sum(isinstance(event, Erased) for event in model.events)
        assert found.link == model.link.hex()
        assert (found.event_count, found.erased) == (len(model.events), erased)
        replayed = list(noted.transcript.replay(run.lease))
        assert [stored.event for stored in replayed] == model.events
        assert [stored.turn for stored in replayed] == model.turns
        noted.leases.release(run.lease)


class _Run:
    """Carries actions out on the stores and on the model."""

    def __init__(self, stores: Stores, ids: NotingIds, clock: HeldClock, session: Session) -> None:
        self._stores = stores
        self._ids = ids
        self._clock = clock
        self._session = session
        self._last: tuple[AppendReceipt, list[Event], int | None] | None = None
        self.model = Model(session.id)
        self.lease = hold(stores, session)

    def act(self, name: str, argument: str | int) -> None:
        if name == "wait":
            self._clock.advance(len(str(argument)))
        elif name == "release":
            self._stores.leases.release(self.lease)
            self.lease = hold(self._stores, self._session)
        elif name == "forget":
            self._forget(int(argument))
        elif name == "repeat":
            self._repeat()
        elif name == "refused":
            with pytest.raises(InvalidValue):
                self._append([UserMessage(text="x"), AssistantMessage(text=" ")], None)
        else:
            turn = self.model.turns[-1] if self.model.turns and name == "go on" else None
            self._append(self._events(name, str(argument)), turn)

    def _events(self, name: str, text: str) -> list[Event]:
        if name != "tools":
            return [UserMessage(text=f"said {text}"), AssistantMessage(text=f"re {text}")]
        self.model.call_count += 1
        call_id = f"c{self.model.call_count}"
        call = ToolCall(call_id=call_id, name="look", arguments="{}")
        return [call, Audit(name="seen"), ToolResult(call_id=call_id, text=text)]

    def _append(self, events: list[Event], turn: int | None) -> None:
        receipt = self._stores.transcript.append_turn(self.lease, events, turn=turn)
        self._last = (receipt, events, turn)
        self.model.append(receipt, events, turn, self._ids.last)
        assert receipt.link == self.model.link.hex()

    def _repeat(self) -> None:
        if self._last is not None:
            receipt, events, turn = self._last
            again = self._stores.transcript.append_turn(
                self.lease, events, turn=turn, operation_id=OperationId(receipt.operation_id)
            )
            assert again == receipt

    def _forget(self, at: int) -> None:
        if self.model.events:
            sequence = at % len(self.model.events) + 1
            self._stores.transcript.redact(ANA, self._session.id, [sequence])
            self.model.forget(sequence)
