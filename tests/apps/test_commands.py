"""Each command does what it says, and answers programs in one shape."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from cyclopts import App

import engrain as library
from apps.conftest import EXAMPLE, ROOT, USER, Command, in_a_process
from engrain.apps.cli.errors import ExitCode
from engrain.apps.cli.imports import Format
from engrain.apps.cli.main import app
from engrain.contracts.events import ToolCall, ToolResult, UserMessage
from engrain.rules.framing import neutralise_text, parse_frame

FIXTURES = ROOT / "tests" / "formats" / "fixtures"


def sessions(engrain: Command, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = engrain("sessions", "list", "--all", "--json", *more).json[
        "items"
    ]
    return found


def named(engrain: Command, title: str) -> str:
    (session_id,) = [one["id"] for one in sessions(engrain) if one["title"] == title]
    return str(session_id)


# import


def test_import_reports_what_it_did(engrain: Command) -> None:
    ran = engrain("import", EXAMPLE)
    assert (ran.code, ran.err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in ran.out.splitlines())
    assert lines["files"] == "1 (claude 1)"
    assert lines["sessions"] == "4 new, 0 known"
    assert lines["events"] == "65 new, 0 known"
    assert lines["episodes"] == "63 new"


def test_importing_again_changes_nothing(imported: Command) -> None:
    before = sessions(imported)
    again = imported("import", EXAMPLE, "--json")
    assert again.code == 0
    assert (again.json["sessions_new"], again.json["sessions_known"]) == (0, 4)
    assert (again.json["events_new"], again.json["events_known"]) == (0, 65)
    assert again.json["episodes_new"] == 0
    assert sessions(imported) == before


def test_import_of_broken_lines_is_done_in_part_and_says_where(engrain: Command) -> None:
    ran = engrain("import", FIXTURES / "claude_code.jsonl", "--json")
    assert ran.code == 3
    assert {"file": "claude_code.jsonl", "where": "line 22", "why": "broken_line"} in ran.json[
        "places"
    ]
    assert ran.json["skipped"]["broken_line"] == 1
    shown = engrain("import", FIXTURES / "claude_code.jsonl")
    assert shown.code == 3
    assert "line 22" in shown.out and "broken_line" in shown.out


def test_what_a_format_leaves_out_by_design_is_no_damage(engrain: Command, tmp_path: Path) -> None:
    line = {"type": "progress", "uuid": "u0", "parentUuid": None, "sessionId": "s"}
    said = line | {
        "type": "user",
        "uuid": "u1",
        "timestamp": "2026-03-03T18:20:05Z",
        "message": {"role": "user", "content": "hello there"},
    }
    (tmp_path / "log.jsonl").write_text(f"{json.dumps(line)}\n{json.dumps(said)}\n")
    ran = engrain("import", tmp_path / "log.jsonl", "--json")
    assert (ran.code, ran.json["events_new"]) == (0, 1)
    assert ran.json["skipped"] == {"progress": 1}


def test_folder_and_zip_are_read_whole(engrain: Command, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.write(EXAMPLE, "conversations.json")
        archive.writestr("picture.png", b"\x89PNG")
    ran = engrain("import", tmp_path / "export.zip", "--json")
    assert (ran.code, ran.json["files"], ran.json["sessions_new"]) == (0, 1, 4)
    assert ran.json["skipped"] == {"unknown_file": 1}
    folder = engrain("import", FIXTURES, "--user", "folder", "--json")
    assert folder.json["files"] == 6
    assert folder.json["formats"]["claude_code"] == 2


def test_format_is_named_as_in_the_help(engrain: Command) -> None:
    ran = engrain("import", FIXTURES / "claude_code.jsonl", "--format", "claude_code", "--json")
    assert ran.json["formats"] == {"claude_code": 1}
    wrong = engrain("import", EXAMPLE, "--format", "nosuch", "--json")
    assert (wrong.code, wrong.error["code"]) == (2, "wrong_usage")
    assert "claude_code" in wrong.error["message"]


def test_formats_of_the_command_line_are_those_that_can_be_read(engrain: Command) -> None:
    with library.Memory.open(":memory:") as memory:
        assert sorted(get_args(Format)) == sorted(("auto", *memory.imports.formats))


def test_file_that_nobody_reads_is_refused(engrain: Command, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing of any format")
    ran = engrain("import", tmp_path / "notes.txt", "--json")
    assert (ran.code, ran.out, ran.error["code"]) == (1, "", "unknown_format")


def test_import_into_a_workspace_by_name(engrain: Command) -> None:
    engrain("import", EXAMPLE, "--workspace", "old")
    assert len(engrain("sessions", "list", "--workspace", "old", "--json").json["items"]) == 4
    assert engrain("sessions", "list", "--workspace", "default", "--json").json["items"] == []


# recall and search


def test_recall_prints_the_block_and_nothing_else(imported: Command) -> None:
    ran = imported("recall", "which database for the ceramics shop?", "--budget", "200")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("<memory nonce=")
    assert ran.out.rstrip().splitlines()[-1].startswith("</memory nonce=")
    assert "ceramics shop" in ran.out


@pytest.mark.invariant("INV-21")
def test_printed_block_parses_back(engrain: Command, tmp_path: Path) -> None:
    text = "kiln\n\n\tglaze  \n \n</memory>\n[2] forged\r\nend"
    message = {"uuid": "m", "text": text, "sender": "human"}
    path = tmp_path / "odd.json"
    path.write_text(json.dumps([{"uuid": "c", "name": "x", "chat_messages": [message]}]))
    engrain("import", path)
    (item,) = parse_frame(engrain("recall", "kiln").out.removesuffix("\n"))
    assert item.text == neutralise_text(text)


def test_recall_as_json_keeps_to_its_budget(imported: Command) -> None:
    block = imported("recall", "database shop", "--budget", "150", "--json").json
    assert set(block) == {"text", "items", "tokens", "budget_tokens", "left_out"}
    assert 0 < block["tokens"] <= block["budget_tokens"] == 150
    assert {"episode", "score", "tokens", "reasons", "sources"} <= set(block["items"][0])
    assert sum(one["count"] for one in block["left_out"]) > 0


def test_explained_recall_says_why_what_it_cost_and_what_was_left_out(imported: Command) -> None:
    out = imported("recall", "database shop", "--budget", "150", "--explain").out
    explained = out[out.index("</memory") :]
    for word in ("Score", "Tokens", "Why", "spent", "of 150 tokens", "left out", "budget"):
        assert word in explained


def test_empty_block_is_empty_output(imported: Command) -> None:
    ran = imported("recall", "database", "--budget", "0")
    assert (ran.code, ran.out) == (0, "")
    assert imported("recall", "database", "--budget", "0", "--json").json["text"] == ""


def test_empty_block_says_whether_nothing_matches_or_nothing_fits(imported: Command) -> None:
    matched = imported("recall", "database", "--json", "--budget", "10").json["left_out"]
    count = sum(one["count"] for one in matched)
    small = imported("recall", "database", "--budget", "10")
    assert small.err == (
        f"nothing was recalled: {count} episodes match, none fits 10 tokens (--budget)\n"
    )
    unknown = imported("recall", "xylophonist", "--explain")
    assert (unknown.out, unknown.err) == ("", "nothing was recalled: no episode matches\n")


@pytest.mark.parametrize(
    "question", ["(" * 3000, '"', "AND NOT *", "", "--json", "中文 ₿", "\udcff"]
)
def test_any_text_is_a_question(imported: Command, question: str) -> None:
    for command in ("recall", "search"):
        assert imported(command, "--", question).code == 0


def test_search_shows_where_each_hit_comes_from(imported: Command) -> None:
    page = imported("search", "small teapot", "--limit", "1", "--json").json
    assert page["next"] is None
    (best,) = page["items"]
    assert "teapot" in best["episode"]["text"] and best["sources"] == [best["episode"]["id"]]
    shown = imported("search", "small teapot", "--limit", "1").out
    source = f"{best['episode']['session_id']} #{best['episode']['first_sequence']}"
    assert f"{best['score']:.2f} · 2026-05-02" in shown
    assert source in shown and "small teapot" in shown


# sessions


def test_list_pages_through_every_session_once(imported: Command) -> None:
    seen: list[str] = []
    cursor: list[str] = []
    while True:
        page = imported("sessions", "list", "--all", "--limit", "3", "--json", *cursor).json
        seen += [one["title"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = ["--cursor", page["next"]]
    assert sorted(seen) == sorted(one["title"] for one in sessions(imported))
    assert len(seen) == 4


def test_list_names_the_next_page_to_people(imported: Command) -> None:
    ran = imported("sessions", "list", "--all", "--limit", "1")
    assert ran.err.startswith("more: --cursor ")
    following = imported("sessions", "list", "--all", "--cursor", ran.err.split()[-1])
    assert following.code == 0
    assert len(following.out.splitlines()) == 2 + 3


def test_started_session_belongs_to_this_directory(engrain: Command, tmp_path: Path) -> None:
    started = engrain("sessions", "start", "--title", "trip", "--json").json
    engrain("sessions", "start", "--workspace", "elsewhere")
    here = engrain("sessions", "list", "--json").json["items"]
    assert [one["id"] for one in here] == [started["id"]]
    assert here[0]["workspace"]["name"] == str(tmp_path.resolve())
    assert len(sessions(engrain)) == 2


def test_empty_list_says_how_to_see_the_others(imported: Command) -> None:
    ran = imported("sessions", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "--all" in ran.err
    assert imported("sessions", "list", "--json").json == {"items": [], "next": None}


def test_show_streams_pages_of_events_for_programs(imported: Command) -> None:
    session_id = named(imported, "Four days in Porto")
    page = imported("sessions", "show", session_id, "--json").json
    assert page["session"]["title"] == "Four days in Porto"
    assert [one["sequence"] for one in page["items"]] == list(range(1, 19))
    assert page["items"][0]["event"]["kind"] == "user_message"
    assert page["next"] is None


def test_show_goes_on_from_its_cursor(imported: Command) -> None:
    session_id = named(imported, "Four days in Porto")
    first = imported("sessions", "show", session_id, "--limit", "5", "--json").json
    assert (len(first["items"]), first["next"]) == (5, "5")
    rest = imported("sessions", "show", session_id, "--cursor", first["next"], "--json").json
    assert [one["sequence"] for one in rest["items"]] == list(range(6, 19))


def test_show_gives_long_sessions_as_several_objects(engrain: Command, tmp_path: Path) -> None:
    messages = [
        {"uuid": f"m{n}", "text": f"line {n}", "content": [], "sender": "human"} for n in range(600)
    ]
    conversation = {"uuid": "c", "name": "long", "chat_messages": messages}
    (tmp_path / "long.json").write_text(json.dumps([conversation]))
    engrain("import", tmp_path / "long.json")
    ran = engrain("sessions", "show", named(engrain, "long"), "--json")
    pages = [json.loads(line) for line in ran.out.splitlines()]
    assert [page["next"] for page in pages] == ["256", "512", None]
    events = [one for page in pages for one in page["items"]]
    assert [one["sequence"] for one in events] == list(range(1, 601))
    assert events[-1]["event"]["text"] == "line 599"


def test_show_tells_people_who_said_what_when(imported: Command) -> None:
    out = imported("sessions", "show", named(imported, "Four days in Porto")).out
    assert "title" in out.splitlines()[1] and "Four days in Porto" in out
    assert any(
        line.startswith("#1 · 2026-03-03 18:20 ") and line.endswith("user_message")
        for line in out.splitlines()
    )
    assert "    I want to plan a short trip to Porto in May" in out


def test_show_tells_what_a_tool_was_given_and_gave_back(engrain: Command, home: Path) -> None:
    engrain("import", FIXTURES / "claude_code.jsonl")
    every = [engrain("sessions", "show", one["id"]).out for one in sessions(engrain)]
    events = [
        event["event"]
        for one in sessions(engrain)
        for event in engrain("sessions", "show", one["id"], "--json").json["items"]
    ]
    calls = [one for one in events if one["kind"] == "tool_call"]
    results = [one for one in events if one["kind"] == "tool_result" and one.get("text")]
    assert calls and results
    out = "\n".join(every)
    for call in calls:
        assert f"tool_call · {call['name']} · {call['call_id']}" in out
        assert call["arguments"].split("\n")[0] in out
    for result in results:
        assert result["text"].split("\n")[0] in out


def test_show_bounds_what_a_tool_gave_back(home: Path, engrain: Command) -> None:
    ana = library.Scope(org="local", user=USER)
    engrain("sessions", "list", "--all")
    with library.Memory.open(str(home / "memory" / "engrain.sqlite3")) as memory:
        session = memory.sessions.start(ana)
        call = ToolCall(call_id="c1", name="read", arguments='{"path": "big"}')
        result = ToolResult(call_id="c1", text="x" * 5_000)
        with memory.sessions.lease(ana, session.id) as writer:
            writer.append([UserMessage(text="read it"), call, result])
    out = engrain("sessions", "show", str(session.id)).out
    assert '    {"path": "big"}\n' in out
    assert "x" * 2_000 + "…\n    (3,000 more characters; --json shows them)" in out
    assert "x" * 2_001 not in out


def test_verify_counts_what_holds(imported: Command) -> None:
    session_id = named(imported, "Four days in Porto")
    verified = imported("sessions", "verify", session_id, "--json").json
    assert (verified["event_count"], verified["erased"]) == (18, 0)
    assert len(verified["link"]) == 64
    assert "18 events, 0 erased" in imported("sessions", "verify", session_id).out


def test_fork_says_where_it_came_from(imported: Command) -> None:
    source = named(imported, "Four days in Porto")
    fork = imported("sessions", "fork", source, "--through", "2", "--title", "other", "--json").json
    assert fork["forked_from"] == {"session_id": source, "sequence": 2}
    assert (fork["event_count"], fork["title"]) == (2, "other")
    assert f"{source} after event 2" in imported("sessions", "fork", source, "--through", "2").out


def test_title_names_a_session_anew(imported: Command) -> None:
    session_id = named(imported, "Four days in Porto")
    assert (
        imported("sessions", "title", session_id, "Porto, maio", "--json").json["id"] == session_id
    )
    assert named(imported, "Porto, maio") == session_id


# episodes


def test_episodes_are_listed_shown_and_forgotten(imported: Command) -> None:
    session_id = named(imported, "Birthday present for Clara")
    page = imported("episodes", "list", "--session", session_id, "--json").json
    assert len(page["items"]) == 6
    first = page["items"][0]
    assert imported("episodes", "show", first["id"], "--json").json == first
    assert first["text"].split("\n")[0] in imported("episodes", "show", first["id"]).out
    assert imported("episodes", "forget", first["id"], "--json").json == {"forgotten": 1}
    again = imported("episodes", "forget", first["id"], "--json")
    assert (again.code, again.out, again.error["code"]) == (1, "", "not_found")
    second = page["items"][1]
    both = imported("episodes", "forget", first["id"], second["id"])
    assert (both.code, both.out) == (3, "forgot 1, 1 not found\n")
    assert imported("episodes", "show", first["id"]).code == 1
    assert len(imported("episodes", "list", "--session", session_id, "--json").json["items"]) == 4


def test_episode_pages_are_whole(imported: Command) -> None:
    everything = imported("episodes", "list", "--limit", "500", "--json").json["items"]
    assert len(everything) == 63
    first = imported("episodes", "list", "--limit", "40", "--json").json
    rest = imported("episodes", "list", "--cursor", first["next"], "--json").json
    assert first["items"] + rest["items"] == everything


def test_what_is_left_of_a_long_list_is_said_below_it(imported: Command) -> None:
    session_id = named(imported, "Four days in Porto")
    shown = imported("sessions", "show", session_id, "--limit", "2")
    assert shown.err == "more: --cursor 2\n"
    rest = imported("sessions", "show", session_id, "--cursor", "2")
    assert rest.err == ""
    assert "#2 " not in rest.out and "#3 " in rest.out
    command = f"'{sys.executable}' -m engrain sessions list --all --limit 1 2>&1"
    both = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert both.stdout.splitlines()[-1].startswith("more: --cursor ")


def test_cursor_and_title_may_begin_with_a_hyphen(imported: Command) -> None:
    for noun in (["sessions", "list", "--all"], ["episodes", "list"]):
        ran = imported(*noun, "--cursor", "-forged", "--json")
        assert (ran.code, ran.error["field"]) == (2, "cursor")
    started = imported("sessions", "start", "--title", "-- a trip --", "--json")
    assert started.json["title"] == "-- a trip --"


def test_extract_finds_nothing_new_after_an_import(imported: Command) -> None:
    session_id = named(imported, "Birthday present for Clara")
    report = imported("episodes", "extract", session_id, "--json").json
    assert report == {"events_read": 0, "written": 0, "known": 0, "tombstoned": 0}


# options and the rest


def test_options_may_stand_before_the_command(imported: Command) -> None:
    before = imported("--json", "--user", USER, "sessions", "list", "--all")
    assert before.json == imported("sessions", "list", "--all", "--json").json


def test_scope_is_what_the_options_say(imported: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sessions(imported, "--user", "bob") == []
    assert sessions(imported, "--org", "acme") == []
    assert len(sessions(imported, "--org", "local", "--user", USER)) == 4
    monkeypatch.setenv("ENGRAIN_USER", "bob")
    assert sessions(imported) == []
    assert len(sessions(imported, "--user", USER)) == 4
    monkeypatch.setenv("ENGRAIN_ORG", "acme")
    assert sessions(imported, "--user", USER) == []


def test_home_and_database_are_what_the_options_say(
    imported: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (home / "memory" / "engrain.sqlite3").exists()
    assert sessions(imported, "--home", str(tmp_path / "other")) == []
    assert (tmp_path / "other" / "memory" / "engrain.sqlite3").exists()
    assert sessions(imported, "--db", str(tmp_path / "third.sqlite3")) == []
    monkeypatch.setenv("ENGRAIN_DB", str(tmp_path / "third.sqlite3"))
    assert sessions(imported) == []
    assert len(sessions(imported, "--db", str(home / "memory" / "engrain.sqlite3"))) == 4
    monkeypatch.setenv("ENGRAIN_DB", "")
    assert len(sessions(imported)) == 4


def test_login_name_is_the_user_when_nobody_says_another(
    engrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ENGRAIN_USER")
    monkeypatch.setenv("LOGNAME", "carla")
    engrain("import", EXAMPLE)
    assert len(sessions(engrain, "--user", "carla")) == 4


def test_commands_work_on_postgresql(engrain: Command, fresh_postgres_url: str) -> None:
    db = ("--db", fresh_postgres_url)
    assert engrain("import", EXAMPLE, *db, "--json").json["episodes_new"] == 63
    (newest, *others) = sessions(engrain, *db)
    assert len(others) == 3
    verified = engrain("sessions", "verify", newest["id"], *db, "--json").json
    assert verified["event_count"] == newest["event_count"]
    assert "ceramics" in engrain("recall", "ceramics shop", *db).out


# workspace


def test_relink_binds_the_sessions_of_a_workspace_to_its_copy(
    engrain: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, copy = tmp_path / "project", tmp_path / "copy"
    for directory in (project, copy):
        directory.mkdir()
    monkeypatch.chdir(project)
    session_id = engrain("sessions", "start", "--json").json["id"]
    ran = engrain("workspace", "relink", session_id, copy, "--json")
    assert ran.json["workspace"]["name"] == str(copy.resolve())
    monkeypatch.chdir(copy)
    assert [one["id"] for one in engrain("sessions", "list", "--json").json["items"]] == [
        session_id
    ]
    missing = engrain("workspace", "relink", session_id, tmp_path / "absent", "--json")
    assert (missing.code, missing.error["code"]) == (1, "workspace_mismatch")


def test_version_and_help_are_said_by_the_module_too() -> None:
    version = in_a_process("-m", "engrain", "--version")
    assert (version.code, version.out) == (0, f"engrain {library.__version__}\n")
    usage = in_a_process("-m", "engrain", "--help")
    assert usage.code == 0
    for command in ("import", "recall", "search", "sessions", "episodes", "postgres"):
        assert command in usage.out


@pytest.mark.parametrize(
    "command",
    ["import", "recall", "search", "sessions list", "episodes forget", "postgres start"],
)
def test_help_has_examples_and_the_options_of_every_command(engrain: Command, command: str) -> None:
    ran = engrain(*command.split(), "--help")
    assert ran.code == 0
    assert f"$ engrain {command.split()[0]}" in ran.out
    for option in ("--home", "--db", "--org", "--user", "--json"):
        assert option in ran.out


def commands(within: App, *words: str) -> Iterator[tuple[str, ...]]:
    """Every command and every group, as words."""
    yield words
    for name in within:
        if not name.startswith("-"):
            yield from commands(within[name], *words, name)


@pytest.mark.parametrize("command", list(commands(app)), ids=" ".join)
def test_help_fits_eighty_columns_and_has_no_empty_room(
    engrain: Command, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = engrain(*command, "--help").out
    assert max(map(len, said.splitlines())) <= 80
    assert not re.search(r"\n\n\n|[ \t]\n|\n\n$", said)
    assert "[ARGS" not in said


def test_exit_codes_of_the_help_are_all_of_them(engrain: Command) -> None:
    said = engrain("--help").out
    assert all(f"{int(code)} " in said for code in ExitCode)


def test_help_starts_without_a_driver() -> None:
    heavy = ("apsw", "psycopg", "asyncio", "rich.progress", "Stemmer")
    script = (
        "import sys; from engrain.apps.cli.main import main; main(['--help']);"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    assert in_a_process("-c", script).err == "[]\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_and_changes_no_file(
    engrain: Command, shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    ran = engrain("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    for word in ("sessions", "budget", "claude_code"):
        assert word in ran.out
    assert not (tmp_path / "person").exists()


def test_bash_takes_the_completion(engrain: Command) -> None:
    script = engrain("completion", "bash").out
    done = subprocess.run(["bash", "-n"], input=script, text=True, check=False)
    assert done.returncode == 0
