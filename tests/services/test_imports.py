"""Imports: one bad line costs itself alone, the same file twice changes nothing."""

from __future__ import annotations

import errno
import io
import json
import os
import time
from pathlib import Path

import pytest

from engrain import Memory, NotFound, Scope
from engrain.contracts.errors import InvalidValue, LimitExceeded, UnknownFormat, UnsafeFile
from engrain.contracts.imports import Doing, SkippedPlace, SourceFile
from engrain.services.progress import Meter
from services.exports import (
    ANA,
    code_line,
    conversation,
    episode_texts,
    talk,
    texts_of,
    write_export,
    write_lines,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "conversations.json"


def test_the_example_answers_the_question_of_the_demonstration(quick_memory: Memory) -> None:
    report = quick_memory.imports.run(ANA, EXAMPLE)
    assert (report.sessions_new, report.events_new, report.skipped, report.failed) == (
        4,
        65,
        {},
        [],
    )
    asked = "which database did I choose for the shop, and why?"
    block = quick_memory.recall(ANA, asked, budget_tokens=300)
    assert "for the shop I choose PostgreSQL as the database, because two tills" in block.text
    assert "2026-04-08" in block.text


@pytest.mark.invariant("INV-16")
def test_the_same_file_twice_changes_nothing(memory: Memory, folder: Path) -> None:
    path = write_export(folder / "conversations.json", talk("a", 3), talk("b", 2))
    first = memory.imports.run(ANA, path)
    assert (first.sessions_new, first.turns_new, first.events_new, first.episodes_new) == (
        2,
        5,
        10,
        10,
    )
    held, episodes = texts_of(memory), episode_texts(memory)
    again = memory.imports.run(ANA, path)
    assert (again.sessions_new, again.turns_new, again.events_new, again.episodes_new) == (
        0,
        0,
        0,
        0,
    )
    assert (again.sessions_known, again.events_known) == (2, 10)
    assert (texts_of(memory), episode_texts(memory)) == (held, episodes)


@pytest.mark.invariant("INV-16")
def test_a_grown_file_adds_only_what_is_new(memory: Memory, folder: Path) -> None:
    path = folder / "conversations.json"
    memory.imports.run(ANA, write_export(path, talk("a", 2)))
    report = memory.imports.run(ANA, write_export(path, talk("a", 4), talk("b", 1)))
    assert (report.sessions_known, report.sessions_new) == (1, 1)
    assert (report.events_known, report.events_new, report.episodes_new) == (4, 6, 6)
    assert texts_of(memory)["talk a"] == [f"a says {at}: the kiln" for at in range(8)]


@pytest.mark.invariant("INV-16")
def test_a_conversation_in_two_exports_is_kept_once(memory: Memory, folder: Path) -> None:
    write_export(folder / "january.json", talk("a", 2), talk("b", 2))
    write_export(folder / "june.json", talk("b", 3), talk("c", 1))
    report = memory.imports.run(ANA, folder)
    assert (report.files, report.sessions_new, report.events_new) == (2, 3, 12)
    assert {title: len(texts) for title, texts in texts_of(memory).items()} == {
        "talk a": 4,
        "talk b": 6,
        "talk c": 2,
    }
    assert set(episode_texts(memory).values()) == {1}


@pytest.mark.invariant("INV-16")
def test_conversations_without_ids_of_two_files_stay_two(memory: Memory, folder: Path) -> None:
    for name in ("one", "two"):
        write_export(folder / f"{name}.json", conversation(name, "hello", "hi", uuid=None))
    for sessions_new in (2, 0):
        report = memory.imports.run(ANA, folder)
        assert (report.sessions_new, report.sessions_known) == (sessions_new, 2 - sessions_new)
    assert texts_of(memory) == {f"talk {name}": ["hello", "hi"] for name in ("one", "two")}


def test_what_a_grown_file_adds_to_its_last_turn_stays_in_that_turn(
    quick_memory: Memory, folder: Path
) -> None:
    lines = [code_line(1, "go"), code_line(2, "one"), code_line(4, "two", parentUuid="s-2")]
    path = write_lines(folder / "s.jsonl", *lines[:2])
    quick_memory.imports.run(ANA, path)
    quick_memory.imports.run(ANA, write_lines(path, *lines))
    (session,) = quick_memory.sessions.list(ANA).items
    events = list(quick_memory.sessions.iter_events(ANA, session.id))
    assert [(stored.event.text, stored.turn) for stored in events] == [
        ("go", 1),
        ("one", 1),
        ("two", 1),
    ]


def test_another_user_has_the_same_file_for_themselves(quick_memory: Memory, folder: Path) -> None:
    path = write_export(folder / "conversations.json", talk("a", 1))
    ben = Scope(org="acme", user="ben")
    assert quick_memory.imports.run(ANA, path).events_new == 2
    assert quick_memory.imports.run(ben, path).events_new == 2
    assert texts_of(quick_memory, ben) == texts_of(quick_memory, ANA)


# What is broken ----------------------------------------------------------------------------------


def test_a_broken_line_in_the_middle_is_counted_with_its_place(
    memory: Memory, folder: Path
) -> None:
    lines = [code_line(1, "before"), '{"type": "user", "uu', code_line(3, "after")]
    report = memory.imports.run(ANA, write_lines(folder / "s.jsonl", *lines))
    assert report.skipped == {"broken_line": 1}
    assert report.places == [SkippedPlace(file="s.jsonl", where="line 2", why="broken_line")]
    assert not report.is_whole
    assert texts_of(memory) == {None: ["before", "after"]}


@pytest.mark.invariant("INV-06")
def test_each_bad_element_is_counted_and_its_neighbours_are_kept(
    quick_memory: Memory, folder: Path
) -> None:
    bad = [
        '{"uuid": "x", "chat_messages": NaN}',
        '{"uuid": "x", "uuid": "y", "chat_messages": []}',
        '{"chat_messages": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"chat_messages": 1e999}',
        '"only text"',
    ]
    good = [json.dumps(talk(f"t{at}", 1)) for at in range(len(bad) + 1)]
    middle = ", ".join(f"{b}, {g}" for b, g in zip(bad, good[1:], strict=True))
    path = folder / "conversations.json"
    path.write_text(f"[{good[0]}, {middle}]")
    started = time.monotonic()
    report = quick_memory.imports.run(ANA, path)
    assert time.monotonic() - started < 1
    assert report.skipped == {"invalid_json": 3, "limit_exceeded": 1, "not_an_object": 1}
    assert [place.where for place in report.places] == [f"element {n}" for n in (2, 4, 6, 8, 10)]
    assert len(texts_of(quick_memory)) == len(good)


@pytest.mark.invariant("INV-05")
def test_repaired_text_is_counted_and_marked(quick_memory: Memory, folder: Path) -> None:
    path = write_export(folder / "c.json", conversation("a", "bad \ud800 half", "fine", "nul \0"))
    report = quick_memory.imports.run(ANA, path)
    assert (report.events_repaired, report.events_new, report.skipped) == (2, 3, {})
    (session,) = quick_memory.sessions.list(ANA).items
    events = [stored.event for stored in quick_memory.sessions.iter_events(ANA, session.id)]
    assert [event.text for event in events] == ["bad \ufffd half", "fine", "nul \ufffd"]
    assert [getattr(event, "repaired", False) for event in events] == [True, False, True]


@pytest.mark.invariant("INV-26")
def test_a_report_holds_no_words_of_a_conversation(quick_memory: Memory, folder: Path) -> None:
    secret = "the-canary-sings-at-dawn"
    lines = [
        code_line(1, secret),
        f'{{"broken": "{secret}',
        f'["{secret}"]',
        code_line(3, secret, type=secret),
        code_line(5, "", message={"role": "user", "content": [{"type": secret, "text": secret}]}),
    ]
    report = quick_memory.imports.run(ANA, write_lines(folder / "s.jsonl", *lines))
    assert report.events_new == 1
    assert sum(report.skipped.values()) == 4
    assert secret not in repr(report)


def test_places_are_bounded_and_counts_are_not(quick_memory: Memory, folder: Path) -> None:
    lines = [code_line(1, "first"), *["{broken"] * 500]
    report = quick_memory.imports.run(ANA, write_lines(folder / "s.jsonl", *lines))
    assert report.skipped == {"broken_line": 500}
    assert len(report.places) == 100


# Paths -------------------------------------------------------------------------------------------


def test_a_folder_is_read_in_order_without_following_links(
    quick_memory: Memory, folder: Path, tmp_path: Path
) -> None:
    outside = write_export(tmp_path / "outside.json", talk("outside", 1))
    (folder / "deep").mkdir()
    write_export(folder / "deep" / "b.json", talk("b", 1))
    write_export(folder / "a.json", talk("a", 1))
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "link.json").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.json")
    report = quick_memory.imports.run(ANA, folder)
    assert report.skipped == {"link": 2, "not_a_file": 1, "unknown_file": 1}
    assert list(texts_of(quick_memory)) == ["talk b", "talk a"]  # newest first


def test_a_path_that_is_nothing_or_no_file_is_refused_at_once(
    quick_memory: Memory, folder: Path
) -> None:
    with pytest.raises(NotFound):
        quick_memory.imports.run(ANA, folder / "missing.json")
    with pytest.raises(NotFound):
        quick_memory.imports.run(ANA, write_export(folder / "a.json") / "below")
    os.mkfifo(folder / "pipe")
    with pytest.raises(UnsafeFile):
        quick_memory.imports.run(ANA, folder / "pipe")


@pytest.fixture
def closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the system refuses to list, also to who may list any."""
    path = folder / "shut" / "closed"
    path.mkdir(parents=True)
    listed = os.scandir

    def scandir(asked: str | Path) -> object:
        if os.fspath(asked) == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(asked)

    monkeypatch.setattr(os, "scandir", scandir)
    return path


def test_a_folder_that_cannot_be_listed_has_failed_and_its_neighbours_come_in(
    quick_memory: Memory, folder: Path, closed: Path
) -> None:
    write_export(folder / "a.json", talk("a", 1))
    write_export(folder / "shut" / "b.json", talk("b", 1))
    report = quick_memory.imports.run(ANA, folder)
    assert report.failed == [("shut/closed", "unreadable_folder")]
    assert (report.files, report.is_whole, report.is_empty_handed) == (2, False, False)
    assert sorted(map(str, texts_of(quick_memory))) == ["talk a", "talk b"]


def test_a_path_of_which_nothing_can_be_read_is_refused(
    quick_memory: Memory, folder: Path, closed: Path
) -> None:
    with pytest.raises(UnsafeFile, match="Permission denied"):
        quick_memory.imports.run(ANA, closed)
    with pytest.raises(UnsafeFile, match="shut/closed"):
        quick_memory.imports.run(ANA, folder)


def test_a_file_without_any_conversation_has_failed(quick_memory: Memory, folder: Path) -> None:
    wrapped = {"conversations": [talk("a", 1)]}
    (folder / "a.json").write_text(json.dumps(wrapped), "utf-8")
    write_export(folder / "b.json", {"chat_messages_of": "nobody"}, talk("b", 1))
    report = quick_memory.imports.run(ANA, folder)
    assert report.failed == [("a.json", "unknown_format")]
    assert (report.files, report.sessions_new) == (2, 1)
    assert report.skipped == {"not_a_conversation": 2}


def test_an_unknown_format_is_refused_before_anything_is_read(
    quick_memory: Memory, folder: Path
) -> None:
    with pytest.raises(InvalidValue, match="auto or one of archive, claude_code"):
        quick_memory.imports.run(ANA, folder, format="diary")
    (folder / "notes.txt").write_text("nothing")
    with pytest.raises(UnknownFormat):
        quick_memory.imports.run(ANA, folder)


def test_a_name_that_is_no_text_is_repaired(quick_memory: Memory, folder: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.jsonl"))
    write_lines(path, {"type": "user", "parentUuid": None, "message": {"content": "hi"}}, "{broken")
    report = quick_memory.imports.run(ANA, path)
    assert [place.file for place in report.places] == ["caf\ufffd.jsonl"]
    assert texts_of(quick_memory) == {None: ["hi"]}


def test_progress_never_goes_back_and_ends_at_the_whole(quick_memory: Memory, folder: Path) -> None:
    write_export(folder / "a.json", *(talk(f"t{at}", 4) for at in range(100)))
    write_lines(folder / "b.jsonl", *(code_line(at, "x" * 3_000) for at in range(1, 300)))
    (folder / "c.bin").write_bytes(b"\0" * 100_000)
    told: list[tuple[int, int]] = []
    doings: list[Doing] = []

    def tell(done: int, total: int, doing: Doing) -> None:
        told.append((done, total))
        doings.append(doing)

    quick_memory.imports.run(ANA, folder, progress=tell)
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert {total for _, total in told} == {size}
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (size, size)
    assert len({done for done, _ in told}) >= 4
    assert doings.count("indexing") == 101, "each session of each file"
    assert doings.index("reading") < doings.index("indexing")


def test_indexing_a_file_is_as_much_work_as_reading_it_once_more() -> None:
    told: list[int] = []
    source = SourceFile(name="x", size=1_000_000, open=lambda: io.BytesIO(b"x" * 1_000_000))
    meter = Meter(1_000_000, lambda done, *_: told.append(done))
    watched = meter.watch(source, passes=2)
    for read in (333_333, 666_666):
        with watched.open() as stream:
            stream.read()
        assert told[-1] == read
    meter.index(2, 4)
    assert told[-1] == 833_333
    meter.finish(source)
    assert told[-1] == 1_000_000


# Writers and bounds ------------------------------------------------------------------------------


def test_a_session_that_another_writer_keeps_is_left_whole_and_the_rest_comes_in(
    memory: Memory, folder: Path
) -> None:
    path = write_export(folder / "c.json", talk("a", 2), talk("b", 2), talk("c", 2))
    memory.imports.run(ANA, write_export(folder / "old.json", talk("b", 1)))
    (session,) = memory.sessions.list(ANA).items
    with memory.sessions.lease(ANA, session.id):
        report = memory.imports.run(ANA, path)
    assert (report.events_known, report.skipped) == (2, {"refused_session_busy": 2})
    assert not report.is_whole
    assert {title: len(texts) for title, texts in texts_of(memory).items()} == {
        "talk a": 4,
        "talk b": 2,
        "talk c": 4,
    }
    assert memory.imports.run(ANA, path).events_new == 2
    assert texts_of(memory)["talk b"] == [f"b says {at}: the kiln" for at in range(4)]


@pytest.mark.invariant("INV-09")
def test_a_session_whose_directory_is_gone_is_refused_and_the_rest_comes_in(
    memory: Memory, folder: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    bound = memory.sessions.workspace(project)
    memory.imports.run(ANA, write_export(folder / "b.json", talk("b", 1)), workspace=bound)
    project.rmdir()
    write_export(folder / "b.json", talk("a", 1), talk("b", 3), talk("c", 1))
    write_export(folder / "d.json", talk("d", 1))
    report = memory.imports.run(ANA, folder)
    assert report.skipped == {"refused_workspace_mismatch": 4}
    assert {(one.file, one.why) for one in report.places} == {
        ("b.json", "refused_workspace_mismatch")
    }
    assert (report.sessions_new, report.files, report.is_whole) == (3, 2, False)
    assert {title: len(texts) for title, texts in texts_of(memory).items()} == {
        "talk a": 2,
        "talk b": 2,
        "talk c": 2,
        "talk d": 2,
    }


def test_a_session_over_the_bounds_of_replay_can_be_gone_on_with(
    quick_memory: Memory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engrain.contracts.limits.replay_events_max", 5)
    path = folder / "c.json"
    quick_memory.imports.run(ANA, write_export(path, talk("a", 4)))
    report = quick_memory.imports.run(ANA, write_export(path, talk("a", 6)))
    assert (report.events_new, report.skipped) == (4, {})
    (session,) = quick_memory.sessions.list(ANA).items
    with pytest.raises(LimitExceeded):
        quick_memory.sessions.lease(ANA, session.id)


def test_interleaved_sessions_of_one_file_are_each_whole(memory: Memory, folder: Path) -> None:
    names = [f"s{number}" for number in range(7)]
    lines = [code_line(at, f"{name} {at}", session=name) for at in range(1, 9) for name in names]
    path = write_lines(folder / "many.jsonl", *lines)
    report = memory.imports.run(ANA, path)
    assert (report.sessions_new, report.events_new, report.skipped) == (7, 56, {})
    sessions = memory.sessions.list(ANA).items
    told = {
        tuple(stored.event.text for stored in memory.sessions.iter_events(ANA, session.id))
        for session in sessions
    }
    assert told == {tuple(f"{name} {at}" for at in range(1, 9)) for name in names}
    assert [session.leased_until for session in sessions] == [None] * 7
    assert memory.imports.run(ANA, path).events_new == 0
