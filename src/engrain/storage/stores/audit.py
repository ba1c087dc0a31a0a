"""The audit log: appended under its scope's anchor, linked into one hash chain a scope."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from engrain.contracts import limits
from engrain.contracts.arguments import require_whole
from engrain.contracts.audit import AuditEntry
from engrain.contracts.errors import Corrupt, EngrainError, InvalidValue
from engrain.contracts.ids import ScopeKey
from engrain.contracts.scope import Scope
from engrain.contracts.text import is_clean_text, require_short_text
from engrain.rules.canonical import canonical_bytes
from engrain.rules.chain import audit_link
from engrain.storage.database import Database, Row, Writer
from engrain.storage.stores.pages import check_page_limit
from engrain.storage.stores.scopes import Scopes

_FIRST = b"\0" * 32
_PAGE = 500
_facts = msgspec.json.Decoder(dict[str, str | int])


class SqlAuditStore:
    """Implements `AuditStore` on either engine."""

    def __init__(self, database: Database, scopes: Scopes) -> None:
        self._database = database
        self._scopes = scopes

    def record(self, scope: Scope, name: str, facts: Mapping[str, str | int]) -> AuditEntry:
        check_entry(name, facts)
        known = self._scopes.ensure(scope)
        return self._database.write(
            known.key, lambda writer: add_entry(writer, known.key, name, facts)
        )

    def list(self, scope: Scope, *, after: int = 0, limit: int = 100) -> tuple[AuditEntry, ...]:
        check_page_limit(limit)
        require_whole(after, "after")
        known = self._scopes.find(scope)
        if known is None:
            return ()
        with self._database.read() as reader:
            rows = reader.all("audit.list", scope_key=known.key.scope, after=after, limit=limit)
        return tuple(_read(row) for row in rows)

    def verify(self, scope: Scope) -> int:
        count, link = 0, _FIRST
        while page := self.list(scope, after=count, limit=_PAGE):
            for entry in page:
                link = _next_link(link, entry, count + 1)
                if entry.number != count + 1 or entry.link != link.hex():
                    raise Corrupt(f"audit entry {count + 1} does not fit the chain")
                count += 1
        return count


def add_entry(
    writer: Writer, scope: ScopeKey, name: str, facts: Mapping[str, str | int]
) -> AuditEntry:
    """Adds the next entry of the scope's chain; the writer holds the scope."""
    head = writer.one("audit.head", scope_key=scope.scope) or (0, _FIRST)
    number, recorded_at = head[0] + 1, writer.now_us
    link = audit_link(head[1], number, recorded_at, _body(name, facts))
    writer.run(
        "audit.add",
        scope_key=scope.scope,
        number=number,
        name=name,
        facts=msgspec.json.encode(dict(facts)).decode(),
        recorded_at=recorded_at,
        link=link,
    )
    return AuditEntry(
        number=number, name=name, facts=dict(facts), recorded_at=recorded_at, link=link.hex()
    )


def check_entry(name: str, facts: Mapping[str, str | int]) -> None:
    """Raises unless the entry can be read back: short names, short text and whole numbers."""
    require_short_text(name, "name", limits.label_bytes_max)
    if not isinstance(facts, Mapping) or len(facts) > limits.labels_max:
        raise InvalidValue("facts", f"must be at most {limits.labels_max} by name in one entry")
    for key, value in facts.items():
        require_short_text(key, "facts", limits.label_bytes_max)
        if not (_is_short_text(value) if isinstance(value, str) else _is_int64(value)):
            raise InvalidValue("facts", "hold short clean text and integers of 64 bits alone")


def _is_short_text(value: str) -> bool:
    return is_clean_text(value) and len(value.encode()) <= limits.title_bytes_max


def _is_int64(value: object) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return limits.json_integer_min <= value <= limits.json_integer_max


def _next_link(previous: bytes, entry: AuditEntry, number: int) -> bytes:
    try:
        body = _body(entry.name, entry.facts)
    except EngrainError:  # no entry of ours holds what has no canonical form
        raise Corrupt(f"audit entry {number} does not fit the chain") from None
    return audit_link(previous, number, entry.recorded_at, body)


def _body(name: str, facts: Mapping[str, str | int]) -> bytes:
    return canonical_bytes({"name": name, "facts": dict(facts)})


def _read(row: Row) -> AuditEntry:
    try:
        facts = _facts.decode(row[2])
    except (msgspec.MsgspecError, UnicodeError):
        raise Corrupt(f"the facts of audit entry {row[0]} do not decode") from None
    return AuditEntry(
        number=row[0], name=row[1], facts=facts, recorded_at=row[3], link=row[4].hex()
    )
