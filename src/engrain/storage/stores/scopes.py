"""Scopes: the random key and the secret behind each, found once and remembered."""

from __future__ import annotations

import msgspec

from engrain.contracts.clock import Clock
from engrain.contracts.errors import InvalidValue
from engrain.contracts.ids import Ids, ScopeKey
from engrain.contracts.scope import Scope
from engrain.storage.database import Database

SECRET_BYTES = 32


class KnownScope(msgspec.Struct, frozen=True):
    """A scope's storage key and the secret that its ids and marks are derived with."""

    key: ScopeKey
    secret: bytes

    def __repr__(self) -> str:
        return "KnownScope(…)"


class Scopes:
    """Resolves scopes for the other stores of one database."""

    def __init__(self, database: Database, ids: Ids, clock: Clock) -> None:
        self._database = database
        self._ids = ids
        self._clock = clock
        self._known: dict[Scope, KnownScope] = {}

    def find(self, scope: Scope) -> KnownScope | None:
        """The scope, or None while nothing was ever written to it."""
        if not isinstance(scope, Scope):
            raise InvalidValue("scope", "must be a Scope")
        known = self._known.get(scope)
        if known is None:
            with self._database.read() as reader:
                row = reader.one("scopes.find", org=scope.org, user_name=scope.user)
            if row is None:
                return None
            known = self._known[scope] = KnownScope(ScopeKey(row[0]), row[1])
        return known

    def ensure(self, scope: Scope) -> KnownScope:
        """The scope, made with a fresh key and secret when it is new."""
        if known := self.find(scope):
            return known
        key, secret = self._ids.scope_key(), self._ids.random_bytes(SECRET_BYTES)
        created_at = self._clock.now_us()
        self._database.write(
            None,
            lambda writer: writer.run(
                "scopes.add",
                scope_key=key,
                org=scope.org,
                user_name=scope.user,
                secret=secret,
                created_at=created_at,
            ),
        )
        found = self.find(scope)
        assert found is not None
        return found
