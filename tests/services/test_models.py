"""Models of a home: whole or absent, known byte for byte, kept for as long as a session needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engrain import Memory
from engrain.contracts.errors import (
    Conflict,
    InvalidValue,
    ModelChanged,
    ModelInUse,
    NotFound,
    UnsafeFile,
)
from engrain.contracts.models import Arrival, InstalledModel, ProviderModel
from engrain.memory import open_models
from engrain.services.models import Models
from engrain.system.home import Home
from engrain.testing.faults import Faults
from services.exports import ANA
from services.model_race import bind

TESTS = Path(__file__).parents[1]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.prepare()
    return made


@pytest.fixture
def models(home: Home) -> Models:
    return open_models(home)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    (folder / "parts").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "parts" / "one.bin").write_bytes(b"one" * 1000)
    return folder


def installed(models: Models, source: Path, arrival: Arrival = "copy") -> InstalledModel:
    return models.add("small", source, arrival=arrival)


@pytest.mark.parametrize("arrival", ["copy", "move", "link"])
def test_a_model_is_known_by_its_content_however_it_came(
    models: Models, source: Path, arrival: Arrival
) -> None:
    model = installed(models, source, arrival)
    assert (model.file_count, model.size, model.arrival) == (2, 3_002, arrival)
    assert source.exists() == (arrival != "move")
    assert models.verify("small").snapshot == model.snapshot
    assert models.read("small").model == model
    files = models.files_of(model)
    assert (files / "parts" / "one.bin").read_bytes() == b"one" * 1000
    with models.bind(model) as held:
        assert held == model


def test_copied_files_are_private(models: Models, source: Path) -> None:
    files = models.files_of(installed(models, source))
    modes = {path.stat().st_mode & 0o7777 for path in files.rglob("*")}
    assert modes == {0o600, 0o700}


@pytest.mark.parametrize("arrival", ["copy", "link"])
@pytest.mark.parametrize("change", ["byte", "missing", "extra"])
def test_any_change_of_the_files_is_found(
    models: Models, source: Path, arrival: Arrival, change: str
) -> None:
    model = installed(models, source, arrival)
    files = models.files_of(model)
    if change == "byte":
        (files / "config.json").write_text("[]")
    elif change == "missing":
        (files / "config.json").unlink()
    else:
        (files / "more").write_text("x")
        (files / "more").chmod(0o600)
    with pytest.raises(ModelChanged):
        models.verify("small")
    with pytest.raises(ModelChanged), models.bind(model):
        pass


def test_a_touched_file_is_refused_until_it_was_read_whole(models: Models, source: Path) -> None:
    model = installed(models, source)
    os.utime(models.files_of(model) / "config.json")
    with pytest.raises(ModelChanged, match="models verify"), models.bind(model):
        pass
    assert models.verify("small").restamped
    with models.bind(model):
        pass


def test_a_link_that_leads_elsewhere_now_is_refused(models: Models, source: Path) -> None:
    pointer = source.parent / "current"
    pointer.symlink_to(source)
    model = models.add("small", pointer, arrival="link")
    other = source.parent / "other"
    other.mkdir()
    pointer.unlink()
    pointer.symlink_to(other)
    with pytest.raises(ModelChanged), models.bind(model):
        pass


def test_links_inside_a_folder_are_refused(models: Models, source: Path) -> None:
    (source / "out").symlink_to("/etc/passwd")
    with pytest.raises(UnsafeFile):
        installed(models, source)
    assert models.list() == ()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "x" * 65, "a b", "é"])
def test_a_name_that_could_be_a_path_is_refused(models: Models, source: Path, name: str) -> None:
    with pytest.raises(InvalidValue):
        models.add(name, source)


def test_a_taken_name_is_refused_and_keeps_what_it_had(models: Models, source: Path) -> None:
    model = installed(models, source)
    with pytest.raises(Conflict):
        models.add_provider(ProviderModel(name="small", provider="openai", model="x"))
    assert models.read("small").model == model


def test_what_a_killed_add_left_is_invisible_and_swept_away(
    models: Models, source: Path, home: Home
) -> None:
    pid = os.fork()
    if pid == 0:
        with Faults() as faults:
            faults.kill("models.drafted")
            installed(models, source)
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    assert models.list() == ()
    assert [each.name for each in home.models.iterdir() if each.name.startswith(".draft-")]
    installed(models, source)
    assert not [each.name for each in home.models.iterdir() if each.name.startswith(".draft-")]
    assert models.verify("small").file_count == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "http://user:key@host/v1"},
        {"endpoint": "https://host/v1?key=1"},
        {"endpoint": "ftp://host"},
        {"endpoint": "http://example.com/v1", "key_variable": "KEY"},
        {"key_variable": "sk-123"},
        {"provider": "Open AI"},
        {"model": ""},
    ],
)
def test_a_provider_model_that_holds_or_gives_away_a_secret_is_refused(
    wrong: dict[str, str],
) -> None:
    given = {"name": "big", "provider": "openai", "model": "x"} | wrong
    with pytest.raises(InvalidValue) as refused:
        ProviderModel(**given)
    assert "sk-123" not in str(refused.value)
    assert "user:key" not in str(refused.value)


# Removal


def test_a_model_that_no_session_needs_is_removed_with_its_files(
    models: Models, source: Path, home: Home
) -> None:
    installed(models, source)
    models.remove("small")
    assert models.list() == ()
    assert {each.name for each in home.models.iterdir()} == {".lock"}
    with pytest.raises(NotFound):
        models.remove("small")


def test_removing_a_link_leaves_what_it_led_to(models: Models, source: Path) -> None:
    installed(models, source, "link")
    models.remove("small")
    assert (source / "config.json").exists()


def test_no_database_is_made_by_asking(models: Models, source: Path, home: Home) -> None:
    installed(models, source)
    models.remove("small")
    assert list(home.memory.iterdir()) == []


def test_a_bound_model_is_not_removed(models: Models, source: Path, home: Home) -> None:
    installed(models, source)
    with Memory.open(home.database) as memory:
        session_id = memory.sessions.start(ANA).id
    bind(home, session_id)
    with pytest.raises(ModelInUse) as refused:
        models.remove("small")
    assert "1" in refused.value.message
    assert models.verify("small").file_count == 2


def test_a_database_that_cannot_answer_counts_as_a_reference(
    models: Models, source: Path, home: Home
) -> None:
    installed(models, source)
    with Memory.open(home.database):
        pass
    home.database.write_bytes(b"no database")
    with pytest.raises(ModelInUse):
        models.remove("small")


def test_a_database_elsewhere_is_remembered_and_asked(
    home: Home, source: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.sqlite3"
    models = open_models(home, place=str(other))
    model = installed(models, source)
    with Memory.open(other) as memory:
        session_id = memory.sessions.start(ANA).id
        with memory.sessions.lease(ANA, session_id) as writer, models.bind(model) as held:
            from engrain.contracts.models import MODEL_KEY, model_builtins
            from engrain.contracts.snapshots import SessionSnapshot

            writer.bind_snapshot(SessionSnapshot(configuration={MODEL_KEY: model_builtins(held)}))
    with pytest.raises(ModelInUse):
        open_models(home).remove("small")
    other.rename(tmp_path / "moved.sqlite3")
    with pytest.raises(ModelInUse):
        open_models(home).remove("small")


def test_of_a_binding_and_a_removal_at_once_one_wins(
    models: Models, source: Path, home: Home
) -> None:
    outcomes = set()
    for _ in range(8):
        if not models.list():
            installed(models, source)
        with Memory.open(home.database) as memory:
            session_id = memory.sessions.start(ANA).id
        told = race(home, str(session_id))
        outcomes.add(tuple(sorted(told.items())))
        assert list(told.values()).count("done") == 1, told
        if told["bind"] == "done":
            assert models.verify("small").file_count == 2
            break
    assert outcomes <= {
        (("bind", "done"), ("remove", "model_in_use")),
        (("bind", "not_found"), ("remove", "done")),
    }


def race(home: Home, session: str) -> dict[str, str]:
    """What each side said."""
    sides = {
        task: subprocess.Popen(
            [sys.executable, "-m", "services.model_race", str(home.path), task, session],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for task in ("bind", "remove")
    }
    for side in sides.values():
        assert side.stdout and side.stdout.readline() == "ready\n"
    for side in sides.values():
        assert side.stdin
        side.stdin.write("go\n")
        side.stdin.flush()
    return {task: side.communicate(timeout=60)[0].strip() for task, side in sides.items()}
