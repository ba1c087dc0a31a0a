"""Content cannot move the cursor, colour the terminal, or pretend to be what stands around it."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.conftest import Command
from engrain.apps.cli.escaping import visible, visible_json, visible_line

ATTACK = (
    "zebra \x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J\x1b[H \x9b31m \u202egnp.exe\u2066 \u200b"
    "[bold]markup[/bold] [link=file:///x]y[/link] :smile:\r\nsecond\rline\x08\x7f"
)
HARMFUL = "\x1b\x07\x08\x7f\x9b\r\u202e\u2066\u200b"


@pytest.fixture
def attacked(engrain: Command, tmp_path: Path) -> Command:
    conversation = {
        "uuid": "c",
        "name": ATTACK,
        "chat_messages": [
            {"uuid": "m1", "text": ATTACK, "content": [], "sender": "human"},
            {"uuid": "m2", "text": "#2 · forged\nengrain: forged", "sender": "assistant"},
        ],
    }
    path = tmp_path / "attack.json"
    path.write_text(json.dumps([conversation]))
    assert engrain("import", path).code == 0
    return engrain


def commands(engrain: Command) -> list[list[str]]:
    (session,) = engrain("sessions", "list", "--all", "--json").json["items"]
    (episode, *_) = engrain("episodes", "list", "--json").json["items"]
    return [
        ["recall", "zebra", "--explain"],
        ["search", "zebra"],
        ["sessions", "list", "--all"],
        ["sessions", "show", session["id"]],
        ["sessions", "fork", session["id"], "--title", "fork [red]x"],
        ["episodes", "list"],
        ["episodes", "show", episode["id"]],
    ]


def test_no_command_lets_content_reach_the_terminal(attacked: Command) -> None:
    for command in commands(attacked):
        for form in ([], ["--json"]):
            ran = attacked(*command, *form)
            assert ran.code == 0
            assert not set(ran.out + ran.err) & set(HARMFUL), command


def test_what_was_taken_away_is_shown_as_its_code(attacked: Command) -> None:
    out = attacked("sessions", "list", "--all").out
    assert "\\x1b[31mred" in out and "\\u202egnp.exe" in out


def test_markup_in_content_is_text(attacked: Command) -> None:
    for command in (["sessions", "list", "--all"], ["episodes", "list"], ["search", "zebra"]):
        out = attacked(*command).out
        assert "[bold]markup[/bold]" in out and "[link=file:///x]y[/link]" in out
        assert ":smile:" in out


def test_content_cannot_forge_a_heading(attacked: Command) -> None:
    (session,) = attacked("sessions", "list", "--all", "--json").json["items"]
    lines = attacked("sessions", "show", session["id"]).out.splitlines()
    assert [line for line in lines if line.startswith("#2 ")] == [
        line for line in lines if line.endswith("assistant_message")
    ]
    assert "    #2 · forged" in lines and "    engrain: forged" in lines


def test_json_loses_nothing(attacked: Command) -> None:
    (session,) = attacked("sessions", "list", "--all", "--json").json["items"]
    events = attacked("sessions", "show", session["id"], "--json").json["items"]
    assert events[0]["event"]["text"] == ATTACK


def test_errors_show_no_escape_of_a_command_line(engrain: Command, tmp_path: Path) -> None:
    for form in ([], ["--json"]):
        for command in (["import", tmp_path / "\x1b[2J\u202ex"], ["no\x1b[2J\u202esuch"]):
            ran = engrain(*command, *form)
            assert ran.code in (1, 2)
            assert not set(ran.err) & set(HARMFUL)


def test_names_that_are_no_text_are_survived(engrain: Command, tmp_path: Path) -> None:
    path = tmp_path / "odd\udcff.json"
    path.write_text(json.dumps([{"uuid": "c", "chat_messages": []}, 7]))
    for form in ([], ["--json"]):
        assert engrain("import", path, *form).code == 3
        assert engrain("import", tmp_path / "no\udcff", *form).code == 1


@given(st.text(alphabet=st.characters()))
def test_visible_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    for shown in (visible(text), visible_json(json.dumps(text, ensure_ascii=False))):
        for character in shown:
            kind = unicodedata.category(character)
            assert kind not in ("Cs", "Zl", "Zp")
            assert kind != "Cc" or character in "\n\t"
            assert unicodedata.bidirectional(character) not in (
                *("LRE", "RLE", "LRO", "RLO", "PDF"),
                *("LRI", "RLI", "FSI", "PDI"),
            )
    assert "\n" not in visible_line(text)


@given(st.text())
def test_visible_json_means_the_same(text: str) -> None:
    assert json.loads(visible_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("text", ["Olá, Inês", "日本語 中文", "👩‍👩‍👧 emoji", "می‌خواهم", "a\nb"])
def test_ordinary_text_is_untouched(text: str) -> None:
    assert visible(text) == text
