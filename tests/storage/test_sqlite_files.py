"""The files of a SQLite database: who may touch them, how one comes into being, when one is gone.

Run as a program, this file is the other process of a test: see `main`.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from engrain import Memory, Turn
from engrain.contracts import faults
from engrain.contracts.episodes import NewEpisode
from engrain.contracts.errors import (
    Corrupt,
    DatabaseMissing,
    DatabaseReplaced,
    EngrainError,
    Refused,
    UnsafeFile,
    UnsupportedSystem,
)
from engrain.contracts.scope import Scope
from engrain.storage.migrate import Migration
from engrain.storage.sqlite.connections import SQLITE_FLOOR, check_library
from engrain.storage.sqlite.files import MIGRATIONS
from engrain.storage.sqlite.open import open_file
from engrain.system.clock import SystemClock

ANA = Scope(org="acme", user="ana")
NAME = "engrain.sqlite3"
SIDES = ("-wal", "-shm", "-journal", ".lock")
REFUSAL_S = 2.0
"""The promise is a second; the rest is for machines that do other things meanwhile."""
PROCESSES = 6
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture
def path(home: Path) -> Path:
    return home / NAME


@pytest.fixture
def kept(path: Path) -> Path:
    """A closed database that holds one audit entry."""
    with Memory.open(path) as memory:
        memory.audit.record(ANA, "kept", {})
    return path


def count(path: Path) -> int:
    """Audit entries in the database, read by opening it anew."""
    with Memory.open(path) as memory:
        return memory.audit.verify(ANA)


def picture(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything about a folder that an open which is refused must not change."""
    found: dict[str, tuple[object, ...]] = {}
    for entry in sorted(folder.rglob("*")):
        it = entry.lstat()
        content = entry.read_bytes() if stat.S_ISREG(it.st_mode) else b""
        found[str(entry)] = (it.st_mode, it.st_ino, it.st_uid, it.st_nlink, content)
    return found


@contextmanager
def refused(error: type[EngrainError], folder: Path) -> Iterator[pytest.ExceptionInfo[Any]]:
    """What the block raises comes at once and leaves the folder as it was."""
    before = picture(folder)
    begun = time.monotonic()
    with pytest.raises(error) as caught:
        yield caught
    assert time.monotonic() - begun < REFUSAL_S
    assert picture(folder) == before


# What is not private is refused


def _symlink(at: Path, aside: Path) -> None:
    at.rename(aside)
    at.symlink_to(aside)


def _dangling_symlink(at: Path, aside: Path) -> None:
    at.unlink()
    at.symlink_to(aside)


def _hard_link(at: Path, aside: Path) -> None:
    os.link(at, aside)


def _fifo(at: Path, aside: Path) -> None:
    at.rename(aside)
    os.mkfifo(at, 0o600)


def _directory(at: Path, aside: Path) -> None:
    at.rename(aside)
    at.mkdir(mode=0o700)


def _socket(at: Path, aside: Path) -> None:
    at.rename(aside)
    here = Path.cwd()
    os.chdir(at.parent)  # the names of sockets are bounded to a hundred bytes
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(at.name)
    finally:
        os.chdir(here)
    at.chmod(0o600)


def _readable_by_all(at: Path, aside: Path) -> None:
    at.chmod(0o644)


def _readable_by_group(at: Path, aside: Path) -> None:
    at.chmod(0o640)


def _executable(at: Path, aside: Path) -> None:
    at.chmod(0o700)


def _of_another_user(at: Path, aside: Path) -> None:
    os.chown(at, 65534, -1)


HAZARDS = [
    _symlink,
    _dangling_symlink,
    _hard_link,
    _fifo,
    _directory,
    _socket,
    _readable_by_all,
    _readable_by_group,
    _executable,
    pytest.param(_of_another_user, marks=only_root),
]


@pytest.mark.invariant("INV-01")
@pytest.mark.parametrize("end", ["", *SIDES])
@pytest.mark.parametrize("plant", HAZARDS)
def test_a_file_that_is_not_private_is_refused_and_named(
    kept: Path, plant: Callable[[Path, Path], None], end: str
) -> None:
    unsafe = kept.with_name(kept.name + end)
    if not unsafe.exists():
        unsafe.touch(mode=0o600)
    plant(unsafe, kept.parent / "aside")
    with refused(UnsafeFile, kept.parent) as caught:
        Memory.open(kept)
    assert caught.value.path == str(unsafe)
    assert str(unsafe) in caught.value.message


@pytest.mark.invariant("INV-01")
@pytest.mark.parametrize("end", SIDES)
def test_a_database_is_as_it_was_once_the_hazard_is_gone(kept: Path, end: str) -> None:
    unsafe = kept.with_name(kept.name + end)
    original = unsafe.exists()
    if original:
        unsafe.rename(kept.parent / "aside")
    os.mkfifo(unsafe, 0o600)
    with pytest.raises(UnsafeFile):
        Memory.open(kept)
    unsafe.unlink()
    if original:
        (kept.parent / "aside").rename(unsafe)
    assert count(kept) == 1


@pytest.mark.invariant("INV-01")
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(kept: Path, mode: int) -> None:
    kept.parent.chmod(mode)
    with refused(UnsafeFile, kept.parent) as caught:
        Memory.open(kept)
    assert caught.value.path == str(kept.parent)
    kept.parent.chmod(0o755)
    assert count(kept) == 1


@only_root
@pytest.mark.invariant("INV-01")
def test_a_directory_of_another_user_is_refused(kept: Path) -> None:
    os.chown(kept.parent, 65534, -1)
    with refused(UnsafeFile, kept.parent) as caught:
        Memory.open(kept)
    assert caught.value.path == str(kept.parent)


@pytest.mark.invariant("INV-01")
def test_an_asset_folder_that_is_a_link_or_open_to_others_is_refused(kept: Path) -> None:
    assets = kept.with_name(f"{NAME}.assets")
    assets.chmod(0o777)
    with pytest.raises(UnsafeFile, match="assets: is writable by others"):
        Memory.open(kept)
    assets.rename(assets.with_name("elsewhere"))
    assets.symlink_to("elsewhere")
    with pytest.raises(UnsafeFile, match="assets: is a symbolic link"):
        Memory.open(kept)


def test_a_directory_that_is_missing_is_named_with_the_command_that_makes_it(home: Path) -> None:
    with refused(UnsafeFile, home) as caught:
        Memory.open(home / "nowhere" / NAME)
    assert f"mkdir -m 700 {home / 'nowhere'}" in caught.value.message


@pytest.mark.invariant("INV-01")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_everything_that_is_made_is_private_under_any_umask(path: Path, umask: int) -> None:
    later = Migration(len(MIGRATIONS) + 1, "later", "CREATE TABLE later (x);\n")
    before = os.umask(umask)
    try:
        with Memory.open(path) as memory:
            memory.audit.record(ANA, "made", {})
            found = modes(path.parent)
            assert {NAME, f"{NAME}-wal", f"{NAME}-shm", f"{NAME}.lock"} <= found.keys()
        open_file(path, SystemClock(), migrations=(*MIGRATIONS, later)).close()
        found |= modes(path.parent)
    finally:
        os.umask(before)
    assert f"{NAME}.before-{later.number:04}" in found
    assert found.pop(f"{NAME}.assets") == "drwx------"
    assert set(found.values()) == {"-rw-------"}


def modes(folder: Path) -> dict[str, str]:
    return {entry.name: stat.filemode(entry.lstat().st_mode) for entry in folder.iterdir()}


# Created only when nothing is there


@pytest.mark.invariant("INV-04")
@pytest.mark.parametrize("end", [*SIDES, ".assets"])
def test_a_missing_database_with_a_companion_is_missing_not_new(kept: Path, end: str) -> None:
    for entry in list(kept.parent.iterdir()):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    companion = kept.with_name(kept.name + end)
    companion.mkdir(mode=0o700) if end == ".assets" else companion.touch(mode=0o600)
    with refused(DatabaseMissing, kept.parent) as caught:
        Memory.open(kept)
    assert caught.value.facts()["companion"] == str(companion)
    assert str(kept) in caught.value.message
    shutil.rmtree(companion) if end == ".assets" else companion.unlink()
    assert count(kept) == 0


@pytest.mark.invariant("INV-04")
def test_a_database_cut_to_nothing_is_not_filled_anew(kept: Path) -> None:
    os.truncate(kept, 0)
    with refused(Corrupt, kept.parent) as caught:
        Memory.open(kept)
    assert str(kept) in caught.value.message


@pytest.mark.invariant("INV-04")
def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as stranger:
        stranger.execute("CREATE TABLE notes (text)")
        stranger.execute("INSERT INTO notes VALUES ('mine')")
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(Corrupt, match="no Engrain database"):
        Memory.open(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_name_too_long_for_its_companions_is_refused_by_what_the_system_says(
    path: Path,
) -> None:
    long = path.with_name("n" * 250)
    with pytest.raises(UnsafeFile, match="File name too long"):
        Memory.open(long)


def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    path.write_bytes(b"some other file, long enough to have a header" * 100)
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(Corrupt, match="not a SQLite database"):
        Memory.open(path)
    assert path.read_bytes() == before


@pytest.mark.invariant("INV-04")
def test_a_first_open_by_six_processes_makes_one_database(path: Path) -> None:
    children = [start("record", path) for _ in range(PROCESSES)]
    for child in children:
        assert child.stdout and child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        with child:
            child.communicate(timeout=60)
        assert child.returncode == 0
    assert count(path) == PROCESSES
    assert set(modes(path.parent)) == {NAME, f"{NAME}.lock", f"{NAME}.assets"}


@pytest.mark.invariant("INV-04")
def test_a_first_open_by_many_threads_makes_one_database(path: Path) -> None:
    gate = threading.Barrier(PROCESSES)

    def record() -> None:
        gate.wait()
        with Memory.open(path) as memory:
            memory.audit.record(ANA, "opened", {})

    with ThreadPoolExecutor(PROCESSES) as pool:
        for done in [pool.submit(record) for _ in range(PROCESSES)]:
            done.result()
    assert count(path) == PROCESSES


# Gone under an open memory


def _deleted(path: Path, aside: Path) -> None:
    path.unlink()


def _moved(path: Path, aside: Path) -> None:
    path.rename(aside)


def _replaced_by_its_copy(path: Path, aside: Path) -> None:
    shutil.copy2(path, aside)
    aside.replace(path)


def _replaced_by_a_link_to_it(path: Path, aside: Path) -> None:
    path.rename(aside)
    path.symlink_to(aside)


def _replaced_by_a_directory(path: Path, aside: Path) -> None:
    path.rename(aside)
    path.mkdir(mode=0o700)


def _directory_moved(path: Path, aside: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def _directory_replaced_by_a_file(path: Path, aside: Path) -> None:
    _directory_moved(path, aside)
    path.parent.touch()


def _log_deleted(path: Path, aside: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def _log_replaced(path: Path, aside: Path) -> None:
    _replaced_by_its_copy(path.with_name(f"{path.name}-wal"), aside)


GONE = [
    _deleted,
    _moved,
    _replaced_by_its_copy,
    _replaced_by_a_link_to_it,
    _replaced_by_a_directory,
    _directory_moved,
    _directory_replaced_by_a_file,
    _log_deleted,
    _log_replaced,
]


@pytest.mark.invariant("INV-03")
@pytest.mark.parametrize("take", GONE)
def test_a_database_that_is_gone_acknowledges_nothing(
    kept: Path, take: Callable[[Path, Path], None]
) -> None:
    with Memory.open(kept) as memory:
        session = memory.sessions.start(ANA)
        with memory.sessions.lease(ANA, session.id) as writer:
            writer.release()
            take(kept, kept.parent / "aside")
            episode = NewEpisode(text="lost", first_sequence=1, last_sequence=1)
            for write in (
                lambda: memory.sessions.start(ANA),
                lambda: memory.sessions.lease(ANA, session.id),
                lambda: memory.sessions.set_title(ANA, session.id, "lost"),
                lambda: memory.episodes.append(ANA, session.id, [episode]),
                lambda: memory.episodes.settle(ANA),
                lambda: memory.audit.record(ANA, "lost", {}),
            ):
                with pytest.raises(DatabaseReplaced) as caught:
                    write()
                assert str(kept) in caught.value.message


@pytest.mark.invariant("INV-03")
@pytest.mark.parametrize("take", [_log_deleted, _log_replaced])
def test_a_log_that_goes_when_its_folder_has_long_been_quiet_is_noticed(
    kept: Path, take: Callable[[Path, Path], None]
) -> None:
    with Memory.open(kept) as memory:
        time.sleep(0.15)  # from then on the folder's time is trusted
        memory.audit.record(ANA, "kept", {})
        memory.audit.record(ANA, "kept", {})
        take(kept, kept.parent / "aside")
        with pytest.raises(DatabaseReplaced):
            memory.audit.record(ANA, "lost", {})


@pytest.mark.invariant("INV-03")
def test_a_database_that_is_cut_to_nothing_acknowledges_nothing(kept: Path) -> None:
    with Memory.open(kept) as memory:
        session = memory.sessions.start(ANA)
        with (
            pytest.raises((Corrupt, DatabaseReplaced)),
            memory.sessions.lease(ANA, session.id) as writer,
        ):
            os.truncate(kept, 0)
            writer.append(Turn.said("lost"))
        with pytest.raises((Corrupt, DatabaseReplaced)):
            memory.audit.record(ANA, "lost", {})


@pytest.mark.invariant("INV-03")
def test_a_database_that_leaves_during_the_commit_acknowledges_nothing(kept: Path) -> None:
    def leave(name: str) -> None:
        if name == "commit.before":
            kept.rename(kept.parent / "aside")

    with Memory.open(kept) as memory:
        faults.arm(leave)
        try:
            with pytest.raises(DatabaseReplaced):
                memory.audit.record(ANA, "lost", {})
        finally:
            faults.arm(None)


@pytest.mark.invariant("INV-03")
def test_writers_at_once_are_all_refused_once_the_database_is_gone(kept: Path) -> None:
    acknowledged = [0] * 4

    def write_until_refused(at: int) -> EngrainError:
        while True:
            try:
                memory.audit.record(ANA, "written", {})
            except EngrainError as error:
                return error
            acknowledged[at] += 1

    with Memory.open(kept) as memory, ThreadPoolExecutor(4) as pool:
        ends = [pool.submit(write_until_refused, at) for at in range(4)]
        while min(acknowledged) == 0:
            assert not any(end.done() for end in ends)
        kept.rename(kept.parent / "aside")
        assert {type(end.result()) for end in ends} == {DatabaseReplaced}
        (kept.parent / "aside").rename(kept)
        memory.audit.record(ANA, "back", {})
        assert memory.audit.verify(ANA) >= 2 + sum(acknowledged)


# How connections are set


SETTINGS = {
    "synchronous": 3,
    "journal_mode": "wal",
    "foreign_keys": 1,
    "trusted_schema": 0,
    "temp_store": 2,
    "secure_delete": 1,
    "cell_size_check": 1,
    "busy_timeout": 5_000,
    "wal_autocheckpoint": 0,
}


def connections_of(path: Path) -> Iterator[apsw.Connection]:
    """The write connection and a read connection of an open database."""
    database = open_file(path, SystemClock())
    try:
        yield database._writer
        with database.read() as reader:
            yield reader._connection  # type: ignore[attr-defined]
    finally:
        database.close()


def test_every_connection_has_the_pragmas_that_durability_needs(path: Path) -> None:
    for connection in connections_of(path):
        found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in SETTINGS}
        assert found == SETTINGS


def test_every_connection_is_defensive_and_loads_no_extension(path: Path) -> None:
    for connection in connections_of(path):
        assert connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1) == 1
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, -1) == 0
        with pytest.raises(apsw.Error):
            connection.execute("SELECT load_extension('anything')").fetchall()


def test_no_connection_may_create_a_file_or_follow_a_link(path: Path) -> None:
    for connection in connections_of(path):
        assert not connection.open_flags & apsw.SQLITE_OPEN_CREATE
        assert connection.open_flags & apsw.SQLITE_OPEN_NOFOLLOW


def test_synchronous_is_extra_before_the_log_is_used(path: Path) -> None:
    said: list[str] = []

    def listen(connection: apsw.Connection) -> None:
        connection.set_exec_trace(lambda _cursor, statement, _bound: said.append(statement) or True)

    apsw.connection_hooks.append(listen)
    try:
        open_file(path, SystemClock()).close()
    finally:
        apsw.connection_hooks.remove(listen)
    wal = said.index("PRAGMA journal_mode = WAL")
    writes = [at for at, statement in enumerate(said) if statement.startswith("CREATE")]
    assert said.index("PRAGMA synchronous = EXTRA") < wal < writes[0]


@pytest.mark.invariant("INV-02")
def test_a_library_below_the_floor_is_refused() -> None:
    with pytest.raises(UnsupportedSystem, match="too old"):
        check_library(3_051_002)
    check_library(3_051_003)
    assert SQLITE_FLOOR == 3_051_003


@pytest.mark.invariant("INV-02")
@pytest.mark.parametrize("old", ["3.51.2", "3.46.1", "3.8.12"])
def test_the_library_that_runs_counts_not_the_one_it_was_built_with(
    path: Path, monkeypatch: pytest.MonkeyPatch, old: str
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: old)
    with refused(UnsupportedSystem, path.parent):
        Memory.open(path)


# Descriptors and forks


def test_only_sqlite_opens_the_database_and_its_sides(path: Path) -> None:
    """Closing a descriptor of our own would drop SQLite's locks in the whole process."""
    with start("audit", path) as child:
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    opened = {Path(line).name for line in out.splitlines() if line.startswith(str(path.parent))}
    assert f"{NAME}.lock" in opened, "the hook saw what Python opens"
    assert opened <= {f"{NAME}.lock", f".{NAME}.creating", f".{NAME}.copying", path.parent.name}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")
def test_a_closed_memory_leaves_no_descriptor_open(path: Path) -> None:
    def opened() -> list[str]:
        found = []
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                found.append(str(descriptor.readlink()))
        return [name for name in found if name.startswith(str(path.parent))]

    with Memory.open(path) as memory:
        memory.audit.record(ANA, "made", {})
        memory.audit.list(ANA)
        assert opened()
    assert opened() == []
    path.chmod(0o640)
    with pytest.raises(UnsafeFile):
        Memory.open(path)
    assert opened() == []


def test_a_memory_is_refused_in_a_forked_child_and_unharmed_in_its_parent(path: Path) -> None:
    with start("fork", path) as child:
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert out.splitlines() == ["child: Refused Refused", "parent: 2"]
    assert count(path) == 2


def start(task: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, task, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def main(task: str, path: Path) -> None:
    """`record`: one audit entry at a signal. `audit`: a whole life, saying each file that Python
    opens. `fork`: a memory used on both sides of a fork."""
    {"record": _record_at_a_signal, "audit": _live_under_audit, "fork": _fork}[task](path)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _record_at_a_signal(path: Path) -> None:
    _say("ready")
    sys.stdin.readline()
    with Memory.open(path) as memory:
        memory.audit.record(ANA, "opened", {})


def _live_under_audit(path: Path) -> None:
    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "sqlite3.connect") and isinstance(arguments[0], str | bytes | Path):
            _say(os.fsdecode(arguments[0]))

    sys.addaudithook(listen)
    for _ in range(2):
        with Memory.open(path) as memory:
            session = memory.sessions.start(ANA)
            for at in range(300):
                new = NewEpisode(text="word " * 200, first_sequence=1, last_sequence=1, ordinal=at)
                memory.episodes.append(ANA, session.id, [new])
            memory.episodes.search(ANA, "word")
    later = Migration(len(MIGRATIONS) + 1, "later", "CREATE TABLE later (x);\n")
    open_file(path, SystemClock(), migrations=(*MIGRATIONS, later)).close()


def _fork(path: Path) -> None:
    memory = Memory.open(path)
    memory.audit.record(ANA, "before", {})
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        assert status == 0
        memory.audit.record(ANA, "after", {})
        _say(f"parent: {memory.audit.verify(ANA)}")
        memory.close()
        return
    errors = []
    for verb in (lambda: memory.audit.record(ANA, "child", {}), lambda: memory.audit.list(ANA)):
        try:
            verb()
        except Refused as error:
            errors.append(type(error).__name__)
    _say(f"child: {' '.join(errors)}")
    memory.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
