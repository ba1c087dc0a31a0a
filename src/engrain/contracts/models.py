"""The model that a session is bound to: a typed value, never a bare string.

An installed model is files of this home, a provider model is somewhere else. Both have a stable
`reference`, which session snapshots hold under `MODEL_KEY` and by which a removal is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue
from engrain.contracts.text import require_short_text

MODEL_KEY: Final = "model"
"""Where a session snapshot's configuration holds the builtins of its model."""
NAME_CHARS_MAX: Final = 64
FILES_MAX: Final = 10_000
FOLDER_DEPTH_MAX: Final = 16
FILE_NAME_BYTES_MAX: Final = 1_024
RECORD_BYTES_MAX: Final = 32 * limits.MIB
LOCK_WAIT_US: Final = 30 * limits.SECOND_US
"""A linked model is hashed under the lock, so others wait longer than for a commit."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9.-]*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD_BYTES_MAX: Final = 256
_ENDPOINT_BYTES_MAX: Final = 2 * limits.KIB
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

Arrival = Literal["copy", "move", "link"]
"""How files became a model: copied, taken over, or left where they are."""
Progress = Callable[[int, int], None]
"""Told the bytes that were read, and of how many."""


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a model; `name` is relative, its parts joined by '/'."""

    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a model consists of, sorted by name."""

    files: tuple[FileEntry, ...]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files)

    @property
    def digest(self) -> str:
        """SHA-256 over names, sizes and hashes; equal for equal content, wherever it lies."""
        hashed = hashlib.sha256(b"engrain model manifest 1\0")
        for entry in self.files:
            hashed.update(f"{entry.name}\0{entry.size}\0{entry.sha256}\0".encode())
        return hashed.hexdigest()


class FileStamp(msgspec.Struct, frozen=True, kw_only=True):
    """What a file looks like from outside; any write to it or swap of it changes this."""

    name: str
    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class LinkTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a linked model lies: the path as it was given, where it led, and to which thing.

    `birth_ns` tells it from a later one with the same inode number; 0 where the system tells none.
    """

    path: str
    target: str
    device: int
    inode: int
    birth_ns: int


class InstalledModel(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="installed"):
    """A model of local files. `snapshot` names its exact content, `reference` its name for good."""

    name: str
    reference: str
    snapshot: str
    arrival: Arrival
    manifest_digest: str
    size: int
    file_count: int


class ProviderModel(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="provider"):
    """A model behind an endpoint.

    `endpoint` None is the provider's own; `endpoint_revision` is what the caller pins there, a
    deployment or a date. `key_variable` names the environment variable with the key, never the key.
    """

    name: str
    provider: str
    model: str
    endpoint: str | None = None
    endpoint_revision: str | None = None
    key_variable: str | None = None
    reference: str = ""

    def __post_init__(self) -> None:
        require_model_name(self.name)
        _require_match(self.provider, "provider", _PROVIDER, "small letters, digits, '.' and '-'")
        require_short_text(self.model, "model", _WORD_BYTES_MAX)
        if self.endpoint_revision is not None:
            require_short_text(self.endpoint_revision, "endpoint_revision", _WORD_BYTES_MAX)
        if self.key_variable is not None:
            _require_match(self.key_variable, "key_variable", _VARIABLE, "the NAME of a variable")
        if self.endpoint is not None:
            require_endpoint(self.endpoint, has_key=self.key_variable is not None)
        expected = reference_of("provider", self.name)
        if self.reference not in ("", expected):
            raise InvalidValue("reference", "does not belong to the name")
        msgspec.structs.force_setattr(self, "reference", expected)


Model = InstalledModel | ProviderModel


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a home keeps of one model. `link` is where a linked one lies; stamps are of owned ones.

    A provider model has neither files nor stamps.
    """

    model: Model
    added_at: int
    manifest: Manifest = Manifest(files=())
    stamps: tuple[FileStamp, ...] = ()
    link: LinkTarget | None = None
    version: Literal[1] = 1


class VerifiedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Every byte was read and is what was installed; `restamped` when only the outside had changed.

    A copied or restored home changes the outside of every file.
    """

    name: str
    file_count: int
    size: int
    snapshot: str | None
    restamped: bool = False


class ReferenceGuard(Protocol):
    """Knows which sessions hold on to a model."""

    def count_sessions(self, reference: str, places: Sequence[str]) -> int:
        """Sessions whose snapshot names `reference`, in the home's databases and at `places`.

        Creates no database. Raises whatever kept any of them from answering: the caller takes that
        for a reference.
        """
        ...


def reference_of(kind: str, name: str) -> str:
    """The stable reference: a name stays taken while any session holds on to it."""
    return f"{kind}:{name}"


def installed_model(name: str, arrival: Arrival, manifest: Manifest) -> InstalledModel:
    """The value that sessions are bound to, derived from what the files are."""
    return InstalledModel(
        name=require_model_name(name),
        reference=reference_of("installed", name),
        snapshot=f"sha256:{manifest.digest}",
        arrival=arrival,
        manifest_digest=manifest.digest,
        size=manifest.size,
        file_count=len(manifest.files),
    )


def model_builtins(model: Model) -> dict[str, Any]:
    """The form that a session snapshot's configuration holds under `MODEL_KEY`."""
    form: dict[str, Any] = msgspec.to_builtins(model)
    return form


def require_model_name(name: str) -> str:
    """`name` itself; raises `InvalidValue` for what could be a path, be hidden, or is too long."""
    _require_match(name, "name", _NAME, "letters, digits, '.', '_' and '-', no '.' first")
    if len(name) > NAME_CHARS_MAX:
        raise InvalidValue("name", f"has at most {NAME_CHARS_MAX} characters")
    return name


def require_endpoint(endpoint: str, *, has_key: bool) -> str:
    """`endpoint` itself; raises `InvalidValue` for one that holds or would give away a secret."""
    require_short_text(endpoint, "endpoint", _ENDPOINT_BYTES_MAX)
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidValue("endpoint", "is no URL") from None
    if parts.scheme not in ("http", "https") or not host or not endpoint.isprintable():
        raise InvalidValue("endpoint", "must be http://HOST/… or https://HOST/…")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidValue("endpoint", "holds no user, password, query or fragment")
    if has_key and parts.scheme == "http" and host not in _LOOPBACK:
        raise InvalidValue("endpoint", "would get the key over plain http; use https")
    return endpoint


def _require_match(text: str, field: str, pattern: re.Pattern[str], of: str) -> None:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise InvalidValue(field, f"must be {of}")
