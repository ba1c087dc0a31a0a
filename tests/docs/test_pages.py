"""The pages are current, their links lead somewhere, and the code on them runs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import ROOT, anchors, blocks, pages, without_code

LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
OUTSIDE = ("http://", "https://", "mailto:")


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_the_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("page", pages(), ids=relative)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(without_code(page.read_text("utf-8"))):
        if target.startswith(OUTSIDE):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", pages(), ids=relative)
def test_every_module_and_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    modules = set(re.findall(r"`(engrain(?:\.[a-z_]+)+)[`(]", text))
    files = set(re.findall(r"`((?:docs|src|tests|bench|examples)/[\w./-]+\.\w+)`", text))
    assert {module for module in modules if not is_reachable(module)} == set()
    assert {name for name in files if not (ROOT / name).exists()} == set()


def is_reachable(dotted: str) -> bool:
    """True for a module, and for a name in one."""
    try:
        if importlib.util.find_spec(dotted):
            return True
    except ModuleNotFoundError:
        pass
    module, _, name = dotted.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        return False


PROGRAMS = [(page, at) for page in pages() for at, _ in enumerate(blocks(page, "python"))]


@pytest.mark.parametrize(
    ("page", "at"), PROGRAMS, ids=[f"{relative(page)} {at}" for page, at in PROGRAMS]
)
def test_python_on_a_page_runs(page: Path, at: int, tmp_path: Path) -> None:
    variables = {"ENGRAIN_HOME": str(tmp_path / "home"), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", blocks(page, "python")[at]],
        cwd=tmp_path,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_readme_shows_twenty_lines_that_recall_what_was_said(tmp_path: Path) -> None:
    (program,) = blocks(ROOT / "README.md", "python")
    assert len(program.splitlines()) <= 25
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "0 events so far" in done.stdout
    assert "<memory nonce=" in done.stdout
    assert "I moved to Porto in March." in done.stdout


def test_every_decision_is_listed_under_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text("utf-8")
    numbered = sorted(folder.glob("[0-9]*.md"))
    assert [page.name[:4] for page in numbered] == [f"{n:04}" for n in range(1, len(numbered) + 1)]
    for page in numbered:
        number, title = re.findall(r"^# (\d+)\. (.+)$", page.read_text("utf-8"), re.M)[0]
        assert int(number) == int(page.name[:4])
        assert f"[{title}]({page.name})" in listed


def test_the_glossary_defines_each_word_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", text, re.M)
    defined = [word for word, meaning in rows if word != "word" and meaning.strip("- ")]
    assert len(defined) > 15
    assert sorted(set(defined)) == sorted(defined)
