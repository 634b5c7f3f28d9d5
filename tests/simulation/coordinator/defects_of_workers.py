"""Mistakes planted in what a worker adds to replicas: handing over, turns, reports that are sums, places. The seeds have to find them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from rayad.actors.plane.protocol import Kind
from rayad.actors.replica.places import Places
from rayad.actors.worker import replica_host
from rayad.actors.worker.payloads import Handed
from rayad.actors.worker.progress_worker import ProgressWorker
from rayad.actors.worker.replica_host import ReplicaHost
from rayad.actors.worker.rescaling import HostRescale
from rayad.actors.worker.snapshots import HostSnapshots
from rayad.actors.worker.worker import Worker
from rayad.actors.worker.workplace import Workplace, WorkplaceCarrier
from tests.simulation.defects import around

Plant = Callable[[ExitStack], None]
DEFECTS_OF_WORKERS: dict[str, Plant] = {}


def defect(plant: Plant) -> Plant:
    """Register a defect under its function's name."""
    DEFECTS_OF_WORKERS[plant.__name__.replace("_", " ")] = plant
    return plant


# -- handing over --------------------------------------------------------------------------------------------------------------


def _send(stack: ExitStack, other: Callable[..., None]) -> None:
    """Another way of handing something over; ``other(worker, to, kind, edge, replica, payload)``."""

    def send(real: Any, self: Any, edge: int, replica: int, kind: int, payload: Any) -> None:
        real(self, edge, replica, kind, payload)
        if not isinstance(self._way(edge, replica), str):
            other(self._worker, *self._worker.handed_over.pop())

    around(stack, WorkplaceCarrier, "send", send)


@defect
def a_barrier_overtakes_what_was_handed_over_before_it(stack: ExitStack) -> None:
    def send(worker: Any, to: Any, kind: int, *what: Any) -> None:
        put = worker.handed_over.appendleft if kind == Kind.BARRIER else worker.handed_over.append
        put((to, kind, *what))

    _send(stack, send)


@defect
def barriers_are_not_handed_over(stack: ExitStack) -> None:
    def send(worker: Any, to: Any, kind: int, *what: Any) -> None:
        if kind != Kind.BARRIER:
            worker.handed_over.append((to, kind, *what))

    _send(stack, send)


@defect
def what_is_handed_over_comes_from_replica_0(stack: ExitStack) -> None:
    def send(worker: Any, to: Any, kind: int, edge: int, replica: int, payload: Any) -> None:
        worker.handed_over.append((to, kind, edge, 0, payload))

    _send(stack, send)


@defect
def credit_within_a_worker_is_lost(stack: ExitStack) -> None:
    def take(real: Any, self: Any, kind: int, *what: Any) -> None:
        if kind != Kind.CREDIT or len(self.place.worker.hosts) == 1:
            real(self, kind, *what)

    around(stack, ReplicaHost, "take", take)


@defect
def what_is_handed_over_costs_no_credit(stack: ExitStack) -> None:
    """Its receiver grants back another size than its sender counted."""
    around(stack, replica_host, "credit_of", lambda real, payload: 0 if type(payload) is Handed else real(payload))


@defect
def a_log_keeps_nothing_of_what_was_handed_over(stack: ExitStack) -> None:
    def log(real: Any, self: Any, edge: int, source: int, barrier: Any, ahead: Any = None) -> None:
        real(self, edge, source, barrier, [payload for payload in ahead or () if type(payload) is not Handed])

    around(stack, HostSnapshots, "on_barrier", log)


@defect
def a_worker_waits_while_something_is_handed_over(stack: ExitStack) -> None:
    """And does not look at it before something else comes."""
    stack.enter_context(patch.object(Worker, "_hand_over", lambda self: None))


# -- turns ---------------------------------------------------------------------------------------------------------------------


@defect
def a_replica_that_is_held_up_stops_its_worker(stack: ExitStack) -> None:
    """As one window for a whole connection would: workers wait for each other in a circle that the dataflow has not."""

    def work(real: Any, self: Any) -> None:
        if not any(host.place.sender.is_held_up for host in self.hosts.values()):
            real(self)

    around(stack, Worker, "_work", work)


@defect
def a_worker_is_over_with_its_first_replica(stack: ExitStack) -> None:
    def is_over(self: Any) -> bool:
        return self._has_begun and not self._joining and any(host.is_finished for host in self.hosts.values())

    stack.enter_context(patch.object(Worker, "is_over", property(is_over)))


# -- reports -------------------------------------------------------------------------------------------------------------------


@defect
def a_report_leaves_in_two_halves(stack: ExitStack) -> None:
    """What was consumed first, what came of it with the next."""

    def flush(real: Any, self: Any, **options: Any) -> None:
        held = getattr(self, "_half", {})
        self._half = {}
        tell = Workplace.tell

        def told(place: Any) -> None:
            tell(place)
            self._half.update({key: delta for key, delta in self._changes.items() if delta > 0})
            for key in self._half:
                self._changes.pop(key, None)

        for key, delta in held.items():
            self._changes[key] = self._changes.get(key, 0) + delta
        with patch.object(Workplace, "tell", told):
            real(self, **options)

    around(stack, Worker, "flush", flush)


@defect
def a_report_holds_only_the_last_of_several_changes(stack: ExitStack) -> None:
    """Those of another replica at the same place and time are replaced."""

    def report(self: Any, changes: Any) -> None:
        self._changes.update({(location, time): delta for location, time, delta in changes if delta})

    stack.enter_context(patch.object(Worker, "report", report))


@defect
def what_combiners_keep_back_is_reported_as_consumed(stack: ExitStack) -> None:
    """A frontier passes what they hold."""

    def flush(real: Any, self: Any, *, holds_back: bool = False) -> None:
        for host in self.hosts.values():
            if holds_back and host.is_registered and host.may_hold_back():
                host.place.tell()
        real(self, holds_back=holds_back)

    around(stack, Worker, "flush", flush)


@defect
def what_a_replica_sends_is_told_after_it_is_gone(stack: ExitStack) -> None:
    """The report is of the state before the turn's last sends, which count with the next: after their receivers' reports."""

    def flush_out(real: Any, self: Any) -> None:
        self.tell()
        real(self)

    around(stack, Workplace, "flush_out", flush_out)
    around(stack, ReplicaHost, "work", lambda real, self, is_over: (real(self, is_over), self.place.tell())[0])


# -- places --------------------------------------------------------------------------------------------------------------------


@defect
def the_sender_of_a_frame_is_taken_for_the_replica_of_its_workers_number(stack: ExitStack) -> None:
    """Vertices that are narrower than there are workers begin elsewhere."""

    def replica_at(real: Any, self: Any, process: str, stage: int) -> Any:
        return int(process[1:]) if process[:1] == "w" and stage in self.offsets else real(self, process, stage)

    around(stack, Places, "replica_at", replica_at)


@defect
def a_worker_resumes_its_first_replica_alone(stack: ExitStack) -> None:
    def hold(real: Any, self: Any, stage: int, replica: int, **options: Any) -> Any:
        if self.hosts:
            options["part"] = None
        return real(self, stage, replica, **options)

    around(stack, Worker, "hold", hold)


# -- beginnings and ends -------------------------------------------------------------------------------------------------------


@defect
def what_waited_for_credit_at_the_cut_goes_out_after_the_first_barrier(stack: ExitStack) -> None:
    """The next snapshot may begin as soon as all have come to the coordinator."""
    stack.enter_context(patch.object(Worker, "_resend", lambda self, stage: None))

    def register(real: Any, self: Any, host: Any) -> None:
        real(self, host)
        if host.snapshots is not None:
            host.snapshots.resend()

    around(stack, Worker, "_register", register)


@defect
def a_replica_has_left_before_the_progress_actor_knows(stack: ExitStack) -> None:
    """Its process is killed, with the last report in its socket."""

    def after_report(real: Any, self: Any) -> None:
        real(self)
        self.has_left = self.has_left or self._has_said_so

    around(stack, HostRescale, "after_report", after_report)


# -- the progress core ---------------------------------------------------------------------------------------------------------


@defect
def all_run_when_the_first_process_has_registered(stack: ExitStack) -> None:
    def register(real: Any, self: Any, frames: Any) -> None:
        real(self, frames)
        if frames:
            self._missing.clear()

    around(stack, ProgressWorker, "_register", register)


@defect
def a_view_that_waits_is_older_than_one_that_was_sent(stack: ExitStack) -> None:
    """It stays, and is shown when there is room again."""

    def show(real: Any, self: Any, name: str, node: int, payload: bytes) -> None:
        kept = self.late.get((name, node))
        real(self, name, node, payload)
        if kept is not None:
            self.late[name, node] = kept

    around(stack, ProgressWorker, "show", show)


__all__ = ["DEFECTS_OF_WORKERS"]
