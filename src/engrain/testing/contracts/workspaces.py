"""Workspaces: known by identity, followed through a rename, joined again only by an operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from engrain.contracts.errors import InvalidValue, NotFound, SessionBusy, WorkspaceMismatch
from engrain.contracts.events import Turn
from engrain.contracts.ids import OperationId
from engrain.contracts.workspace import DEFAULT_WORKSPACE, named_workspace
from engrain.system.ids import SystemIds
from engrain.testing.contracts import ANA, BEN
from engrain.testing.engines import Stores


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory to work in."""
    path = tmp_path / "project"
    path.mkdir()
    return path


class TestBinding:
    def test_a_session_without_a_workspace_is_in_the_one_named_default(
        self, stores: Stores
    ) -> None:
        assert stores.memory.sessions.start(ANA).workspace == DEFAULT_WORKSPACE

    def test_a_directory_and_a_name_of_the_same_words_are_two_workspaces(
        self, stores: Stores, project: Path
    ) -> None:
        sessions = stores.memory.sessions
        named = sessions.start(ANA, workspace="project")
        bound = sessions.start(ANA, workspace=project)
        assert [one.id for one in sessions.list(ANA, workspace="project").items] == [named.id]
        assert [one.id for one in sessions.list(ANA, workspace=project).items] == [bound.id]

    def test_a_missing_directory_is_refused(self, stores: Stores, tmp_path: Path) -> None:
        with pytest.raises(WorkspaceMismatch):
            stores.memory.sessions.start(ANA, workspace=tmp_path / "absent")


@pytest.mark.invariant("INV-09")
class TestIdentity:
    def test_a_replaced_directory_fails_closed_everywhere(
        self, stores: Stores, project: Path
    ) -> None:
        sessions = stores.memory.sessions
        session = sessions.start(ANA, workspace=project)
        with sessions.lease(ANA, session.id) as writer:
            project.rmdir()
            project.mkdir()
            with pytest.raises(WorkspaceMismatch):
                writer.append(Turn.said("lost?"))
        for verb in (sessions.validate_workspace, sessions.lease):
            with pytest.raises(WorkspaceMismatch):
                verb(ANA, session.id)
        assert sessions.read(ANA, session.id).event_count == 0

    def test_a_renamed_directory_is_followed_by_who_names_its_new_path(
        self, stores: Stores, project: Path
    ) -> None:
        sessions = stores.memory.sessions
        session = sessions.start(ANA, workspace=project)
        moved = project.rename(project.with_name("moved"))
        assert [one.id for one in sessions.list(ANA, workspace=moved).items] == [session.id]
        with sessions.lease(ANA, session.id, workspace=moved) as writer:
            writer.append(Turn.said("still here"))
        assert sessions.read(ANA, session.id).workspace.name == str(moved.resolve())

    def test_a_lease_for_another_workspace_is_refused_and_leaves_the_session_free(
        self, stores: Stores, project: Path
    ) -> None:
        sessions = stores.memory.sessions
        session = sessions.start(ANA, workspace=project)
        for other in (project.parent, "default"):
            with pytest.raises(WorkspaceMismatch):
                sessions.lease(ANA, session.id, workspace=other)
        with sessions.lease(ANA, session.id, workspace=project) as writer:
            writer.append(Turn.said("mine"))


class TestRelinking:
    def test_relinking_moves_every_session_of_the_workspace_and_is_audited(
        self, stores: Stores, project: Path, tmp_path: Path
    ) -> None:
        sessions = stores.memory.sessions
        first, second = (sessions.start(ANA, workspace=project) for _ in range(2))
        elsewhere = sessions.start(ANA)
        restored = tmp_path / "restored"
        restored.mkdir()

        relinked = sessions.relink_workspace(ANA, first.id, restored)

        assert relinked.workspace.name == str(restored.resolve())
        found = {one.id for one in sessions.list(ANA, workspace=restored).items}
        assert found == {first.id, second.id}
        assert sessions.read(ANA, elsewhere.id).workspace == DEFAULT_WORKSPACE
        with sessions.lease(ANA, second.id) as writer:
            writer.append(Turn.said("on the new disk"))
        (entry,) = stores.audit.list(ANA)
        assert entry.name == "workspace_relinked"
        assert entry.facts == {"session_id": str(first.id), "sessions": 2}

    def test_a_session_with_a_writer_is_not_relinked(
        self, stores: Stores, project: Path, tmp_path: Path
    ) -> None:
        sessions = stores.memory.sessions
        first, second = (sessions.start(ANA, workspace=project) for _ in range(2))
        with sessions.lease(ANA, second.id), pytest.raises(SessionBusy):
            sessions.relink_workspace(ANA, first.id, tmp_path)
        assert sessions.read(ANA, first.id).workspace.name == str(project.resolve())
        assert stores.audit.list(ANA) == ()

    @pytest.mark.parametrize("name", [None, "kiln"])
    def test_sessions_of_a_named_workspace_are_not_moved(
        self, stores: Stores, project: Path, name: str | None
    ) -> None:
        sessions = stores.memory.sessions
        first, second = (sessions.start(ANA, workspace=name) for _ in range(2))
        with pytest.raises(InvalidValue, match="named workspace"):
            sessions.relink_workspace(ANA, first.id, project)
        assert {sessions.read(ANA, one.id).workspace for one in (first, second)} == {
            named_workspace(name or "default")
        }
        assert sessions.list(ANA, workspace=project).items == ()
        assert stores.audit.list(ANA) == ()

    def test_a_directory_is_not_relinked_to_a_name(self, stores: Stores, project: Path) -> None:
        session = stores.memory.sessions.start(ANA, workspace=project)
        with pytest.raises(InvalidValue):
            stores.sessions.relink(ANA, session.id, DEFAULT_WORKSPACE)
        assert stores.sessions.read(ANA, session.id).workspace == session.workspace

    @pytest.mark.invariant("INV-13")
    def test_a_repeated_relink_is_audited_once(
        self, stores: Stores, project: Path, tmp_path: Path
    ) -> None:
        sessions = stores.memory.sessions
        session = sessions.start(ANA, workspace=project)
        operation = OperationId(SystemIds().uuid7())
        for _ in range(2):
            sessions.relink_workspace(ANA, session.id, tmp_path, operation_id=operation)
        assert len(stores.audit.list(ANA)) == 1

    @pytest.mark.invariant("INV-20")
    def test_another_scopes_session_is_not_found(self, stores: Stores, project: Path) -> None:
        session = stores.memory.sessions.start(ANA)
        with pytest.raises(NotFound):
            stores.memory.sessions.relink_workspace(BEN, session.id, project)
