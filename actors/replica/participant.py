"""One replica's side of snapshots: alignment of its barriers, the capture, the growing log. Both runtimes drive it.

The shell hands in barriers and batches in turn, and carries out the effects that it gets back, in order and at once.
Source: Carbone et al., 2015, 4.2 and 4.3; docs/design/snapshots.md.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rayad.actors.replica.captures import Capture
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import Channel, channels_in, channels_out, edge_names
from rayad.actors.replica.parts.part_files import SetAside, StateChain, has_state, is_nothing
from rayad.actors.replica.rest import freeze
from rayad.actors.replica.waiting_batches import Disk
from rayad.dataflow.plan import Plan, Stage
from rayad.progress import Timestamp
from rayad.snapshots.alignment import Alignment, Verdict
from rayad.snapshots.barrier import Barrier


@dataclass(frozen=True, slots=True)
class SendOut:
    """Send what the replica has produced, so that it goes before the barrier."""


@dataclass(frozen=True, slots=True)
class SendBarrier:
    """Put a barrier behind what was sent to a replica on an edge, or before it if it is unaligned."""

    edge: int
    replica: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Captured:
    """Add to the capture what only the shell knows, and take its state: the vertex continues after that."""

    capture: Capture


@dataclass(frozen=True, slots=True)
class Completed:
    """The log of the capture is complete: it can be written to the end."""

    capture: Capture


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An unfinished attempt will not be completed."""

    number: int


Effect = SendOut | SendBarrier | Captured | Completed | GivenUp


class Participant:
    """The snapshots of one replica.

    Args:
        plan, stage, core: the replica.
        disk: makes the place for what sink writers stage before a snapshot asks for it, because it is much; None: it stays in memory.
    """

    def __init__(
        self,
        plan: Plan,
        stage: Stage,
        core: ReplicaCore,
        *,
        disk: Callable[[], Disk] | None = None,
    ) -> None:
        regular, feedback = channels_in(plan, stage, core.replica)
        self.alignment: Alignment[Channel] = Alignment(regular, feedback)
        self.channels_out = channels_out(plan, stage, core.replica)
        self.chain = StateChain()
        self.capture: Capture | None = None
        self.barrier: Barrier | None = None
        self._core = core
        self._has_state = has_state(stage)
        self._staged: list[tuple[int, str, Any]] = []
        self._aside: list[tuple[str, SetAside]] = []  # staged since the last capture
        self._disk: Disk | None = None
        self._make_disk = disk
        if disk is not None:
            core.outputs.sinks.set_aside = self._set_aside
        self._sinks = {sink.id: sink.key for sink in plan.sinks}
        self._names = edge_names(plan)

    def lay_out(self, plan: Plan) -> None:
        """The channels in and out are those of another layout from now on; no snapshot is pending here."""
        stage = plan.stage(self._core.stage.id)
        regular, feedback = channels_in(plan, stage, self._core.replica)
        self.alignment.regular, self.alignment.feedback = frozenset(regular), frozenset(feedback)
        self.channels_out = channels_out(plan, stage, self._core.replica)

    def staged(self, base: int) -> list[tuple[str, Any]]:
        """For a replica that retires: what its writers have staged and no snapshot has; ``base``: the attempt that was published last."""
        kept = [*((key, value) for number, key, value in self._staged if number > base), *self._stage()]
        return [(key, value.load() if isinstance(value, SetAside) else value) for key, value in kept]

    def _set_aside(self, sink: int, value: Any) -> None:
        """A writer kept much, and has staged it: put it on disk until the next capture."""
        if self._disk is None:
            assert self._make_disk is not None
            self._disk = self._make_disk()
            weakref.finalize(self, self._disk.close)
        key = self._sinks[sink]
        self._aside.append((key, SetAside(self._disk, key, value)))

    def _stage(self) -> list[tuple[str, Any]]:
        """What the writers have staged since the last capture, with the sinks' keys."""
        aside, self._aside = self._aside, []
        return [*aside, *((self._sinks[sink], value) for sink, value in self._core.stage_sinks().items() if not is_nothing(value))]

    @property
    def is_pending(self) -> bool:
        """Whether batches and barriers must be checked: a snapshot is under way here."""
        return self.alignment.is_pending

    def begin(self, barrier: Barrier) -> list[Effect]:
        """The coordinator begins a snapshot at a replica without regular inputs."""
        return self._act(self.alignment.begin(barrier.number, unaligned=barrier.unaligned), barrier)

    def on_barrier(self, channel: Channel, barrier: Barrier, ahead: Iterable[bytes] = ()) -> list[Effect]:
        """A barrier is next on its channel; or an unaligned one has arrived while the batches ``ahead`` of it were not yet consumed."""
        is_old = self.alignment.is_old(barrier.number)
        verdict = self.alignment.on_barrier(channel, barrier.number, unaligned=barrier.unaligned)
        return self._act(verdict, barrier, channel, () if is_old else ahead)

    def blocks(self, channel: Channel) -> bool:
        """Whether what comes on a channel must wait for the capture."""
        return self.alignment.blocked(channel)

    def logs(self, channel: Channel) -> bool:
        """Whether a batch that is consumed now, or overtaken, belongs in the log."""
        return self.alignment.logs(channel)

    def log(self, channel: Channel, data: bytes) -> None:
        """Put an encoded batch into the log."""
        assert self.capture is not None
        self.capture.rest.log.append((self._names[channel[0]], channel[1], data))

    def log_batch(self, channel: Channel, time: Timestamp, batch: Any) -> None:
        """Put a batch into the log, before a vertex can change it."""
        self.log(channel, freeze(time, batch))

    def turn_unaligned(self) -> list[Effect]:
        """Alignment takes too long: capture now, log the channels that have not yet brought the barrier."""
        barrier = self.barrier
        return self._act(self.alignment.turn_unaligned(), barrier.turned_unaligned()) if barrier is not None else []

    def give_up(self, number: int = 0) -> list[Effect]:
        """The coordinator has given an attempt up, by default the one that is pending here; a newer one continues."""
        return self._drop(self.alignment.give_up(number))

    def finish(self, barrier: Barrier) -> list[Effect]:
        """The job is complete: nothing is on any channel. Gives the last part, at once."""
        return [*self.give_up(), self._take(barrier), self._complete()]

    def _act(self, verdict: Verdict, barrier: Barrier, channel: Channel | None = None, ahead: Iterable[bytes] = ()) -> list[Effect]:
        effects = self._drop(verdict.dropped)
        if barrier.number == self.alignment.number:  # not one of an attempt that was given up
            self.barrier = barrier
        if verdict.capture:
            self._core.outputs.flush()  # what combiners keep back belongs before the barrier
            effects.append(SendOut())
            effects += [SendBarrier(edge, replica, barrier) for edge, replica in self.channels_out]
            effects.append(self._take(barrier))
        if channel is not None:
            for data in ahead:
                self.log(channel, data)
        if verdict.complete:
            effects.append(self._complete())
        return effects

    def _take(self, barrier: Barrier) -> Captured:
        core = self._core
        rest = core.cut()
        chosen = None
        if self._has_state:
            assert core.vertex is not None
            chosen = self.chain.choose(core.vertex, barrier)
        # What an attempt that was given up had staged goes with the next one; what is published has been given to the sinks.
        for number, _, value in self._staged:
            if number <= barrier.base and isinstance(value, SetAside):
                value.free()
        self._staged = [entry for entry in self._staged if entry[0] > barrier.base]
        self._staged.extend((barrier.number, key, value) for key, value in self._stage())
        state, is_increment, runs = chosen or (None, False, ())
        self.capture = Capture(barrier, rest, state, is_increment, [(key, value) for _, key, value in self._staged], runs)
        return Captured(self.capture)

    def _complete(self) -> Completed:
        capture = self.capture
        assert capture is not None
        capture.is_complete = True
        self.capture = None
        return Completed(capture)

    def _drop(self, number: int | None) -> list[Effect]:
        if number is None:
            return []
        self.capture = None
        return [GivenUp(number)]
