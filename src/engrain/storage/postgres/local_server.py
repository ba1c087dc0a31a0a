"""A private PostgreSQL on this machine, for trying Engrain and for its tests.

Owns one directory and the life of the server in it:

    lock        held while somebody starts or stops the server
    password    0600, the caller's; SCRAM is the only way in
    server.log  what this server said; errors of statements, which could quote content, are left out
    data/       0700, the server account's
    run/        0700, the server account's; the socket, there is no network address
    programs-…  only for root whose site-packages the server account cannot reach

The directory and `data` are never removed here. Which programs run, and as whom, is
`local_programs`. The server outlives the process and the terminal that started it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

import msgspec
import psycopg

from engrain.contracts.errors import (
    Busy,
    Corrupt,
    InvalidValue,
    Refused,
    UnsupportedSystem,
)
from engrain.storage.postgres.local_directory import (
    NAME,
    POLL_S,
    PORT,
    SOCKET,
    Place,
    ensure_cluster,
    find_place,
    locked,
    prepare,
    short_digest,
    socket_directory,
)
from engrain.storage.postgres.local_programs import (
    Account,
    choose_account,
    find_package,
    read_programs,
)

ROOT_ACCOUNT: Final = "nobody"
start_wait_s: Final = 60.0
stop_wait_s: Final = 30.0
_QUIT_WAIT_S = 10.0
_SETTING = re.compile(r"[a-z][a-z0-9_.]*")
_NO_PROCESS = 2**31 - 1
_STILL_LETTING_GO = "pre-existing shared memory block"
_WRONG_PASSWORD = "password authentication failed"

_DEFAULTS: Final = {"max_connections": "100", "timezone": "UTC", "log_timezone": "UTC"}
_FIXED: Final = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "password_encryption": "scram-sha-256",
    "logging_collector": "off",
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_checkpoints": "off",
}


class LocalServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that accepts connections. `url` holds the password; the repr does not."""

    url: str
    directory: Path
    pid: int

    def __repr__(self) -> str:
        return f"LocalServer(directory={str(self.directory)!r}, pid={self.pid})"


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`absent` has no data, `stopped` has; `version` is that of the server, or of the data."""

    state: Literal["running", "stopped", "absent"]
    directory: Path
    pid: int | None = None
    url: str | None = None
    version: str | None = None

    def __repr__(self) -> str:
        return f"ServerStatus({self.state!r}, directory={str(self.directory)!r}, pid={self.pid})"


class _Postmaster(msgspec.Struct, frozen=True):
    """What `postmaster.pid` says."""

    pid: int
    socket_directory: str
    is_ready: bool


def default_directory(home: Path, *, account: str = ROOT_ACCOUNT) -> Path:
    """`home/postgres`; for root whose home the server account cannot enter, one in /var/lib.

    That one is named after `home`, and outlives a restart of the machine, as /tmp would not.
    """
    owner = choose_account(account)
    home = home.resolve()
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    if not owner.is_other or owner.can_enter(existing):
        return home / "postgres"
    return Path("/var/lib/engrain") / f"postgres-{short_digest(home)}"


def start(
    directory: Path,
    *,
    settings: Mapping[str, str] | None = None,
    account: str = ROOT_ACCOUNT,
    wait_s: float = start_wait_s,
) -> LocalServer:
    """The server in `directory`, running and ready; made when absent, found when it runs already.

    `settings` go to PostgreSQL when it is launched, not to one that runs; they cannot open a
    network address. As root the server runs as `account`. Starts are serialised; raises `Busy`
    when `wait_s` is over, `UnsafeFile` for a directory that is not private or not reachable, and
    `UnsupportedSystem` with the log's last word when PostgreSQL does not come up.
    """
    owner = choose_account(account)
    flags = _settings_flags(settings or {})
    if not directory.is_dir():
        find_package()  # nothing is made where no server can come up
    place = prepare(directory, owner)
    deadline = time.monotonic() + wait_s
    with locked(place, deadline):
        found = _find_postmaster(place)
        if found is None or not _is_ready(place, found.pid, deadline):
            programs = read_programs(place.directory, owner)
            ensure_cluster(place, owner, programs)
            _bring_up(place, owner, [str(programs / "postgres"), *flags], deadline)
        return _read_running(place)


def stop(directory: Path, *, wait_s: float = stop_wait_s) -> ServerStatus:
    """Stops the server, its clients' open transactions are rolled back; harmless when stopped.

    Asks for a fast shutdown; when that takes longer than `wait_s`, for an immediate one, after
    which the next start recovers. Raises `Busy` if even that does not end it.
    """
    place = find_place(directory)
    if not place.data.exists():
        return ServerStatus(state="absent", directory=place.directory)
    with locked(place, time.monotonic() + wait_s):
        found = _find_postmaster(place)
        if found is not None:
            _end(place, found.pid, wait_s)
    return status(directory)


def status(directory: Path) -> ServerStatus:
    """What is there now; changes nothing and does not wait for a start that is under way."""
    place = find_place(directory)
    if not place.data.exists():
        return ServerStatus(state="absent", directory=place.directory)
    found = _find_postmaster(place)
    version = (place.data / "PG_VERSION").read_text().strip()
    if found is None:
        return ServerStatus(state="stopped", directory=place.directory, version=version)
    url = _url(place, found.socket_directory)
    return ServerStatus(
        state="running",
        directory=place.directory,
        pid=found.pid,
        url=url,
        version=_find_server_version(url) or version,
    )


# ---- the process -------------------------------------------------------------------------------


def _settings_flags(settings: Mapping[str, str]) -> list[str]:
    for name, value in settings.items():
        if not _SETTING.fullmatch(name) or name in _FIXED or name == "unix_socket_directories":
            raise InvalidValue("settings", f"{name[:64]!r} cannot be set here")
        if "\0" in value:
            raise InvalidValue("settings", f"the value of {name} holds NUL")
    chosen = _DEFAULTS | dict(settings) | _FIXED
    return [part for name, value in chosen.items() for part in ("-c", f"{name}={value}")]


def _bring_up(place: Place, owner: Account, command: list[str], deadline: float) -> None:
    """Launches until it is ready.

    After `kill -9` the orphans of the old server take a moment to let go of its memory; that
    alone is tried again.
    """
    _forget_dead_postmaster(place)
    sockets = socket_directory(place, owner)
    _remove_dead_socket(sockets)
    _keep_old_log(place)
    command = [*command, "-D", str(place.data), "-c", f'unix_socket_directories="{sockets}"']
    while not _is_ready(place, _launch(place, owner, command), deadline):
        if _STILL_LETTING_GO not in _last_word(place) or time.monotonic() >= deadline:
            raise _failure(place)
        time.sleep(POLL_S)


def _launch(place: Place, owner: Account, command: list[str]) -> int:
    """The pid of a server in a session of its own, which is nobody's child in this process."""
    script = '"$@" 1>&2 & echo $!'
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    with os.fdopen(os.open(place.log, flags, 0o600), "ab") as log:
        shell = ["/bin/sh", "-c", script, "sh", *command]
        return int(owner.run(shell, stderr=log, is_detached=True).stdout)


def _is_ready(place: Place, pid: int, deadline: float) -> bool:
    """True once it accepts connections and has our database; False when it ended instead."""
    while _is_alive(pid):
        found = _find_postmaster(place)
        if found is not None and found.is_ready and _try_database(place, found):
            return True
        if time.monotonic() >= deadline:
            raise Busy(f"PostgreSQL is still starting; {place.log} ends: {_last_word(place)}")
        time.sleep(POLL_S)
    return False


def _try_database(place: Place, found: _Postmaster) -> bool:
    """False while the server does not accept connections yet."""
    try:
        url = _url(place, found.socket_directory, database="postgres")
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
            query = "SELECT 1 FROM pg_database WHERE datname = %s"
            if connection.execute(query, (NAME,)).fetchone() is None:
                connection.execute(f"CREATE DATABASE {NAME} TEMPLATE template0")
    except psycopg.OperationalError as error:
        if _WRONG_PASSWORD in str(error):
            raise Refused(f"{place.password} is not the password of {place.data}") from None
        return False
    return True


def _end(place: Place, pid: int, wait_s: float) -> None:
    for request, patience_s in ((signal.SIGINT, wait_s), (signal.SIGQUIT, _QUIT_WAIT_S)):
        with suppress(ProcessLookupError):
            os.kill(pid, request)
        if _has_ended(place, pid, time.monotonic() + patience_s):
            return
    raise Busy(f"PostgreSQL, process {pid}, does not end; see {place.log}")


def _has_ended(place: Place, pid: int, deadline: float) -> bool:
    while _is_server(pid, place.data):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def _find_postmaster(place: Place) -> _Postmaster | None:
    """The server that runs on this data; None when the file is stale, whoever has its pid now."""
    lines = _read_pid_file(place)
    if len(lines) < 5 or not lines[0].isdigit() or not _is_server(int(lines[0]), place.data):
        return None
    is_ready = len(lines) > 7 and lines[7].strip() == "ready"
    return _Postmaster(int(lines[0]), lines[4], is_ready)


def _read_pid_file(place: Place) -> list[str]:
    try:
        return place.pid_file.read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []


def _forget_dead_postmaster(place: Place) -> None:
    """Lets PostgreSQL see that its old pid file is stale, though the pid may be another's now.

    The rest of the file stays: with it PostgreSQL makes sure that no orphan uses the data.
    """
    lines = _read_pid_file(place)
    if not lines or not lines[0].isdigit() or int(lines[0]) == _NO_PROCESS:
        return
    with os.fdopen(os.open(place.pid_file, os.O_WRONLY | os.O_NOFOLLOW | os.O_TRUNC), "w") as file:
        file.write("\n".join([str(_NO_PROCESS), *lines[1:], ""]))


def _remove_dead_socket(sockets: Path) -> None:
    for name in (SOCKET, f"{SOCKET}.lock"):
        (sockets / name).unlink(missing_ok=True)


def _keep_old_log(place: Place) -> None:
    """Each launch begins a log; the one before it is kept, so that neither grows for ever."""
    with suppress(FileNotFoundError):
        place.log.replace(place.log.with_suffix(".log.1"))


def _is_server(pid: int, data: Path) -> bool:
    """True when that process works in `data`; false for a zombie and for a pid given anew."""
    if Path("/proc/self/cwd").exists():
        try:
            return Path(f"/proc/{pid}/cwd").readlink() == data
        except OSError:
            return False
    listed = ["ps", "-o", "command=", "-p", str(pid)]
    return str(data) in subprocess.run(listed, capture_output=True, text=True, check=False).stdout


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Where nobody reaps orphans, as in many containers, the dead stay listed."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False
    return after_name.split()[0] in "ZX"


# ---- what is known of it -----------------------------------------------------------------------


def _read_running(place: Place) -> LocalServer:
    found = _find_postmaster(place)
    if found is None:
        raise _failure(place)
    url = _url(place, found.socket_directory)
    return LocalServer(url=url, directory=place.directory, pid=found.pid)


def _url(place: Place, sockets: str, *, database: str = NAME) -> str:
    """Names the port too, or the caller's PGPORT would choose another socket."""
    try:
        password = place.password.read_text()
    except FileNotFoundError:
        raise Corrupt(f"{place.data} is there, but {place.password} is missing") from None
    host = quote(os.fsencode(sockets), safe="/")
    login = f"{NAME}:{quote(password, safe='')}"
    return f"postgresql://{login}@/{database}?host={host}&port={PORT}"


def _find_server_version(url: str) -> str | None:
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            return connection.info.parameter_status("server_version")
    except psycopg.OperationalError:
        return None


def _failure(place: Place) -> UnsupportedSystem:
    return UnsupportedSystem(f"PostgreSQL did not start; {place.log} ends: {_last_word(place)}")


def _last_word(place: Place) -> str:
    """The last fatal line of the log, or its last line."""
    try:
        lines = place.log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return "(nothing)"
    fatal = [line for line in lines if "FATAL:" in line or "PANIC:" in line]
    return (fatal or lines or ["(nothing)"])[-1]
