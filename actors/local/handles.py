"""Live inputs and probes of a local job: waiting for something runs the dataflow."""

from __future__ import annotations

import math
from typing import Any, Protocol

from rayad.actors.coordinator.stored.snapshots import CoordinatorSnapshots
from rayad.actors.inputs.job_input import JobInput, no_snapshots, not_saved, took_nothing
from rayad.actors.job import JobState, Probe, SavedEpochs
from rayad.actors.local.results import explain, open_inputs
from rayad.actors.local.runtime import LocalRuntime
from rayad.progress import DataflowError, InternalError, Timestamp

PAUSE_S = 1e-6
"""Beyond a deadline, so that it has passed when a pause until then is over."""


class Stepped(Protocol):
    """A job that runs when it is told to: :class:`rayad.actors.local.local_job.LocalJob`."""

    name: str
    runtime: LocalRuntime

    def step(self) -> bool: ...

    def step_or_pause(self, most_s: float = math.inf) -> bool: ...

    def now_s(self) -> float: ...

    def pause(self, seconds: float) -> None: ...

    def raise_if_over(self) -> None: ...


class StillOpen(DataflowError):
    """The job cannot end: live inputs are open."""


def cannot_move(job: Stepped) -> Exception:
    """Why a job that is not complete has nothing to do."""
    runtime = job.runtime
    still = open_inputs(runtime)
    if still:
        return StillOpen(f"job {job.name!r} cannot end: its live inputs {still} are open; close() them, or use job.probe(name).wait(epoch)")
    return InternalError(f"job {job.name!r} (seed {runtime.seed}, step {runtime.steps}) is stuck:\n{explain(runtime)}")


class LocalInput(JobInput):
    """Feeds a live input of the local runtime."""

    def __init__(self, name: str, job: Stepped, stage: int) -> None:
        super().__init__(name)
        self._job = job
        self._processes = job.runtime.processes
        self._stage = stage
        host = self._processes.host((stage, 0))
        if host is not None:
            taken = host.core.input
            epoch, self.sent, self.note = taken.epoch, taken.sends, taken.note
        else:  # the run that is resumed was complete
            assert job.runtime.snapshots is not None
            self.sent, epoch, self.note = job.runtime.snapshots.manifest.notes["input_states"][name][:3]
        self.closed = epoch is None
        self.epoch = epoch or 0

    def _job_name(self) -> str:
        return self._job.name

    def _put(self, item: tuple[str, Any]) -> None:
        self._job.raise_if_over()
        self._processes.logs[self._stage].append(item)
        self._processes.look_for_input(self._stage)

    def _send(self, batch: Any, timeout_s: float | None) -> int:
        if timeout_s is not None:
            self._await_room(timeout_s)
        self._put(("send", batch))
        while self._waits() > self._window and self._job.step():
            pass
        return self.sent + 1

    @property
    def _window(self) -> int:
        return self._processes.config.window_batches

    def _waits(self) -> int:
        """How many frames have not been consumed."""
        log = self._processes.logs[self._stage]
        return log.first + len(log) - self._processes.consumed(self._stage)

    def _await_room(self, timeout_s: float) -> None:
        """Until what is put is within the window."""
        deadline_s = self._job.now_s() + timeout_s
        while self._waits() >= self._window:
            if self._job.now_s() > deadline_s:
                raise took_nothing(self.name, self._job.name, timeout_s)
            if not self._job.step():
                return

    def _advance(self, epoch: int) -> None:
        self._put(("advance", epoch))

    def _close(self) -> None:
        self._put(("close", None))

    def _keep_note(self, text: str) -> None:
        self._put(("note", text))

    def _saved(self) -> SavedEpochs:
        return self._taken().leader.saved(self.name)

    def _taken(self) -> CoordinatorSnapshots:
        self._job.raise_if_over()
        if self._job.runtime.snapshots is None:
            raise no_snapshots(self.name, self._job.name)
        return self._job.runtime.snapshots

    def _wait_saved(self, epoch: int, timeout_s: float | None) -> None:
        taken = self._taken()
        deadline_s = None if timeout_s is None else self._job.now_s() + timeout_s
        self._put(("save", epoch))
        while taken.leader.saved(self.name).newest <= epoch:
            if deadline_s is not None and timeout_s is not None and self._job.now_s() > deadline_s:
                raise not_saved(self.name, self._job.name, epoch, timeout_s)
            taken.poll(0.0)
            if self._job.step():
                continue
            due_in_s = taken.leader.due_in_s(self._job.now_s())
            if due_in_s is None or taken.leader.snapshots.pending is not None:
                raise cannot_move(self._job)
            self._job.pause(due_in_s)


class LocalProbe(Probe):
    """Looks at the progress core; waiting runs the dataflow."""

    def __init__(self, name: str, job: Stepped, node: int) -> None:
        super().__init__(name)
        self._job = job
        self._node = node

    def frontier(self) -> tuple[Timestamp, ...]:
        runtime = self._job.runtime
        return () if runtime.state is JobState.COMPLETE else runtime.processes.progress.frontier(self._node)

    def _wait(self, epoch: int, timeout_s: float | None) -> bool:
        deadline_s = None if timeout_s is None else self._job.now_s() + timeout_s
        while not self.complete(epoch):
            left_s = math.inf if deadline_s is None else deadline_s - self._job.now_s()
            if left_s < 0 or not self._job.step_or_pause(left_s + PAUSE_S):
                return False
        return True
