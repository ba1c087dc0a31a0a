"""One durable turn: four events of 1 KB under a lease, with cursor, operation id and hash chain."""

from __future__ import annotations

from pathlib import Path

from engrain import Memory, Scope
from engrain.services.sessions import SessionWriter
from floors import BareTurns, create_bare
from material import as_openai_items, encode_turns, make_turns
from report import Goal, Section, lines_of, ratio
from run import Run
from same_rows import SameRows
from syncs import counted
from timing import Loop, interleave

ANA = Scope(org="bench", user="ana")
_ROUNDS = 60
_BLOCK = 20
_WARM_UP = 5
_COUNTED = 1_500


def measure(run: Run) -> Section:
    """Engrain, the bare floor and OpenAI's session, turn about."""
    section = Section(
        "Durable turn",
        "4 events of 1,024 stored bytes. Floor: APSW, the same bytes and pragmas, one transaction.",
    )
    directory = run.fresh("turns")
    rounds = run.rounds(_ROUNDS)
    turns = make_turns((rounds + _WARM_UP) * _BLOCK)
    payloads = encode_turns(turns)
    create_bare(directory / "bare.sqlite3")
    bare = BareTurns(directory / "bare.sqlite3")
    plain = SameRows(directory / "rows.sqlite3", is_hashed=False)
    hashed = SameRows(directory / "hashed.sqlite3", is_hashed=True)
    items = as_openai_items(turns, directory / "items.json")
    with Memory.open(directory / "engrain.sqlite3") as memory, open_writer(memory) as writer:
        contestants = {
            "bare floor": Loop(lambda at: bare.append(payloads[at])),
            "Engrain's rows alone": Loop(lambda at: plain.append_events(turns[at], payloads[at])),
            "the same, encoded and hashed": Loop(lambda at: hashed.append_events(turns[at], ())),
            "Engrain": Loop(lambda at: writer.append(turns[at])),
            "OpenAI Agents SQLiteSession": run.peers.open(
                "openai_turns", path=str(directory / "openai.sqlite3"), turns=str(items)
            ),
        }
        taken = interleave(contestants, rounds=rounds, block=_BLOCK, warm_up=_WARM_UP)
    for below in (bare, plain, hashed):
        below.close()
    section.lines = lines_of(taken, "bare floor")
    openai = ratio(taken, "Engrain", "OpenAI Agents SQLiteSession")
    section.goals = [
        Goal("durable turn against the bare floor", ratio(taken, "Engrain", "bare floor"), 1.30),
        Goal("durable turn against OpenAI Agents SQLiteSession", openai, 0.5),
        Goal("syncs a turn", count_syncs(directory / "counted.sqlite3"), 1.05, unit=""),
    ]
    return section


def open_writer(memory: Memory) -> SessionWriter:
    """The lease of a new session."""
    return memory.sessions.lease(ANA, memory.sessions.start(ANA).id)


def count_syncs(path: Path, turns: int = _COUNTED) -> float:
    """Syncs for each turn, with those of checkpoints."""
    material = make_turns(turns)
    with counted() as since, Memory.open(path) as memory, open_writer(memory) as writer:
        since()
        for turn in material:
            writer.append(turn)
        return since()["syncs"] / turns
