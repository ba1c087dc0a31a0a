"""What the documents say of the command line is true."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from apps.conftest import ROOT
from engrain.apps.cli.main import app

GUIDE = ROOT / "docs" / "guides" / "first-steps.md"
PAGE = ROOT / "docs" / "reference" / "cli.md"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.M)


def commands(page: Path) -> list[str]:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


def test_first_steps_can_be_taken(reachable: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    script = "\n".join(f"{command} || exit 99 # {command}" for command in commands(GUIDE))
    variables = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(tmp_path / "cache"),  # twenty commands start twice as fast
    }
    done = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reports = re.findall(r"^sessions +(.*)$", done.stdout, re.M)
    assert reports == ["4 new, 0 known", "0 new, 4 known", "4 new, 0 known"]
    assert done.stdout.count("<memory nonce=") == 3
    assert "forgot 1\n" in done.stdout
    assert "no sessions\n" in done.stderr


@pytest.mark.parametrize("program", blocks(GUIDE, "python"), ids=["threads", "tasks"])
def test_python_of_first_steps_runs(tmp_path: Path, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "I moved to Porto in March." in done.stdout


def test_reference_page_is_current() -> None:
    check = [sys.executable, "docs/generate.py", "--check"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "docs/reference/cli.md" not in done.stdout + done.stderr


def test_every_command_has_an_example_that_parses() -> None:
    page = re.sub(r"\\\n *", "", PAGE.read_text("utf-8"))
    examples = re.findall(r"^ +\$ (engrain [^>\n]*)", page, re.M)
    assert len(examples) > 25
    for example in examples:
        words = shlex.split(example.removeprefix("engrain "))
        app.parse_args(words, exit_on_error=False, print_error=False)


def test_help_is_not_broken_in_mid_line_at_eighty_columns() -> None:
    texts = dict(_help_texts(app))
    assert len(texts) > 20
    too_long = [line for text in texts.values() for line in text.splitlines() if len(line) > 79]
    assert too_long == []


def _help_texts(within: App) -> Iterator[tuple[str, str]]:
    """Every command's words as they are shown; parameters are laid out in a table."""
    for name in within:
        if name.startswith("-"):
            continue
        command = within[name]
        yield from ((f"{name} {inner}", text) for inner, text in _help_texts(command))
        text = inspect.getdoc(command.default_command) or command.help
        yield name, text.partition("\nParameters\n")[0]
