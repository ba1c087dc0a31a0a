"""What a store may ask of an engine: run named queries inside one read or write transaction.

A write names its anchor, the row that serialises it. Bodies may be run again after a rollback, so
they touch nothing but the transaction. Anchors lock in the order scope, session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from engrain.contracts.ids import ScopeKey, SessionKey

T = TypeVar("T")
Row = tuple[Any, ...]
Parameters = Mapping[str, object]
Anchor = ScopeKey | SessionKey | None
"""None is for the one verb that has no row to lock yet: adding a scope."""


class Reader(Protocol):
    """A consistent view. Query names are `noun.name`; rows are tuples in the columns' order."""

    def one(self, query: str, **parameters: object) -> Row | None:
        """The first row, or None."""
        ...

    def all(self, query: str, **parameters: object) -> list[Row]: ...

    def all_of(self, query: str, each: Sequence[Parameters]) -> list[list[Row]]:
        """The rows for every set of parameters, in their order, in one round trip."""
        ...


class Writer(Reader, Protocol):
    """A write transaction that holds its anchor."""

    @property
    def now_us(self) -> int:
        """The time of this transaction by the database's clock, read once the anchor is held."""
        ...

    def run(self, query: str, **parameters: object) -> None: ...

    def run_many(self, query: str, rows: Iterable[Parameters]) -> None: ...


class Database(Protocol):
    """One open database."""

    def read(self) -> AbstractContextManager[Reader]: ...

    def write(self, anchor: Anchor, body: Callable[[Writer], T], *, size: int = 0) -> T:
        """What `body` returned, durable. `size` estimates the bytes that it writes.

        Raises `Busy` when the wait was over before anything was done, `Uncertain` when the
        acknowledgement of the commit was lost.
        """
        ...

    def try_write(self, anchor: Anchor, body: Callable[[Writer], T]) -> T | None:
        """`write` that never waits: None when the database or the anchor is held by another."""
        ...

    def close(self) -> None: ...
