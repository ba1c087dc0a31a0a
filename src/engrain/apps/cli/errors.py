"""What a failure looks like from outside: an exit code, and one record of facts.

The one place that maps errors to exit codes. No message holds memory content: an unknown exception
is named by its type alone, its words stay in the trace that `ENGRAIN_DEBUG=1` shows.
"""

from __future__ import annotations

import errno
import os
import traceback
from enum import IntEnum
from typing import Final

from cyclopts import CycloptsError, UnusedCliTokensError

from engrain.contracts.errors import EngrainError, InvalidValue, Uncertain, UnknownEffects

DEBUG: Final = "ENGRAIN_DEBUG"
_UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF})
"""Why a stream takes no more; whatever has a file's name says it."""


class ExitCode(IntEnum):
    """What the process ends with; the same for every command."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    DONE = 0, "done"
    FAILED = 1, "refused or failed"
    USAGE = 2, "wrong usage: a value or an option that cannot be"
    PARTIAL = 3, "done in part: something was broken and is left out"
    NEEDS_PERSON = 4, "needs a person: an acknowledgement was lost"
    INTERRUPTED = 130, "stopped by Ctrl-C; what was acknowledged is kept"
    BROKEN_PIPE = 141, "whoever read the output went away"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a word on what was done before."""

    def __init__(self, done: str, **facts: object) -> None:
        super().__init__(done)
        self.done = done
        self.facts = facts


class Halted(Exception):
    """An error amid long work, with a word on what was done before it."""

    def __init__(self, error: EngrainError, done: str, **facts: object) -> None:
        super().__init__(done)
        self.error = error
        self.done = done
        self.facts = facts


_EXIT_CODES: Final[dict[type[BaseException], ExitCode]] = {
    CycloptsError: ExitCode.USAGE,
    InvalidValue: ExitCode.USAGE,
    Uncertain: ExitCode.NEEDS_PERSON,
    UnknownEffects: ExitCode.NEEDS_PERSON,
    KeyboardInterrupt: ExitCode.INTERRUPTED,
    BrokenPipeError: ExitCode.BROKEN_PIPE,
}


def exit_code_of(error: BaseException) -> ExitCode:
    """The code of the nearest class that has one; whatever has none has failed."""
    if isinstance(error, Halted):
        return exit_code_of(error.error)
    for kind in type(error).__mro__:
        if kind in _EXIT_CODES:
            return _EXIT_CODES[kind]
    return ExitCode.FAILED


def facts_of(error: BaseException) -> dict[str, object]:
    """`code`, `message`, and whatever else is known, ready for JSON."""
    if isinstance(error, EngrainError):
        return error.facts()
    if isinstance(error, Halted):
        facts = error.error.facts()
        return facts | {"message": f"{facts['message']}; {error.done}"} | error.facts
    if isinstance(error, CycloptsError):
        return _record("wrong_usage", f"{_usage(error)} See: {_help_for(error)}")
    if isinstance(error, Interrupted):
        return _record("interrupted", f"stopped; {error.done}") | error.facts
    if isinstance(error, KeyboardInterrupt):
        return _record("interrupted", "stopped; whatever was acknowledged is kept")
    if isinstance(error, OSError) and error.strerror:
        where = error.filename or ("standard output" if error.errno in _UNWRITABLE else None)
        return _record("system_error", f"{where}: {error.strerror}" if where else error.strerror)
    return _record(
        "bug",
        f"unexpected {type(error).__name__}; this is a bug in Engrain ({DEBUG}=1 shows where)",
    )


def trace_of(error: BaseException) -> str | None:
    """The trace, when the person at the keyboard asked for it; it may quote content."""
    if os.environ.get(DEBUG) != "1":
        return None
    return "".join(traceback.format_exception(error))


def _usage(error: CycloptsError) -> str:
    """What is wrong with a command line; words too many are most often a text without quotes."""
    if isinstance(error, UnusedCliTokensError):
        words = " ".join(error.unused_tokens or ())
        return f"Too many words: {words}. A text of several words stands in quotes."
    return str(error)


def _help_for(error: CycloptsError) -> str:
    return " ".join(["engrain", *(error.command_chain or ()), "--help"])


def _record(code: str, message: str) -> dict[str, object]:
    return {"code": code, "message": message, "retryable": False}
