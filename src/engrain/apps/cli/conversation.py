"""What a person sees and types in `engrain chat`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from engrain.agent.session import DurableAgentSession, TurnResult
from engrain.apps.cli.escaping import visible
from engrain.apps.cli.output import Screen, give_json, is_terminal, note
from engrain.apps.cli.sessions import show_session
from engrain.contracts.errors import EngrainError
from engrain.contracts.events import ToolCall, ToolResult

if TYPE_CHECKING:
    from engrain.agent.tools import Tool
    from engrain.contracts.journal import JournaledCall
    from engrain.contracts.scope import Scope
    from engrain.memory import Memory

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


class Conversation:
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
        try:
            self._runner.run(take_turn(self._durable, said, show_words))
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
        try:
            if wanted:
                self._durable.enable_tools(wanted)
        except EngrainError as error:
            note(error.message)
        enabled = self._durable.enabled_tools
        names = [tool.name for tool in self._durable.snapshot().tools]
        self._screen.facts([(name, "enabled" if name in enabled else "disabled") for name in names])


async def take_turn(durable: DurableAgentSession, said: str, show: Callable[[Any], None]) -> None:
    async for shown in durable.run_stream(said):
        show(shown)


def show_words(shown: Any) -> None:
    """Pieces of the answer as they come, and a line for each call and result."""
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


def give_line(shown: Any) -> None:
    """One object: a piece of text, an event, or the result of the turn."""
    if isinstance(shown, str):
        give_json({"type": "text", "text": shown})
    elif isinstance(shown, TurnResult):
        give_json({"type": "result", "text": shown.text, "turn": shown.turn})
    else:
        give_json({"type": "event", "event": shown})


async def ask_person(journaled: JournaledCall, tool: Tool) -> bool:
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
