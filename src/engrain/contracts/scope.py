"""Who a memory belongs to, how far its words may travel, and how far they may be trusted."""

from __future__ import annotations

import re
from enum import IntEnum

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue
from engrain.contracts.text import require_short_text

_WILDCARDS = frozenset("*?%")
_ORIGIN = re.compile(r"host|user|model|tool:[^\s]{1,128}|import:[a-z0-9_]{1,32}")


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant: an organisation and a user in it; no blank and no wildcard value."""

    org: str
    user: str

    def __post_init__(self) -> None:
        for field in ("org", "user"):
            value = require_short_text(getattr(self, field), field, limits.scope_part_bytes_max)
            if value != value.strip():
                raise InvalidValue(field, "must not begin or end with white space")
            if _WILDCARDS & set(value):
                raise InvalidValue(field, "must not hold a wildcard")

    def __repr__(self) -> str:
        return "Scope(…)"


class Sensitivity(IntEnum):
    """How far content may travel; what is derived carries the highest of its sources."""

    PUBLIC = 0
    INTERNAL = 1
    CONFIDENTIAL = 2
    RESTRICTED = 3


class Origin(str):
    """Who said it: `host`, `user`, `model`, `tool:NAME` or `import:FORMAT`."""

    __slots__ = ()

    def __new__(cls, value: str) -> Origin:
        if not isinstance(value, str) or not _ORIGIN.fullmatch(value):
            raise InvalidValue("origin", "must be host, user, model, tool:NAME or import:FORMAT")
        return super().__new__(cls, value)

    @property
    def trust(self) -> int:
        """Higher is more trusted: host 4, user 3, model 2, tool 1, import 0."""
        return _TRUST[self.split(":", 1)[0]]


_TRUST = {"host": 4, "user": 3, "model": 2, "tool": 1, "import": 0}

HOST = Origin("host")
USER = Origin("user")
MODEL = Origin("model")
