"""A snapshot of one program as a savepoint of another: vertices by other names, dropped, new, or with state that a function has changed.

Nothing is guessed: each vertex and sink that is not the same by name in both has to be named
(docs/decisions/051-state-as-tables.md). What was on its way at the cut stays where its edge is still there; else the change is refused,
since records would be lost. The savepoint is made before the run begins, by the process that submits it, so that both runtimes resume from
it as from any other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from rayad.actors.lead.layouts import asked_of, restored
from rayad.actors.replica.parts.part_reading import read_rest
from rayad.actors.saved_state.opened import SavedReplica, SavedVertex
from rayad.actors.saved_state.writing import PartWriter
from rayad.actors.store.job_store import JobStore
from rayad.dataflow.compiling.state_identity import state_of
from rayad.dataflow.config import RunConfig, ScalingConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.tables import Entries, table_of
from rayad.dataflow.operators.state.vertex_tables import names_that_stay, tables_in
from rayad.dataflow.plan import Plan, Stage
from rayad.dataflow.records.calling import did_you_mean
from rayad.progress import DataflowError, SnapshotError, show
from rayad.snapshots.identity import fits
from rayad.snapshots.manifest import Manifest, ReplicaPart, StagedPart
from rayad.snapshots.resume_point import NEVER, choose, claim_of, misfits, what_would_do

SINK = "sink:"
"""Before the name of a sink in ``map_state``."""
IN_FLIGHT = ("log", "parked", "gated", "outbox")
RULE = (
    "map_state is a dict from a name in the snapshot to its new name, to a function of its table, to (new name, function), or to None to "
    "drop it; from a name in the dataflow to its table, or to {} for no state; of sinks with 'sink:' before the name"
)


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to become of names.

    Args:
        names: of each vertex that keeps its state: its name in the dataflow by that in the snapshot.
        functions: of those whose state changes: from table to table, by the name in the snapshot.
        dropped: names in the snapshot.
        tables: of vertices of the dataflow that do not take over state.
        sinks: the key in the dataflow by that in the snapshot, of sinks that stay; dropped ones, and new ones.
    """

    names: dict[str, str]
    functions: dict[str, Callable[[Any], Any]]
    dropped: set[str]
    tables: dict[str, Any]
    sinks: dict[str, str]
    sinks_dropped: set[str]
    sinks_new: set[str]


def map_state(
    flow: Any, run: RunConfig, scaling: ScalingConfig, mapping: Any, new: Sequence[str] = (), gone: Sequence[str] = ()
) -> str | int | None:
    """Write a savepoint of ``flow`` from the snapshot that ``run`` would resume from; gives its path, to be resumed from instead. Where
    nothing is new or gone, ``run.resume`` as it is.

    Args:
        mapping: what becomes of names, see :data:`RULE`; None: only what is new or gone.
        new, gone: vertices and sinks that may begin with nothing where the snapshot lacks them, or be dropped where the dataflow does.

    Raises DataflowError for a mapping that cannot be, SnapshotError for what does not fit, with the call that would do it.
    """
    if mapping is None and run.resume in (None, NEVER):
        raise DataflowError(
            f"new={list(new)}, gone={list(gone)} were given with resume={run.resume!r}: say which snapshot is resumed from, such as "
            "resume='latest'"
        )
    if run.resume in (None, NEVER, "latest") and mapping is not None:
        raise DataflowError(
            f"map_state= was given with resume={run.resume!r}: give the snapshot that is meant, by its number or path (rayad snapshots "
            "lists them). 'latest' would change the state once more each time that the program is started again"
        )
    plan = flow.plan(scaling=scaling, key_groups=run.key_groups, fingerprints=True)
    keeper = JobStore(run.name or flow.name, plan, run)
    _require_there(new, keeper.graph)
    resume = run.resume
    if isinstance(resume, str) and resume != "latest":
        resume = keeper.number_of(resume)
    manifest, _ = choose(keeper.store, resume, keeper.store.numbers())
    if manifest is None or not manifest.parts:
        if mapping is None:
            return run.resume  # the job begins
        raise SnapshotError(
            f"snapshot {resume} in {keeper.store.folder!r} is the beginning of a run and has no state: start without map_state"
        )
    given = {"map_state": mapping, "new": list(new), "gone": list(gone)}
    if mapping is None:
        mapping = _by_names(new, gone, manifest.graph, keeper.graph)
        if not mapping:
            return run.resume
    elif isinstance(mapping, Mapping):
        mapping = {**_by_names(new, gone, manifest.graph, keeper.graph), **mapping}
    told = ", ".join(f"{what}={show(value, 200)}" for what, value in given.items() if value)
    return _Changing(keeper, manifest, read_changes(mapping, manifest.graph, keeper.graph), told).written()


def _require_there(new: Sequence[str], now: Mapping[str, Any]) -> None:
    """Raise DataflowError for a name that the dataflow lacks."""
    there = list({**now["vertices"], **now["sinks"]})
    for name in new:
        if name not in there:
            raise DataflowError(f"new={list(new)}: the dataflow has no vertex or sink {name!r}{did_you_mean(name, there)}; it has {there}")


def _by_names(new: Sequence[str], gone: Sequence[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """``new`` and ``gone`` as a ``map_state`` mapping: an empty table for each new name that the snapshot lacks, None for each name that it
    has and the program does not. Names that the snapshot has dealt with already are left out."""
    out: dict[str, Any] = {}
    for kind, prefix in (("vertices", ""), ("sinks", SINK)):
        out |= {prefix + name: {} for name in new if name in now[kind] and name not in before[kind]}
        out |= {prefix + name: None for name in gone if name in before[kind] and name not in now[kind]}
    return out


def read_changes(mapping: Any, before: Mapping[str, Any], now: Mapping[str, Any]) -> Changes:
    """What ``map_state`` says, of the vertices of two graphs. Raises DataflowError."""
    if not isinstance(mapping, Mapping) or not mapping:
        raise DataflowError(f"map_state is {show(mapping, 60)}: {RULE}")
    old, new = before["vertices"], now["vertices"]
    out = Changes({}, {}, set(), {}, {}, set(), set())
    named: list[str] = []
    for name, what in mapping.items():
        if not isinstance(name, str):
            raise DataflowError(f"map_state has the key {show(name, 60)}: {RULE}")
        told = f"map_state={{{name!r}: {show(what, 60)}}}"
        if name.startswith(SINK):
            _read_sink(name.removeprefix(SINK), what, before["sinks"], now["sinks"], out, told)
            continue
        function, target = None, name
        if isinstance(what, tuple) and len(what) == 2 and isinstance(what[0], str):
            target, what = what
        if isinstance(what, str):
            target = what
        elif callable(what):
            function = what
        elif what is None:
            if name not in old:
                raise DataflowError(f"{told}: the snapshot has no vertex {name!r}, it has {list(old)}")
            if name in new:
                raise DataflowError(f"{told}: {name!r} is still in the dataflow; {{{name!r}: {{}}}} makes it begin with no state")
            out.dropped.add(name)
            continue
        elif isinstance(what, (Mapping, pa.Table, pa.RecordBatch)) or hasattr(what, "__arrow_c_stream__") or hasattr(what, "columns"):
            if name not in new:
                raise DataflowError(f"{told}: the dataflow has no vertex {name!r}, it has {list(new)}")
            out.tables[name] = what
            continue
        else:
            raise DataflowError(f"{told}: {RULE}")
        if name not in old:
            raise DataflowError(f"{told}: the snapshot has no vertex {name!r}, it has {list(old)}")
        if target not in new:
            raise DataflowError(f"{told}: the dataflow has no vertex {target!r}, it has {list(new)}")
        out.names[name] = target
        named.append(target)
        if function is not None:
            out.functions[name] = function
    named += out.tables
    for target, count in Counter(named).items():
        if count > 1:
            raise DataflowError(f"map_state gives {target!r} the state of several vertices: {out.names}")
    out.names.update({name: name for name in old if name in new and name not in out.names and name not in named})
    out.sinks.update({key: key for key in before["sinks"] if key in now["sinks"] and key not in {*out.sinks, *out.sinks.values()}})
    return out


def _read_sink(key: str, what: Any, old: Mapping[str, Any], new: Mapping[str, Any], out: Changes, told: str) -> None:
    if what is None and key in old and key not in new:
        out.sinks_dropped.add(key)
    elif isinstance(what, str) and key in old and what in new:
        out.sinks[key] = what
    elif isinstance(what, Mapping) and not what and key in new:
        out.sinks_new.add(key)
    else:
        raise DataflowError(
            f"{told}: a sink of the snapshot ({list(old)}) is renamed to one of the dataflow ({list(new)}) or, where it is gone, dropped "
            "with None; a new one is given as {}"
        )


class _Changing:
    """One change of one snapshot."""

    def __init__(self, keeper: JobStore, manifest: Manifest, changes: Changes, told: str) -> None:
        self.keeper = keeper
        self.manifest = manifest
        self.changes = changes
        self.told = told
        self.maps = told.startswith("map_state")
        self.number = keeper.store.numbers()[-1] + 1
        self.layout = self._layout()
        self.plan: Plan = keeper.plan
        self._edges = {edge: found for edge, _, found in self._renamed_edges()}
        self._targets = {edge: target for edge, target, _ in self._renamed_edges()}

    def written(self) -> str:
        """Check that the rest fits, write what has changed, publish it."""
        keeper, manifest = self.keeper, self.manifest
        self._refuse_misfits()
        self.plan = restored(keeper.plan, {"layout": self.layout}, asked_of(keeper.plan))
        writer = PartWriter(keeper.store, self.number, self.plan)
        stages = {stage.name: stage for stage in self.plan.stages}
        rests = {(part.vertex, part.replica): read_rest(keeper.store, part) for part in manifest.parts}
        self._refuse_losses(rests)
        parts: list[ReplicaPart] = []
        for part in manifest.parts:
            target = self.changes.names.get(part.vertex)
            if target is None or part.vertex in self.changes.functions:
                continue
            rest = self._with_edges(rests[part.vertex, part.replica])
            moved = replace(part, vertex=target)
            is_same = rest == rests[part.vertex, part.replica] and target == part.vertex
            parts.append(moved if is_same else writer.with_rest(moved, rest))
        for name, function in self.changes.functions.items():
            parts += self._computed(writer, stages[self.changes.names[name]], name, function)
        for name, given in self.changes.tables.items():
            if isinstance(given, Mapping) and not given:
                continue  # no part: it begins with nothing
            parts += writer.written(name, given, f"map_state: {name!r}")
        epoch = self._epoch(rests)
        taken_over = set(self.changes.names.values())
        parts += [part for stage in self.plan.stages if stage.name not in taken_over for part in writer.begun(stage, epoch)]
        numbers = keeper.store.numbers()
        claim = claim_of(manifest, numbers, keeper.store.history().claims, job=keeper.job, graph=keeper.graph, run=manifest.run)
        made = replace(claim, kind="savepoint", parts=tuple(parts), staged=self._staged(), notes={**claim.notes, **self._notes(epoch)})
        keeper.store.publish(made, after=numbers[-1])
        return keeper.path_of(self.number)

    # -- does the rest fit --------------------------------------------------------------------------
    def _refuse_misfits(self) -> None:
        """Raise SnapshotError for what differs and is not named."""
        changes, before, now = self.changes, self.manifest.graph, self.keeper.graph
        without = {*changes.functions, *changes.dropped, *(name for name in before["vertices"] if name in changes.tables)}
        targets = {changes.names[name] for name in changes.functions} | set(changes.tables)
        renamed = {changes.names.get(name, name): shape for name, shape in before["vertices"].items() if name not in without}
        stay = {name: shape for name, shape in now["vertices"].items() if name not in targets}
        renamed = {name: shape for name, shape in renamed.items() if name in stay or not _is_stateless(shape)}
        stay = {name: shape for name, shape in stay.items() if name in renamed or not _is_stateless(shape)}
        edges = {self._edges.get(name): shape for name, shape in before["edges"].items()}
        shared = {name: shape for name, shape in edges.items() if name in now["edges"]}
        sinks = {changes.sinks.get(key, key): shape for key, shape in before["sinks"].items() if key not in changes.sinks_dropped}
        inputs = {changes.names.get(name, name): told for name, told in before.get("inputs", {}).items() if name not in without}
        writers = {
            changes.sinks.get(key, key): sorted(changes.names.get(name, name) for name in names)
            for key, names in before.get("writers", {}).items()
        }
        old = {"vertices": renamed, "edges": shared, "sinks": sinks, "inputs": inputs, "writers": writers}
        new = {
            **now,
            "vertices": stay,
            "edges": {name: shape for name, shape in now["edges"].items() if name in shared},
            "sinks": {key: shape for key, shape in now["sinks"].items() if key not in changes.sinks_new},
            "inputs": {name: told for name, told in now.get("inputs", {}).items() if name not in targets},
        }
        wrong = misfits(replace(self.manifest, graph=old), new, self.keeper.plan.key_groups)
        if wrong:
            call = what_would_do(old, new, maps=self.maps)
            raise SnapshotError(
                f"{self.told} does not make snapshot {self.manifest.number} in {self.keeper.store.folder!r} fit: {'; '.join(wrong)}"
                + (f". Say what becomes of these, too: {call}" if call else "")
            )

    def _refuse_losses(self, rests: Mapping[tuple[str, int], Mapping[str, Any]]) -> None:
        """Raise SnapshotError where records on their way would be lost."""
        lost: Counter[str] = Counter()
        others = self._recast()
        recast = {edge for edge, target in self._targets.items() if target in others}
        for (vertex, _), rest in rests.items():
            for kind in IN_FLIGHT:
                for edge, *_ in rest.get(kind) or ():
                    is_taken = self._edges.get(edge) is not None and edge not in recast
                    if vertex not in self.changes.names or not is_taken:
                        lost[edge] += 1
        if lost:
            told = ", ".join(f"{count} batches on {edge!r}" for edge, count in lost.items())
            raise SnapshotError(
                f"{self.told}: records were on their way in snapshot {self.manifest.number} to or from vertices that are gone or "
                f"others now: {told}. Take the savepoint when nothing is on its way there: send no more input, wait until job.progress() "
                "shows that it has caught up, then job.savepoint(); or keep these vertices for now"
            )

    # -- names ----------------------------------------------------------------------------------------
    def _recast(self) -> set[str]:
        """Vertices of the snapshot whose place another operator takes."""
        before, now = self.manifest.graph["vertices"], self.keeper.graph["vertices"]
        places = [(name, self.changes.names[name]) for name in self.changes.functions]
        places += [(name, name) for name in self.changes.tables if name in before]
        return {name for name, target in places if not fits(before[name].get("state"), now[target].get("state"))}

    def _renamed_edges(self) -> Iterator[tuple[str, str, str | None]]:
        """Each edge of the snapshot with its target there, and its name in the dataflow; None: it is there no more."""
        vertices = sorted(self.manifest.graph["vertices"], key=len, reverse=True)
        there = self.keeper.graph["edges"]
        names = self.changes.names
        kept = {**names, **{name: name for name in self.changes.tables}}
        for edge in self.manifest.graph["edges"]:
            source = next(name for name in vertices if edge.startswith(f"{name} -> "))
            rest = edge[len(source) + len(" -> ") :]
            target = next(name for name in vertices if re.match(re.escape(name) + r":\d+( #\d+)?$", rest))
            found = f"{kept.get(source)} -> {kept.get(target)}{rest[len(target) :]}"
            yield edge, target, found if source in kept and target in kept and found in there else None

    def _with_edges(self, rest: Mapping[str, Any]) -> dict[str, Any]:
        """What was on its way, by the names that edges have now."""
        out = dict(rest)
        for kind in IN_FLIGHT:
            out[kind] = [(self._edges[edge], *more) for edge, *more in rest.get(kind) or ()]
        return out

    def _layout(self) -> dict[str, Any] | None:
        told, names = self.manifest.notes.get("layout"), self.changes.names
        if not told:
            return None
        edges = {edge: found for edge, _, found in self._renamed_edges()}
        by_name = {what: {names[name]: of for name, of in told[what].items() if name in names} for what in ("replicas", "owners", "asked")}
        return {**by_name, "rebalanced": [edges[name] for name in told["rebalanced"] if edges.get(name) is not None]}

    def _staged(self) -> tuple[StagedPart, ...]:
        sinks, names = self.changes.sinks, self.changes.names
        kept = [one for one in self.manifest.staged if one.sink in sinks]
        return tuple(replace(one, sink=sinks[one.sink], vertex=names.get(one.vertex, one.vertex)) for one in kept)

    def _notes(self, epoch: int) -> dict[str, Any]:
        notes, names = self.manifest.notes, self.changes.names
        identities = {self.changes.sinks[key]: told for key, told in notes.get("identities", {}).items() if key in self.changes.sinks}
        if self.changes.sinks_new:
            identities.update(self.keeper.check_sinks(self.changes.sinks_new)["identities"])
        new_inputs = {name: [0, epoch] for name in self.keeper.plan.inputs if name not in names.values()}
        return {
            "layout": self.layout,
            "identities": identities,
            "inputs": {names[name]: frames for name, frames in notes.get("inputs", {}).items() if name in names},
            "input_states": {**{names[name]: of for name, of in notes.get("input_states", {}).items() if name in names}, **new_inputs},
        }

    @staticmethod
    def _epoch(rests: Mapping[tuple[str, int], Mapping[str, Any]]) -> int:
        """Where sources stand: new ones begin there."""
        found = [rest["source"][0] for rest in rests.values() if rest["source"] is not None]
        return min([*found, *(rest["input_epoch"] for rest in rests.values() if rest["input_epoch"] is not None)], default=0)

    # -- functions ------------------------------------------------------------------------------------
    def _computed(self, writer: PartWriter, stage: Stage, name: str, function: Callable[[Any], Any]) -> list[ReplicaPart]:
        """The parts of a vertex whose state a function gives. What waits there stays where the operator is the same."""
        saved = SavedVertex(self.keeper.store, self.manifest, name)
        replicas = list(saved.replicas())
        is_same = fits(saved.identity, state_of(stage))
        before = [saved.restored(replica, stage.op if is_same and not replica.resumed.rest.get("maker") else None) for replica in replicas]
        found = [tables_in(vertex) for vertex in before]
        stays = names_that_stay(found[0])
        if not stays:
            raise DataflowError(f"map_state: {saved.what} has only what waits for its time, no state that a function could change")
        tables = {each: table_of(Entries.together([tables[each].entries for tables in found])) for each in stays}
        given = function(next(iter(tables.values())) if len(tables) == 1 else tables)
        divided = writer.divided(stage, writer.read(stage, given, f"map_state: what the function gave for {name!r}"))
        if not is_same and any(table.entries.keys for tables in found for table in tables.values() if table.is_in_flight):
            raise SnapshotError(
                f"{self.told}: {name!r} is another operator now, and records wait there for their time: take the savepoint when its inputs "
                "have advanced past it and nothing waits"
            )
        return [self._part(writer, stage, *each, is_same=is_same) for each in zip(replicas, before, divided, strict=True)]

    def _part(
        self, writer: PartWriter, stage: Stage, saved: SavedReplica, before: KeyedVertex, tables: Mapping[str, Entries], *, is_same: bool
    ) -> ReplicaPart:
        vertex, rest = writer.fresh(stage, saved.part.replica, tables)
        if is_same:
            theirs = before.states()
            for name, state in vertex.states().items():
                if state.is_in_flight:
                    state.restore(theirs[name].checkpoint())
        old = saved.resumed.rest
        changed = {what: rest[what] for what in ("vertex", "maker", "hold")}
        if old["hold"] is not None and rest["hold"] is not None:
            changed["hold"] = old["hold"]
        if not is_same:
            changed["notifications"] = []
        return writer.part(stage, saved.part.replica, vertex, self._with_edges({**old, **changed}))


def _is_stateless(shape: Mapping[str, Any]) -> bool:
    return bool(shape.get("kind") == NodeKind.EXCHANGE.name.lower())


__all__ = ["map_state"]
