"""Parts of the local runtime: the set of events that can happen next, live inputs, probes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rayad.actors.job import JobInput, Probe, describe_blockers, took_nothing
from rayad.actors.plane.on_demand import rows_of
from rayad.actors.replica.core import ReplicaCore
from rayad.dataflow.plan import Stage
from rayad.progress import DataflowError, InternalError, Timestamp

if TYPE_CHECKING:
    from rayad.actors.local.local_job import LocalJob

Where = tuple[int, int]

CUT_SHARE = 0.3
"""How often a batch on demand is cut."""


class HeldUp(dict[Where, set[Any]]):
    """Events of replicas that are held up, until there is room; it counts for how many steps they are."""

    def __init__(self, steps: Callable[[], int]) -> None:
        super().__init__()
        self.began = steps()
        self._steps = steps
        self._since: dict[Where, int] = {}
        self._before: dict[Where, int] = {}

    def setdefault(self, at: Where, default: set[Any]) -> set[Any]:
        """As of a dict; the replica is held up from now on."""
        self._since.setdefault(at, self._steps())
        return super().setdefault(at, default)

    def pop(self, at: Where, *default: Any) -> Any:
        """As of a dict; the replica is free."""
        since = self._since.pop(at, None)
        if since is not None:
            self._before[at] = self._before.get(at, 0) + self._steps() - since
        return super().pop(at, *default)

    def steps_of(self, at: Where) -> int:
        """For how many steps a replica has been held up so far."""
        since = self._since.get(at)
        return self._before.get(at, 0) + (self._steps() - since if since is not None else 0)


class Ready:
    """A set with O(1) draw of a random element, in an order that only the seed decides."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.place: dict[Any, int] = {}

    def add(self, item: Any) -> None:
        if item not in self.place:
            self.place[item] = len(self.items)
            self.items.append(item)

    def discard(self, item: Any) -> None:
        index = self.place.pop(item, None)
        if index is None:
            return
        last = self.items.pop()
        if last != item:
            self.items[index] = last
            self.place[last] = index

    def again(self, events: Iterable[Any], channels: Mapping[tuple[int, int, int], Any]) -> None:
        """Events that were put aside can happen again; of batches only where some are still waiting."""
        for event in sorted(events):
            if event[0] != "batch" or channels[event[1]]:
                self.add(event)


class StillOpen(DataflowError):
    """The job cannot end: live inputs are open."""


def feed(job: LocalJob, event: Any) -> bool:
    """The next item of a live input; False when its replica is held up."""
    at = event[1]
    if job._held_up(at, event):
        return False
    log = job._input_log[at]
    kind, value = log.next()
    if not log.waits:
        job._ready.discard(event)
    if job.snapshots is None:
        log.trim(log.taken)
    core = job.cores[at]
    core.input_frames = log.taken
    if kind == "send":
        core.input_send(value)
    elif kind == "advance":
        core.input_advance(value)
    else:
        core.input_close()
    job._after(at)
    return True


def configure_local(job: LocalJob) -> None:
    """The job's configuration has changed: windows and sizes of batches; what was held up by a smaller window may move."""
    job._window = job.config.window_batches
    for core in job.cores.values():
        core.outputs.batch_rows = job.config.batch_rows
    for at in [at for at in job._blocked if job._queued.get(at, 0) < job._window]:
        for event in sorted(job._blocked.pop(at)):
            job._ready.add(event)


def cannot_move(job: LocalJob) -> Exception:
    """Why a job that is not complete has nothing to do."""
    still = [name for name, stage in job.plan.inputs.items() if job.cores[stage, 0].input_epoch is not None]
    if still:
        return StillOpen(f"job {job.name!r} cannot end: its live inputs {still} are open; close() them, or use job.probe(name).wait(epoch)")
    return InternalError(f"job {job.name!r} (seed {job.seed}, step {job.steps}) is stuck:\n{job.explain_stuck()}")


class LocalInput(JobInput):
    """Feeds a queue of the local runtime."""

    def __init__(self, name: str, job: LocalJob, at: Where) -> None:
        super().__init__(name)
        self._job = job
        self._at = at
        core = job.cores[at]
        self.closed = core.input_epoch is None
        self.epoch, self.sent = core.input_epoch or 0, core.input_sends

    def _put(self, item: tuple[str, Any]) -> None:
        self._job._raise_if_over()
        self._job._input_log[self._at].append(item)
        self._job._ready.add(("input", self._at))

    def _send(self, batch: Any, timeout_s: float | None) -> None:
        if timeout_s is not None:
            self._await_room(timeout_s)
        self._put(("send", batch))
        while self._waits() > self._job._window and self._job.step():
            pass

    def _waits(self) -> int:
        return self._job._input_log[self._at].waits

    def _await_room(self, timeout_s: float) -> None:
        """Until what is put is within the window."""
        deadline_s = self._job.now_s() + timeout_s
        while self._waits() >= self._job._window:
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

    def __init__(self, name: str, job: LocalJob, node: int) -> None:
        super().__init__(name)
        self._job = job
        self._node = node

    def frontier(self) -> tuple[Timestamp, ...]:
        return self._job.tracker.frontier_at(self._node, 0)

    def _wait(self, epoch: int, timeout_s: float | None) -> bool:
        deadline_s = None if timeout_s is None else self._job.now_s() + timeout_s
        while not self.complete(epoch):
            if (deadline_s is not None and self._job.now_s() > deadline_s) or not self._job.step():
                return False
        return True


def explain(job: LocalJob) -> str:
    """Why nothing moves."""
    describe = job.plan.progress.describe_location
    parts = []
    for (stage, replica), core in job.cores.items():
        for notification in core.notificator.pending():
            time = notification.guarantee
            blockers = [(describe(loc), t, n) for loc, t, n in job.tracker.blockers(stage, time)]
            parts.append(describe_blockers(f"{core.name}[{replica}]", time, blockers))
    held = {channel: len(waiting) for channel, waiting in job.channels.items() if waiting}
    parts.extend(f"{count} batches wait on {job._edges[c[0]].name} {c[1]}->{c[2]}" for c, count in held.items())
    parts.extend(f"input {name!r} is open" for name, stage in job.plan.inputs.items() if job.cores[stage, 0].input_epoch is not None)
    return "\n".join(parts) or "nothing is waiting"


def new_core(job: LocalJob, stage: Stage, replica: int) -> ReplicaCore:
    """A replica that is not started yet, with its queues."""
    at = (stage.id, replica)

    def room(edge: int, target: int) -> int:
        waiting = job.channels.get((edge, replica, target))
        return -len(waiting) if waiting is not None else 0

    core = job.cores[at] = ReplicaCore(job.plan, stage, replica, room=room, gated=job._gated)
    core.outputs.watch_records(job.shared.get(stage.id, {}))
    core.outputs.piece_rows = pieces_by_chance(job._random)
    core.outputs.batch_rows = job.config.batch_rows
    job.reports.setdefault(at, deque()).clear()
    job.views.setdefault(at, deque()).clear()
    return core


def pieces_by_chance(chance: random.Random) -> Callable[[int, Any], int]:
    """For edges on demand: here nothing takes time by which batches could be cut, so the seed says into what."""

    def rows(_edge: int, batch: Any) -> int:
        most = rows_of(batch)
        return chance.randint(1, most) if most > 1 and chance.random() < CUT_SHARE else most

    return rows
