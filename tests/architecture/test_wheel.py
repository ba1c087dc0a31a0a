"""What is shipped: a wheel with every query and migration, typed, with its command."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import engrain
from architecture.sources import PACKAGE, ROOT

UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as `pip install .` builds it; `make setup` has brought what that needs."""
    folder = tmp_path_factory.mktemp("wheel")
    for network in (["--offline"], []):
        done = subprocess.run(
            [UV, "build", "--wheel", *network, "--out-dir", folder, ROOT],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_every_file_of_the_package_is_shipped_and_no_other(wheel: Path) -> None:
    shipped = {name for name in members(wheel) if ".dist-info/" not in name}
    own = {
        f"engrain/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == own
    for needed in (
        "engrain/py.typed",
        "engrain/storage/sqlite/sql/transcript.sql",
        "engrain/storage/postgres/sql/transcript.sql",
        "engrain/storage/sqlite/migrations/0001_the_walls.sql",
        "engrain/storage/postgres/migrations/0001_the_walls.sql",
        "engrain/testing/contracts/sessions.py",
    ):
        assert needed in shipped


def test_the_wheel_brings_the_command_its_licence_and_its_description(wheel: Path) -> None:
    told = {
        name.split(".dist-info/")[1]: data
        for name, data in members(wheel).items()
        if ".dist-info/" in name
    }
    scripts = configparser.ConfigParser()
    scripts.read_string(told["entry_points.txt"].decode())
    assert dict(scripts["console_scripts"]) == {"engrain": "engrain.apps.cli.main:run"}
    metadata = Parser().parsestr(told["METADATA"].decode())
    assert (metadata["Name"], metadata["Version"]) == ("engrain", engrain.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "licenses/LICENSE" in told
    assert "# Engrain" in metadata.get_payload()
    assert ">=3.11" in metadata["Requires-Python"]


def test_the_wheel_alone_opens_a_memory(wheel: Path, tmp_path: Path) -> None:
    program = """
import sys, engrain
assert engrain.__file__.startswith(sys.argv[1]), engrain.__file__
ana = engrain.Scope(org="acme", user="ana")
with engrain.Memory.open("engrain.sqlite3") as memory:
    session = memory.sessions.start(ana, title="trip")
    with memory.sessions.lease(ana, session.id) as writer:
        writer.append(engrain.Turn.said("I moved to Porto"))
    memory.enrichment.extract(ana, session.id)
    assert "Porto" in memory.recall(ana, "Porto", budget_tokens=200).text
"""
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, unpacked],
        cwd=work,
        env=os.environ | {"PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
