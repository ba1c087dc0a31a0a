"""What a benchmark found, and how it is written down: goals first, then what was measured."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import apsw

from peers.client import versions
from timing import US, median, percentile


@dataclass(frozen=True)
class Goal:
    """A promise of speed and what this run says about it.

    `bound` is the most, or with `at_least` the least, that `value` may be. A goal about latency
    counts only where the disk lets it (`timing.SLOW_SYNC_US`).
    """

    work: str
    value: float
    bound: float
    unit: str = "×"
    at_least: bool = False
    is_latency: bool = False

    @property
    def is_met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass(frozen=True)
class Line:
    """One contestant: percentiles in microseconds, and its median as a multiple of the floor's."""

    name: str
    p50_us: float
    p95_us: float
    ratio: float | None = None


@dataclass
class Section:
    """One kind of work."""

    title: str
    about: str
    lines: list[Line] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def lines_of(taken: Mapping[str, Sequence[int]], floor: str | None = None) -> list[Line]:
    """A line for every contestant, in their order; multiples of `floor`'s median when given."""
    base = median(taken[floor]) if floor else 0.0
    return [
        Line(
            name,
            percentile(spent, 0.5) / US,
            percentile(spent, 0.95) / US,
            median(spent) / base if floor else None,
        )
        for name, spent in taken.items()
    ]


def ratio(taken: Mapping[str, Sequence[int]], one: str, other: str, share: float = 0.5) -> float:
    """`one`'s percentile as a multiple of `other`'s."""
    return percentile(taken[one], share) / percentile(taken[other], share)


def describe_machine(directory: Path) -> dict[str, str]:
    """Where the numbers come from."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}, {_file_system(directory)}",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "Python": platform.python_version(),
        "SQLite": f"{apsw.sqlite_lib_version()} (APSW {apsw.apsw_version()})",
        **versions(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _file_system(directory: Path) -> str:
    if shutil.which("stat") is None:
        return "unknown file system"
    wanted = ["stat", "-f", "-c", "%T", str(directory)]
    return subprocess.run(wanted, capture_output=True, text=True, check=False).stdout.strip()


def write(
    sections: Sequence[Section],
    facts: Mapping[str, str],
    *,
    counts_latency: bool,
    into: Path,
) -> None:
    """`speed.md` for people and `speed.json` for programs, with the same contents."""
    into.mkdir(parents=True, exist_ok=True)
    (into / "speed.md").write_text(as_markdown(sections, facts, counts_latency))
    found = {
        "facts": dict(facts),
        "counts_latency": counts_latency,
        "sections": [
            asdict(section) | {"goals": [asdict(g) | {"is_met": g.is_met} for g in section.goals]}
            for section in sections
        ],
    }
    (into / "speed.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def as_markdown(sections: Sequence[Section], facts: Mapping[str, str], counts_latency: bool) -> str:
    """The whole report."""
    parts = ["# Speed", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    parts += ["| goal | wanted | measured | |", "|---|---|---|---|"]
    parts += [_goal_row(g, counts_latency) for section in sections for g in section.goals]
    for section in sections:
        parts += ["", f"## {section.title}", "", section.about, ""]
        if section.lines:
            parts += ["| | p50 µs | p95 µs | × floor |", "|---|---:|---:|---:|"]
            parts += [_line_row(line) for line in section.lines]
        parts += [f"\n{note}" for note in section.notes]
    return "\n".join(parts) + "\n"


def _goal_row(goal: Goal, counts_latency: bool) -> str:
    sign = "≥" if goal.at_least else "≤"
    if goal.is_latency and not counts_latency:
        verdict = "not judged: slow disk"
    else:
        verdict = "met" if goal.is_met else "**missed**"
    wanted, value = _number(goal.bound, goal.unit), _number(goal.value, goal.unit)
    return f"| {goal.work} | {sign} {wanted} | {value} | {verdict} |"


def _number(value: float, unit: str) -> str:
    digits = f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value < 1 else f"{value:.2f}"
    return f"{digits} {unit}".strip()


def _line_row(line: Line) -> str:
    multiple = "" if line.ratio is None else f"{line.ratio:.2f}"
    return f"| {line.name} | {line.p50_us:,.1f} | {line.p95_us:,.1f} | {multiple} |"
