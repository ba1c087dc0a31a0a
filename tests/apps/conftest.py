"""Runs real commands on real stores in a home of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engrain.apps.cli.main import main
from engrain.storage.postgres import local_server
from postgres_fixture import server_folder

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "conversations.json"
USER = "ana"


class Ran(msgspec.Struct, frozen=True):
    """What one command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on standard output."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The one object on standard error."""
        return json.loads(self.err)


Command = Callable[..., Ran]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that does not exist yet; the working directory is beside it."""
    for name in [name for name in os.environ if name.startswith("ENGRAIN_")]:
        monkeypatch.delenv(name)
    place = tmp_path / "home"
    monkeypatch.setenv("ENGRAIN_HOME", str(place))
    monkeypatch.setenv("ENGRAIN_USER", USER)
    monkeypatch.chdir(tmp_path)
    return place


@pytest.fixture
def engrain(home: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Runs a command in this process, as the console script does."""

    def run(*arguments: str | Path) -> Ran:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        sys.stdout.flush()
        sys.stderr.flush()
        said = capfd.readouterr()
        return Ran(int(code), said.out, said.err)

    yield run


@pytest.fixture
def imported(engrain: Command) -> Command:
    """The same, with the example conversations in the home."""
    assert engrain("import", EXAMPLE).code == 0
    return engrain


@pytest.fixture
def reachable(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Path]:
    """A home that the account can enter which runs PostgreSQL for root."""
    place = Path(tempfile.mkdtemp(prefix="engrain-test-home-", dir=server_folder()))
    place.chmod(0o711)
    monkeypatch.setenv("ENGRAIN_HOME", str(place))
    yield place
    local_server.stop(place / "postgres")
    shutil.rmtree(place, ignore_errors=True)


def in_a_process(*command: str | Path, **options: Any) -> Ran:
    """Runs `python …` as a process of its own."""
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, check=False, **options
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
