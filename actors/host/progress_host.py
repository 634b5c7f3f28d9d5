"""The progress core in its process: the loop that polls the data plane, and the control calls of other threads. It does not use Ray."""

from __future__ import annotations

from typing import Any

from rayad.actors.plane.frames import Frame
from rayad.actors.plane.plane import Address, Plane
from rayad.actors.plane.protocol import PROGRESS, SPIN_S
from rayad.actors.process.mailbox import WHILE_IT_LIVES_S, Mailbox
from rayad.actors.replica.places import Places
from rayad.actors.worker.progress_worker import ProgressWorker
from rayad.dataflow.pacing import FREE, Ahead
from rayad.dataflow.plan import Plan

LOOK_S = 10.0
LOOKS = frozenset({"look", "frontier"})
"""These change nothing: they are withdrawn when the loop does not come to them in time."""


class ProgressHost:
    """Runs the progress core of one job to its end.

    Args:
        plan, places, survives, ahead: see :class:`ProgressWorker`.
        plane: its own.
        mailbox: how control calls reach its loop.
    """

    def __init__(
        self,
        plan: Plan,
        plane: Any,
        *,
        mailbox: Mailbox | None = None,
        places: Places | None = None,
        survives: bool = False,
        ahead: Ahead = FREE,
    ) -> None:
        self.plane = plane
        self.mailbox = mailbox or Mailbox()
        self.mailbox.open(plane.wakeup)
        self.progress = ProgressWorker(plan, places or Places(), plane, survives=survives, ahead=ahead)

    def listen(self, host: str, unix: str = "auto") -> Address:
        """Open the plane; gives the address for the other processes."""
        return self.plane.listen(host, unix=unix)  # type: ignore[no-any-return]

    def run(self) -> dict[str, int]:
        """Register all replicas, start them, and publish views until nothing is left; gives some counts."""
        try:
            while not self.progress.is_over:
                self.turn(self.plane.poll(1.0))
            return self.progress.counts()
        finally:
            self.end()

    def turn(self, frames: list[Frame]) -> None:
        """One round of the loop, with these frames."""
        self.progress.turn(frames)
        self.mailbox.serve()
        self.progress.look_whether_over()

    def end(self) -> None:
        """Nothing is done here any more."""
        self.mailbox.close()
        self.plane.close(linger_s=2.0)

    # -- control calls, from other threads ---------------------------------------------------
    def call(self, method: str, *arguments: Any) -> Any:
        """One of ProgressWorker's methods, in the loop. What changes something is done whenever the loop comes to it, in its order: a job
        that was held and is not released would never end. Whoever waits for the answer has the bound. ``joined``: wait until these replicas
        have registered, for so long."""
        if method == "joined":
            names, timeout_s = arguments
            return self.mailbox.watch(lambda: self.progress.joined(names), timeout_s)
        return self.mailbox.ask(lambda: getattr(self.progress, method)(*arguments), LOOK_S if method in LOOKS else WHILE_IT_LIVES_S)

    def wait_epoch(self, node: int, epoch: int, timeout_s: float) -> bool:
        """Wait until an epoch is complete at a probe, for at most ``timeout_s``."""
        return bool(self.mailbox.watch(lambda: self.progress.has_passed(node, epoch), timeout_s))

    def abandon(self) -> None:
        """The job continues in another incarnation; end."""
        self.progress.is_abandoned = True
        self.plane.wakeup()


def progress_on_sockets(plan: Plan, *, job: str, secret: bytes, incarnation: int, seals: bool = True, **given: Any) -> ProgressHost:
    """With a plane of its own. ``job``, ``secret``, ``incarnation``, ``seals``: for that; all else: see :class:`ProgressHost`."""
    plane = Plane(name=PROGRESS, job=job, incarnation=incarnation, secret=secret, spin_s=SPIN_S, seals=seals)
    return ProgressHost(plan, plane, **given)


__all__ = ["ProgressHost", "progress_on_sockets"]
