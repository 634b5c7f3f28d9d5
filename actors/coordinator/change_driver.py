"""Drives the leader of a change on Ray: a call of an actor for each question, an event for what comes of it.

Nothing is decided here: which actor is asked for what, what an answer means, and what is asked again is the leader's. Only how a call
travels is known here, and what the coordinator does itself (``coordinators_part.py``).
"""

from __future__ import annotations

import dataclasses
import math
import queue
import threading
import time as clock
from collections.abc import Iterator
from typing import Any, assert_never

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from rayad.actors.coordinator.coordinators_part import CoordinatorsPart
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.job import JobState
from rayad.actors.lead import calls
from rayad.actors.lead import change_protocol as change
from rayad.actors.lead.asking import Answered, Ask, Asked, Broke, Died, Event, JobFailed, Late, Tick
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.change_protocol import STOP_TIMEOUT_S
from rayad.actors.lead.configure_leader import Configured, ConfigureLeader, NotConfigured
from rayad.actors.lead.failure import Failure, failure_of
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.process.mailbox import NoAnswer
from rayad.actors.replica.places import is_worker

LOOK_S = 0.05
"""Between two looks at the clock, and whether the job has failed."""
LONG_S = 1.0
"""An activation that has taken so long keeps its replica's event loop from answering: that is no fault of the change."""


class ChangeDriver:
    """Of one change, in the thread that asked for it.

    Args:
        job: which changes.
        leader: of the change.
        stopped: set when the job has failed or is over.
    """

    def __init__(self, job: RunningJob, leader: ChangeLeader | ConfigureLeader, stopped: threading.Event) -> None:
        self.leader = leader
        self.failure: Failure | None = None
        """What went wrong in the middle of the change: the job has to restart from its last snapshot."""
        self._job = job
        self._stopped = stopped
        self._part = CoordinatorsPart(job)
        self._asked: dict[Any, tuple[int, str]] = {}  # turn and actor of each call that is not answered, by reference
        self._said: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def run(self) -> None:
        """Until there is an outcome: the one place where this thread waits."""
        self._tell(Asked())
        while self.leader.outcome is None:
            for event in self._take():
                self._tell(event)
            if self._stopped.is_set() or self._job.state is not JobState.RUNNING:
                self._tell(JobFailed())
            self._tell(Tick(self._busy()))

    def _busy(self) -> str:
        busy = self._job.crew.busy(LONG_S)
        return f"{self._job.who(busy[0][0])} is in {busy[0][1].activity}" if busy else ""

    def _tell(self, event: Event) -> None:
        for effect in self.leader.handle(event, clock.monotonic()):
            match effect:
                case Ask(turn, names, call, within_s):
                    for name in names:
                        self._deliver(turn, name, call, within_s)
                case change.TakeIn():
                    if isinstance(self.leader, ChangeLeader):
                        self._job.admit(list(self.leader.fresh))
                case change.Stop(names, processes, layout):
                    self._part.stop(names, processes, layout)
                case change.LayOut(layout, _, processes):
                    self._part.lay_out(layout, processes)
                case change.Fail(why, cause):
                    failure = failure_of("a change of layout", cause if isinstance(cause, Exception) else TimeoutError(why))
                    self.failure = dataclasses.replace(failure, is_lost_peer=True)  # if another failure is found, that is the cause
                case change.Finish() | change.Refuse() | change.GiveWay() | Configured() | NotConfigured():
                    pass  # whoever asked looks at the outcome
                case _:
                    assert_never(effect)

    # -- questions -------------------------------------------------------------------------------------
    def _deliver(self, turn: int, name: str, call: calls.Call, within_s: float) -> None:
        """Call a method of an actor; nothing here waits."""
        if isinstance(call, calls.OwnCall):
            self._do(turn, call)
            return
        crew = self._job.crew
        actor = crew.actors[name] if name in crew.actors else crew.holder(name) if not is_worker(name) else None
        if actor is None:
            self._said.put(Died(turn, name))
        elif isinstance(call, calls.Run):
            self._part.run(name, call)  # the coordinator's thread waits for its end
        else:
            self._asked[self._call(actor, name, call, within_s)] = (turn, name)

    def _call(self, actor: Any, name: str, call: calls.Call, within_s: float) -> Any:
        is_condition = isinstance(call, calls.Condition)
        if isinstance(call, calls.Listen):
            return actor.listen.remote(*self._part.to_listen(call))
        if name == PROGRESS:
            return actor.call.remote(call.method, *call.arguments, *((within_s,) if is_condition else ()))
        replica = ReplicaId.from_plane_name(name)
        if is_condition:
            return actor.await_change.remote(replica, call.method, within_s, *call.arguments)
        if within_s < math.inf:
            return actor.change_within.remote(within_s, replica, call.method, *call.arguments)
        return actor.change.remote(replica, call.method, *call.arguments)

    def _do(self, turn: int, call: calls.OwnCall) -> None:
        """The coordinator's own part, perhaps in its thread; unless the change is over before that comes to it."""

        def answer(value: Any) -> None:
            self._said.put(Answered(turn, COORDINATOR, value))

        def broke(error: Exception) -> None:
            self._said.put(Broke(turn, COORDINATOR, str(error), error))

        self._part.do(call, answer, broke, is_void=lambda: self.leader.outcome is not None)

    # -- what comes of them ----------------------------------------------------------------------------
    def _take(self) -> Iterator[Event]:
        """What has come, within a moment."""
        if self._asked:
            waiting = list(self._asked)
            ready, late = ray.wait(waiting, num_returns=1, timeout=LOOK_S)
            if ready and late:
                ready += ray.wait(late, num_returns=len(late), timeout=0)[0]
            for ref in ready:
                yield self._event(ref, *self._asked.pop(ref))
        elif self._said.empty():
            try:
                yield self._said.get(timeout=LOOK_S)
            except queue.Empty:
                return
        while not self._said.empty():
            yield self._said.get_nowait()

    @staticmethod
    def _event(ref: Any, turn: int, name: str) -> Event:
        try:
            return Answered(turn, name, ray.get(ref, timeout=STOP_TIMEOUT_S))  # it is there
        except RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            return Late(turn, name) if isinstance(cause, NoAnswer) else Broke(turn, name, str(cause), cause)
        except RayActorError:
            return Died(turn, name)
        except RayError as error:
            return Broke(turn, name, str(error), error)
