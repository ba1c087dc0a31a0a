"""Leases: granted, prolonged and ended, each fenced by token and epoch in one transaction."""

from __future__ import annotations

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue, NotFound
from engrain.contracts.ids import Ids, SessionId, SessionKey
from engrain.contracts.leases import LeaseBinding, SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.workspace import Workspace
from engrain.rules.identity import token_digest
from engrain.rules.lease import HeldLease, check_holder, decide_claim
from engrain.storage.database import Database, Row, Writer
from engrain.storage.stores.scopes import Scopes
from engrain.storage.stores.sessions import resolve
from engrain.storage.stores.workspaces import confirm_workspace

TOKEN_BYTES = 32


class SqlLeaseStore:
    """Implements `LeaseStore` on either engine."""

    def __init__(self, database: Database, scopes: Scopes, ids: Ids) -> None:
        self._database = database
        self._scopes = scopes
        self._ids = ids

    def claim(
        self,
        scope: Scope,
        session_id: SessionId,
        *,
        ttl_us: int = limits.lease_ttl_us,
        workspace: Workspace | None = None,
    ) -> SessionLease:
        if not 0 < ttl_us <= limits.lease_ttl_us:
            raise InvalidValue("ttl_us", f"must be 1 to {limits.lease_ttl_us:,}")
        known, key = resolve(self._database, self._scopes, scope, session_id)
        digest = token_digest(self._ids.random_bytes(TOKEN_BYTES))

        def body(writer: Writer) -> tuple[int, int, Workspace]:
            row = _read(writer, key, session_id)
            epoch = decide_claim(HeldLease(*row[:3]), session_id, writer.now_us)
            deadline = writer.now_us + ttl_us
            writer.run(
                "leases.grant",
                scope_key=key.scope,
                session_key=key.session,
                digest=digest,
                epoch=epoch,
                deadline=deadline,
                opened_at=writer.now_us,
            )
            return epoch, deadline, confirm_workspace(writer, known.key, row[3], workspace)

        epoch, deadline, bound = self._database.write(key, body)
        binding = LeaseBinding(key, known.secret, bound)
        return SessionLease(
            scope,
            session_id,
            binding=binding,
            token=digest,
            epoch=epoch,
            deadline_us=deadline,
            ttl_us=ttl_us,
        )

    def renew(self, lease: SessionLease) -> None:
        binding, digest = lease.reveal()
        key = binding.key

        def body(writer: Writer) -> int:
            row = _read(writer, key, lease.session_id)
            check_holder(HeldLease(*row[:3]), digest, lease.epoch)
            deadline = writer.now_us + lease.ttl_us
            writer.run(
                "leases.prolong",
                scope_key=key.scope,
                session_key=key.session,
                deadline=deadline,
            )
            return deadline

        lease.deadline_us = self._database.write(key, body)

    def release(self, lease: SessionLease) -> None:
        self._database.write(lease.reveal()[0].key, lambda writer: _release(writer, lease))

    def release_at_once(self, lease: SessionLease) -> None:
        self._database.try_write(lease.reveal()[0].key, lambda writer: _release(writer, lease))


def _release(writer: Writer, lease: SessionLease) -> None:
    binding, digest = lease.reveal()
    writer.run(
        "leases.release",
        scope_key=binding.key.scope,
        session_key=binding.key.session,
        digest=digest,
        epoch=lease.epoch,
    )


def _read(writer: Writer, key: SessionKey, session_id: SessionId) -> Row:
    row = writer.one("leases.read", scope_key=key.scope, session_key=key.session)
    if row is None:
        raise NotFound("session", session_id)
    return row
