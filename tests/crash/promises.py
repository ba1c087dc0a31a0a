"""What writing processes told before they died, and whether the database keeps it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from crash.writing import LEASE_TTL_US, TURN_EVENTS, Ask
from engrain.contracts.errors import EngrainError
from engrain.contracts.events import StoredEvent
from engrain.contracts.ids import SessionId
from engrain.testing.contracts import ANA, hold, say
from engrain.testing.engines import Stores


class Done(NamedTuple):
    """One acknowledgement."""

    marker: str
    epoch: int
    first: int
    last: int


class Told:
    """Everything that processes told about the sessions that they wrote to."""

    def __init__(self) -> None:
        self.done: dict[str, list[Done]] = defaultdict(list)
        self.held: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """By session: the epoch of each lease and the cursor that it began at."""
        self._asked: dict[str, dict[str, tuple[str, Ask]]] = defaultdict(dict)
        """By session and marker: the process that asked for it last, and what."""

    def note(self, process: str, line: list[Any]) -> None:
        what, session, *rest = line
        if what == "held":
            self.held[session].append((rest[0], rest[1]))
        elif what == "asked":
            self._asked[session][rest[0]] = (process, Ask(rest[0], UUID(rest[1])))
        elif what == "done":
            self.done[session].append(Done(*rest))

    def asked(self, session: str) -> set[str]:
        """The markers of all appends that were begun."""
        return set(self._asked[session])

    def hand_over(self, dead: set[str], heir: str) -> dict[str, list[Ask]]:
        """By session: what the dead asked for without an answer, for the heir to repeat."""
        left: dict[str, list[Ask]] = {}
        for session, asks in self._asked.items():
            answered = {one.marker for one in self.done[session]}
            for marker, (process, ask) in asks.items():
                if process in dead and marker not in answered:
                    asks[marker] = (heir, ask)
                    left.setdefault(session, []).append(ask)
        return left


def broken_promises(stores: Stores, told: Told, sessions: list[UUID]) -> list[str]:
    """What the database does not keep of what was told; empty when all is well.

    The stores' clock must be past every lease.
    """
    return [
        f"{session}: {fault}"
        for session in sessions
        for fault in _faults(stores, told, SessionId(session))
    ]


def _faults(stores: Stores, told: Told, session_id: SessionId) -> Iterator[str]:
    name = str(session_id)
    events = list(stores.transcript.iter_events(ANA, session_id))
    if [stored.sequence for stored in events] != list(range(1, len(events) + 1)):
        yield "sequences are not consecutive"
    turns = _turns(events)
    yield from _faults_of_turns(turns)
    yield from _faults_of_answers(turns, told.done[name])
    yield from _faults_of_leases(told.held[name], told.done[name])
    if strangers := {marker for marker, _ in turns.values()} - told.asked(name):
        yield f"nobody asked for {sorted(strangers)}"
    yield from _faults_of_going_on(stores, session_id, len(events))


def _turns(events: list[StoredEvent]) -> dict[int, tuple[str, list[str]]]:
    """By the sequence of its first event: each turn's marker and the markers of its events."""
    turns: dict[int, tuple[str, list[str]]] = {}
    for stored in events:
        marker = stored.event.text.split(" ")[0]
        turns.setdefault(stored.turn, (marker, []))[1].append(marker)
    return turns


def _faults_of_turns(turns: dict[int, tuple[str, list[str]]]) -> Iterator[str]:
    for first, (marker, markers) in turns.items():
        if markers != [marker] * TURN_EVENTS:
            yield f"torn turn at {first}: {markers}"
    for marker, times in Counter(marker for marker, _ in turns.values()).items():
        if times > 1:
            yield f"{marker} is there {times} times"


def _faults_of_answers(
    turns: dict[int, tuple[str, list[str]]], answers: list[Done]
) -> Iterator[str]:
    for done in answers:
        if turns.get(done.first, ("", []))[0] != done.marker:
            yield f"{done.marker} was acknowledged and is lost"
        if done.last != done.first + TURN_EVENTS - 1:
            yield f"{done.marker} was acknowledged as {done.first} to {done.last}"


def _faults_of_leases(held: list[tuple[int, int]], answers: list[Done]) -> Iterator[str]:
    if len({epoch for epoch, _ in held}) != len(held):
        yield "two leases had one epoch"
    for done in answers:
        if any(epoch > done.epoch and done.first > cursor for epoch, cursor in held):
            yield f"{done.marker} was written under a lease that was overtaken"


def _faults_of_going_on(stores: Stores, session_id: SessionId, count: int) -> Iterator[str]:
    """The chain verifies, and the lease of the dead makes way for a new one that may append."""
    try:
        if stores.transcript.verify(ANA, session_id).event_count != count:
            yield "the chain is not as long as the history"
        lease = hold(stores, stores.sessions.read(ANA, session_id), ttl_us=LEASE_TTL_US)
        if say(stores, lease, "after all").first_sequence != count + 1:
            yield "the history does not go on where it ended"
    except EngrainError as error:
        yield f"it does not go on: {error.code}"
