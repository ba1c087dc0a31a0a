"""Zips: members are streamed under their names as labels; what is evil or broken costs itself."""

from __future__ import annotations

import json
import struct
import time
import zipfile
from pathlib import Path

import pytest

from engrain import Memory
from engrain.contracts.errors import UnknownFormat
from services.exports import ANA, code_line, talk, texts_of

MIB = 1024 * 1024
LOCAL_HEADER = b"PK\x03\x04"
CENTRAL_HEADER = b"PK\x01\x02"


def export(name: str, turns: int = 1) -> str:
    return json.dumps([talk(name, turns)])


def write_zip(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def test_members_that_a_reader_knows_come_in_once(memory: Memory, folder: Path) -> None:
    members = {
        "conversations.json": export("a", 2),
        "users.json": "[]",
        "deep/er/conversations.JSON": export("b"),
        "deep/picture.png": "png",
    }
    path = write_zip(folder / "export.ZIP", members)
    report = memory.imports.run(ANA, path)
    assert (report.files, report.sessions_new, report.events_new) == (2, 2, 6)
    assert (report.skipped, report.failed) == ({"unknown_file": 2}, [])
    assert memory.imports.run(ANA, path).events_new == 0
    (folder / "conversations.json").write_text(export("a", 3))
    assert memory.imports.run(ANA, folder).events_new == 2
    assert {title: len(texts) for title, texts in texts_of(memory).items()} == {
        "talk a": 6,
        "talk b": 2,
    }


def test_evil_names_are_labels_and_nothing_is_unpacked(
    quick_memory: Memory, folder: Path, tmp_path: Path
) -> None:
    names = [
        "/etc/cron.d/evil.json",
        "../../../../evil.json",
        "..\\..\\evil.json",
        "C:\\evil.json",
        "a/" * 2_000 + "evil.json",
        "\x1b]0;evil\x07.json",
        "\u202egnp.json",
        ".json",
    ]
    members = {name: export(f"t{at}") for at, name in enumerate(names)}
    before = sorted(tmp_path.rglob("*"))
    path = write_zip(folder / "evil.zip", members)
    report = quick_memory.imports.run(ANA, path)
    assert (report.sessions_new, report.failed, report.skipped) == (len(names), [], {})
    assert sorted(tmp_path.rglob("*")) == sorted([*before, path])


def test_two_members_of_one_name_are_both_read(quick_memory: Memory, folder: Path) -> None:
    path = folder / "twice.zip"
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("c.json", export("a"))
        archive.writestr("c.json", export("b"))
    quick_memory.imports.run(ANA, path)
    assert sorted(map(str, texts_of(quick_memory))) == ["talk a", "talk b"]


def test_a_name_of_a_session_that_only_the_zip_has_may_be_of_any_length(
    quick_memory: Memory, folder: Path
) -> None:
    line = json.dumps({"type": "user", "parentUuid": None, "message": {"content": "hi"}})
    write_zip(folder / "long.zip", {"n" * 60_000 + ".jsonl": line})
    assert quick_memory.imports.run(ANA, folder).events_new == 1
    assert quick_memory.imports.run(ANA, folder).events_new == 0


# Bombs -------------------------------------------------------------------------------------------


def test_a_bomb_is_refused_unread_and_its_neighbours_come_in(
    quick_memory: Memory, folder: Path
) -> None:
    value = f'[{{"uuid": "x", "chat_messages": "{"x" * 200 * MIB}"}}]'
    path = write_zip(
        folder / "bomb.zip", {"a.json": export("a"), "b.json": value, "c.json": export("c")}
    )
    started = time.monotonic()
    report = quick_memory.imports.run(ANA, path)
    assert time.monotonic() - started < 1
    assert report.failed == [("bomb.zip/b.json", "limit_exceeded")]
    assert sorted(map(str, texts_of(quick_memory))) == ["talk a", "talk c"]


def test_a_size_that_the_zip_only_claims_is_not_believed(
    quick_memory: Memory, folder: Path
) -> None:
    for claimed in (2**32 - 2, 64 * MIB, 5):
        path = write_zip(folder / f"{claimed}.zip", {"a.json": export("a")})
        raw = bytearray(path.read_bytes())
        for header, offset in ((LOCAL_HEADER, 22), (CENTRAL_HEADER, 24)):
            struct.pack_into("<I", raw, raw.index(header) + offset, claimed)
        path.write_bytes(raw)
        started = time.monotonic()
        report = quick_memory.imports.run(ANA, path)
        assert time.monotonic() - started < 1
        assert report.failed or report.skipped
    assert set(texts_of(quick_memory)) <= {"talk a"}


def test_a_zip_inside_of_a_zip_is_not_opened(quick_memory: Memory, folder: Path) -> None:
    inner = write_zip(folder / "inner.zip", {"a.json": export("a")})
    outer = folder / "outer.zip"
    with zipfile.ZipFile(outer, "w") as archive:
        archive.write(inner, "inner.zip")
        archive.writestr("b.json", export("b"))
    report = quick_memory.imports.run(ANA, outer)
    assert report.skipped == {"unknown_file": 1}
    assert list(texts_of(quick_memory)) == ["talk b"]


def test_a_zip_of_many_members_is_opened_once(quick_memory: Memory, folder: Path) -> None:
    members = {f"pictures/{at}.png": "png" for at in range(3_000)} | {"c.json": export("a")}
    path = write_zip(folder / "many.zip", members)
    started = time.monotonic()
    report = quick_memory.imports.run(ANA, path)
    assert time.monotonic() - started < 5  # with its directory read for each, over a minute
    assert report.skipped == {"unknown_file": 3_000}
    assert report.events_new == 2


# Damage ------------------------------------------------------------------------------------------


def broken(path: Path, kind: str) -> None:
    """Damages the zip at `path`, whose member `b.json` stands between two others."""
    raw = bytearray(path.read_bytes())
    at = raw.index(b"b.json")
    if kind == "data":
        raw[at + 30 : at + 60] = b"\xff" * 30
    elif kind == "checksum":
        struct.pack_into("<I", raw, at - 30 + 14, 1)
        struct.pack_into("<I", raw, raw.index(b"b.json", at + 1) - 46 + 16, 1)
    elif kind == "method":
        struct.pack_into("<H", raw, raw.index(b"b.json", at + 1) - 46 + 10, 97)
    else:
        raw[raw.index(b"b.json", at + 1) - 46 + 8] |= 1  # encrypted
    path.write_bytes(raw)


@pytest.mark.parametrize("kind", ["data", "checksum", "method", "encrypted"])
def test_a_broken_member_is_reported_and_its_neighbours_come_in(
    quick_memory: Memory, folder: Path, kind: str
) -> None:
    members = {f"{name}.json": export(name, 20) for name in "abc"}
    path = write_zip(folder / "x.zip", members)
    broken(path, kind)
    report = quick_memory.imports.run(ANA, path)
    assert report.failed == [("x.zip/b.json", "unreadable_file")]
    held = texts_of(quick_memory)
    assert (len(held["talk a"]), len(held["talk c"])) == (40, 40)


@pytest.mark.parametrize("keep", [0, 4, 100, -30])
def test_a_torn_zip_is_reported_and_its_neighbours_come_in(
    quick_memory: Memory, folder: Path, keep: int
) -> None:
    write_zip(folder / "a.zip", {"a.json": export("a")})
    torn = write_zip(folder / "b.zip", {"b.json": export("b")})
    torn.write_bytes(torn.read_bytes()[:keep])
    write_zip(folder / "c.zip", {"c.json": export("c")})
    report = quick_memory.imports.run(ANA, folder)
    assert report.failed == [("b.zip", "unreadable_file")]
    assert sorted(map(str, texts_of(quick_memory))) == ["talk a", "talk c"]


def test_a_zip_without_anything_known_is_refused(quick_memory: Memory, folder: Path) -> None:
    path = write_zip(folder / "x.zip", {"notes.txt": "hello", "empty/": ""})
    with pytest.raises(UnknownFormat):
        quick_memory.imports.run(ANA, path)


def test_transcripts_in_a_zip_are_read_twice_as_from_a_disk(
    quick_memory: Memory, folder: Path
) -> None:
    lines = "\n".join(json.dumps(code_line(at, f"line {at}")) for at in range(1, 200))
    write_zip(folder / "code.zip", {"projects/x/s.jsonl": lines})
    assert quick_memory.imports.run(ANA, folder).events_new == 199
