"""Fresh ids and secrets from the machine's randomness."""

from __future__ import annotations

import os
from uuid import UUID

from uuid_utils.compat import uuid7

_SCOPE_KEY_MASK = 2**63 - 1


class SystemIds:
    """UUIDs of version 7 and random bytes."""

    def uuid7(self) -> UUID:
        return uuid7()

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def scope_key(self) -> int:
        return int.from_bytes(os.urandom(8), "big") & _SCOPE_KEY_MASK or 1
