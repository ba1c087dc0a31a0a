"""ChatGPT exports: each odd corner of the format, exactly."""

from __future__ import annotations

import json

from engrain.contracts.imports import Skipped
from formats.reading import events, fixture, read, skips, source, told

RYE = "c-rye:"


def test_the_line_from_the_current_node_becomes_turns() -> None:
    assert told(read("chatgpt", fixture("chatgpt.json"))) == [
        "session c-rye | Rye bread | 1717236000000000",
        "--",
        "u1 user: How long should rye dough rest?",
        'c1 call c1 browser {"input":"search(\\"rye dough rest\\")"}',
        "b1 result c1 completed: # 【0†Rye basics】\n\nRye rests for two hours.",
        "a1 assistant: About two hours.",
        "--",
        "u2 user: Is this crumb too dense?",
        'c2 call c2 python {"code": "1/0"}',
        "x2 result c2 completed: ZeroDivisionError",
        'c3 call c3 web.open {"url": "https://example.org"}',
        "x3 result c3 failed: the page did not answer",
        "a2 assistant: A little dense, yes.",
        "--",
        "u3 user: And with more water?",
        'c4 call c4 web.search {"input":"rye hydration"}',
        "x4 result c4 completed: 80 percent water",
        'c5 call c5 bio {"input":"remember: likes rye"}',
        "c5/missing result c5 missing: ",
        "a3 assistant: Up to 80 % water.",
        "session c-growing | None | None",
        "--",
        "p user: Still there?",
    ]


def test_all_that_was_not_said_is_counted() -> None:
    items = read("chatgpt", fixture("chatgpt.json"))
    assert skips(items) == {
        "audio": 1,
        "branch": 3,
        "custom_instructions": 1,
        "empty": 1,
        "empty_session": 1,
        "hidden": 2,
        "not_an_object": 1,
        "open_call": 1,
        "picture": 1,
        "thinking": 2,
        "unknown_content": 1,
    }
    assert Skipped("c-rye", "branch", 3) in items
    assert Skipped("element 4", "not_an_object") in items


def test_times_are_those_of_the_file_and_null_stays_unsaid() -> None:
    found = events(read("chatgpt", fixture("chatgpt.json")))
    assert found[RYE + "u1"].occurred_at == 1_717_236_000_250_000
    assert found[RYE + "a1"].occurred_at == 1_717_236_003_500_000
    assert found[RYE + "u2"].occurred_at is None
    assert found[RYE + "c5/missing"].occurred_at is None
    assert {event.origin for event in found.values()} == {"import:chatgpt"}


def test_a_circle_of_parents_and_wrong_types_are_survived() -> None:
    said = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["hi"]}}
    circle = {
        "mapping": {
            "a": {"parent": "b", "message": said, "children": ["b"]},
            "b": {"parent": "a", "message": [], "children": "no"},
            "c": 7,
        },
        "current_node": "a",
        "title": 5,
        "create_time": "soon",
    }
    items = read("chatgpt", source(json.dumps([circle, {"mapping": None}]).encode()))
    assert told(items) == ["session file.json#1 | None | None", "--", "1 user: hi"]
    assert skips(items) == {"empty_session": 1}


def test_a_single_conversation_without_an_array_is_read() -> None:
    raw = json.loads(fixture("chatgpt.json").open().read())[0]
    items = read("chatgpt", source(json.dumps(raw).encode()))
    assert told(items)[0] == "session c-rye | Rye bread | 1717236000000000"


def test_a_result_under_another_name_answers_the_call_that_waits_longest() -> None:
    def node(name: str, parent: str, role: str, **message: object) -> dict[str, object]:
        content = {"content_type": "text", "parts": [name]}
        return {
            "parent": parent,
            "message": {"id": name, "author": {"role": role}, "content": content, **message},
        }

    mapping = {
        "u": node("u", "", "user"),
        "c1": node("c1", "u", "assistant", recipient="dalle.text2im"),
        "c2": node("c2", "c1", "assistant", recipient="bio"),
        "r1": node("r1", "c2", "tool"),
        "r2": node("r2", "r1", "tool", author={"role": "tool", "name": "renamed"}),
        "a": node("a", "r2", "assistant"),
    }
    items = read(
        "chatgpt", source(json.dumps([{"mapping": mapping, "current_node": "a"}]).encode())
    )
    assert told(items)[2:] == [
        "u user: u",
        'c1 call c1 dalle.text2im {"input":"c1"}',
        'c2 call c2 bio {"input":"c2"}',
        "r1 result c1 completed: r1",
        "r2 result c2 completed: r2",
        "a assistant: a",
    ]
