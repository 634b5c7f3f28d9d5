"""The Ray actor of a job's progress core. Ray gives placement, supervision and control calls; everything else is in its host."""

from __future__ import annotations

from functools import cache
from typing import Any

import ray

from rayad.actors.cluster.actor_class import PULSE, WAITING, actor_title, remote_class
from rayad.actors.cluster.joining import own_address
from rayad.actors.host.progress_host import ProgressHost
from rayad.actors.lead.failure import Failure, failure_of
from rayad.actors.plane.plane import Address
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import Pulse
from rayad.dataflow.plan import Layout, Plan


class ProgressActor:
    """The progress core of one job."""

    def __init__(self, plan: Plan, places: Places, job: str, secret: bytes, seals: bool = True) -> None:
        self._shown_as = (job,)
        self._plan = plan
        self._identity: dict[str, Any] = {"job": job, "secret": secret, "seals": seals, "places": places}
        self._host: ProgressHost | None = None
        self._node = ray.util.get_node_ip_address()
        self._node_id = str(ray.get_runtime_context().get_node_id())

    def __repr__(self) -> str:
        return actor_title(self, *getattr(self, "_shown_as", ()))

    def listen(self, host: str | None, unix: str, incarnation: int, survives: bool, layout: Layout) -> Address | Failure:
        """Open the plane, with no progress made; again for each incarnation. ``survives``: the loss of replicas."""
        try:
            self._host = ProgressHost(self._plan.laid_out(layout), incarnation=incarnation, survives=survives, **self._identity)
            return self._host.listen(own_address(host), unix)
        except Exception as error:
            return failure_of("progress", error)

    def run(self) -> tuple[dict[str, int] | Failure, dict[int, Any]]:
        """Run until the job is complete."""
        assert self._host is not None
        try:
            return self._host.run(), {}
        except Exception as error:
            return failure_of("progress", error), {}

    def ping(self) -> Pulse:
        """Answer, if the process lives."""
        return Pulse(None, self._node, self._node_id)

    def idle(self) -> None:
        """Answer when no long call is running: not a control call."""

    def abandon(self, incarnation: int) -> None:
        """This incarnation is over."""
        if self._host is not None and self._host.plane.incarnation <= incarnation:
            self._host.abandon()

    def call(self, method: str, *args: Any) -> Any:
        """One of ProgressWorker's methods, in its loop."""
        assert self._host is not None
        return self._host.joined(*args) if method == "joined" else self._host.call(method, *args)

    def wait_epoch(self, node: int, epoch: int, hold_s: float) -> bool:
        """Whether an epoch is complete at a probe; waits for that, not longer than ``hold_s``."""
        assert self._host is not None
        return self._host.wait_epoch(node, epoch, hold_s)


@cache
def remote_progress() -> Any:
    """The Ray class of the progress actor."""
    groups = {PULSE: ("ping", "abandon"), "control": ("call",), "waits": ("wait_epoch",)}
    return remote_class(ProgressActor, {PULSE: 2, "control": 4, "waits": WAITING}, groups)
