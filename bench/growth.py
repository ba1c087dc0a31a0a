"""Growth: an append must cost the same after 10,000 events as after 10, and store little."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from engrain import Memory
from engrain.contracts.events import Event
from material import EVENTS_A_TURN, as_openai_items, make_turns
from report import Goal, Section, lines_of, ratio
from run import Run
from timing import Loop, interleave, quiet
from turns import ANA, open_writer

_LONG = 10_000
_SHORT = 10
_ROUNDS = 40
_BLOCK = 10
_WARM_UP = 10  # so many sessions that the log of the short ones has begun anew
_PEER_ROUNDS = 6
_MATERIAL = 512


def measure(run: Run) -> Section:
    """Engrain at 10 and at 10,000 events, and LangGraph's saver at both."""
    directory = run.fresh("growth")
    turns = make_turns(_MATERIAL)
    ours = _measure_engrain(run, directory, turns)
    items = as_openai_items(turns, directory / "items.json")
    savers = {
        f"LangGraph SqliteSaver.put at {size:,}": run.peers.open(
            "langgraph_growth",
            path=str(directory / f"langgraph-{size}.sqlite3"),
            turns=str(items),
            events=size,
        )
        for size in (_SHORT, _LONG)
    }
    theirs = interleave(savers, rounds=run.rounds(_PEER_ROUNDS), block=1)
    short, long = savers
    stored = savers[long].ask("bytes_per_event")
    each = _bytes_per_event(directory / "stored.sqlite3")
    return Section(
        "Growth",
        f"One more turn of 4 events of 1 KB after {_SHORT} and after {_LONG:,} events.",
        lines_of(ours) + lines_of(theirs),
        [
            Goal(
                "append at 10,000 events against 10", ratio(ours, _name(_LONG), _name(_SHORT)), 1.1
            ),
            Goal("stored for each event of 1 KB", each / 1_024, 1.5, unit="KB"),
        ],
        [
            f"LangGraph's saver: {ratio(theirs, long, short):.0f} × at {_LONG:,} events, and "
            f"{stored / 1e6:.1f} MB stored for each event (a checkpoint holds the whole history)."
        ],
    )


def _name(events: int) -> str:
    return f"Engrain at {events:,}"


def _measure_engrain(
    run: Run, directory: Path, turns: Sequence[list[Event]]
) -> dict[str, list[int]]:
    """In two files: in each the session that is appended to is the last one of its table."""
    with (
        Memory.open(directory / "short.sqlite3") as short,
        Memory.open(directory / "long.sqlite3") as long,
        open_writer(long) as writer,
    ):
        _fill(writer.append, _LONG // EVENTS_A_TURN)
        more = make_turns((run.rounds(_ROUNDS) + _WARM_UP) * _BLOCK, seed=3, prefix="more")
        contestants = {
            _name(_SHORT): ShortSessions(short, turns),
            _name(_LONG): Loop(lambda at: writer.append(more[at])),
        }
        return interleave(contestants, rounds=run.rounds(_ROUNDS), block=_BLOCK, warm_up=_WARM_UP)


class ShortSessions:
    """Appends the third turn of sessions that it makes as it goes; only that one is timed."""

    def __init__(self, memory: Memory, turns: Sequence[list[Event]]) -> None:
        self._memory = memory
        self._turns = turns

    def block(self, count: int) -> list[int]:
        return [self._once() for _ in range(count)]

    def _once(self) -> int:
        with open_writer(self._memory) as writer, quiet():
            writer.append(self._turns[0])
            writer.append(self._turns[1])
            began = time.perf_counter_ns()
            writer.append(self._turns[2])
            return time.perf_counter_ns() - began


def _fill(append: Callable[[list[Event]], object], turns: int) -> None:
    """Appends that many turns whose call ids nobody else uses."""
    for turn in make_turns(turns, seed=2, prefix="fill"):
        append(turn)


def _bytes_per_event(path: Path) -> float:
    """Bytes that a session of 10,000 events adds to the file, its log folded away."""
    with Memory.open(path) as memory:
        memory.sessions.start(ANA)
    empty = path.stat().st_size
    with Memory.open(path) as memory, open_writer(memory) as writer:
        _fill(writer.append, _LONG // EVENTS_A_TURN)
    return (path.stat().st_size - empty) / _LONG
