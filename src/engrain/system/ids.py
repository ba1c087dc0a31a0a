"""Fresh ids and secrets from the machine's randomness."""

from __future__ import annotations

import os
from uuid import UUID

from uuid_utils.compat import uuid7

from engrain.contracts.ids import Ids

_SCOPE_KEY_MASK = 2**63 - 1


class SystemIds(Ids):
    """UUIDs of version 7 and random bytes; safe from many threads and after a fork."""

    def uuid7(self) -> UUID:
        """A UUID that sorts after every earlier one of this process (RFC 9562, 5.7).

        It tells when it was made and is no secret.
        """
        return uuid7()

    def random_bytes(self, count: int) -> bytes:
        """Bytes fit for salts, tokens and secrets, straight from the kernel."""
        return os.urandom(count)

    def scope_key(self) -> int:
        return int.from_bytes(os.urandom(8), "big") & _SCOPE_KEY_MASK or 1
