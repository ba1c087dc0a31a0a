"""A disk that fills in the middle of an agent's turns: a small one, mounted for the test alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

TESTS = Path(__file__).parents[1]
MOUNTED = 'mount -t tmpfs -o size=6m,mode=0700 none "$1" && exec "$2" -m crash.full_disk "$1"'
CAN_MOUNT = ["unshare", "--map-root-user", "--mount", "sh", "-c"]


def may_mount(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    trial = [*CAN_MOUNT, 'mount -t tmpfs none "$1"', "sh", str(folder)]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0


@pytest.mark.invariant("INV-13")
def test_nothing_acknowledged_is_lost_and_the_session_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o700)
    if not may_mount(folder):
        pytest.skip("missing: unshare with the right to mount a tmpfs")
    done = subprocess.run(
        [*CAN_MOUNT, MOUNTED, "sh", str(folder), sys.executable],
        cwd=TESTS,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    told = msgspec.json.decode(done.stdout)
    assert told["error"] in ("storage_full", "uncertain"), "refused before COMMIT, or in it"
    assert told["done"], "some turns fit"
    assert [one for one in told["done"] if one not in told["said"]] == []
    assert (told["said"][-1], told["after"] != "") == ("after", True)
    assert told["results"].count("completed") <= told["runs"]
    assert len(told["results"]) - told["results"].count("not_executed") == told["runs"]
