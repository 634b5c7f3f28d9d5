"""What other threads ask of a coordinator while its long call runs: the driver, the autoscaler, sources that reconnect."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from rayad.actors.coordinator.outcome import About, Beat, Look, Starting, plan_to_show
from rayad.actors.coordinator.readable import Layout, committed_of, layout_of
from rayad.actors.coordinator.rescaling import Rescaler
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.surroundings import Ended, Gave
from rayad.actors.job import THE_COORDINATOR, JobState, Silent
from rayad.actors.lead import layouts
from rayad.actors.lead.diagnosis import Cause, Facts, Missing, Stamp, diagnose, sentences
from rayad.actors.lead.layouts import RescaleReport
from rayad.actors.lead.saved_inputs import SavedEpochs
from rayad.actors.plane.address import Address
from rayad.actors.plane.protocol import PROGRESS, stage_of
from rayad.actors.plane.replica_id import ReplicaId, replicas_of
from rayad.actors.replica.recent import News
from rayad.actors.replica.report import ReplicaReport
from rayad.actors.status.job_status import JobStatus
from rayad.actors.status.journal import JobEvent
from rayad.actors.status.snapshots_late import SnapshotsLate, late_of
from rayad.actors.status.taking import Seen, StatusTaker
from rayad.actors.status.updates import ReadSoFar
from rayad.dataflow.plan import sinks_of
from rayad.progress import ConfigError, SnapshotError, Timestamp
from rayad.snapshots.attempts import SnapshotStatistics

LOOK_PATIENCE_S = 0.6
"""How long a look waits for the answers of actors."""
SINK_SHOWN_S = 1.0
"""A call of a sink in the coordinator that takes longer is logged."""
PROGRESS_PATIENCE_S = 10.0
"""How long the progress actor may take for an answer that is ready."""


class Control:
    """The control calls of one job's coordinator."""

    def __init__(self, job: RunningJob, rescaler: Rescaler) -> None:
        self._job = job
        self._rescaler = rescaler
        self._actors, self._clock = job.around.actors, job.around.clock
        self._never = job.around.event()
        self._own_node = self._actors.own_address()
        self._nodes: dict[str, str] = {}  # where each replica last said that it runs
        self._told: dict[str, ReplicaReport] = {}  # what the replicas told when they last answered
        self._taker = StatusTaker(job.name)
        self._taking = threading.Lock()
        self._seen: tuple[Mapping[int, Any], int] = ({}, 0)  # views by stage and active pointstamps, when the progress actor last answered

    def cancel(self) -> None:
        """End the job without results."""
        self._job.cancelled.set()

    def where(self, name: str, timeout_s: float) -> tuple[Address, int, dict[str, Any], str] | None:
        """The address of a replica, its incarnation, the notes of the snapshot that this one resumed from, and the name of its process,
        once the job runs.

        The four belong together: an incarnation may be over by the time its addresses are used, and then nobody listens there.
        """
        self._job.await_running(timeout_s)
        process = name if name == PROGRESS else self._job.places.process_of(*ReplicaId.from_plane_name(name))
        found = self._job.found.get(process)
        return (*found, process) if found is not None else None

    def saved_inputs(self) -> dict[str, int]:
        """How many frames of each live input are in all the snapshots that a recovery may resume from."""
        return dict(self._job.snapshots.saved_inputs) if self._job.snapshots is not None else {}

    def saved_epochs(self) -> dict[str, SavedEpochs]:
        """Which epochs of live inputs are in snapshots."""
        return dict(self._job.snapshots.saved_epochs) if self._job.snapshots is not None else {}

    def wait_saved(self, name: str, epoch: int, hold_s: float) -> bool:
        """Whether the newest snapshot holds an epoch of a live input; waits for that, not longer than ``hold_s``: the caller asks again."""
        return self._job.snapshots is not None and self._job.snapshots.wait_saved(name, epoch, hold_s)

    def hasten_snapshot(self) -> None:
        """The next snapshot begins as soon as it can: something waits for it."""
        if self._job.snapshots is not None:
            self._job.snapshots.hasten()

    def savepoint(self, timeout_s: float) -> str:
        """See Job.savepoint."""
        job = self._job
        if not job.config.keeps_snapshots:
            raise ConfigError(f"job {job.name!r} keeps no snapshots: give RunConfig(storage_path=...)")
        began_s = self._clock.monotonic()
        if not job.running.wait(timeout_s):
            held_up = self.holds_up() or "the job is being started"
            raise SnapshotError(f"the savepoint was not taken within {timeout_s:g} s: job {job.name!r} does not run yet. {held_up}")
        if job.state is not JobState.RUNNING or job.snapshots is None:
            raise SnapshotError(f"job {job.name!r} is {job.state.value}: no savepoint can be taken")
        return job.snapshots.savepoint(max(0.0, began_s + timeout_s - self._clock.monotonic()))

    def rescale(self, wanted: dict[str, int], timeout_s: float = 120.0, decided_for: dict[str, int] | None = None) -> RescaleReport:
        """See Job.rescale; refused when the layout is not, or no longer, the one that this was ``decided_for``."""
        return self._rescaler.rescale(wanted, timeout_s, decided_for)

    def replicas(self) -> tuple[dict[str, int], dict[str, Any]] | None:
        """Replicas by vertex, and the handles of the processes that hold them; None while the job does not run."""
        job = self._job
        if job.state is not JobState.RUNNING or not job.running.is_set():
            return None
        actors, newcomers = dict(job.crew.actors), self._rescaler.newcomers
        there = {name: actors[name] for name in job.crew.processes() if name in actors and name not in newcomers}
        return layouts.asked_of(job.plan), there

    def readable(self) -> Layout | None:
        """Where the replicas are, for those who read their state; None while the job does not run."""
        return layout_of(self._job)

    def committed(self) -> dict[int, int] | None:
        """By stage the last epoch that a snapshot of this incarnation holds; None: the job takes none."""
        return committed_of(self._job.plan, self._job.snapshots)

    def configure(self, changes: dict[str, Any]) -> None:
        """See Job.configure."""
        self._rescaler.configure(changes)

    def ping(self) -> Beat:
        """Answer, if the process lives."""
        job = self._job
        job.sink_calls.activity()  # logs one that takes long, also while nobody looks
        asked = job.cancelled.is_set(), job.is_stopping, dict(job.changes)
        return Beat(job.state, *asked, node=self._own_node, life=len(job.runs), is_deposed=job.is_deposed)

    def introduce(self, outcome: list[Any], runs: tuple[str, ...]) -> None:
        """The owner tells the reference of the long call and the job's runs, for others who look for the job."""
        self._job.runs = runs
        self._job.outcome = outcome[0]

    def about(self) -> About:
        """What a handle of this job stands on."""
        job = self._job
        return About(plan_to_show(job.plan), job.config, job.outcome, job.runs)

    def status(self) -> JobStatus:
        """See Job.status."""
        job = self._job
        look = self.look(with_readings=True)
        newest, interval_s, failures, late = self.look_at_snapshots()
        readings = [report.reading for report in look.reports if report.reading is not None]
        age_s = job.snapshots.age_s if job.snapshots is not None else None
        found = (look.reports, readings, look.views, look.active, failures, newest, age_s, interval_s, look.silent, job.journal.noted)
        seen = Seen(look.state, self._clock.time(), *found, late)
        with self._taking:
            return dataclasses.replace(self._taker.take(job.plan, seen), nodes=job.told_nodes())

    def holds_up(self) -> str | None:
        """What holds the job up, in one sentence; None where nothing is known to, or only that input is missing."""
        findings = self.look(with_blockers=True).findings
        if not findings or findings[0].cause is Cause.IDLE_INPUT:
            return None
        return sentences(findings[:1], "")

    def note_event(self, kind: str, what: str, /, **facts: Any) -> None:
        """Write into the journal what was seen of the job."""
        self._job.journal.note(kind, what, **facts)

    def journal(self) -> tuple[JobEvent, ...]:
        """See Job.journal."""
        return self._job.journal.events

    def note_decision(self, outcome: str, reason: str, changes: dict[str, int], answer: str) -> None:
        """The autoscaler has decided, or knows what became of a decision."""
        self._job.journal.note("decision", f"{outcome}: {reason}", outcome=outcome, changes=changes, answer=answer)

    def look(self, with_blockers: bool = False, patience_s: float = LOOK_PATIENCE_S, with_readings: bool = False) -> Look:
        """State, what the replicas did, views by stage. Actors that do not answer within ``patience_s`` are named, with what they told
        last."""
        job = self._job
        publishing = job.sink_calls.activity()
        is_long = publishing is not None and publishing.for_s > SINK_SHOWN_S
        own = [Silent(THE_COORDINATOR, "", publishing.for_s, publishing)] if publishing is not None and is_long else []
        starting = self._starting() if with_blockers else None
        if job.state is not JobState.RUNNING:
            findings = diagnose(self._facts(starting, own)) if with_blockers else ()
            return Look(job.state, silent=tuple(own), starting=starting, findings=findings)
        crew = dict(job.crew.actors)
        there = [name for name in job.crew.processes() if name in crew and name not in self._rescaler.newcomers]
        asked = {self._actors.call(crew[name], "look", with_readings): name for name in there}
        if PROGRESS in crew:
            asked[self._actors.call(crew[PROGRESS], "call", "look", with_blockers)] = PROGRESS
        ready = self._actors.wait(list(asked), patience_s, len(asked))
        answers: dict[str, Any] = {}
        answered = set()
        for ref in ready:
            answer = self._actors.take(ref, patience_s)
            if not isinstance(answer, Gave):
                continue  # it dies or restarts: its long call tells of that
            if asked[ref] == PROGRESS:
                answers[PROGRESS] = answer.value
            elif answer.value:  # one that is not built yet has nothing to tell
                answers.update(answer.value)
                answered.add(asked[ref])
                self._nodes[asked[ref]] = next(iter(answer.value.values())).node
        views, active, blockers, stamps = answers.pop(PROGRESS, (*self._seen, [], ()))
        self._seen = (views, active)
        replicas = {one.plane_name for process in there for one in job.places.replicas_at(process, job.plan)}
        self._told = {name: report for name, report in {**self._told, **answers}.items() if name in replicas}
        mute = [name for name in there if name not in answered and job.places.replicas_at(name, job.plan)]
        if PROGRESS in crew and PROGRESS not in [asked[ref] for ref in ready]:
            mute.append(PROGRESS)
        silent = [self._silent(name, patience_s) for name in mute]
        busy = [Silent(job.who(name), told.node, told.activity.for_s, told.activity) for name, told in answers.items() if told.activity]
        findings = diagnose(self._facts(starting, own, stamps, mute, silent)) if with_blockers else ()
        return Look(job.state, tuple(self._told.values()), views, active, blockers, (*own, *busy, *silent), starting, findings)

    def updates(self, sink: str, seen: ReadSoFar) -> dict[str, News | None]:
        """By replica that writes to a sink, by its key: the last records that are not ``seen``; None of one that does not answer."""
        job = self._job
        crew, plan = job.crew, job.plan
        writing = [stage for stage in plan.stages if any(one.key == sink and one.id in sinks_of(stage.steps) for one in plan.sinks)]
        names = [at.plane_name for at in replicas_of(writing)]
        names = [name for name in names if crew.holder(name) is not None]
        asked = {self._actors.call(crew.holder(name), "updates", stage_of(name), sink, seen.get(name)): name for name in names}
        found: dict[str, News | None] = dict.fromkeys(names)
        for ref in self._actors.wait(list(asked), LOOK_PATIENCE_S, len(asked)):
            answer = self._actors.take(ref, LOOK_PATIENCE_S)
            if isinstance(answer, Gave):  # else it dies or restarts: its long call tells of that
                found[asked[ref]] = answer.value
        return found

    def _facts(
        self,
        starting: Starting | None,
        own: Sequence[Silent],
        stamps: tuple[Stamp, ...] = (),
        mute: Sequence[str] = (),
        silent: Sequence[Silent] = (),
    ) -> Facts:
        """What is known now, for a diagnosis."""
        coordinator = own[0].activity if own else None
        late = self._late() or SnapshotsLate()
        return Facts(
            {(report.name, report.replica): report for report in self._told.values()} if self._job.state is JobState.RUNNING else {},
            stamps,
            tuple(self._missing(name, one, mute) for name, one in zip(mute, silent, strict=True)),
            self._job.waits_for,
            str(starting) if starting is not None else "",
            late.given_up,
            late.why,
            late.told_doing,
            coordinator,
        )

    def _missing(self, name: str, silent: Silent, mute: Sequence[str]) -> Missing:
        """One that does not answer, with how many others there are on its node."""
        node = silent.node or self._nodes.get(name, "")
        others = [other for other, at in self._nodes.items() if at == node and other != name and other in self._job.crew.actors]
        alive = sum(other not in mute for other in others) + (bool(node) and node == self._own_node)
        held = self._job.places.replicas_at(name, self._job.plan) if name != PROGRESS else ()
        replica = (self._job.plan.stage(held[0][0]).name, held[0][1]) if held else None
        return Missing(silent.who, replica, node, silent.for_s, len(others), alive)

    def _starting(self) -> Starting | None:
        """The actors that are waited for, if any are."""
        current = self._job.awaited
        if current is None:
            return None
        awaited, began_s = current
        return dataclasses.replace(awaited, for_s=self._clock.monotonic() - began_s, free=self._job.crew.sites.told_free())

    def _silent(self, name: str, waited_s: float) -> Silent:
        pulse, silence_s = self._job.crew.last_pulse(name)
        return Silent(self._job.who(name), pulse.node if pulse is not None else "", max(waited_s, silence_s))

    def look_at_snapshots(self) -> tuple[SnapshotStatistics | None, float | None, int, SnapshotsLate | None]:
        """The newest snapshot, the interval, how many failures there were, and what snapshots lack."""
        job = self._job
        snapshots = job.snapshots
        if snapshots is None:
            return None, None, job.failures, self._late()
        return snapshots.newest, snapshots.interval_s, job.failures, self._late()

    def _late(self) -> SnapshotsLate | None:
        """What is told of snapshots that do not come; None where they do, or the job keeps none."""
        job = self._job
        if not job.config.keeps_snapshots:
            return None
        known = job.snapshots.late if job.snapshots is not None else SnapshotsLate()
        doing = job.store_thread.under_way()
        return late_of(dataclasses.replace(known, doing=doing[0], doing_s=doing[1]) if doing is not None else known)

    def frontier(self, node: int) -> tuple[Timestamp, ...] | None:
        """The frontier at a probe; empty when the job is over, None when nobody can tell now."""
        job = self._job
        if not job.await_running(job.config.start_timeout_s):
            return None
        if job.state is not JobState.RUNNING:
            return ()
        progress = job.crew.actors.get(PROGRESS)
        if progress is None:
            return None
        answer = self._actors.take(self._actors.call(progress, "call", "frontier", node), PROGRESS_PATIENCE_S)
        return answer.value if isinstance(answer, Gave) else None

    def wait_epoch(self, node: int, epoch: int, hold_s: float) -> bool:
        """Whether an epoch is complete at a probe; waits for that, not longer than ``hold_s``: the caller asks again."""
        job = self._job
        began_s = self._clock.monotonic()
        if not job.running.wait(hold_s):
            return False
        if job.state is JobState.RUNNING:
            left_s = max(0.0, hold_s - (self._clock.monotonic() - began_s))
            if (progress := job.crew.actors.get(PROGRESS)) is not None:
                asked = self._actors.call(progress, "wait_epoch", node, epoch, left_s)
                answer = self._actors.take(asked, left_s + PROGRESS_PATIENCE_S)
                if isinstance(answer, Gave):  # else this incarnation is over, or the actor does not answer, which its heartbeat tells
                    return bool(answer.value)
        if not self._is_complete():
            self._never.wait(0.02)
        return self._is_complete()

    def _is_complete(self) -> bool:
        return self._job.state is JobState.COMPLETE

    def stop(self, cut_inputs: bool = True) -> None:
        """Sources read no more, live inputs close, each after its current activation; without ``cut_inputs`` who feeds them closes them."""
        self._job.stop_reading(cut_inputs)

    def not_stopped(self) -> list[str]:
        """Which replicas of sources and live inputs have not yet taken notice of :meth:`stop`, or do not answer within a second."""
        job = self._job
        if not job.running.is_set():
            return []
        asked = {name: self._actors.call(job.crew.actors[name], "has_stopped") for name in job.starts() if name in job.crew.actors}
        ready = self._actors.wait(list(asked.values()), 1.0, len(asked))
        out = []
        for name, ref in asked.items():
            answer = self._actors.take(ref, 1.0) if ref in ready else None
            if not isinstance(answer, Ended) and not (isinstance(answer, Gave) and answer.value):  # else gone, with what it read
                out.append(job.who(name))
        return out


__all__ = ["Control"]
