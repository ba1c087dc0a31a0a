"""The turn rule: pairs whole, ids unique, bounds kept, whatever order a source has."""

from __future__ import annotations

import functools
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.contracts import limits
from engrain.contracts.events import (
    Approval,
    AssistantMessage,
    Event,
    System,
    ToolCall,
    ToolResult,
    UserMessage,
)
from engrain.contracts.imports import ImportItem, SessionBegins, Skipped, TurnRead
from engrain.formats.documents import arguments_text
from engrain.formats.turns import TurnBuilder, iter_session
from engrain.rules.validation import check_append
from formats.reading import skips, told

Step = tuple[Event, str | None]


def built(*steps: Step | Event) -> list[ImportItem]:
    """What a builder gives for these events, their ids being their positions."""
    builder = TurnBuilder("import:test")
    items: list[ImportItem] = []
    for position, step in enumerate(steps, start=1):
        event, group = step if isinstance(step, tuple) else (step, None)
        items += builder.add(event, str(position), group=group)
    return items + builder.finish()


def call(call_id: str, text: str = "") -> ToolCall:
    return ToolCall(call_id=call_id, name="t", text=text)


def result(call_id: str, text: str = "") -> ToolResult:
    return ToolResult(call_id=call_id, text=text)


def said(text: str = "go") -> UserMessage:
    return UserMessage(text=text)


def test_results_move_behind_the_calls_of_one_message() -> None:
    items = built(said(), (call("a"), "m"), result("a"), (call("b"), "m"), result("b"))
    assert told(items) == [
        "--",
        "1 user: go",
        "2 call a t {}",
        "4 call b t {}",
        "3 result a completed: ",
        "5 result b completed: ",
    ]


def test_results_come_in_the_order_of_their_calls() -> None:
    assert told(built(call("a"), call("b"), result("b"), result("a")))[3:] == [
        "4 result a completed: ",
        "3 result b completed: ",
    ]


def test_a_message_with_text_after_its_call_gives_the_text_first() -> None:
    items = built((call("a"), "m"), (AssistantMessage(text="look"), "m"), result("a"))
    assert told(items)[1:] == ["2 assistant: look", "1 call a t {}", "3 result a completed: "]


def test_a_call_that_was_never_answered_gets_a_missing_result() -> None:
    items = built(call("a"), said("next"))
    assert told(items) == [
        "--",
        "1 call a t {}",
        "1/missing result a missing: ",
        "--",
        "2 user: next",
    ]


def test_an_open_call_at_the_end_is_held_back() -> None:
    items = built(said(), call("a"), call("b"), result("b"))
    assert told(items)[1:] == ["1 user: go", "3 call b t {}", "4 result b completed: "]
    assert Skipped("2", "open_call") in items


def test_a_result_without_its_call_is_counted() -> None:
    items = built(said(), result("x"), call("a"), result("a"), result("a"))
    assert skips(items) == {"orphan_result": 2}
    assert told(items)[1:] == ["1 user: go", "3 call a t {}", "4 result a completed: "]


def test_a_call_id_that_comes_again_is_numbered_with_its_result() -> None:
    items = built(
        call("a"), result("a"), said(), call("a"), result("a"), call("a#2"), result("a#2")
    )
    assert [line for line in told(items) if "call" in line or "result" in line] == [
        "1 call a t {}",
        "2 result a completed: ",
        "4 call a#2 t {}",
        "5 result a#2 completed: ",
        "6 call a#2#2 t {}",
        "7 result a#2#2 completed: ",
    ]


def test_the_same_event_twice_is_kept_once_and_another_under_its_id_is_numbered() -> None:
    builder = TurnBuilder("import:test")
    items = [
        *builder.add(said("a"), "x"),
        *builder.add(said("a"), "x"),
        *builder.add(said("b"), "x"),
    ]
    items += builder.finish()
    assert told(items) == ["--", "x user: a", "--", "x#2 user: b"]
    assert skips(items) == {"repeated": 1}


def test_an_approval_between_call_and_result_keeps_the_pair_whole() -> None:
    items = built(call("a"), Approval(call_id="a", is_allowed=True), result("a"))
    assert told(items)[1:] == ["2 Approval: ", "1 call a t {}", "3 result a completed: "]


def test_text_is_repaired_and_says_so() -> None:
    (turn,) = built(UserMessage(text="a\0b\ud800 \ud83d\ude00", speaker="A\0na"))
    assert isinstance(turn, TurnRead)
    event = turn.events[0].event
    assert (event.text, event.speaker) == ("a�b� 😀", "A�na")
    assert event.repaired


def test_every_event_says_which_import_it_came_by() -> None:
    (turn,) = built(said(), AssistantMessage(text="x"), call("a"), result("a"))
    assert isinstance(turn, TurnRead)
    assert {imported.event.origin for imported in turn.events} == {"import:test"}


@pytest.mark.invariant("INV-06")
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ('{"a": 1.50}', '{"a": 1.50}'),
        ("[1]", '{"input":"[1]"}'),
        ("ls -l", '{"input":"ls -l"}'),
        (" ", "{}"),
        ('{"a": NaN}', '{"input":"{\\"a\\": NaN}"}'),
        ('{"a":1,"a":2}', '{"input":"{\\"a\\":1,\\"a\\":2}"}'),
        ('{"a":"\\u0000"}', '{"input":"{\\"a\\":\\"\\\\u0000\\"}"}'),
    ],
)
def test_arguments_become_an_object_inside_the_bounds(given: str, kept: str) -> None:
    items = built(ToolCall(call_id="a", name="t", arguments=given), result("a"))
    assert told(items)[1] == f"1 call a t {kept}"
    (turn,) = items
    assert isinstance(turn, TurnRead)
    check_append([imported.event for imported in turn.events])


@pytest.mark.invariant("INV-06")
@pytest.mark.parametrize(
    "value",
    [{"a": [0] * 70_000}, functools.reduce(lambda inner, _: {"a": inner}, range(70), {})],
    ids=["many nodes", "deep"],
)
def test_arguments_outside_the_bounds_are_kept_as_text(value: object) -> None:
    kept = json.loads(arguments_text(value))
    assert list(kept) == ["input"]
    assert json.loads(kept["input"]) == value


def test_a_text_over_the_bound_is_cut_on_a_code_point() -> None:
    items = built(UserMessage(text='"é' * 2_000_000))
    assert items[0] == Skipped("1", "cut_text")
    turn = items[1]
    assert isinstance(turn, TurnRead)
    size = len(msgspec.json.encode(turn.events[0].event))
    assert limits.event_bytes_max - 16 < size <= limits.event_bytes_max


def test_arguments_over_the_bound_leave_the_pair_out() -> None:
    huge = ToolCall(call_id="a", name="t", arguments='{"x":"' + "y" * limits.event_bytes_max + '"}')
    items = built(said(), huge, result("a"))
    assert skips(items) == {"orphan_result": 1, "too_large": 1}
    assert told(items) == ["--", "1 user: go"]


def test_a_turn_over_the_bounds_is_split_between_pairs() -> None:
    pairs: list[Event] = []
    for number in range(3_000):
        pairs += [call(str(number)), result(str(number))]
    turns = [item for item in built(said(), *pairs) if isinstance(item, TurnRead)]
    assert [len(turn.events) for turn in turns] == [4_095, 1_906]
    for turn in turns:
        check_append([imported.event for imported in turn.events])


def test_a_run_of_calls_over_the_bounds_is_split_into_whole_pairs() -> None:
    large = "x" * (limits.MIB * 2)
    run = [call(str(n)) for n in range(10)] + [result(str(n), large) for n in range(10)]
    turns = [item for item in built(*run) if isinstance(item, TurnRead)]
    assert [len(turn.events) for turn in turns] == [14, 6]
    for turn in turns:
        events = [imported.event for imported in turn.events]
        check_append(events)
        assert sum(len(msgspec.json.encode(e)) for e in events) <= limits.append_bytes_max


def test_a_session_without_a_turn_is_counted() -> None:
    begins = SessionBegins(source_id="s")
    assert list(iter_session(begins, built(UserMessage(text=" ")))) == [
        Skipped("1", "empty"),
        Skipped("s", "empty_session"),
    ]


ids = st.sampled_from(["a", "b", "c", "a#2"])
steps = st.lists(
    st.tuples(
        st.one_of(
            st.builds(said, st.sampled_from(["hello", " "])),
            st.builds(AssistantMessage, text=st.sampled_from(["answer", ""])),
            st.builds(System, text=st.just("rule")),
            st.builds(call, ids),
            st.builds(result, ids),
            st.builds(Approval, call_id=ids, is_allowed=st.booleans()),
        ),
        st.sampled_from([None, "m1", "m2"]),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_whatever_a_source_says_every_turn_may_be_appended(script: list[Step]) -> None:
    known: set[str] = set()
    for item in built(*script):
        if isinstance(item, TurnRead):
            events = [imported.event for imported in item.events]
            check_append(events, known_calls=known)
            known |= {event.call_id for event in events if isinstance(event, ToolCall)}


@settings(max_examples=200, deadline=None)
@given(steps, st.data())
def test_a_source_that_has_grown_gives_its_old_events_again(
    script: list[Step], data: st.DataObject
) -> None:
    shorter = script[: data.draw(st.integers(0, len(script)))]
    old = {line for line in told(built(*shorter)) if line != "--"}
    new = {line for line in told(built(*script)) if line != "--"}
    assert old <= new


@settings(max_examples=200, deadline=None)
@given(steps, st.data())
def test_what_is_new_in_a_grown_source_may_be_appended(
    script: list[Step], data: st.DataObject
) -> None:
    shorter = script[: data.draw(st.integers(0, len(script)))]
    known = {i.source_id for t in built(*shorter) if isinstance(t, TurnRead) for i in t.events}
    for item in built(*script):
        if isinstance(item, TurnRead):
            new = [i.event for i in item.events if i.source_id not in known]
            if new:
                check_append(new)
