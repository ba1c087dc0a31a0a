"""What the benchmarks store and ask: made up, the same in every run, of a given size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random

from engrain.contracts.events import AssistantMessage, Event, ToolCall, ToolResult, UserMessage
from engrain.rules.canonical import encode_event

EVENT_BYTES = 1_024
EVENTS_A_TURN = 4

_CONSONANTS = tuple("bcdfghjklmnprstvw")
_ONSETS = (*_CONSONANTS, "br", "cr", "dr", "fl", "gr", "pl", "pr", "sh", "sl", "st", "th", "tr")
_NUCLEI = ("a", "e", "i", "o", "u", "ai", "ea", "ee", "io", "ou")
_CODAS = ("", "b", "ck", "d", "l", "m", "n", "nd", "ng", "nt", "p", "r", "rn", "s", "st", "t", "x")


def make_vocabulary(size: int) -> list[str]:
    """Distinct words of one to three syllables, the common ones short."""
    random = Random(size)
    words: dict[str, None] = {}
    while len(words) < size:
        syllables = 1 + (len(words) > 200) + (len(words) > 5_000)
        words["".join(_syllable(random) for _ in range(syllables))] = None
    return list(words)


def _syllable(random: Random) -> str:
    return random.choice(_ONSETS) + random.choice(_NUCLEI) + random.choice(_CODAS)


class Words:
    """Draws words as a language does: the n-th commonest with a weight of 1/n (Zipf)."""

    def __init__(self, vocabulary: Sequence[str], seed: int) -> None:
        self._vocabulary = vocabulary
        self._weights = _weights(len(vocabulary))
        self._random = Random(seed)

    def draw(self, count: int) -> list[str]:
        return self._random.choices(self._vocabulary, cum_weights=self._weights, k=count)

    def text(self, characters: int) -> str:
        """Words and spaces, exactly that many characters."""
        words = " ".join(self.draw(characters // 4 + 1))
        while len(words) < characters:
            words = " ".join((words, *self.draw(characters // 4 + 1)))
        return words[: characters - 1] + "."


@cache
def _weights(count: int) -> list[float]:
    return list(accumulate(1 / rank for rank in range(3, count + 3)))


def make_turns(count: int, *, seed: int = 1, prefix: str = "call") -> list[list[Event]]:
    """Turns of a question, a tool call, its result and an answer.

    Each event has `EVENT_BYTES` bytes in the form in which Engrain stores it.
    """
    words = Words(make_vocabulary(2_000), seed)
    return [_make_turn(words, f"{prefix}-{number}") for number in range(count)]


def _make_turn(words: Words, call_id: str) -> list[Event]:
    def fill(make: type[Event], field: str, frame: str = "%s", **fields: str) -> Event:
        bare = len(encode_event(make(**{**fields, field: frame % "x"}))) - 1
        event = make(**{**fields, field: frame % words.text(EVENT_BYTES - bare)})
        assert len(encode_event(event)) == EVENT_BYTES, "made to measure"
        return event

    return [
        fill(UserMessage, "text"),
        fill(ToolCall, "arguments", '{"query":"%s"}', call_id=call_id, name="search"),
        fill(ToolResult, "text", call_id=call_id),
        fill(AssistantMessage, "text"),
    ]


def encode_turns(turns: Sequence[Sequence[Event]]) -> list[list[bytes]]:
    """The bytes that Engrain stores for each event, for floors to store as they are."""
    return [[encode_event(event) for event in turn] for turn in turns]


def as_openai_items(turns: Sequence[Sequence[Event]], path: Path) -> Path:
    """The same words as items of OpenAI's Responses API, in JSON at `path`."""
    path.write_text(json.dumps([[_openai_item(event) for event in turn] for turn in turns]))
    return path


def _openai_item(event: Event) -> dict[str, str]:
    match event:
        case ToolCall():
            return {
                "type": "function_call",
                "call_id": event.call_id,
                "name": event.name,
                "arguments": event.arguments,
            }
        case ToolResult():
            return {
                "type": "function_call_output",
                "call_id": event.call_id,
                "output": event.text,
            }
        case UserMessage():
            return {"role": "user", "content": event.text}
        case _:
            return {"role": "assistant", "content": event.text}
