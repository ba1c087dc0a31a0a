"""What is not there, not readable or not named is said by its name, and nothing is made of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from apps.conftest import EXAMPLE, Command

NOBODY = "0198c0de-0000-7000-8000-000000000000"


@pytest.fixture
def gone(imported: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs commands in a directory that was removed meanwhile."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    return imported


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["sessions", "list"], "workspace_mismatch", "the current directory was removed"),
        (["sessions", "start"], "workspace_mismatch", "the current directory was removed"),
        (["recall", "x", "--db", "rel.sqlite3"], "unsafe_file", "rel.sqlite3: the working"),
        (["recall", "x", "--home", "rel"], "unsafe_file", "rel: the working directory"),
        (["import", "."], "not_found", "no file or folder ."),
        (["import", "x.json"], "not_found", "no file or folder x.json"),
    ],
)
def test_directory_that_was_removed_is_named(
    gone: Command, arguments: list[str], code: str, said: str
) -> None:
    ran = gone(*arguments, "--json")
    assert (ran.code, ran.out, ran.error["code"]) == (1, "", code)
    assert ran.error["message"].startswith(said)


def test_what_names_no_place_works_in_a_directory_that_was_removed(gone: Command) -> None:
    assert len(gone("sessions", "list", "--all", "--json").json["items"]) == 4
    assert gone("recall", "database", "--json").json["items"]


@pytest.mark.parametrize("arguments", [["import", ""], ["workspace", "relink", NOBODY, ""]])
def test_variable_that_was_never_set_is_not_the_current_directory(
    engrain: Command, arguments: list[str]
) -> None:
    ran = engrain(*arguments, "--json")
    assert (ran.code, ran.error["code"]) == (2, "invalid_value")
    assert "must not be empty" in ran.error["message"]


def test_missing_path_is_not_said_to_be_missing_in_a_scope(engrain: Command) -> None:
    ran = engrain("import", "no/where.json")
    assert (ran.code, ran.err) == (1, "engrain: no file or folder no/where.json [not_found]\n")


def test_ring_of_links_is_no_place(engrain: Command, tmp_path: Path) -> None:
    (tmp_path / "ring").symlink_to("ring")
    ran = engrain("search", "x", "--db", "ring/x.sqlite3", "--json")
    assert (ran.code, ran.error["code"]) == (1, "unsafe_file")
    ran = engrain("import", "ring", "--json")
    assert (ran.code, ran.error["code"]) == (1, "unsafe_file")
    assert "symbolic links" in ran.error["message"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing stops root")
def test_file_that_may_not_be_read_is_refused_with_the_systems_reason(
    engrain: Command, tmp_path: Path
) -> None:
    closed = tmp_path / "closed.json"
    closed.write_bytes(EXAMPLE.read_bytes())
    closed.chmod(0)
    ran = engrain("import", closed, "--json")
    assert (ran.code, ran.error["code"]) == (1, "unsafe_file")
    assert ran.error["message"] == f"{closed}: Permission denied"


def test_file_that_cannot_be_opened_is_refused_with_the_systems_reason(
    engrain: Command, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 300)
    ran = engrain("import", long, "--json")
    assert (ran.code, ran.error["code"]) == (1, "unsafe_file")
    assert ran.error["message"].endswith(": File name too long")


def test_broken_zip_is_refused_with_what_is_wrong(engrain: Command, tmp_path: Path) -> None:
    broken = tmp_path / "export.zip"
    broken.write_bytes(b"not a zip")
    ran = engrain("import", broken, "--json")
    assert (ran.code, ran.error["code"]) == (1, "unsafe_file")
    assert ran.error["reason"] == "the zip is broken (BadZipFile)"
