"""One folder, and no way out of it: paths, links, odd files, and the memory's own database."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engrain.contracts.errors import EngrainError, InvalidValue, LimitExceeded, UnsafeFile
from engrain.system import confined
from engrain.system.confined import ConfinedFolder

REFUSED = (EngrainError, OSError)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    (tmp_path / "secret").write_text("secret")
    (made / "inside").write_text("inside")
    (made / "folder").mkdir()
    return made


@pytest.fixture
def folder(root: Path) -> ConfinedFolder:
    return ConfinedFolder(root)


@pytest.mark.parametrize("path", ["inside", "./inside", "folder/../inside"[7:], "//inside"[1:]])
def test_files_inside_are_read(folder: ConfinedFolder, root: Path, path: str) -> None:
    given = str(root / "inside") if path.startswith("/") else path.lstrip(".").lstrip("/")
    assert folder.read(given, 100) == b"inside"


@pytest.mark.parametrize(
    "path", ["../secret", "folder/../../secret", "/etc/passwd", "a\0b", "", ".", "folder", "\ud800"]
)
def test_what_is_outside_or_no_file_is_not_read(folder: ConfinedFolder, path: str) -> None:
    with pytest.raises(REFUSED):
        folder.read(path, 100)
    with pytest.raises(REFUSED):
        folder.write(path, b"x")


def test_no_link_is_followed_at_the_end_or_on_the_way(
    folder: ConfinedFolder, root: Path, tmp_path: Path
) -> None:
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "way").symlink_to(tmp_path)
    (root / "self").symlink_to(root / "inside")
    for path in ("out", "way/secret", "self"):
        with pytest.raises(REFUSED):
            folder.read(path, 100)
        with pytest.raises(REFUSED):
            folder.write(path, b"x")
    with pytest.raises(REFUSED):
        folder.write("way/new", b"x", with_folders=True)
    assert (tmp_path / "secret").read_text() == "secret"
    assert not (tmp_path / "new").exists()
    assert folder.list_names(".") == ["folder/", "inside", "out@", "self@", "way@"]
    assert list(folder.iter_files(".")) == ["inside"]


def test_a_folder_that_was_exchanged_for_a_link_is_still_the_folder(
    root: Path, tmp_path: Path
) -> None:
    folder = ConfinedFolder(root)
    root.rename(tmp_path / "moved")
    root.symlink_to(tmp_path)
    assert folder.read("inside", 100) == b"inside"
    with pytest.raises(REFUSED):
        folder.read("secret", 100)


def test_a_pipe_does_not_hang_and_a_device_is_refused(folder: ConfinedFolder, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(UnsafeFile):
        folder.read("pipe", 100)
    with pytest.raises(UnsafeFile):
        folder.write("pipe", b"x")
    assert list(folder.iter_files(".")) == ["inside"]


@pytest.mark.parametrize("end", ["", "-wal", "-shm", ".lock"])
def test_the_memory_s_files_are_never_opened_under_any_name(root: Path, end: str) -> None:
    database = root / "engrain.sqlite3"
    file = root / f"engrain.sqlite3{end}"
    file.write_bytes(b"kept")
    os.link(file, root / "innocent")
    folder = ConfinedFolder(root, forbidden=[database])
    for path in (file.name, "innocent"):
        with pytest.raises(UnsafeFile, match="database"):
            folder.read(path, 100)
        with pytest.raises(UnsafeFile, match="database"):
            folder.write(path, b"x")
    file.unlink()
    with pytest.raises(UnsafeFile, match="database"):
        folder.write(file.name, b"x")


def test_a_write_is_whole_keeps_the_mode_and_says_if_it_is_new(
    folder: ConfinedFolder, root: Path
) -> None:
    (root / "inside").chmod(0o750)
    assert folder.write("inside", b"other") is False
    assert (root / "inside").stat().st_mode & 0o7777 == 0o750
    assert folder.write("a/b/c", b"new", with_folders=True) is True
    assert (root / "a/b/c").read_bytes() == b"new"
    assert sorted(path.name for path in root.iterdir()) == ["a", "folder", "inside"]


def test_a_write_into_a_missing_folder_makes_none_unasked(folder: ConfinedFolder) -> None:
    with pytest.raises(FileNotFoundError):
        folder.write("a/b", b"x")
    assert folder.list_names(".") == ["folder/", "inside"]


def test_a_walk_is_bounded(
    folder: ConfinedFolder, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined, "WALK_ENTRIES_MAX", 5)
    for number in range(6):
        (root / str(number)).touch()
    with pytest.raises(LimitExceeded):
        list(folder.iter_files("."))


def test_paths_are_told_apart_from_wrong_ones(folder: ConfinedFolder, root: Path) -> None:
    assert folder.read(f"{root}/folder/../inside", 3) == b"ins"
    with pytest.raises(InvalidValue, match="outside"):
        folder.read(f"{root}/../secret", 3)
