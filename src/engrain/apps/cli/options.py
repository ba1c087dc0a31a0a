"""The options that every command has: which memory, whose, and in which form to answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter

if TYPE_CHECKING:
    from engrain.contracts.scope import Scope
    from engrain.memory import Memory
    from engrain.system.home import Home

LOCAL_ORG: Final = "local"
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
"""An option without a value; it is off unless it is given."""
AnyText = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
"""The value of an option that may begin with a hyphen, as one cursor in 64 does."""
_GROUP: Final = Group("Every command", sort_key=100)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class Options:
    """Which memory, whose, and in which form to answer."""

    home: str | None = None
    """Folder that holds the database [default: ENGRAIN_HOME, or engrain in your data folder]."""

    db: str | None = None
    """Another database: a path or postgresql://USER:PASSWORD@HOST/NAME [default: ENGRAIN_DB]."""

    org: str | None = None
    """Organisation whose memory it is [default: ENGRAIN_ORG, or local]."""

    user: str | None = None
    """User in it [default: ENGRAIN_USER, or the login name]."""

    json: Flag = False
    """Answer with one JSON object a line; an error is one on standard error."""


DEFAULTS: Final = Options()
_NAMES: Final = frozenset(f"--{field.name}" for field in fields(Options))
_FLAGS: Final = frozenset({"--json"})


def hoisted(arguments: Sequence[str]) -> list[str]:
    """The arguments with options that stand before the command moved behind it."""
    at = 0
    while at < len(arguments) and arguments[at].partition("=")[0] in _NAMES:
        takes_next = "=" not in arguments[at] and arguments[at] not in _FLAGS
        at += 2 if takes_next else 1
    early, rest = list(arguments[:at]), list(arguments[at:])
    end = rest.index("--") if "--" in rest else len(rest)
    return rest[:end] + early + rest[end:]


def asks_for_json(arguments: Sequence[str]) -> bool:
    """True when the command line says so, however wrong the rest of it is."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


def scope_of(options: Options) -> Scope:
    """Whose memory: what was said, else the environment's, else `local` and the login name."""
    from engrain.contracts.scope import Scope
    from engrain.system.environment import read_environment, read_login_name

    said = read_environment()
    org = options.org if options.org is not None else said.org or LOCAL_ORG
    user = options.user if options.user is not None else said.user or read_login_name()
    return Scope(org=org, user=user)


def home_of(options: Options) -> Home:
    """The folder that was said, else the environment's, else the user's own."""
    from engrain.system.environment import read_environment
    from engrain.system.home import find_home

    return find_home(options.home, read_environment())


def current_directory() -> Path:
    """Where the person is; `WorkspaceMismatch` when that was removed in the meantime."""
    from engrain.contracts.errors import WorkspaceMismatch

    try:
        return Path.cwd()
    except FileNotFoundError:
        raise WorkspaceMismatch(
            "the current directory was removed; change to another, or name a --workspace"
        ) from None


@contextmanager
def open_memory(options: Options) -> Iterator[Memory]:
    """The memory that was chosen, open until the block ends; a home is made when it is missing."""
    from engrain.memory import Memory
    from engrain.system.environment import read_environment

    url = options.db if options.db is not None else read_environment().db
    if url is None:
        home = home_of(options)
        home.prepare()
        url = str(home.database)
    _quieten_drivers()
    with Memory.open(url) as memory:
        yield memory


def _quieten_drivers() -> None:
    """What a driver logs (connections, with their host) is no answer of ours."""
    import logging

    logging.getLogger("psycopg").addHandler(logging.NullHandler())
