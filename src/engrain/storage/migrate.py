"""Numbered, checksummed migrations: each is applied once, whole, in its own transaction."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Protocol

import msgspec

from engrain.contracts.errors import Corrupt, NewerSchema

_FILE = re.compile(r"(\d{4})_([a-z_]+)\.sql")


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema. `statements` run in order in one transaction."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return sha256(self.text.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The statements, split at a semicolon that ends a line, comments removed."""
        lines = [line for line in self.text.splitlines() if not line.lstrip().startswith("--")]
        parts = re.split(r";\s*$", "\n".join(lines), flags=re.MULTILINE)
        return [part.strip() for part in parts if part.strip()]


class Applied(msgspec.Struct, frozen=True):
    """A migration that the database has had, and the checksum of its text then."""

    number: int
    checksum: str


class Migrator(Protocol):
    """What an engine offers to be migrated; the caller holds its first-open lock."""

    def list_applied(self) -> list[Applied]: ...

    def apply(self, migration: Migration) -> None:
        """The statements and their record, in one transaction."""
        ...


@cache
def load_migrations(package: str) -> tuple[Migration, ...]:
    """The migrations of an engine's package, by number."""
    found = []
    for file in (resources.files(package) / "migrations").iterdir():
        if match := _FILE.fullmatch(file.name):
            found.append(Migration(int(match[1]), match[2], file.read_text("utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.number))


def pending(applied: list[Applied], known: tuple[Migration, ...]) -> list[Migration]:
    """What is still to be applied.

    Raises `NewerSchema` when the database knows more than we do, and `Corrupt` when a migration
    that was applied is not the one we know (INV-08).
    """
    by_number = {migration.number: migration for migration in known}
    for done in applied:
        if done.number not in by_number:
            raise NewerSchema(
                f"the database has migration {done.number}, this version knows up to "
                f"{max(by_number, default=0)}; upgrade Engrain",
                found=done.number,
            )
        if by_number[done.number].checksum != done.checksum:
            raise Corrupt(f"migration {done.number} in the database is not the one shipped")
    finished = {done.number for done in applied}
    return [migration for migration in known if migration.number not in finished]


def migrate(engine: Migrator, known: tuple[Migration, ...]) -> int:
    """Brings the schema up to date; how many migrations it applied."""
    todo = pending(engine.list_applied(), known)
    for migration in todo:
        engine.apply(migration)
    return len(todo)
