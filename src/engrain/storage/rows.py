"""Rows to values: the one place where columns become contract types, and back."""

from __future__ import annotations

from uuid import UUID

import msgspec

from engrain.contracts.episodes import Episode
from engrain.contracts.ids import EpisodeId, SessionId
from engrain.contracts.scope import Sensitivity
from engrain.contracts.sessions import ForkPoint, Session
from engrain.contracts.terms import unpack_episode_key
from engrain.contracts.workspace import DirectoryIdentity, Workspace
from engrain.storage.database import Row

_NAMED = b"named:"
_DIRECTORY = b"directory:"
_identity = msgspec.msgpack.Decoder(DirectoryIdentity)
_labels = msgspec.json.Decoder(tuple[str, ...])


def workspace_identity(workspace: Workspace) -> bytes:
    """The bytes that tell workspaces of one scope apart: a name, or a directory's identity."""
    if workspace.identity is None:
        return _NAMED + workspace.name.encode()
    return _DIRECTORY + msgspec.msgpack.encode(workspace.identity)


def read_workspace(identity: bytes, name: str) -> Workspace:
    """The inverse of `workspace_identity`, with the name that it was last seen under."""
    if identity.startswith(_NAMED):
        return Workspace(name=name)
    return Workspace(name=name, identity=_identity.decode(identity[len(_DIRECTORY) :]))


def read_session(row: Row) -> Session:
    """A session from the columns of `sessions.read`."""
    forked_from, forked_sequence = row[10], row[11]
    fork = ForkPoint(SessionId(UUID(bytes=forked_from)), forked_sequence) if forked_from else None
    return Session(
        id=SessionId(UUID(bytes=row[0])),
        title=row[1],
        workspace=read_workspace(row[2], row[3]),
        created_at=row[4],
        opened_at=row[5],
        updated_at=row[6],
        event_count=row[7],
        leased_until=row[9] if row[8] else None,
        forked_from=fork,
    )


def read_episode(row: Row) -> Episode:
    """An episode from the columns of `episodes.read`."""
    return Episode(
        id=EpisodeId(UUID(bytes=row[0])),
        session_id=SessionId(UUID(bytes=row[1])),
        number=unpack_episode_key(row[2])[1],
        text=row[3],
        first_sequence=row[4],
        last_sequence=row[5],
        ordinal=row[6],
        occurred_from=row[7],
        occurred_to=row[8],
        recorded_at=row[9],
        speaker=row[10],
        importance=row[11],
        origin=row[12],
        sensitivity=Sensitivity(row[13]),
        labels=_labels.decode(row[14]),
        tokens=row[15],
    )


def write_labels(labels: tuple[str, ...]) -> str:
    """Labels as the text that their column holds."""
    return msgspec.json.encode(labels).decode()
