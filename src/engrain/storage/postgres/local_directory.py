"""The directory of the local server: paths, privacy, the lock, and the database cluster in it.

The caller owns the directory; what PostgreSQL writes belongs to the account that runs it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from engrain.contracts.errors import Busy, UnsafeFile, UnsupportedSystem
from engrain.storage.postgres.local_programs import Account, require_posix

NAME: Final = "engrain"
"""Of the database and of the role that owns it."""
POLL_S: Final = 0.01
PORT: Final = 5432
SOCKET: Final = f".s.PGSQL.{PORT}"
_SOCKET_PATH_BYTES_MAX = 103
"""The shorter of Linux (107) and macOS (103)."""


class Place(msgspec.Struct, frozen=True):
    """The paths inside a server directory, which is resolved."""

    directory: Path

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def password(self) -> Path:
        return self.directory / "password"

    @property
    def pid_file(self) -> Path:
        return self.data / "postmaster.pid"


def prepare(directory: Path, owner: Account) -> Place:
    """Makes what is missing; raises `UnsafeFile` unless it is private and the server gets in."""
    place = Place(directory.resolve())
    missing = [folder for folder in _upwards(place.directory) if not folder.exists()]
    existing = missing[-1].parent if missing else place.directory
    _require_directory(existing)
    owner.require_entry(existing)
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(owner.directory_mode)
    require_private(place.directory, os.geteuid(), 0o022 if owner.is_other else 0o077)
    return place


def _upwards(directory: Path) -> tuple[Path, ...]:
    return directory, *directory.parents


def find_place(directory: Path) -> Place:
    """The place as it is; raises `UnsafeFile` when it is another user's."""
    require_posix()
    place = Place(directory.resolve())
    try:
        if place.directory.exists():
            require_private(place.directory, os.geteuid(), 0o022)
    except PermissionError:
        raise UnsafeFile(str(place.directory), "you cannot reach it") from None
    return place


def require_private(path: Path, uid: int, forbidden: int) -> None:
    """Raises `UnsafeFile` unless it is a directory of `uid` without a `forbidden` mode bit."""
    _require_directory(path)
    found = path.lstat()
    if found.st_uid != uid:
        raise UnsafeFile(str(path), "belongs to another user")
    if found.st_mode & forbidden:
        mode = stat.S_IMODE(found.st_mode)
        raise UnsafeFile(str(path), f"mode {mode:04o} lets others in", "chmod 700")


def _require_directory(path: Path) -> None:
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise UnsafeFile(str(path), "is not a directory")


@contextmanager
def locked(place: Place, deadline: float) -> Iterator[None]:
    """One starter or stopper at a time; raises `Busy` at the deadline."""
    import fcntl

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(place.directory / "lock", flags, 0o600)
    try:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() >= deadline:
                raise Busy(f"another process is starting or stopping {place.directory}")
            time.sleep(POLL_S)
        yield
    finally:
        os.close(lock)


def own_directory(path: Path, owner: Account) -> Path:
    """`path` as a 0700 directory of the server account; raises `UnsafeFile` if it is another's."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if path.lstat().st_uid == os.geteuid():
        owner.own(path)
    require_private(path, owner.uid, 0o077)
    return path


def socket_directory(place: Place, owner: Account) -> Path:
    """`run`, or a private directory with a short name when the path of the socket is too long.

    A comma would make two hosts of it in a URL.
    """
    name = f"engrain-{owner.uid}-{short_digest(place.directory)}"
    choices = (place.directory / "run", Path(tempfile.gettempdir()) / name, Path("/tmp") / name)
    for path in choices:
        fits = len(os.fsencode(path / SOCKET)) <= _SOCKET_PATH_BYTES_MAX
        if fits and not set(',"') & set(str(path)):
            return own_directory(path, owner)
    raise UnsafeFile(str(place.directory), "no short path for a socket", "set a shorter TMPDIR")


def short_digest(path: Path) -> str:
    return sha256(os.fsencode(path)).hexdigest()[:16]


def ensure_cluster(place: Place, owner: Account, programs: Path) -> None:
    """Data that initdb finished; what a killed initdb left is made anew."""
    if place.data.exists():
        require_private(place.data, owner.uid, 0o077)
        return
    unfinished = place.directory / "data.new"
    if unfinished.exists():
        shutil.rmtree(unfinished)
    own_directory(unfinished, owner)
    with _password_for(place, owner) as password_file:
        made = owner.run([programs / "initdb", *_initdb_flags(unfinished, password_file)])
    if made.returncode:
        said = (made.stderr or made.stdout).decode(errors="replace").strip()
        raise UnsupportedSystem(f"initdb failed: {said.splitlines()[-1] if said else 'silently'}")
    unfinished.rename(place.data)
    sync_directory(place.directory)


def _initdb_flags(data: Path, password_file: str) -> list[str]:
    return [
        f"--pgdata={data}",
        f"--username={NAME}",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--data-checksums",
        "--no-instructions",
    ]


@contextmanager
def _password_for(place: Place, owner: Account) -> Iterator[str]:
    """A passing copy of the password that the server account can read, for initdb alone."""
    if not place.password.exists():
        write_private(place.password, secrets.token_urlsafe(32))
    with tempfile.NamedTemporaryFile(dir=place.directory, prefix="initdb-") as copy:
        copy.write(place.password.read_bytes())
        copy.flush()
        owner.own(Path(copy.name))
        yield copy.name


def write_private(path: Path, text: str) -> None:
    """All of it, durable, or nothing."""
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
