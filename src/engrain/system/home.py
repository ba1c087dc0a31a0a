"""Where Engrain keeps what it keeps when nobody names a place of their own.

Owns the folder's layout and how it is found and made. What a database is made of is
`storage/sqlite/files.py`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from engrain.contracts.errors import InvalidValue, UnsafeFile
from engrain.system.environment import Environment
from engrain.system.private_files import check_private_directory, make_private_directory

_FOLDER = "engrain"


class Home(msgspec.Struct, frozen=True):
    """The folder that holds everything of one installation; nothing is made by naming it."""

    path: Path

    @property
    def memory(self) -> Path:
        """The private folder around the database."""
        return self.path / "memory"

    @property
    def database(self) -> Path:
        return self.memory / "engrain.sqlite3"

    @property
    def assets(self) -> Path:
        return self.memory / "assets"

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def postgres(self) -> Path:
        """The folder of the local server to try PostgreSQL with."""
        return self.path / "postgres"

    def prepare(self) -> None:
        """Makes the home and its memory folder, each folder that is made with mode 0700.

        Raises `UnsafeFile` when another user could write to either (INV-01). The database's own
        files and its asset folder come with the database.
        """
        make_private_path(self.path)
        check_private_directory(self.path)
        make_private_path(self.memory)
        check_private_directory(self.memory)


def find_home(explicit: str | None, environment: Environment) -> Home:
    """The home that was named, else `ENGRAIN_HOME`, else `engrain` in the user's data folder.

    A relative path counts from the working directory, `~` is the user's own folder. Raises
    `InvalidValue` for an empty name, which is a variable that was never set.
    """
    if explicit is not None and not explicit:
        raise InvalidValue("home", "must not be empty")
    named = explicit or environment.home
    place = Path(named) if named else user_data_folder(environment, sys.platform) / _FOLDER
    try:
        return Home(_expand(place).absolute())
    except FileNotFoundError:
        raise UnsafeFile(str(place), "the working directory was removed") from None


def user_data_folder(environment: Environment, platform: str) -> Path:
    """Where `platform` (as in `sys.platform`) keeps a user's data; may begin with `~`.

    XDG Base Directory Specification 0.8: a relative `XDG_DATA_HOME` is ignored.
    """
    if platform == "darwin":
        return Path("~/Library/Application Support")
    named = environment.data_home
    if named is not None and Path(named).is_absolute():
        return Path(named)
    return Path("~/.local/share")


def make_private_path(path: Path) -> None:
    """Makes `path` and every missing folder above it, each with mode 0700.

    What is there stays as it is; two processes may do this at once. Raises `UnsafeFile` when a
    file stands in the way.
    """
    for folder in (*reversed(path.parents), path):
        try:
            if not folder.is_dir():
                _make_or_meet(folder)
        except OSError as error:
            raise UnsafeFile(str(folder), f"cannot be made ({error.strerror})") from error


def _make_or_meet(folder: Path) -> None:
    try:
        make_private_directory(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise UnsafeFile(str(folder), "is not a directory") from None


def _expand(path: Path) -> Path:
    """The path with `~` replaced; a `HOME` that is empty would lead to the root of the system."""
    no_home = InvalidValue(
        "home", "this account has no home folder; pass --home or set ENGRAIN_HOME"
    )
    if path.parts[:1] == ("~",) and os.environ.get("HOME") == "":
        raise no_home
    try:
        return path.expanduser()
    except RuntimeError:
        raise no_home from None
