"""A savepoint made from tables: history that was computed elsewhere becomes the state that a program begins with.

The savepoint has parts of the vertices that were given tables, and of nothing else: all other vertices begin with nothing, and sources at
their first record, as in a fresh start. With ``epoch`` they begin at that epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from rayad.actors.lead.layouts import asked_of, is_keyed, layout_notes
from rayad.actors.replica.parts.part_files import dumped
from rayad.actors.replica.rest import PartRest, least_epoch, stored_maker
from rayad.actors.saved_state.opened import made
from rayad.actors.store.job_store import JobStore
from rayad.dataflow.compiling.state_identity import of_class
from rayad.dataflow.config import RunConfig, ScalingConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.operators.state.group_index import groups_of_keys
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.tables import Entries, entries_of
from rayad.dataflow.operators.state.vertex_tables import chosen_table, put_tables, tables_in
from rayad.dataflow.plan import Plan, Stage
from rayad.dataflow.vertex import EndVertex
from rayad.progress import DataflowError, SnapshotError, Timestamp, arguments, show
from rayad.snapshots.manifest import Manifest, ReplicaPart
from rayad.snapshots.store import SnapshotStore


def write_state(flow: Any, tables: Mapping[str, Any], run: RunConfig | None = None, *, parallelism: Any = None, epoch: int = 0) -> str:
    """Write a savepoint for a job that has not begun, with tables as the state of its vertices; returns its path, for ``resume=``.

    This is the inverse of :func:`rayad.read_state`: the columns are the same, and writing what was read gives the same state. The job may
    resume with any number of replicas. All other vertices start empty, and sources at their first record: give them what comes after the
    history in the tables. Sinks are asked, as at the start of a job, whether they can write.

    Args:
        flow: the program.
        tables: by vertex, a table (pyarrow, pandas, or anything that pyarrow accepts as one), or for several states a dict from name to
            table.
        run: name and storage of the job, whose store must not have a snapshot yet.
        parallelism: replicas that the parts are divided among; the job may have others.
        epoch: where sources and live inputs begin; a source that gives an earlier epoch is refused.

    Raises:
        DataflowError: a table does not fit, or a vertex does not exist or has no keyed state.
        SnapshotError: the store has snapshots, or cannot be written.
    """
    config = run or RunConfig()
    epoch = arguments.whole(epoch, "write_state: epoch", least=0)
    if not isinstance(tables, Mapping) or not tables:
        raise DataflowError(f"write_state was given {show(tables, 60)}: give a dict from a vertex' name to its table")
    scaling = ScalingConfig(parallelism=1 if parallelism is None else parallelism)
    plan = flow.plan(scaling=scaling, key_groups=config.key_groups, fingerprints=True)
    keeper = JobStore(config.name or flow.name, plan, config)
    store = keeper.store
    numbers, history = store.numbers(), store.history()
    if any(store.load(number).kind != "start" for number in numbers):
        raise SnapshotError(
            f"write_state: {store.folder!r} has snapshots {numbers} of this job already: give another RunConfig(name=...) or storage_path, "
            "or change the state of one with submit(resume=..., map_state={...})"
        )
    store.prepare()
    newest = numbers[-1] if numbers else 0
    number = newest + 1
    writer = PartWriter(store, number, plan)
    parts = [part for name, given in tables.items() for part in writer.written(name, given, f"write_state: {name!r}")]
    parts += [part for stage in plan.stages for part in writer.begun(stage, epoch)]
    notes = {
        "layout": layout_notes(plan, asked_of(plan)),
        "input_states": {name: [0, epoch] for name in plan.inputs},
        "claims": [*history.claims, number],
        "store": history.store or keeper.run,
        **keeper.check_sinks(),
    }
    store.publish(Manifest(number, keeper.job, keeper.graph, plan.key_groups, tuple(parts), kind="savepoint", notes=notes), after=newest)
    return keeper.path_of(number)


class PartWriter:
    """Writes the parts of one savepoint.

    Args:
        plan: the program, in the layout of the savepoint.
    """

    def __init__(self, store: SnapshotStore, number: int, plan: Plan) -> None:
        self._store = store
        self._number = number
        self._plan = plan
        self._stages = {stage.name: stage for stage in plan.stages}
        self._attempt = secrets.token_hex(4)

    def written(self, name: str, given: Any, what: str) -> list[ReplicaPart]:
        """The parts of a vertex that begins with tables."""
        stage = self.stage_of(name, what)
        divided = self.divided(stage, self.read(stage, given, what))
        return [self.part(stage, replica, *self.fresh(stage, replica, some)) for replica, some in enumerate(divided)]

    def stage_of(self, name: str, what: str) -> Stage:
        """A stage with a vertex. Raises DataflowError that names those there are."""
        stage = self._stages.get(name)
        if stage is None or stage.kind is not NodeKind.VERTEX:
            names = [stage.name for stage in self._plan.stages if stage.kind is NodeKind.VERTEX]
            raise DataflowError(f"{what}: {self._plan.name!r} has no vertex of that name with state: it has {names}")
        return stage

    def read(self, stage: Stage, given: Any, what: str) -> dict[str, Entries]:
        """What tables hold for a vertex. Raises DataflowError where they do not fit."""
        empty = tables_in(self.vertex(stage, 0))
        named = given if isinstance(given, Mapping) else {chosen_table(empty, None, what): given}
        out = {}
        for name, data in named.items():
            table = empty[chosen_table(empty, name, what)]
            if table.is_in_flight:
                raise DataflowError(f"{what}: state {name!r} is what waits for its time: it can be read, not written")
            out[name] = entries_of(_as_table(data, what), table.entries, f"{what}, state {name!r}")
        return out

    def divided(self, stage: Stage, tables: Mapping[str, Entries]) -> list[dict[str, Entries]]:
        """The entries of each replica, by the key-groups of their keys."""
        if not is_keyed(self._plan, stage.id):
            return [dict(tables), *({} for _ in range(stage.parallelism - 1))]
        owners = self._plan.owners(stage)
        out: list[dict[str, Entries]] = [{} for _ in range(stage.parallelism)]
        for name, entries in tables.items():
            rows: list[list[int]] = [[] for _ in out]
            for row, group in enumerate(groups_of_keys(list(entries.keys), self._plan.key_groups).tolist()):
                rows[owners[group]].append(row)
            for replica, some in enumerate(rows):
                out[replica][name] = entries.where(some)
        return out

    def vertex(self, stage: Stage, replica: int) -> KeyedVertex:
        """A new one, with nothing in it. Raises DataflowError where it has no keyed state."""
        vertex = made(stage.op, stage.name, replica, stage.parallelism, self._plan.key_groups)
        if not isinstance(vertex, KeyedVertex):
            raise DataflowError(f"{stage.name!r} is a {type(vertex).__name__} without keyed state: only that can be written from a table")
        return vertex

    def fresh(self, stage: Stage, replica: int, tables: Mapping[str, Entries]) -> tuple[KeyedVertex, dict[str, Any]]:
        """A replica with these entries, and everything else of its part."""
        vertex = self.vertex(stage, replica)
        put_tables(vertex, tables)
        hold = Timestamp(0) if isinstance(vertex, EndVertex) else None
        return vertex, PartRest(hold=hold, vertex=of_class(type(vertex)), maker=stored_maker(stage.op)).plain()

    def part(self, stage: Stage, replica: int, vertex: KeyedVertex, rest: Mapping[str, Any]) -> ReplicaPart:
        """Write both."""
        file = self._store.write_part(self._number, stage.name, replica, dumped(vertex.checkpoint()), attempt=f"{self._attempt}.state")
        return self.with_rest(ReplicaPart(stage.name, replica, (file,)), rest)

    def with_rest(self, part: ReplicaPart, rest: Mapping[str, Any]) -> ReplicaPart:
        """The part with another rest."""
        file = self._store.write_part(self._number, part.vertex, part.replica, dumped(dict(rest)), attempt=f"{self._attempt}.rest")
        return ReplicaPart(part.vertex, part.replica, part.files, file, least_epoch(rest), part.runs)

    def begun(self, stage: Stage, epoch: int) -> list[ReplicaPart]:
        """The parts of a source or live input that begins at an epoch; none for the first, which is where it begins anyway."""
        if not epoch or stage.kind not in (NodeKind.SOURCE, NodeKind.INPUT):
            return []
        parts = []
        for replica in range(stage.parallelism):
            rest = PartRest(input_epoch=epoch) if stage.kind is NodeKind.INPUT else PartRest(source=_position(stage, replica, epoch))
            parts.append(self.with_rest(ReplicaPart(stage.name, replica, ()), rest.plain()))
        return parts


def _position(stage: Stage, replica: int, epoch: int) -> Any:
    """That of a reader which has read nothing and is at an epoch already."""
    numbers: Sequence[int] = range(len(stage.parts[replica :: stage.parallelism]))
    if stage.op.interleave:  # all of them are read side by side
        return epoch, [], [(number, epoch, None) for number in numbers]
    return epoch, list(numbers), []


def _as_table(data: Any, what: str) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    try:
        return pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else pa.table(data)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise DataflowError(f"{what} was given {show(data, 60)}: give a pyarrow.Table or what pyarrow.table() takes: {error}") from error


__all__ = ["PartWriter", "write_state"]
