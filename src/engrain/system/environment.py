"""The environment variables that Engrain reads, and nothing else of the environment."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping

import msgspec

from engrain.contracts.errors import InvalidValue


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller's environment says; a variable that is unset or empty is None."""

    home: str | None = None
    """`ENGRAIN_HOME`: the folder that holds everything."""

    db: str | None = None
    """`ENGRAIN_DB`: a database of its own, as a path or a URL; it may hold a password."""

    org: str | None = None
    """`ENGRAIN_ORG`: whose memory, the organisation."""

    user: str | None = None
    """`ENGRAIN_USER`: whose memory, the user in it."""

    data_home: str | None = None
    """`XDG_DATA_HOME`: where the desktop keeps its user's data."""

    def __repr__(self) -> str:
        return "Environment(…)"


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """The environment as `variables` has it, or as the process has it now."""
    found = os.environ if variables is None else variables
    return Environment(
        home=found.get("ENGRAIN_HOME") or None,
        db=found.get("ENGRAIN_DB") or None,
        org=found.get("ENGRAIN_ORG") or None,
        user=found.get("ENGRAIN_USER") or None,
        data_home=found.get("XDG_DATA_HOME") or None,
    )


def read_login_name() -> str:
    """The name that the user logged in with; `InvalidValue` when the machine knows none.

    A container that runs under a bare number has none.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # Python 3.13 made one error out of them
        raise InvalidValue(
            "user", "this account has no login name; pass --user or set ENGRAIN_USER"
        ) from None
