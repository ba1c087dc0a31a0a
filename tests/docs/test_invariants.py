"""Each promise has a number, and a test that carries it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docs.pages import ROOT

PAGE = ROOT / "docs" / "invariants.md"
SUITES = ROOT / "src" / "engrain" / "testing" / "contracts"


def promised() -> list[str]:
    """The numbers of the page, in its order."""
    return re.findall(r"^\| (INV-\d+) \| \S", PAGE.read_text("utf-8"), re.M)


def carried() -> dict[str, list[str]]:
    """Numbers that tests carry, with the tests."""
    found: dict[str, list[str]] = {}
    for path in sorted([*(ROOT / "tests").rglob("test_*.py"), *SUITES.glob("*.py")]):
        for name, number in _marks(path):
            found.setdefault(number, []).append(f"{path.relative_to(ROOT)} {name}")
    return found


def _marks(path: Path) -> Iterator[tuple[str, str]]:
    """Tests of the file with their numbers; a mark on a class or a file counts for its tests."""
    tree = ast.parse(path.read_text("utf-8"))
    whole = [number for node in tree.body if _is_pytestmark(node) for number in _numbers(node)]
    yield from _marks_below(tree, whole)


def _marks_below(tree: ast.Module | ast.ClassDef, outer: list[str]) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            own = [number for mark in node.decorator_list for number in _numbers(mark)]
            yield from _marks_below(node, outer + own)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            own = [number for mark in node.decorator_list for number in _numbers(mark)]
            yield from ((node.name, number) for number in outer + own)


def _is_pytestmark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
    )


def _numbers(node: ast.AST) -> list[str]:
    """Arguments of every `….invariant(…)` below the node."""
    return [
        str(argument.value)
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "invariant"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    ]


def test_numbers_are_unique_and_in_order() -> None:
    assert len(promised()) > 20
    assert sorted(set(promised())) == promised()


def test_every_promise_has_a_test() -> None:
    assert sorted(set(promised()) - set(carried())) == []


def test_no_test_carries_a_number_that_nobody_promised() -> None:
    unknown = {number: tests for number, tests in carried().items() if number not in promised()}
    assert unknown == {}


def test_numbers_that_pages_name_are_promised() -> None:
    named = {
        number
        for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
        for number in re.findall(r"INV-\d+", path.read_text("utf-8"))
    }
    assert named <= set(promised())
