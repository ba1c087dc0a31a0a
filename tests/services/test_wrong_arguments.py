"""An argument of a wrong kind is refused as `InvalidValue`, and nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from engrain import (
    Memory,
    NewEpisode,
    Origin,
    Refused,
    Scope,
    Session,
    SessionWriter,
    Turn,
    UserMessage,
)
from engrain.contracts.errors import InvalidValue, UnsafeFile
from services.exports import ANA


class Nothing:
    """Of no kind that any argument has."""

    def __repr__(self) -> str:
        return "a secret word"


NOTHING: Final[Any] = Nothing()
NO_TEXT: Final[list[Any]] = [None, 1, True, b"x", ["x"], NOTHING]
NO_NUMBER: Final[list[Any]] = [None, "80", b"8", 8.5, True, float("nan"), [8], -1, NOTHING]
NO_ID: Final[list[Any]] = ["abc", "0198c0de-0000-7000-8000-000000000000", 1, b"x", NOTHING]
NO_SEQUENCE: Final[list[Any]] = [None, 1, True, "x", b"x", {"a": 1}, Turn, NOTHING]


@pytest.fixture
def writer(quick_memory: Memory) -> Any:
    session = quick_memory.sessions.start(ANA)
    with quick_memory.sessions.lease(ANA, session.id) as opened:
        opened.append(Turn.said("I moved to Porto"))
        quick_memory.enrichment.extract(ANA, session.id)
        yield opened


def refused(call: Callable[[], Any], field: str) -> None:
    with pytest.raises(InvalidValue) as error:
        call()
    assert error.value.field.startswith(field)
    assert "secret word" not in str(error.value)


@pytest.mark.parametrize("value", NO_NUMBER, ids=repr)
def test_a_number_is_a_whole_one_in_range(
    writer: SessionWriter, quick_memory: Memory, value: Any
) -> None:
    memory, session_id = quick_memory, writer.session_id
    refused(lambda: memory.recall(ANA, "porto", budget_tokens=value), "budget_tokens")
    refused(lambda: memory.sessions.list(ANA, limit=value), "limit")
    refused(lambda: memory.episodes.list(ANA, limit=value), "limit")
    refused(lambda: memory.episodes.search(ANA, "porto", limit=value), "limit")
    refused(lambda: memory.audit.list(ANA, limit=value), "limit")
    refused(lambda: memory.audit.list(ANA, after=value), "after")
    refused(lambda: memory.sessions.iter_events(ANA, session_id, after=value), "after")
    if value is not None:
        refused(lambda: memory.sessions.iter_events(ANA, session_id, limit=value), "limit")
        refused(
            lambda: memory.episodes.append(ANA, session_id, [], extracted_through=value),
            "extracted_through",
        )
        refused(lambda: memory.sessions.fork(ANA, session_id, through=value), "through")


@pytest.mark.parametrize("value", NO_TEXT, ids=repr)
def test_a_text_is_text(writer: SessionWriter, quick_memory: Memory, value: Any) -> None:
    memory, session_id = quick_memory, writer.session_id
    refused(lambda: memory.recall(ANA, value, budget_tokens=80), "turn")
    refused(lambda: memory.episodes.search(ANA, value), "query")
    refused(lambda: memory.sessions.set_title(ANA, session_id, value), "title")
    refused(lambda: Turn.said(value), "text")
    refused(lambda: Scope(org=value, user="ana"), "org")
    refused(lambda: Origin(value), "origin")
    refused(lambda: writer.append([UserMessage(text=value)]), "events[0]")
    refused(lambda: writer.append([UserMessage(text="x", origin=value)]), "events[0]")
    if value is not None:
        refused(lambda: Turn.said("x", reply=value), "reply")
        refused(lambda: Turn.said("x", speaker=value), "speaker")
        refused(lambda: memory.sessions.start(ANA, title=value), "title")
        refused(lambda: memory.sessions.start(ANA, workspace=value), "workspace")
        refused(lambda: memory.sessions.list(ANA, workspace=value), "workspace")


@pytest.mark.parametrize("value", NO_ID, ids=repr)
def test_an_operation_id_is_a_uuid(
    writer: SessionWriter, quick_memory: Memory, value: Any, tmp_path: Path
) -> None:
    sessions, session_id = quick_memory.sessions, writer.session_id
    for call in (
        lambda: writer.append(Turn.said("x"), operation_id=value),
        lambda: sessions.start(ANA, operation_id=value),
        lambda: sessions.fork(ANA, session_id, operation_id=value),
        lambda: sessions.set_title(ANA, session_id, "x", operation_id=value),
        lambda: sessions.relink_workspace(ANA, session_id, tmp_path, operation_id=value),
    ):
        refused(call, "operation_id")


@pytest.mark.parametrize("value", NO_SEQUENCE, ids=repr)
def test_a_turn_is_a_sequence_of_events(
    writer: SessionWriter, quick_memory: Memory, value: Any
) -> None:
    refused(lambda: writer.append(value), "turn")
    refused(lambda: writer.append(Turn(events=value)), "turn")
    refused(lambda: writer.append([value]), "events[0]")
    episodes = quick_memory.episodes
    refused(lambda: episodes.append(ANA, writer.session_id, value), "episodes")
    refused(lambda: episodes.append(ANA, writer.session_id, [value]), "episodes")
    refused(lambda: episodes.tombstone(ANA, value), "episode_ids")
    refused(lambda: episodes.tombstone(ANA, [value]), "episode_id")
    assert [stored.sequence for stored in writer.replay()] == [1]


@pytest.mark.parametrize("value", [None, "ana", 1, ("acme", "ana")], ids=repr)
def test_a_scope_is_a_scope(quick_memory: Memory, writer: SessionWriter, value: Any) -> None:
    memory, session_id = quick_memory, writer.session_id
    for call in (
        lambda: memory.recall(value, "porto", budget_tokens=80),
        lambda: memory.sessions.start(value),
        lambda: memory.sessions.list(value),
        lambda: memory.sessions.read(value, session_id),
        lambda: memory.sessions.lease(value, session_id),
        lambda: list(memory.sessions.iter_events(value, session_id)),
        lambda: memory.sessions.verify(value, session_id),
        lambda: memory.sessions.fork(value, session_id),
        lambda: memory.sessions.set_title(value, session_id, "x"),
        lambda: memory.episodes.search(value, "porto"),
        lambda: memory.episodes.list(value),
        lambda: memory.episodes.tombstone(value, []),
        lambda: memory.enrichment.extract(value, session_id),
        lambda: memory.enrichment.settle(value),
        lambda: memory.audit.list(value),
    ):
        refused(call, "scope")


def test_a_number_out_of_range_is_told_the_range(quick_memory: Memory) -> None:
    with pytest.raises(InvalidValue, match=r"from 1 to 1,000$"):
        quick_memory.sessions.list(ANA, limit=1_001)
    with pytest.raises(InvalidValue, match=r"from 0 to 9,223,372,036,854,775,807$"):
        quick_memory.recall(ANA, "porto", budget_tokens=2**63)


def test_what_recall_is_helped_by_is_checked(writer: SessionWriter, quick_memory: Memory) -> None:
    recall = quick_memory.recall
    for value in (1, "x", [], NOTHING):
        refused(lambda v=value: recall(ANA, "porto", budget_tokens=80, session=v), "session")
        refused(lambda v=value: recall(ANA, "porto", budget_tokens=80, counter=v), "counter")
    for counted in (None, "80", b"8", [8]):
        refused(
            lambda v=counted: recall(ANA, "porto", budget_tokens=80, counter=lambda _: v),
            "counter",
        )


@pytest.mark.parametrize("value", [None, 1, b"x", ["x"]], ids=repr)
def test_an_import_wants_a_path_and_a_workspace(
    quick_memory: Memory, tmp_path: Path, value: Any
) -> None:
    run = quick_memory.imports.run
    refused(lambda: run(ANA, value), "path")
    refused(lambda: run(ANA, tmp_path, workspace=value), "workspace")
    refused(lambda: run(ANA, tmp_path, format=value), "format")
    if value is not None:
        refused(lambda: run(ANA, tmp_path, progress=value), "progress")
    assert quick_memory.sessions.list(ANA).items == ()


def test_an_import_takes_a_path_and_a_workspace_as_text(quick_memory: Memory) -> None:
    example = Path(__file__).parents[2] / "examples" / "conversations.json"
    quick_memory.imports.run(ANA, str(example), workspace="old talks")
    found: tuple[Session, ...] = quick_memory.sessions.list(ANA, workspace="old talks").items
    assert len(found) == 4


@pytest.mark.parametrize(
    "value",
    [None, 1, b"x.db", "", "\0", "a\ud800", "mysql://host/name", "sqlite://x"],
    ids=repr,
)
def test_a_place_that_is_none_is_refused(value: Any) -> None:
    refused(lambda: Memory.open(value), "url")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://%%%",
        "postgresql://ana:s3cret@[::1",
        "postgresql://ana:s3cret@host/x?nosuch=1",
        "postgresql://ana:s3cret@host:99999/x",
        "postgresql://ana:s3cret@host:many/x",
        "postgresql://ana:s3cret@host:/x?port=0",
    ],
)
def test_a_server_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidValue) as error:
        Memory.open(url)
    assert error.value.field == "url"
    assert "s3cret" not in str(error.value)


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(UnsafeFile, match="is a directory"):
        Memory.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_media_is_a_path(tmp_path: Path) -> None:
    refused(lambda: Memory.open(tmp_path / "x.sqlite3", assets=NOTHING), "assets")
    with Memory.open(tmp_path / "x.sqlite3", assets=str(tmp_path / "media")):
        assert (tmp_path / "media").is_dir()


def test_the_async_door_wants_a_verb_and_not_its_answer(quick_memory: Memory) -> None:
    block: Any = quick_memory.recall(ANA, "porto", budget_tokens=80)
    refused(lambda: asyncio.run(quick_memory.run(block)), "verb")


def test_an_argument_of_a_wrong_kind_is_a_refusal_that_names_it() -> None:
    with pytest.raises(Refused) as error:
        Turn.said(NOTHING)
    assert error.value.facts() == {
        "code": "invalid_value",
        "message": "text: must be text",
        "retryable": False,
        "field": "text",
    }


def test_an_episode_of_a_wrong_kind_writes_none_of_its_neighbours(
    writer: SessionWriter, quick_memory: Memory
) -> None:
    good = NewEpisode(text="kiln", first_sequence=1, last_sequence=1, ordinal=7)
    odd: Any = "kiln"
    refused(lambda: quick_memory.episodes.append(ANA, writer.session_id, [good, odd]), "episodes")
    assert quick_memory.episodes.search(ANA, "kiln") == ()
