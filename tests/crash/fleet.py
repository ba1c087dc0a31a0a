"""Processes that write to one database and are killed, one after the other."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import msgspec

from crash.promises import Told
from crash.writing import Job
from engrain.testing.faults import killing_command

KILL = "kill"
_TESTS = Path(__file__).parents[1]
_WAIT_S = 60.0


class Victim:
    """One writing process and what of its lines has not been read to their end."""

    def __init__(self, job: Job, dies_at: tuple[str, int] | None = None) -> None:
        self.name = job.name
        self.dies_at = KILL if dies_at is None else dies_at[0]
        self._rest = b""
        encoded = msgspec.json.encode(job).decode()
        module = ("crash.writing", encoded)
        command = (
            [sys.executable, "-m", *module]
            if dies_at is None
            else killing_command(*dies_at, *module)
        )
        self.process = subprocess.Popen(
            command, cwd=_TESTS, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    @property
    def output(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def wake(self) -> None:
        """Lets a process go on that stopped itself."""
        self.process.send_signal(signal.SIGCONT)

    def read_lines(self) -> list[list[Any]] | None:
        """The whole lines that have come since; None when the process is dead and all is read."""
        found = os.read(self.output.fileno(), 65_536)
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [msgspec.json.decode(line) for line in lines] if found else None

    def bury(self) -> None:
        """It must have been killed, and not have ended by an error of its own."""
        _, complaint = self.process.communicate(timeout=_WAIT_S)
        assert self.process.returncode == -signal.SIGKILL, complaint.decode()


class Fleet:
    """The processes that live, and what all of them told. Use it in a `with` block."""

    def __init__(self, url: str, sessions: list[UUID]) -> None:
        self.told = Told()
        self.deaths: list[str] = []
        """How each process died: at a fault point, or `kill`."""
        self._url = url
        self._sessions = sessions
        self.alive: list[Victim] = []
        self._dead: set[str] = set()
        self._selector = selectors.DefaultSelector()

    def start(self, *, dies_at: tuple[str, int] | None = None, **more: Any) -> Victim:
        """A process that first repeats what the dead left unanswered."""
        name = f"p{len(self.alive) + len(self._dead) + 1}"
        repeats = self.told.hand_over(self._dead, name)
        job = Job(url=self._url, name=name, sessions=self._sessions, repeats=repeats, **more)
        victim = Victim(job, dies_at)
        self.alive.append(victim)
        self._selector.register(victim.output, selectors.EVENT_READ, victim)
        return victim

    def read_until(self, is_so: Callable[[Victim, list[Any]], bool]) -> Victim | None:
        """The process that told a line for which `is_so`; None when one has died instead."""
        while True:
            ready = self._selector.select(_WAIT_S)
            assert ready, "no process says anything"
            for key, _ in ready:
                victim: Victim = key.data
                lines = victim.read_lines()
                if lines is None:
                    self._bury(victim)
                    return None
                for line in lines:
                    self.told.note(victim.name, line)
                if sum(is_so(victim, line) for line in lines):  # asked about every line
                    return victim

    def read_until_death(self) -> None:
        """Reads on until one process has died."""
        while self.read_until(lambda *_: False) is not None:
            pass

    def kill(self, victim: Victim) -> None:
        """As by `kill -9`, and hears what it had told before."""
        victim.dies_at = KILL
        victim.process.kill()
        while victim in self.alive:
            self.read_until_death()

    def _bury(self, victim: Victim) -> None:
        self._selector.unregister(victim.output)
        self.alive.remove(victim)
        self._dead.add(victim.name)
        victim.bury()
        self.deaths.append(victim.dies_at)

    def kill_all(self) -> None:
        for victim in [*self.alive]:
            self.kill(victim)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for victim in self.alive:
            victim.process.kill()
            victim.process.communicate()
        self._selector.close()
