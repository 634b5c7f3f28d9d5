"""A journal as the lines of a page: newest first, snapshots that follow each other folded into one line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rayad.actors.status.facts import in_words, seconds, size
from rayad.actors.status.journal import JobEvent

GROUPS = {
    "failures": ("failure", "recovery", "stall", "stall over"),
    "layout": ("layout", "layout refused", "node", "move", "decision"),
    "snapshots": ("snapshot", "snapshot given up"),
    "life": ("running", "stopping", "end"),
}
"""Kinds of events by group. The page shows the newest :data:`EVENTS_SHOWN` of each, so that snapshots crowd out no failure."""
EVENTS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class EventLine:
    """One line of what has happened.

    Args:
        at_s: when: of folded events, the newest of them.
        kind, group: what it is, and the group of :data:`GROUPS` that the page filters by.
        what: in words.
        facts: what else is known of it, in words.
        folded: the events that this line stands for, newest first; empty: it is one event.
    """

    at_s: float
    kind: str
    group: str
    what: str
    facts: str
    folded: tuple[EventLine, ...] = ()


def group_of(kind: str) -> str:
    """The group of a kind of event; of one that is in none, "life"."""
    return next((name for name, kinds in GROUPS.items() if kind in kinds), "life")


def newest_of_each_group(events: Sequence[JobEvent]) -> list[JobEvent]:
    """The newest :data:`EVENTS_SHOWN` of each of the :data:`GROUPS`, newest first."""
    left = dict.fromkeys(GROUPS, EVENTS_SHOWN)
    kept = []
    for event in reversed(events):
        group = group_of(event.kind)
        left[group] -= 1
        if left[group] >= 0:
            kept.append(event)
    return kept


def lines_of(events: Sequence[JobEvent]) -> list[EventLine]:
    """The lines of a journal, newest first. Snapshots between two other events are one line: how many, the newest, how long they took at
    the median. Savepoints and the last snapshot of a job have lines of their own."""
    lines: list[EventLine] = []
    waiting: list[JobEvent] = []  # snapshots that follow each other, newest first

    def fold() -> None:
        if len(waiting) == 1:
            lines.append(_line(waiting[0]))
        elif waiting:
            lines.append(_folded(waiting))
        waiting.clear()

    for event in newest_of_each_group(events):
        if event.kind == "snapshot" and event.facts.get("kind", "snapshot") == "snapshot":
            waiting.append(event)
        else:
            fold()
            lines.append(_line(event))
    fold()
    return lines


def _line(event: JobEvent) -> EventLine:
    return EventLine(event.at_s, event.kind, group_of(event.kind), _what(event), in_words(event))


def _what(event: JobEvent) -> str:
    facts = event.facts
    if event.kind == "snapshot" and {"kind", "number", "total_bytes", "took_s"} <= facts.keys():
        return f"{facts['kind']} {facts['number']}: {size(facts['total_bytes'])} in {seconds(facts['took_s'])}"
    return event.what


def _folded(events: Sequence[JobEvent]) -> EventLine:
    newest = events[0]
    took = [float(event.facts["took_s"]) for event in events if "took_s" in event.facts]
    at_the_median = f", {seconds(median(took))} at the median" if took else ""
    what = f"{len(events)} snapshots{at_the_median}; the newest: {_what(newest)}"
    return EventLine(newest.at_s, newest.kind, group_of(newest.kind), what, "", tuple(map(_line, events)))


__all__ = ["EVENTS_SHOWN", "GROUPS", "EventLine", "group_of", "lines_of", "newest_of_each_group"]
