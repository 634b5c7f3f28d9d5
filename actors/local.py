"""The local runtime: a whole dataflow in this process, deterministic from a seed.

It drives the same replica and progress cores as the Ray runtime and joins them with queues: batches FIFO per channel, reports FIFO per
replica, views FIFO per replica; which queue moves next is drawn from a seeded generator, so every interleaving that a cluster could
show can appear here, and the same seed shows the same one. It is Naiad's single-threaded scheduler (seed 000), the embedded default for
tests and notebooks, and the simulator.
"""

from __future__ import annotations

import random
import time as clock
from collections import deque
from typing import Any

from rayad.actors.failures import raise_located
from rayad.actors.job import Job, JobInput, JobProgress, JobState, JobStatistics, Probe, Result, StageProgress, describe_blockers
from rayad.actors.replica import ReplicaCore
from rayad.dataflow.config import RunConfig, ScalingConfig
from rayad.dataflow.flow import Dataflow
from rayad.dataflow.graph import NodeKind
from rayad.progress import ConfigError, DataflowError, InternalError, JobTracker, Timestamp, View

Where = tuple[int, int]  # stage id, replica


HOLD_SHARE = 0.75
"""How often a replica whose combiners hold something is not made to give it out at once."""


class _Ready:
    """A set with O(1) draw of a random element, in an order that only the seed decides."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.place: dict[Any, int] = {}

    def add(self, item: Any) -> None:
        if item not in self.place:
            self.place[item] = len(self.items)
            self.items.append(item)

    def discard(self, item: Any) -> None:
        index = self.place.pop(item, None)
        if index is None:
            return
        last = self.items.pop()
        if last != item:
            self.items[index] = last
            self.place[last] = index


class LocalJob(Job):
    """A dataflow running step by step in the caller's thread."""

    def __init__(self, flow: Dataflow, run: RunConfig, scaling: ScalingConfig, *, seed: int = 0) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ConfigError(f"seed is {seed!r}: it must be an int")
        super().__init__(run.name or flow.name, flow.plan(scaling=scaling, key_groups=run.key_groups))
        self.seed = seed
        self.steps = 0
        self._random = random.Random(seed)
        self._window = run.window_batches
        self._state = JobState.RUNNING
        self._error: BaseException | None = None
        self._result: Result | None = None
        self._began_s = clock.perf_counter()
        self.tracker = JobTracker(self.plan.progress)
        self.cores: dict[Where, ReplicaCore] = {}
        self.channels: dict[tuple[int, int, int], deque[tuple[Timestamp, Any]]] = {}
        self.reports: dict[Where, deque[list[tuple[int, Timestamp, int]]]] = {}
        self.views: dict[Where, deque[View]] = {}
        self._edges = {edge.id: edge for edge in self.plan.edges}
        self._queued: dict[Where, int] = {}  # batches waiting on regular channels out of a replica
        self._blocked: dict[Where, set[tuple[int, int, int]]] = {}
        self._subscribed: set[Where] = set()
        self._ready = _Ready()
        self._inputs: dict[str, LocalInput] = {}
        self._input_queue: dict[Where, deque[tuple[str, Any]]] = {}
        self._stopping = False
        try:
            self._start()
        except BaseException as error:
            self._fail(error)
            raise

    # -- life ----------------------------------------------------------------------
    def _start(self) -> None:
        for stage in self.plan.stages:
            for replica in range(stage.parallelism):
                where = (stage.id, replica)
                self.reports[where], self.views[where] = deque(), deque()
                core = ReplicaCore(self.plan, stage, replica, room=self._room_of(where))
                self.cores[where] = core
                core.start()
                if core.wants_views:
                    self._subscribed.add(where)
                    self.tracker.subscribe(stage.id)
                self.tracker.apply(core.take_changes())
        for where, core in self.cores.items():
            if core.source is not None:
                self._ready.add(("source", where))
            if core.stage.kind is NodeKind.INPUT:
                self._input_queue[where] = deque()
        self._publish()

    def _room_of(self, where: Where) -> Any:
        def room(edge: int, replica: int) -> int:
            waiting = self.channels.get((edge, where[1], replica))
            return -len(waiting) if waiting is not None else 0

        return room

    @property
    def state(self) -> JobState:
        return self._state

    # -- one step -----------------------------------------------------------------------
    def step(self) -> bool:
        """One event, drawn from the seed: a batch is consumed, a source read, a report applied or a view delivered.

        False when nothing can move. An error ends the job, whoever took the step.
        """
        self._raise_if_over()
        items = self._ready.items
        try:
            while items:
                event = items[int(self._random.random() * len(items))]
                if self._perform(event):
                    self.steps += 1
                    return True
        except Exception as error:
            self._fail(error)
            raise
        return False

    def _perform(self, event: Any) -> bool:
        """Do it; False if it turned out to be held up by backpressure (it comes back when that ends)."""
        kind, at = event
        if kind == "report":
            self._apply(at)
        elif kind == "view":
            waiting = self.views[at]
            view = waiting.popleft()
            if not waiting:
                self._ready.discard(event)
            self.cores[at].on_view(view)
            self._after(at)
        elif kind == "batch":
            return self._consume(event)
        elif kind == "flush":
            self._ready.discard(event)
            self._move_out(at)
        elif kind == "source":
            if self._held_up(at, event):
                return False
            if self._stopping:
                self._end_source(at)
            elif self.cores[at].source_step() is None:
                self._ready.discard(event)
            self._after(at)
        else:
            return self._feed(event)
        return True

    def _consume(self, event: Any) -> bool:
        channel = event[1]
        edge = self._edges[channel[0]]
        at = (edge.target, channel[2])
        if self._held_up(at, event):
            return False
        waiting = self.channels[channel]
        time, batch = waiting.popleft()
        if not waiting:
            self._ready.discard(event)
        if not edge.is_feedback:
            self._release((edge.source, channel[1]))
        self.cores[at].receive(edge.id, time, batch)
        self._after(at)
        return True

    def _held_up(self, at: Where, event: Any) -> bool:
        """Whether a replica has too much waiting on its way out; the event is put aside until there is room."""
        if self._queued.get(at, 0) < self._window:
            return False
        self._ready.discard(event)
        self._blocked.setdefault(at, set()).add(event)
        return True

    def _release(self, source: Where) -> None:
        self._queued[source] -= 1
        if self._queued[source] < self._window:
            for event in sorted(self._blocked.pop(source, ())):
                self._ready.add(event)

    def _after(self, at: Where) -> None:
        """Deliver due notifications, then move what the replica produced into the queues; combiners may hold back, as the seed says."""
        core = self.cores[at]
        while core.notify():
            pass
        if core.outputs.holding and self._random.random() < HOLD_SHARE:
            self._ready.add(("flush", at))
        else:
            self._move_out(at)

    def _move_out(self, at: Where) -> None:
        core = self.cores[at]
        core.outputs.flush()
        for outgoing in core.outputs.take():
            edge_id = outgoing.edge
            channel = (edge_id, at[1], outgoing.replica)
            waiting = self.channels.get(channel)
            if waiting is None:
                waiting = self.channels[channel] = deque()
            waiting.append((outgoing.time, outgoing.batch))
            self._ready.add(("batch", channel))
            if not self._edges[edge_id].is_feedback:
                self._queued[at] = self._queued.get(at, 0) + 1
        core.done_tokens.clear()
        if core.wants_views and at not in self._subscribed:
            self._subscribed.add(at)
            self.tracker.subscribe(at[0])
            self._publish()
        report = core.take_changes()
        if report:
            self.reports[at].append(report)
            self._ready.add(("report", at))

    def _apply(self, at: Where) -> None:
        waiting = self.reports[at]
        self.tracker.apply(waiting.popleft())
        if not waiting:
            self._ready.discard(("report", at))
        self._publish()

    def _publish(self) -> None:
        for node, view in self.tracker.views().items():
            stage = self.plan.stage(node)
            for replica in range(stage.parallelism if stage.inputs else 0):
                self.views[node, replica].append(view)
                self._ready.add(("view", (node, replica)))

    def _end_source(self, at: Where) -> None:
        core = self.cores[at]
        core.stop_source()
        self._ready.discard(("source", at))

    def _feed(self, event: Any) -> bool:
        at = event[1]
        if self._held_up(at, event):
            return False
        waiting = self._input_queue[at]
        kind, value = waiting.popleft()
        if not waiting:
            self._ready.discard(event)
        core = self.cores[at]
        if kind == "send":
            core.input_send(value)
        elif kind == "advance":
            core.input_advance(value)
        else:
            core.input_close()
        self._after(at)
        return True

    # -- the handle ---------------------------------------------------------------------------
    def wait(self, timeout_s: float | None = None) -> Result:
        if self._result is not None:
            return self._result
        self._raise_if_over()
        deadline_s = None if timeout_s is None else clock.monotonic() + timeout_s
        try:
            while self.step():
                if deadline_s is not None and self.steps % 64 == 0 and clock.monotonic() > deadline_s:
                    raise TimeoutError(f"job {self.name!r} is not complete after {timeout_s} s; it can go on with another wait()")
            if not self.tracker.is_complete():
                self._cannot_move()
            self._complete()
        except (TimeoutError, KeyboardInterrupt):
            raise
        except BaseException as error:
            if self._state is JobState.RUNNING and not isinstance(error, _StillOpen):
                self._fail(error)
            raise
        assert self._result is not None
        return self._result

    def _cannot_move(self) -> None:
        still = [name for name, stage in self.plan.inputs.items() if self.cores[stage, 0].input_epoch is not None]
        if still:
            raise _StillOpen(
                f"job {self.name!r} cannot end: its live inputs {still} are open; close() them, or use job.probe(name).wait(epoch)"
            )
        raise InternalError(f"job {self.name!r} (seed {self.seed}, step {self.steps}) is stuck:\n{self.explain_stuck()}")

    def _raise_if_over(self) -> None:
        if self._state is JobState.CANCELLED:
            raise DataflowError(f"job {self.name!r} was cancelled: it has no results")
        if self._error is not None:
            raise self._error

    def _complete(self) -> None:
        staged: dict[int, list[Any]] = {sink.id: [] for sink in self.plan.sinks}
        for core in self.cores.values():
            for sink_id, part in core.stage_sinks().items():
                staged[sink_id].append(part)
        values = {}
        for sink in self.plan.sinks:
            try:
                values[sink.key] = sink.sink.result(sink.sink.publish(staged[sink.id]))
            except Exception as error:
                raise_located(f"sink {sink.key!r} ({sink.where}) failed in publish", error)
        for core in self.cores.values():
            core.close()
        self._state = JobState.COMPLETE
        stages = {
            s.name: {
                "replicas": s.parallelism,
                "batches_in": sum(self.cores[s.id, r].batches_in for r in range(s.parallelism)),
                "records_in": sum(self.cores[s.id, r].records_in for r in range(s.parallelism)),
            }
            for s in self.plan.stages
        }
        scopes = {str(scope): count for scope, count in self.tracker.scope_updates().items()}
        self._result = Result(values, JobStatistics(0.0, clock.perf_counter() - self._began_s, 0, stages, scopes))

    def _fail(self, error: BaseException) -> None:
        self._state = JobState.FAILED
        self._error = error
        self._abandon()

    def _abandon(self) -> None:
        for core in self.cores.values():
            core.abort_sinks()
            core.close()
        for sink in self.plan.sinks:
            try:
                sink.sink.abort()
            except Exception:  # it must not raise; what ended the job matters more
                continue

    def cancel(self) -> None:
        if self._state is JobState.RUNNING:
            self._state = JobState.CANCELLED
            self._abandon()

    def stop(self, *, drain: bool = True, timeout_s: float | None = None) -> Result:
        if not drain:
            self.cancel()
            return Result({}, JobStatistics())
        self._stopping = True
        for name in self.plan.inputs:
            self.input(name).close()
        return self.wait(timeout_s)

    def progress(self) -> JobProgress:
        stages = []
        for stage in self.plan.stages:
            view = self.tracker.view(stage.id)
            cores = [self.cores[stage.id, replica] for replica in range(stage.parallelism)]
            stages.append(
                StageProgress(
                    stage.name,
                    view.input_frontier,
                    view.notify_frontier,
                    sum(c.batches_in for c in cores),
                    sum(c.records_in for c in cores),
                )
            )
        return JobProgress(self._state, tuple(stages), len(self.tracker.active()))

    def input(self, name: str) -> JobInput:
        stage = self._known(name, "live input", self.plan.inputs)
        if name not in self._inputs:
            self._inputs[name] = LocalInput(name, self, (stage, 0))
        return self._inputs[name]

    def probe(self, name: str) -> Probe:
        return LocalProbe(name, self, self._known(name, "probe", self.plan.probes))

    def explain_stuck(self) -> str:
        describe = self.plan.progress.describe_location
        parts = []
        for (stage, replica), core in self.cores.items():
            for notification in core.notificator.pending():
                time = notification.guarantee
                blockers = [(describe(loc), t, n) for loc, t, n in self.tracker.blockers(stage, time)]
                parts.append(describe_blockers(f"{core.name}[{replica}]", time, blockers))
        held = {channel: len(waiting) for channel, waiting in self.channels.items() if waiting}
        parts.extend(f"{count} batches wait on {self._edges[c[0]].name} {c[1]}->{c[2]}" for c, count in held.items())
        parts.extend(f"input {name!r} is open" for name, stage in self.plan.inputs.items() if self.cores[stage, 0].input_epoch is not None)
        return "\n".join(parts) or "nothing is waiting"

    def check_invariants(self) -> None:
        """For tests: the progress core is consistent."""
        self.tracker.check_invariants()


class _StillOpen(DataflowError):
    pass


class LocalInput(JobInput):
    """Feeds a queue of the local runtime."""

    def __init__(self, name: str, job: LocalJob, at: Where) -> None:
        super().__init__(name)
        self._job = job
        self._at = at

    def _put(self, item: tuple[str, Any]) -> None:
        self._job._raise_if_over()
        self._job._input_queue[self._at].append(item)
        self._job._ready.add(("input", self._at))

    def _send(self, batch: Any) -> None:
        self._put(("send", batch))
        while len(self._job._input_queue[self._at]) > self._job._window and self._job.step():
            pass

    def _advance(self, epoch: int) -> None:
        self._put(("advance", epoch))

    def _close(self) -> None:
        self._put(("close", None))


class LocalProbe(Probe):
    """Looks at the progress core; waiting runs the dataflow."""

    def __init__(self, name: str, job: LocalJob, node: int) -> None:
        super().__init__(name)
        self._job = job
        self._node = node

    def frontier(self) -> tuple[Timestamp, ...]:
        return self._job.tracker.frontier_at(self._node, 0)

    def wait(self, epoch: int, timeout_s: float | None = None) -> bool:
        deadline_s = None if timeout_s is None else clock.monotonic() + timeout_s
        while not self.complete(epoch):
            if (deadline_s is not None and clock.monotonic() > deadline_s) or not self._job.step():
                return False
        return True

