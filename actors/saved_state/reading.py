"""Keyed state of a snapshot as Arrow tables. What a table looks like is said by the state itself (``dataflow.operators.state.tables``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs

from rayad.actors.saved_state.opened import SavedVertex, has_no_keyed_state, open_snapshot, with_state
from rayad.dataflow.operators.state.tables import Entries, table_of
from rayad.dataflow.operators.state.vertex_tables import chosen_table, tables_in
from rayad.dataflow.plan import Plan
from rayad.progress import DataflowError, SnapshotError, arguments
from rayad.snapshots.identity import spell
from rayad.snapshots.manifest import Manifest


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a snapshot has of a vertex.

    Args:
        vertex, kind: its name, and what it is ("source", "vertex" ...).
        operator: what it keeps, in words; "" where that is not known.
        replicas: how many parts there are.
        size_bytes: of the files of its state.
        keys: distinct keys of the state that stays; None: no keyed state, or it cannot be read.
        states: rows of each table, by name.
        epoch: of a source or live input: where it goes on; of others the least epoch that waits there. None: none.
        trouble: why the state cannot be read; "".
    """

    vertex: str
    kind: str
    operator: str
    replicas: int
    size_bytes: int
    keys: int | None
    states: dict[str, int]
    epoch: int | None
    trouble: str = ""


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
    filesystem: fs.FileSystem | None = None,
) -> pa.Table:
    """The keyed state of a vertex in a snapshot or savepoint, as one table: a row for each entry, of all replicas.

    Columns: ``key`` (``key0``, ``key1`` ... of keys that are tuples), then what the state has: ``window_start`` and ``window_end``,
    ``epoch`` (and ``counters`` inside a loop), and its values, of aggregations the accumulators (``count``; ``sum`` and ``count`` of a
    mean). docs/decisions/051-state-as-tables.md has them all. Ray is not needed, and nothing is changed.

    Args:
        snapshot: a path that ``job.savepoint()`` gave, or the folder of a job, of which the newest whole snapshot is read. In an object
            store it is a URI (``s3://bucket/jobs/wordcount/snapshots/000000000012``; savepoints give it without the scheme).
        vertex: its name.
        state: which of several: the sides of a join are ``left`` and ``right``; what waits for its time is ``pending``.
        flow: the program, where the snapshot does not tell how the vertex is made.
        secret: that of ``SnapshotConfig(secret=...)``.
        filesystem: with a path on it instead of a URI.

    Raises:
        SnapshotError: where the snapshot cannot be read, or the program's classes cannot be imported here.
        DataflowError: there is no such vertex, or it has no keyed state.
    """
    store, manifest = open_snapshot(snapshot, secret=secret, filesystem=filesystem)
    names = with_state(manifest, store.folder)
    if vertex not in names:
        raise DataflowError(
            f"snapshot {manifest.number} in {store.folder!r} has no vertex {arguments.text(vertex, 'read_state: vertex')!r}: it has {names}"
        )
    saved = SavedVertex(store, manifest, vertex, _plan_of(flow, manifest))
    parts: list[Entries] = []
    for replica in saved.replicas():
        tables = tables_in(saved.restored(replica))
        parts.append(tables[chosen_table(tables, state, saved.what)].entries)
    return table_of(Entries.together(parts))


def list_state(snapshot: Any, *, flow: Any = None, secret: bytes | None = None, filesystem: fs.FileSystem | None = None) -> SnapshotState:
    """What :func:`read_state` could read: the vertices of a snapshot, with their keys, bytes and epochs. The arguments are the same."""
    store, manifest = open_snapshot(snapshot, secret=secret, filesystem=filesystem)
    plan = _plan_of(flow, manifest)
    listed = [_listed(SavedVertex(store, manifest, name, plan), manifest) for name in with_state(manifest, store.folder)]
    return SnapshotState(manifest.number, manifest.kind, manifest.job, manifest.key_groups, tuple(listed))


def _plan_of(flow: Any, manifest: Manifest) -> Plan | None:
    return None if flow is None else flow.plan(key_groups=manifest.key_groups)


def _listed(saved: SavedVertex, manifest: Manifest) -> SavedState:
    shape: dict[str, Any] = manifest.graph.get("vertices", {}).get(saved.name, {})
    kind = str(shape.get("kind", "?"))
    states: dict[str, int] = {}
    epochs: list[int] = []
    keys, size, trouble = 0, 0, ""
    try:
        for replica in saved.replicas():
            rest = replica.resumed.rest
            size += replica.size_bytes
            epochs += [rest["source"][0]] if rest["source"] is not None else [rest["input_epoch"]] if rest["input_epoch"] else []
            epochs += [guarantee.epoch for guarantee, _ in rest["notifications"]]
            if not has_no_keyed_state(rest) and not trouble:
                try:
                    tables = tables_in(saved.restored(replica))
                except DataflowError as error:
                    trouble = str(error)
                    continue
                for name, table in tables.items():
                    states[name] = states.get(name, 0) + len(table.entries.keys)
                staying = [table for table in tables.values() if not table.is_in_flight] or list(tables.values())
                keys += len({key for table in staying for key in table.entries.keys})
    except SnapshotError as error:
        trouble = str(error)
    operator = "" if saved.identity is None else spell(saved.identity)
    epoch = min(epochs, default=None)
    return SavedState(saved.name, kind, operator, len(saved.parts), size, keys if states else None, states, epoch, trouble)


__all__ = ["SavedState", "SnapshotState", "list_state", "read_state"]
