"""Tables of a job on Ray: questions go straight to the processes of the replicas, over the data plane, all at once. The coordinator is
asked for the layout alone, and again when somebody is not where it was."""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayTaskError

from rayad.actors.cluster import ray_calls
from rayad.actors.coordinator.readable import Layout
from rayad.actors.driver.coordinator_line import NoAnswer
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.reads.questions import Answer, Asked, Begins, Begun, Elsewhere
from rayad.actors.tables.line import Line, Ticket
from rayad.actors.tables.reading import Question
from rayad.actors.tables.table import Readable, told_open
from rayad.dataflow.plan import Plan
from rayad.progress import DataflowError, RayadError

PAUSE_S = 0.005
"""How long a reader waits before it asks again."""
ANSWER_S = 5.0
"""How long a process, or the coordinator, may take for its answers; then it is asked again."""
SOON_S = 0.01
"""How long a loop has to tell which epochs have begun; then another thread of its process is asked."""
LEAST_S = 0.1
"""Who does not answer within less, at the end of the time for a read, may have had none: what was known of all before holds."""
WAY_S = 1.0
"""Who has not answered is asked so long before the end what it does; of shorter waits a quarter."""
LOOK_S = 0.5
"""So long after a question the coordinator is asked whether the process is still where it was asked."""


class Calls(Protocol):
    """Calls of several processes at once."""

    def ask(self, calls: Sequence[tuple[Any, str, tuple[Any, ...]]], timeout_s: float) -> list[Any]:
        """Call ``(actor, method, arguments)``, all at once; None: it has died, or has not answered in time."""


class RayCalls:
    """On Ray."""

    def ask(self, calls: Sequence[tuple[Any, str, tuple[Any, ...]]], timeout_s: float) -> list[Any]:
        refs = [ray_calls.call(getattr(actor, method), *arguments) for actor, method, arguments in calls]
        until_s = clock.monotonic() + timeout_s
        ready = ray_calls.wait(refs, num_returns=len(refs), timeout=timeout_s)[0] if refs else []
        return [self._taken(ref, max(0.0, until_s - clock.monotonic())) if ref in ready else None for ref in refs]

    @staticmethod
    def _taken(ref: Any, timeout_s: float) -> Any:
        try:
            return ray_calls.get(ref, timeout=timeout_s)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, RayadError) else error from None
        except (RayActorError, ActorUnavailableError, GetTimeoutError):
            return None


class RayTables(Readable):
    """Asks the replicas' processes.

    Args:
        name, plan: of the job; its layout does not matter.
        layout: asks the coordinator, for at most so many seconds; None: nobody can tell now.
        committed: asks the coordinator for the last epoch of each stage that a snapshot holds; None: the job takes none. Raises NoAnswer.
        ended: how the job has ended, in a word; None: it has not.
        knows_end: whether it is known here that the job has ended, without asking anybody: its processes may still answer then.
        sent: the last epoch of which this process has sent something to a live input; -1: none.
        calls: of processes.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        layout: Callable[[float], Layout | None],
        committed: Callable[[float], Mapping[int, int] | None],
        ended: Callable[[], str | None],
        knows_end: Callable[[], bool],
        sent: Callable[[], int],
        calls: Calls | None = None,
    ) -> None:
        self.name = name
        self.plan = plan
        self._ask_layout, self._ask_committed, self._ended, self._knows_end, self._sent = layout, committed, ended, knows_end, sent
        self._calls: Calls = calls or RayCalls()
        self._layout: Layout | None = None
        self._lines: dict[str, Line] = {}
        self._lock = threading.Lock()
        self._is_stale = True
        self._silent: tuple[str, ...] = ()  # what the processes that have not answered in the last round do, in words
        self._open: dict[str, int] = {}

    def _known(self, left_s: float) -> Layout:
        """The layout; asked for again where it is not the one of now. Raises DataflowError when the job is over, TimeoutError."""
        until_s = self.now_s() + left_s
        if self._knows_end():
            self._require_running()
        while self._is_stale or self._layout is None:
            found = self._ask_layout(min(ANSWER_S, max(0.0, until_s - self.now_s())))
            if found is not None:
                self._layout, self._is_stale = found, False
                break
            self._require_running()
            if self._layout is not None:
                break
            if self.now_s() >= until_s:
                raise TimeoutError(f"the coordinator of job {self.name!r} has not told within {left_s:.3g} s where its replicas are")
            clock.sleep(PAUSE_S)
        return self._layout

    def _line(self, layout: Layout, process: str) -> Line | None:
        """The way to a process; None: it is not there."""
        where = layout.where.get(process)
        if where is None:
            return None
        with self._lock:
            line = self._lines.get(process)
            if line is None or line.is_lost or line.where != where:
                if line is not None:
                    line.is_lost = True  # who still waits for it asks again
                line = self._lines[process] = Line(where)
            return line

    def _require_running(self) -> None:
        ended = self._ended()
        if ended is not None:
            raise DataflowError(
                f"job {self.name!r} is {ended}, and its replicas are gone: read its results, or its last snapshot with rd.read_state(...)"
            )

    def owners(self, left_s: float) -> Mapping[int, tuple[int, ...]]:
        return self._known(left_s).owners

    def carry(self, questions: Sequence[Question], left_s: float) -> Sequence[Answer | None]:
        until_s = self.now_s() + left_s
        layout = self._known(left_s)
        wait_s = min(ANSWER_S, max(0.0, until_s - self.now_s()))
        answer_s = self.now_s() + wait_s - min(WAY_S, wait_s / 4)

        def waited(line: Line, ticket: Ticket) -> list[Answer | None] | None:
            told = line.wait(ticket, min(answer_s, self.now_s() + LOOK_S))
            return line.wait(ticket, answer_s) if told is None and self._is_there(line, answer_s) else told

        answers, silent = self._answered(layout, [(question.to, question.ask) for question in questions], waited)
        if not silent or wait_s >= LEAST_S:
            self._silent = self._doing(layout, silent, min(WAY_S, max(0.0, until_s - self.now_s())))
        if any(answer is None or isinstance(answer, Elsewhere) for answer in answers):
            self._is_stale = True
            if None in answers:
                self._require_running()
        return answers

    def _answered(
        self, layout: Layout, questions: Sequence[Asked], waited: Callable[[Line, Ticket], list[Answer | None] | None]
    ) -> tuple[list[Answer | None], list[str]]:
        """What each question was answered, all asked at once (None: nobody has), and the processes that are there and have not answered
        while it was ``waited``."""
        by_process: dict[str, list[int]] = {}
        for at, (to, _) in enumerate(questions):
            by_process.setdefault(layout.places.process_of(*to), []).append(at)
        lines = {process: line for process in by_process if (line := self._line(layout, process)) is not None}
        tickets = {process: line.ask([questions[at] for at in by_process[process]]) for process, line in lines.items()}
        answers: list[Answer | None] = [None] * len(questions)
        silent = []
        try:
            for process, line in lines.items():
                told = waited(line, tickets[process])
                if told is not None:
                    for at, answer in zip(by_process[process], told, strict=True):
                        answers[at] = answer
                elif not line.is_lost:
                    silent.append(process)
        finally:
            for process, ticket in tickets.items():
                lines[process].forget(ticket)
        return answers, silent

    def _is_there(self, line: Line, until_s: float) -> bool:
        """Whether a process that does not answer is where it was asked, as far as is known; else it has been replaced."""
        if line.is_lost or self.now_s() >= until_s:
            return False
        found = self._ask_layout(min(ANSWER_S, until_s - self.now_s()))
        return found is None or found.where.get(line.where.process) == line.where

    def _doing(self, layout: Layout, silent: Sequence[str], timeout_s: float) -> tuple[str, ...]:
        """What the processes that have not answered do, in words."""
        there = [process for process in silent if process in layout.actors]
        told = self._calls.ask([(layout.actors[process], "doing", ()) for process in there], timeout_s)
        doing = (f"is busy with {each}" if each else "does not answer" for each in told)
        return tuple(f"{layout.titles.get(process, process)} {each}" for process, each in zip(there, doing, strict=True))

    def committed(self, left_s: float) -> Mapping[int, int] | None:
        try:
            return self._ask_committed(min(ANSWER_S, left_s))
        except NoAnswer:
            self._require_running()
            return {}

    def begun(self, left_s: float) -> int:
        sent = self._sent()
        until_s = self.now_s() + left_s
        while True:
            layout = self._known(max(0.0, until_s - self.now_s()))
            told = self._begun(layout, until_s)
            if len(told) == len(layout.starts):
                break
            self._is_stale = True
            self._require_running()
            if self.now_s() >= until_s:
                silent = layout.places.processes_of(at for at in layout.starts if at not in told)
                late = ", ".join(layout.titles.get(process, process) for process in silent)
                raise TimeoutError(
                    f"job {self.name!r}: no answer within {left_s:.3g} s to which epochs have begun, from {late}. Read again, or see "
                    "job.explain_stuck()"
                )
            clock.sleep(PAUSE_S)
        self._open = {self.plan.stage(at.stage).name: each.open_in for at, each in told.items() if each.open_in is not None}
        return max([sent, *(each.last for each in told.values())])

    def _begun(self, layout: Layout, until_s: float) -> dict[ReplicaId, Begins]:
        """What the sources and live inputs that answer tell. A loop that is busy, or waits in a source, does not answer soon: another
        thread of its process does, at ten times the price."""
        wait_s = min(until_s, self.now_s() + SOON_S)
        answers, _ = self._answered(layout, [(at, Begun()) for at in layout.starts], lambda line, ticket: line.wait(ticket, wait_s))
        told = {at: answer for at, answer in zip(layout.starts, answers, strict=True) if isinstance(answer, Begins)}
        others = layout.places.processes_of(at for at in layout.starts if at not in told)
        calls = [(layout.actors[process], "begun", ()) for process in others if process in layout.actors]
        for each in self._calls.ask(calls, min(ANSWER_S, max(0.0, until_s - self.now_s()))):
            told.update(each or {})
        return told

    def unanswered(self) -> str:
        return "; ".join(self._silent)

    def now_s(self) -> float:
        return clock.monotonic()

    def pause(self, left_s: float) -> bool:
        clock.sleep(min(PAUSE_S, left_s))
        return True

    def holding_back(self, epoch: int, left_s: float) -> str:
        try:
            self.begun(left_s)
        except TimeoutError as error:
            return str(error)
        return told_open(self._open, epoch)


__all__ = ["Calls", "RayCalls", "RayTables"]
