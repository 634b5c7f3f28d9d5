"""Tables of a local job: whoever reads lets the job run until the epoch that is asked for is complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rayad.actors.coordinator.readable import committed_of
from rayad.actors.job import JobState
from rayad.actors.local.handles import Stepped
from rayad.actors.plane.replica_id import replicas_of
from rayad.actors.replica.reads.questions import Answer
from rayad.actors.tables.reading import Question
from rayad.actors.tables.table import Readable, told_open
from rayad.dataflow.logical_graph import NodeKind
from rayad.progress import DataflowError


class LocalTables(Readable):
    """Asks the replicas themselves, between two events of the job.

    Args:
        job: whose state is read.
    """

    def __init__(self, job: Stepped) -> None:
        self.name = job.name
        self._job = job
        self._runtime = job.runtime
        self._steps = -1  # of the job, when a read had to wait last
        self.plan = job.runtime.plan
        self.between: Callable[[], None] = lambda: None
        """Called before each question: a test lets the job run here."""

    def owners(self, left_s: float) -> Mapping[int, tuple[int, ...]]:
        plan = self._runtime.plan
        return {stage.id: plan.owners(stage) for stage in plan.stages}

    def carry(self, questions: Sequence[Question], left_s: float) -> Sequence[Answer | None]:
        return [self._carry(question) for question in questions]

    def _carry(self, question: Question) -> Answer | None:
        self.between()
        self._job.raise_if_over()
        if self._runtime.state is JobState.COMPLETE:
            raise DataflowError(
                f"job {self.name!r} is complete, and its replicas are gone: read its results, or its last snapshot with rd.read_state(...)"
            )
        processes = self._runtime.processes
        host = processes.host(question.to)
        if host is None or not host.is_going:
            return None
        if not host.place.is_subscribed:
            processes.ready.add(("turn", processes.places.process_of(*question.to)))  # it asks to be told of its frontier
        return host.answer(question.ask)

    def committed(self, left_s: float) -> Mapping[int, int] | None:
        return committed_of(self._runtime.plan, self._runtime.snapshots)

    def begun(self, left_s: float) -> int:
        processes, plan = self._runtime.processes, self._runtime.plan
        found = [-1]
        for at in replicas_of([stage for stage in plan.stages if stage.kind in (NodeKind.SOURCE, NodeKind.INPUT)]):
            host = processes.host(at)
            if host is None:
                continue
            found.append(host.core.begun)
            taken = host.core.input
            epoch = taken.epoch
            for kind, value in processes.logs[at.stage].after(taken.frames) if at.stage in processes.logs else ():
                epoch = value if kind == "advance" else epoch
                if kind == "send" and epoch is not None:
                    found.append(epoch)
        return max(found)

    def now_s(self) -> float:
        return self._job.now_s()

    def pause(self, left_s: float) -> bool:
        has_moved = self._job.step_or_pause(left_s) or self._steps != self._runtime.steps
        self._steps = self._runtime.steps
        return has_moved

    def holding_back(self, epoch: int, left_s: float) -> str:
        runtime = self._runtime
        names = {at.stage: stage.name for stage in runtime.plan.stages for at in replicas_of([stage]) if stage.kind is NodeKind.INPUT}
        hosts = ((name, runtime.processes.host((stage, 0))) for stage, name in names.items())
        open_in = {name: host.core.input.epoch for name, host in hosts if host is not None and host.core.input.epoch is not None}
        return told_open(open_in, epoch)


__all__ = ["LocalTables"]
