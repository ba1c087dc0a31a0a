"""`make bench`: how fast Engrain is, as ratios against floors and peers, from one run.

    python bench/speed.py [--only turns,replay] [--quick] [--full] [--check]
                           [--into DIR] [--work DIR]

Prints the report; `--into` also writes `speed.md` and `speed.json`. With `--check` it ends with 1
when a goal was missed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import shlex
import shutil
import sys
import time
from pathlib import Path

import report
from peers.client import Peers
from run import Run
from timing import SLOW_SYNC_US, US, SyncProbe, median

REPOSITORY = Path(__file__).resolve().parent.parent
SECTIONS = ("turns", "growth", "writers", "replay", "indexing", "search", "postgres_turns")
_SYNCS = 200


def main() -> int:
    """Measures what was asked for and writes it down."""
    wanted = _arguments()
    only = wanted.only.split(",") if wanted.only else SECTIONS
    directory = wanted.work / "speed"
    shutil.rmtree(directory, ignore_errors=True)
    wanted.work.mkdir(parents=True, exist_ok=True)  # open to the account of PostgreSQL
    directory.mkdir(mode=0o700)
    facts = _facts(directory)
    syncs: list[float] = []
    sections = []
    with Peers() as peers:
        share = 0.1 if wanted.quick else 1.0
        run = Run(wanted.work, peers, share, is_full=wanted.full)
        for name in only:
            print(f"{name} …", file=sys.stderr)
            began = time.monotonic()
            syncs += _sync_times(directory)
            section: report.Section = importlib.import_module(name).measure(run)
            sections.append(section)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    facts["bare fdatasync"] = f"{median(syncs):.0f} µs at the median"
    counts_latency = median(syncs) <= SLOW_SYNC_US
    shutil.rmtree(directory, ignore_errors=True)
    print(report.as_markdown(sections, facts, counts_latency))
    if wanted.into:
        report.write(sections, facts, counts_latency=counts_latency, into=wanted.into)
    missed = [
        goal
        for section in sections
        for goal in section.goals
        if not goal.is_met and (counts_latency or not goal.is_latency)
    ]
    return 1 if missed and wanted.check else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure speed against floors and peers.")
    parser.add_argument("--only", help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds, for trying")
    parser.add_argument("--full", action="store_true", help="search over 1,000,000 episodes")
    parser.add_argument("--check", action="store_true", help="end with 1 when a goal was missed")
    parser.add_argument("--into", type=Path, help="directory for speed.md and speed.json")
    parser.add_argument(
        "--work", type=Path, default=REPOSITORY / ".bench", help="directory on the disk to measure"
    )
    return parser.parse_args()


def _facts(directory: Path) -> dict[str, str]:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    command = shlex.join(["python", "bench/speed.py", *sys.argv[1:]])
    return {"date": today, "command": command, **report.describe_machine(directory)}


def _sync_times(directory: Path) -> list[float]:
    return [spent / US for spent in SyncProbe(directory).block(_SYNCS)]


if __name__ == "__main__":
    sys.exit(main())
