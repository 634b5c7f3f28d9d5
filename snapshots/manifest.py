"""What a manifest of a snapshot says: plain JSON, of names, numbers and digests; nothing in it is executed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from rayad.progress import SnapshotError, say

FORMAT = 2
"""Of manifests; a store refuses those that are not in ``READ``. 1: replicas had no files of runs."""
READ = (1, FORMAT)


class KeeperId(NamedTuple):
    """Which keeper of a job: they are ordered, by number, and by token where two have begun at the same moment."""

    number: int
    token: str


class PartFile(NamedTuple):
    """A file of a part: path below the store's folder, length, digest in hex."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class ReplicaPart:
    """What one replica gave.

    Args:
        vertex, replica: whose it is.
        files: the vertex's state, a full file and then the increments on it, oldest first; none for a replica without state.
        rest: everything else: notifications, positions, records in flight.
        epoch: in which a source or live input goes on; of others the least that waits here. None: none, or not told.
        runs: files of sorted runs, to which the state refers by their numbers; snapshots that follow each other name the same ones.
    """

    vertex: str
    replica: int
    files: tuple[PartFile, ...]
    rest: PartFile | None = None
    epoch: int | None = None
    runs: tuple[PartFile, ...] = ()

    @property
    def state_bytes(self) -> int:
        """Bytes of all files that the vertex's state is in."""
        return sum(file.size for file in (*self.files, *self.runs))


@dataclass(frozen=True, slots=True)
class StagedPart:
    """What one replica has staged for a sink: to be published with the snapshot, or at the end.

    ``count``: how many staged values are merged in the file, in order; ``vertex`` and ``replica`` are those of the first.
    """

    sink: str
    vertex: str
    replica: int
    file: PartFile
    count: int = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """One complete snapshot. Plain JSON: names, numbers, digests, nothing that is executed.

    Args:
        number: of the snapshot; they only grow.
        job: the job's name.
        graph: fingerprint of each vertex by name, see ``resume_point.Graph``.
        key_groups: into how many groups keys hash.
        parts: of all replicas.
        staged: what sinks publish because of this snapshot; for sinks that publish once, at the end, all since the beginning.
        kind: "start" (a run began here, with nothing), "resume" (a run began here with an older snapshot's parts), "snapshot",
            "savepoint" or "final" (the job was complete).
        incarnation: of the run's actors when it was taken.
        run: tells the runs of one job apart.
        notes: what the coordinator records (failures so far, time taken).
    """

    number: int
    job: str
    graph: dict[str, Any]
    key_groups: int
    parts: tuple[ReplicaPart, ...]
    staged: tuple[StagedPart, ...] = ()
    kind: str = "snapshot"
    incarnation: int = 1
    run: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @staticmethod
    def from_json(plain: dict[str, Any]) -> Manifest:
        """What :meth:`to_json` gave, after JSON. Raises SnapshotError for another format or a missing field."""
        found = plain.get("format")
        if found not in READ:
            raise SnapshotError(f"its manifest has format {found!r}, this version of Rayad reads formats {READ[0]} to {FORMAT}")
        try:
            parts = tuple(
                ReplicaPart(
                    entry["vertex"],
                    int(entry["replica"]),
                    tuple(PartFile(*file) for file in entry["files"]),
                    PartFile(*entry["rest"]) if entry["rest"] is not None else None,
                    entry.get("epoch"),
                    tuple(PartFile(*file) for file in entry.get("runs", ())),
                )
                for entry in plain["parts"]
            )
            staged = tuple(
                StagedPart(entry["sink"], entry["vertex"], int(entry["replica"]), PartFile(*entry["file"]), int(entry.get("count", 1)))
                for entry in plain["staged"]
            )
            return Manifest(**{**plain, "parts": parts, "staged": staged})
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotError(f"its manifest lacks a field or has one too many: {type(error).__name__}: {say(error)}") from error

    @property
    def claims(self) -> tuple[int, ...]:
        """The run numbers of the job so far, ascending, the last its own; none where an earlier version has written it."""
        return tuple(self.notes.get("claims", ()))

    @property
    def store(self) -> str:
        """The identity of its store: the run that began it; "" where an earlier version has written it."""
        return str(self.notes.get("store", ""))

    @property
    def keeper(self) -> KeeperId | None:
        """The latest keeper of which a coordinator has claimed the store; None: none has."""
        return KeeperId(*self.notes["keeper"]) if self.notes.get("keeper") else None

    def files(self) -> set[PartFile]:
        """All files that it names."""
        files = {file for part in self.parts for file in (*part.files, *part.runs)}
        files.update(part.rest for part in self.parts if part.rest is not None)
        files.update(staged.file for staged in self.staged)
        return files


__all__ = ["FORMAT", "KeeperId", "Manifest", "PartFile", "ReplicaPart", "StagedPart"]
