"""The shipped suite of the hash chain."""

from engrain.testing.contracts.chain import TestVerifying, noted, noting_ids
from engrain.testing.contracts.tampering import TestTampering

__all__ = ["TestTampering", "TestVerifying", "noted", "noting_ids"]
