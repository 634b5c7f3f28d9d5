"""One journal of what happens to a job: start, snapshots, failures, recoveries, changes of layout, nodes that drain or are
silent, decisions of the autoscaler, stalls, end. Pure.

The shells give it what the leaders decide (:meth:`Journal.on_effect`), and nothing else writes it. It keeps the newest events in memory;
``keep`` passes each one on, as a line of JSON, to a file that is only appended to.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rayad.actors.lead import job_leader, recovery_leader, snapshot_leader
from rayad.actors.lead.layouts import RescaleReport
from rayad.progress import presentable
from rayad.snapshots.attempts import SnapshotStatistics

EVENTS_MOST = 1_000
"""So many of the newest events are kept in memory."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job."""

    at_s: float
    """Seconds since 1970; in the local runtime of its own clock."""
    kind: str
    """"running", "failure", "recovery", "snapshot", "snapshot given up", "layout", "layout refused", "node", "move", "decision", "stall",
    "stall over", "stopping" or "end"."""
    what: str
    """In words."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Plain values by name; which ones depends on the kind."""

    def as_line(self) -> str:
        """One line of JSON, without its end; :func:`events_in` is the inverse."""
        return json.dumps(asdict(self), default=str)


def events_in(lines: Iterable[str]) -> list[JobEvent]:
    """The events of a journal's lines. A line that was cut off, or is none, is left out: an event of which is known that it was lost."""
    events = []
    for line in lines:
        try:
            plain = json.loads(line)
            events.append(JobEvent(float(plain["at_s"]), str(plain["kind"]), str(plain["what"]), dict(plain["facts"])))
        except (ValueError, TypeError, KeyError):
            continue
    return events


class Journal:
    """The journal of one job; from any thread.

    Args:
        now_s: the clock of the events.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._events: deque[JobEvent] = deque(maxlen=EVENTS_MOST)
        self._keep: Callable[[str], None] = lambda line: None
        self.noted = 0
        """How many events there have been, with those of earlier runs: who has seen so many has missed none."""

    @property
    def events(self) -> tuple[JobEvent, ...]:
        """The newest ones, oldest first; with those of earlier runs of the job that were kept."""
        return tuple(self._events)

    def keep(self, before: Iterable[str], append: Callable[[str], None]) -> None:
        """From now on each event is also appended; ``before``: the lines that are there, of earlier runs and coordinators. What happened
        before this call is appended, too."""
        mine = list(self._events)
        self._events.clear()
        earlier = events_in(before)
        self._events.extend([*earlier, *mine])
        self.noted += len(earlier)
        self._keep = append
        for event in mine:
            append(event.as_line())

    def note(self, kind: str, what: str, /, **facts: Any) -> None:
        """Something has happened."""
        shown = {name: presentable(fact) if isinstance(fact, str) else fact for name, fact in facts.items()}
        event = JobEvent(self._now_s(), kind, presentable(what), shown)
        self._events.append(event)
        self.noted += 1
        self._keep(event.as_line())

    def on_effect(self, effect: object) -> None:
        """A leader of the job's life, of its recoveries or of its snapshots has decided this; most effects are no events."""
        match effect:
            case recovery_leader.Survived(failure, number, delay_s):
                self.note("failure", f"{failure.who}: {failure.message}", who=failure.who, number=number, delay_s=delay_s)
            case recovery_leader.WholeGraph(why):
                self.note("recovery", f"the whole graph is restarted: {why}")
            case recovery_leader.Running(names, restart_s) if restart_s is None:
                self.note("running", f"{len(names)} actors run", actors=len(names))
            case recovery_leader.Running(_, restart_s, moved) if moved:
                told = f"{len(moved)} actors have left their nodes; the job stood still for {restart_s:.2f} s"
                self.note("move", told, moved=list(moved), restart_s=restart_s)
            case recovery_leader.Running(names, restart_s):
                self.note("recovery", f"{len(names)} actors run again after {restart_s:.2f} s", actors=len(names), restart_s=restart_s)
            case snapshot_leader.GiveUp(number, why):
                self.note("snapshot given up", f"attempt {number}: {why}", number=number)
            case job_leader.StopReading():
                self.note("stopping", "sources read no more; what is under way is finished")
            case job_leader.End(state, failure, why):
                because = f": {failure.who}: {failure.message}" if failure is not None else ""
                self.note("end", f"{state.value}{because}{f' ({why})' if why else ''}", state=state.value)

    def on_snapshot(self, taken: SnapshotStatistics) -> None:
        """A snapshot is in the store."""
        self.note("snapshot", f"{taken.kind} {taken.number}: {taken.total_bytes} bytes in {taken.took_s:.2f} s", **asdict(taken))

    def on_layout(self, report: RescaleReport) -> None:
        """The layout has been changed."""
        changed = {name: after for name, after in report.after.items() if report.before.get(name) != after}
        told = ", ".join(f"{name} {report.before.get(name)} -> {after}" for name, after in changed.items()) or "as it was"
        self.note("layout", f"{told}, in {report.took_s:.2f} s", **asdict(report))
