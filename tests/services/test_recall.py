"""`memory.recall` as a caller has it: steered by the turn, headed with dates, shared out fairly."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from engrain import Memory, RecallBlock, Scope, Turn, UserMessage
from engrain.contracts.ids import SessionId
from engrain.contracts.recall import Omission
from engrain.formats.archive import iter_archive_lines
from engrain.rules.framing import parse_frame
from services.exports import ANA

BEN = Scope(org="acme", user="ben")
NOON_US = int(datetime(2023, 5, 8, 12, tzinfo=UTC).timestamp() * 1_000_000)


def learn(memory: Memory, *events: UserMessage) -> SessionId:
    session = memory.sessions.start(ANA)
    with memory.sessions.lease(ANA, session.id) as writer:
        writer.append(events)
    memory.enrichment.extract(ANA, session.id)
    return session.id


def headings(block: RecallBlock) -> list[str]:
    return [item.heading for item in parse_frame(block.text)]


def shown(block: RecallBlock) -> list[str]:
    return [item.episode.text for item in block.items]


def test_each_turn_calls_to_mind_what_it_asks_for(memory: Memory) -> None:
    facts = {
        "Where does Ana live?": "Ana lives in Porto near the river.",
        "what was the gate code?": "The gate code is heron-42.",
        "a que horas parte o comboio?": "O comboio parte às sete e meia.",
        "猫叫什么名字": "我家的猫叫小白。",
        "東京の天気は": "東京は明日雨です。",
        "invoice 2024-117": "Invoice 2024-117 is paid.",
    }
    for fact in facts.values():
        learn(memory, UserMessage(text=fact))
    for question, fact in facts.items():
        block = memory.recall(ANA, question, budget_tokens=400)
        assert shown(block)[0] == fact, question
        assert block.text.startswith("<memory nonce=")
        assert fact in block.text


def test_an_item_is_headed_by_its_day_and_its_speaker(quick_memory: Memory) -> None:
    learn(
        quick_memory,
        UserMessage(text="the yellow kayak", speaker="Inês", occurred_at=NOON_US),
        UserMessage(text="the green kayak", origin="import:chatgpt"),
        UserMessage(text="the grey kayak", occurred_at=-1),
    )
    block = quick_memory.recall(ANA, "kayak", budget_tokens=500)
    told = dict(zip(shown(block), headings(block), strict=True))
    assert told["the yellow kayak"] == "2023-05-08 Inês"
    assert told["the green kayak"] == "undated"
    assert told["the grey kayak"] == "1969-12-31"


@pytest.mark.parametrize("occurred_at", [2**63 - 1, -(2**63), 253_402_300_800_000_000])
def test_a_time_that_no_calendar_holds_does_not_stop_recall(
    quick_memory: Memory, occurred_at: int
) -> None:
    learn(quick_memory, UserMessage(text="the yellow kayak", occurred_at=occurred_at))
    block = quick_memory.recall(ANA, "kayak", budget_tokens=500)
    assert headings(block) == ["undated"]


def test_items_say_by_which_words_they_were_found(quick_memory: Memory) -> None:
    learn(quick_memory, UserMessage(text="the yellow kayak leaks"))
    (item,) = quick_memory.recall(ANA, "yellow kayaks?", budget_tokens=500).items
    assert {reason.partition(":")[0] for reason in item.reasons} == {"term"}
    found = {reason.partition(":")[2] for reason in item.reasons}
    assert found
    assert all(any(term in word for word in ("yellow", "kayak")) for term in found)
    assert item.sources == (item.episode.id,)


def test_one_session_gets_no_more_than_its_share_where_several_compete(
    quick_memory: Memory,
) -> None:
    many = [f"the kayak of day {day} was painted in colour {day}" for day in range(40)]
    loud = learn(quick_memory, *(UserMessage(text=text) for text in many))
    quiet = learn(quick_memory, UserMessage(text="a kayak needs a paddle"))
    block = quick_memory.recall(ANA, "kayak", budget_tokens=400)
    groups = [item.episode.session_id for item in block.items]
    assert quiet in groups
    spent = sum(item.tokens for item in block.items if item.episode.session_id == loud)
    assert spent <= 0.5 * 400
    assert {omission.reason for omission in block.left_out} <= {"session_share", "budget"}
    assert sum(omission.count for omission in block.left_out) == 41 - len(block.items)


@pytest.mark.invariant("INV-25")
def test_near_duplicates_are_shown_once_and_said(quick_memory: Memory) -> None:
    learn(
        quick_memory,
        UserMessage(text="The gate code for the shop in Braga is heron-42, said Rui in May."),
        UserMessage(text="the gate code for the shop, in Braga, is heron-42; said Rui in May"),
        UserMessage(text="Bring the ladder."),
    )
    block = quick_memory.recall(ANA, "gate code", budget_tokens=500)
    assert sum("heron-42" in text for text in shown(block)) == 1
    assert block.text.count("heron-42") == 1


PLACE = "The review with the whole team about the roadmap is in the large room on the second floor"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            f"{PLACE} at 3 and everybody brings slides.",
            f"{PLACE} at 4 and everybody brings slides.",
        ),
        ("Ana lent Rui her kayak", "Rui lent Ana her kayak"),
    ],
)
def test_another_number_and_another_order_of_words_hide_nothing(
    quick_memory: Memory, one: str, other: str
) -> None:
    learn(quick_memory, UserMessage(text=one), UserMessage(text=other))
    block = quick_memory.recall(ANA, "the review or the kayak at 3", budget_tokens=500)
    assert set(shown(block)) == {one, other}
    assert block.left_out == ()


@pytest.mark.invariant("INV-25")
def test_the_same_words_of_two_persons_are_both_shown(quick_memory: Memory) -> None:
    allergic = "I am allergic to nuts"
    learn(
        quick_memory,
        UserMessage(text=allergic, speaker="Caroline"),
        UserMessage(text=allergic, speaker="Melanie"),
    )
    block = quick_memory.recall(ANA, "who is allergic to nuts?", budget_tokens=500)
    assert {item.episode.speaker for item in block.items} == {"Caroline", "Melanie"}
    assert block.left_out == ()


def test_what_did_not_fit_is_said(quick_memory: Memory) -> None:
    for number in range(12):
        learn(quick_memory, UserMessage(text=f"kayak number {number} is for rent by the hour"))
    plenty = quick_memory.recall(ANA, "kayak", budget_tokens=2_000)
    assert (len(plenty.items), plenty.left_out) == (12, ())
    little = quick_memory.recall(ANA, "kayak", budget_tokens=120)
    assert 0 < len(little.items) < 12
    assert little.left_out == (Omission("budget", 12 - len(little.items)),)
    assert little.tokens <= 120


@pytest.mark.invariant("INV-22")
def test_the_callers_own_counter_decides(quick_memory: Memory) -> None:
    for number in range(20):
        learn(quick_memory, UserMessage(text=f"kayak number {number}"))
    for budget in (0, 1, 200, 350, 1_000):
        block = quick_memory.recall(ANA, "kayak", budget_tokens=budget, counter=len)
        assert block.tokens == len(block.text) <= budget


def test_a_conversation_is_recalled_with_the_turn_that_answers(quick_memory: Memory) -> None:
    session = quick_memory.sessions.start(ANA)
    with quick_memory.sessions.lease(ANA, session.id) as writer:
        for question, answer in (
            ("How is the weather?", "It rains."),
            ("What did the plumber charge for the boiler?", "He took 180 euros."),
            ("Shall we eat?", "Soup is ready."),
        ):
            writer.append(Turn.said(question, reply=answer))
    quick_memory.enrichment.extract(ANA, session.id)
    block = quick_memory.recall(ANA, "plumber boiler charge", budget_tokens=500)
    assert shown(block)[0] == "What did the plumber charge for the boiler?"
    assert "He took 180 euros." in shown(block)


def test_an_answer_is_recalled_with_its_question_in_the_smallest_memory(
    quick_memory: Memory,
) -> None:
    session = quick_memory.sessions.start(ANA)
    with quick_memory.sessions.lease(ANA, session.id) as writer:
        writer.append(Turn.said("Which tram goes to Graça?", reply="The 28E."))
    quick_memory.enrichment.extract(ANA, session.id)
    block = quick_memory.recall(ANA, "tram Graça", budget_tokens=800)
    assert shown(block) == ["Which tram goes to Graça?", "The 28E."]
    assert block.left_out == ()


def test_what_an_archive_brings_in_keeps_the_days_on_which_it_was_said(
    quick_memory: Memory, folder: Path
) -> None:
    session_id = learn(quick_memory, UserMessage(text="the yellow kayak"))
    kept = quick_memory.sessions.read(ANA, session_id)
    said = next(quick_memory.sessions.iter_events(ANA, session_id))
    said = msgspec.structs.replace(said, recorded_at=NOON_US)
    path = folder / "kept.jsonl"
    path.write_bytes(b"".join(iter_archive_lines([(kept, [said])])))
    quick_memory.imports.run(BEN, path)
    assert headings(quick_memory.recall(BEN, "kayak", budget_tokens=500)) == ["2023-05-08"]
