"""The shipped suite of the audit log."""

from engrain.testing.contracts.audit import (
    TestAuditRaces,
    TestPaging,
    TestRecording,
    TestScopes,
    TestVerifying,
    TestWhatIsAudited,
)

__all__ = [
    "TestAuditRaces",
    "TestPaging",
    "TestRecording",
    "TestScopes",
    "TestVerifying",
    "TestWhatIsAudited",
]
