"""The project's pages, for tests that read them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pages() -> list[Path]:
    """Every page that people read."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *_results()])


def _results() -> list[Path]:
    return list((ROOT / "bench").rglob("*.md"))


def without_code(text: str) -> str:
    """The page without fenced blocks and code in lines, which hold no links."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.S | re.M)
    return [str(block) for block in found]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+?)\s*$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
