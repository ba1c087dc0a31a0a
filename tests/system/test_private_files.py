"""What is not a private file of ours is refused by name, at once, and never opened."""

from __future__ import annotations

import os
import shlex
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engrain.contracts.errors import UnsafeFile
from engrain.system.private_files import (
    check_database_files,
    check_private_directory,
    check_private_file,
    create_private_file,
    fsync_directory,
    make_private_directory,
)

_STRANGER = 4_242

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
as_user = pytest.mark.skipif(os.geteuid() == 0, reason="nothing stops root")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "engrain.sqlite3"
    create_private_file(path)
    return path


@pytest.fixture(params=[0, 0o077, 0o777])
def umask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """What new files lose; the test's own directory is there already."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def _link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to(path.with_name("real"))


def _dangle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def _make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir(0o600)


def _make_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))  # a socket's path is short
    path.chmod(0o600)


def _widen(path: Path) -> None:
    path.chmod(0o640)


def _narrow(path: Path) -> None:
    path.chmod(0o400)


def _add_set_uid(path: Path) -> None:
    path.chmod(0o4600)


def _add_name(path: Path) -> None:
    path.with_name("twin").hardlink_to(path)


SPOILERS: list[tuple[Callable[[Path], None], str]] = [
    (_link, "symbolic link"),
    (_dangle, "symbolic link"),
    (_make_fifo, "pipe"),
    (_make_directory, "directory"),
    (_make_socket, "socket"),
    (_widen, "chmod 600"),
    (_narrow, "chmod 600"),
    (_add_set_uid, "chmod 600"),
    (_add_name, "hard link"),
]


def _check_refusal(check: Callable[[], None], path: Path, reason: str) -> None:
    began = time.monotonic()
    with pytest.raises(UnsafeFile, match=reason) as refused:
        check()
    assert time.monotonic() - began < 1
    assert refused.value.path == str(path)


@pytest.mark.invariant("INV-01")
@pytest.mark.parametrize(("spoil", "reason"), SPOILERS)
def test_what_is_no_private_file_is_refused_by_name(
    file: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    check_private_file(file)
    spoil(file)
    _check_refusal(lambda: check_private_file(file), file, reason)
    _check_refusal(lambda: check_private_file(file, may_be_absent=True), file, reason)


@pytest.mark.invariant("INV-01")
@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal", ".lock"])
@pytest.mark.parametrize(("spoil", "reason"), SPOILERS)
def test_every_file_beside_the_database_must_be_private(
    file: Path, end: str, spoil: Callable[[Path], None], reason: str
) -> None:
    beside = file.with_name(file.name + end)
    if end:
        create_private_file(beside)
    check_database_files(file)
    spoil(beside)
    _check_refusal(lambda: check_database_files(file), beside, reason)


@pytest.mark.parametrize(("name", "advice"), [("passwd", "0600"), ("my database", "0600")])
def test_no_command_is_advised_for_a_file_that_may_not_be_ours(
    tmp_path: Path, name: str, advice: str
) -> None:
    file = tmp_path / name
    create_private_file(file)
    file.chmod(0o644)
    with pytest.raises(UnsafeFile, match=advice) as refused:
        check_private_file(file)
    assert "run:" not in refused.value.message
    assert "mode 0644" in refused.value.message


def test_no_command_is_advised_for_a_directory_that_others_share(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(UnsafeFile, match="mode 1777") as refused:
        check_private_directory(tmp_path)
    assert "run:" not in refused.value.message


def test_advised_command_can_be_pasted_whatever_the_path(tmp_path: Path) -> None:
    directory = tmp_path / "two words; and more"
    with pytest.raises(UnsafeFile) as refused:
        check_private_directory(directory)
    _, _, command = refused.value.message.partition("run: ")
    assert shlex.split(command) == ["mkdir", "-m", "700", str(directory)]


@pytest.mark.invariant("INV-01")
def test_a_device_is_refused() -> None:
    _check_refusal(lambda: check_private_file(Path("/dev/null")), Path("/dev/null"), "device")


@as_root
@pytest.mark.invariant("INV-01")
def test_a_file_of_another_user_is_refused(file: Path) -> None:
    os.chown(file, _STRANGER, -1)
    _check_refusal(lambda: check_private_file(file), file, "another user")


@as_root
@pytest.mark.invariant("INV-01")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, _STRANGER, -1)
    _check_refusal(lambda: check_private_directory(tmp_path), tmp_path, "another user")


def test_a_missing_file_passes_only_where_it_may_be_missing(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    check_private_file(absent, may_be_absent=True)
    _check_refusal(lambda: check_private_file(absent), absent, "does not exist")


def test_a_path_through_a_file_is_refused(file: Path) -> None:
    below = file / "below"
    _check_refusal(lambda: check_private_file(below), below, "cannot be reached")
    _check_refusal(lambda: check_private_directory(below), below, "cannot be reached")


@pytest.mark.invariant("INV-01")
@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    _check_refusal(lambda: check_private_directory(tmp_path), tmp_path, "writable by others")


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_a_directory_that_others_can_only_read_passes(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    check_private_directory(tmp_path)


def test_what_is_no_directory_is_refused(file: Path, tmp_path: Path) -> None:
    _check_refusal(lambda: check_private_directory(file), file, "not a directory")
    absent = tmp_path / "absent"
    _check_refusal(lambda: check_private_directory(absent), absent, "mkdir -m 700")


@pytest.mark.invariant("INV-01")
@pytest.mark.usefixtures("umask")
def test_what_is_made_is_private_whatever_the_umask(tmp_path: Path) -> None:
    create_private_file(tmp_path / "file")
    make_private_directory(tmp_path / "directory")
    assert _mode(tmp_path / "file") == 0o600
    assert _mode(tmp_path / "directory") == 0o700
    check_private_file(tmp_path / "file")
    check_private_directory(tmp_path / "directory")


def test_a_taken_name_is_never_taken_over(file: Path, tmp_path: Path) -> None:
    file.write_text("kept", "utf-8")
    with pytest.raises(FileExistsError):
        create_private_file(file)
    assert file.read_text("utf-8") == "kept"
    tmp_path.joinpath("link").symlink_to(tmp_path / "elsewhere")
    for create in (create_private_file, make_private_directory):
        with pytest.raises(FileExistsError):
            create(tmp_path / "link")
    assert not tmp_path.joinpath("elsewhere").exists()


@as_user
def test_a_directory_that_takes_no_file_is_refused_by_name(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    for create in (create_private_file, make_private_directory):
        with pytest.raises(UnsafeFile, match="new: cannot be created"):
            create(tmp_path / "new")
    tmp_path.chmod(0o700)


def test_a_place_that_is_not_there_takes_no_file(tmp_path: Path) -> None:
    for create in (create_private_file, make_private_directory):
        with pytest.raises(UnsafeFile, match="new: cannot be created"):
            create(tmp_path / "absent" / "new")


def test_a_directory_is_made_durable(tmp_path: Path) -> None:
    create_private_file(tmp_path / "new")
    fsync_directory(tmp_path)
    with pytest.raises(NotADirectoryError):
        fsync_directory(tmp_path / "new")
