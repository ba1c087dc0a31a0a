"""`engrain`: the command line.

Owns how commands are found, and what every one of them has in common: one place for errors and exit
codes. Commands live in one file a noun; none imports the library before it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, Literal, NoReturn

from cyclopts import App

import engrain
from engrain.apps.cli import (
    chat,
    episodes,
    errors,
    imports,
    models,
    output,
    postgres,
    recall,
    sessions,
    workspace,
)
from engrain.apps.cli.options import DEFAULTS, Options, asks_for_json, hoisted

_HELP: Final = """
Memory for AI agents: import conversations, recall them under a token budget.

For example:

    $ engrain import ~/Downloads/claude-export.zip
    $ engrain recall "what did I decide about the database?" --budget 800
    $ engrain sessions list --all
"""

_EPILOGUE: Final = """\
Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 done in part,
4 needs a person, 130 stopped by Ctrl-C, 141 the output's reader went away."""

app: Final = App(
    name="engrain",
    help=_HELP,
    help_format="plaintext",
    help_epilogue=_EPILOGUE,
    version=lambda: f"engrain {engrain.__version__}",
    suppress_keyboard_interrupt=False,
)
app.command(imports.import_, name="import")
app.command(chat.chat, usage="Usage: engrain chat [OPTIONS] [PROMPT]")
app.command(recall.recall)
app.command(recall.search)
app.command(sessions.app)
app.command(episodes.app)
app.command(models.app)
app.command(workspace.app)
app.command(postgres.app)


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /, *, options: Options = DEFAULTS) -> None:
    """Print a script with which a shell completes commands and options.

    It changes no file; where to put it is yours to choose.

    For example:

        $ source <(engrain completion bash)
        $ engrain completion zsh > ~/.zfunc/_engrain

    Parameters
    ----------
    shell
        Whose script.
    """
    script = app.generate_completion(shell=shell)
    made = {"shell": shell, "script": script}
    output.give(made, lambda screen: screen.text(script.rstrip()), is_json=options.json)


def run() -> NoReturn:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; every failure is said on standard error."""
    output.survive_closed_streams()
    output.survive_any_text()
    try:
        code = _dispatch(hoisted(arguments))
        sys.stdout.flush()
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001  (a face ends every failure with a code)
        return _fail(error, is_json=asks_for_json(arguments))
    return code


def _dispatch(arguments: list[str]) -> int:
    result = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    return result if isinstance(result, int) else errors.ExitCode.DONE


def _fail(error: BaseException, *, is_json: bool) -> int:
    code = errors.exit_code_of(error)
    if code is errors.ExitCode.BROKEN_PIPE:
        output.discard_results()
        return code
    try:
        sys.stdout.flush()
    except OSError:  # the error on its way says it, or matters more
        output.discard_results()
    output.complain(errors.facts_of(error), is_json=is_json, trace=errors.trace_of(error))
    return code
