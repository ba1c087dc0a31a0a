"""Where things stand: one noun one file name, arrows point down, the checks are run."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from architecture.sources import PACKAGE, ROOT, place, python_files, tree_of

VALUE_NOUNS = {"scopes": "scope", "workspaces": "workspace"}
"""Nouns whose contract is one value rather than a store."""
INSIDE_OTHERS = {"tombstones"}
"""Rows that other stores write and no caller asks for."""
WITHOUT_ROWS = {"appending", "forks", "history", "pages"}
"""Stores that read and write rows of other nouns."""


def names(folder: Path, kind: str) -> set[str]:
    return {path.stem for path in folder.glob(f"*.{kind}") if path.stem != "__init__"}


def test_both_engines_have_sql_of_the_same_nouns() -> None:
    sqlite, postgres = (PACKAGE / "storage" / engine / "sql" for engine in ("sqlite", "postgres"))
    assert names(sqlite, "sql") == names(postgres, "sql")


def test_a_noun_has_one_name_in_every_layer() -> None:
    nouns = names(PACKAGE / "storage" / "sqlite" / "sql", "sql")
    stores = names(PACKAGE / "storage" / "stores", "py")
    contracts = names(PACKAGE / "contracts", "py")
    assert nouns - INSIDE_OTHERS == stores - WITHOUT_ROWS
    assert {VALUE_NOUNS.get(noun, noun) for noun in nouns - INSIDE_OTHERS} <= contracts


def test_a_contract_suite_is_named_after_its_noun() -> None:
    suites = names(PACKAGE / "testing" / "contracts", "py")
    tested = {
        path.stem.removeprefix("test_") for path in (ROOT / "tests" / "contracts").glob("test_*")
    }
    assert tested <= suites


def test_both_engines_have_the_same_numbered_migrations() -> None:
    numbers = [
        sorted(
            path.name[:4] for path in (PACKAGE / "storage" / engine / "migrations").glob("*.sql")
        )
        for engine in ("sqlite", "postgres")
    ]
    assert numbers[0] == numbers[1] == [f"{n:04}" for n in range(1, len(numbers[0]) + 1)]


LOWER = {
    "contracts": set(),
    "rules": {"contracts"},
    "system": {"contracts"},
    "formats": {"contracts", "rules"},
    "services": {"contracts", "rules", "system"},
    "storage": {"contracts", "rules", "system"},
}


def test_arrows_point_down_only() -> None:
    wrong = [
        f"{place(path, node)} {module}"
        for layer, below in LOWER.items()
        for path in python_files(f"src/engrain/{layer}")
        for node, module in _imports(path)
        if module.split(".")[1] not in {*below, layer}
    ]
    assert wrong == []


def _imports(path: Path) -> list[tuple[ast.AST, str]]:
    """Modules of ours that the file imports, lazily too."""
    found: list[tuple[ast.AST, str]] = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append((node, f"{node.module}."))
        elif isinstance(node, ast.Import):
            found += [(node, f"{alias.name}.") for alias in node.names]
    return [(node, module) for node, module in found if module.startswith("engrain.")]


def test_no_sql_stands_in_python_of_the_stores() -> None:
    statement = re.compile(r"\b(?:SELECT .+ FROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM)\b")
    wrong = [
        place(path, node)
        for path in python_files("src/engrain/storage/stores", "src/engrain/services")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and statement.search(node.value)
    ]
    assert wrong == []


def test_make_check_runs_every_check_and_make_test_runs_it_first() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", makefile, re.M)
    assert check is not None
    for tool in ("ruff check", "ruff format --check", "mypy", "lint-imports"):
        assert f"/{tool}" in check[1].replace("$(BIN)", ""), tool
    assert re.search(r"^test: check\b", makefile, re.M)
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8")
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_types_are_checked_strictly_and_shipped() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert settings["tool"]["mypy"]["strict"] is True
    assert (PACKAGE / "py.typed").exists()
    assert len(settings["tool"]["importlinter"]["contracts"]) >= 6
