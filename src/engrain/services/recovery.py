"""Agent turns that a killed process left open: looked at, and closed honestly."""

from __future__ import annotations

from contextlib import suppress

from engrain.contracts.errors import EngrainError
from engrain.contracts.ids import SessionId
from engrain.contracts.journal import JournalStore, OpenTurn, RecoveryReport
from engrain.contracts.leases import LeaseStore
from engrain.contracts.scope import Scope
from engrain.contracts.transcript import TranscriptStore


class Recovery:
    """`memory.recovery`: what is unfinished in a session, and its end."""

    def __init__(
        self, leases: LeaseStore, transcript: TranscriptStore, journal: JournalStore
    ) -> None:
        self._leases = leases
        self._transcript = transcript
        self._journal = journal

    def find_open(self, scope: Scope, session_id: SessionId) -> OpenTurn | None:
        """The unfinished agent turn with what is known of its tool calls; None when all is done."""
        return self._journal.find_open(scope, session_id)

    def recover(
        self, scope: Scope, session_id: SessionId, *, accept_unknown_effects: bool = False
    ) -> RecoveryReport:
        """Closes the turn of a process that is gone, honestly; runs no tool.

        Raises `UnknownEffects` with the calls in doubt unless they are accepted as such, and
        `SessionBusy` while the session has a writer. Recovering again reports no turn.
        """
        lease = self._leases.claim(scope, session_id)
        try:
            for _ in self._transcript.replay(lease):
                pass  # the verification counts
            return self._journal.recover(lease, accept_unknown_effects=accept_unknown_effects)
        finally:
            with suppress(EngrainError):
                self._leases.release(lease)
