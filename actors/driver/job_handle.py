"""A handle of a job on Ray: every call on it goes to the job's current coordinator.

A coordinator that dies is replaced: in :mod:`ray_job` the handle starts the next one itself; in :mod:`attached_job` it only looks for the
one that the owner starts.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
import time as clock
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.saying import saying
from rayad.actors.coordinator.outcome import JobOutcome, Look, rebuild_error
from rayad.actors.coordinator.readable import Layout
from rayad.actors.driver.coordinator_line import ANSWER_S, END_S, GLANCE_S, LOOK_AGAIN_S, CoordinatorLine, Gone, NoAnswer
from rayad.actors.driver.probes import Holding, ProbedJob, RayProbe
from rayad.actors.driver.tables import RayTables
from rayad.actors.driver.top import follow, shown
from rayad.actors.inputs.job_input import JobInput
from rayad.actors.job import (
    THE_COORDINATOR,
    Job,
    JobEvent,
    JobProgress,
    JobState,
    JobStatistics,
    JobStatus,
    Probe,
    Result,
    StageProgress,
    describe_blockers,
    not_yet,
)
from rayad.actors.lead.diagnosis import sentences
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.layouts import RescaleReport, replicas_wanted
from rayad.actors.lead.taking_over import taking_over_s
from rayad.actors.replica.recent import News
from rayad.actors.status.progress_shown import showing
from rayad.actors.status.updates import ReadSoFar, Updates
from rayad.actors.tables.table import Readable
from rayad.dataflow import hooks
from rayad.dataflow.config import RunConfig, check_timeout, configured
from rayad.dataflow.plan import Plan
from rayad.progress import ConfigError, DataflowError, RayadError, RescaleRefused, SnapshotError, arguments

if TYPE_CHECKING:
    from rayad.autoscale import ScalingProgress

_log = logging.getLogger(__name__)
CANCEL_S = 10.0
"""How long a job may take to end when it is cancelled."""
STOP_S = 40.0
"""How long a running job may take to hear that it is to drain."""
KNOCKING_S = 1.0
"""How long explain_stuck waits for a heartbeat of a coordinator that has not answered, before it calls it stopped."""
BUSY_S = 5.0
"""How long explain_stuck waits for a coordinator that is well and has much to do."""
PIDS_S = 5.0
MOVE_S = 600.0
"""How long to wait, beyond its timeout, for a change that has begun: it is not given up half-way."""


class RayJobHandle(Job):
    """A job on Ray.

    Args:
        name: the job's.
        plan: the dataflow, in the layout that it was asked for.
        config: of the run.
        told: the progress last seen of it.
    """

    _line: CoordinatorLine
    """The line to the current coordinator, or to the last one."""
    _cuts_inputs = True
    """Whether live inputs close where they are when the job drains; else their feeder closes them, behind what was sent."""

    def __init__(self, name: str, plan: Plan, config: RunConfig, told: JobProgress) -> None:
        super().__init__(name)
        self._plan = plan
        self._config = config
        self._stopping = False
        self._cancelling = False
        self._outcome: JobOutcome | None = None
        self._result: Result | None = None
        self._state = told.state
        self._seen = told
        self._status = JobStatus(name, told.state)
        self._told: tuple[JobEvent, ...] = ()
        self._inputs: dict[str, JobInput] = {}
        self._reads: RayTables | None = None
        self._opening = threading.Lock()
        self._probed = ProbedJob(
            self.name,
            patience_s=lambda: self._config.start_timeout_s + ANSWER_S + taking_over_s(self._config),
            ask_again=self._ask_again,
            is_over=self._is_over,
            raise_outcome=lambda: self.wait(END_S),
            holding=Holding(),
        )

    # -- what differs between the job's owner and an attached handle  ---------------------
    @abstractmethod
    def _has_successor(self, line: CoordinatorLine, gone: Gone) -> bool:
        """A coordinator died, and with it all actors: whether another one has replaced it, or will; until then the line stays."""

    @abstractmethod
    def _on_outcome(self, line: CoordinatorLine, outcome: JobOutcome) -> JobOutcome:
        """The job has ended with this outcome; gives the outcome to report."""

    @abstractmethod
    def _on_over(self) -> None:
        """The outcome is known: nothing more comes from the job. Several threads may call this."""

    @abstractmethod
    def look_at_scaling(self) -> ScalingProgress | None:
        """What the autoscaler has seen and done; None if there is none or it does not answer."""

    @abstractmethod
    def _configure_scaling(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out the changes that are the autoscaler's; gives the others."""

    @abstractmethod
    def _open_input(self, name: str, stage: int) -> JobInput:
        """The sending end of a live input."""

    _calls_of_runtime = ("drain", "page", "pids", "top")

    @property
    def plan(self) -> Plan:
        """The dataflow, in the layout that was asked for."""
        return self._plan

    @property
    def config(self) -> RunConfig:
        """Of the run, as :meth:`configure` has left it."""
        return self._config

    # -- the end -----------------------------------------------------------------------

    @property
    def state(self) -> JobState:
        if self._outcome is not None:
            return self._outcome.state
        line = self._line
        try:
            self._state = line.call("ping", timeout_s=GLANCE_S).state
        except NoAnswer:
            pass  # as it was last known: explain_stuck() tells who does not answer
        except Gone as gone:
            if not self._has_successor(line, gone):
                return self.settle(END_S).state
            self._state = JobState.STARTING
        if self._state not in (JobState.STARTING, JobState.RUNNING):
            try:
                return self.settle(END_S).state  # it is about to say how
            except TimeoutError:
                pass
        return self._state

    def settle(self, timeout_s: float | None) -> JobOutcome:
        """Wait for the end of the job and return how it ended. Raises TimeoutError. Without a timeout it waits as long as the job is
        alive."""
        deadline_s = float("inf") if timeout_s is None else clock.monotonic() + timeout_s
        while self._outcome is None:
            line = self._line
            if not line.has_ended(max(0.0, min(deadline_s - clock.monotonic(), 1.0))):
                if clock.monotonic() > deadline_s:
                    raise not_yet(self.name, timeout_s)
                continue
            try:
                outcome: JobOutcome = line.take_outcome()
            except Gone as gone:
                if self._has_successor(line, gone):
                    if not self._await_successor(line, deadline_s):
                        raise not_yet(self.name, timeout_s) from None
                    continue
                outcome = JobOutcome(JobState.CANCELLED, {}, JobStatistics()) if self._cancelling else self._lost(gone)
            self._outcome = self._outcome or self._on_outcome(line, outcome)
        self._on_over()
        return self._outcome

    def _lost(self, gone: Gone) -> JobOutcome:
        told = f"the coordinator actor died: {str(gone).splitlines()[0]}"
        return JobOutcome(JobState.FAILED, {}, JobStatistics(), Failure(THE_COORDINATOR, told, str(gone), None, False))

    def _await_successor(self, line: CoordinatorLine, deadline_s: float) -> bool:
        """Wait a moment for the replacement of a coordinator that died; false when ``deadline_s`` is over."""
        if self._line is line:
            clock.sleep(max(0.0, min(LOOK_AGAIN_S, deadline_s - clock.monotonic())))
        return clock.monotonic() < deadline_s

    def wait(self, timeout_s: float | None = None, *, progress: bool | None = False) -> Result:
        check_timeout(timeout_s, "wait(timeout_s)")
        if self._result is not None:
            return self._result
        with self.showing(progress, "wait") as is_shown:
            return self._wait(timeout_s, is_shown=is_shown)

    @contextmanager
    def showing(self, progress: bool | None, what: str) -> Iterator[bool]:
        """Show how far the job is while the block runs; gives whether that is done. ``progress``: as of :meth:`wait`, which may be called
        in the block. ``what`` was given it, for errors."""
        with showing(self.name, progress, what) as shown:
            if shown is not None:
                shown.follow(self._look_for_line)
            yield shown is not None
            if shown is not None and self._result is not None:
                shown.complete(self._records_read(self._result.statistics))

    def _look_for_line(self) -> tuple[JobStatus, str]:
        """What the line of progress shows: the status, and what the start waits for."""
        status = self.status()
        if status.state is not JobState.STARTING:
            return status, ""
        told = (self._start_told() or "").removeprefix("The job ").rstrip(".")
        return status, f"starting: {told}" if told else f"starting {self.plan.replicas} replicas"

    def _wait(self, timeout_s: float | None, *, is_shown: bool) -> Result:
        with nullcontext() if is_shown else saying(f"the start of job {self.name!r}", self._start_told):
            outcome = self.settle(timeout_s)
        if outcome.state is JobState.CANCELLED:
            raise DataflowError(f"job {self.name!r} was cancelled: it has no results")
        if outcome.failure is not None:
            raise rebuild_error(self.name, outcome.failure)
        values = {sink.key: sink.sink.result(outcome.receipts[sink.id]) for sink in self.plan.sinks}
        self._result = Result(values, outcome.statistics)
        return self._result

    def _start_told(self) -> str | None:
        """What the start of the job waits for; None when it runs."""
        if self.state is not JobState.STARTING:
            return None
        return str(self.explain_stuck()).partition("\n")[0]

    def stop(self, *, drain: bool = True, timeout_s: float | None = None) -> Result:
        check_timeout(timeout_s, "stop(timeout_s)")
        if not arguments.flag(drain, "stop(drain)"):
            self.cancel()
            return Result({}, JobStatistics())
        if self._outcome is None:
            self.drain()
            for handle in self._inputs.values():
                handle.closed = True
        try:
            return self.wait(timeout_s)
        except TimeoutError as error:
            try:
                late = self._ask("not_stopped", timeout_s=ANSWER_S) or []
            except NoAnswer:
                late = []
            if not late:
                raise
            raise TimeoutError(
                f"job {self.name!r} is not complete after {timeout_s} s: {', '.join(late)} has not come back from reading its input "
                "(next_batch) and stops when it does; it goes on, wait() again or cancel()"
            ) from error

    def drain(self) -> None:
        """Tell the job to stop reading, and to end when it has finished what is under way."""
        self._stopping = True  # a coordinator that replaces this one is told, too
        try:
            self._ask("stop", self._cuts_inputs, timeout_s=self._config.start_timeout_s + STOP_S)
        except NoAnswer:
            _log.warning("job %r: the coordinator does not answer: the job drains when it does, or in the one after it", self.name)

    def _tell_again(self, actor: Any) -> None:
        """Tell a coordinator that replaces one that died what this handle has asked of the job: nobody else may have heard of it."""
        if self._cancelling:
            ray_calls.call(actor.cancel)
        elif self._stopping:
            ray_calls.call(actor.stop, self._cuts_inputs)

    # -- looking ---------------------------------------------------------------------------

    def _ask(self, method: str, *args: Any, timeout_s: float, default: Any = None) -> Any:
        """The coordinator's answer; ``default`` when the job is over, or is starting again. Raises NoAnswer."""
        if self._outcome is not None:
            return default
        line = self._line
        try:
            return line.call(method, *args, timeout_s=timeout_s)
        except Gone as gone:
            self._has_successor(line, gone)
            return default

    def _ask_again(self, method: str, *args: Any, timeout_s: float, successor_s: float = math.inf) -> Any:
        """As :meth:`_ask`; when the coordinator dies meanwhile, ask the next one, which starts after the delay of restarts: wait for it at
        most ``successor_s``. None when there will be none."""
        deadline_s = clock.monotonic() + successor_s
        while self._outcome is None:
            line = self._line
            try:
                return line.call(method, *args, timeout_s=timeout_s)
            except Gone as gone:
                if not self._has_successor(line, gone):
                    return None
                if not self._await_successor(line, deadline_s):
                    raise NoAnswer(f"job {self.name!r}: {THE_COORDINATOR} died, and another one has not begun yet") from None
        return None

    def _why_over(self, gone: Gone) -> str:
        """Why there is no answer, and will be none: the job has ended in its own way, or its coordinator died."""
        with suppress(TimeoutError):
            outcome = self.settle(END_S)
            if outcome.failure is None or outcome.failure.who != THE_COORDINATOR:
                return f"job {self.name!r} is {outcome.state.value}"
        return f"the coordinator died: {gone}"

    def _is_over(self) -> bool:
        """Whether the coordinator has ended, and none replaces it."""
        if self._outcome is None and not self._line.has_ended():
            return False
        try:
            self.settle(END_S)
        except TimeoutError:
            return False
        return True

    def progress(self) -> JobProgress:
        if self._outcome is not None:
            ended = self._outcome.statistics
            return JobProgress(self._outcome.state, (), 0, failures=ended.failures, scaling=ended.scaling)
        line = self._line
        try:
            look = self._ask("look", timeout_s=GLANCE_S, default=Look(JobState.STARTING))
            unknown = (None, None, self._seen.failures, None)
            taken, interval_s, failures, late = self._ask("look_at_snapshots", timeout_s=GLANCE_S, default=unknown)
        except NoAnswer:
            return dataclasses.replace(self._seen, silent=(line.silence(GLANCE_S), *self._seen.silent))
        stages = []
        for stage in self.plan.stages:
            view = look.views.get(stage.id, ((), ()))
            mine = [r for r in look.reports if r.name == stage.name]
            batches, records = sum(r.batches_in for r in mine), sum(r.records_in for r in mine)
            stages.append(StageProgress(stage.name, view[0], view[1], batches, records, len(mine)))
        told = JobProgress(look.state, tuple(stages), look.active, taken, interval_s, failures, self.look_at_scaling(), look.silent, late)
        self._seen = dataclasses.replace(told, silent=())
        return told

    def _readable(self) -> Readable:
        if self._reads is None:
            self._reads = self._new_reads()
        return self._reads

    def _new_reads(self) -> RayTables:
        return RayTables(
            self.name,
            self.plan,
            self._layout_to_read,
            self._committed,
            lambda: self._outcome.state.value if self._is_over() and self._outcome is not None else None,
            lambda: self._outcome is not None,
            lambda: max((handle.begun for handle in list(self._inputs.values())), default=-1),
        )

    def _committed(self, timeout_s: float) -> dict[int, int] | None:
        found: dict[int, int] | None = self._ask("committed", timeout_s=timeout_s)
        return found

    def _layout_to_read(self, timeout_s: float) -> Layout | None:
        try:
            found: Layout | None = self._ask("readable", timeout_s=timeout_s)
        except NoAnswer:
            return None  # it is asked again
        return found

    def _updates(self, name: str) -> Updates:
        return Updates(partial(self._news, name), self._is_over, self._pause, self.wait)

    def _news(self, sink: str, seen: ReadSoFar) -> Mapping[str, News | None]:
        """What was written to a sink and is not seen."""
        if self._outcome is None:
            try:
                told: dict[str, News | None] = self._ask("updates", sink, seen, timeout_s=ANSWER_S, default={})
            except NoAnswer:
                return {}  # if this lasts, the missing heartbeats end it
            return told
        return {name: recent.unseen(seen.get(name), life) for name, (life, recent) in self._outcome.recent.get(sink, {}).items()}

    def _pause(self) -> bool:
        """Between two looks of a reader of updates."""
        clock.sleep(LOOK_AGAIN_S)
        return True

    def status(self) -> JobStatus:
        if self._outcome is not None:
            return JobStatus(self.name, self._outcome.state, clock.time(), failures=self._outcome.statistics.failures)
        line = self._line
        try:
            failures = max(self._status.failures, self._seen.failures)
            starts_again = JobStatus(self.name, JobState.STARTING, clock.time(), failures=failures)
            told: JobStatus = self._ask("status", timeout_s=GLANCE_S, default=starts_again)
        except NoAnswer:
            return dataclasses.replace(self._status, silent=(line.silence(GLANCE_S), *self._status.silent))
        self._status = dataclasses.replace(told, silent=())
        return told

    def journal(self) -> tuple[JobEvent, ...]:
        if self._outcome is None:
            self._told = self._ask("journal", timeout_s=ANSWER_S, default=self._told)
        return self._outcome.journal or self._told if self._outcome is not None else self._told

    def top(self, *, interval_s: float = 2.0, timeout_s: float | None = None, replicas: bool = False) -> None:
        """Print :meth:`status` as a table every ``interval_s``, until the job has ended, for ``timeout_s``, or until Ctrl-C, which does
        not end the job.

        On a terminal and in a notebook each table replaces the one before; elsewhere plain lines are printed. ``replicas``: also show each
        replica of a vertex.
        """
        interval_s = arguments.number(interval_s, "top(interval_s)", error=ConfigError)
        check_timeout(timeout_s, "top(timeout_s)")
        with suppress(KeyboardInterrupt), shown(with_replicas=replicas) as show:
            follow(self.status, show, interval_s, timeout_s)

    def page(self, *, host: str = "127.0.0.1", port: int = 0, steps: bool = False, state: bool = False) -> str:
        if self._outcome is not None:
            raise DataflowError(f"page(): job {self.name!r} is {self._outcome.state.value}; rayad report shows what happened to it")
        # its actor attaches to the job, with a handle that is one of these
        return str(hooks.call("open_page", self.name, host, port, steps, state))

    def pids(self) -> dict[str, list[int]]:
        """Process ids of the replicas by vertex, for other tools; empty while the job starts and after it has ended."""
        look: Look = self._ask("look", False, PIDS_S, timeout_s=PIDS_S + ANSWER_S, default=Look(JobState.STARTING))
        out: dict[str, list[int]] = {}
        for report in sorted(look.reports, key=lambda report: report.replica):
            out.setdefault(report.name, []).append(report.pid)
        return out

    def explain_stuck(self) -> str:
        line = self._line
        try:
            look: Look | None = self._ask("look", True, timeout_s=GLANCE_S)
        except NoAnswer:
            silent = line.silence(GLANCE_S, KNOCKING_S)
            if not silent.is_well:
                return f"{silent}; after {self._config.failures.heartbeat_timeout_s:g} s it counts as dead"
            try:
                look = self._ask("look", True, timeout_s=BUSY_S)
            except NoAnswer:
                return str(dataclasses.replace(silent, for_s=GLANCE_S + BUSY_S))
        if look is None:
            failure = self._outcome.failure if self._outcome is not None else None
            why = f": {failure.who}: {failure.message}" if failure is not None else ""
            return f"job {self.name!r} is {self.state.value}{why}"
        parts = [sentences(look.findings, "is being started" if look.state is JobState.STARTING else "is not known to wait for anything")]
        parts.extend(str(one) for one in look.silent)
        parts.extend(describe_blockers(name, time, found) for name, time, found in look.blockers)
        answering = [report for report in look.reports if report.activity is None]
        parts.extend(f"{report.name}[{report.replica}]: {what}" for report in answering for what in report.waiting)
        return "\n".join(parts)

    def savepoint(self, *, timeout_s: float | None = None) -> str:
        timeout_s = check_timeout(timeout_s, "savepoint(timeout_s)")
        return self._take_savepoint(self._config.snapshots.timeout_s if timeout_s is None else timeout_s)

    def _take_savepoint(self, timeout_s: float) -> str:
        line, died = self._line, ""
        try:
            if self._outcome is None:
                return str(line.call("savepoint", timeout_s, timeout_s=timeout_s + ANSWER_S))
        except NoAnswer:
            raise SnapshotError(f"the savepoint was not taken within {timeout_s:g} s: {line.silence(timeout_s + ANSWER_S)}") from None
        except Gone as gone:
            if self._has_successor(line, gone):
                told = f"{THE_COORDINATOR} died meanwhile, and another one resumes from the last snapshot: ask again"
                raise SnapshotError(f"the savepoint was not taken: {told}") from None
            died = str(gone)
        except SnapshotError:
            if not self._is_over():
                raise
        try:
            self._refuse_savepoint(self.settle(END_S))
        except TimeoutError:
            raise SnapshotError(f"the savepoint was not taken: {THE_COORDINATOR} died: {died}") from None

    def _refuse_savepoint(self, outcome: JobOutcome) -> NoReturn:
        """The job is over. Raises SnapshotError with the cause that :meth:`wait` has."""
        told = f"job {self.name!r} is {outcome.state.value}: no savepoint can be taken"
        if outcome.failure is None:
            raise SnapshotError(told)
        raise SnapshotError(f"{told}; {outcome.failure.who}: {outcome.failure.message}") from rebuild_error(self.name, outcome.failure)

    def rescale(self, vertex: str | Mapping[str, int], replicas: int | None = None, *, timeout_s: float = 120.0) -> RescaleReport:
        wanted = replicas_wanted(vertex, replicas)
        timeout_s = arguments.number(timeout_s, "rescale(timeout_s)", zero=True, error=ConfigError)
        if self._outcome is not None:
            raise RescaleRefused(f"rescale({wanted}): job {self.name!r} is {self._outcome.state.value}")
        told, most_s = f"rescale({wanted})", timeout_s + MOVE_S
        return self._change("rescale", wanted, timeout_s, refused=RescaleRefused, what=told, most_s=most_s)  # type: ignore[no-any-return]

    def configure(self, **changes: Any) -> None:
        own = self._configure_scaling(changes) if self._outcome is None else changes
        if self._outcome is not None:
            raise ConfigError(f"configure({changes}): job {self.name!r} is {self._outcome.state.value}")
        if own or not changes:
            configured(self._config, own)  # raises
        if own:
            most_s = self._config.start_timeout_s + MOVE_S
            self._change("configure", own, refused=ConfigError, what=f"configure({own})", most_s=most_s)
            self._config = configured(self._config, own)  # which may be another one by now: a coordinator has died

    def _change(self, method: str, *args: Any, refused: type[RayadError], what: str, most_s: float) -> Any:
        """Ask the coordinator for a change; if it dies meanwhile, ask the one that replaces it."""
        deadline_s = clock.monotonic() + most_s
        while True:
            line = self._line
            try:
                return line.call(method, *args, timeout_s=max(0.0, deadline_s - clock.monotonic()))
            except NoAnswer:
                told = f"{what}: it is not done after {most_s:g} s, and goes on; explain_stuck() tells who takes long"
                raise TimeoutError(told) from None
            except Gone as gone:
                if self._cancelling:
                    raise refused(f"{what}: job {self.name!r} was cancelled") from None
                if not self._has_successor(line, gone):
                    raise refused(f"{what}: {self._why_over(gone)}") from None
                self._await_successor(line, deadline_s)
                if clock.monotonic() > deadline_s:
                    raise TimeoutError(
                        f"{what}: not within {most_s:g} s: {THE_COORDINATOR} died, and another one has not begun yet"
                    ) from None

    def input(self, name: str) -> JobInput:
        stage = self._known(name, "live input", self.plan.inputs)
        with self._opening:  # which takes a while, and two threads must get the same one: each counts epochs
            if name not in self._inputs:
                self._inputs[name] = self._open_input(name, stage)
            return self._inputs[name]

    def probe(self, name: str) -> Probe:
        return RayProbe(name, self._probed, self._known(name, "probe", self.plan.probes))
