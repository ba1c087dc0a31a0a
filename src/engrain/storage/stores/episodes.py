"""Episodes: appended with their search terms, read, listed, searched and forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec

from engrain.contracts import limits
from engrain.contracts.arguments import require_sequence, require_whole
from engrain.contracts.episodes import (
    Episode,
    EpisodePage,
    EpisodeReceipt,
    Hit,
    NewEpisode,
)
from engrain.contracts.errors import InvalidValue, LimitExceeded, NotFound
from engrain.contracts.ids import EpisodeId, ScopeKey, SessionId, SessionKey, require_id
from engrain.contracts.scope import Scope
from engrain.contracts.terms import Ranked, pack_episode_key, unpack_episode_key
from engrain.rules.budget import estimate_tokens
from engrain.rules.cursors import seal, unseal
from engrain.rules.identity import episode_id, twin_mark
from engrain.rules.ranking import rank
from engrain.rules.terms import episode_terms, query_terms
from engrain.rules.twins import twin_text
from engrain.rules.validation import check_episode
from engrain.storage.database import Database, Reader, Row, Writer
from engrain.storage.rows import read_episode, write_labels
from engrain.storage.stores.pages import check_page_limit
from engrain.storage.stores.scopes import KnownScope, Scopes
from engrain.storage.stores.sessions import find_key, resolve
from engrain.storage.stores.terms import add_to_tail, look_up, remove_from_index, settle_tail

_CURSOR = "episodes"
_TWIN_COLUMN, _FAMILY_COLUMN = 16, 17


class PreparedEpisode(msgspec.Struct, frozen=True):
    """An episode with all that is derived from its words, made before the transaction."""

    id: EpisodeId
    new: NewEpisode
    twin: bytes
    tokens: int
    counts: dict[str, int]
    length: int


Rows = list[Row]


class SqlEpisodeStore:
    """Implements `EpisodeStore` on either engine."""

    def __init__(self, database: Database, scopes: Scopes) -> None:
        self._database = database
        self._scopes = scopes

    def append(
        self,
        scope: Scope,
        session_id: SessionId,
        episodes: Sequence[NewEpisode],
        *,
        extracted_through: int | None = None,
    ) -> EpisodeReceipt:
        require_sequence(episodes, "episodes", "NewEpisode")
        if extracted_through is not None:
            require_whole(extracted_through, "extracted_through")
        if len(episodes) > limits.episode_append_max:
            raise LimitExceeded("episode_append_max", limits.episode_append_max, len(episodes))
        known, key = resolve(self._database, self._scopes, scope, session_id)
        prepared = [_prepare(known, session_id, new) for new in episodes]
        size = sum(len(new.text) for new in episodes)
        return self._database.write(
            key,
            lambda writer: _append(writer, known.key, key, prepared, extracted_through),
            size=size,
        )

    def read_watermark(self, scope: Scope, session_id: SessionId) -> int:
        _, key = resolve(self._database, self._scopes, scope, session_id)
        with self._database.read() as reader:
            return int(_read_extraction(reader, key)[0])

    def read(self, scope: Scope, episode_id: EpisodeId) -> Episode:
        known = self._scopes.find(scope)
        if known is None:
            raise NotFound("episode", episode_id)
        with self._database.read() as reader:
            key = _find_key(reader, known.key, episode_id)
            row = reader.one("episodes.read", scope_key=known.key.scope, episode_key=key)
        assert row is not None, "found by its id in the same snapshot"
        return read_episode(row)

    def list(
        self,
        scope: Scope,
        *,
        session_id: SessionId | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> EpisodePage:
        check_page_limit(limit)
        known = self._scopes.find(scope)
        if known is None:
            return EpisodePage((), None)
        with self._database.read() as reader:
            after = _unseal(known, cursor) if cursor else 0
            rows = self._list_rows(reader, known.key, session_id, after, limit + 1)
        items = tuple(read_episode(row) for row in rows[:limit])
        more = len(rows) > limit
        return EpisodePage(items, _seal(known, rows[limit - 1][2]) if more else None)

    def _list_rows(
        self,
        reader: Reader,
        scope: ScopeKey,
        session_id: SessionId | None,
        after: int,
        limit: int,
    ) -> Rows:
        where = {"scope_key": scope.scope, "limit": limit}
        if session_id is None:
            return reader.all("episodes.list", after=after, **where)
        key = find_key(reader, scope, session_id).session
        first = pack_episode_key(key, 0)
        return reader.all(
            "episodes.list_session", session_key=key, after=max(after, first), **where
        )

    def search(
        self, scope: Scope, query: str, *, limit: int = 20, with_neighbours: bool = False
    ) -> tuple[Hit, ...]:
        require_whole(limit, "limit", least=1, most=limits.search_limit_max)
        if not isinstance(query, str):
            raise InvalidValue("query", "must be text")
        size = len(query.encode(errors="surrogatepass"))
        if size > limits.query_bytes_max:
            raise LimitExceeded("query_bytes_max", limits.query_bytes_max, size)
        known = self._scopes.find(scope)
        words = query_terms(query)
        if known is None or not words:
            return ()
        with self._database.read() as reader:
            statistics, postings = look_up(reader, known.key, words)
            if not postings:
                return ()
            ranked = rank(words, statistics, postings, with_neighbours=with_neighbours)
            return _show(reader, known.key, ranked, limit)

    def tombstone(self, scope: Scope, episode_ids: Sequence[EpisodeId]) -> int:
        require_sequence(episode_ids, "episode_ids", "ids")
        for one in episode_ids:
            require_id(one, "episode_id")
        known = self._scopes.find(scope)
        if known is None:
            return 0

        def body(writer: Writer) -> int:
            found = [
                (row[0], wanted)
                for wanted in dict.fromkeys(episode_ids)
                if (row := _find(writer, known.key, wanted))
            ]
            for session in sorted({unpack_episode_key(key)[0] for key, _ in found}):
                writer.one("sessions.lock", scope_key=known.key.scope, session_key=session)
            for key, wanted in found:
                _forget(writer, known.key, key, wanted)
            return len(found)

        return self._database.write(known.key, body)

    def settle(self, scope: Scope) -> int:
        known = self._scopes.find(scope)
        if known is None:
            return 0
        return self._database.write(known.key, lambda writer: settle_tail(writer, known.key))

    def unsettled(self, scope: Scope) -> int:
        known = self._scopes.find(scope)
        if known is None:
            return 0
        with self._database.read() as reader:
            row = reader.one("terms.count_tail", scope_key=known.key.scope)
        return int(row[0]) if row else 0


def _prepare(known: KnownScope, session_id: SessionId, new: NewEpisode) -> PreparedEpisode:
    check_episode(new)
    found = episode_terms(new.text, speaker=new.speaker, occurred_from=new.occurred_from)
    place = (new.first_sequence, new.last_sequence, new.ordinal)
    return PreparedEpisode(
        EpisodeId(episode_id(known.secret, session_id, *place)),
        new,
        twin_mark(known.secret, twin_text(new.text, new.speaker)),
        estimate_tokens(new.text),
        Counter(found),
        len(found),
    )


def _append(
    writer: Writer,
    scope: ScopeKey,
    key: SessionKey,
    prepared: Sequence[PreparedEpisode],
    extracted_through: int | None,
) -> EpisodeReceipt:
    through, number = _read_extraction(writer, key)
    ids = [{"scope_key": scope.scope, "episode_id": one.id.bytes} for one in prepared]
    statuses = writer.all_of("episodes.status", ids)
    fresh: dict[EpisodeId, tuple[int, PreparedEpisode]] = {}
    for one, status in zip(prepared, statuses, strict=True):
        state = status[0][0] if status else "absent"
        if state == "absent" and one.id not in fresh:
            number += 1
            fresh[one.id] = (pack_episode_key(key.session, number), one)
    writer.run_many("episodes.add", [_row(writer, scope, at, one) for at, one in fresh.values()])
    add_to_tail(writer, scope, [(at, one.counts, one.length) for at, one in fresh.values()])
    if fresh or extracted_through is not None:
        writer.run(
            "sessions.set_extraction",
            scope_key=key.scope,
            session_key=key.session,
            extracted_through=max(through, extracted_through or 0),
            episode_count=number,
        )
    forgotten = sum(("tombstoned",) in status for status in statuses)
    return EpisodeReceipt(
        ids=tuple(one.id for one in prepared),
        written=len(fresh),
        known=len(prepared) - len(fresh) - forgotten,
        tombstoned=forgotten,
    )


def _row(writer: Writer, scope: ScopeKey, key: int, one: PreparedEpisode) -> dict[str, object]:
    new = one.new
    return {
        "scope_key": scope.scope,
        "episode_key": key,
        "episode_id": one.id.bytes,
        "text": new.text,
        "speaker": new.speaker,
        "first_sequence": new.first_sequence,
        "last_sequence": new.last_sequence,
        "ordinal": new.ordinal,
        "occurred_from": new.occurred_from,
        "occurred_to": new.occurred_to,
        "recorded_at": writer.now_us,
        "importance": float(new.importance),
        "origin": str(new.origin),
        "sensitivity": int(new.sensitivity),
        "labels": write_labels(new.labels),
        "twin": one.twin,
        "tokens": one.tokens,
    }


def _show(reader: Reader, scope: ScopeKey, ranked: Iterator[Ranked], limit: int) -> tuple[Hit, ...]:
    """Hits in their order, equal scores newest first; of twins the newest, with all sources."""
    where = {"scope_key": scope.scope}
    found = _choose(reader, where, ranked, limit)
    twins = [row[_TWIN_COLUMN] for _, row in found if row[_FAMILY_COLUMN] > 1]
    rows = reader.all_of("episodes.list_twins", [{**where, "twin": twin} for twin in twins])
    families = dict(zip(twins, rows, strict=True))
    hits = [_hit(reader, where, one, row, families.get(row[_TWIN_COLUMN])) for one, row in found]
    hits.sort(key=lambda hit: (-hit.score, -hit.episode.recorded_at, hit.episode.id.bytes))
    return tuple(hits[:limit])


def _choose(
    reader: Reader, where: dict[str, int], ranked: Iterator[Ranked], limit: int
) -> list[tuple[Ranked, Row]]:
    """One of each family of twins: the best `limit`, and all that tie with the last of them.

    Twins are only known once their rows are read, so it looks further while they leave room. A
    neighbour that no episode has is passed over.
    """
    families: dict[bytes, tuple[Ranked, Row]] = {}
    ahead = next(ranked, None)
    while ahead and len(families) < limit:
        page: list[Ranked] = []
        while ahead and (len(page) < limit - len(families) or ahead.score == page[-1].score):
            page.append(ahead)
            ahead = next(ranked, None)
        keys = [{**where, "episode_key": one.key} for one in page]
        for one, rows in zip(page, reader.all_of("episodes.read_hit", keys), strict=True):
            for row in rows:
                families.setdefault(row[_TWIN_COLUMN], (one, row))
    return list(families.values())


def _hit(reader: Reader, where: dict[str, int], one: Ranked, row: Row, family: Rows | None) -> Hit:
    """`family` are the episode and its twins, newest first; None where it has no twin."""
    if family is not None and family[0][1] != row[2]:
        found = reader.one("episodes.read", episode_key=family[0][1], **where)
        assert found is not None, "a twin of the same snapshot"
        row = found
    reasons = tuple([f"term:{term}" for term in one.terms]) or ("neighbour",)
    episode = read_episode(row)
    others = [EpisodeId(UUID(bytes=twin[0])) for twin in family[1:]] if family else []
    return Hit(episode=episode, score=one.score, sources=(episode.id, *others), reasons=reasons)


def _forget(writer: Writer, scope: ScopeKey, key: int, wanted: EpisodeId) -> None:
    remove_from_index(writer, scope, key)
    writer.run("episodes.delete", scope_key=scope.scope, episode_key=key)
    writer.run(
        "tombstones.add",
        scope_key=scope.scope,
        kind="episode",
        mark=wanted.bytes,
        recorded_at=writer.now_us,
    )


def _find(reader: Reader, scope: ScopeKey, wanted: EpisodeId) -> Row | None:
    wanted_id = require_id(wanted, "episode_id").bytes
    return reader.one("episodes.find_key", scope_key=scope.scope, episode_id=wanted_id)


def _find_key(reader: Reader, scope: ScopeKey, wanted: EpisodeId) -> int:
    row = _find(reader, scope, wanted)
    if row is None:
        raise NotFound("episode", wanted)
    return int(row[0])


def _read_extraction(reader: Reader, key: SessionKey) -> Row:
    row = reader.one("sessions.read_extraction", scope_key=key.scope, session_key=key.session)
    if row is None:
        raise NotFound("session", "that was removed")
    return row


def _seal(known: KnownScope, key: int) -> str:
    """Of one length, whatever the key: on SQLite it grows with the sessions of other scopes."""
    return seal(_CURSOR, (f"{key:016x}",), known.secret)


def _unseal(known: KnownScope, cursor: str) -> int:
    return int(str(unseal(_CURSOR, cursor, known.secret)[0]), 16)
