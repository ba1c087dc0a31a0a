"""A directory is known by its identity, whatever its path and its number do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from engrain.contracts.errors import InvalidValue, UnsupportedSystem, WorkspaceMismatch
from engrain.contracts.workspace import DirectoryIdentity, Workspace, named_workspace
from engrain.system.generations import SOURCES
from engrain.system.workspace import SystemWorkspaces

WORKSPACES = SystemWorkspaces()


def _identity(workspace: Workspace) -> DirectoryIdentity:
    assert workspace.identity is not None
    return workspace.identity


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


def _bind_by(kind: str, place: Path) -> Workspace:
    """The workspace at `place` as a system would bind it that has this source of generations."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        generation = SOURCES[kind](descriptor)
    finally:
        os.close(descriptor)
    if generation is None:
        pytest.skip(f"this file system gives no generation by {kind}")
    found = _identity(WORKSPACES.read(str(place)))
    changed = msgspec.structs.replace(found, generation=generation, generation_kind=kind)
    return Workspace(name=str(place), identity=changed)


@pytest.mark.invariant("INV-09")
def test_a_directory_that_did_not_change_is_the_same(project: Path) -> None:
    bound = WORKSPACES.read(str(project))
    project.joinpath("file").touch()
    project.chmod(0o700)
    WORKSPACES.validate(bound)
    assert WORKSPACES.read(str(project)) == bound


@pytest.mark.invariant("INV-09")
def test_a_rename_keeps_the_identity_and_only_the_path_is_new(project: Path) -> None:
    bound = WORKSPACES.read(str(project))
    moved = project.rename(project.with_name("moved"))
    found = WORKSPACES.read(str(moved))
    assert found.identity == bound.identity
    assert (found.name, bound.name) == (str(moved), str(project))
    WORKSPACES.validate(found)


@pytest.mark.invariant("INV-09")
def test_the_old_path_of_a_renamed_directory_fails_closed(project: Path) -> None:
    bound = WORKSPACES.read(str(project))
    project.rename(project.with_name("moved"))
    with pytest.raises(WorkspaceMismatch, match="new path"):
        WORKSPACES.validate(bound)


@pytest.mark.invariant("INV-09")
def test_a_replaced_directory_fails_closed_every_time_though_its_number_is_reused(
    project: Path,
) -> None:
    reused = 0
    for _ in range(50):
        bound = WORKSPACES.read(str(project))
        project.rmdir()
        project.mkdir()
        found = WORKSPACES.read(str(project))
        reused += _identity(found).inode == _identity(bound).inode
        assert found.identity != bound.identity
        with pytest.raises(WorkspaceMismatch, match="another directory"):
            WORKSPACES.validate(bound)
    if not reused:
        pytest.skip("this file system did not reuse an inode number, so nothing was shown")


@pytest.mark.invariant("INV-09")
@pytest.mark.parametrize("kind", ["handle", "version"])
def test_each_source_tells_a_directory_from_the_next_with_its_number(
    project: Path, kind: str
) -> None:
    for _ in range(20):
        bound = _bind_by(kind, project)
        WORKSPACES.validate(bound)
        project.rmdir()
        project.mkdir()
        with pytest.raises(WorkspaceMismatch):
            WORKSPACES.validate(bound)


def test_a_birth_time_is_that_of_the_directory_and_outlives_a_rename(project: Path) -> None:
    bound = _bind_by("birth", project)
    moved = project.rename(project.with_name("moved"))
    assert _bind_by("birth", moved).identity == bound.identity
    made_ns = _identity(bound).generation
    assert abs(made_ns - moved.stat().st_mtime_ns) < 60 * 10**9


@pytest.mark.invariant("INV-09")
def test_generations_of_two_kinds_are_never_compared(project: Path) -> None:
    bound = _bind_by("birth", project)
    mixed = msgspec.structs.replace(_identity(bound), generation_kind="handle")
    with pytest.raises(WorkspaceMismatch):
        WORKSPACES.validate(Workspace(name=bound.name, identity=mixed))


@pytest.mark.invariant("INV-09")
def test_a_kind_of_generation_that_is_not_known_fails_closed(project: Path) -> None:
    found = _identity(WORKSPACES.read(str(project)))
    later = msgspec.structs.replace(found, generation_kind="of-a-later-version")
    with pytest.raises(WorkspaceMismatch):
        WORKSPACES.validate(Workspace(name=str(project), identity=later))


@pytest.mark.invariant("INV-09")
@pytest.mark.parametrize("field", ["device", "inode", "generation"])
def test_every_part_of_the_identity_counts(project: Path, field: str) -> None:
    found = _identity(WORKSPACES.read(str(project)))
    other = msgspec.structs.replace(found, **{field: getattr(found, field) + 1})
    with pytest.raises(WorkspaceMismatch):
        WORKSPACES.validate(Workspace(name=str(project), identity=other))


@pytest.mark.invariant("INV-09")
def test_a_copy_of_a_directory_in_its_place_is_another_directory(project: Path) -> None:
    bound = WORKSPACES.read(str(project))
    copy = project.with_name("copy")
    copy.mkdir()
    project.rename(project.with_name("kept"))
    copy.rename(project)
    with pytest.raises(WorkspaceMismatch, match="relink"):
        WORKSPACES.validate(bound)


@pytest.mark.invariant("INV-09")
def test_another_process_reads_the_same_identity(project: Path) -> None:
    program = (
        "import sys; from engrain.system.workspace import SystemWorkspaces; "
        "sys.stdout.write(repr(SystemWorkspaces().read(sys.argv[1])))"
    )
    command = [sys.executable, "-c", program, str(project)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found == repr(WORKSPACES.read(str(project)))


def test_links_and_dots_lead_to_the_one_canonical_path(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = project.with_name("link")
    link.symlink_to(project)
    monkeypatch.chdir(project.parent)
    bound = WORKSPACES.read(str(project))
    for path in (str(link), "project", "./project/../link/", f"{project}/"):
        assert WORKSPACES.read(path) == bound
    assert bound.name == str(project.resolve())


@pytest.mark.invariant("INV-09")
def test_a_link_that_took_the_place_of_a_directory_leads_to_another_one(project: Path) -> None:
    bound = WORKSPACES.read(str(project))
    other = project.with_name("other")
    other.mkdir()
    project.rename(project.with_name("kept"))
    project.symlink_to(other)
    with pytest.raises(WorkspaceMismatch):
        WORKSPACES.validate(bound)


def test_what_is_no_directory_is_refused_without_waiting(tmp_path: Path) -> None:
    tmp_path.joinpath("file").touch()
    os.mkfifo(tmp_path / "fifo")
    tmp_path.joinpath("loop").symlink_to(tmp_path / "loop")
    for name in ("file", "fifo", "loop", "absent", "file/below"):
        with pytest.raises(WorkspaceMismatch):
            WORKSPACES.read(str(tmp_path / name))


def test_a_bound_directory_that_became_a_fifo_is_refused_without_waiting(project: Path) -> None:
    bound = WORKSPACES.read(str(project))
    project.rmdir()
    os.mkfifo(project)
    with pytest.raises(WorkspaceMismatch):
        WORKSPACES.validate(bound)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_names_nothing_is_refused(path: str) -> None:
    with pytest.raises(InvalidValue, match="workspace"):
        WORKSPACES.read(path)


def test_a_path_that_is_no_text_is_refused(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff")
    try:
        odd.mkdir()
    except OSError:
        pytest.skip("this file system takes only names that are text")
    with pytest.raises(InvalidValue, match="workspace"):
        WORKSPACES.read(str(odd))


@pytest.mark.invariant("INV-09")
def test_a_file_system_without_generations_is_refused_with_a_way_out() -> None:
    if sys.platform != "linux":
        pytest.skip("needs the proc file system, whose directories have neither handle nor birth")
    with pytest.raises(UnsupportedSystem, match="a name instead of a path"):
        WORKSPACES.read("/proc")


def test_a_workspace_with_a_name_alone_has_nothing_to_check() -> None:
    WORKSPACES.validate(named_workspace("server"))


def test_no_descriptor_stays_open(project: Path) -> None:
    bound = WORKSPACES.read(str(project))
    before = _count_descriptors()
    for _ in range(20):
        WORKSPACES.read(str(project))
        WORKSPACES.validate(bound)
    project.rmdir()
    project.mkdir()
    for _ in range(20):
        with pytest.raises(WorkspaceMismatch):
            WORKSPACES.validate(bound)
    assert _count_descriptors() == before


def _count_descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208  (a Path's own listing holds one open)
