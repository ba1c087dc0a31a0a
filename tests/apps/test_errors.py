"""Every failure ends with its code, says what is wrong on standard error, and quotes no memory."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from apps.conftest import EXAMPLE, Command, in_a_process
from engrain.apps.cli.errors import ExitCode, Interrupted, exit_code_of, facts_of
from engrain.contracts import errors
from engrain.contracts.ids import OperationId

NOBODY = "0198c0de-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nosuch"], "nosuch"),
        (["sessions", "nosuch"], "nosuch"),
        (["recall"], "QUESTION"),
        (["recall", "x", "--budgt", "3"], "--budget"),
        (["recall", "x", "--budget", "many"], "many"),
        (["recall", "x", "--budget", "-1"], "budget"),
        (["search", "x", "--limit", "0"], "limit"),
        (["search", "x", "y"], "Too many words: y. A text of several words stands in quotes."),
        (["recall", "what", "did", "I", "say?"], "Too many words: did I say?."),
        (["sessions", "show", "7"], "7"),
        (["sessions", "show", NOBODY, "--limit", "0"], "--limit"),
        (["sessions", "list", "--all", "--limit", "1001"], "limit"),
        (["sessions", "start", "--title", " ", "--workspace", "w"], "title"),
        (["sessions", "start", "--workspace", "a/b"], "workspace"),
        (["episodes", "forget"], "EPISODE"),
        (["sessions", "fork", NOBODY, "--through", "0"], "--through"),
        (["recall", "x", "--user", "*"], "user"),
        (["recall", "x", "--user", ""], "user"),
        (["recall", "x", "--org", " "], "org"),
        (["recall", "x", "--home", ""], "home"),
        (["recall", "x", "--db", "mysql://host/name"], "url"),
    ],
)
def test_wrong_usage_exits_with_two_and_names_what_is_wrong(
    engrain: Command, arguments: list[str], said: str
) -> None:
    ran = engrain(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    as_json = engrain(*arguments, "--json")
    assert (as_json.code, as_json.out) == (2, "")
    assert as_json.error["code"] in ("wrong_usage", "invalid_value")
    assert as_json.error["retryable"] is False


def test_forged_cursor_is_wrong_usage(imported: Command) -> None:
    for noun in (["sessions", "list", "--all"], ["episodes", "list"]):
        ran = imported(*noun, "--cursor", "forged", "--json")
        assert (ran.code, ran.error["field"]) == (2, "cursor")


@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions", "show", NOBODY],
        ["sessions", "verify", NOBODY],
        ["sessions", "fork", NOBODY],
        ["sessions", "title", NOBODY, "x"],
        ["episodes", "show", NOBODY],
        ["episodes", "extract", NOBODY],
        ["episodes", "forget", NOBODY],
        ["episodes", "list", "--session", NOBODY],
        ["import", "nowhere.json"],
    ],
)
def test_what_is_not_there_is_not_found(imported: Command, arguments: list[str]) -> None:
    ran = imported(*arguments, "--json")
    assert (ran.code, ran.out, ran.error["code"]) == (1, "", "not_found")
    shown = imported(*arguments)
    assert shown.code == 1
    assert shown.err.startswith("engrain: no ") and shown.err.endswith("[not_found]\n")


def test_session_of_another_user_is_not_found(imported: Command) -> None:
    (one, *_) = imported("sessions", "list", "--all", "--json").json["items"]
    missing = imported("sessions", "show", NOBODY, "--user", "bob", "--json").err
    theirs = imported("sessions", "show", one["id"], "--user", "bob", "--json")
    assert theirs.code == 1
    assert theirs.err.replace(one["id"], NOBODY) == missing


def test_home_that_others_may_write_to_is_refused(engrain: Command, home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    ran = engrain("import", EXAMPLE, "--json")
    assert (ran.code, ran.out, ran.error["code"]) == (1, "", "unsafe_file")
    assert ran.error["path"] == str(home)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_database_that_others_may_read_is_refused(imported: Command, home: Path, mode: int) -> None:
    database = home / "memory" / "engrain.sqlite3"
    database.chmod(mode)
    ran = imported("sessions", "list", "--all", "--json")
    assert (ran.code, ran.error["code"], ran.error["path"]) == (1, "unsafe_file", str(database))
    assert "chmod" in ran.error["message"]


def test_symlinked_database_is_refused(imported: Command, home: Path) -> None:
    database = home / "memory" / "engrain.sqlite3"
    database.rename(home / "memory" / "elsewhere")
    database.symlink_to(home / "memory" / "elsewhere")
    ran = imported("recall", "database", "--json")
    assert (ran.code, ran.error["code"]) == (1, "unsafe_file")


def test_missing_database_is_said_and_not_made_anew(imported: Command, home: Path) -> None:
    database = home / "memory" / "engrain.sqlite3"
    database.unlink()
    ran = imported("sessions", "list", "--all", "--json")
    assert (ran.code, ran.out, ran.error["code"]) == (1, "", "database_missing")
    assert ran.error["path"] == str(database)
    assert not database.exists()


def test_newer_database_is_refused(imported: Command, home: Path) -> None:
    with sqlite3.connect(home / "memory" / "engrain.sqlite3") as database:
        database.execute(
            "INSERT INTO migrations SELECT 9999, name, checksum, applied_at FROM migrations LIMIT 1"
        )
    database.close()
    ran = imported("sessions", "list", "--all", "--json")
    assert (ran.code, ran.error["code"]) == (1, "newer_schema")


def test_tampered_history_fails_to_verify(imported: Command, home: Path) -> None:
    (one, *_) = imported("sessions", "list", "--all", "--json").json["items"]
    with sqlite3.connect(home / "memory" / "engrain.sqlite3") as database:
        database.execute("UPDATE events SET payload = zeroblob(length(payload))")
    database.close()
    ran = imported("sessions", "verify", one["id"], "--json")
    assert (ran.code, ran.out, ran.error["code"]) == (1, "", "corrupt")


def test_server_that_does_not_answer_is_busy_and_says_when_to_try_again(engrain: Command) -> None:
    url = "postgresql://ana:s3cret-word@127.0.0.1:1/engrain"
    ran = engrain("sessions", "list", "--all", "--db", url, "--json")
    assert (ran.code, ran.error["code"], ran.error["retryable"]) == (1, "busy", True)
    assert ran.error["retry_after_s"] > 0
    shown = engrain("sessions", "list", "--all", "--db", url)
    assert "try again in" in shown.err
    assert "s3cret-word" not in ran.err + shown.err


def test_each_error_has_its_exit_code() -> None:
    cases = {
        errors.InvalidValue("title", "is too odd"): ExitCode.USAGE,
        errors.LimitExceeded("event_bytes_max", 4): ExitCode.FAILED,
        errors.Busy("later"): ExitCode.FAILED,
        errors.Corrupt("no"): ExitCode.FAILED,
        errors.Uncertain("lost", OperationId(errors.UUID(NOBODY))): ExitCode.NEEDS_PERSON,
        CycloptsError(msg="no"): ExitCode.USAGE,
        KeyboardInterrupt(): ExitCode.INTERRUPTED,
        Interrupted("3 events are kept"): ExitCode.INTERRUPTED,
        BrokenPipeError(): ExitCode.BROKEN_PIPE,
        ValueError("x"): ExitCode.FAILED,
    }
    assert {error: exit_code_of(error) for error in cases} == cases


def test_lost_acknowledgement_names_the_operation_to_repeat() -> None:
    lost = errors.Uncertain("lost", OperationId(errors.UUID(NOBODY)))
    assert facts_of(lost)["operation_id"] == NOBODY


@pytest.mark.invariant("INV-26")
def test_words_of_an_unknown_exception_are_never_shown() -> None:
    facts = facts_of(ValueError("Ana moved to Porto"))
    assert facts["code"] == "bug"
    assert "Porto" not in str(facts) and "ValueError" in str(facts["message"])


def test_trace_is_shown_on_demand_alone() -> None:
    script = (
        "import sys, engrain.apps.cli.main as cli, engrain.apps.cli.imports as imports\n"
        "@cli.app.command\n"
        "def fails(): raise LookupError('words of a memory')\n"
        "sys.exit(cli.main(['fails', *sys.argv[1:]]))\n"
    )
    quiet = in_a_process("-c", script)
    assert (quiet.code, quiet.out) == (1, "")
    assert "LookupError" in quiet.err and "words of a memory" not in quiet.err
    loud = in_a_process("-c", script, env={"ENGRAIN_DEBUG": "1"})
    assert loud.code == 1
    assert "words of a memory" in loud.err and "Traceback" in loud.err
