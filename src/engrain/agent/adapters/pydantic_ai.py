"""A pydantic-ai agent as the loop of a durable session.

Its own graph asks the model and runs the tools; each model response with tool calls is planned
before its tools run, each tool runs through the turn, and the batch is published after them. The
calls by which a model hands in a structured output run nothing and are not journaled: the output,
as JSON, is the answer. Thinking and media of a response live for the turn alone.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability, ReinjectSystemPrompt
from pydantic_ai.exceptions import ModelRetry, UserError
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    RetryPromptPart,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_ai.usage import RunUsage
from pydantic_core import SchemaValidator, core_schema, to_json
from pydantic_graph import End

from engrain.agent.adapters.pydantic_ai_history import messages_of
from engrain.agent.loop import Answer, Description, History
from engrain.agent.proposals import ModelReply, RequestedCall
from engrain.agent.tools import Tool, ToolContext, ToolFailure
from engrain.agent.turn import ActiveTurn, PlannedCall
from engrain.contracts.errors import InvalidValue
from engrain.contracts.models import MODEL_KEY, Model, model_builtins

_ANY_ARGUMENTS = SchemaValidator(core_schema.dict_schema())
_WORDLESS = "The tool may not run by itself: a pydantic-ai agent runs it."


class PydanticAgent:
    """Wraps an agent; give it yourself to pass `deps` or plain tools beside the agent's own.

    `model` is the one of a home that the agent's client speaks to, to be bound as such; `version`
    names what the snapshot cannot see, such as instructions that a function makes.
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        *,
        deps: Any = None,
        tools: Sequence[Tool] = (),
        model: Model | None = None,
        version: str = "",
    ) -> None:
        self._agent = agent
        self._model = model
        self._deps = deps
        self._tools = tuple(tools)
        self._version = version

    async def describe(self) -> Description:
        """Reads the tools, which may start a toolset's server for the moment."""
        configuration = {
            "loop": "pydantic-ai:1",
            MODEL_KEY: self._name_model(),
            "version": self._version,
            "instructions": _fixed_words(self._agent),
            "output": self._agent.output_json_schema(),
        }
        return Description((*self._tools, *await self._read_tools()), configuration)

    def _name_model(self) -> Any:
        model: Any = self._agent.model
        if self._model is not None:
            return model_builtins(self._model)
        return model if model is None or isinstance(model, str) else _full_name(model)

    async def run(self, turn: ActiveTurn, history: History) -> Answer:
        """One run of the agent, node by node."""
        journal = _Journal(turn)
        messages = messages_of([*history, *turn.events])
        async with self._agent.iter(
            message_history=messages,
            deps=self._deps,
            toolsets=[_PlainToolset(self._tools)] if self._tools else None,
            capabilities=[journal, ReinjectSystemPrompt()],
        ) as run:
            node = run.next_node
            while not isinstance(node, End):
                node = await self._step(turn, journal, run, node)
        assert run.result is not None, "the graph has ended"
        usage = run.usage
        turn.note(
            "model_usage",
            f"{usage.requests} requests, {usage.input_tokens} tokens in, "
            f"{usage.output_tokens} tokens out",
        )
        output = run.result.output
        return Answer(output if isinstance(output, str) else to_json(output).decode(), output)

    async def _step(
        self, turn: ActiveTurn, journal: _Journal, run: AgentRun[Any, Any], node: Any
    ) -> Any:
        if Agent.is_model_request_node(node) and turn.is_watched:
            events: Any
            async with node.stream(run.ctx) as events:
                async for event in events:
                    if delta := _delta_of(event):
                        turn.show(delta)
        if not Agent.is_call_tools_node(node):
            return await run.next(node)
        is_planned = await journal.plan(node.model_response)
        following = await run.next(node)
        if is_planned:
            await journal.settle(_answers_in(following, run))
            await turn.publish()
        return following

    async def _read_tools(self) -> list[Tool]:
        model: Any = self._agent.model
        context = RunContext[Any](deps=self._deps, model=model, usage=RunUsage(), agent=self._agent)
        found = []
        async with AsyncExitStack() as stack:
            for toolset in self._agent.toolsets:
                await stack.enter_async_context(toolset)
                for tool in (await toolset.get_tools(context)).values():
                    found.append(_tool_of(tool))
        return found


@dataclass
class _Journal(AbstractCapability[Any]):
    """Stands between the agent and its tools for one turn."""

    turn: ActiveTurn
    planned: dict[str, deque[PlannedCall]] = field(default_factory=lambda: defaultdict(deque))
    outputs: set[str] = field(default_factory=set)

    async def prepare_tools(
        self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        """The declared ones; approval is the turn's business and not the graph's."""
        declared = {tool.name for tool in self.turn.tools}
        return [
            replace(one, kind="function") if one.kind == "unapproved" else one
            for one in tool_defs
            if one.name in declared
        ]

    async def prepare_output_tools(
        self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        self.outputs.update(one.name for one in tool_defs)
        return tool_defs

    async def after_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        """A response whose calls have different ids, which the graph demands."""
        return _with_unique_ids(response)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _JournaledToolset(toolset, self)

    async def plan(self, response: ModelResponse) -> bool:
        """Journals the calls of a response that may run something; whether there are any."""
        calls = [call for call in response.tool_calls if call.tool_name not in self.outputs]
        if not calls:
            return False
        reply = ModelReply(
            text=response.text or "",
            calls=tuple(
                RequestedCall(call.tool_call_id, call.tool_name, _arguments_text(call))
                for call in calls
            ),
        )
        for call, planned in zip(calls, await self.turn.plan(reply), strict=True):
            self.planned[call.tool_call_id].append(planned)
        return True

    async def call_plain(self, call_id: str) -> str:
        """Runs a planned call of a plain tool, which is its own body."""
        result = await self.turn.call(self.planned[call_id].popleft())
        return result.text

    async def call(self, call_id: str, body: Callable[[], Any]) -> Any:
        """Runs a planned call through the turn; gives what the tool gave, or the words for it."""
        outcome: list[Any] = []
        raised: list[Exception] = []

        async def run(context: ToolContext, arguments: dict[str, Any]) -> str:
            try:
                outcome.append(await body())
            except ModelRetry as retry:
                raised.append(retry)
                raise ToolFailure(retry.message) from retry
            except Exception as error:
                raised.append(error)
                raise
            return _text_of(outcome[0])

        result = await self.turn.call(self.planned[call_id].popleft(), run)
        if raised:
            raise raised[0]
        is_whole = bool(outcome) and result.text == _text_of(outcome[0])
        return outcome[0] if is_whole else result.text

    async def settle(self, answers: dict[str, deque[str]]) -> None:
        """Refuses what the graph answered without running it."""
        for call_id, left in self.planned.items():
            for planned in left:
                given = answers.get(call_id)
                why = given.popleft() if given else "the agent did not run it"
                await self.turn.refuse(planned.journaled, why)
        self.planned.clear()


@dataclass
class _JournaledToolset(WrapperToolset[Any]):
    journal: _Journal

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if ctx.tool_call_id is None:
            raise UserError("a tool call without an id cannot be journaled")
        if isinstance(tool.toolset, _PlainToolset):
            return await self.journal.call_plain(ctx.tool_call_id)
        wrapped = self.wrapped
        return await self.journal.call(
            ctx.tool_call_id, lambda: wrapped.call_tool(name, tool_args, ctx, tool)
        )


class _PlainToolset(AbstractToolset[Any]):
    """Declares plain tools to the graph; the journal runs them."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tools

    @property
    def id(self) -> str:
        return "engrain"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=tool.schema,
                ),
                max_retries=0,
                args_validator=_ANY_ARGUMENTS,
            )
            for tool in self._tools
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        raise UserError("a plain tool runs through the journal alone")


def _tool_of(tool: ToolsetTool[Any]) -> Tool:
    told = tool.tool_def
    if told.kind not in ("function", "unapproved"):
        raise InvalidValue("agent", "has a tool that somebody else runs, which no journal sees")

    def refuse(context: ToolContext, arguments: dict[str, Any]) -> str:
        raise ToolFailure(_WORDLESS)

    return Tool(
        name=told.name,
        description=told.description or "",
        schema=told.parameters_json_schema,
        run=refuse,
        implementation=_implementation_of(tool),
        needs_approval=told.kind == "unapproved",
    )


def _implementation_of(tool: ToolsetTool[Any]) -> str:
    """What stands behind the name: the function, or the toolset that knows it."""
    toolset = tool.toolset
    if isinstance(toolset, FunctionToolset) and tool.tool_def.name in toolset.tools:
        function = toolset.tools[tool.tool_def.name].function
        return f"{function.__module__}.{getattr(function, '__qualname__', 'callable')}"
    return f"{type(toolset).__module__}.{type(toolset).__qualname__}:{toolset.id or ''}"


def _full_name(client: Any) -> str:
    return f"{client.system}:{client.model_name}"


def _fixed_words(agent: Agent[Any, Any]) -> list[str]:
    """Instructions and system prompts that are texts; functions are known by `version` alone."""
    sources = [getattr(one, "instruction", one) for one in getattr(agent, "_instructions", ())]
    return [one for one in (*getattr(agent, "_system_prompts", ()), *sources) if type(one) is str]


def _answers_in(following: Any, run: AgentRun[Any, Any]) -> dict[str, deque[str]]:
    """What the graph told the model about each call, by call id."""
    last: Any = run.all_messages()[-1]
    request = last if isinstance(following, End) else getattr(following, "request", last)
    answers: dict[str, deque[str]] = defaultdict(deque)
    for part in getattr(request, "parts", ()):
        if isinstance(part, RetryPromptPart) and part.tool_call_id:
            answers[part.tool_call_id].append(part.model_response())
        elif isinstance(part, ToolReturnPart):
            answers[part.tool_call_id].append(part.model_response_str())
    return answers


def _delta_of(event: object) -> str:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def _with_unique_ids(response: ModelResponse) -> ModelResponse:
    taken: set[str] = set()
    parts: list[Any] = []
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            call_id, number = part.tool_call_id, 1
            while part.tool_call_id in taken:
                number += 1
                part = replace(part, tool_call_id=f"{call_id}-{number}")
            taken.add(part.tool_call_id)
        parts.append(part)
    return replace(response, parts=parts)


def _arguments_text(call: ToolCallPart) -> str:
    if isinstance(call.args, str):
        return call.args
    return json.dumps(call.args or {}, ensure_ascii=False)


def _text_of(outcome: Any) -> str:
    """What history keeps of a tool's value: a text as it is, anything else as JSON."""
    return outcome if isinstance(outcome, str) else to_json(outcome, fallback=repr).decode()
