"""A snapshot as it lies in a store, and the vertices of it, made again so that they can be looked at. Starts nothing; needs no Ray."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyarrow import fs

from rayad.actors.replica.parts.part_reading import read_part
from rayad.actors.replica.rest import ResumedPart
from rayad.dataflow.compiling.state_identity import of_class, state_of
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.plan import Plan
from rayad.dataflow.vertex import Vertex, VertexContext, begin
from rayad.progress import DataflowError, InternalError, SnapshotError, Timestamp, arguments, say
from rayad.snapshots.identity import fits, spell
from rayad.snapshots.manifest import Manifest, ReplicaPart
from rayad.snapshots.store import MANIFEST, SnapshotStore

_NUMBER = re.compile(r"\d{12}")
WHERE = "give <storage_path>/<job name>, its folder snapshots, or a path that job.savepoint() gave"


def open_snapshot(snapshot: Any, *, secret: bytes | None = None, filesystem: fs.FileSystem | None = None) -> tuple[SnapshotStore, Manifest]:
    """The store and the manifest of a snapshot: of one by its path, or of the newest whole one of a job.

    Nothing is unpickled. Raises SnapshotError where there is none, or where it is not complete, void, not as it was written, not signed
    with the secret, or of another version.
    """
    given = arguments.path(snapshot, "the snapshot", error=SnapshotError)
    path, mark, query = given.partition("?") if "://" in given else (given, "", "")
    path = path.rstrip("/").removesuffix(f"/{MANIFEST}")
    folder, _, name = path.rpartition("/")

    def store_at(place: str) -> SnapshotStore:
        return SnapshotStore(place + mark + query, filesystem=filesystem, secret=secret)

    if _NUMBER.fullmatch(name):
        store = store_at(folder or ".")
        store.history()  # which refuses what is signed for several stores
        return store, _numbered(store, int(name))
    for place in (path, f"{path}/snapshots"):
        store = store_at(place)
        if store.numbers():
            store.history()
            manifest, refused = store.latest()
            if manifest is None:
                raise SnapshotError(f"no snapshot in {store.folder!r} is whole: {'; '.join(refused)}")
            return store, manifest
    raise SnapshotError(f"there is no snapshot in {given!r}: {WHERE}")


def _numbered(store: SnapshotStore, number: int) -> Manifest:
    numbers = store.numbers()
    if number not in numbers:
        folder = f"{store.folder}/{number:012d}"
        if store.filesystem.get_file_info(folder).type is fs.FileType.Directory:
            raise SnapshotError(f"{folder!r} has no manifest: that snapshot was given up, or is still being written; there are {numbers}")
        raise SnapshotError(f"there is no snapshot {number} in {store.folder!r}, there are {numbers}: {WHERE}")
    for newer in numbers[numbers.index(number) + 1 :]:
        try:
            void = store.load(newer).notes.get("void", ())
        except SnapshotError:
            continue  # a damaged one says nothing
        if number in void:
            raise SnapshotError(
                f"snapshot {number} in {store.folder!r} is void: the job resumed from an older one, and snapshot {newer} says so"
            )
    return store.load(number)


def require_trust(store: SnapshotStore, manifest: Manifest, trust: bool) -> None:
    """Before a part of a snapshot is unpickled outside of its job. Raises SnapshotError unless it is signed, or trusted all the same."""
    if not trust and not store.is_signed:
        raise SnapshotError(
            f"snapshot {manifest.number} in {store.folder!r} is not signed. Its state is pickled: to read it runs the code of whoever "
            "wrote these files, or could write to the folder. If you trust them, say so with trust=True, on the command line --trust. "
            "The snapshots of a job with SnapshotConfig(secret=...) are signed; they are read with secret=..., on the command line "
            "--secret-file"
        )


class _LookedAt(VertexContext):
    """A vertex that is looked at neither sends nor waits."""

    def __init__(self, name: str, replica: int, parallelism: int, key_groups: int) -> None:
        self.name, self.replica, self.parallelism, self.key_groups = name, replica, parallelism, key_groups

    def send_by(self, edge: int, batch: Any, time: Timestamp) -> None:
        raise InternalError(f"{self.name!r} is looked at and sends at {time}")

    def notify_at(self, time: Timestamp, capability: Timestamp | None) -> None:
        """Nobody will be notified."""


Make = Callable[[], Any]


def made(make: Make, name: str, replica: int, parallelism: int, key_groups: int) -> Vertex:
    """A new vertex in which nothing is yet."""
    vertex = make()
    if not isinstance(vertex, Vertex):
        raise DataflowError(f"{name!r} made a {type(vertex).__name__}: a vertex must be an instance of a subclass of rd.Vertex")
    begin(vertex, _LookedAt(name, replica, parallelism, key_groups))
    return vertex


@dataclass(frozen=True, slots=True)
class SavedReplica:
    """A replica's part that has been read."""

    part: ReplicaPart
    resumed: ResumedPart


class SavedVertex:
    """A vertex of a snapshot.

    Args:
        plan: of the program, where that is known: then it makes the vertex; else what the snapshot has of it does.
    """

    def __init__(self, store: SnapshotStore, manifest: Manifest, name: str, plan: Plan | None = None) -> None:
        self.name = name
        self.what = f"vertex {name!r} of snapshot {manifest.number} in {store.folder!r}"
        self.identity = manifest.graph.get("vertices", {}).get(name, {}).get("state")
        self._store = store
        self._key_groups = manifest.key_groups
        self._plan = plan
        self.parts = sorted((part for part in manifest.parts if part.vertex == name), key=lambda part: part.replica)

    def replicas(self) -> Iterator[SavedReplica]:
        """Its parts, read and verified, one after another. Raises SnapshotError, and says what to do where a module is missing."""
        for part in self.parts:
            try:
                yield SavedReplica(part, read_part(self._store, part))
            except SnapshotError as error:
                raise self._with_module(error) from error

    def restored(self, saved: SavedReplica, make: Make | None = None) -> KeyedVertex:
        """A vertex with the state of a replica. ``make``: its factory, by default that of the program, or of the snapshot.

        Raises SnapshotError where it cannot be made, DataflowError where it has no keyed state.
        """
        rest = saved.resumed.rest
        make = make or self._make(rest)
        vertex = made(make, self.name, saved.part.replica, len(self.parts), self._key_groups)
        before, now = rest.get("vertex"), of_class(type(vertex))
        if not fits(before, now):
            raise SnapshotError(
                f"{self.what} keeps the state of {spell(before)}, and the program makes {spell(now)}: give the same version"
            )
        if not isinstance(vertex, KeyedVertex):
            raise self._no_keyed_state(type(vertex).__name__)
        for at, state in enumerate(saved.resumed.states):
            (vertex.restore_changes if at else vertex.restore)(state)
        return vertex

    def _make(self, rest: Any) -> Make:
        if self._plan is not None:
            return self._of_plan(self._plan)
        kind = (rest.get("vertex") or {}).get("is")
        if has_no_keyed_state(rest):
            raise self._no_keyed_state(kind)
        data = rest.get("maker")
        if data:
            try:
                return pickle.loads(data)  # type: ignore[no-any-return]
            except Exception as error:
                raise self._with_module(
                    SnapshotError(f"{self.what} cannot be made again here: {type(error).__name__}: {say(error)}"), error
                ) from error
        raise SnapshotError(
            f"{self.what} is a {kind} of which the snapshot does not have how it is made (a function of it is too large or cannot be "
            "pickled, or an older version wrote it): give the program, flow=..., on the command line --flow FILE.py:FLOW"
        )

    def _of_plan(self, plan: Plan) -> Make:
        stage = next((stage for stage in plan.stages if stage.name == self.name), None)
        if stage is None:
            raise SnapshotError(f"{self.what} is not in the program {plan.name!r}: it has {[stage.name for stage in plan.stages]}")
        if not fits(self.identity, state_of(stage)):
            raise SnapshotError(f"{self.what} keeps {spell(self.identity)}, in the program it is {spell(state_of(stage))}")
        if not callable(stage.op) or not self.parts[0].files:
            raise self._no_keyed_state(stage.kind.name.lower())
        return stage.op  # type: ignore[no-any-return]

    def _no_keyed_state(self, kind: str | None) -> DataflowError:
        told = f"is a {kind} and has" if kind else "has"
        return DataflowError(f"{self.what} {told} no keyed state: state in rd.Vertex attributes of your own has no form that is known here")

    def _with_module(self, error: SnapshotError, cause: BaseException | None = None) -> SnapshotError:
        missing = cause or error.__cause__
        if isinstance(missing, ModuleNotFoundError) and missing.name:
            return SnapshotError(
                f"{self.what} needs the module {missing.name!r} of the program, which cannot be imported here: put its folder on sys.path, "
                "on the command line with --path FOLDER"
            )
        if isinstance(missing, AttributeError):
            return SnapshotError(
                f"{self.what} needs a class or function that its module does not have here ({missing}): import the version of the program "
                "that the snapshot was taken of"
            )
        return error


def has_no_keyed_state(rest: Mapping[str, Any]) -> bool:
    """Whether the rest of a part says that its vertex has none, or that there is no vertex."""
    return rest.get("vertex") is None or ("maker" in rest and rest["maker"] is None)


def with_state(manifest: Manifest, folder: str) -> list[str]:
    """The vertices that have parts, in alphabetical order. Raises SnapshotError where there are none."""
    if not manifest.parts:
        raise SnapshotError(f"snapshot {manifest.number} in {folder!r} is the beginning of a run and has no state: give a later one")
    return sorted({part.vertex for part in manifest.parts})
