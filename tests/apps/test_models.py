"""`engrain models`, as a person runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    path.write_bytes(b"weights")
    return path


def test_a_model_is_added_listed_shown_verified_and_removed(
    engrain: Command, weights: Path
) -> None:
    added = engrain("models", "add", "small", weights, "--json")
    assert (added.code, added.json["arrival"], added.json["size"]) == (0, "copy", 7)
    (listed,) = engrain("models", "list", "--json").json["items"]
    assert listed["reference"] == "installed:small"
    shown = engrain("models", "show", "small", "--json").json
    assert [one["name"] for one in shown["files"]] == ["small.gguf"]
    assert "small.gguf" in engrain("models", "show", "small").out
    assert engrain("models", "verify", "small", "--json").json["file_count"] == 1
    assert engrain("models", "remove", "small", "--json").json == {"removed": "small"}
    assert engrain("models", "list", "--json").json == {"items": [], "next": None}


@pytest.mark.parametrize("how", ["--move", "--link"])
def test_files_may_be_taken_over_or_left(engrain: Command, weights: Path, how: str) -> None:
    assert engrain("models", "add", "small", weights, how).code == 0
    assert weights.exists() == (how == "--link")
    assert engrain("models", "verify", "small").code == 0


def test_a_provider_model_keeps_the_name_of_its_key_alone(
    engrain: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    added = engrain(
        "models", "add", "big", "--provider", "openai", "--model", "small",
        "--endpoint", "https://example.com/v1", "--key-variable", "MY_KEY", "--json",
    )  # fmt: skip
    assert (added.code, added.json["key_variable"]) == (0, "MY_KEY")
    assert "MY_KEY" in engrain("models", "show", "big").out
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert not any(b"sk-secret" in path.read_bytes() for path in kept)


@pytest.mark.parametrize(
    "words",
    [
        ("small",),
        ("small", "--provider", "openai"),
        ("small", "PATH", "--provider", "openai", "--model", "x"),
        ("small", "PATH", "--move", "--link"),
    ],
)
def test_half_a_model_is_wrong_usage(
    engrain: Command, weights: Path, words: tuple[str, ...]
) -> None:
    given = [str(weights) if word == "PATH" else word for word in words]
    assert engrain("models", "add", *given).code == 2


def test_a_changed_file_fails_and_is_named(engrain: Command, weights: Path) -> None:
    engrain("models", "add", "small", weights, "--link")
    weights.write_bytes(b"other")
    ran = engrain("models", "verify", "small", "--json")
    assert (ran.code, ran.error["code"]) == (1, "model_changed")
    assert "small.gguf" in ran.error["message"]


def test_a_model_that_is_not_there_is_not_found(engrain: Command) -> None:
    for verb in ("show", "verify", "remove"):
        ran = engrain("models", verb, "none", "--json")
        assert (ran.code, ran.error["code"]) == (1, "not_found")
