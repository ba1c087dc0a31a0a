"""The peers' environment, made when it is missing, and the process that runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE.parents[1] / ".venv-peers"
REQUIREMENTS = HERE / "requirements.txt"
_STAMP = ENVIRONMENT / ".ready"


def prepare_environment() -> Path:
    """The peers' interpreter; installs their packages once, and again when their list changes."""
    python = ENVIRONMENT / "bin" / "python"
    wanted = sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    if _STAMP.exists() and _STAMP.read_text() == wanted:
        return python
    print("installing the peers' packages …", file=sys.stderr)
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run(
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(ENVIRONMENT)], check=True
    )
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(REQUIREMENTS)],
        check=True,
    )
    _STAMP.write_text(wanted)
    return python


class Peers:
    """The process that runs them, started when the first contestant is opened."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def open(self, name: str, **arguments: object) -> PeerContestant:
        """A contestant of `peers/*_peer.py`."""
        opened = self._ask({"open": name, "arguments": arguments})["opened"]
        return PeerContestant(self, int(opened))

    def block(self, number: int, count: int) -> list[int]:
        taken: list[int] = self._ask({"block": number, "count": count})["ns"]
        return taken

    def ask(self, number: int, about: str) -> Any:
        return self._ask({"ask": number, "about": about})["answer"]

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline() or '{"failed": "it ended"}')
        if "failed" in answer:
            raise RuntimeError(f"a peer failed: {answer['failed']}")
        return answer

    def close(self) -> None:
        """Ends the process and everything that it opened."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def __enter__(self) -> Peers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class PeerContestant:
    """One opened contestant; implements `timing.Contestant`."""

    def __init__(self, peers: Peers, number: int) -> None:
        self._peers = peers
        self._number = number

    def block(self, count: int) -> list[int]:
        return self._peers.block(self._number, count)

    def ask(self, about: str) -> Any:
        """The answer of the contestant's method of that name."""
        return self._peers.ask(self._number, about)


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(prepare_environment()), str(HERE / "server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def versions() -> dict[str, str]:
    """The peers' packages with their versions."""
    lines = REQUIREMENTS.read_text().split()
    return dict(line.split("==", 1) for line in lines)
