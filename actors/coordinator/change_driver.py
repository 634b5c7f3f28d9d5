"""Drives the leader of a change on Ray: a call of an actor for each question, an event for what comes of it.

Nothing is decided here: which actor is asked for what, what an answer means, and what is asked again is the leader's. Only how a call
travels is known here, and what the coordinator does itself (``coordinators_part.py``).
"""

from __future__ import annotations

import dataclasses
import math
import queue
import threading
from collections.abc import Iterator
from typing import Any, assert_never

from rayad.actors.coordinator.coordinators_part import CoordinatorsPart
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.surroundings import Ended, Gave, Raised
from rayad.actors.job import JobState
from rayad.actors.lead import calls
from rayad.actors.lead import change_protocol as change
from rayad.actors.lead.asking import Answered, Ask, Asked, Broke, Died, Event, JobFailed, Late, NewcomerFailed, Tick
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.change_protocol import STOP_TIMEOUT_S
from rayad.actors.lead.configure_leader import Configured, ConfigureLeader, NotConfigured
from rayad.actors.lead.failure import Failure
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.process.mailbox import NoAnswer
from rayad.actors.replica.places import is_worker
from rayad.progress import RayadError
from rayad.progress.errors import say

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
        self._actors, self._clock = job.around.actors, job.around.clock
        self._stopped = stopped
        self._part = CoordinatorsPart(job)
        self._asked: dict[Any, tuple[int, str]] = {}  # turn and actor of each call that is not answered, by reference
        self._said: queue.SimpleQueue[Event] = queue.SimpleQueue()

    @property
    def has_more(self) -> bool:
        """Whether the coordinator itself has answered something."""
        return not self._said.empty()

    def begin(self) -> None:
        """Somebody wants the change."""
        self._tell(Asked())

    def newcomer_failed(self, name: str, why: str) -> None:
        """A process that has not joined the job yet has failed. From any thread."""
        self._said.put(NewcomerFailed(name, why))

    def look(self, wait_s: float) -> None:
        """Tell the leader what has happened; waits for that, for a moment: the one place where this thread waits."""
        for event in self._take(wait_s):
            self._tell(event)
        if self._stopped.is_set() or self._job.state is not JobState.RUNNING:
            self._tell(JobFailed())
        self._tell(Tick(self._busy()))

    def _busy(self) -> str:
        busy = self._job.crew.busy(LONG_S)
        return f"{self._job.who(busy[0][0])} is in {busy[0][1].activity}" if busy else ""

    def _tell(self, event: Event) -> None:
        effects = self.leader.handle(event, self._clock.monotonic())
        if isinstance(self.leader, ChangeLeader):
            self.leader.check_invariants()
        for effect in effects:
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
                    failure = self._job.around.failure_of(
                        "a change of layout", cause if isinstance(cause, Exception) else TimeoutError(why)
                    )
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
        port = self._actors
        if isinstance(call, calls.Listen):
            return port.call(actor, "listen", *self._part.to_listen(call))
        if name == PROGRESS:
            return port.call(actor, "call", call.method, *call.arguments, *((within_s,) if is_condition else ()))
        replica = ReplicaId.from_plane_name(name)
        if is_condition:
            return port.call(actor, "await_change", replica, call.method, within_s, *call.arguments)
        if within_s < math.inf:
            return port.call(actor, "change_within", within_s, replica, call.method, *call.arguments)
        return port.call(actor, "change", replica, call.method, *call.arguments)

    def _do(self, turn: int, call: calls.OwnCall) -> None:
        """The coordinator's own part, perhaps in its thread; unless the change is over before that comes to it."""

        def answer(value: Any) -> None:
            self._said.put(Answered(turn, COORDINATOR, value))

        def broke(error: Exception) -> None:
            self._said.put(self._broke(turn, COORDINATOR, error))

        self._part.do(call, answer, broke, is_void=lambda: self.leader.outcome is not None)

    # -- what comes of them ----------------------------------------------------------------------------
    def _take(self, wait_s: float) -> Iterator[Event]:
        """What has come, within a moment."""
        if self._asked:
            waiting = list(self._asked)
            if self._actors.wait(waiting, wait_s):
                for ref in self._actors.wait(waiting, 0.0, len(waiting)):
                    yield self._event(ref, *self._asked.pop(ref))
        elif self._said.empty() and wait_s:
            try:
                yield self._said.get(timeout=wait_s)
            except queue.Empty:
                return
        while not self._said.empty():
            yield self._said.get_nowait()

    def _event(self, ref: Any, turn: int, name: str) -> Event:
        match self._actors.take(ref, STOP_TIMEOUT_S):  # it is there
            case Gave(value):
                return Answered(turn, name, value)
            case Raised(cause):
                return Late(turn, name) if isinstance(cause, NoAnswer) else self._broke(turn, name, cause)
            case Ended():
                return Died(turn, name)
            case _:
                why = f"what it gave could not be fetched within {STOP_TIMEOUT_S:g} s"
                return Broke(turn, name, why, TimeoutError(why))

    def _broke(self, turn: int, name: str, error: Exception) -> Broke:
        """Errors of ours say what they are about; of others, such as a KeyError, it is said whose it is, and what kind."""
        told = say(error)
        return Broke(turn, name, told if isinstance(error, RayadError) else f"{self._job.who(name)}: {type(error).__name__}: {told}", error)
