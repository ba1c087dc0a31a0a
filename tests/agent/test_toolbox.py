"""The toolbox: what each tool gives, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from engrain.agent.toolbox import built_in_tools
from engrain.agent.tools import Tool, ToolContext, ToolFailure


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    (made / "src" / "deep").mkdir(parents=True)
    (made / "src" / "a.py").write_text("one\ntwo\nthree\n")
    (made / "src" / "deep" / "b.py").write_text("Two\n")
    (made / "notes.md").write_text("two\n")
    return made


@pytest.fixture
def tools(root: Path) -> dict[str, Tool]:
    return {tool.name: tool for tool in built_in_tools(root)}


def use(tools: dict[str, Tool], name: str, **arguments: Any) -> str:
    answer = tools[name].run(ToolContext(call_id="1", idempotency_key="k"), arguments)
    assert isinstance(answer, str)
    return answer


def test_writing_and_commands_need_a_person_and_reading_does_not(tools: dict[str, Tool]) -> None:
    asking = {name for name, tool in tools.items() if tool.needs_approval}
    assert asking == {"write_file", "edit_file", "shell"}
    assert set(tools) - asking == {"read_file", "list_directory", "find_files", "grep"}


def test_every_schema_is_one_object_whose_fields_are_described(tools: dict[str, Tool]) -> None:
    for tool in tools.values():
        assert tool.schema["type"] == "object"
        assert all(field["description"] for field in tool.schema["properties"].values())
        assert "$ref" not in str(tool.schema)


def test_lines_are_read_and_the_rest_is_said(tools: dict[str, Tool]) -> None:
    assert use(tools, "read_file", path="src/a.py") == "one\ntwo\nthree\n"
    shown = use(tools, "read_file", path="src/a.py", first_line=2, line_count=1)
    assert shown == "two\n\n[1 more lines; go on with first_line 3]"
    with pytest.raises(ToolFailure, match="3 lines"):
        use(tools, "read_file", path="src/a.py", first_line=9)


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"a\0b", "binary"), (b"\xff\xfe", "UTF-8"), (b"x" * 20_000_000, "larger than")],
)
def test_what_is_no_text_is_said_so(
    tools: dict[str, Tool], root: Path, content: bytes, why: str
) -> None:
    (root / "odd").write_bytes(content)
    with pytest.raises(ToolFailure, match=why):
        use(tools, "read_file", path="odd")


def test_a_long_file_is_cut_at_a_line(tools: dict[str, Tool], root: Path) -> None:
    (root / "long").write_text("x" * 99 + "\n" * 1 + "y" * 99 + "\n")
    (root / "long").write_text(("x" * 999 + "\n") * 2_000)
    shown = use(tools, "read_file", path="long")
    assert len(shown) < 300_000
    assert shown.endswith("go on with first_line 263]")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {}),
        ("read_file", {"path": 7}),
        ("read_file", {"path": "a", "more": 1}),
        ("shell", {"command": "true", "timeout_s": 10_000}),
        ("grep", {"text": ""}),
    ],
)
def test_wrong_arguments_are_said_so(
    tools: dict[str, Tool], name: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ToolFailure, match="Wrong arguments"):
        use(tools, name, **arguments)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "missing", "src"])
def test_a_path_that_cannot_be_read_fails_in_words(tools: dict[str, Tool], path: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        use(tools, "read_file", path=path)
    assert str(failed.value)


def test_files_are_found_by_name_and_lines_by_text(tools: dict[str, Tool]) -> None:
    assert use(tools, "find_files", pattern="**/*.py") == "src/a.py\nsrc/deep/b.py"
    assert use(tools, "find_files", pattern="*.md") == "notes.md"
    assert use(tools, "grep", text="two") == "notes.md:1: two\nsrc/a.py:2: two"
    found = use(tools, "grep", text="two", pattern="**/*.py", ignore_case=True)
    assert found == "src/a.py:2: two\nsrc/deep/b.py:1: Two"
    assert use(tools, "grep", text="(t+)+$") == "[nothing found]"
    assert use(tools, "list_directory", path="src") == "a.py\ndeep/"


def test_a_pattern_that_could_take_long_is_refused(tools: dict[str, Tool]) -> None:
    with pytest.raises(ToolFailure, match="stars"):
        use(tools, "find_files", pattern="*a*a*a*a*a*a*a*a")
    assert use(tools, "find_files", pattern="**/**/**/**/**/**/**/**/*.md") == "notes.md"


def test_an_edit_wants_to_know_which_text_is_meant(tools: dict[str, Tool], root: Path) -> None:
    use(tools, "edit_file", path="src/a.py", old="two", new="2")
    assert (root / "src/a.py").read_text() == "one\n2\nthree\n"
    use(tools, "write_file", path="twice", content="a a")
    with pytest.raises(ToolFailure, match="2 times"):
        use(tools, "edit_file", path="twice", old="a", new="b")
    use(tools, "edit_file", path="twice", old="a", new="b", replace_all=True)
    assert (root / "twice").read_text() == "b b"
    with pytest.raises(ToolFailure, match="not in the file"):
        use(tools, "edit_file", path="twice", old="z", new="b")


# The shell


def test_a_command_runs_in_the_workspace_without_keys(
    tools: dict[str, Tool], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-secret")
    monkeypatch.setenv("ENGRAIN_DB", "postgresql://secret")
    shown = use(tools, "shell", command="pwd; env; cat; echo oops >&2; exit 3")
    assert shown.startswith(f"{root}\n")
    assert shown.endswith("oops\n[exit status 3]")
    assert "secret" not in shown


def test_a_slow_command_is_killed_with_its_children(tools: dict[str, Tool], root: Path) -> None:
    began = time.monotonic()
    shown = use(tools, "shell", command="(sleep 5; touch late) & sleep 60", timeout_s=1)
    assert shown == "[killed: it took too long]"
    assert time.monotonic() - began < 5
    assert not (root / "late").exists()


def test_a_child_that_holds_the_output_is_not_waited_for(tools: dict[str, Tool]) -> None:
    began = time.monotonic()
    assert use(tools, "shell", command="sleep 60 & echo done") == "done\n[exit status 0]"
    assert time.monotonic() - began < 5


def test_a_gigabyte_of_output_is_cut_while_it_is_read(tools: dict[str, Tool]) -> None:
    shown = use(tools, "shell", command="yes | head -c 1000000000; echo end")
    assert len(shown) < 300_000
    assert "bytes left out]" in shown
    assert shown.endswith("end\n[exit status 0]")


def test_a_cancelled_turn_kills_the_command(tools: dict[str, Tool]) -> None:
    context = ToolContext(call_id="1", idempotency_key="k")
    timer = threading.Timer(0.3, context.cancelled.set)
    timer.start()
    began = time.monotonic()
    shown = tools["shell"].run(context, {"command": "sleep 60"})
    assert shown == "[killed: the turn was cancelled]"
    assert time.monotonic() - began < 5


def test_the_toolbox_pulls_in_no_framework() -> None:
    program = (
        "import sys, engrain.agent.toolbox\n"
        "print([m for m in ('pydantic_ai', 'pydantic', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == "[]\n"
