"""A replica reads its part of a snapshot: each file is verified before anything in it is used, several at a time where the process can.

What it cannot read it says by name (:class:`rayad.snapshots.errors.Damaged`); the coordinator, which has only looked whether files have
their lengths, then looks at that one itself, and the job resumes from the snapshot before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from rayad.actors.replica.input.source_parts import Reopened, Resumable, SourceShare, shared_out
from rayad.actors.replica.parts.part_files import unpickled
from rayad.actors.replica.rest import FORMAT, ResumedPart
from rayad.dataflow.operators.state.runs import files as run_files
from rayad.dataflow.operators.state.runs.files import Content, RunFile
from rayad.progress import SnapshotError, say
from rayad.snapshots.manifest import PartFile, ReplicaPart
from rayad.snapshots.store import SnapshotStore

Each: TypeAlias = Callable[[Callable[[PartFile], memoryview], Sequence[PartFile]], Iterable[memoryview]]
"""Calls a function with each of several: :class:`map`, or one that calls it side by side. Raises what the first of them raises."""


def read_part(store: SnapshotStore, part: Resumable, each: Each = map) -> ResumedPart:
    """Read a replica's part back, or its share of several. Raises SnapshotError that names the file.

    Files of runs are mapped where the store is on a disk of this machine: they stay as long as rows of them are there.
    """
    if isinstance(part, Reopened):
        return part.reopen(read_part(store, part.part, each))
    if isinstance(part, SourceShare):
        return shared_out([read_part(store, one, each) for one in part.parts], part.replica, part.replicas)
    files = sorted({*part.files, *part.runs, *([part.rest] if part.rest is not None else [])}, key=lambda file: file.size, reverse=True)
    contents = dict(zip(files, each(store.map_part, files), strict=True))
    content_of = RunsOfPart(store, part.runs, contents).content_of if part.runs else None
    states = tuple(unpickled(store, file, contents[file], content_of) for file in part.files)
    return ResumedPart(states, _rest(store, part, contents))


class RunsOfPart:
    """The files of the runs of a part, each made sense of once, when the state refers to it."""

    def __init__(self, store: SnapshotStore, names: Sequence[PartFile], contents: Mapping[PartFile, memoryview]) -> None:
        self._store = store
        self._names = names
        self._contents = contents
        self._opened: dict[int, tuple[RunFile, Content]] = {}

    def content_of(self, number: int) -> tuple[RunFile, Content]:
        """Raises ValueError where the part has no such file, SnapshotError where it cannot be read."""
        if number not in self._opened:
            if not 0 <= number < len(self._names):
                raise ValueError(f"it refers to file {number} of the {len(self._names)} files of its runs")
            name = self._names[number]
            self._opened[number] = _opened(self._store, name, self._contents[name])
        return self._opened[number]


class RunsByName:
    """The files of the runs that a sibling refers to by name, each made sense of once, when its state refers to it.

    Args:
        store: where both read and write.
    """

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self._opened: dict[PartFile, tuple[RunFile, Content]] = {}

    def content_of(self, name: PartFile) -> tuple[RunFile, Content]:
        """Raises SnapshotError where it cannot be read."""
        if name not in self._opened:
            self._opened[name] = _opened(self._store, name, self._store.map_named(name))
        return self._opened[name]


def _opened(store: SnapshotStore, name: PartFile, content: memoryview) -> tuple[RunFile, Content]:
    try:
        is_mapped = not content.readonly  # what is read is bytes
        return RunFile(None, name), run_files.opened(content, is_mapped=is_mapped)
    except (ValueError, OSError) as error:
        raise SnapshotError(f"part {name.path} in {store.folder!r} cannot be read: {say(error)}", path=name.path) from error


def read_rest(store: SnapshotStore, part: ReplicaPart) -> dict[str, Any]:
    """Everything but the state. Raises SnapshotError that names the file."""
    return _rest(store, part, {} if part.rest is None else {part.rest: store.map_part(part.rest)})


def _rest(store: SnapshotStore, part: ReplicaPart, contents: Mapping[PartFile, memoryview]) -> dict[str, Any]:
    rest = unpickled(store, part.rest, contents[part.rest]) if part.rest is not None else None
    if not isinstance(rest, dict) or rest.get("format") != FORMAT:
        found = rest.get("format") if isinstance(rest, dict) else rest
        raise SnapshotError(
            f"the part of {part.vertex!r}[{part.replica}] in {store.folder!r} has format {found!r}, this version of Rayad reads {FORMAT}"
        )
    return rest


__all__ = ["Each", "RunsByName", "RunsOfPart", "read_part", "read_rest"]
