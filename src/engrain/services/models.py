"""The models of a home: added, listed, verified, bound to sessions and removed.

One lock of the home stands around every change, and around a binding until the caller's commit is
done; so a removal either comes first, or finds the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engrain.contracts.clock import Clock
from engrain.contracts.errors import (
    Conflict,
    EngrainError,
    InvalidValue,
    ModelChanged,
    ModelInUse,
    NotFound,
)
from engrain.contracts.faults import reach
from engrain.contracts.models import (
    Arrival,
    FileStamp,
    InstalledModel,
    Manifest,
    Model,
    ModelRecord,
    Progress,
    ProviderModel,
    ReferenceGuard,
    VerifiedModel,
    installed_model,
    reference_of,
    require_model_name,
)
from engrain.system.clock import SystemClock
from engrain.system.home import Home
from engrain.system.model_files import (
    copy_files,
    find_link_fault,
    hash_files,
    locate_link,
    remove_taken,
    resolve_source,
    stamp_files,
    take_files,
)
from engrain.system.model_folder import BoundPlaces, Draft, ModelFolder, erase_retired
from engrain.system.private_files import make_private_directory

_KINDS = ("installed", "provider")
_VERIFY = "if that is what you want, run: engrain models verify"


class Models:
    """The models of one home; nothing is made before the first is added.

    Without a `guard` nobody can say that a model is not in use, so none is removed;
    `engrain.memory.open_models` brings the one that looks into the databases. `place` names the
    database that sessions are bound in, when it is not the home's own.
    """

    def __init__(
        self,
        home: Home,
        guard: ReferenceGuard | None = None,
        *,
        place: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._folder = ModelFolder(home)
        self._places = BoundPlaces(home)
        self._guard = guard
        self._bound_in = place
        self._clock = clock or SystemClock()

    def add(
        self,
        name: str,
        path: Path,
        *,
        arrival: Arrival = "copy",
        progress: Progress | None = None,
    ) -> InstalledModel:
        """Installs a file or folder under `name`; whole and durable when it returns, or not at all.

        A move removes the source last. Raises `Conflict` when the name is taken, `UnsafeFile` for
        links inside the folder and for files that change meanwhile.
        """
        require_model_name(name)
        source = resolve_source(path)
        self._refuse_own(source)
        with self._drafted(name) as draft:
            make_private_directory(draft.files)
            if arrival == "link":
                return self._add_link(draft, name, path, progress)
            return self._add_owned(draft, name, source, move=arrival == "move", progress=progress)

    def add_provider(self, model: ProviderModel) -> ProviderModel:
        """Keeps a provider model under its name. Nothing is asked of the provider."""
        if not isinstance(model, ProviderModel):
            raise InvalidValue("model", "must be a ProviderModel")
        with self._drafted(model.name) as draft:
            self._publish(draft, ModelRecord(model=model, added_at=self._clock.now_us()))
        return model

    def list(self) -> tuple[ModelRecord, ...]:
        """Every model's record, sorted by name."""
        return tuple(self._folder.read(name) for name in self._folder.list_names())

    def read(self, name: str) -> ModelRecord:
        """The record of one. Raises `NotFound`."""
        return self._folder.read(require_model_name(name))

    def files_of(self, model: InstalledModel) -> Path:
        """Where an installed model's files lie: the folder in this home, or the linked place."""
        link = self.read(model.name).link
        return self._folder.files_of(model.name) if link is None else Path(link.target)

    def verify(self, name: str, *, progress: Progress | None = None) -> VerifiedModel:
        """Reads every byte anew. Raises `ModelChanged` unless all is as it was installed.

        When only the outside differs (a copied or restored home), it is stamped anew. Of a provider
        model the record alone is read.
        """
        record = self.read(name)
        if not isinstance(record.model, InstalledModel):
            return VerifiedModel(name=name, file_count=0, size=0, snapshot=None)
        fresh = self._reread(record, progress)
        if fresh != record:
            with self._folder.locked():
                if self._folder.read(name) != record:
                    raise Conflict(f"model {name} was changed by another; verify it again")
                self._folder.rewrite(fresh)
        model = record.model
        return VerifiedModel(
            name=name,
            file_count=model.file_count,
            size=model.size,
            snapshot=model.snapshot,
            restamped=fresh != record,
        )

    @contextmanager
    def bind(self, model: Model) -> Iterator[Model]:
        """Holds `model` as it is until the block ends: commit the session's snapshot inside.

        No other binding or removal of this home goes on meanwhile, in any process. An owned model
        is known by its stamps, a linked one is read whole. Raises `ModelChanged`, `NotFound` or
        `Busy`.
        """
        if not isinstance(model, InstalledModel | ProviderModel):
            raise InvalidValue("model", "must be an InstalledModel or a ProviderModel, not a name")
        self._require(model.name)
        with self._folder.locked():
            record = self._folder.read(model.name)
            if record.model != model:
                raise ModelChanged(model.name, "another model has the name now")
            self._validate(record)
            if self._bound_in is not None:
                self._places.note(self._bound_in)
            yield record.model

    def remove(self, name: str) -> None:
        """Removes a model and what this home owns of it; never what was linked.

        Raises `ModelInUse` when a session is bound to it, and when that cannot be found out.
        """
        require_model_name(name)
        self._require(name)
        with self._folder.locked():
            self._require(name)
            self._refuse_referenced(name)
            retired = self._folder.retire(name)
        erase_retired(retired)

    @contextmanager
    def _drafted(self, name: str) -> Iterator[Draft]:
        self._folder.prepare()
        with self._folder.locked():
            self._folder.refuse_taken(name)
            draft = self._folder.begin()
        try:
            yield draft
        finally:
            draft.discard()

    def _add_link(
        self, draft: Draft, name: str, path: Path, progress: Progress | None
    ) -> InstalledModel:
        link = locate_link(path)
        manifest = hash_files(Path(link.target), progress)
        if (fault := find_link_fault(link)) is not None:
            raise ModelChanged(name, fault)
        model = installed_model(name, "link", manifest)
        now_us = self._clock.now_us()
        self._publish(
            draft, ModelRecord(model=model, added_at=now_us, manifest=manifest, link=link)
        )
        return model

    def _add_owned(
        self, draft: Draft, name: str, source: Path, *, move: bool, progress: Progress | None
    ) -> InstalledModel:
        taken: tuple[FileStamp, ...] = ()
        if move:
            manifest, taken = take_files(source, draft.files, progress)
        else:
            manifest = copy_files(source, draft.files, progress)
        reach("models.drafted")
        model = installed_model(name, "move" if move else "copy", manifest)
        record = self._record_owned(model, manifest, draft.files)
        if move:
            self._publish(draft, record, source, taken)
        else:
            self._publish(draft, record)
        return model

    def _record_owned(self, model: InstalledModel, manifest: Manifest, files: Path) -> ModelRecord:
        return ModelRecord(
            model=model,
            added_at=self._clock.now_us(),
            manifest=manifest,
            stamps=stamp_files(files),
        )

    def _publish(
        self,
        draft: Draft,
        record: ModelRecord,
        source: Path | None = None,
        taken: tuple[FileStamp, ...] = (),
    ) -> None:
        """Publishes, then removes what a move took; losing its second name restamps a file."""
        name = record.model.name
        draft.write(record)
        with self._folder.locked():
            self._folder.publish(draft, name)
            if source is not None:
                remove_taken(source, taken)
                stamps = stamp_files(self._folder.files_of(name))
                self._folder.rewrite(msgspec.structs.replace(record, stamps=stamps))

    def _reread(self, record: ModelRecord, progress: Progress | None) -> ModelRecord:
        """The record as the files are now; `ModelChanged` when they hold something else."""
        name = record.model.name
        if record.link is not None:
            link = locate_link(Path(record.link.path))
            _demand_same(name, hash_files(Path(link.target), progress), record.manifest)
            return msgspec.structs.replace(record, link=link)
        files = self._folder.files_of(name)
        stamps = stamp_files(files)
        _demand_same(name, hash_files(files, progress), record.manifest)
        return msgspec.structs.replace(record, stamps=stamps)

    def _validate(self, record: ModelRecord) -> None:
        """Raises `ModelChanged` unless the files are those that were installed."""
        name = record.model.name
        if not isinstance(record.model, InstalledModel):
            return
        if record.link is None:
            if stamp_files(self._folder.files_of(name)) != record.stamps:
                raise ModelChanged(name, f"a file was touched or exchanged; {_VERIFY} {name}")
            return
        if (fault := find_link_fault(record.link)) is not None:
            raise ModelChanged(name, f"{fault}; {_VERIFY} {name}")
        _demand_same(name, hash_files(Path(record.link.target)), record.manifest)

    def _refuse_referenced(self, name: str) -> None:
        """Both kinds of reference, so that a record that cannot be read does not matter."""
        if self._guard is None:
            raise ModelInUse(name, None, "there is no guard to ask")
        try:
            places = self._places.list()
            sessions = sum(
                self._guard.count_sessions(reference_of(kind, name), places) for kind in _KINDS
            )
        except EngrainError as error:
            raise ModelInUse(name, None, error.message) from error
        except Exception as error:  # whatever it was, nobody has said that none is bound
            raise ModelInUse(name, None, type(error).__name__) from error
        if sessions:
            raise ModelInUse(name, sessions)

    def _require(self, name: str) -> None:
        if not self._folder.has(name):
            raise NotFound("model", name, where=" in this home")

    def _refuse_own(self, source: Path) -> None:
        own = self._folder.path.resolve()
        if source.is_relative_to(own) or own.is_relative_to(source):
            raise InvalidValue("path", "holds this home's models, or lies among them")


def _demand_same(name: str, found: Manifest, expected: Manifest) -> None:
    now = {entry.name: entry for entry in found.files}
    then = {entry.name: entry for entry in expected.files}
    if now == then:
        return
    differing = sorted(file for file in now.keys() | then.keys() if now.get(file) != then.get(file))
    raise ModelChanged(name, f"{len(differing):,} file(s) differ, the first is {differing[0]}")
