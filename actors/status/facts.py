"""The facts of an event in words: the page of a job and ``rayad report`` show these. Pure.

A fact that the event's own text tells already is left out, and so is one that says that nothing was done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rayad.actors.status.journal import JobEvent
from rayad.actors.status.table import amount

Facts = Mapping[str, Any]


def in_words(event: JobEvent) -> str:
    """What is known of an event besides its text, as phrases with semicolons between them; "" where there is nothing.

    >>> in_words(JobEvent(0.0, "snapshot", "snapshot 4", {"written_bytes": 2_000, "incremental_replicas": 0, "pause_s": 0.004}))
    'replicas stood still for 4 ms at most; 2.00 kB written'
    >>> in_words(JobEvent(0.0, "unheard of", "?", {"cause_of_it": "x", "nothing": None}))
    'cause of it: x'
    """
    told = _BY_KIND.get(event.kind, _any_other)(event.facts)
    return "; ".join(filter(None, told))


def seconds(value: float) -> str:
    """A duration with its unit.

    >>> seconds(0.0042), seconds(1.25), seconds(3), seconds(75), seconds(7300)
    ('4 ms', '1.2 s', '3 s', '75 s', '2 h 1 min')
    """
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 10:
        return f"{value:.1f}".removesuffix(".0") + " s"
    if value < 120:
        return f"{value:.0f} s"
    minutes = int(value // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def size(count: float) -> str:
    """Bytes with a unit.

    >>> size(56), size(2_000)
    ('56 B', '2.00 kB')
    """
    text = amount(count)
    return f"{text[:-1]} {text[-1]}B" if text[-1].isalpha() else f"{text} B"


def replicas(layout: Mapping[str, int], before: Mapping[str, int] | None = None) -> str:
    """Numbers of replicas by vertex: those that have changed, where it is known what there was.

    >>> replicas({"a": 1, "b": 3}, {"a": 1, "b": 2})
    'b from 2 to 3 replicas'
    >>> replicas({"b": 3})
    'b to 3 replicas'
    """
    changed = {name: count for name, count in layout.items() if before is None or before.get(name) != count}
    was = before or {}
    return ", ".join(f"{name} {f'from {was[name]} ' if name in was else ''}to {count} replicas" for name, count in changed.items())


def _snapshot(facts: Facts) -> list[str]:
    told = [_of(facts, "pause_s", seconds, "replicas stood still for {} at most")]
    told.append(_of(facts, "cost_s", seconds, "{} of processor time in the busiest replica"))
    told.append(_of(facts, "written_bytes", size, "{} written"))
    if facts.get("incremental_replicas"):
        told.append(f"{facts['incremental_replicas']} replicas wrote only what had changed")
    told.append(_of(facts, "interval_s", seconds, "one every {} from here on"))
    return told


def _failure(facts: Facts) -> list[str]:
    told = [f"failure {facts['number']} of this run" if facts.get("number") else ""]
    return [*told, _of(facts, "delay_s", seconds, "restarted after a pause of {}")]


def _layout(facts: Facts) -> list[str]:
    if not facts.get("moved_groups"):
        return ["no state moved"]
    told = [f"{facts['moved_groups']} key-groups moved, with {size(facts.get('moved_bytes', 0))} of state"]
    told.append(f"in {facts['steps']} steps" if facts.get("steps") else "")
    told.append(_of(facts, "prepare_s", seconds, "new replicas were there after {}"))
    told.append(_of(facts, "pause_s", seconds, "no replica stood still for longer than {} at a stretch"))
    return [*told, f"{facts['held']} batches waited for their state" if facts.get("held") else ""]


def _refused(facts: Facts) -> list[str]:
    wanted = facts.get("wanted")
    return [f"asked for: {replicas(wanted)}" if isinstance(wanted, Mapping) and wanted else ""]


def _decision(facts: Facts) -> list[str]:
    changes = facts.get("changes")
    told = [replicas(changes) if isinstance(changes, Mapping) and changes else ""]
    return [*told, f"the job's answer: {facts['answer']}" if facts.get("answer") else ""]


def _recovery(facts: Facts) -> list[str]:
    steps = facts.get("steps")
    return [f"in processes of their own: {', '.join(map(str, steps))}" if isinstance(steps, list | tuple) and steps else ""]


def _nothing(facts: Facts) -> list[str]:
    return []


def _any_other(facts: Facts) -> list[str]:
    return [f"{name.replace('_', ' ')}: {value}" for name, value in facts.items() if value not in (None, "", {}, [])]


def _of(facts: Facts, name: str, shown: Callable[[float], str], text: str) -> str:
    value = facts.get(name)
    return text.format(shown(value)) if isinstance(value, int | float) and value else ""


_BY_KIND: Mapping[str, Callable[[Facts], list[str]]] = {
    "running": _nothing, "failure": _failure, "recovery": _recovery, "snapshot": _snapshot, "snapshot given up": _nothing,
    "layout": _layout, "layout refused": _refused, "decision": _decision, "stall": _nothing, "stall over": _nothing,
    "stopping": _nothing, "end": _nothing,
}  # fmt: skip


__all__ = ["in_words", "replicas", "seconds", "size"]
