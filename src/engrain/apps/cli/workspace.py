"""`engrain workspace`: the directory that sessions are bound to."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import UUID

from cyclopts import App

from engrain.apps.cli.options import DEFAULTS, Options, open_memory, scope_of
from engrain.apps.cli.output import give
from engrain.apps.cli.sessions import show_session

app: Final = App(
    name="workspace", help="The directories that sessions are bound to.", help_format="plaintext"
)


@app.command
def relink(session: UUID, directory: str, /, *, options: Options = DEFAULTS) -> None:
    """Bind a session's workspace to a directory that was copied or restored.

    A directory is known by its identity, not its path: a renamed one is still
    the same, a copy is not. All sessions of the workspace move along, and an
    audit entry says so.

    For example:

        $ engrain workspace relink 0198c0de-0000-7000-8000-000000000000 ~/copy

    Parameters
    ----------
    session
        Id of any session of the workspace.
    directory
        Where the workspace is now.
    """
    from engrain.contracts.errors import InvalidValue
    from engrain.contracts.ids import SessionId

    if not directory:  # a variable that was never set is not the current directory
        raise InvalidValue("directory", "must not be empty")
    with open_memory(options) as memory:
        linked = memory.sessions.relink_workspace(
            scope_of(options), SessionId(session), Path(directory).expanduser()
        )
    give(linked, lambda screen: show_session(screen, linked), is_json=options.json)
