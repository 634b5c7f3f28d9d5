"""The Ray actor of a job's progress core. Ray gives placement, supervision and control calls; everything else is in its host."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import ray

from rayad.actors.cluster.actor_class import PULSE, TAKE_S, WAITING, actor_title, remote_class, show_in_logs
from rayad.actors.cluster.joining import own_address
from rayad.actors.cluster.parcels import Parcel, opened
from rayad.progress import ProtocolError

if TYPE_CHECKING:
    from rayad.actors.host.progress_host import ProgressHost
    from rayad.actors.lead.failure import Failure
    from rayad.actors.plane.plane import Address
    from rayad.actors.replica.places import Places
    from rayad.actors.replica.report import Pulse
    from rayad.dataflow.pacing import Ahead
    from rayad.dataflow.plan import Layout, Plan


class ProgressActor:
    """The progress core of one job after the other. ``shown_as``: see :func:`actor_title`."""

    def __init__(self, *shown_as: str) -> None:
        self._shown_as = shown_as
        self._plan: Plan | None = None
        self._identity: dict[str, Any] = {}
        self._host: ProgressHost | None = None
        self._node = ray.util.get_node_ip_address()
        self._node_id = str(ray.get_runtime_context().get_node_id())
        _host()

    def __repr__(self) -> str:
        return actor_title(self, *getattr(self, "_shown_as", ()))

    def take(self, plan: Parcel, places: Places, job: str, secret: bytes, seals: bool = True) -> None:
        """Be the progress core of a job. ``plan``: a parcel of it."""
        self._identity = {"job": job, "secret": secret, "seals": seals, "places": places}
        self._host, self._plan = None, opened(plan, TAKE_S)
        show_in_logs(self, job)

    def rest(self) -> None:
        """The job is complete: forget it, and wait for another one."""
        self._host, self._plan, self._identity = None, None, {}

    def is_fit(self) -> bool:
        """Answer: there is nothing of the user's here."""
        return True

    def listen(self, host: str | None, unix: str, incarnation: int, survives: bool, ahead: Ahead, layout: Layout) -> Address | Failure:
        """Open the plane, with no progress made; again for each incarnation. ``survives``, ``ahead``: see ProgressWorker."""
        try:
            if self._plan is None:
                raise ProtocolError("the progress actor has been given no job")
            given: dict[str, Any] = {"incarnation": incarnation, "survives": survives, "ahead": ahead}
            self._host = _host().progress_on_sockets(self._plan.laid_out(layout), **given, **self._identity)
            return self._host.listen(own_address(host), unix)
        except Exception as error:
            return self._failed(error)

    def _failed(self, error: Exception) -> Failure:
        failure: Failure = _host().failure_of("progress", error)
        return failure

    def run(self) -> tuple[dict[str, int] | Failure, dict[int, Any]]:
        """Run until the job is complete."""
        assert self._host is not None
        try:
            return self._host.run(), {}
        except Exception as error:
            return self._failed(error), {}

    def ping(self) -> Pulse:
        """Answer, if the process lives."""
        pulse: Pulse = _host().Pulse(None, self._node, self._node_id)
        return pulse

    def idle(self) -> None:
        """Answer when no long call is running: not a control call."""

    def abandon(self, incarnation: int) -> None:
        """This incarnation is over."""
        if self._host is not None and self._host.plane.incarnation <= incarnation:
            self._host.abandon()

    def call(self, method: str, *args: Any) -> Any:
        """One of ProgressWorker's methods, in its loop."""
        assert self._host is not None
        return self._host.call(method, *args)

    def wait_epoch(self, node: int, epoch: int, hold_s: float) -> bool:
        """Whether an epoch is complete at a probe; waits for that, not longer than ``hold_s``."""
        assert self._host is not None
        return self._host.wait_epoch(node, epoch, hold_s)


def _host() -> Any:
    """What this process needs once it has work: see :mod:`rayad.actors.vertex_actor`."""
    from rayad.actors.host import progress_process

    return progress_process


@cache
def remote_progress() -> Any:
    """The Ray class of the progress actor."""
    groups = {PULSE: ("ping", "abandon", "is_fit"), "control": ("call",), "waits": ("wait_epoch",)}
    return remote_class(ProgressActor, {PULSE: 2, "control": 4, "waits": WAITING}, groups)
