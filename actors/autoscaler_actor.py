"""The Ray actor of a job's autoscaler: one for each job that has a policy, ranges or a controller's folder.

It asks the coordinator for the layout and the replicas' handles, the replicas for their readings (by control calls, which do not interrupt
a replica's loop), and the coordinator for changes. It has nothing that the job needs: if it fails, the job keeps its layout and runs on.
"""

from __future__ import annotations

import logging
import os
import threading
import time as clock
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.actor_class import PULSE, actor_title, remote_class
from rayad.actors.cluster.on_node import on_this_node
from rayad.actors.replica.places import Places
from rayad.actors.scaling.files import ControllerFolder, JournalFile, journal_of, read_lines
from rayad.actors.scaling.loop import Listener, ScalingLoop, scaling_graph
from rayad.actors.scaling.metrics import ScalingMetrics
from rayad.autoscale import (
    DecisionJournal,
    DecisionOutcome,
    JobSample,
    Policy,
    Record,
    ReplicaReading,
    ScalingGraph,
    ScalingProgress,
    policy_for,
)
from rayad.dataflow.config import ScalingConfig
from rayad.dataflow.plan import Plan
from rayad.progress import ConfigError, RayadError, say

READ_TIMEOUT_S = 1.0
"""How long a round waits for the readings of replicas; a replica that has not answered by then is left out."""
ASK_TIMEOUT_S = 10.0
LOOK_TIMEOUT_S = 1.0
_log = logging.getLogger(__name__)
FINISH_TIMEOUT_S = 2.0
"""How long :meth:`Autoscaler.finish` waits for the round that is under way."""


class RayScaledJob:
    """The job as its coordinator shows it.

    Args:
        coordinator: handle of an actor with ``replicas()``, which gives ``(layout, handles by plane name)``, or None while the job does not
            run; and ``rescale(changes, timeout_s, decided_for)``.
    """

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._replicas: dict[str, Any] = {}

    def layout(self) -> Mapping[str, int] | None:
        """See `ScaledJob`."""
        found = ray.get(self._coordinator.replicas.remote(), timeout=ASK_TIMEOUT_S)
        if found is None:
            return None
        layout, self._replicas = found
        return dict(layout)

    def readings(self) -> Sequence[ReplicaReading]:
        """See `ScaledJob`."""
        asked = [handle.readings.remote() for handle in self._replicas.values()]
        ready, _ = ray.wait(asked, num_returns=len(asked), timeout=READ_TIMEOUT_S) if asked else ([], [])
        found = []
        for ref in ready:
            try:
                found.extend(ray.get(ref, timeout=READ_TIMEOUT_S))
            except RayError:
                continue  # the process has just died: the coordinator decides on recovery
        return found

    def rescale(self, changes: Mapping[str, int], timeout_s: float, decided_for: Mapping[str, int]) -> Any:
        """See `ScaledJob`."""
        try:
            asked = self._coordinator.rescale.remote(dict(changes), timeout_s, dict(decided_for))
            return ray.get(asked)  # ends with the change, which the coordinator bounds, or with the coordinator
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None


class IntoJournal:
    """A listener that tells the coordinator of every decision except holds, for the journal of the job."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator

    def on_sample(self, sample: JobSample, layout: Mapping[str, int]) -> None:
        """Do nothing: samples are no events."""

    def on_record(self, record: Record) -> None:
        """Tell the decision, and later its outcome; what is measured after the change is not told, since nobody uses it there."""
        if record.outcome is not DecisionOutcome.HELD and not record.got:
            told = (record.outcome.value, record.decision.reason, dict(record.decision.changes), record.answer)
            self._coordinator.note_decision.remote(*told)


class Autoscaler:
    """Runs a :class:`ScalingLoop` until the job ends.

    Args:
        coordinator: see :class:`RayScaledJob`.
        job: the job's name.
        graph: which vertices may be scaled.
        layout: replicas by vertex, at the beginning.
        scaling: what the user asked for.
        journal: path of the journal's file; None: there is none.
        resumes: whether the job resumes an earlier run; then the autoscaler continues its journal.
    """

    def __init__(
        self,
        coordinator: Any,
        job: str,
        graph: ScalingGraph,
        layout: Mapping[str, int],
        scaling: ScalingConfig,
        journal: str | None,
        resumes: bool,
    ) -> None:
        self._shown_as = (job,)
        self._config = scaling
        self._ended = threading.Event()
        self._awake = threading.Event()
        self._turn = threading.Lock()
        executor = ThreadPoolExecutor(1, thread_name_prefix="rayad-rescale")
        before = _journal_before(journal) if resumes and journal is not None else None
        listeners: list[Listener] = [ScalingMetrics(job)]
        if journal is not None:
            listeners.append(JournalFile(journal, job))
        policy: Policy
        if scaling.mpr_folder is not None:
            folder = ControllerFolder(scaling.mpr_folder, layout)
            listeners.append(folder)
            policy = folder
        else:
            policy = policy_of(scaling)
        listeners.append(IntoJournal(coordinator))
        scaled = RayScaledJob(coordinator)
        options: dict[str, Any] = {"execute": executor.submit, "listeners": listeners, "journal": before}
        self.loop = ScalingLoop(scaled, graph, policy, scaling, clock.time, **options)

    def __repr__(self) -> str:
        return actor_title(self, *getattr(self, "_shown_as", ()))

    def run(self) -> None:
        """Do rounds until :meth:`finish`; a round that fails does not end them."""
        while not self._ended.is_set():
            began_s = clock.monotonic()
            try:
                with self._turn:
                    self.loop.round()
            except (RayError, GetTimeoutError):
                _log.debug("the coordinator does not answer", exc_info=True)  # it has ended, and the driver will say so
            while (left_s := self._config.report_interval_s - (clock.monotonic() - began_s)) > 0 and not self._ended.is_set():
                self._awake.wait(left_s)
                self._awake.clear()

    def ping(self) -> None:
        """Answer, if alive."""

    def look(self) -> ScalingProgress:
        """What it has seen and done."""
        return self.loop.look()

    def configure(self, report_interval_s: float) -> None:
        """From now on, beginning with the next round, a round starts this many seconds after the start of the one before."""
        self._config = replace(self._config, report_interval_s=report_interval_s)
        self._awake.set()

    def finish(self) -> ScalingProgress:
        """The job is over."""
        self._ended.set()
        self._awake.set()
        is_between = self._turn.acquire(timeout=FINISH_TIMEOUT_S)
        try:
            return self.loop.finish()
        finally:
            if is_between:
                self._turn.release()


class AutoscalerHandle:
    """The driver's side of the autoscaler. The job's handle owns it, and it ends with that handle.

    Args:
        job: the job's name.
        plan: the plan with which the job starts.
        scaling: what the user asked for.
        storage_path: as in `RunConfig`: the folder for snapshots and the journal, or None.
        places: which process holds which replica.

    Raises ConfigError or DataflowError if the policy or a range is not valid.
    """

    def __init__(self, job: str, plan: Plan, scaling: ScalingConfig, storage_path: str | None, places: Places) -> None:
        if scaling.mpr_folder is None:
            policy_of(scaling)
        _check_picklable(scaling)
        graph = scaling_graph(plan, scaling, int(ray.cluster_resources().get("CPU", 1)), places)
        journal = journal_path(scaling, storage_path, job)
        folder = os.path.abspath(scaling.mpr_folder) if scaling.mpr_folder is not None else None
        layout = {stage.name: stage.parallelism for stage in plan.stages}
        self._arguments = (job, graph, layout, replace(scaling, mpr_folder=folder), os.path.abspath(journal) if journal else None)
        self._actor: Any = None
        self.told = ScalingProgress(layout, {})
        """The actor's last answer; before the first, the layout of the plan."""
        self._finishing = threading.Lock()

    def start(self, coordinator: Any, *, resumes: bool) -> None:
        """Start an actor for this coordinator, and end the one for the coordinator before. It runs on this node: its files are here."""
        self._end()
        groups = {PULSE: ("ping",), "control": ("look", "configure", "finish")}
        actor = remote_class(Autoscaler, {PULSE: 1, "control": 4}, groups, num_cpus=0, scheduling_strategy=on_this_node())
        self._actor = ray_calls.create(actor, {}, coordinator, *self._arguments, resumes)
        ray_calls.call(self._actor.run)

    def look(self) -> ScalingProgress:
        """What it has seen and done; its last answer if it does not give one within a second."""
        actor = self._actor
        if actor is not None:
            try:
                self.told = ray_calls.get(ray_calls.call(actor.look), timeout=LOOK_TIMEOUT_S)
            except (RayError, RayadError):
                _log.debug("the autoscaler did not say how far it is", exc_info=True)
        return self.told

    def configure(self, report_interval_s: float) -> None:
        """See :meth:`rayad.actors.job.Job.configure`. Raises ConfigError for an interval that is not valid."""
        job, graph, layout, scaling, journal = self._arguments
        self._arguments = (job, graph, layout, replace(scaling, report_interval_s=report_interval_s), journal)
        if self._actor is not None:
            ray_calls.get(ray_calls.call(self._actor.configure, report_interval_s), timeout=ASK_TIMEOUT_S)

    def finish(self) -> ScalingProgress:
        """The job is over: end the actor, and give what it has seen and done. Several threads may call this."""
        with self._finishing:
            if self._actor is not None:
                try:
                    self.told = ray_calls.get(ray_calls.call(self._actor.finish), timeout=ASK_TIMEOUT_S)
                except (RayError, RayadError):
                    _log.warning("the autoscaler did not answer at the end of the job", exc_info=True)
                self._end()
            return self.told

    def _end(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None:
            ray_calls.kill(actor)


def policy_of(scaling: ScalingConfig) -> Policy:
    """The policy that a configuration asks for. Raises ConfigError."""
    return policy_for(scaling.policy if scaling.policy is not None else "ds2")


def journal_path(scaling: ScalingConfig, storage_path: str | None, job: str) -> str | None:
    """Where the journal's file is; None where there is no local folder for it.

    >>> journal_path(ScalingConfig(), "/data/jobs", "words"), journal_path(ScalingConfig(), "s3://bucket/jobs", "words")
    ('/data/jobs/words/scaling.jsonl', None)
    """
    if scaling.journal is not None:
        return scaling.journal
    if storage_path is None or ("://" in storage_path and not storage_path.startswith("file://")):
        return None
    return os.path.join(storage_path.removeprefix("file://"), job, "scaling.jsonl")


def _check_picklable(scaling: ScalingConfig) -> None:
    try:
        cloudpickle.dumps(scaling)
    except Exception as error:
        raise ConfigError(
            f"ScalingConfig.policy {scaling.policy!r} cannot be sent to the autoscaler's actor: {type(error).__name__}: {say(error)}"
        ) from error


def _journal_before(path: str) -> DecisionJournal | None:
    if not os.path.exists(path):
        return None
    try:
        return journal_of(read_lines(path))
    except (ConfigError, KeyError, TypeError, ValueError):
        _log.warning(
            "the journal %s cannot be read; the autoscaler starts without earlier decisions and appends to the file", path, exc_info=True
        )
        return None
