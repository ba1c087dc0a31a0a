"""Extraction without a model: what was said, word for word, with its dates, and once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engrain import (
    Approval,
    AssistantMessage,
    Audit,
    Failure,
    Memory,
    Scope,
    System,
    ToolCall,
    ToolResult,
    Turn,
    UserMessage,
)
from engrain.contracts import faults, limits
from engrain.contracts.ids import SessionId
from engrain.testing.clock import HeldClock
from services.exports import ANA, episode_texts, talk, write_export

START_US = 1_767_225_600_000_000
MAY_2023_US = 1_683_504_000_000_000


def said(memory: Memory, *turns: Turn, scope: Scope = ANA) -> SessionId:
    session = memory.sessions.start(scope)
    with memory.sessions.lease(scope, session.id) as writer:
        for turn in turns:
            writer.append(turn)
    return session.id


def test_extracting_twice_changes_nothing(memory: Memory) -> None:
    session = said(memory, Turn.said("I moved to Porto", reply="Noted"), Turn.said("In March"))
    first = memory.enrichment.extract(ANA, session)
    assert (first.events_read, first.written, first.known) == (3, 3, 0)
    before = memory.episodes.list(ANA).items
    again = memory.enrichment.extract(ANA, session)
    assert (again.events_read, again.written, again.known) == (0, 0, 0)
    assert memory.episodes.list(ANA).items == before


def test_a_session_that_went_on_is_extracted_from_its_watermark(memory: Memory) -> None:
    session = said(memory, Turn.said("one", reply="two"))
    memory.enrichment.extract(ANA, session)
    assert memory.episodes.read_watermark(ANA, session) == 2
    with memory.sessions.lease(ANA, session) as writer:
        writer.append(Turn.said("three"))
    report = memory.enrichment.extract(ANA, session)
    assert (report.events_read, report.written) == (1, 1)
    assert episode_texts(memory) == {"one": 1, "two": 1, "three": 1}


def test_the_watermark_goes_past_events_that_say_nothing(memory: Memory) -> None:
    session = said(memory, Turn((System(text="be kind"), Audit(name="cost"))))
    assert memory.enrichment.extract(ANA, session).events_read == 2
    assert memory.enrichment.extract(ANA, session).events_read == 0


@pytest.mark.invariant("INV-24")
def test_only_what_persons_and_the_agent_said_becomes_episodes(memory: Memory) -> None:
    session = said(
        memory,
        Turn(
            (
                System(text="system words"),
                UserMessage(text="user words"),
                ToolCall(call_id="c", name="read", arguments='{"q":"argument words"}'),
                Approval(call_id="c", is_allowed=True, text="approval words"),
                ToolResult(call_id="c", text="result words"),
                Audit(name="cost", text="audit words"),
                Failure(code="busy", text="failure words"),
                AssistantMessage(text="assistant words"),
            )
        ),
    )
    memory.enrichment.extract(ANA, session)
    assert episode_texts(memory) == {"user words": 1, "assistant words": 1}


@pytest.mark.invariant("INV-24")
def test_what_memory_gave_is_never_learned_again(memory: Memory) -> None:
    first = said(memory, Turn.said("the gate code is heron-42"))
    memory.enrichment.extract(ANA, first)
    second = memory.sessions.start(ANA)
    with memory.sessions.lease(ANA, second.id) as writer:
        for _ in range(3):
            block = memory.recall(ANA, "gate code", budget_tokens=200, session=writer)
            assert "heron-42" in block.text
            writer.append(Turn.said("what was it?", reply="I told you"))
            memory.enrichment.extract(ANA, second.id)
    kinds = [type(e.event).__name__ for e in memory.sessions.iter_events(ANA, second.id)]
    assert kinds.count("Recall") == 3
    assert [text for text in episode_texts(memory) if "heron" in text] == [
        "the gate code is heron-42"
    ]
    assert episode_texts(memory)["the gate code is heron-42"] == 1


def test_dates_are_those_of_the_source_and_none_is_invented(tmp_path: Path) -> None:
    clock = HeldClock(START_US)
    with Memory.open(":memory:", clock=clock) as memory:
        session = said(
            memory,
            Turn(
                (
                    UserMessage(text="said now"),
                    UserMessage(text="said then", occurred_at=MAY_2023_US),
                    UserMessage(text="undated", origin="import:chatgpt"),
                    UserMessage(text="dated", origin="import:chatgpt", occurred_at=MAY_2023_US),
                )
            ),
        )
        clock.advance(5 * limits.DAY_US)
        memory.enrichment.extract(ANA, session)
        found = {one.text: one for one in memory.episodes.list(ANA).items}
    assert {text: one.occurred_from for text, one in found.items()} == {
        "said now": START_US,
        "said then": MAY_2023_US,
        "undated": None,
        "dated": MAY_2023_US,
    }
    assert {one.recorded_at for one in found.values()} == {START_US + 5 * limits.DAY_US}
    assert all(one.occurred_from == one.occurred_to for one in found.values())


def test_an_episode_says_where_it_came_from(quick_memory: Memory) -> None:
    speaker = UserMessage(text="my kayak is yellow", speaker="Inês")
    session = said(quick_memory, Turn((System(text="x"), speaker)))
    quick_memory.enrichment.extract(ANA, session)
    (episode,) = quick_memory.episodes.list(ANA).items
    assert (episode.session_id, episode.first_sequence, episode.last_sequence) == (session, 2, 2)
    assert (episode.speaker, episode.origin) == ("Inês", "user")


@pytest.mark.parametrize(
    ("speaker", "named"),
    [
        ("", None),
        (" \n", None),
        (" Ana ", "Ana"),
        ("é" * 600, "é" * 512),
        ("y" * 2_000, "y" * 1_024),
    ],
)
def test_no_speaker_keeps_a_session_from_being_extracted(
    quick_memory: Memory, speaker: str, named: str | None
) -> None:
    session = said(
        quick_memory,
        Turn((UserMessage(text="I moved to Porto", speaker=speaker),)),
        Turn.said("In March"),
    )
    assert quick_memory.enrichment.extract(ANA, session).written == 2
    first, second = quick_memory.episodes.list(ANA).items
    assert (first.text, first.speaker) == ("I moved to Porto", named)
    assert (second.text, second.speaker) == ("In March", None)


def test_a_long_message_becomes_pieces_without_loss(quick_memory: Memory) -> None:
    sentences = [f"Sentence {number} of the kiln log, in full." for number in range(400)]
    session = said(quick_memory, Turn.said(" ".join(sentences)))
    quick_memory.enrichment.extract(ANA, session)
    pieces = sorted(quick_memory.episodes.list(ANA, limit=100).items, key=lambda e: e.ordinal)
    assert len(pieces) > 5
    assert [piece.ordinal for piece in pieces] == list(range(len(pieces)))
    assert all(len(piece.text.encode()) <= limits.episode_text_bytes_max for piece in pieces)
    assert " ".join(piece.text for piece in pieces) == " ".join(sentences)


def test_more_episodes_than_one_append_takes_are_all_written(quick_memory: Memory) -> None:
    many = tuple(UserMessage(text=f"fact {number}") for number in range(1_500))
    session = said(quick_memory, Turn(many))
    report = quick_memory.enrichment.extract(ANA, session)
    assert report.written == 1_500
    assert quick_memory.episodes.read_watermark(ANA, session) == 1_500
    assert quick_memory.episodes.unsettled(ANA) < limits.settle_episodes_max


@pytest.mark.invariant("INV-23")
def test_a_forgotten_episode_is_not_extracted_again(memory: Memory) -> None:
    session = said(memory, Turn.said("forget me"))
    memory.enrichment.extract(ANA, session)
    (episode,) = memory.episodes.list(ANA).items
    memory.episodes.tombstone(ANA, [episode.id])
    assert memory.enrichment.extract(ANA, session).written == 0
    assert episode_texts(memory) == {}
    assert memory.episodes.search(ANA, "forget") == ()


class Stopped(BaseException):
    """Ends the extraction as a kill would."""


def stop_at(number: int) -> Callable[[str], None]:
    seen: list[str] = []

    def hook(name: str) -> None:
        seen.append(name)
        if len(seen) == number:
            raise Stopped

    return hook


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_extraction_that_was_stopped_goes_on_where_it_was(tmp_path: Path, number: int) -> None:
    path = tmp_path / "engrain.sqlite3"
    many = tuple(UserMessage(text=f"fact {number}") for number in range(400))
    with Memory.open(path) as memory:
        session = said(memory, Turn(many))
        faults.arm(stop_at(number))
        try:
            with pytest.raises(Stopped):
                memory.enrichment.extract(ANA, session)
        finally:
            faults.arm(None)
    with Memory.open(path) as memory:
        memory.enrichment.extract(ANA, session)
        assert episode_texts(memory) == {f"fact {number}": 1 for number in range(400)}
        assert len(memory.episodes.search(ANA, "fact", limit=200)) == 200


@pytest.mark.invariant("INV-25")
def test_the_same_words_from_two_sources_are_two_rows_and_one_hit(
    quick_memory: Memory, folder: Path
) -> None:
    for _ in range(2):
        session = said(quick_memory, Turn.said("The gate code is heron-42."))
        quick_memory.enrichment.extract(ANA, session)
    quick_memory.imports.run(ANA, write_export(folder / "c.json", talk("other", 1)))
    assert episode_texts(quick_memory)["The gate code is heron-42."] == 2
    (hit,) = quick_memory.episodes.search(ANA, "gate code heron")
    assert len(hit.sources) == 2
