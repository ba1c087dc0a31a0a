"""`<home>/models`: one private folder a model, published by a rename and retired by one.

    .lock            held by whoever changes a model or binds a session to one
    .databases.json  where sessions were bound to models of this home, besides its own database
    .draft-…         a model on its way in; its maker holds a lock on the folder itself
    .removed-…       a model on its way out
    NAME/model.json  the record, and NAME/files/ what was copied or moved in

A draft or a retired folder that nobody holds is what a killed process left; the next draft sweeps
it away. Who may change what is decided by `services/models.py`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from engrain.contracts.errors import Conflict, Corrupt, EngrainError, NotFound, UnsafeFile
from engrain.contracts.faults import reach
from engrain.contracts.models import (
    LOCK_WAIT_US,
    RECORD_BYTES_MAX,
    InstalledModel,
    ModelRecord,
    installed_model,
    require_model_name,
)
from engrain.system.home import Home, make_private_path
from engrain.system.locks import FileLock
from engrain.system.private_files import (
    check_private_directory,
    check_private_file,
    create_private_file,
    fsync_directory,
    make_private_directory,
)

_LOCK: Final = ".lock"
_DATABASES: Final = ".databases.json"
_DRAFT: Final = ".draft-"
_REMOVED: Final = ".removed-"
_RECORD: Final = "model.json"
_FILES: Final = "files"


class Draft:
    """A model on its way in, held by its maker until it is published or discarded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = path / _FILES
        make_private_directory(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def write(self, record: ModelRecord) -> None:
        """The record, durable."""
        write_private(self.path / _RECORD, msgspec.json.encode(record))

    def discard(self) -> None:
        """Ends the draft; what was not published is gone."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


class ModelFolder:
    """The models of one home. What changes anything wants the lock held."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.path = home.models

    def prepare(self) -> None:
        """Makes what is missing, private. Raises `UnsafeFile` when others could write to it."""
        make_private_path(self._home.path)
        check_private_directory(self._home.path)
        make_private_path(self.path)
        self._check()
        with suppress(FileExistsError):
            create_private_file(self.path / _LOCK)

    @property
    def is_made(self) -> bool:
        return os.path.lexists(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the home-wide lock; `Busy` after a bounded wait."""
        self._check()
        with suppress(FileExistsError):  # a restored home may lack it
            create_private_file(self.path / _LOCK)
        lock = FileLock(self.path / _LOCK)
        try:
            lock.acquire(LOCK_WAIT_US)
            try:
                yield
            finally:
                lock.release()
        finally:
            lock.close()

    def list_names(self) -> tuple[str, ...]:
        """Names of what is installed, sorted."""
        if not self.is_made:
            return ()
        self._check()
        return tuple(sorted(each.name for each in self.path.iterdir() if each.name[0] != "."))

    def has(self, name: str) -> bool:
        return self.is_made and os.path.lexists(self._place(name))

    def read(self, name: str) -> ModelRecord:
        """The record, consistent in itself. Raises `NotFound`, `Corrupt` or `UnsafeFile`."""
        place = self._place(name)
        if not self.has(name):
            raise NotFound("model", name, where=" in this home")
        self._check()
        if place.is_symlink():
            raise UnsafeFile(str(place), "is a symbolic link")
        check_private_directory(place)
        record = _decode(read_private(place / _RECORD), place)
        if record.model.name != name or not _is_consistent(record):
            raise Corrupt(f"{place / _RECORD} contradicts itself; remove the model and add it anew")
        return record

    def files_of(self, name: str) -> Path:
        """Where files lie that this home owns."""
        return self._place(name) / _FILES

    def begin(self) -> Draft:
        """An empty draft; sweeps away what killed processes left."""
        self._sweep()
        return Draft(self.path / f"{_DRAFT}{secrets.token_hex(8)}")

    def publish(self, draft: Draft, name: str) -> None:
        """Makes the draft the model `name` at once, durably; `Conflict` when the name is taken."""
        self.refuse_taken(name)
        fsync_directory(draft.path)
        reach("models.publish")
        draft.path.rename(self._place(name))
        fsync_directory(self.path)
        reach("models.published")

    def refuse_taken(self, name: str) -> None:
        if self.has(name):
            raise Conflict(f"model {name} is there already; remove it, or choose another name")

    def rewrite(self, record: ModelRecord) -> None:
        """Replaces a model's record at once, durably."""
        write_private(self._place(record.model.name) / _RECORD, msgspec.json.encode(record))

    def retire(self, name: str) -> Path:
        """Takes the name away at once, durably; the folder that is left is for `erase_retired`."""
        retired = self.path / f"{_REMOVED}{secrets.token_hex(8)}"
        self._place(name).rename(retired)
        fsync_directory(self.path)
        reach("models.retired")
        return retired

    def _place(self, name: str) -> Path:
        return self.path / require_model_name(name)

    def _check(self) -> None:
        if self.path.is_symlink():
            raise UnsafeFile(str(self.path), "is a symbolic link")
        check_private_directory(self.path)

    def _sweep(self) -> None:
        for each in self.path.iterdir():
            if each.name.startswith((_DRAFT, _REMOVED)):
                _sweep_unless_held(each)


class BoundPlaces:
    """Databases besides the home's own whose sessions were bound to models of this home."""

    def __init__(self, home: Home) -> None:
        self._path = home.models / _DATABASES

    def list(self) -> tuple[str, ...]:
        """Paths and URLs, sorted."""
        if not os.path.lexists(self._path):
            return ()
        try:
            return msgspec.json.decode(read_private(self._path), type=tuple[str, ...])
        except msgspec.DecodeError:
            raise Corrupt(f"{self._path} is no list of databases") from None

    def note(self, place: str) -> None:
        """Remembers a database durably; the caller holds the home's lock."""
        places = self.list()
        if place not in places:
            write_private(self._path, msgspec.json.encode(sorted({*places, place})))


def erase_retired(path: Path) -> None:
    """Removes a retired folder; what cannot be removed now is swept away later."""
    shutil.rmtree(path, ignore_errors=True)


def write_private(path: Path, content: bytes) -> None:
    """Puts a private file with `content` at `path` at once, durably."""
    draft = path.with_name(f".{path.name.lstrip('.')}.new")
    draft.unlink(missing_ok=True)
    create_private_file(draft)
    descriptor = os.open(draft, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    draft.rename(path)
    fsync_directory(path.parent)


def read_private(path: Path) -> bytes:
    """The content of a private file. Raises `UnsafeFile` or, when it is too long, `Corrupt`."""
    check_private_file(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(RECORD_BYTES_MAX + 1)
    if len(content) > RECORD_BYTES_MAX:
        raise Corrupt(f"{path} is longer than any record")
    return content


def _sweep_unless_held(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:  # its maker lives
        pass
    finally:
        os.close(descriptor)


def _decode(content: bytes, place: Path) -> ModelRecord:
    try:
        return msgspec.json.decode(content, type=ModelRecord)
    except (msgspec.DecodeError, EngrainError, UnicodeDecodeError):
        raise Corrupt(f"{place / _RECORD} is no record of a model") from None


def _is_consistent(record: ModelRecord) -> bool:
    model = record.model
    if not isinstance(model, InstalledModel):
        return not record.manifest.files and record.link is None and not record.stamps
    names = [entry.name for entry in record.manifest.files]
    stamped = [stamp.name for stamp in record.stamps]
    is_whole = (
        stamped == [] if model.arrival == "link" else stamped == names and record.link is None
    )
    is_linked = (record.link is not None) == (model.arrival == "link")
    return (
        is_whole
        and is_linked
        and model == installed_model(model.name, model.arrival, record.manifest)
    )
