"""The outputs of one replica: the tree of compiled steps, routes and sinks, which is compiled anew when the layout changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from rayad.actors.replica.output.actions import Action, Emit, flow
from rayad.actors.replica.output.fusing import depth_first, fused
from rayad.actors.replica.output.outbox import Outbox
from rayad.actors.replica.output.routes import Routes
from rayad.actors.replica.output.sinks import SinkWriters
from rayad.actors.replica.output.spilled_batches import OutgoingBound
from rayad.actors.replica.output.steps import Steps, compile_shift, gatherer_of
from rayad.actors.replica.recent import Recent
from rayad.autoscale.statistics import ReplicaCounters
from rayad.dataflow.compiling.sharing import Shared
from rayad.dataflow.logical_graph import PartitionKind
from rayad.dataflow.operators.bad_records import SetAside
from rayad.dataflow.operators.stateless import GATHERED_BYTES_MAX, Element, Gatherer
from rayad.dataflow.plan import ApplyStep, EdgeStep, Plan, PlanEdge, ShiftStep, SinkStep, Stage
from rayad.progress import Timestamp


class Outputs:
    """The outputs of one replica.

    Args:
        change: counts progress: (location, time, delta).
        room, reenter: see :class:`Routes`.
        isolated, working: see :class:`Steps`.
        gathered_bytes_max: see :meth:`Element.gatherer`.
        bound: of what waits to be sent, see :class:`Outbox`.
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
        gathered_bytes_max: int = GATHERED_BYTES_MAX,
        bound: OutgoingBound | None = None,
    ) -> None:
        inputs, outputs = ([edge.id for edge in edges] for edges in (plan.edges_into(stage.id), plan.edges_from(stage.id)))
        self.counters = ReplicaCounters(stage.name, replica, inputs=inputs, outputs=outputs, now_s=0.0)
        self.copied = frozenset(edge.id for edge in plan.edges_from(stage.id) if edge.partition is PartitionKind.BROADCAST)
        self.outbox = Outbox(change, self.counters.sent_items, self.copied, bound)
        self.routes = Routes(plan, stage, replica, self.outbox, room, reenter)
        self.sinks = SinkWriters(plan, stage, replica, self.counters)
        self._steps = Steps(replica, isolated, working)
        self._stage = stage
        self._gathered_bytes_max = gathered_bytes_max
        self._gatherers: list[tuple[Gatherer, Action, ApplyStep]] = []
        self._shared: Mapping[int, Shared] = {}
        self._roots = self._compile_all()

    def __len__(self) -> int:
        """How many output ports there are."""
        return len(self._roots)

    def watch_records(self, shared: Mapping[int, Shared]) -> None:
        """Check whether the functions of these steps change the records that they are given."""
        self._shared = shared
        if shared:
            self._roots = self._compile_all()

    def lay_out(self, plan: Plan) -> None:
        """From now on route by another layout; what combiners keep back must have been flushed."""
        before, self._stage = self._stage, plan.stage(self._stage.id)
        self.sinks.lay_out(plan)
        if self.routes.lay_out(plan) or self._stage is not before:
            self._roots = self._compile_all()

    def _compile_all(self) -> list[tuple[Action, ...]]:
        """The actions behind each output port. Gatherers are in the order in which they flush: before those behind them."""
        steps = self._stage.steps
        actions: list[Action | None] = [None] * len(steps)
        gatherers: dict[int, tuple[Gatherer, Action, ApplyStep]] = {}
        loops = fused(self._stage, range(len(steps)) if self._steps.are_told else self._shared)
        for number, step in enumerate(steps):  # children come first
            if number in loops.inside:
                continue
            if isinstance(step, ApplyStep):
                chain = loops.chains.get(number, [step])
                children = tuple(filter(None, map(actions.__getitem__, chain[-1].children)))
                gatherer = gatherer_of(chain, self._gathered_bytes_max)
                action = Action(self._steps.compile(chain, gatherer, self._shared.get(number)), children)
                if gatherer is not None:
                    gatherers[number] = (gatherer, action, chain[-1])
            elif isinstance(step, ShiftStep):
                action = Action(compile_shift(step), tuple(filter(None, map(actions.__getitem__, step.children))))
            else:
                action = Action(self._compile_leaf(step), ())
            actions[number] = action
        self._gatherers = [gatherers[number] for number in depth_first(self._stage, loops) if number in gatherers]
        return [tuple(filter(None, map(actions.__getitem__, numbers))) for numbers in self._stage.outputs]

    def _compile_leaf(self, step: EdgeStep | SinkStep) -> Emit:
        return self.routes.compile(step.edge) if isinstance(step, EdgeStep) else self.sinks.compile(step.sink)

    # -- batches -----------------------------------------------------------------------------------
    def emit(self, port: int, time: Timestamp, batch: Any) -> None:
        """Run the fused steps behind an output and put what leaves into the outbox."""
        if (batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)) == 0:
            return
        flow(self._roots[port], time, batch)

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
                self._steps.fail_flush(step, error)
            for time, batch in held:
                flow(action.children, time, batch)

    @property
    def is_large(self) -> bool:
        """Whether what waits should be sent now: waiting for more would not pay."""
        return self.outbox.is_large

    # -- to look at, and the end -------------------------------------------------------------------
    @property
    def recent(self) -> Mapping[int, Recent]:
        """By sink that tells its updates: the last records written."""
        return self.sinks.recent

    def bad_records(self) -> tuple[SetAside, ...]:
        """What the steps have set aside since they were made. Any thread may ask."""
        return self._steps.bad_records()

    def acquit(self) -> None:
        """See :meth:`Steps.acquit`."""
        self._steps.acquit()

    def close(self) -> None:
        """Release what the steps hold. Never raises."""
        self._steps.close()
