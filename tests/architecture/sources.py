"""The project's own files, for tests that read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "engrain"
FOLDERS = ("src", "tests", "bench", "docs")


def python_files(*folders: str) -> list[Path]:
    """Python files below folders of the project, in a stable order."""
    found = [path for name in folders or FOLDERS for path in (ROOT / name).rglob("*.py")]
    return sorted(path for path in found if not _is_hidden(path))


def text_files() -> list[Path]:
    """Every file that people read: code, SQL, pages, settings and fixtures."""
    kinds = {".py", ".sql", ".md", ".toml", ".json", ".jsonl", ".txt", ".yml"}
    inside = [path for name in (*FOLDERS, "examples", ".ci") for path in (ROOT / name).rglob("*")]
    beside = [path for path in ROOT.iterdir() if path.name in ("Makefile", "pyproject.toml")]
    files = [*beside, *ROOT.glob("*.md"), *inside]
    return sorted(
        path
        for path in files
        if path.is_file()
        and not _is_hidden(path)
        and (path.suffix in kinds or path.name in ("Makefile", "run"))
    )


def _is_hidden(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return any((part.startswith(".") and part != ".ci") or part == "__pycache__" for part in parts)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def classes(tree: ast.AST) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def place(path: Path, node: ast.AST | None = None) -> str:
    """The file below the project, with the line of the node."""
    line = f":{node.lineno}" if node is not None and hasattr(node, "lineno") else ""
    return f"{path.relative_to(ROOT)}{line}"
