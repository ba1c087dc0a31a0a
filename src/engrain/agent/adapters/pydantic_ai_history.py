"""A session's history as pydantic-ai speaks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from engrain.contracts.events import (
    AssistantMessage,
    Erased,
    Event,
    Recall,
    Summary,
    System,
    ToolCall,
    ToolResult,
    UserMessage,
)


def messages_of(events: Sequence[Event | Erased]) -> list[ModelMessage]:
    """History as the framework speaks it. A call without its result, or the reverse, is left out.

    Diagnostics, approvals and audit events are for people.
    """
    calls = {each.call_id: each.name for each in events if isinstance(each, ToolCall)}
    answered = {each.call_id for each in events if isinstance(each, ToolResult)}
    messages: list[ModelMessage] = []
    for event in events:
        part: Any = None
        if isinstance(event, System):
            part = SystemPromptPart(event.text)
        elif isinstance(event, UserMessage | Recall | Summary):
            part = UserPromptPart(event.text)
        elif isinstance(event, ToolResult) and event.call_id in calls:
            part = ToolReturnPart(calls[event.call_id], event.text, tool_call_id=event.call_id)
        elif isinstance(event, AssistantMessage):
            part = TextPart(event.text)
        elif isinstance(event, ToolCall) and event.call_id in answered:
            part = ToolCallPart(event.name, event.arguments, tool_call_id=event.call_id)
        if part is not None:
            _add_part(messages, part)
    return messages


def _add_part(messages: list[ModelMessage], part: Any) -> None:
    kind = ModelResponse if isinstance(part, TextPart | ToolCallPart) else ModelRequest
    if messages and isinstance(messages[-1], kind):
        last: Any = messages[-1]
        messages[-1] = replace(last, parts=[*last.parts, part])
    else:
        messages.append(kind(parts=[part]))
