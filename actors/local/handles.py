"""Live inputs and probes of a local job: waiting for something runs the dataflow."""

from __future__ import annotations

from typing import Any, Protocol

from rayad.actors.job import JobInput, Probe, took_nothing
from rayad.actors.local.network import Network, Where
from rayad.progress import DataflowError, InternalError, Timestamp


class Stepped(Protocol):
    """A job that runs when it is told to: :class:`rayad.actors.local.local_job.LocalJob`."""

    name: str
    seed: int
    network: Network

    def step(self) -> bool: ...

    def now_s(self) -> float: ...

    def raise_if_over(self) -> None: ...


class StillOpen(DataflowError):
    """The job cannot end: live inputs are open."""


def cannot_move(job: Stepped) -> Exception:
    """Why a job that is not complete has nothing to do."""
    still = job.network.open_inputs()
    if still:
        return StillOpen(f"job {job.name!r} cannot end: its live inputs {still} are open; close() them, or use job.probe(name).wait(epoch)")
    return InternalError(f"job {job.name!r} (seed {job.seed}, step {job.network.steps}) is stuck:\n{job.network.explain()}")


class LocalInput(JobInput):
    """Feeds a queue of the local runtime."""

    def __init__(self, name: str, job: Stepped, at: Where) -> None:
        super().__init__(name)
        self._job = job
        self._at = at
        core = job.network.cores[at]
        self.closed = core.input_epoch is None
        self.epoch, self.sent = core.input_epoch or 0, core.input_sends

    def _put(self, item: tuple[str, Any]) -> None:
        self._job.raise_if_over()
        network = self._job.network
        network.input_log[self._at].append(item)
        network.ready.add(("input", self._at))

    def _send(self, batch: Any, timeout_s: float | None) -> None:
        if timeout_s is not None:
            self._await_room(timeout_s)
        self._put(("send", batch))
        while self._waits() > self._job.network.config.window_batches and self._job.step():
            pass

    def _waits(self) -> int:
        return self._job.network.input_log[self._at].waits

    def _await_room(self, timeout_s: float) -> None:
        """Until what is put is within the window."""
        deadline_s = self._job.now_s() + timeout_s
        while self._waits() >= self._job.network.config.window_batches:
            if self._job.now_s() > deadline_s:
                raise took_nothing(self.name, self._job.name, timeout_s)
            if not self._job.step():
                return

    def _advance(self, epoch: int) -> None:
        self._put(("advance", epoch))

    def _close(self) -> None:
        self._put(("close", None))


class LocalProbe(Probe):
    """Looks at the progress core; waiting runs the dataflow."""

    def __init__(self, name: str, job: Stepped, node: int) -> None:
        super().__init__(name)
        self._job = job
        self._node = node

    def frontier(self) -> tuple[Timestamp, ...]:
        return self._job.network.tracker.frontier_at(self._node, 0)

    def _wait(self, epoch: int, timeout_s: float | None) -> bool:
        deadline_s = None if timeout_s is None else self._job.now_s() + timeout_s
        while not self.complete(epoch):
            if (deadline_s is not None and self._job.now_s() > deadline_s) or not self._job.step():
                return False
        return True
