"""The shell around the autoscaler's core: collects readings, asks for changes, tells listeners what came of them. It does not use Ray.

One :meth:`ScalingLoop.round` every few seconds. A change runs beside the rounds, because it takes as long as new replicas take to
start; measuring continues meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from rayad.actors.replica.migration import may_move
from rayad.actors.replica.places import Places
from rayad.autoscale import (
    AutoscalerCore,
    Decision,
    DecisionJournal,
    DecisionOutcome,
    JobSample,
    Policy,
    Record,
    ReplicaReading,
    ScalingGraph,
    ScalingProgress,
    graph_of_plan,
    sample_between,
)
from rayad.autoscale.scaling_graph import REPLICAS_MOST
from rayad.dataflow.config import ScalingConfig
from rayad.dataflow.plan import Plan
from rayad.progress import ProtocolError, RayadError, say

_log = logging.getLogger(__name__)


class ScaledJob(Protocol):
    """What the loop needs of the job."""

    def layout(self) -> Mapping[str, int] | None:
        """Replicas by vertex, now; None while the job does not run (it is starting, or recovering from a failure)."""

    def readings(self) -> Sequence[ReplicaReading]:
        """The latest reading of every replica that answers."""

    def rescale(self, changes: Mapping[str, int], timeout_s: float, decided_for: Mapping[str, int]) -> Any:
        """Change the layout, all vertices at once; returns when that is done. Raises ConfigError with the reason when the layout is not
        changed, for instance because it is no longer the one that was ``decided_for``."""


class Listener(Protocol):
    """Receives samples and decisions: the journal's file, MPR's folder, metrics."""

    def on_sample(self, sample: JobSample, layout: Mapping[str, int]) -> None:
        """What was measured since the round before."""

    def on_record(self, record: Record) -> None:
        """A decision; again when its outcome is known."""


def scaling_graph(plan: Plan, scaling: ScalingConfig, replicas_most: int, places: Places | None = None) -> ScalingGraph:
    """Which vertices of a plan may be scaled, and how far.

    Args:
        replicas_most: for vertices without a range where a policy decides; what they begin with is never too much.
        places: which process holds which replica; each has its own by default.

    Raises DataflowError where a range names no vertex.
    """
    bounds, fixed, movable = dict(scaling.ranges), {}, []
    is_asked_for_all = scaling.policy is not None or scaling.mpr_folder is not None
    for stage in plan.stages:
        why = may_move(stage, plan, None)
        if why:
            fixed[stage.name] = why
            bounds.pop(stage.name, None)
        elif stage.name in bounds:
            movable.append(stage.name)
        elif is_asked_for_all:
            movable.append(stage.name)
            most = REPLICAS_MOST if scaling.mpr_folder is not None else replicas_most  # the controller sets its own limits
            bounds[stage.name] = (1, max(2, most, stage.parallelism))
        else:
            fixed[stage.name] = "no range was given for it"
    shared = [stage.name for stage in plan.stages if places is not None and stage.id in places.offsets]
    return graph_of_plan(plan, bounds=bounds, fixed=fixed, movable=movable, shared=shared)


def at_once(call: Callable[[], Any]) -> Future[Any]:
    """Run a call here and now; its future is done."""
    future: Future[Any] = Future()
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
    return future


class ScalingLoop:
    """Monitor, analyse, plan, execute, for one job.

    Args:
        job: what is scaled.
        graph, policy: the job's vertices, and how they are scaled.
        config: the intervals.
        now_s: the clock of the readings.
        execute: runs the call that changes the layout; :func:`at_once`, or ``ThreadPoolExecutor.submit``.
        listeners: receive samples and decisions.
        journal: of an earlier autoscaler of this job.
    """

    def __init__(
        self,
        job: ScaledJob,
        graph: ScalingGraph,
        policy: Policy,
        config: ScalingConfig,
        now_s: Callable[[], float],
        *,
        execute: Callable[[Callable[[], Any]], Future[Any]] = at_once,
        listeners: Iterable[Listener] = (),
        journal: DecisionJournal | None = None,
    ) -> None:
        self.job = job
        self.graph = graph
        self.policy = policy
        self.config = config
        self.listeners = tuple(listeners)
        self.core: AutoscalerCore | None = None
        self._now_s = now_s
        self._execute = execute
        self._journal = journal
        self._pending: Future[Any] | None = None
        self._before: tuple[ReplicaReading, ...] = ()
        self._counts = {DecisionOutcome.APPLIED: 0, DecisionOutcome.REFUSED: 0}

    def round(self) -> Decision | None:
        """Take one sample and one decision, and ask for its changes, if any. None while the job does not run."""
        self._settle()
        layout = self.job.layout()
        if layout is None:
            return None
        core = self.core
        if core is None:
            core = self.core = AutoscalerCore(
                self.graph, self.policy, layout, self._now_s(), window_s=self.config.window_s, warm_up_s=self.config.warm_up_s,
                journal=self._journal,
            )  # fmt: skip
        if self._pending is None and dict(layout) != core.layout:
            core.on_rescaled(layout, self._now_s(), "somebody else asked for it")
        found = tuple(self.job.readings())
        try:
            sample = sample_between(self._before, found) if self._before else None
            decision = core.on_readings(found, self._now_s())
        except ProtocolError as error:
            _log.warning("the readings do not follow from those before them, measuring begins anew: %s", error)
            core.forget()
            self._before = ()
            return None
        self._before = found
        if sample is not None:
            for listener in self.listeners:
                self._tell(partial(listener.on_sample, sample, layout))
        self._report(core.journal.records[-1])
        if decision.changes:
            self._pending = self._execute(partial(self.job.rescale, dict(decision.changes), self.config.timeout_s, dict(layout)))
            self._settle()
        return decision

    def look(self) -> ScalingProgress:
        """What the autoscaler has measured and done; from any thread."""
        core = self.core
        if core is None:
            return ScalingProgress({}, {})
        records = core.journal.records
        decisions = {name: record for record in records for name in record.decision.changes}
        latest = records[-1] if records else None
        return ScalingProgress(
            core.layout, decisions, latest, core.samples, self._counts[DecisionOutcome.APPLIED], self._counts[DecisionOutcome.REFUSED]
        )  # fmt: skip

    def finish(self) -> ScalingProgress:
        """The job is over: requests without an answer count as refused."""
        core = self.core
        if core is not None:
            if self._pending is not None and not self._pending.done():
                self._answer(core.on_refused("the job ended", self._now_s()))
                self._pending = None
            for record in reversed(core.journal.records):
                if record.got:
                    self._report(record)  # once more, with what it got
                    break
        return self.look()

    def _settle(self) -> None:
        """Take the answer to a request for a change, if it has come."""
        core, pending = self.core, self._pending
        if core is None or pending is None or not pending.done():
            return
        self._pending = None
        error, waiting = pending.exception(), core.journal.waiting
        if error is None:
            assert waiting is not None
            layout = self.job.layout()  # read now: it may have changed since the round began
            changed = {**core.layout, **waiting.decision.changes}
            told = _in_words(pending.result(timeout=0))
            core.on_rescaled(layout if layout is not None else changed, self._now_s(), told)
            self._answer(next(r for r in core.journal.records if r.number == waiting.number))
            return
        if not isinstance(error, RayadError):
            _log.warning("a change of layout failed", exc_info=error)
        self._answer(core.on_refused(f"{type(error).__name__}: {say(error)}", self._now_s()))

    def _answer(self, record: Record | None) -> None:
        if record is not None:
            self._counts[record.outcome] += 1
            self._report(record)

    def _report(self, record: Record) -> None:
        for listener in self.listeners:
            self._tell(partial(listener.on_record, record))

    def _tell(self, call: Callable[[], None]) -> None:
        """Call a listener; its error (a full disk, say) must not end the scaling of a job."""
        try:
            call()
        except Exception:
            _log.warning("a listener of the autoscaler failed", exc_info=True)


def _in_words(report: Any) -> str:
    """What a change cost, for the journal: the figures that the report has."""
    names = ("took_s", "prepare_s", "pause_s", "paused_s", "moved_groups", "moved_bytes")
    found = [f"{name} {getattr(report, name):.6g}" for name in names if isinstance(getattr(report, name, None), (int, float))]
    return ", ".join(found)
