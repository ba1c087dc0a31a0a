"""Replay of 10,000 events: read, decoded, and verified against the hash chain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from engrain.contracts.events import StoredEvent
from engrain.contracts.ids import SessionId
from engrain.testing.engines import SqliteFileEngine, Stores, open_stores
from floors import BareTurns, create_bare, open_bare
from material import EVENTS_A_TURN, as_openai_items, encode_turns, make_turns
from report import Goal, Section, lines_of, ratio
from run import Run
from timing import Loop, interleave
from turns import ANA

EVENTS = 10_000
_ROUNDS = 15
_FLOOR = "floor: rows + orjson to dicts"


def measure(run: Run) -> Section:
    """Every contestant reads the same 10,000 events of 1,024 bytes from a file of its own."""
    directory = run.fresh("replay")
    turns = make_turns(EVENTS // EVENTS_A_TURN)
    items = as_openai_items(turns, directory / "items.json")
    bare = directory / "bare.sqlite3"
    create_bare(bare)
    rows = BareTurns(bare)
    for payloads in encode_turns(turns):
        rows.append(payloads)
    rows.close()
    with open_stores(SqliteFileEngine(directory / "engrain.sqlite3")) as stores:
        session = stores.memory.sessions.start(ANA)
        with stores.memory.sessions.lease(ANA, session.id) as writer:
            for turn in turns:
                writer.append(turn)
        replay = _replay_of(stores, session.id)
        contestants = {
            _FLOOR: run.peers.open("orjson_replay", path=str(bare), events=EVENTS),
            "rows + msgspec to dicts": Loop(lambda _: _read_bare(bare)),
            "Engrain": Loop(lambda _: replay(False)),
            "Engrain, chain verified": Loop(lambda _: replay(True)),
            "OpenAI Agents get_items": run.peers.open(
                "openai_replay", path=str(directory / "openai.sqlite3"), turns=str(items)
            ),
            "LangGraph get_tuple": run.peers.open(
                "langgraph_replay",
                path=str(directory / "langgraph.sqlite3"),
                turns=str(items),
                events=EVENTS,
            ),
        }
        taken = interleave(contestants, rounds=run.rounds(_ROUNDS), block=1)
    return Section(
        "Replay",
        f"{EVENTS:,} events of 1,024 stored bytes; Engrain yields typed events with headers.",
        lines_of(taken, _FLOOR),
        [
            Goal("replay of 10,000 events", ratio(taken, "Engrain", _FLOOR), 1.3),
            Goal("the same, verified", ratio(taken, "Engrain, chain verified", _FLOOR), 2.2),
        ],
    )


def _replay_of(stores: Stores, session_id: SessionId) -> Callable[[bool], list[StoredEvent]]:
    """A replay under a lease, whose events are all kept until it has ended."""
    lease = stores.leases.claim(ANA, session_id)

    def replay(is_verified: bool) -> list[StoredEvent]:
        found = list(stores.transcript.replay(lease, is_verified=is_verified))
        assert len(found) == EVENTS
        return found

    return replay


def _read_bare(path: Path) -> list[dict[str, object]]:
    connection = open_bare(path)
    decode = msgspec.json.decode
    rows = connection.execute("SELECT payload FROM events ORDER BY event_key")
    found = [decode(payload) for (payload,) in rows]
    connection.close()
    return found
