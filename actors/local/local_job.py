"""The local runtime: a whole dataflow in this process, in an order that follows from a seed.

It drives the same replica and progress cores as the Ray runtime and joins them with queues (``network.py``); which queue moves next is
drawn from a seeded generator, so every interleaving that a cluster could show can appear here, and the same seed shows the same one.
Seconds (snapshots by interval, timeouts) come from a clock that can be given: with one that counts steps those repeat exactly, too. It is
Naiad's single-threaded scheduler (seed 000), the embedded default for tests and notebooks, and the simulator.
"""

from __future__ import annotations

import math
import random
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rayad.actors.job import Job, JobInput, JobProgress, JobState, JobStatistics, Probe, Result, not_yet
from rayad.actors.lead import layout_steps
from rayad.actors.lead.layout_steps import RescaleReport, replicas_wanted
from rayad.actors.local.handles import LocalInput, LocalProbe, StillOpen, cannot_move
from rayad.actors.local.network import Network, Where
from rayad.actors.local.rescaling import EVENTS as EVENTS_OF_CHANGES
from rayad.actors.local.rescaling import Fence, LocalRescale, Marker
from rayad.actors.local.results import only_a_snapshot_goes_on, progress_of, publish_sinks, result_of
from rayad.actors.local.snapshots import LocalSnapshots
from rayad.actors.local.upstream import restart_upstream
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.upstream import Region, region_of
from rayad.actors.replica.user_errors import restarts_of, sign_of
from rayad.actors.store.job_store import JobStore, NothingWhole, Superseded
from rayad.dataflow.config import RunConfig, ScalingConfig, check_timeout, configured, not_changed_locally
from rayad.dataflow.plan import Plan
from rayad.dataflow.records.users_line import users_level
from rayad.dataflow.streams.flow import Dataflow
from rayad.progress import ConfigError, DataflowError, InternalError, ProtocolError, RescaleRefused, SnapshotError, arguments, show
from rayad.snapshots.coordination import SnapshotStatistics
from rayad.snapshots.restarts import End

LOOKS_EVERY_STEPS = 16
"""How often the clock is looked at for snapshots."""


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
        super().__init__(run.name or flow.name)
        self.seed = seed
        self.asked = layout_steps.asked_of(plan)
        self.network = Network(plan, run, random.Random(seed), check_records=check_records)
        self.snapshots: LocalSnapshots | None = None
        self.rescaling: LocalRescale | None = None
        self._clock = clock
        self._restarts = restarts_of(run.failures, random.Random(seed))
        self._newest_seen: SnapshotStatistics | None = None
        self._state = JobState.RUNNING
        self._error: BaseException | None = None
        self._result: Result | None = None
        self._began_s = time.perf_counter()
        self._inputs: dict[str, LocalInput] = {}
        self._stopping = False
        try:
            if store is not None or run.keeps_snapshots:
                store = store or JobStore(self.name, plan, run)
                self.snapshots = LocalSnapshots(self.name, self.network, store, self.asked, self.now_s)
            self._start()
            self._lay_out_as_asked()
        except BaseException as error:
            self._fail(error)
            raise

    # -- what there is -------------------------------------------------------------------
    @property
    def plan(self) -> Plan:
        """The dataflow, in the layout that it has now."""
        return self.network.plan

    @property
    def cores(self) -> dict[Where, ReplicaCore]:
        """The replicas."""
        return self.network.cores

    @property
    def steps(self) -> int:
        """How many events there have been."""
        return self.network.steps

    @property
    def config(self) -> RunConfig:
        """Of the run."""
        return self.network.config

    @property
    def is_moving(self) -> bool:
        """Whether a change of layout goes on and the job is not over before that is."""
        return self.rescaling is not None and self.rescaling.holds_job

    # -- life
    def _start(self) -> None:
        """Build everything, from the beginning or from the snapshot that is resumed."""
        network, snapshots = self.network, self.snapshots
        self.rescaling = None
        network.clear()
        manifest = snapshots.store.manifest if snapshots is not None else None
        network.plan = layout_steps.restored(network.plan, manifest.notes if manifest is not None else {}, self.asked)
        parts = snapshots.store.read(manifest, network.plan) if snapshots is not None and manifest is not None else {}
        if snapshots is not None:
            snapshots.lay_out(network.plan)
        for stage in network.plan.stages:
            for replica in range(stage.parallelism):
                core = network.new_core(stage, replica)
                core.start(resumed := parts.get((stage.name, replica)))
                if resumed is not None:
                    network.refill((stage.id, replica), resumed.rest["log"])
        for at, core in network.cores.items():
            resumed = parts.get((core.name, at[1]))
            if resumed is not None:
                network.refill_outbox(at, resumed.rest["outbox"])
        for at, core in network.cores.items():
            network.subscribe(at)
            network.tracker.apply(core.take_changes())
            network.begin(at)
        network.publish()

    def crash(self, failed: Collection[int] | None = None) -> None:
        """For tests: everything is lost, with all that is on its way; go on from the last whole snapshot. ``failed`` stages: only these."""
        self.raise_if_over()
        if self.snapshots is None:
            raise ConfigError(f"job {self.name!r} keeps no snapshots: give RunConfig(storage_path=...)")
        network = self.network
        may_live_on = failed is not None and network.gated and not self.snapshots.leader.is_ending  # the last snapshot is of all or none
        region = region_of(network.plan, failed) if failed is not None and may_live_on else ""
        while True:
            try:
                if isinstance(region, Region) and restart_upstream(network, self.snapshots, region):
                    return
                network.close()
                network.cores = {}
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
        self.raise_if_over()
        network = self.network
        items = network.ready.items
        try:
            if self.snapshots is not None and network.steps % LOOKS_EVERY_STEPS == 0:
                self.snapshots.look_at_clock()
            has_moved = self.rescaling is not None and self.rescaling.advance()
            while items:
                event = items[int(network.random.random() * len(items))]
                if self._perform(event):
                    network.steps += 1
                    return True
            if has_moved:  # a change of layout in a job that has nothing else to do
                network.steps += 1
                return True
        except Exception as error:
            if self._may_go_on(error):
                self.crash()
                network.steps += 1
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
        network = self.network
        if kind == "report":
            self._apply(at)
        elif kind == "view":
            network.deliver_view(at)
        elif kind == "batch":
            return self._consume(event)
        elif kind == "flush":
            network.ready.discard(event)
            network.move_out(at)
        elif kind == "source":
            return network.read_source(at, stops=self._stopping)
        elif kind in EVENTS_OF_CHANGES:
            assert self.rescaling is not None
            self.rescaling.perform(kind, at)
        elif kind == "input":
            return network.feed(at, keeps=self.snapshots is not None)
        else:
            assert self.snapshots is not None
            self.snapshots.perform(kind, at)
        return True

    def _consume(self, event: Any) -> bool:
        network, channel = self.network, event[1]
        edge = network.edges[channel[0]]
        at = (edge.target, channel[2])
        if network.held_up(at, event):
            return False
        into = (channel[0], channel[1])
        participant = self.snapshots.participants.get(at) if self.snapshots is not None else None
        if participant is not None and participant.blocks(into):
            network.align(at, event)
            return False
        waiting = network.channels[channel]
        time, batch = waiting.popleft()
        if not waiting:
            network.ready.discard(event)
        if time is None:
            self._on_mark(at, into, batch)
            return True
        if not edge.is_feedback:
            network.release((edge.source, channel[1]))
        if participant is not None and participant.logs(into):
            participant.log_batch(into, time, batch)
        receiver = network.cores[at] if self.rescaling is None else self.rescaling.receiver(at)
        receiver.receive(edge.id, time, batch)
        network.after(at)
        return True

    def _on_mark(self, at: Where, into: tuple[int, int], mark: Any) -> None:
        if isinstance(mark, Marker):
            assert self.rescaling is not None
            self.rescaling.on_marker(at, into, mark)
        else:
            assert self.snapshots is not None
            self.snapshots.on_barrier(at, into, mark)

    def _apply(self, at: Where) -> None:
        report = self.network.take_report(at)
        if isinstance(report, Fence):
            assert self.rescaling is not None
            self.rescaling.on_fence(at, report)
        else:
            self.network.tracker.apply(report)
            self.network.publish()

    # -- the handle ---------------------------------------------------------------------------
    def wait(self, timeout_s: float | None = None) -> Result:
        check_timeout(timeout_s, "wait(timeout_s)")
        if self._result is not None:
            return self._result
        self.raise_if_over()
        deadline_s = None if timeout_s is None else self.now_s() + timeout_s
        try:
            while self.step():
                if self.steps % LOOKS_EVERY_STEPS == 0 and self.snapshots is not None and only_a_snapshot_goes_on(self.network):
                    break
                if deadline_s is not None and self.steps % 64 == 0 and self.now_s() > deadline_s:
                    raise not_yet(self.name, timeout_s)
            if not self.network.tracker.is_complete():
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

    def raise_if_over(self) -> None:
        if self._state is JobState.CANCELLED:
            raise DataflowError(f"job {self.name!r} was cancelled: it has no results")
        if self._error is not None:
            raise self._error

    def _complete(self) -> None:
        receipts = self._finish(self.snapshots) if self.snapshots is not None else publish_sinks(self.network)
        result = result_of(self.network, self.snapshots, receipts, time.perf_counter() - self._began_s)
        self.network.close()
        self._state = JobState.COMPLETE
        self._result = result

    def _finish(self, snapshots: LocalSnapshots) -> dict[int, Any]:
        """Run until the last snapshot is taken; after a failure meanwhile that is after all of the rest has been done again."""
        while (manifest := snapshots.finish(is_moving=self.is_moving)) is None:
            if not self.step():
                raise ProtocolError("the last snapshot cannot complete: nothing can move")
        return snapshots.publish_finally(manifest)

    def _fail(self, error: BaseException) -> None:
        self._state = JobState.FAILED
        self._error = error
        self._abandon()

    def _abandon(self) -> None:
        for core in self.cores.values():
            core.abort_sinks()
        self.network.close()
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
        return progress_of(self._state, self.network, self.snapshots)

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
        self.raise_if_over()
        if self._state is JobState.COMPLETE:
            raise SnapshotError(f"job {self.name!r} is {self._state.value}: no savepoint can be taken")
        ticket = self.snapshots.ask_savepoint()
        while (path := self.snapshots.answered(ticket)) is None:
            if not self.step():
                raise ProtocolError("the savepoint cannot complete: nothing can move")
        return path

    def rescale(self, vertex: str | Mapping[str, int], replicas: int | None = None, *, timeout_s: float = 120.0) -> RescaleReport:
        wanted = replicas_wanted(vertex, replicas)
        arguments.number(timeout_s, "rescale(timeout_s)", zero=True, error=ConfigError)
        self.raise_if_over()
        if self._state is JobState.COMPLETE:
            raise RescaleRefused(f"rescale({wanted}): job {self.name!r} is {self._state.value}")
        return self._rescale_to(wanted, timeout_s)

    def start_rescale(self, wanted: Mapping[str, int], *, groups: int | None = None, timeout_s: float = math.inf) -> LocalRescale | None:
        """Begin a change of layout, as soon as no snapshot is under way; None: it is so already. Raises RescaleRefused.

        ``groups``: how many key-groups a step moves; None: all at once.
        """
        self.raise_if_over()
        if self.rescaling is not None and not self.rescaling.is_done:
            raise RescaleRefused("rescale(...): another change of layout is under way")
        options: dict[str, Any] = {"timeout_s": timeout_s, "groups": groups, "before": self.rescaling}
        change = LocalRescale(self.network, self.snapshots, wanted, now_s=self.now_s, **options)
        if change.refusal:
            raise RescaleRefused(change.refusal)
        if change.is_done:
            return None
        self.rescaling = change
        return change

    def _lay_out_as_asked(self) -> None:
        """A job that resumes from a snapshot with other replicas than it was taken with changes to them at once."""
        manifest = self.snapshots.store.manifest if self.snapshots is not None else None
        if manifest is not None and manifest.kind != "final":
            wanted = layout_steps.asked_anew(self.network.plan, manifest.notes, self.asked)
            change = self.start_rescale(wanted) if wanted else None
            if change is not None:
                change.is_unattended = True

    def _rescale_to(self, wanted: Mapping[str, int], timeout_s: float) -> RescaleReport:
        """Run until a change of layout is done; after a failure meanwhile it is begun again. One that is under way comes first."""
        layout_steps.wanted_replicas(self.network.plan, wanted)  # refused at once
        while self.rescaling is not None and not self.rescaling.is_done:
            self._step_change(self.rescaling)
        before = layout_steps.asked_of(self.network.plan)
        change = self.start_rescale(wanted, timeout_s=timeout_s)
        while change is not None and not change.is_done:
            self._step_change(change)
            if self.rescaling is not change:
                change = self.start_rescale(wanted, timeout_s=timeout_s)
        if change is None:
            return RescaleReport(before, layout_steps.asked_of(self.network.plan))
        if change.report is None:
            raise RescaleRefused(change.refusal or f"rescale({dict(wanted)}): job {self.name!r} is over")
        return change.report

    def _step_change(self, change: LocalRescale) -> None:
        if not self.step() and not change.is_done:
            raise InternalError(f"a change of layout of job {self.name!r} cannot go on\n{self.explain_stuck()}")

    def configure(self, **changes: Any) -> None:
        config = configured(self.config, changes)
        if self._state is not JobState.RUNNING:
            raise ConfigError(f"configure({changes}): job {self.name!r} is {self._state.value}")
        passed_over = not_changed_locally(changes)
        if passed_over:
            warnings.warn(passed_over, UserWarning, stacklevel=users_level())
        self.network.configure(config)

    def explain_stuck(self) -> str:
        change = self.rescaling.explain() if self.rescaling is not None else ""
        return "\n".join(filter(None, (self.network.explain(), change)))

    def check_invariants(self) -> None:  # for tests
        self.network.tracker.check_invariants()
