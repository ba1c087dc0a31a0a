"""`engrain chat`: one turn from an argument or standard input, or a conversation in a terminal."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final
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
from engrain.apps.cli.output import is_terminal

if TYPE_CHECKING:
    from pydantic_ai.models import Model as Client

    from engrain.contracts.ids import SessionId
    from engrain.contracts.models import Model
    from engrain.contracts.scope import Scope
    from engrain.memory import Memory

_TITLE_CHARS: Final = 60


def chat(
    prompt: str | None = None,
    /,
    *,
    model: AnyText = None,
    resume: AnyText = None,
    fork: UUID | None = None,
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
    fork
        Go on in a new session from the history of this one, which may have had
        another model or other tools.
    accept_unknown_effects
        Resume although nobody knows what calls of a killed process did.
    """
    import asyncio

    from engrain.agent.assistant import assistant
    from engrain.agent.toolbox import built_in_tools
    from engrain.apps.cli.conversation import (
        Conversation,
        ask_person,
        give_line,
        show_words,
        take_turn,
    )
    from engrain.contracts.errors import InvalidValue
    from engrain.contracts.ids import SessionId

    if resume is not None and fork is not None:
        raise InvalidValue("fork", "either --resume or --fork")
    bound = _model_of(model, options)
    client = _client_of(bound, model)
    given = prompt if prompt is not None or is_terminal(sys.stdin) else sys.stdin.read()
    with open_memory(options) as memory, asyncio.Runner() as runner:
        scope, here = scope_of(options), current_directory()
        tools = built_in_tools(here, forbidden=_databases(options))
        loop = assistant(client, tools, model=bound)
        if fork is not None:
            snapshot = runner.run(loop.describe()).snapshot()
            session_id = memory.sessions.fork(scope, SessionId(fork), snapshot=snapshot).id
        else:
            session_id = _session(memory, scope, here, resume, given)
        durable = memory.durable(
            loop,
            scope,
            session_id,
            workspace=here,
            approve=None if given is not None else ask_person,
        )
        try:
            with _held(bound, options):
                runner.run(durable.resume(accept_unknown_effects=accept_unknown_effects))
            if given is not None:
                runner.run(take_turn(durable, given, give_line if options.json else show_words))
            else:
                Conversation(memory, scope, durable, runner, client.model_name).go_on()
        finally:
            runner.run(durable.close())


def _model_of(name: str | None, options: Options) -> Model | None:
    """The model of this home that was meant; None for one that pydantic-ai names."""
    from engrain.contracts.errors import InvalidValue
    from engrain.memory import open_models

    if name is not None and ":" in name:
        return None
    models = open_models(home_of(options))
    if name is not None:
        return models.read(name).model
    known = models.list()
    if len(known) != 1:
        raise InvalidValue(
            "model", "say which: --model NAME of `engrain models list`, or PROVIDER:NAME"
        )
    return known[0].model


def _client_of(model: Model | None, name: str | None) -> Client:
    from engrain.contracts.errors import Refused

    try:
        import pydantic_ai  # noqa: F401  (asked for here, so that its absence is said in words)

        from engrain.providers.models import client_named, open_client
    except ImportError:
        raise Refused("chat needs the extra agent: pip install 'engrain[agent]'") from None
    return client_named(name or "") if model is None else open_client(model)


def _held(model: Model | None, options: Options) -> AbstractContextManager[object]:
    """Nobody removes the model until the session is bound to it."""
    from engrain.memory import open_models
    from engrain.system.environment import read_environment

    if model is None:
        return nullcontext()
    place = options.db if options.db is not None else read_environment().db
    return open_models(home_of(options), place=place).bind(model)


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
