"""How the code reads, as far as a test can see it: names, sizes, docstrings, nothing unfinished."""

from __future__ import annotations

import ast
import re
import statistics

from architecture.sources import (
    PACKAGE,
    classes,
    functions,
    place,
    python_files,
    text_files,
    tree_of,
)

LINES_MAX = 400
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN = 8
PUBLIC_METHODS_MAX = 12
POSITIONAL_MAX = 3
VAGUE_PARTS = ("Manager", "Helper", "Base", "Mixin")
VAGUE_MODULES = {"utils", "util", "core", "common", "helpers", "helper", "misc", "base"}
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error")
MACHINE_PATH = re.compile(r"(?<![\w.\-/])/(?:root|Users|work|home/(?!ana\b)\w+)/\w+")
# CPython before 3.11.4 compiles these to matches that are wrong; 3.11 is the oldest we promise.
POSSESSIVE = re.compile(r"(?<!\\)(?:[*?}]|(?<![\\+])\+)\+|\(\?>")
PUBLIC_LAYERS = ("contracts", "services", "memory.py", "config.py")


def test_no_file_holds_two_ideas() -> None:
    long = {place(path): _lines(path.read_text("utf-8")) for path in python_files("src")}
    assert {name: count for name, count in long.items() if count > LINES_MAX} == {}


def _lines(text: str) -> int:
    return len(text.splitlines())


def test_functions_are_short_and_their_median_is_a_few_lines() -> None:
    sizes = {
        f"{place(path, function)} {function.name}": _size(function)
        for path in python_files("src")
        for function in functions(tree_of(path))
    }
    assert {name: size for name, size in sizes.items() if size > FUNCTION_LINES_MAX} == {}
    assert statistics.median(sizes.values()) <= FUNCTION_LINES_MEDIAN


def _size(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_a_class_is_not_a_house() -> None:
    full = [
        f"{place(path, found)} {found.name}"
        for path in python_files("src")
        for found in classes(tree_of(path))
        if sum(not method.name.startswith("_") for method in _methods(found)) > PUBLIC_METHODS_MAX
    ]
    assert full == []


def _methods(found: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in found.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_what_callers_reach_has_at_most_three_positional_parameters() -> None:
    wide = [
        f"{place(path, function)} {function.name}"
        for path in python_files("src")
        if path.relative_to(PACKAGE).parts[0] in PUBLIC_LAYERS
        for function in functions(tree_of(path))
        if not function.name.startswith("_") and _positional(function) > POSITIONAL_MAX
    ]
    assert wide == []


def _positional(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    return len([name for name in names if name not in ("self", "cls")])


def test_names_say_what_a_thing_is() -> None:
    vague = [place(path) for path in python_files("src") if path.stem in VAGUE_MODULES]
    for path in python_files("src"):
        for found in classes(tree_of(path)):
            if any(re.search(rf"(?<![a-z]){part}(?![a-z])", found.name) for part in VAGUE_PARTS):
                vague.append(f"{place(path, found)} {found.name}")
    assert vague == []


def test_every_module_and_public_class_says_what_it_is_for() -> None:
    silent: list[str] = []
    for path in python_files("src"):
        tree = tree_of(path)
        if tree.body and not ast.get_docstring(tree):
            silent.append(place(path))
        silent += [
            f"{place(path, node)} {node.name}"
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            and not node.name.startswith(("_", "Test"))
            and not ast.get_docstring(node)
        ]
    assert silent == []


def test_nothing_is_left_unfinished() -> None:
    left = [
        f"{place(path)}: {word}"
        for path in text_files()
        for word in UNFINISHED
        if word in path.read_text("utf-8")
    ]
    assert left == []


def test_no_path_of_anybodys_machine_is_in_the_project() -> None:
    found = [
        f"{place(path)}: {match.group()}"
        for path in text_files()
        for match in MACHINE_PATH.finditer(path.read_text("utf-8"))
    ]
    assert found == []


def test_nothing_branches_on_a_dialect() -> None:
    branches = re.compile(
        r"\b(?:if|elif|match)\b[^\n]*\b(?:dialect|engine_name|is_sqlite|is_postgres)\b"
    )
    found = [
        place(path) for path in python_files("src") if branches.search(path.read_text("utf-8"))
    ]
    assert found == []


def test_no_pattern_is_possessive_or_atomic() -> None:
    found = [
        f"{place(path, node)} {node.value!r}"
        for path in python_files("src")
        for node in _strings(tree_of(path))
        if POSSESSIVE.search(node.value if isinstance(node.value, str) else str(node.value))
    ]
    assert found == []


def _strings(tree: ast.AST) -> list[ast.Constant]:
    """Every string and bytes constant that is no docstring."""
    nodes = list(ast.walk(tree))
    documented = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = [node for node in nodes if isinstance(node, ast.Constant)]
    return [
        node
        for node in constants
        if isinstance(node.value, str | bytes) and id(node) not in documented
    ]


def test_the_possessive_and_the_atomic_are_known_when_seen() -> None:
    for pattern in (r"a*+", r"a++", r"[ab]?+", r"a{2,}+", r"(?>a)"):
        assert POSSESSIVE.search(pattern), pattern
    for pattern in (r"a+", r"\+\+", r"(?:\+\+|#)?", "a+b", r"[+]+"):
        assert not POSSESSIVE.search(pattern), pattern
