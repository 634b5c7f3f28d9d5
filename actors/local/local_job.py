"""The local runtime: a whole dataflow in this process, in an order that follows from a seed.

It drives the same replica and progress cores as the Ray runtime and joins them with queues: batches FIFO per channel, reports FIFO per
replica, views FIFO per replica; which queue moves next is drawn from a seeded generator, so every interleaving that a cluster could
show can appear here, and the same seed shows the same one. Seconds (snapshots by interval, timeouts) come from a clock that can be
given: with one that counts steps those repeat exactly, too. It is Naiad's single-threaded scheduler (seed 000), the embedded default for
tests and notebooks, and the simulator.
"""

from __future__ import annotations

import random
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rayad.actors.job import Job, JobInput, JobProgress, JobState, JobStatistics, Probe, Result, not_yet
from rayad.actors.lead.layout_steps import Rescale, asked_of, replicas_wanted, restored
from rayad.actors.local.parts import HeldUp, LocalInput, LocalProbe, Ready, StillOpen, cannot_move, configure_local, explain, feed, new_core
from rayad.actors.local.rescaling import Fence, LocalRescale, Marker, Retired, go_on_as_asked, rescale_to
from rayad.actors.local.results import only_a_snapshot_goes_on, progress_of, publish_sinks, result_of
from rayad.actors.local.snapshots import LocalSnapshots
from rayad.actors.local.upstream import restart_upstream
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import edge_names
from rayad.actors.replica.rest import thaw
from rayad.actors.replica.upstream import Region, gated_edges, region_of
from rayad.actors.replica.user_errors import restarts_of, sign_of
from rayad.actors.store.input_log import InputLog
from rayad.actors.store.job_store import JobStore, NothingWhole, Superseded
from rayad.dataflow.config import RunConfig, ScalingConfig, check_timeout, configured, not_changed_locally
from rayad.dataflow.flow import Dataflow
from rayad.dataflow.graph import NodeKind, users_level
from rayad.dataflow.sharing import shared_steps
from rayad.progress import ConfigError, DataflowError, JobTracker, RescaleRefused, SnapshotError, Timestamp, View, arguments, show
from rayad.snapshots.coordination import SnapshotStatistics
from rayad.snapshots.restarts import End

Where = tuple[int, int]  # stage id, replica

LOOKS_EVERY_STEPS = 16
"""How often the clock is looked at for snapshots."""
HOLD_SHARE = 0.75
"""How often a replica whose combiners hold something is not made to give it out at once."""


class LocalJob(Job):
    """A dataflow running step by step in the caller's thread."""

    def __init__(
        self,
        flow: Dataflow,
        run: RunConfig,
        scaling: ScalingConfig,
        *,
        seed: int = 0,
        store: JobStore | None = None,
        clock: Callable[[], float] = time.monotonic,
        check_records: bool = True,
    ) -> None:
        if not callable(clock):
            raise ConfigError(f"clock is {show(clock, 60)}: it must be a function without arguments that gives seconds")
        plan = flow.plan(scaling=scaling, key_groups=run.key_groups, fingerprints=run.keeps_snapshots)
        super().__init__(run.name or flow.name, plan)
        self.config = run
        self.seed = seed
        self._clock = clock
        self.shared = shared_steps(plan) if check_records else {}
        self.steps = 0
        self._random = random.Random(seed)
        self._restarts = restarts_of(run.failures, random.Random(seed))
        self._newest_seen: SnapshotStatistics | None = None
        self._window = run.window_batches
        self._state = JobState.RUNNING
        self._error: BaseException | None = None
        self._result: Result | None = None
        self._began_s = time.perf_counter()
        self._edges = self.plan.edge_by_id
        self._edge_ids = {name: edge for edge, name in edge_names(self.plan).items()}
        self._inputs: dict[str, LocalInput] = {}
        self._input_log: dict[Where, InputLog] = {}
        self._stopping = False
        self.rescaling: LocalRescale | None = None
        self.asked = asked_of(plan)
        self._gated = gated_edges(self.plan) if run.failures.recovery == "upstream" else frozenset()
        self._ready = Ready()
        self.cores: dict[Where, ReplicaCore] = {}
        self.retired = Retired()
        self.snapshots: LocalSnapshots | None = None
        try:
            if store is not None or run.keeps_snapshots:
                self.snapshots = LocalSnapshots(self, store or JobStore(self.name, self.plan, run))
            self._start()
            go_on_as_asked(self)
        except BaseException as error:
            self._fail(error)
            raise

    # -- life
    def _start(self) -> None:
        """Build everything, from the beginning or from the snapshot that is to be gone on from."""
        self.tracker = JobTracker(self.plan.progress)
        self.cores = {}
        self.rescaling = None
        self.channels: dict[tuple[int, int, int], deque[tuple[Timestamp | None, Any]]] = {}
        self.reports: dict[Where, deque[Any]] = {}
        self.views: dict[Where, deque[View]] = {}
        self._queued: dict[Where, int] = {}  # batches waiting on regular channels out of a replica
        self._blocked = HeldUp(lambda: self.steps)
        self._aligning: dict[Where, set[Any]] = {}
        self._subscribed: set[Where] = set()
        self._ready = Ready()
        manifest = self.snapshots.store.manifest if self.snapshots is not None else None
        self.plan = restored(self.plan, manifest.notes if manifest is not None else {}, self.asked)
        parts = self.snapshots.store.read(manifest, self.plan) if self.snapshots is not None and manifest is not None else {}
        if self.snapshots is not None:
            self.snapshots.lay_out(self.plan)
        for stage in self.plan.stages:
            for replica in range(stage.parallelism):
                where = (stage.id, replica)
                core = new_core(self, stage, replica)
                core.start(resumed := parts.get((stage.name, replica)))
                if resumed is not None:
                    self._refill(where, resumed.rest["log"])
        for where, core in self.cores.items():
            resumed = parts.get((core.name, where[1]))
            for name, target, data in resumed.rest["outbox"] if resumed is not None else ():
                self._refill((self._edges[self._edge_ids[name]].target, target), [(name, where[1], data)])
        for where, core in self.cores.items():
            if core.wants_views:
                self._subscribed.add(where)
                self.tracker.subscribe(where[0])
            self.tracker.apply(core.take_changes())
            if core.source is not None:
                self._ready.add(("source", where))
            if core.stage.kind is NodeKind.INPUT:
                log = self._input_log.setdefault(where, InputLog(core.input_frames))
                log.rewind(core.input_frames)
                if log.waits:
                    self._ready.add(("input", where))
        self._publish()

    def _refill(self, at: Where, log: list[tuple[str, int, bytes]]) -> None:
        """Batches that were in flight towards a replica are so again."""
        for name, source, data in log:
            edge = self._edges[self._edge_ids[name]]
            time, batch = thaw(data)
            self.cores[at].count_waiting(edge.id, time)
            self._put((edge.id, source % self.plan.stage(edge.source).parallelism, at[1]), time, batch)  # a source may have fewer now

    def _put(self, channel: tuple[int, int, int], time: Timestamp | None, batch: Any) -> None:
        waiting = self.channels.get(channel)
        if waiting is None:
            waiting = self.channels[channel] = deque()
        waiting.append((time, batch))
        self._ready.add(("batch", channel))
        edge = self._edges[channel[0]]
        if time is not None and not edge.is_feedback:
            at = (edge.source, channel[1])
            self._queued[at] = self._queued.get(at, 0) + 1

    def crash(self, failed: Collection[int] | None = None) -> None:
        """For tests: everything is lost, with all that is on its way; go on from the last whole snapshot. ``failed`` stages: only these."""
        self._raise_if_over()
        if self.snapshots is None:
            raise ConfigError(f"job {self.name!r} keeps no snapshots: give RunConfig(storage_path=...)")
        region = region_of(self.plan, failed) if failed is not None and self._gated else ""
        while True:
            try:
                if isinstance(region, Region) and restart_upstream(self, region):
                    return
                for core in self.cores.values():
                    core.close()
                self.cores = {}
                self.snapshots.recover()
                self._start()
                return
            except Exception as error:
                region = ""  # what was half done is thrown away
                if not self._may_go_on(error):
                    self._fail(error)
                    raise

    def now_s(self) -> float:
        """The clock that intervals and timeouts are measured with: the only thing here that does not follow from the seed."""
        return self._clock()

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
            if self.snapshots is not None and self.steps % LOOKS_EVERY_STEPS == 0:
                self.snapshots.look_at_clock()
            has_moved = self.rescaling is not None and self.rescaling.advance()
            while items:
                event = items[int(self._random.random() * len(items))]
                if self._perform(event):
                    self.steps += 1
                    return True
            if has_moved:  # a change of layout in a job that has nothing else to do
                self.steps += 1
                return True
        except Exception as error:
            if self._may_go_on(error):
                self.crash()
                self.steps += 1
                return True
            self._fail(error)
            raise
        return False

    def _may_go_on(self, error: Exception) -> bool:
        """Whether a failure is one of those that the job shall survive."""
        if self.snapshots is None or isinstance(error, (Superseded, NothingWhole)):
            return False
        if not self.config.failures.max_failures:
            return False
        newest = self.snapshots.taken[-1] if self.snapshots.taken else None
        if newest is not self._newest_seen:
            self._newest_seen = newest
            self._restarts.on_snapshot()
        decision = self._restarts.on_failure(sign_of(error), self.now_s())
        if isinstance(decision, End):
            error.add_note(f"job {self.name!r}: {decision.why}")
            return False
        self.snapshots.failures += 1
        self.pause(decision.delay_s)
        return True

    def pause(self, seconds: float) -> None:
        """Do nothing for so long; under a clock that was given nothing is waited for."""
        if seconds and self._clock is time.monotonic:
            time.sleep(seconds)

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
                self.cores[at].stop_source()
                self._ready.discard(event)
            elif self.cores[at].source_step() is None:
                self._ready.discard(event)
            self._after(at)
        elif kind in ("index", "relayout", "arrive", "transfer", "leave"):
            assert self.rescaling is not None
            self.rescaling.perform(kind, at)
        elif kind == "input":
            return feed(self, event)
        else:
            assert self.snapshots is not None
            self.snapshots.perform(kind, at)
        return True

    def _consume(self, event: Any) -> bool:
        channel = event[1]
        edge = self._edges[channel[0]]
        at = (edge.target, channel[2])
        if self._held_up(at, event):
            return False
        into = (channel[0], channel[1])
        participant = self.snapshots.participants.get(at) if self.snapshots is not None else None
        if participant is not None and participant.blocks(into):
            self._ready.discard(event)
            self._aligning.setdefault(at, set()).add(event)
            return False
        waiting = self.channels[channel]
        time, batch = waiting.popleft()
        if not waiting:
            self._ready.discard(event)
        if time is None:
            self._on_mark(at, into, batch)
            return True
        if not edge.is_feedback:
            self._release((edge.source, channel[1]))
        if participant is not None and participant.logs(into):
            participant.log_batch(into, time, batch)
        receiver = self.cores[at] if self.rescaling is None else self.rescaling.receiver(at)
        receiver.receive(edge.id, time, batch)
        self._after(at)
        return True

    def _on_mark(self, at: Where, into: tuple[int, int], mark: Any) -> None:
        if isinstance(mark, Marker):
            assert self.rescaling is not None
            self.rescaling.on_marker(at, into, mark)
        else:
            assert self.snapshots is not None
            self.snapshots.on_barrier(at, into, mark)

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
            self._ready.again(self._blocked.pop(source, ()), self.channels)

    def _unblock(self, at: Where) -> None:
        """The replica has captured: what waited behind its barriers may be consumed."""
        self._ready.again(self._aligning.pop(at, ()), self.channels)

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
            self._put((outgoing.edge, at[1], outgoing.replica), outgoing.time, outgoing.batch)
        core.done_tokens.clear()
        if core.wants_views and at not in self._subscribed:
            self._subscribed.add(at)
            self.tracker.subscribe(at[0])
            self._publish()
        report = core.take_changes()
        if report:
            self.reports[at].append(report)
            self._ready.add(("report", at))
        if self.rescaling is not None:
            self.rescaling.fence(at)

    def _apply(self, at: Where) -> None:
        waiting = self.reports[at]
        report = waiting.popleft()
        if not waiting:
            self._ready.discard(("report", at))
        if isinstance(report, Fence):
            assert self.rescaling is not None
            self.rescaling.on_fence(at, report)
        else:
            self.tracker.apply(report)
            self._publish()

    def _publish(self) -> None:
        for node, view in self.tracker.views().items():
            stage = self.plan.stage(node)
            for replica in range(stage.parallelism if stage.inputs else 0):
                self.views[node, replica].append(view)
                self._ready.add(("view", (node, replica)))

    # -- the handle ---------------------------------------------------------------------------
    def wait(self, timeout_s: float | None = None) -> Result:
        check_timeout(timeout_s, "wait(timeout_s)")
        if self._result is not None:
            return self._result
        self._raise_if_over()
        deadline_s = None if timeout_s is None else self.now_s() + timeout_s
        try:
            while self.step():
                if self.steps % LOOKS_EVERY_STEPS == 0 and only_a_snapshot_goes_on(self):
                    break
                if deadline_s is not None and self.steps % 64 == 0 and self.now_s() > deadline_s:
                    raise not_yet(self.name, timeout_s)
            if not self.tracker.is_complete():
                raise cannot_move(self)
            self._complete()
        except (TimeoutError, KeyboardInterrupt):
            raise
        except BaseException as error:
            if self._state is JobState.RUNNING and not isinstance(error, StillOpen):
                self._fail(error)
            raise
        assert self._result is not None
        return self._result

    def _raise_if_over(self) -> None:
        if self._state is JobState.CANCELLED:
            raise DataflowError(f"job {self.name!r} was cancelled: it has no results")
        if self._error is not None:
            raise self._error

    def _complete(self) -> None:
        receipts = self.snapshots.finish() if self.snapshots is not None else publish_sinks(self)
        result = result_of(self, receipts, time.perf_counter() - self._began_s)
        for core in self.cores.values():
            core.close()
        self._state = JobState.COMPLETE
        self._result = result

    def _fail(self, error: BaseException) -> None:
        self._state = JobState.FAILED
        self._error = error
        self._abandon()

    def _abandon(self) -> None:
        for core in self.cores.values():
            core.abort_sinks()
            core.close()
        can_go_on = self.snapshots is not None or self.config.keeps_snapshots  # then a snapshot may name what is staged
        for sink in () if can_go_on else self.plan.sinks:
            try:
                sink.sink.abort()
            except Exception:  # it must not raise; what ended the job matters more
                continue

    def cancel(self) -> None:
        if self._state is JobState.RUNNING:
            self._state = JobState.CANCELLED
            self._abandon()

    def stop(self, *, drain: bool = True, timeout_s: float | None = None) -> Result:
        check_timeout(timeout_s, "stop(timeout_s)")
        if not arguments.flag(drain, "stop(drain)"):
            self.cancel()
            return Result({}, JobStatistics())
        self._stopping = True
        for name in self.plan.inputs:
            self.input(name).close()
        return self.wait(timeout_s)

    def progress(self) -> JobProgress:
        return progress_of(self)

    def input(self, name: str) -> JobInput:
        stage = self._known(name, "live input", self.plan.inputs)
        if name not in self._inputs:
            self._inputs[name] = LocalInput(name, self, (stage, 0))
        return self._inputs[name]

    def probe(self, name: str) -> Probe:
        return LocalProbe(name, self, self._known(name, "probe", self.plan.probes))

    def savepoint(self) -> str:
        if self.snapshots is None:
            raise ConfigError(f"job {self.name!r} keeps no snapshots: give RunConfig(storage_path=...)")
        self._raise_if_over()
        if self._state is JobState.COMPLETE:
            raise SnapshotError(f"job {self.name!r} is {self._state.value}: no savepoint can be taken")
        return self.snapshots.savepoint()

    def rescale(self, vertex: str | Mapping[str, int], replicas: int | None = None, *, timeout_s: float = 120.0) -> Rescale:
        wanted = replicas_wanted(vertex, replicas)
        arguments.number(timeout_s, "rescale(timeout_s)", zero=True, error=ConfigError)
        self._raise_if_over()
        if self._state is JobState.COMPLETE:
            raise RescaleRefused(f"rescale({wanted}): job {self.name!r} is {self._state.value}")
        return rescale_to(self, wanted)

    def configure(self, **changes: Any) -> None:
        config = configured(self.config, changes)
        if self._state is not JobState.RUNNING:
            raise ConfigError(f"configure({changes}): job {self.name!r} is {self._state.value}")
        self.config = config
        passed_over = not_changed_locally(changes)
        if passed_over:
            warnings.warn(passed_over, UserWarning, stacklevel=users_level())
        configure_local(self)

    def explain_stuck(self) -> str:
        return explain(self)

    def check_invariants(self) -> None:  # for tests
        self.tracker.check_invariants()
