"""Files larger than anybody wants to hold are read in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.exports import code_line

MIB = 1024 * 1024
GROWTH = Path(__file__).with_name("growth.py")
RESULT = "x" * 100_000


def transcript() -> Iterator[str]:
    """One session of 60 MB, most of it what tools gave back."""
    for number in range(1, 1_201, 4):
        yield json.dumps(code_line(number, f"question {number}")) + "\n"
        call = [{"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {}}]
        yield _line(number + 1, "assistant", call)
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": RESULT * 2}
        yield _line(number + 2, "user", [result])
        yield _line(number + 3, "assistant", [{"type": "text", "text": f"answer {number}"}])


def _line(number: int, role: str, content: list[dict[str, Any]]) -> str:
    message = {"id": f"m{number}", "role": role, "content": content}
    return json.dumps(code_line(number, "", type=role, message=message)) + "\n"


def export() -> Iterator[str]:
    """600 conversations, 60 MB."""
    for number in range(600):
        result = {"type": "tool_result", "tool_use_id": "c", "content": RESULT}
        messages = [
            {"uuid": "u", "sender": "human", "text": f"question {number}"},
            {
                "uuid": "a",
                "sender": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "read", "input": {}}, result],
            },
        ]
        text = json.dumps({"uuid": f"c{number}", "chat_messages": messages})
        yield f"{',' if number else '['}{text}"
    yield "]"


@pytest.mark.parametrize(
    ("name", "write", "events"), [("s.jsonl", transcript, 1_200), ("c.json", export, 1_800)]
)
def test_a_file_of_60_mb_is_imported_in_bounded_memory(
    tmp_path: Path, name: str, write: Callable[[], Iterator[str]], events: int
) -> None:
    path = tmp_path / name
    with path.open("w") as file:
        file.writelines(write())
    assert path.stat().st_size > 60_000_000
    done = subprocess.run(
        [sys.executable, GROWTH, path, tmp_path / "engrain.sqlite3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["events_new"] == events
    assert found["grown"] < 40 * MIB
