"""What lies behind a vertex's outputs in one replica: the fused steps, the routing of batches to other replicas, the sink writers.

Compiled once from the plan into a function for each step, or for several fused into one, because every batch passes here. What leaves
waits in ``outbox``; each push is counted by ``change`` in the same activation that caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa

from rayad.actors.plane.on_demand import ANY, cut, rows_of
from rayad.actors.replica.recent import Recent
from rayad.actors.replica.user_errors import is_located, raise_located
from rayad.autoscale.statistics import ReplicaCounters
from rayad.dataflow.compiling.sharing import RecordWatch, Shared
from rayad.dataflow.config import BATCH_ROWS
from rayad.dataflow.logical_graph import PartitionKind
from rayad.dataflow.operators.bad_records import SetAside
from rayad.dataflow.operators.keys.keyed import import_conversions
from rayad.dataflow.operators.stateless import Element, Gatherer
from rayad.dataflow.plan import ApplyStep, EdgeStep, Plan, PlanEdge, ShiftStep, Stage
from rayad.dataflow.records.batches import keyed_columns, to_rows
from rayad.dataflow.records.calling import Whole
from rayad.dataflow.records.key_hashing import Router
from rayad.dataflow.records.selectors import require_columns
from rayad.dataflow.sink import SinkWriter
from rayad.progress import RayadError, Timestamp, show

Emit = Callable[[Timestamp, Any], Sequence[tuple[Timestamp, Any]] | None]
"""What a compiled step does with a batch; it gives what its children get."""
FUSED_MAX = 64
"""How many row steps run as one loop; each is one more iterator inside the next."""
STAGE_BYTES = 1 << 24
"""A sink writer that keeps so much in memory is asked to stage it, where snapshots are taken."""


class Outgoing:
    """A batch on its way to one replica of an edge's target."""

    __slots__ = ("batch", "edge", "is_own", "replica", "time")

    def __init__(self, edge: int, replica: int, time: Timestamp, batch: Any) -> None:
        self.edge = edge
        self.replica = replica
        self.time = time
        self.batch = batch
        self.is_own = False
        """Whether the list was made here, so that it may grow."""


class Outputs:
    """The outputs of one replica.

    Args:
        change: counts progress: (location, time, delta).
        room: for "rebalance" edges: (edge, replica) -> how much room that channel has; the largest wins.
        reenter: takes a batch that comes back to this replica itself, and says whether it did: (edge, time, batch).
        isolated: what runs a step in a process of its own; it gives None of a step that needs none.
        working: told the name of each step before it runs, and "" when it has; None: nobody asks.
    """

    def __init__(
        self,
        plan: Plan,
        stage: Stage,
        replica: int,
        change: Callable[[int, Timestamp, int], None],
        room: Callable[[int, int], int] | None,
        reenter: Callable[[PlanEdge, Timestamp, Any], bool],
        isolated: Callable[[Element], Element | None] | None = None,
        working: Callable[[str], None] | None = None,
    ) -> None:
        self.plan = plan
        self.stage = stage
        self.replica = replica
        self.outbox: list[Outgoing] = []
        self.is_large = False
        """Whether what waits should be sent now: waiting for more would not pay."""
        self._growing: dict[tuple[int, int, Timestamp], Outgoing] = {}
        self._built: dict[str, tuple[type, Element]] = {}
        self._gatherers: list[tuple[Gatherer, _Action, ApplyStep]] = []
        self.batches_out = 0
        self.batch_rows = BATCH_ROWS
        """Lists of one time for one replica are joined up to this many records while they wait to be sent."""
        inputs, outputs = ([edge.id for edge in edges] for edges in (plan.edges_into(stage.id), plan.edges_from(stage.id)))
        self.counters = ReplicaCounters(stage.name, replica, inputs=inputs, outputs=outputs, now_s=0.0)
        self.copied = frozenset(edge.id for edge in plan.edges_from(stage.id) if edge.partition is PartitionKind.BROADCAST)
        self.writers: dict[int, SinkWriter] = {}
        self.recent: dict[int, Recent] = {}
        """By sink that tells its updates: the last records written."""
        self.set_aside: Callable[[int, Any], None] | None = None
        """Takes (sink, staged value) of a writer that keeps STAGE_BYTES; None: writers keep everything until a snapshot or the end."""
        self.piece_rows: Callable[[int, Any], int] | None = None
        """For on-demand edges: (edge, batch) -> how many records each piece of it holds; None: it is not cut."""
        self.binds_late = False
        """Whether on-demand batches leave without a receiver, for :class:`SendWindows` to choose one."""
        self._change = change
        self._room = room
        self._reenter = reenter
        self._isolated = isolated
        self._working = working
        self._turn: dict[int, int] = {}
        self._edges = plan.edge_by_id
        self._sinks = plan.sink_by_id
        self._shared: Mapping[int, Shared] = {}
        self._roots = self._compile_all()

    def watch_records(self, shared: Mapping[int, Shared]) -> None:
        """Check whether the functions of these steps change the records that they are given."""
        self._shared = shared
        if shared:
            self._roots = self._compile_all()

    def lay_out(self, plan: Plan) -> None:
        """From now on route by another layout; what combiners keep back must have been flushed."""
        self.plan, self.stage = plan, plan.stage(self.stage.id)
        self._edges = plan.edge_by_id
        self._turn.clear()
        self._roots = self._compile_all()

    def __len__(self) -> int:
        """How many output ports there are."""
        return len(self._roots)

    def emit(self, port: int, time: Timestamp, batch: Any) -> None:
        """Run the fused steps behind an output and put what leaves into the outbox."""
        if (batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)) == 0:
            return
        _flow(self._roots[port], time, batch)

    def stage_sinks(self) -> dict[int, Any]:
        """What every sink writer of this replica has staged, by sink id."""
        out = {}
        for sink, writer in self.writers.items():
            try:
                out[sink] = writer.stage()
            except Exception as error:
                raise_located(self._sink_place(sink, "stage"), error)
        return out

    def close(self) -> None:
        """Release what the steps hold. Never raises."""
        for _, element in self._built.values():
            try:
                element.close()
            except Exception:  # it must not hide the job's own outcome
                continue

    def abort_sinks(self) -> None:
        """Throw away what was written. Never raises."""
        for writer in self.writers.values():
            try:
                writer.abort()
            except Exception:  # it must not hide the job's own outcome
                continue

    def _place(self, what: str) -> str:
        return f"{self.stage.name!r}[{self.replica}] ({self.stage.where}) failed in {what}"

    def _sink_place(self, sink_id: int, hook: str) -> str:
        sink = self._sinks[sink_id]
        return self._place(f"{hook} of sink {sink.key!r} ({sink.where})")

    def _compile_all(self) -> list[tuple[_Action, ...]]:
        """The actions behind each output port. Gatherers are in the order in which they flush: before those behind them."""
        steps = self.stage.steps
        actions: list[_Action | None] = [None] * len(steps)
        gatherers: dict[int, tuple[Gatherer, _Action, ApplyStep]] = {}
        fused = _fused(self.stage, self._shared if self._working is None else range(len(steps)))  # told of, each is alone
        for number, step in enumerate(steps):  # children come first
            if number in fused.inside:
                continue
            if isinstance(step, ApplyStep):
                chain = fused.chains.get(number, [step])
                children = tuple(filter(None, map(actions.__getitem__, chain[-1].children)))
                gatherer = self._gatherer_of(chain)
                run = self._compile_apply(chain, gatherer)
                run = run if self._working is None else self._told(step.name, run)
                action = _Action(self._watched(step, run, self._shared[number]) if number in self._shared else run, children)
                if gatherer is not None:
                    gatherers[number] = (gatherer, action, chain[-1])
            elif isinstance(step, ShiftStep):
                action = _Action(_compile_shift(step), tuple(filter(None, map(actions.__getitem__, step.children))))
            elif isinstance(step, EdgeStep):
                action = _Action(self._compile_edge(self._edges[step.edge]), ())
            else:
                action = _Action(self._compile_sink(step.sink), ())
            actions[number] = action
        self._gatherers = [gatherers[number] for number in _depth_first(self.stage, fused) if number in gatherers]
        return [tuple(filter(None, map(actions.__getitem__, numbers))) for numbers in self.stage.outputs]

    def _watched(self, step: ApplyStep, run: Emit, shared: Shared) -> Emit:
        watch = RecordWatch(shared, step.element)

        def watched(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]] | None:
            before = watch.before(batch)
            leaving = run(time, batch)
            if before is not None:
                try:
                    watch.after(batch, before)
                except Exception as error:
                    raise_located(f"{step.name!r}[{self.replica}] ({step.where}) failed at {time}", error)
            return leaving

        return watched

    def _told(self, name: str, run: Emit) -> Emit:
        def told(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]] | None:
            working = self._working
            if working is None:
                return run(time, batch)
            working(name)
            leaving = run(time, batch)
            working("")
            return leaving

        return told

    def _gatherer_of(self, chain: list[ApplyStep]) -> Gatherer | None:
        for step in chain:
            step.element.warm_up()
        gatherer: Gatherer | None = chain[-1].element.gatherer()
        return gatherer

    def _compile_apply(self, chain: list[ApplyStep], gatherer: Gatherer | None) -> Emit:
        if len(chain) > 1:
            return self._compile_row_steps(chain, gatherer)
        step = chain[0]
        if gatherer is not None:
            return self._compile_gather(step, gatherer)
        apply = self._element(step).apply

        def run(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]]:
            try:
                out = apply(batch)
            except Exception as error:
                self._fail_step(step, time, batch, error)
            if isinstance(out, pa.Table):  # more than one batch can hold
                return [(time, part) for part in out.to_batches()]
            return ((time, out),) if (out.num_rows if isinstance(out, pa.RecordBatch) else len(out)) else ()

        return run

    def bad_records(self) -> tuple[SetAside, ...]:
        """What the steps have set aside since they were made. Any thread may ask."""
        found = (getattr(element, "set_aside", None) for _, element in list(self._built.values()))
        return tuple(one for one in found if one is not None)

    def acquit(self) -> None:
        """The work during which processes ended lies behind: steps in processes of their own may return, and nothing more is told."""
        self._working = None
        for _, element in self._built.values():
            if (acquit := getattr(element, "acquit", None)) is not None:
                acquit()

    def _element(self, step: ApplyStep) -> Element:
        """The step as it runs in this replica, made once however often the layout changes."""
        built = self._built.get(step.name)
        if built is None or built[0] is not type(step.element):
            try:
                apart = self._isolated(step.element) if self._isolated is not None else None
                built = self._built[step.name] = type(step.element), apart or step.element.for_replica()
            except Exception as error:
                raise_located(f"{step.name!r}[{self.replica}] ({step.where}) failed when it was made", error)
        return built[1]

    def _compile_row_steps(self, chain: list[ApplyStep], gatherer: Gatherer | None) -> Emit:
        """Row steps as one loop over the records, without lists between them; the last of them may be a combiner."""
        lazies = [step.element.lazily for step in (chain if gatherer is None else chain[:-1])]

        def run(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]]:
            whole = Whole(to_rows(batch))
            rows: Iterable[Any] = whole
            try:
                for lazily in lazies:
                    rows = lazily(rows)
                leaving = [list(rows)] if gatherer is None else gatherer.add_rows(time, rows)
                whole.check()
            except Exception as error:
                self._fail_row_steps(chain, time, batch, error)
            return [(time, out) for out in leaving if len(out)]

        return run

    def _fail_row_steps(self, chain: list[ApplyStep], time: Timestamp, batch: Any, error: Exception) -> NoReturn:
        """Run the steps again one after another, to say which failed on which record."""
        rows = to_rows(batch)
        for step in chain:
            try:
                rows = step.element.apply(rows)
            except Exception as again:
                self._fail_step(step, time, rows, again)
        names = " or ".join(repr(step.name) for step in chain)
        raise_located(f"{names}[{self.replica}] ({chain[0].where}) failed at {time}, but not when they were run again", error)

    def _compile_gather(self, step: ApplyStep, gatherer: Gatherer) -> Emit:
        add = gatherer.add

        def run(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]]:
            try:
                leaving = add(time, batch)
            except Exception as error:
                self._fail_step(step, time, batch, error)
            return [(time, out) for out in leaving]

        return run

    @property
    def holding(self) -> bool:
        """Whether a step holds something back; :meth:`flush` before progress is reported."""
        return any(gatherer.holding for gatherer, _, _ in self._gatherers)

    def flush(self) -> None:
        """Put what the steps hold back into the outbox."""
        for gatherer, action, step in self._gatherers:
            if not gatherer.holding:
                continue
            try:
                held = gatherer.flush()
            except Exception as error:
                raise_located(f"{step.name!r}[{self.replica}] ({step.where}) failed", error)
            for time, batch in held:
                _flow(action.children, time, batch)

    def _compile_sink(self, sink_id: int) -> Emit:
        sink = self._sinks[sink_id]
        if sink_id not in self.writers:  # several paths of one replica may lead to a sink: they share its writer
            number, count = self.plan.writer(sink, self.stage, self.replica)
            try:
                self.writers[sink_id] = sink.sink.open(number, count)
            except Exception as error:
                raise_located(self._sink_place(sink_id, "open"), error)
            if sink.sink.tells_updates:
                self.recent[sink_id] = Recent()
        writer, counters, recent = self.writers[sink_id], self.counters, self.recent.get(sink_id)

        def run(time: Timestamp, batch: Any) -> None:
            try:
                writer.write(time, batch)
                if recent is not None:
                    recent.put(time, batch)
                if self.set_aside is not None and writer.kept_bytes() >= STAGE_BYTES:
                    self.set_aside(sink_id, writer.stage())
            except Exception as error:
                raise_located(f"{self._sink_place(sink_id, 'write')} at {time}", error)
            counters.written_items += batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)

        return run

    def _compile_edge(self, edge: PlanEdge) -> Emit:
        replicas = self.plan.stage(edge.target).parallelism
        push = self._push_or_reenter if edge.target == self.stage.id else self._push
        kind = edge.routing
        if kind is PartitionKind.KEYS:
            return self._compile_keys(edge, replicas, push)
        if kind is PartitionKind.BROADCAST:

            def everyone(time: Timestamp, batch: Any) -> None:
                for replica in range(replicas):
                    push(edge, replica, time, batch)

            return everyone
        if edge.is_on_demand:
            return self._compile_on_demand(edge, replicas)
        if kind is PartitionKind.REBALANCE and replicas > 1:

            def emptiest(time: Timestamp, batch: Any) -> None:
                push(edge, self._most_room(edge.id, replicas), time, batch)

            return emptiest
        target = self.replica if kind is PartitionKind.FORWARD else 0

        def straight(time: Timestamp, batch: Any) -> None:
            push(edge, target, time, batch)

        return straight

    def _compile_on_demand(self, edge: PlanEdge, replicas: int) -> Emit:
        def offer(time: Timestamp, batch: Any) -> None:
            rows = None if edge.keeps_batches or self.piece_rows is None else self.piece_rows(edge.id, batch)
            for piece in (batch,) if rows is None else cut(batch, rows):
                replica = ANY if self.binds_late else self._most_room(edge.id, replicas)
                self._leave(edge, Outgoing(edge.id, replica, time, piece))
            self.is_large = True  # a receiver may be idle

        return offer

    def _compile_keys(self, edge: PlanEdge, replicas: int, push: Callable[[PlanEdge, int, Timestamp, Any], None]) -> Emit:
        assert edge.key is not None
        router = Router(replicas, self.plan.key_groups, self.plan.stage(edge.target).owners)
        selector = edge.key
        if selector.columns:
            import_conversions()
        row_key = selector.row_key()
        target = self.plan.stage(edge.target).name

        def keys(time: Timestamp, batch: Any) -> None:
            if isinstance(batch, pa.RecordBatch):
                leading = keyed_columns(batch.schema) if selector.pairs else None
                columns = batch.schema.names[:leading] if leading else list(selector.columns)
                if columns:
                    parts: list[Any] = []
                    try:
                        require_columns(batch, tuple(columns))
                        parts = router.split_columns(batch, columns)
                    except Exception as error:
                        raise_located(f"{self._place(f'key_by before {target!r}')} at {time}", error)
                    for replica, part in enumerate(parts):
                        if part.num_rows:
                            push(edge, replica, time, part)
                    return
                batch = to_rows(batch)
            try:
                parts = router.split_rows(batch, row_key)
            except Exception as error:
                culprit = router.culprit(batch, row_key)
                raise_located(f"{self._place(f'key_by before {target!r}')} at {time} on record {show(culprit, 120)}", error)
            for replica, part in enumerate(parts):
                if part:
                    push(edge, replica, time, part)

        return keys

    def take(self) -> list[Outgoing]:
        """Take out what waits to be sent, in order."""
        taken, self.outbox = self.outbox, []
        sent, copied = self.counters.sent_items, self.copied
        for outgoing in taken:
            if not outgoing.replica or outgoing.edge not in copied:  # a broadcast counts once
                sent[outgoing.edge] += rows_of(outgoing.batch)
        self._growing.clear()
        self.is_large = False
        return taken

    def _push_or_reenter(self, edge: PlanEdge, replica: int, time: Timestamp, batch: Any) -> None:
        if replica != self.replica or not self._reenter(edge, time, batch):
            self._push(edge, replica, time, batch)

    def _push(self, edge: PlanEdge, replica: int, time: Timestamp, batch: Any) -> None:
        if type(batch) is list and len(batch) < self.batch_rows:
            key = (edge.id, replica, time)
            waiting = self._growing.get(key)
            if waiting is not None and len(waiting.batch) + len(batch) <= self.batch_rows:
                if waiting.is_own:
                    waiting.batch.extend(batch)
                else:
                    waiting.batch = waiting.batch + batch
                    waiting.is_own = True
                return
            outgoing = self._growing[key] = Outgoing(edge.id, replica, time, batch)
        else:
            outgoing = Outgoing(edge.id, replica, time, batch)
            self.is_large = True
        self._leave(edge, outgoing)

    def _leave(self, edge: PlanEdge, outgoing: Outgoing) -> None:
        time = outgoing.time
        self.batches_out += 1
        self.outbox.append(outgoing)
        counted = time if edge.count_depth == len(time[1]) else time.truncate(edge.count_depth)
        self._change(edge.count_location, counted, 1)

    def _most_room(self, edge: int, replicas: int) -> int:
        start = self._turn.get(edge, self.replica)
        self._turn[edge] = start + 1
        if self._room is None:
            return start % replicas
        room = self._room
        return max(((start + i) % replicas for i in range(replicas)), key=lambda replica: room(edge, replica))

    def _fail_step(self, step: ApplyStep, time: Timestamp, batch: Any, error: Exception) -> NoReturn:
        record = ""
        of_columns = isinstance(error, RayadError) and isinstance(batch, pa.RecordBatch)  # then no record is at fault
        if not is_located(error) and not of_columns:
            try:
                culprit = self._element(step).culprit(batch)
            except Exception:
                culprit = None
            record = f" on record {show(culprit, 120)}" if culprit is not None else ""
        raise_located(f"{step.name!r}[{self.replica}] ({step.where}) failed at {time}{record}", error)


class _Action:
    """A step, or several fused into one, compiled; and the actions that get what it gives."""

    __slots__ = ("backwards", "children", "run")

    def __init__(self, run: Emit, children: tuple[_Action, ...]) -> None:
        self.run = run
        self.children = children
        self.backwards = children[::-1]


def _flow(actions: tuple[_Action, ...], time: Timestamp, batch: Any) -> None:
    """Run actions and all that is behind them, depth first, on a stack of its own: there may be thousands of steps in a row."""
    pending = [(action, time, batch) for action in reversed(actions)]
    while pending:
        action, when, what = pending.pop()
        leaving = action.run(when, what)
        if leaving:
            for following in reversed(leaving):
                pending.extend((child, *following) for child in action.backwards)


def _compile_shift(step: ShiftStep) -> Emit:
    kind, bound = step.kind, step.max_rounds

    def run(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]]:
        if kind == "enter":
            moved = Timestamp.of(time[0], (*time[1], 0))
        elif kind == "leave":
            moved = Timestamp.of(time[0], time[1][:-1])
        else:
            following = time[1][-1] + 1
            if bound is not None and following >= bound:
                return ()
            moved = Timestamp.of(time[0], (*time[1][:-1], following))
        return ((moved, batch),)

    return run


class _Fused(NamedTuple):
    """Steps that run as one loop over records."""

    chains: dict[int, list[ApplyStep]]
    """The steps of each loop, in order, by the number of its first."""
    inside: set[int]
    """The numbers of the other steps of the loops."""


def _fused(stage: Stage, alone: Container[int]) -> _Fused:
    found = _Fused({}, set())
    for number in range(len(stage.steps) - 1, -1, -1):  # parents come later: each chain is found from its beginning
        if number not in found.inside:
            numbers = _row_steps(stage, number, alone)
            if len(numbers) > 1:
                found.chains[number] = [stage.steps[n] for n in numbers]  # type: ignore[misc]
                found.inside.update(numbers[1:])
    return found


def _row_steps(stage: Stage, number: int, alone: Container[int]) -> list[int]:
    """A step and those behind it that can run as one loop over records, perhaps with a combiner at the end; none that is to be alone."""
    chain: list[int] = []
    while isinstance(step := stage.steps[number], ApplyStep) and len(chain) < FUSED_MAX:
        is_lazy = type(step.element).lazily is not Element.lazily
        if not is_lazy and not (chain and step.element.gathers_rows):
            break
        if chain and number in alone:
            break
        chain.append(number)
        if not is_lazy or len(step.children) != 1 or number in alone:
            break
        number = step.children[0]
    return chain


def _depth_first(stage: Stage, fused: _Fused) -> Iterator[int]:
    """The numbers of a stage's actions, each before those behind it."""
    for numbers in stage.outputs:
        pending = list(reversed(numbers))
        while pending:
            number = pending.pop()
            yield number
            step = fused.chains[number][-1] if number in fused.chains else stage.steps[number]
            if isinstance(step, (ApplyStep, ShiftStep)):
                pending.extend(reversed(step.children))
