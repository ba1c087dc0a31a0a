"""The one place that wires: `Memory.open(url)` and everything that hangs on it."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from engrain.agent.stores import AgentStores
from engrain.config import Config
from engrain.contracts import limits
from engrain.contracts.audit import AuditStore
from engrain.contracts.clock import Clock
from engrain.contracts.episodes import EpisodeStore
from engrain.contracts.errors import InvalidValue, Refused, Uncertain
from engrain.contracts.ids import Ids, SessionId
from engrain.contracts.imports import FormatReader
from engrain.contracts.scope import Scope
from engrain.contracts.text import require_text
from engrain.contracts.workspace import Workspaces
from engrain.services.recovery import Recovery
from engrain.services.sessions import Sessions, WorkspaceLike
from engrain.storage.database import Database
from engrain.storage.engine import open_database
from engrain.storage.stores.audit import SqlAuditStore
from engrain.storage.stores.forks import SqlForkStore
from engrain.storage.stores.journal import SqlJournalStore
from engrain.storage.stores.leases import SqlLeaseStore
from engrain.storage.stores.scopes import Scopes
from engrain.storage.stores.sessions import SqlSessionStore
from engrain.storage.stores.snapshots import SqlSnapshotStore
from engrain.storage.stores.transcript import SqlTranscriptStore
from engrain.system.clock import SystemClock
from engrain.system.ids import SystemIds
from engrain.system.workspace import SystemWorkspaces

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from engrain.agent.session import DurableAgentSession
    from engrain.agent.turn import Approve
    from engrain.services.enrichment import Enrichment
    from engrain.services.imports import Imports
    from engrain.services.models import Models
    from engrain.services.recall import Recall
    from engrain.system.home import Home

P = ParamSpec("P")
T = TypeVar("T")


def open_models(home: Home, *, place: str | None = None, clock: Clock | None = None) -> Models:
    """The models of a home, which are removed only when no session of any database needs them.

    `place` names the database that sessions are bound in, when it is not the home's own.
    """
    from engrain.services.models import Models
    from engrain.storage.model_references import SqlReferenceGuard

    time = clock or SystemClock()
    return Models(home, SqlReferenceGuard(home.database, time), place=place, clock=time)


def _load_readers() -> Sequence[FormatReader]:
    from engrain.formats.registry import READERS

    return READERS


def _url_of(url: str | os.PathLike[str]) -> str:
    """The path or URL as text that any driver takes."""
    if not isinstance(url, str | os.PathLike):
        raise InvalidValue("url", "must be a path, :memory: or postgresql://…")
    return require_text(os.fspath(url), "url")


def _folder_of(assets: str | os.PathLike[str] | None) -> Path | None:
    if assets is None:
        return None
    if not isinstance(assets, str | os.PathLike):
        raise InvalidValue("assets", "must be a path")
    return Path(require_text(os.fspath(assets), "assets"))


class Memory:
    """One open memory. Use it in a `with` block, or call `close()`.

    Every verb is synchronous and safe to call from many threads; `run` is the async door.
    """

    sessions: Sessions
    episodes: EpisodeStore
    enrichment: Enrichment
    imports: Imports
    recall: Recall
    recovery: Recovery
    audit: AuditStore

    def __init__(
        self,
        database: Database,
        config: Config,
        *,
        clock: Clock,
        ids: Ids,
        workspaces: Workspaces,
    ) -> None:
        # Tables of characters and readers of files are a third of the import; opening waits anyway.
        from engrain.services.enrichment import Enrichment
        from engrain.services.imports import Imports
        from engrain.services.recall import Recall
        from engrain.storage.stores.episodes import SqlEpisodeStore

        self.config = config
        self._database = database
        self._pool: ThreadPoolExecutor | None = None
        self._pool_lock = Lock()
        self._is_closed = False
        scopes = Scopes(database, ids, clock)
        audit = SqlAuditStore(database, scopes)
        sessions = SqlSessionStore(database, scopes, ids)
        leases = SqlLeaseStore(database, scopes, ids)
        transcript = SqlTranscriptStore(database, scopes, ids, workspaces, audit)
        episodes = SqlEpisodeStore(database, scopes)
        snapshots = SqlSnapshotStore(database, scopes, workspaces)
        journal = SqlJournalStore(database, scopes, ids, workspaces)
        enrichment = Enrichment(transcript, episodes)
        self.audit = audit
        self.episodes = episodes
        self.enrichment = enrichment
        self.recall = Recall(episodes)
        self.sessions = Sessions(
            sessions,
            leases,
            transcript,
            snapshots,
            SqlForkStore(database, scopes, ids),
            workspaces,
        )
        self._agent_stores = AgentStores(
            run=self.run,
            sessions=sessions,
            leases=leases,
            transcript=transcript,
            snapshots=snapshots,
            journal=journal,
            workspaces=workspaces,
        )
        self.recovery = Recovery(leases, transcript, journal)
        self.imports = Imports(_load_readers, sessions, leases, transcript, enrichment)

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        assets: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        workspaces: Workspaces | None = None,
    ) -> Memory:
        """Opens the memory at a path, `:memory:` or `postgresql://…`; a new path is created.

        `assets` is the folder of a SQLite database's media, when not the one beside it.
        Raises `DatabaseMissing`, `NewerSchema` or `UnsafeFile` with what to do about it. `clock`,
        `ids` and `workspaces` replace what the machine gives, for tests.
        """
        where = _url_of(url)
        time = clock or SystemClock()
        return cls(
            open_database(where, time, assets=_folder_of(assets), is_clock_held=clock is not None),
            Config(url=where),
            clock=time,
            ids=ids or SystemIds(),
            workspaces=workspaces or SystemWorkspaces(),
        )

    async def run(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a verb on a worker thread; the event loop never waits for a disk.

        A cancelled call ends when its verb has ended, so that no write goes on unseen; it raises
        `Uncertain` instead when the verb's acknowledgement was lost.
        """
        import asyncio  # the async door alone needs it, and it costs as much as all the rest

        if not callable(verb):
            raise InvalidValue("verb", "must be callable: run(memory.recall, ana, …)")
        work = functools.partial(verb, *args, **kwargs)
        future = asyncio.get_running_loop().run_in_executor(self._workers(), work)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None and not isinstance(future.exception(), Uncertain):
            raise cancelled
        return future.result()

    def durable(
        self,
        agent: object,
        scope: Scope,
        session_id: SessionId,
        *,
        workspace: WorkspaceLike = None,
        approve: Approve | None = None,
        lease_ttl_us: int = limits.lease_ttl_us,
    ) -> DurableAgentSession:
        """The agent at work in a session: `async with memory.durable(…) as durable`.

        `agent` is a pydantic-ai `Agent`, a `PlainAgent` or another `Loop`. `approve` is asked
        about each call of a tool that needs a person's word; without it they are refused.
        """
        from engrain.agent.adapters import loop_of
        from engrain.agent.session import DurableAgentSession

        return DurableAgentSession(
            self._agent_stores,
            loop_of(agent),
            scope,
            session_id,
            workspace=None if workspace is None else self.sessions.workspace(workspace),
            approve=approve,
            lease_ttl_us=lease_ttl_us,
        )

    def _workers(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        with self._pool_lock:
            if self._is_closed:
                raise Refused("the memory is closed")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.config.async_workers, "engrain")
            return self._pool

    def close(self) -> None:
        """Frees every connection and file. Closing twice is harmless."""
        with self._pool_lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown()
        self._database.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            warnings.warn("a Memory was not closed", ResourceWarning, source=self, stacklevel=2)
            self.close()
