"""`engrain chat`: one turn from an argument or standard input, or a conversation in a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from engrain.apps.cli.options import (
    DEFAULTS,
    AnyText,
    Flag,
    Options,
    current_directory,
    home_of,
    open_memory,
    scope_of,
)
from engrain.apps.cli.output import Screen, give_json, is_terminal, note

if TYPE_CHECKING:
    from pydantic_ai.models import Model as Client

    from engrain.agent.session import DurableAgentSession
    from engrain.agent.tools import Tool
    from engrain.contracts.ids import SessionId
    from engrain.contracts.journal import JournaledCall
    from engrain.contracts.scope import Scope
    from engrain.memory import Memory

_TITLE_CHARS: Final = 60
_PROMPT: Final = "> "
_COMMANDS: Final = {
    "/help": "what can be typed here",
    "/tools": "the tools and which are enabled; /tools NAME… enables these alone",
    "/recall": "what memory has on a question: /recall QUESTION",
    "/session": "which session this is",
    "/model": "which model answers",
    "/clear": "clear the screen",
    "/quit": "leave; the session stays",
}


def chat(
    prompt: str | None = None,
    /,
    *,
    model: AnyText = None,
    resume: AnyText = None,
    accept_unknown_effects: Flag = False,
    options: Options = DEFAULTS,
) -> None:
    """Talk with an agent whose turns survive a crash, in this workspace.

    With a PROMPT, or one on standard input, it takes one turn; no tool that needs
    a person's word is run then. In a terminal it goes on until /quit; Ctrl-C
    cancels a turn. The session is new unless one is resumed.

    For example:

        $ engrain chat --model openai:gpt-5
        $ engrain chat "what is in this folder?" --model local --json
        $ engrain chat --resume recent --model local

    Parameters
    ----------
    prompt
        What to say.
    model
        A model of `engrain models list`, or PROVIDER:NAME [default: the only one].
    resume
        The id of a session, or `recent` for the last one of this workspace.
    accept_unknown_effects
        Resume although nobody knows what calls of a killed process did.
    """
    from engrain.agent.assistant import assistant
    from engrain.agent.toolbox import built_in_tools

    client = _client_of(model, options)
    given = prompt if prompt is not None or is_terminal(sys.stdin) else sys.stdin.read()
    with open_memory(options) as memory, asyncio.Runner() as runner:
        scope, here = scope_of(options), current_directory()
        session_id = _session(memory, scope, here, resume, given)
        tools = built_in_tools(here, forbidden=_databases(options))
        durable = memory.durable(
            assistant(client, tools),
            scope,
            session_id,
            workspace=here,
            approve=None if given is not None else _ask_person,
        )
        try:
            runner.run(durable.resume(accept_unknown_effects=accept_unknown_effects))
            if given is not None:
                runner.run(_take_turn(durable, given, _json_line if options.json else _words))
            else:
                _Conversation(memory, scope, durable, runner, client.model_name).go_on()
        finally:
            runner.run(durable.close())


class _Conversation:
    """Turns and slash commands until the person leaves."""

    def __init__(
        self,
        memory: Memory,
        scope: Scope,
        durable: DurableAgentSession,
        runner: asyncio.Runner,
        model: str,
    ) -> None:
        self._memory = memory
        self._scope = scope
        self._durable = durable
        self._runner = runner
        self._model = model
        self._screen = Screen()

    def go_on(self) -> None:
        _complete_commands()
        note(f"session {self._durable.session_id} · {self._model} · /help")
        while True:
            try:
                said = input(_PROMPT).strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                self._screen.line()
                continue
            if said == "/quit":
                return
            if said.startswith("/"):
                self._obey(*said.split(maxsplit=1))
            elif said:
                self._turn(said)

    def _turn(self, said: str) -> None:
        from engrain.contracts.errors import EngrainError

        try:
            self._runner.run(_take_turn(self._durable, said, _words))
        except KeyboardInterrupt:
            note("cancelled; what was done so far is kept")
            self._recover()
        except EngrainError as error:
            note(error.message)
        except Exception as error:  # noqa: BLE001  (whatever a provider raises ends the turn alone)
            note(f"the turn failed: {type(error).__name__}")

    def _recover(self) -> None:
        """A call that outlived the person's patience is kept as unknown, and said."""
        report = self._runner.run(self._durable.recover(accept_unknown_effects=True))
        for call_id in report.unknown_effects:
            note(f"nobody knows what the call {call_id} did")

    def _obey(self, command: str, rest: str = "") -> None:
        if command == "/tools":
            self._show_tools(rest.split())
        elif command == "/recall" and rest:
            block = self._memory.recall(self._scope, rest, budget_tokens=800)
            self._screen.text(block.text or "nothing")
        elif command == "/session":
            from engrain.apps.cli.sessions import show_session

            show_session(
                self._screen, self._memory.sessions.read(self._scope, self._durable.session_id)
            )
        elif command == "/model":
            self._screen.line(self._model)
        elif command == "/clear" and is_terminal(sys.stdout):
            sys.stdout.write("\033[2J\033[H")
        else:
            self._screen.facts(list(_COMMANDS.items()))

    def _show_tools(self, wanted: list[str]) -> None:
        from engrain.contracts.errors import EngrainError

        try:
            if wanted:
                self._durable.enable_tools(wanted)
        except EngrainError as error:
            note(error.message)
        enabled = self._durable.enabled_tools
        names = [tool.name for tool in self._durable.snapshot().tools]
        self._screen.facts([(name, "enabled" if name in enabled else "disabled") for name in names])


async def _take_turn(durable: DurableAgentSession, said: str, show: Callable[[Any], None]) -> None:
    async for shown in durable.run_stream(said):
        show(shown)


def _words(shown: Any) -> None:
    """Pieces of the answer as they come, and a line for each call and result."""
    from engrain.agent.session import TurnResult
    from engrain.apps.cli.escaping import visible
    from engrain.contracts.events import ToolCall, ToolResult

    if isinstance(shown, str):
        sys.stdout.write(visible(shown))
        sys.stdout.flush()
    elif isinstance(shown, ToolCall):
        note(f"· {shown.name} {shown.arguments[:200]}")
    elif isinstance(shown, ToolResult) and shown.status != "completed":
        note(f"· {shown.status}: {shown.text[:200]}")
    elif isinstance(shown, TurnResult):
        sys.stdout.write("\n")
        sys.stdout.flush()


def _json_line(shown: Any) -> None:
    """One object: a piece of text, an event, or the result of the turn."""
    from engrain.agent.session import TurnResult

    if isinstance(shown, str):
        give_json({"type": "text", "text": shown})
    elif isinstance(shown, TurnResult):
        give_json({"type": "result", "text": shown.text, "turn": shown.turn})
    else:
        give_json({"type": "event", "event": shown})


async def _ask_person(journaled: JournaledCall, tool: Tool) -> bool:
    """Once for this call; whatever is not a yes is a no."""
    note(f"{tool.name} wants to run: {journaled.call.arguments[:2_000]}")
    note("allow once? [y/N]")
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[str] = loop.create_future()
    loop.add_reader(sys.stdin.fileno(), lambda: answered.set_result(sys.stdin.readline()))
    try:
        return (await answered).strip().lower() in ("y", "yes")
    finally:
        loop.remove_reader(sys.stdin.fileno())


def _client_of(name: str | None, options: Options) -> Client:
    from engrain.contracts.errors import InvalidValue, Refused

    try:
        import pydantic_ai  # noqa: F401  (asked for here, so that its absence is said in words)

        from engrain.providers.models import client_named, open_client
    except ImportError:
        raise Refused("chat needs the extra agent: pip install 'engrain[agent]'") from None
    if name is not None and ":" in name:
        return client_named(name)
    from engrain.memory import open_models

    models = open_models(home_of(options))
    if name is not None:
        return open_client(models.read(name).model)
    known = models.list()
    if len(known) != 1:
        raise InvalidValue(
            "model", "say which: --model NAME of `engrain models list`, or PROVIDER:NAME"
        )
    return open_client(known[0].model)


def _session(
    memory: Memory, scope: Scope, here: Path, resume: str | None, prompt: str | None
) -> SessionId:
    from engrain.contracts.errors import InvalidValue, NotFound
    from engrain.contracts.ids import SessionId

    if resume is None:
        title = " ".join((prompt or "chat").split())[:_TITLE_CHARS] or "chat"
        return memory.sessions.start(scope, title=title, workspace=here).id
    if resume == "recent":
        found = memory.sessions.list(scope, workspace=here, limit=1).items
        if not found:
            raise NotFound("session", "", where="in this workspace")
        return found[0].id
    try:
        return SessionId(UUID(resume))
    except ValueError:
        raise InvalidValue("resume", "must be the id of a session, or recent") from None


def _databases(options: Options) -> list[Path]:
    """Files that no tool may open."""
    from engrain.system.environment import read_environment

    url = options.db if options.db is not None else read_environment().db
    if url is None:
        return [home_of(options).database]
    return [] if "://" in url else [Path(url)]


def _complete_commands() -> None:
    """History and completion at the prompt, where the system has them."""
    try:
        import readline
    except ImportError:
        return

    def complete(text: str, state: int) -> str | None:
        found = [command for command in _COMMANDS if command.startswith(text)]
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")
