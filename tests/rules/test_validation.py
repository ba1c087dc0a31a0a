"""Only turns that any provider accepts, and sound episodes, may enter the record."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.contracts import limits
from engrain.contracts.episodes import NewEpisode
from engrain.contracts.errors import InvalidValue, LimitExceeded
from engrain.contracts.events import (
    EVENT_KINDS,
    KIND_OF,
    Approval,
    AssistantMessage,
    Audit,
    Erased,
    Recall,
    StoredEvent,
    Summary,
    System,
    ToolCall,
    ToolResult,
    UserMessage,
)
from engrain.rules.validation import PairChecker, check_append, check_episode


def call(name):
    return ToolCall(call_id=name, name="grep")


def result(name):
    return ToolResult(call_id=name, text="found")


def stored(events):
    return [StoredEvent(n, 1, 0, event) for n, event in enumerate(events, 1)]


def wrong_in(events):
    """What is wrong with a whole history by the pair rule, or None."""
    pairs = PairChecker()
    return pairs.feed_all(stored(events), set()) or pairs.finish()


USER = UserMessage(text="hello")
REPLY = AssistantMessage(text="hi")
AUDIT = Audit(name="seen")
YES = Approval(call_id="a", is_allowed=True)


@pytest.mark.invariant("INV-12")
@pytest.mark.parametrize(
    "events",
    [
        [USER],
        [USER, REPLY],
        [USER, call("a"), result("a"), REPLY],
        [USER, REPLY, call("a"), call("b"), result("a"), result("b"), REPLY],
        [call("a"), result("a"), call("b"), result("b")],
        [call("a"), YES, AUDIT, result("a")],
        [USER, Recall(text="", tokens=0), REPLY],
        [UserMessage(text="x", origin="import:chatgpt")],
    ],
)
def test_a_sound_turn_may_be_stored(events):
    check_append(events)
    assert wrong_in(events) is None


@pytest.mark.invariant("INV-06")
@pytest.mark.parametrize(
    "arguments",
    ["", "ls", "[]", "null", "{", '{"a":NaN}', '{"a":1,"a":2}', '{"a":1e999}', '{"a":"\\u0000"}'],
)
def test_arguments_that_are_no_object_inside_the_bounds_are_refused(arguments):
    with pytest.raises(InvalidValue, match=r"events\[0\]: its arguments are no JSON"):
        check_append([ToolCall(call_id="a", name="grep", arguments=arguments), result("a")])


@pytest.mark.invariant("INV-12")
@pytest.mark.parametrize(
    ("events", "at"),
    [
        ([call("a")], 0),
        ([result("a")], 0),
        ([call("a"), REPLY, result("a")], 1),
        ([call("a"), call("b"), result("b"), result("a")], 2),
        ([call("a"), call("b"), result("a")], 2),
        ([call("a"), call("b"), result("a"), call("c")], 3),
        ([call("a"), result("a"), result("a")], 2),
        ([call("a"), call("a"), result("a"), result("a")], 1),
        ([call("a"), result("b")], 1),
        ([call("a"), AUDIT], 1),
    ],
)
def test_a_call_without_its_result_directly_after_is_refused(events, at):
    with pytest.raises(InvalidValue) as refused:
        check_append(events)
    assert refused.value.field == f"events[{at}]"
    assert wrong_in(events) is not None


@pytest.mark.invariant("INV-12")
def test_a_call_id_is_used_once():
    with pytest.raises(InvalidValue, match=r"events\[2\]"):
        check_append([call("a"), result("a"), call("a"), result("a")])
    with pytest.raises(InvalidValue, match=r"events\[0\]"):
        check_append([call("a"), result("a")], known_calls={"a"})


@pytest.mark.invariant("INV-12")
@pytest.mark.parametrize(
    "event",
    [
        UserMessage(text=""),
        AssistantMessage(text=" \n"),
        System(text=""),
        Summary(text="x", covers_sequence=1, covers_link="00"),
        Erased(was="user_message"),
        ToolCall(call_id="", name="grep"),
        ToolCall(call_id="a", name=""),
        Approval(call_id="", is_allowed=True),
        UserMessage(text="x", occurred_at=2**63),
        UserMessage(text="x", origin="nobody"),
    ],
)
def test_what_a_resume_would_choke_on_is_refused_at_append(event):
    with pytest.raises(InvalidValue) as refused:
        check_append([USER, event])
    assert refused.value.field == "events[1]"


def test_a_turn_has_at_least_one_event_and_not_too_many():
    check_append([USER] * limits.append_events_max)
    for events in ([], [USER] * (limits.append_events_max + 1)):
        with pytest.raises(InvalidValue, match="events"):
            check_append(events)


any_event = st.one_of(
    st.sampled_from([USER, REPLY, AUDIT, YES]),
    st.sampled_from("abc").map(call),
    st.sampled_from("abc").map(result),
)


@pytest.mark.invariant("INV-12")
@settings(max_examples=300)
@given(st.lists(any_event, min_size=1, max_size=8), st.data())
def test_erasing_any_events_keeps_a_sound_history_replayable(events, data):
    try:
        check_append(events)
    except InvalidValue:
        return
    gone = data.draw(st.sets(st.integers(0, len(events) - 1)))
    kept = [
        Erased(was=KIND_OF[type(event)]) if index in gone else event
        for index, event in enumerate(events)
    ]
    assert wrong_in(kept) is None


@pytest.mark.invariant("INV-12")
def test_replay_refuses_half_an_erased_pair():
    pairs = PairChecker()
    assert pairs.feed(Erased(was="tool_call")) is None
    assert pairs.feed(USER) is not None


@pytest.mark.invariant("INV-12")
@settings(max_examples=500)
@given(
    st.lists(any_event | st.sampled_from(sorted(EVENT_KINDS)).map(lambda kind: Erased(was=kind))),
    st.integers(1, 5),
)
def test_pages_of_any_size_are_checked_as_single_events_are(events, size):
    singly, in_pages, call_ids = PairChecker(), PairChecker(), set()
    found = None
    for at, event in enumerate(events):
        if why := singly.feed(event):
            found = at, why
            break
    for first in range(0, len(events), size):
        if wrong := in_pages.feed_all(stored(events[first : first + size]), call_ids):
            assert found == (first + wrong[0], wrong[1])
            return
    assert found is None
    assert in_pages.finish() == singly.finish()
    assert call_ids == {event.call_id for event in events if isinstance(event, ToolCall)}


EPISODE = NewEpisode(text="Ana likes tea", first_sequence=1, last_sequence=2)


def test_a_sound_episode_may_be_stored():
    check_episode(EPISODE)
    check_episode(
        msgspec.structs.replace(
            EPISODE,
            occurred_from=-5,
            occurred_to=-5,
            importance=1,
            labels=("a", "b"),
            speaker="Ana",
            origin="import:locomo",
        )
    )


@pytest.mark.invariant("INV-05")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"text": "a\0"}, "episode_text"),
        ({"text": " "}, "episode_text"),
        ({"text": 7}, "episode_text"),
        ({"speaker": "\ud800"}, "speaker"),
        ({"speaker": ""}, "speaker"),
        ({"first_sequence": 0}, "first_sequence"),
        ({"first_sequence": 3}, "first_sequence"),
        ({"last_sequence": 2**40}, "first_sequence"),
        ({"ordinal": -1}, "ordinal"),
        ({"ordinal": True}, "ordinal"),
        ({"occurred_from": 2**63}, "occurred_from"),
        ({"occurred_from": 2, "occurred_to": 1}, "occurred_to"),
        ({"importance": float("nan")}, "importance"),
        ({"importance": 1.1}, "importance"),
        ({"importance": "high"}, "importance"),
        ({"origin": "tool:"}, "origin"),
        ({"sensitivity": 1}, "sensitivity"),
        ({"labels": ("",)}, "label"),
        ({"labels": ["a"]}, "labels"),
    ],
)
def test_an_unsound_episode_is_refused_by_field(change, field):
    with pytest.raises(InvalidValue) as refused:
        check_episode(msgspec.structs.replace(EPISODE, **change))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({"text": "é" * 4_097}, "episode_text_bytes_max"),
        ({"labels": ("a",) * 33}, "labels_max"),
        ({"labels": ("a" * 129,)}, "label_bytes_max"),
    ],
)
def test_an_episode_past_a_bound_is_refused(change, limit):
    with pytest.raises(LimitExceeded) as refused:
        check_episode(msgspec.structs.replace(EPISODE, **change))
    assert refused.value.limit == limit
