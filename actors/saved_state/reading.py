"""Keyed state of a snapshot as Arrow tables. What a table looks like is said by the state itself (``dataflow.operators.state.tables``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs

from rayad.actors.saved_state.opened import SavedVertex, open_snapshot, require_trust, with_state
from rayad.dataflow.operators.state.tables import Entries, table_of
from rayad.dataflow.operators.state.vertex_tables import chosen_table, tables_in
from rayad.progress import DataflowError, arguments
from rayad.snapshots.identity import spell
from rayad.snapshots.manifest import Manifest


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a snapshot has of a vertex, as its manifest tells: nothing is unpickled for it.

    Args:
        vertex, kind: its name, and what it is ("source", "vertex" ...).
        operator: what it keeps, in words; "" where that is not known.
        replicas: how many parts there are.
        size_bytes: of the files of its state.
        epoch: of a source or live input: where it goes on; of others the least epoch that waits there. None: none, or an earlier version
            wrote the snapshot.
    """

    vertex: str
    kind: str
    operator: str
    replicas: int
    size_bytes: int
    epoch: int | None


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """A snapshot and its vertices: number and kind, key-groups of the job, and a :class:`SavedState` for each vertex."""

    number: int
    kind: str
    job: str
    key_groups: int
    vertices: tuple[SavedState, ...]


def read_state(
    snapshot: Any,
    vertex: str,
    *,
    state: str | None = None,
    flow: Any = None,
    secret: bytes | None = None,
    trust: bool = False,
    filesystem: fs.FileSystem | None = None,
) -> pa.Table:
    """Read the keyed state of a vertex from a snapshot or savepoint, as one table with a row for each entry of all replicas.

    The columns are ``key`` (``key0``, ``key1`` ... for tuples), then those of the state: ``window_start`` and ``window_end``, ``epoch``
    (and ``counters`` in a loop), and its values; for aggregations the accumulators (``count``; ``sum`` and ``count`` of a mean).
    docs/decisions/051-state-as-tables.md has all of them. Ray is not needed, and nothing is changed.

    State is pickled, and unpickling runs code of whoever wrote the files or could have changed them: state that is not signed must be
    trusted explicitly.

    Args:
        snapshot: a path that ``job.savepoint()`` returned, or the folder of a job, whose newest complete snapshot is read. In an object
            store it is a URI (``s3://bucket/jobs/wordcount/snapshots/000000000012``; savepoints return it without the scheme).
        vertex: its name.
        state: which table, if the vertex has several: the sides of a join are ``left`` and ``right``; ``pending`` is what waits for its
            time.
        flow: the program, if the snapshot does not say how the vertex is made.
        secret: that of ``SnapshotConfig(secret=...)``: state that is not signed with it is refused.
        trust: whether to read state that is not signed.
        filesystem: a pyarrow file system on which ``snapshot`` is a path, instead of a URI.

    Raises:
        SnapshotError: the snapshot cannot be read, is neither signed nor trusted, or the program's classes cannot be imported here.
        DataflowError: there is no such vertex, or it has no keyed state.
    """
    store, manifest = open_snapshot(snapshot, secret=secret, filesystem=filesystem)
    names = with_state(manifest, store.folder)
    if vertex not in names:
        raise DataflowError(
            f"snapshot {manifest.number} in {store.folder!r} has no vertex {arguments.text(vertex, 'read_state: vertex')!r}: it has {names}"
        )
    require_trust(store, manifest, arguments.flag(trust, "read_state: trust"))
    saved = SavedVertex(store, manifest, vertex, None if flow is None else flow.plan(key_groups=manifest.key_groups))
    parts: list[Entries] = []
    for replica in saved.replicas():
        tables = tables_in(saved.restored(replica))
        parts.append(tables[chosen_table(tables, state, saved.what)].entries)
    return table_of(Entries.together(parts))


def list_state(snapshot: Any, *, secret: bytes | None = None, filesystem: fs.FileSystem | None = None) -> SnapshotState:
    """List the vertices of a snapshot with their operators, bytes and epochs. Reads the manifest only and unpickles nothing.

    The arguments are those of :func:`read_state`.
    """
    store, manifest = open_snapshot(snapshot, secret=secret, filesystem=filesystem)
    listed = [_listed(name, manifest) for name in with_state(manifest, store.folder)]
    return SnapshotState(manifest.number, manifest.kind, manifest.job, manifest.key_groups, tuple(listed))


def _listed(name: str, manifest: Manifest) -> SavedState:
    shape: dict[str, Any] = manifest.graph.get("vertices", {}).get(name, {})
    parts = [part for part in manifest.parts if part.vertex == name]
    identity = shape.get("state")
    return SavedState(
        name,
        str(shape.get("kind", "?")),
        "" if identity is None else spell(identity),
        len(parts),
        sum(part.state_bytes for part in parts),
        min((part.epoch for part in parts if part.epoch is not None), default=None),
    )


__all__ = ["SavedState", "SnapshotState", "list_state", "read_state"]
