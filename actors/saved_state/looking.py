"""The first rows of a vertex' state in the newest snapshot of a job: for a look, not for all of it. Starts nothing; needs no Ray.

Only signed state is looked at: it is pickled, and who asks here has not said that they trust the folder (decision 076).
"""

from __future__ import annotations

from dataclasses import dataclass

from rayad.actors.saved_state.opened import SavedVertex, open_snapshot, with_state
from rayad.actors.status.laid_out import laid_out
from rayad.actors.store.job_store import folder_of_jobs
from rayad.dataflow.config import RunConfig
from rayad.dataflow.operators.state.tables import Entries, table_of
from rayad.dataflow.operators.state.vertex_tables import tables_in
from rayad.progress import ConfigError, DataflowError, SnapshotError
from rayad.snapshots.store import below

ROWS = 20
BYTES_MOST = 64_000_000
"""A replica whose part of the state is larger in its files is not read for a look."""


@dataclass(frozen=True, slots=True)
class FirstTable:
    """The first rows of one of a vertex' states: names of columns, rows of text, and how many entries were counted, in words."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    count: str


@dataclass(frozen=True, slots=True)
class FirstRows:
    """What a look at a state found; ``told``: in which snapshot, in words."""

    told: str
    tables: tuple[FirstTable, ...]


def first_rows(job: str, config: RunConfig, vertex: str) -> FirstRows:
    """The first :data:`ROWS` rows of each state of a vertex, of the first replica that has any, in the newest whole snapshot.

    Raises ConfigError where the job keeps no snapshots; SnapshotError where there is none yet, or it is not signed, or too large;
    DataflowError where there is no such vertex, or it has no keyed state.
    """
    if not config.keeps_snapshots:
        raise ConfigError(f"job {job!r} keeps no snapshots, and its state is seen in these: give RunConfig(storage_path=...)")
    folder = below(folder_of_jobs(config), job)
    store, manifest = open_snapshot(folder, secret=config.snapshots.secret)
    names = with_state(manifest, store.folder)
    if vertex not in names:
        raise DataflowError(f"snapshot {manifest.number} of job {job!r} has no vertex {vertex!r}: it has {names}")
    if not store.is_signed:
        raise SnapshotError(
            f"the snapshots of job {job!r} are not signed. State is pickled: to read it runs the code of whoever could write to their "
            "folder, so a page reads signed state only. Give the job SnapshotConfig(secret=...), or read it where you say that you trust "
            f"the folder: rayad state {folder} {vertex} --trust"
        )
    saved = SavedVertex(store, manifest, vertex)
    large = max((part.state_bytes for part in saved.parts), default=0)
    if large > BYTES_MOST:
        raise SnapshotError(
            f"a replica of {vertex!r} has {large / 1e6:,.0f} MB of state, and a look reads {BYTES_MOST / 1e6:,.0f} MB at most: use rayad "
            "state"
        )
    which = f"snapshot {manifest.number} ({manifest.kind})"
    tables: tuple[FirstTable, ...] = ()
    for replica in saved.replicas():
        found = tables_in(saved.restored(replica))
        tables = tuple(_first(name, table.entries) for name, table in found.items())
        if any(table.rows for table in tables):
            held = tuple(table for table in tables if table.rows)
            return FirstRows(f"{which}, replica {replica.part.replica} of {len(saved.parts)}", held)
    return FirstRows(f"{which}: none of the {len(saved.parts)} replicas keeps anything", tables)


def _first(name: str, entries: Entries) -> FirstTable:
    held = len(entries.keys)
    table = table_of(Entries.together([entries.where(range(min(held, ROWS)))]))
    shown = laid_out(table, ROWS)
    return FirstTable(name, shown.names, shown.rows, f"{held:,} entries" if held <= ROWS else f"the first {ROWS} of {held:,} entries")


__all__ = ["BYTES_MOST", "ROWS", "FirstRows", "FirstTable", "first_rows"]
