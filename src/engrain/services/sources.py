"""What an import path holds: one file, the files of a folder, or the members of a zip."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from engrain.contracts.errors import NotFound
from engrain.contracts.imports import SourceFile


def iter_sources(path: Path) -> Iterator[SourceFile]:
    """The files behind `path` in a stable order; links are not followed out of a folder."""
    if path.is_dir():
        for inside in sorted(path.rglob("*")):
            if inside.is_file() and not inside.is_symlink():
                yield from _iter_file(inside, str(inside.relative_to(path)))
    elif path.is_file():
        yield from _iter_file(path, path.name)
    else:
        raise NotFound("file or folder", path)


def _iter_file(path: Path, name: str) -> Iterator[SourceFile]:
    if path.suffix.lower() == ".zip" and zipfile.is_zipfile(path):
        yield from _iter_zip(path, name)
    else:
        yield SourceFile(name=name, size=path.stat().st_size, open=lambda: path.open("rb"))


def _iter_zip(path: Path, name: str) -> Iterator[SourceFile]:
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
    for member in sorted(members, key=lambda member: member.filename):
        yield SourceFile(
            name=f"{name}/{member.filename}",
            size=member.file_size,
            open=partial(_open_member, path, member),
        )


def _open_member(path: Path, member: zipfile.ZipInfo) -> BinaryIO:
    with zipfile.ZipFile(path) as archive:  # the file stays open until the member is closed
        return cast(BinaryIO, archive.open(member))
