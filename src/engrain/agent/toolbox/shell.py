"""One command in the workspace, bounded in time and output, and gone with all its children."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from engrain.agent.toolbox.arguments import Recipe
from engrain.agent.tools import ToolContext
from engrain.contracts import limits
from engrain.system.confined import ConfinedFolder

_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TERM", "TMPDIR", "USER", "SHELL")
"""What a command learns of this process: no key, no token, nothing of ours."""
_END_BYTES: Final = 128 * limits.KIB
_CHUNK: Final = 64 * limits.KIB
_POLL_S: Final = 0.1


class Shell(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `shell`."""

    command: Annotated[str, Meta(description="What /bin/sh runs.", min_length=1)]
    timeout_s: Annotated[int, Meta(description="Seconds until it is killed.", ge=1, le=600)] = 120


class _Ends:
    """The beginning and the end of a long output; what is between is counted."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        room = _END_BYTES - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room < len(chunk) else b""
        del self._tail[: max(len(self._tail) - _END_BYTES, 0)]

    def text(self) -> str:
        left_out = self._size - len(self._head) - len(self._tail)
        middle = f"\n[{left_out:,} bytes left out]\n".encode() if left_out else b""
        return bytes(self._head + middle + self._tail).decode(errors="replace")


def shell(folder: ConfinedFolder, given: Shell, context: ToolContext) -> str:
    """Its output, standard error included, and how it ended."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", given.command],
        cwd=folder.root,
        env={name: os.environ[name] for name in _KEPT if name in os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    ends = _Ends()
    try:
        ending = _follow(process, ends, time.monotonic() + given.timeout_s, context)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    ending = ending or f"exit status {process.returncode}"
    return f"{ends.text().rstrip()}\n[{ending}]".lstrip()


def _follow(
    process: subprocess.Popen[bytes], ends: _Ends, until_s: float, context: ToolContext
) -> str:
    """Reads until the command has ended; why it is to be killed, or nothing.

    A child that it leaves behind may hold the output open: it is not waited for.
    """
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            is_ended = process.poll() is not None
            readable = selector.select(0 if is_ended else _POLL_S)
            chunk = os.read(process.stdout.fileno(), _CHUNK) if readable else b""
            ends.add(chunk)
            if is_ended and not chunk:
                return ""
            if time.monotonic() > until_s:
                return "killed: it took too long"
            if context.cancelled.is_set():
                return "killed: the turn was cancelled"


SHELL_TOOL: Final = Recipe(
    name="shell",
    description="Run a command in the workspace.",
    arguments=Shell,
    run=shell,
    needs_approval=True,
)
