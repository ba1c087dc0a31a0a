"""Snapshots: one a session, written while it is empty, outside the compactable transcript."""

from __future__ import annotations

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue, LimitExceeded, NotFound, SnapshotMismatch
from engrain.contracts.ids import SessionId
from engrain.contracts.leases import SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.snapshots import SessionSnapshot
from engrain.contracts.workspace import Workspaces
from engrain.rules.canonical import canonical_bytes
from engrain.rules.drift import describe_drift
from engrain.rules.lease import HeldLease, check_authority
from engrain.storage.database import Database, Writer
from engrain.storage.stores.scopes import Scopes
from engrain.storage.stores.sessions import resolve

_decoder = msgspec.json.Decoder(SessionSnapshot)


class SqlSnapshotStore:
    """Implements `SnapshotStore` on either engine."""

    def __init__(self, database: Database, scopes: Scopes, workspaces: Workspaces) -> None:
        self._database = database
        self._scopes = scopes
        self._workspaces = workspaces

    def bind(self, lease: SessionLease, snapshot: SessionSnapshot) -> None:
        payload = encode_snapshot(snapshot)
        binding, digest = lease.reveal()
        key = {"scope_key": binding.key.scope, "session_key": binding.key.session}

        def body(writer: Writer) -> None:
            row = writer.one("transcript.head", **key)
            if row is None:
                raise NotFound("session", lease.session_id)
            check_authority(HeldLease(*row[3:6]), digest, lease.epoch, writer.now_us)
            if binding.workspace.is_directory:
                self._workspaces.validate(binding.workspace)
            found = writer.one("snapshots.read", **key)
            if found is not None:
                _demand_same(found[0], payload)
            elif row[0]:
                raise SnapshotMismatch("the session has history but no snapshot; fork it")
            else:
                add_snapshot(writer, key, payload)

        self._database.write(binding.key, body, size=len(payload))

    def read(self, scope: Scope, session_id: SessionId) -> SessionSnapshot:
        _, key = resolve(self._database, self._scopes, scope, session_id)
        with self._database.read() as reader:
            row = reader.one("snapshots.read", scope_key=key.scope, session_key=key.session)
        if row is None:
            raise NotFound("snapshot of session", session_id)
        return _decoder.decode(row[0])


def add_snapshot(writer: Writer, key: dict[str, int], payload: bytes) -> None:
    """Writes a session's one snapshot."""
    writer.run("snapshots.add", recorded_at=writer.now_us, payload=payload, **key)


def encode_snapshot(snapshot: SessionSnapshot) -> bytes:
    """The stored bytes of a snapshot, from which it is read back as it was.

    Raises `InvalidValue` or `InvalidJson` for what JSON cannot say, and `LimitExceeded`.
    """
    try:
        payload = msgspec.json.encode(snapshot, order="sorted")
        if len(payload) > limits.snapshot_bytes_max:
            raise LimitExceeded("snapshot_bytes_max", limits.snapshot_bytes_max, len(payload))
        canonical_bytes(msgspec.to_builtins(snapshot))  # checks bounds, numbers and text
        _decoder.decode(payload)
    except RecursionError:
        raise LimitExceeded("json_depth_max", limits.json_depth_max) from None
    except UnicodeEncodeError:
        raise InvalidValue("snapshot", "holds a lone surrogate") from None
    except msgspec.ValidationError:  # its text may quote a value
        raise InvalidValue("snapshot", "a field has another type than it should") from None
    except (TypeError, OverflowError):
        raise InvalidValue("snapshot", "holds what JSON cannot say") from None
    return payload


def canonical_form(payload: bytes) -> bytes:
    """The bytes that equal snapshots share, however their numbers and keys were written."""
    return canonical_bytes(msgspec.json.decode(payload))


def _demand_same(stored: bytes, offered: bytes) -> None:
    if stored != offered and canonical_form(stored) != canonical_form(offered):
        differences = describe_drift(_decoder.decode(stored), _decoder.decode(offered))
        raise SnapshotMismatch(
            "the session was made with another configuration or tool authority; fork it to go on "
            "with this one: " + "; ".join(differences),
            differences,
        )
