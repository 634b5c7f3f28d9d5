"""The local runtime: a whole dataflow in this process, in an order that follows from a seed.

It drives the same replica and progress cores as the Ray runtime and joins them with queues (``network.py``); which queue moves next is
drawn from a seeded generator, so every interleaving that a cluster could show can appear here, and the same seed shows the same one.
Seconds (snapshots by interval, timeouts) come from a clock that can be given: with one that counts steps those repeat exactly, too. It is
Naiad's single-threaded scheduler (SOSP 2013, 3.2), the embedded default for tests and notebooks, and the simulator.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rayad.actors.inputs.epoch_ticks import EpochTicks, lengths_of
from rayad.actors.inputs.job_input import JobInput
from rayad.actors.job import Job, JobEvent, JobProgress, JobState, JobStatistics, JobStatus, Probe, Result, SourcesOfJob, not_yet
from rayad.actors.lead import job_leader as lead
from rayad.actors.lead import layouts, snapshot_leader
from rayad.actors.lead import recovery_leader as recovery
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.job_leader import JobLeader, drive
from rayad.actors.lead.layouts import RescaleReport, replicas_wanted
from rayad.actors.local.handles import LocalInput, LocalProbe, StillOpen, cannot_move
from rayad.actors.local.network import Marker, Network, Where
from rayad.actors.local.recovery import OF_CHANNELS, OF_THE_COORDINATOR, Build, LocalRecovery, names_of_stages
from rayad.actors.local.rescaling import EVENTS as EVENTS_OF_CHANGES
from rayad.actors.local.rescaling import Fence, LocalRescale
from rayad.actors.local.results import (
    news_of,
    only_a_snapshot_goes_on,
    progress_of,
    publish_sinks,
    result_of,
    seen_of,
    status_of,
)
from rayad.actors.local.snapshots import LocalSnapshots
from rayad.actors.plane.protocol import replica_name
from rayad.actors.process import unwaited
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.recent import News
from rayad.actors.replica.user_errors import restarts_of, sign_of
from rayad.actors.status.journal import Journal
from rayad.actors.status.progress_shown import Showing, showing
from rayad.actors.status.taking import StatusTaker
from rayad.actors.status.updates import ReadSoFar, Updates
from rayad.actors.store.job_store import JobStore, NothingWhole
from rayad.dataflow.config import RunConfig, ScalingConfig, check_timeout, configured, not_changed_locally
from rayad.dataflow.plan import Plan
from rayad.dataflow.records.event_times import EPOCH_UTC
from rayad.dataflow.records.users_line import users_level
from rayad.progress import (
    ConfigError,
    DataflowError,
    InternalError,
    ProtocolError,
    RayadError,
    RescaleRefused,
    SnapshotError,
    arguments,
    say,
    show,
)
from rayad.snapshots.manifest import Manifest
from rayad.snapshots.store import StoreAwayError, Superseded

if TYPE_CHECKING:
    from rayad.actors.local.page import LocalPage, Looked

LOOKS_EVERY_STEPS = 16
"""How often the clock is looked at for snapshots."""


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
        self.seed = seed
        self.asked = layouts.asked_of(plan)
        self.network = Network(plan, run, random.Random(seed), check_records=check_records, moment=self._moment)
        self.snapshots: LocalSnapshots | None = None
        self.rescaling: LocalRescale | None = None
        self._clock = clock
        self._skipped_s = 0.0
        self._taker = StatusTaker(self.name)
        self._journal = Journal(self.now_s)
        self._store = store
        self._leader = JobLeader(
            plan, run, restarts_of(run.failures, random.Random(seed)), keeps_snapshots=store is not None or run.keeps_snapshots
        )
        self._recovery = LocalRecovery(self.network, random.Random(f"recoveries {seed}"))
        self._published: list[Manifest] = []  # since the leader was told
        self._errors: dict[Failure, BaseException] = {}  # those that may still be raised
        self._error: BaseException | None = None
        self._result: Result | None = None
        self._began_s = self.now_s()
        self._inputs: dict[str, LocalInput] = {}
        self._ticks = EpochTicks(lengths_of(plan), self._began_s)
        self._stopping = False
        self._page: LocalPage | None = None
        self._sources = SourcesOfJob(plan)
        try:
            self._happen(recovery.Begin())
            self.raise_if_over()
            self._lay_out_as_asked()
            self._sources.started(self, run)
        except BaseException as error:
            self._fail(error)
            raise

    def __del__(self) -> None:
        unwaited.OF_THIS_PROCESS.tell(self)
        page: LocalPage | None = getattr(self, "_page", None)  # an error in __init__ may have come before
        if page is not None:
            page.close()

    def unwaited(self) -> str:
        """See :mod:`rayad.actors.process.unwaited`."""
        if self._leader.is_over:
            return ""
        return "was dropped before it was complete: in the local runtime submit() only begins a job; call wait() on the handle, or run()"

    # -- what there is -------------------------------------------------------------------
    @property
    def plan(self) -> Plan:
        """The dataflow in its current layout."""
        return self.network.plan

    @property
    def cores(self) -> dict[Where, ReplicaCore]:
        """The replicas."""
        return self.network.cores

    @property
    def steps(self) -> int:
        """How many events the job has processed."""
        return self.network.steps

    @property
    def config(self) -> RunConfig:
        """Of the run."""
        return self.network.config

    @property
    def is_moving(self) -> bool:
        """Whether a change of layout is under way that will end before the job does."""
        return self.rescaling is not None and self.rescaling.holds_job

    # -- life: what the leader decides -----------------------------------------------------
    def _tell(self, event: lead.Event) -> None:
        """Something has happened: do what follows."""
        drive(self._leader, event, self.now_s, self._carry_out, self._failed)
        self._leader.check_invariants()
        told = self._leader.recovery.remembered
        self._errors = {failure: error for failure, error in self._errors.items() if failure in told}
        if self._page is not None and self._leader.is_over:
            self._page.tell(self._looked())

    def _happen(self, event: lead.Event) -> None:
        """Tell the leader of an event, and run a start or recovery that follows to its end."""
        self._tell(event)
        leader = self._leader.recovery
        while not self._leader.is_over and not self._leader.is_publishing and (leader.has_failed or not leader.is_running):
            self._step_recovery()
            self._tell(recovery.AllReported())  # here one thing happens at a time, so all that could be reported has been
            self._tell(recovery.Tick())

    def _step_recovery(self) -> None:
        """Something is built, an answer arrives, or time passes."""
        leader, under_way = self._leader.recovery, self._recovery.under_way
        if leader.has_failed:
            return
        if not under_way:
            due_in_s = leader.due_in_s(self.now_s())
            if due_in_s is None or leader.waiting:
                self._tell(
                    self._failed(InternalError(f"a recovery cannot go on: {leader.phase.value}: {sorted(leader.waiting)}"), final=True)
                )
            else:
                self.pause(due_in_s)
            return
        item = self._recovery.draw()
        if not isinstance(item, Build):
            self._tell(item)
            return
        try:
            self._recovery.build(item.name)
        except Exception as error:
            self._tell(self._failed(error, item.name, item.incarnation))
        else:
            self._recovery.answer([recovery.Listens(item.name, item.incarnation)])

    def _failed(
        self, error: BaseException, name: str | None = None, incarnation: int | None = None, *, final: bool = False
    ) -> recovery.Failed:
        """An error as an event."""
        leader = self._leader.recovery
        if self._leader.is_over and self._error is None:
            self._error = error  # of cleaning up
        if incarnation is None:
            incarnation = leader.incarnation if name is None else leader.incarnations.get(name, leader.incarnation)
        is_final = final or self._is_final(error)
        return recovery.Failed(name, incarnation, self._remember(error, name or "coordinator"), is_final=is_final)

    def _remember(self, error: BaseException, who: str) -> Failure:
        """An error as a value; it can be raised as it is while the leader may still tell it."""
        failure = Failure(who, f"{type(error).__name__}: {say(error)}", "", None, False, sign_of(error), is_raised=True)
        self._errors[failure] = error
        return failure

    def _is_final(self, error: BaseException) -> bool:
        """Whether to try again does not help."""
        return isinstance(error, (Superseded, NothingWhole)) or not isinstance(error, Exception)

    def _carry_out(self, effect: lead.Effect) -> Iterable[lead.Event] | None:
        """One effect; gives the answers that are there at once."""
        self._journal.on_effect(effect)
        if isinstance(effect, lead.End):
            self._sources.ended()
        match effect:
            case recovery.StopChange():
                self.rescaling = None
            case recovery.Survived():
                assert self.snapshots is not None
                self.snapshots.failures = self._leader.recovery.failures
            case recovery.Release(names):
                self._recovery.release(names)
            case recovery.ReadStore():
                return self._read_store(effect)
            case recovery.Listen():
                self._recovery.listen(effect)
            case recovery.RollBack():
                self._recovery.roll_back(effect)
            case recovery.Run():
                self._recovery.run(effect)
            case recovery.Running(_, restart_s):
                if restart_s is not None and self.snapshots is not None:
                    self.snapshots.leader.on_restarted(restart_s)
            case lead.StopReading():
                self._stopping = True
                for name in self.plan.inputs:
                    self.input(name).close()
            case lead.TakeLastSnapshot():
                assert self.snapshots is not None
                self.snapshots.finish()
                return self._take_published()
            case lead.Publish():
                return [self._publish()]
            case lead.StopAll(state):
                if state is not JobState.COMPLETE:
                    for core in self.cores.values():
                        core.abort_sinks()
                self.network.close()
            case lead.AbortSinks():
                for sink in self.plan.sinks:
                    try:
                        sink.sink.abort()
                    except Exception:  # it must not raise; what ended the job matters more
                        continue
            case lead.End(JobState.FAILED, failure, why) if failure is not None:
                self._error = self._errors[failure]
                if why:
                    self._error.add_note(f"job {self.name!r}: {why}")
        return None  # what is left has nothing to do here: nobody is started in a process, or told in a log

    def _read_store(self, effect: recovery.ReadStore) -> list[lead.Event]:
        """What to resume from, and its layout."""
        network, snapshots = self.network, self.snapshots
        void, all_because = 0, ""
        try:
            if snapshots is None and self._leader.recovery.keeps_snapshots:
                store = self._store or JobStore(self.name, network.plan, self.config)
                snapshots = self.snapshots = self._recovery.snapshots = LocalSnapshots(self.name, network, store, self.asked, self.now_s)
                snapshots.on_published = self._published.append
                snapshots.journal = self._journal
            elif snapshots is not None and effect.region is not None:
                void, all_because = snapshots.recover_upstream(effect.region, effect.incarnation)
            elif snapshots is not None:
                snapshots.recover(effect.incarnation)
        except StoreAwayError as error:
            return [recovery.StoreAway(effect.incarnation, self._remember(error, "coordinator"))]
        if effect.region is None:
            network.clear()
            manifest = snapshots.store.manifest if snapshots is not None else None
            network.plan = layouts.restored(network.plan, manifest.notes if manifest is not None else {}, self.asked)
            if snapshots is not None:
                snapshots.lay_out(network.plan)
            self._leader.recovery.lay_out(network.plan)
        self._recovery.answer([recovery.StoreRead(effect.incarnation, void, all_because)])
        return []

    def _take_published(self) -> list[lead.Event]:
        """The snapshots that have been published since this was asked."""
        published, self._published[:] = list(self._published), []
        return [recovery.SnapshotPublished(is_last=manifest.kind == "final") for manifest in published]

    def _publish(self) -> lead.ResultsPublished | lead.NotPublished:
        """Let all sinks publish."""
        snapshots = self.snapshots
        try:
            if snapshots is not None:
                assert snapshots.store.manifest is not None
                receipts = snapshots.publish_finally(snapshots.leader.final or snapshots.store.manifest)
            else:
                receipts = publish_sinks(self.network)
            self._result = result_of(self.network, snapshots, receipts, self.now_s() - self._began_s)
        except Exception as error:
            return lead.NotPublished(self._remember(error, "coordinator"))
        return lead.ResultsPublished()

    def crash(self, failed: Collection[int] | None = None) -> None:
        """For tests: lose everything in memory and in flight, and resume from the last complete snapshot. ``failed`` restricts it to
        these stages."""
        self.raise_if_over()
        if self.snapshots is None:
            raise ConfigError(f"job {self.name!r} keeps no snapshots: give RunConfig(storage_path=...)")
        self._happen(recovery.Lost(names_of_stages(self.plan, failed) if failed is not None else None))
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

    @property
    def state(self) -> JobState:
        return self._leader.state

    # -- one step -----------------------------------------------------------------------
    def step(self) -> bool:
        """Process one event, drawn from the seed: a batch is consumed, a source read, a report applied or a view delivered.

        Returns False when nothing can move. An error ends the job, whoever called.
        """
        self.raise_if_over()
        network = self.network
        self._tick()
        if self._page is not None and self._page.is_due:
            self._page.tell(self._looked())
        items = network.ready.items
        event: Any = None
        try:
            if self.snapshots is not None and network.steps % LOOKS_EVERY_STEPS == 0:
                self.snapshots.look_at_clock()
            has_moved = self.rescaling is not None and self.rescaling.advance()
            while items:
                event = items[int(network.random.random() * len(items))]
                if self._perform(event):
                    if self._published:
                        for published in self._take_published():
                            self._tell(published)
                        self.raise_if_over()
                    network.steps += 1
                    return True
            if has_moved:  # a change of layout in a job that has nothing else to do
                network.steps += 1
                return True
        except Exception as error:
            self._happen(self._failed(error, self._whose(event)))
            self.raise_if_over()
            network.steps += 1
            return True
        return False

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

    def _whose(self, event: Any) -> str | None:
        """The replica that an event happens at; None: the coordinator or the progress core, or nobody has to know."""
        if event is None or event[0] in ("report", *OF_THE_COORDINATOR, *EVENTS_OF_CHANGES) or not self.network.gated:
            return None
        kind, at = event
        if kind not in OF_CHANNELS:
            return replica_name(*at)
        edge = self.network.edges[at[0]]
        return replica_name(edge.source, at[1]) if kind == "credit" else replica_name(edge.target, at[2])

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
        elif kind == "loop":
            return self._consume_feedback(event)
        elif kind == "credit":
            network.deliver_credit(at)
        elif kind == "drain":
            network.drain(at)
        elif kind == "flush":
            network.ready.discard(event)
            network.move_out(at)
        elif kind == "source":
            return network.read_source(at, stops=self._stopping)
        elif kind in EVENTS_OF_CHANGES:
            assert self.rescaling is not None
            self.rescaling.perform(kind, at)
        elif kind == "input":
            is_fed = network.feed(at, keeps=self.snapshots is not None)
            while network.saves_wanted and self.snapshots is not None:
                self.snapshots.tell(snapshot_leader.SnapshotWanted(*network.saves_wanted.pop()))
            return is_fed
        else:
            assert self.snapshots is not None
            self.snapshots.perform(kind, at)
        return True

    def _consume(self, event: Any) -> bool:
        network, channel = self.network, event[1]
        edge = network.edges[channel[0]]
        if edge.is_feedback:
            network.arrive(channel)
            return True
        at = (edge.target, channel[2])
        if network.held_up(at, event):
            return False
        into = (channel[0], channel[1])
        participant = self.snapshots.participants.get(at) if self.snapshots is not None else None
        if participant is not None and participant.blocks(into):
            network.align(at, event)
            return False
        time, batch, size_bytes = network.take(channel)
        if time is None:
            self._on_mark(at, into, batch)
            return True
        if participant is not None and participant.logs(into):
            participant.log_batch(into, time, batch)
        receiver = network.cores[at] if self.rescaling is None else self.rescaling.receiver(at)
        receiver.receive(edge.id, time, batch, network.token(channel, size_bytes))
        network.after(at)
        return True

    def _consume_feedback(self, event: Any) -> bool:
        """The next of what came round a loop."""
        network, at = self.network, event[1]
        if network.held_up(at, event):
            return False
        feedback = network.ends[at].feedback
        if not feedback.has_next():  # what is next waits for a barrier
            network.ready.discard(event)
            return False
        entry = edge, source, time, batch = feedback.pop()
        mark = network.thawed_mark(batch) if time is None else None
        participant = self.snapshots.participants.get(at) if self.snapshots is not None else None
        if participant is not None and participant.blocks((edge, source)) and not isinstance(mark, Marker):
            feedback.block(entry)
            network.ready.discard(event)
            return False
        if not feedback.has_next():
            network.ready.discard(event)
        if time is None:
            self._on_mark(at, (edge, source), mark)
            return True
        if participant is not None and participant.logs((edge, source)):
            participant.log_batch((edge, source), time, batch)
        receiver = network.cores[at] if self.rescaling is None else self.rescaling.receiver(at)
        receiver.receive(edge, time, batch)
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
    def wait(self, timeout_s: float | None = None, *, progress: bool | None = False) -> Result:
        check_timeout(timeout_s, "wait(timeout_s)")
        with showing(self.name, progress, "wait", has_clock=False) as shown:
            if shown is not None:
                shown.watch()
            result = self._result if self._result is not None else self._wait(timeout_s, shown)
            if shown is not None:
                shown.complete(self._records_read(result.statistics))
            return result

    def _wait(self, timeout_s: float | None, shown: Showing | None) -> Result:
        self.raise_if_over()
        deadline_s = None if timeout_s is None else self.now_s() + timeout_s
        seen = StatusTaker(self.name)  # its own, so that status() tells others the same as without it
        network = self.network
        try:
            if any(not self.input(name).closed for name in lengths_of(self.plan)):
                raise cannot_move(self)  # epochs would go on and on
            while self.step():
                if shown is not None and shown.is_due:
                    shown.look(lambda: (self._status(seen), ""))
                if self.snapshots is not None and network.steps % LOOKS_EVERY_STEPS == 0 and only_a_snapshot_goes_on(network):
                    break
                if deadline_s is not None and network.steps % 64 == 0 and self.now_s() > deadline_s:
                    raise not_yet(self.name, timeout_s)
            if not self.network.tracker.is_complete():
                raise cannot_move(self)
            self._complete()
        except (TimeoutError, KeyboardInterrupt):
            raise
        except BaseException as error:
            if not isinstance(error, StillOpen):
                self._fail(error)
            raise
        assert self._result is not None
        return self._result

    def raise_if_over(self) -> None:
        if self.state is JobState.CANCELLED:
            raise DataflowError(f"job {self.name!r} was cancelled: it has no results")
        if self._error is not None:
            raise self._error

    def _complete(self) -> None:
        """Run until the results are published; after a failure meanwhile that is after all of the rest has been done again."""
        if self._leader.is_publishing:
            self._tell(self._publish())  # somebody has interrupted it
        while self._result is None:
            if self.network.tracker.is_complete() and not self.is_moving:
                self._happen(lead.AllEnded())
                self.raise_if_over()
            if self._result is None and not self.step():
                raise ProtocolError("the last snapshot cannot complete: nothing can move")

    def _fail(self, error: BaseException) -> None:
        """The job ends with this error, if it is not over."""
        self._tell(self._failed(error, final=True))

    def cancel(self) -> None:
        self._tell(lead.Cancel())

    def fail(self, error: RayadError) -> None:
        if not self._leader.is_over:
            self._fail(error)

    def stop(self, *, drain: bool = True, timeout_s: float | None = None) -> Result:
        check_timeout(timeout_s, "stop(timeout_s)")
        if not arguments.flag(drain, "stop(drain)"):
            self.cancel()
            return Result({}, JobStatistics())
        self._tell(lead.Stop())
        return self.wait(timeout_s)

    def progress(self) -> JobProgress:
        return progress_of(self.state, self.network, self.snapshots)

    def journal(self) -> tuple[JobEvent, ...]:
        return self._journal.events

    def status(self) -> JobStatus:
        return self._status(self._taker)

    def _status(self, taker: StatusTaker) -> JobStatus:
        return status_of(self.name, self.state, self.network, self.snapshots, taker, self._journal.noted)

    def page(self, *, host: str = "127.0.0.1", port: int = 0, steps: bool = False, state: bool = False) -> str:
        if arguments.flag(steps, "page(steps)"):
            raise ConfigError(
                f"page(steps=True): job {self.name!r} is of the local runtime, and moves in your own thread: call savepoint(), rescale() "
                "or stop() there"
            )
        if self._leader.is_over:
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

        seen = seen_of(self.state, self.network, self.snapshots, self._journal.noted)
        return Looked(self.plan, seen, self._journal.events, self.now_s())

    def input(self, name: str) -> JobInput:
        stage = self._known(name, "live input", self.plan.inputs)
        if name not in self._inputs:
            self._inputs[name] = LocalInput(name, self, (stage, 0))
        return self._inputs[name]

    def _updates(self, name: str) -> Updates:
        def ask(seen: ReadSoFar) -> dict[str, News]:
            return news_of(self.network, name, seen)

        return Updates(ask, lambda: self._leader.is_over, self._step_for_updates, self.wait)

    def _step_for_updates(self) -> bool:
        """One step, the last of which publishes the results; False where nothing will move before something is sent."""
        if self._leader.is_over:
            return True
        if not self.network.tracker.is_complete():
            return self.step_or_pause() or self._leader.is_over
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
        ticket = self.snapshots.ask_savepoint()
        while (path := self.snapshots.answered(ticket)) is None:
            if not self.step():
                raise ProtocolError("the savepoint cannot complete: nothing can move")
        return path

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
            wanted = layouts.asked_anew(self.network.plan, manifest.notes, self.asked)
            change = self.start_rescale(wanted) if wanted else None
            if change is not None:
                change.is_unattended = True

    def _rescale_to(self, wanted: Mapping[str, int], timeout_s: float) -> RescaleReport:
        """Run until a change of layout is done; after a failure meanwhile it is begun again. One that is under way comes first."""
        layouts.wanted_replicas(self.network.plan, wanted)  # refused at once
        while self.rescaling is not None and not self.rescaling.is_done:
            self._step_change(self.rescaling)
        before = layouts.asked_of(self.network.plan)
        change = self.start_rescale(wanted, timeout_s=timeout_s)
        while change is not None and not change.is_done:
            self._step_change(change)
            if self.rescaling is not change:
                change = self.start_rescale(wanted, timeout_s=timeout_s)
        if change is None:
            return RescaleReport(before, layouts.asked_of(self.network.plan))
        if change.report is None:
            raise RescaleRefused(change.refusal or f"rescale({dict(wanted)}): job {self.name!r} is over")
        self._journal.on_layout(change.report)
        return change.report

    def _step_change(self, change: LocalRescale) -> None:
        if not self.step() and not change.is_done:
            raise InternalError(f"a change of layout of job {self.name!r} cannot go on\n{self.explain_stuck()}")

    def configure(self, **changes: Any) -> None:
        config = configured(self.config, changes)
        if self.state is not JobState.RUNNING:
            raise ConfigError(f"configure({changes}): job {self.name!r} is {self.state.value}")
        passed_over = not_changed_locally(changes)
        if passed_over:
            warnings.warn(passed_over, UserWarning, stacklevel=users_level())
        self.network.configure(config)

    def explain_stuck(self) -> str:
        change = self.rescaling.explain() if self.rescaling is not None else ""
        return "\n".join(filter(None, (self.network.explain(), change)))

    def check_invariants(self) -> None:  # for tests
        self.network.tracker.check_invariants()
        self.network.check_invariants()
