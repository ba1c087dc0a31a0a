"""Agents that are killed over and over: no answer lost, no tool run twice, no effect denied.

    python -m crash.agent_torture --kills 20000 [--url URL] [--seed N]
                                   [--mutant NAME | --without-mutants]

Processes are forked from this one, which opens no database. Each takes turns with tools in a
session of its own until it kills itself at a fault point or is killed at any moment; some are
stopped instead, while another takes their session over, and woken. Effects are counted in a log
outside the database. The last line of output is one JSON object.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from crash.agent_life import ANA, LEASE_TTL_US, POINTS, Life, live
from crash.agent_logs import Logs
from crash.agent_mutants import MUTANTS
from engrain import Memory, SessionId
from engrain.contracts.errors import EngrainError, SessionBusy
from engrain.contracts.events import AssistantMessage, ToolCall, ToolResult, UserMessage

KILLS_A_SESSION = 25
SESSIONS_MIN = 12
AT_ONCE = 2
STOPPED_OF_100 = 4
"""So many are stopped and woken instead of killed; of a mutant's half, since one needs it."""
MUTANT_STOPPED_OF_100 = 50
MOMENT_S = 0.06
PATIENCE_S = 5.0
MUTANT_KILLS = 60
_POLL_S = 0.001
_LEASE_S = LEASE_TTL_US / 1_000_000


class Findings(msgspec.Struct, kw_only=True):
    """What the logs and the database say of each other; every list is empty when all is well."""

    kills: int = 0
    answers: int = 0
    effects: int = 0
    lost: list[str] = []
    rerun: list[str] = []
    denied: list[str] = []
    broken: list[str] = []

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.rerun or self.denied or self.broken)


class Torture:
    """One database, its sessions, and the processes that die in them."""

    def __init__(self, url: str, folder: Path, *, seed: int, mutant: str = "") -> None:
        self._url = url
        self._folder = folder
        self._chance = random.Random(seed)
        self._mutant = mutant
        self._stopped_of_100 = MUTANT_STOPPED_OF_100 if mutant else STOPPED_OF_100
        self._kills = 0
        self._names = iter(f"p{number}" for number in range(10**9))
        self._broken: list[str] = []

    def run(self, kills: int) -> Findings:
        """Kills so many processes, then compares what they did with what is kept."""
        count = max(SESSIONS_MIN, kills // KILLS_A_SESSION)
        sessions = [SessionId(UUID(one)) for one in in_a_child(lambda: begin(self._url, count))]
        alive: dict[int, tuple[float, SessionId]] = {}
        while self._kills < kills:
            while len(alive) < AT_ONCE:
                session_id = sessions.pop(0)
                if self._chance.randrange(100) < self._stopped_of_100:
                    self._stop_and_wake(session_id)
                    sessions.append(session_id)
                    continue
                pid, until = self._start(session_id)
                alive[pid] = (until, session_id)
            self._wait(alive, sessions)
        for pid in alive:
            self._kill(pid)
        found: dict[str, Any] = in_a_child(
            lambda: msgspec.to_builtins(compare(self._url, self._folder))
        )
        findings = msgspec.convert(found, Findings)
        findings.kills = self._kills
        findings.broken += self._broken
        return findings

    def _start(self, session_id: SessionId, **changes: Any) -> tuple[int, float]:
        """A process and until when it may live."""
        at_a_point = self._chance.random() < 0.7
        life = Life(
            url=self._url,
            folder=self._folder,
            name=next(self._names),
            session_id=session_id,
            point=self._chance.choice(POINTS) if at_a_point else "",
            nth=self._chance.randint(1, 8),
            mutant=self._mutant,
        )
        life = msgspec.structs.replace(life, **changes)
        pid = fork(lambda: live(life))
        patience = PATIENCE_S if life.point else self._chance.uniform(0, MOMENT_S)
        return pid, time.monotonic() + patience

    def _wait(self, alive: dict[int, tuple[float, SessionId]], sessions: list[SessionId]) -> None:
        """Returns when one has died, by its own hand or ours."""
        while True:
            for pid, (until, session_id) in list(alive.items()):
                if time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)
                if self._bury(pid, os.WNOHANG):
                    del alive[pid]
                    sessions.append(session_id)
                    return
            time.sleep(_POLL_S)

    def _stop_and_wake(self, session_id: SessionId) -> None:
        """One stops itself, another takes its session over, then the first goes on."""
        point = self._chance.choice(POINTS)
        sleeper, _ = self._start(session_id, point=point, nth=1, signal=signal.SIGSTOP)
        os.waitpid(sleeper, os.WUNTRACED)
        heir, _ = self._start(session_id, point="")
        time.sleep(_LEASE_S + self._chance.uniform(0, MOMENT_S))
        os.kill(sleeper, signal.SIGCONT)
        time.sleep(self._chance.uniform(0, MOMENT_S))
        for pid in (sleeper, heir):
            self._kill(pid)

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self._bury(pid, 0)

    def _bury(self, pid: int, options: int) -> bool:
        """Whether it is dead. One that ended by itself broke a promise: its words are on stderr."""
        dead, status = os.waitpid(pid, options)
        if not dead:
            return False
        if os.WIFSIGNALED(status):
            self._kills += 1
        else:
            self._broken.append(f"a process ended by itself: {os.waitstatus_to_exitcode(status)}")
        return True


def begin(url: str, count: int) -> list[str]:
    with Memory.open(url) as memory:
        return [str(memory.sessions.start(ANA).id) for _ in range(count)]


def compare(url: str, folder: Path) -> Findings:
    """Recovers every session, and looks for each answer and each effect."""
    logs = Logs(folder)
    effects = Counter(call_id for call_id, _ in logs.effects.read())
    keys = Counter(key for _, key in logs.effects.read())
    answers = logs.answers.read()
    findings = Findings(answers=len(answers), effects=sum(effects.values()))
    findings.rerun = [call_id for call_id, times in effects.items() if times > 1]
    findings.rerun += [key for key, times in keys.items() if times > 1]
    calls: set[str] = set()
    not_executed: set[str] = set()
    said: dict[tuple[str, str], int] = Counter()
    with Memory.open(url) as memory:
        for session_id in _session_ids(memory):
            try:
                history = _recovered(memory, session_id)
            except EngrainError as error:
                findings.broken.append(f"{session_id}: {error.code}")
                continue
            for event in history:
                if isinstance(event, ToolCall):
                    calls.add(event.call_id)
                elif isinstance(event, ToolResult) and event.status == "not_executed":
                    not_executed.add(event.call_id)
                elif isinstance(event, UserMessage | AssistantMessage):
                    said[str(session_id), event.text] += 1
    findings.denied = [one for one in effects if one in not_executed or one not in calls]
    for session, prompt, answer in answers:
        if (said[session, prompt], said[session, answer]) != (1, 1):
            findings.lost.append(prompt)
    return findings


def _session_ids(memory: Memory) -> list[SessionId]:
    found, cursor = [], None
    while True:
        page = memory.sessions.list(ANA, cursor=cursor, limit=100)
        found += [one.id for one in page.items]
        cursor = page.next
        if cursor is None:
            return found


def _recovered(memory: Memory, session_id: SessionId) -> list[Any]:
    """Its history, after a recovery that a second one finds nothing to add to."""
    while True:
        try:
            memory.recovery.recover(ANA, session_id, accept_unknown_effects=True)
            break
        except SessionBusy:  # the lease of one that was just killed
            time.sleep(_LEASE_S / 4)
    again = memory.recovery.recover(ANA, session_id)
    assert again.turn is None, "recovery is idempotent"
    memory.sessions.verify(ANA, session_id)
    return [stored.event for stored in memory.sessions.iter_events(ANA, session_id)]


def fork(work: Callable[[], object]) -> int:
    """A child that works, and exits without cleaning up after its parent."""
    pid = os.fork()
    if pid:
        return pid
    code = 0
    try:
        work()
    except BaseException:  # noqa: BLE001  (whatever it is, the child must not go on as its parent)
        traceback.print_exc()
        code = 3
    finally:
        sys.stderr.flush()
        os._exit(code)


def in_a_child(work: Callable[[], Any]) -> Any:
    """What `work` gives as JSON; this process opens no database itself."""
    reading, writing = os.pipe()

    def answer() -> None:
        with os.fdopen(writing, "wb") as out:
            out.write(msgspec.json.encode(work()))

    pid = fork(answer)
    os.close(writing)
    with os.fdopen(reading, "rb") as given:
        found = given.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the child failed; see above"
    return msgspec.json.decode(found)


def torture(url: str, kills: int, *, seed: int, mutant: str = "") -> Findings:
    """Runs one torture with logs of its own; without `url` in a new SQLite file."""
    with tempfile.TemporaryDirectory(prefix="engrain-torture-") as name:
        folder = Path(name)
        place = url or str(folder / "engrain.sqlite3")
        return Torture(place, folder, seed=seed, mutant=mutant).run(kills)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--url", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutant", choices=MUTANTS, default="")
    parser.add_argument("--without-mutants", action="store_true")
    given = parser.parse_args()
    findings = torture(given.url, given.kills, seed=given.seed, mutant=given.mutant)
    sys.stdout.write(msgspec.json.encode(findings).decode() + "\n")
    mutants = () if given.without_mutants or given.mutant else MUTANTS
    caught = [not torture("", MUTANT_KILLS, seed=7, mutant=one).is_clean for one in mutants]
    summary = {
        "kills": findings.kills,
        "lost": len(findings.lost),
        "rerun": len(findings.rerun),
        "denied": len(findings.denied),
        "broken": len(findings.broken),
        "mutants_caught": sum(caught),
        "mutants": len(mutants),
    }
    sys.stdout.write(msgspec.json.encode(summary).decode() + "\n")
    return 0 if findings.is_clean and all(caught) else 1


if __name__ == "__main__":
    sys.exit(main())
