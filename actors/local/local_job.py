"""The local runtime: a whole dataflow in this process, in an order that follows from a seed.

It runs the workers and the progress worker of the Ray runtime on a bus in memory (``runtime.py``). Which of them moves next, and how far,
is drawn from a seeded generator, so the interleavings that a cluster could show can appear here, and the same seed shows the same one. By
default one worker holds a replica of each vertex, and what it hands to itself is not drawn: that is quick. Seconds (snapshots by interval,
timeouts) come from a clock that can be given: with one that counts steps those repeat exactly, too. It is Naiad's single-threaded worker
(SOSP 2013, 3.2), the embedded default for tests and notebooks, and the simulator.
"""

from __future__ import annotations

import datetime as dt
import math
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rayad.actors.coordinator.stored.snapshots import CoordinatorSnapshots
from rayad.actors.inputs.epoch_ticks import EpochTicks, lengths_of
from rayad.actors.inputs.job_input import JobInput
from rayad.actors.job import Job, JobEvent, JobProgress, JobState, JobStatistics, JobStatus, Probe, Result, SourcesOfJob, not_yet
from rayad.actors.lead import job_leader as lead
from rayad.actors.lead import layouts
from rayad.actors.lead.layouts import RescaleReport, replicas_wanted
from rayad.actors.lead.placing import placed
from rayad.actors.local.change import LocalRescale
from rayad.actors.local.handles import LocalInput, LocalProbe, StillOpen, cannot_move
from rayad.actors.local.results import explain, news_of, progress_of, result_of, seen_of, statistics_of, status_of
from rayad.actors.local.runtime import LocalRuntime
from rayad.actors.local.tables import LocalTables
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.process import unwaited
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.places import Places
from rayad.actors.replica.recent import News
from rayad.actors.status.progress_shown import Showing, showing
from rayad.actors.status.taking import StatusTaker
from rayad.actors.status.updates import ReadSoFar, Updates
from rayad.actors.store.job_store import JobStore
from rayad.dataflow.config import RunConfig, ScalingConfig, check_timeout, configured
from rayad.dataflow.plan import Plan
from rayad.dataflow.records.event_times import EPOCH_UTC
from rayad.dataflow.records.users_line import users_level
from rayad.dataflow.without_effect import not_changed_locally
from rayad.progress import (
    ConfigError,
    DataflowError,
    InternalError,
    JobTracker,
    ProtocolError,
    RayadError,
    RescaleRefused,
    SnapshotError,
    arguments,
    show,
)

if TYPE_CHECKING:
    from rayad.actors.local.page import LocalPage, Looked


class Program(Protocol):
    """What can be planned: an ``rd.Dataflow``, whose module names this one for the type of ``submit()``."""

    name: str

    def plan(self, *, scaling: ScalingConfig | None = None, key_groups: int | None = None, fingerprints: bool = False) -> Plan:
        """Compile to stages."""
        ...


class LocalJob(Job):
    """A job of the local runtime: it runs step by step, in the thread that calls ``wait()``, ``step()`` or another method."""

    runs_alone = False
    _calls_of_runtime = ("crash", "step")
    is_watched = False

    def __init__(
        self,
        flow: Program,
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
        self._clock = clock
        self._skipped_s = 0.0
        self.runtime = self._made(
            plan,
            run,
            seed=seed,
            store=store,
            now_s=lambda: self.now_s(),
            pause=lambda seconds: self.pause(seconds),
            moment=self._moment,
            check_records=check_records,
        )
        self.runtime.on_effect = self._on_effect
        self._taker = StatusTaker(self.name)
        self._statistics: JobStatistics | None = None
        self._result: Result | None = None
        self._began_s = self.now_s()
        self._inputs: dict[str, LocalInput] = {}
        self._ticks = EpochTicks(lengths_of(plan), self._began_s)
        self._page: LocalPage | None = None
        self._sources = SourcesOfJob(plan)
        try:
            self.runtime.begin()
            self.raise_if_over()
            self._sources.started(self, run)
        except BaseException as error:
            self._fail(error)
            raise

    def _made(self, plan: Plan, run: RunConfig, **options: Any) -> LocalRuntime:
        """The runtime: workers hold a replica of each vertex, unless some are to be recovered without the others."""
        places = Places() if run.failures.recovery == "upstream" else placed(plan, "workers")
        return LocalRuntime(self.name, plan, run, places, **options)

    def __del__(self) -> None:
        unwaited.OF_THIS_PROCESS.tell(self)
        page: LocalPage | None = getattr(self, "_page", None)  # an error in __init__ may have come before
        if page is not None:
            page.close()

    def unwaited(self) -> str:
        """See :mod:`rayad.actors.process.unwaited`."""
        if self.runtime.leader.is_over:
            return ""
        return "was dropped before it was complete: in the local runtime submit() only begins a job; call wait() on the handle, or run()"

    # -- what there is -------------------------------------------------------------------
    @property
    def seed(self) -> int:
        """Of the order."""
        return self.runtime.seed

    @property
    def plan(self) -> Plan:
        """The dataflow in its current layout."""
        return self.runtime.plan

    @property
    def snapshots(self) -> CoordinatorSnapshots | None:
        """Of the job, if it keeps any."""
        return self.runtime.snapshots

    @property
    def rescaling(self) -> LocalRescale | None:
        """The change of layout that was asked for last."""
        return self.runtime.rescaling

    @property
    def cores(self) -> dict[ReplicaId, ReplicaCore]:
        """The replicas."""
        return dict(sorted((host.place.at, host.core) for host in self.runtime.processes.hosts()))

    @property
    def tracker(self) -> JobTracker:
        """The progress core."""
        return self.runtime.processes.progress.tracker

    @property
    def steps(self) -> int:
        """How many events the job has processed."""
        return self.runtime.steps

    @property
    def config(self) -> RunConfig:
        """Of the run."""
        return self.runtime.config

    @property
    def state(self) -> JobState:
        return self.runtime.state

    # -- life ----------------------------------------------------------------------------
    def _on_effect(self, effect: lead.Effect) -> None:
        """The leader of the job has decided this, and it is about to be carried out."""
        match effect:
            case lead.StopReading():
                for name in self.plan.inputs:
                    self.input(name).close()
            case lead.StopAll():
                self._statistics = statistics_of(self.runtime, self.now_s() - self._began_s)
            case lead.End():
                self._sources.ended()
                if self._page is not None:
                    self._page.tell(self._looked())

    def raise_if_over(self) -> None:
        """Raise the error that ended the job."""
        self.runtime.raise_if_over()

    def crash(self, failed: Collection[int] | None = None) -> None:
        """For tests: lose everything in memory and in flight, and resume from the last complete snapshot. ``failed`` restricts it to
        these stages."""
        self.raise_if_over()
        if self.snapshots is None:
            raise ConfigError(f"job {self.name!r} keeps no snapshots: give RunConfig(storage_path=...)")
        self.runtime.lose(failed)
        self.raise_if_over()

    def now_s(self) -> float:
        """The clock, in seconds, that measures intervals and timeouts: the only thing here that does not follow from the seed."""
        return self._clock() + self._skipped_s

    def _moment(self) -> dt.datetime:
        if self._clock is time.monotonic:
            return dt.datetime.now(dt.UTC)
        return EPOCH_UTC + dt.timedelta(seconds=self.now_s())

    def pause(self, seconds: float) -> None:
        """Let ``seconds`` pass: wait, or advance the clock that was given."""
        if self._clock is time.monotonic:
            time.sleep(seconds)
        else:
            self._skipped_s += seconds

    # -- one step -----------------------------------------------------------------------
    def step(self) -> bool:
        """Process one event, drawn from the seed: frames arrive at a process, or a worker takes a turn, which ends after any activation.

        Returns False when nothing can move. An error ends the job, whoever called.
        """
        self.raise_if_over()
        self._tick()
        if self._page is not None and self._page.is_due:
            self._page.tell(self._looked())
        return self.runtime.step()

    def _tick(self) -> None:
        """Advance the inputs whose epochs follow the clock."""
        if self._ticks.due_in_s(now_s := self.now_s()) == 0.0:
            for name in self._ticks.take_due(now_s):
                if not self.input(name).tick():
                    self._ticks.drop(name)

    def step_or_pause(self, most_s: float = math.inf) -> bool:
        """Process one event, or, if nothing can move, let time pass until an input advances by itself, at most ``most_s`` seconds.

        Returns False when nothing will move however long one waits.
        """
        if self.step():
            return True
        due_in_s = self._ticks.due_in_s(self.now_s())
        if due_in_s is None:
            return False
        self.pause(min(due_in_s, most_s))
        return True

    # -- the handle ---------------------------------------------------------------------------
    def wait(self, timeout_s: float | None = None, *, progress: bool | None = False) -> Result:
        check_timeout(timeout_s, "wait(timeout_s)")
        with showing(self.name, progress, "wait", has_clock=False) as shown:
            if self._result is None:
                self._wait(timeout_s, shown)
                assert self._statistics is not None
                self._result = result_of(self.runtime, self._statistics)
            if shown is not None:
                shown.complete(self._records_read(self._result.statistics))
            return self._result

    def _wait(self, timeout_s: float | None, shown: Showing | None) -> None:
        self.raise_if_over()
        deadline_s = None if timeout_s is None else self.now_s() + timeout_s
        seen = StatusTaker(self.name)  # its own, so that status() tells others the same as without it
        runtime = self.runtime
        try:
            if any(not self.input(name).closed for name in lengths_of(self.plan)):
                raise cannot_move(self)  # epochs would go on and on
            if runtime.leader.is_publishing:
                runtime.publish()  # somebody has interrupted it
            runtime.let_end()
            while not runtime.leader.is_over:
                if not self.step() and not runtime.leader.is_over:
                    raise cannot_move(self)
                if shown is not None and shown.is_due:
                    shown.look(lambda: (status_of(runtime, seen), ""))
                if deadline_s is not None and self.now_s() > deadline_s:
                    raise not_yet(self.name, timeout_s)
            self.raise_if_over()
        except (TimeoutError, KeyboardInterrupt, StillOpen):
            runtime.hold()
            raise
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """The job ends with this error, if it is not over."""
        self.runtime.fail(error)

    def cancel(self) -> None:
        self.runtime.tell(lead.Cancel())

    def fail(self, error: RayadError) -> None:
        if not self.runtime.leader.is_over:
            self._fail(error)

    def stop(self, *, drain: bool = True, timeout_s: float | None = None) -> Result:
        check_timeout(timeout_s, "stop(timeout_s)")
        if not arguments.flag(drain, "stop(drain)"):
            self.cancel()
            return Result({}, JobStatistics())
        self.runtime.tell(lead.Stop())
        return self.wait(timeout_s)

    def progress(self) -> JobProgress:
        return progress_of(self.runtime)

    def journal(self) -> tuple[JobEvent, ...]:
        return self.runtime.journal.events

    def status(self) -> JobStatus:
        return status_of(self.runtime, self._taker)

    def page(self, *, host: str = "127.0.0.1", port: int = 0, steps: bool = False, state: bool = False) -> str:
        if arguments.flag(steps, "page(steps)"):
            raise ConfigError(
                f"page(steps=True): job {self.name!r} is of the local runtime, and moves in your own thread: call savepoint(), rescale() "
                "or stop() there"
            )
        if self.runtime.leader.is_over:
            raise DataflowError(f"page(): job {self.name!r} is {self.state.value}; its journal() tells what happened to it")
        asked = (host, port, arguments.flag(state, "page(state)"))
        if self._page is None or self._page.asked != asked:
            from rayad.actors.local.page import LocalPage  # with it comes a web server, which most jobs do without

            page = LocalPage(self.name, self.config, self._looked(), self._began_s, *asked)
            if self._page is not None:
                self._page.close()
            self._page = page
        return self._page.url

    def _looked(self) -> Looked:
        """How the job is now, for its page."""
        from rayad.actors.local.page import Looked

        return Looked(self.plan, seen_of(self.runtime), self.journal(), self.now_s())

    def input(self, name: str) -> JobInput:
        stage = self._known(name, "live input", self.plan.inputs)
        if name not in self._inputs:
            self._inputs[name] = LocalInput(name, self, stage)
        return self._inputs[name]

    def _readable(self) -> LocalTables:
        return LocalTables(self)

    def _updates(self, name: str) -> Updates:
        def ask(seen: ReadSoFar) -> dict[str, News]:
            return news_of(self.runtime, name, seen)

        return Updates(ask, lambda: self.runtime.leader.is_over, self._step_for_updates, self.wait)

    def _step_for_updates(self) -> bool:
        """One step, the last of which publishes the results; False where nothing will move before something is sent."""
        if self.runtime.leader.is_over:
            return True
        if not self.runtime.is_done:
            return self.step_or_pause() or self.runtime.leader.is_over
        self.wait()  # ends with the steps that are left: nothing is read any more
        return True

    def probe(self, name: str) -> Probe:
        return LocalProbe(name, self, self._known(name, "probe", self.plan.probes))

    def savepoint(self, *, timeout_s: float | None = None) -> str:
        check_timeout(timeout_s, "savepoint(timeout_s)")
        if self.snapshots is None:
            raise ConfigError(f"job {self.name!r} keeps no snapshots: give RunConfig(storage_path=...)")
        self.raise_if_over()
        if self.state is JobState.COMPLETE:
            raise SnapshotError(f"job {self.name!r} is {self.state.value}: no savepoint can be taken")
        taken = self.snapshots.ask_savepoint()
        while not taken.done():
            if not self.step() and not taken.done():
                raise ProtocolError("the savepoint cannot complete: nothing can move")
        return taken.result(timeout=0)

    def rescale(self, vertex: str | Mapping[str, int], replicas: int | None = None, *, timeout_s: float = 120.0) -> RescaleReport:
        wanted = replicas_wanted(vertex, replicas)
        arguments.number(timeout_s, "rescale(timeout_s)", zero=True, error=ConfigError)
        self.raise_if_over()
        if self.state is JobState.COMPLETE:
            raise RescaleRefused(f"rescale({wanted}): job {self.name!r} is {self.state.value}")
        return self._rescale_to(wanted, timeout_s)

    def start_rescale(self, wanted: Mapping[str, int], *, groups: int | None = None, timeout_s: float = math.inf) -> LocalRescale | None:
        """Begin a change of layout as soon as no snapshot is under way. Returns None if the layout is already as wanted.

        ``groups``: how many key-groups a step moves; None: all at once. Raises RescaleRefused.
        """
        return self.runtime.start_rescale(wanted, groups=groups, timeout_s=timeout_s)

    def _rescale_to(self, wanted: Mapping[str, int], timeout_s: float) -> RescaleReport:
        """Run until a change of layout is done; one that is under way comes first."""
        layouts.wanted_replicas(self.plan, wanted)  # refused at once
        if self.rescaling is not None:
            self._step_until(lambda: self.rescaling is None or self.rescaling.is_done, "a change of layout")
        change = self.start_rescale(wanted, timeout_s=timeout_s)
        if change is None:
            now = layouts.asked_of(self.plan)
            return RescaleReport(now, now)
        self._step_until(lambda: change.is_done, "a change of layout")
        if change.report is None:
            raise RescaleRefused(change.refusal)
        return change.report

    def _step_until(self, is_over: Callable[[], bool], what: str) -> None:
        while not is_over():
            if not self.step() and not is_over():
                raise InternalError(f"{what} of job {self.name!r} cannot go on\n{self.explain_stuck()}")

    def configure(self, **changes: Any) -> None:
        configured(self.config, changes)
        if self.state is not JobState.RUNNING:
            raise ConfigError(f"configure({changes}): job {self.name!r} is {self.state.value}")
        passed_over = not_changed_locally(changes)
        if passed_over:
            warnings.warn(passed_over, UserWarning, stacklevel=users_level())
        wish = self.runtime.start_configure(changes)
        self._step_until(lambda: wish.is_over, "a change of parameters")
        if wish.error is not None:
            raise wish.error

    def explain_stuck(self) -> str:
        return explain(self.runtime)

    def check_invariants(self) -> None:  # for tests
        self.tracker.check_invariants()
        for host in self.runtime.processes.hosts():
            for window in host.place.sender.windows.values():
                window.check_invariants()
