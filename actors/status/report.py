"""The journal of a job as one HTML file: no script, no style sheet, nothing from a network. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from rayad.actors.status.facts import in_words
from rayad.actors.status.journal import JobEvent
from rayad.actors.status.table import amount

WIDTH, HEIGHT, MARGIN = 860, 110, 30
"""Pixels of a drawing."""
KINDS = {
    "running": ("#1a8a5a", "#3fc98c"), "failure": ("#c22", "#ff6b6b"), "recovery": ("#27c", "#6aa8ff"), "snapshot": ("#777", "#999"),
    "snapshot given up": ("#b86b00", "#ffab40"), "stall": ("#b86b00", "#ffab40"),
    "stall over": ("#27c", "#6aa8ff"), "layout": ("#72c", "#b388ff"), "layout refused": ("#b86b00", "#ffab40"),
    "decision": ("#72c", "#b388ff"), "stopping": ("#555", "#aaa"), "end": ("#111", "#eee"),
}  # fmt: skip
"""Colours by the kind of an event: on a light ground, on a dark one."""


def class_of(kind: str) -> str:
    """The class, in HTML, of what shows an event of this kind.

    >>> class_of("snapshot given up")
    'e-snapshot-given-up'
    """
    return "e-" + re.sub(r"[^a-z]+", "-", kind)


def _colours(ground: int) -> str:
    return "".join(f".{class_of(kind)}{{color:{both[ground]}}}" for kind, both in KINDS.items())


STYLE_OF_EVENTS = f"{_colours(0)}@media(prefers-color-scheme:dark){{{_colours(1)}}}"
"""The style sheet that :func:`line_of_time` and :func:`table` need."""
_STYLE = (
    ":root{color-scheme:light dark}body{font:14px sans-serif;max-width:900px;margin:2em auto;padding:0 1em}"
    "svg{max-width:100%}table{border-collapse:collapse;width:100%}"
    "td,th{border-bottom:1px solid #8884;padding:3px 8px;text-align:left;vertical-align:top}td.n{text-align:right;white-space:nowrap}"
    "pre{white-space:pre-wrap;margin:0;font:13px monospace}td.n,tr pre,tr small{color:CanvasText}"
)


def as_report(name: str, events: Sequence[JobEvent]) -> str:
    """A page about what happened to a job: how it ended, a line of time, its snapshots, and every event with its figures."""
    parts = [f"<h1>Job {escape(name)}</h1>", f"<p>{escape(_summary(events))}</p>"]
    if events:
        parts += ["<h2>Line of time</h2>", line_of_time(events)]
    snapshots = [event for event in events if event.kind == "snapshot"]
    if snapshots:
        parts += ["<h2>Snapshots: bytes</h2>", bars(snapshots, "total_bytes"), "<h2>Snapshots: seconds</h2>", bars(snapshots, "took_s")]
    first_s = events[0].at_s if events else 0.0
    parts += ["<h2>Events</h2>", table(events, first_s)]
    head = f'<meta charset="utf-8"><title>Job {escape(name)}</title><style>{_STYLE}{STYLE_OF_EVENTS}</style>'
    return f"<!doctype html>\n<html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _summary(events: Sequence[JobEvent]) -> str:
    if not events:
        return "Nothing is known of it."
    counts = {kind: sum(event.kind == kind for event in events) for kind in KINDS}
    told = ", ".join(f"{count} x {kind}" for kind, count in counts.items() if count)
    end = next((event.what for event in reversed(events) if event.kind == "end"), "it has not ended")
    return f"{_when(events[0].at_s)} to {_when(events[-1].at_s)} UTC, {events[-1].at_s - events[0].at_s:.1f} s: {end}. {told}."


def _when(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _x(event: JobEvent, events: Sequence[JobEvent]) -> float:
    length_s = max(events[-1].at_s - events[0].at_s, 1e-9)
    return MARGIN + (WIDTH - 2 * MARGIN) * min(max((event.at_s - events[0].at_s) / length_s, 0.0), 1.0)


def line_of_time(events: Sequence[JobEvent]) -> str:
    """The events as marks on one line, oldest to the left; at least one event."""
    marks = "".join(
        f'<circle cx="{_x(event, events):.1f}" cy="30" r="6" class="{class_of(event.kind)}" fill="currentColor"><title>'
        f"{escape(f'+{event.at_s - events[0].at_s:.1f} s {event.kind}: {event.what}')}</title></circle>"
        for event in events
    )
    kinds = [kind for kind in KINDS if any(event.kind == kind for event in events)]
    legend = "".join(
        f'<text x="{MARGIN + 95 * place}" y="65" class="{class_of(kind)}" fill="currentColor" font-size="12">{escape(kind)}</text>'
        for place, kind in enumerate(kinds)
    )
    line = f'<line x1="{MARGIN}" y1="30" x2="{WIDTH - MARGIN}" y2="30" stroke="#999"/>'
    return f'<svg viewBox="0 0 {WIDTH} 75" width="{WIDTH}" height="75" font-family="sans-serif">{line}{marks}{legend}</svg>'


def bars(events: Sequence[JobEvent], figure: str) -> str:
    """One of the facts of the events as bars, oldest to the left; at least one event."""
    values = [float(event.facts.get(figure) or 0.0) for event in events]
    most = max(values) or 1.0
    width = (WIDTH - 2 * MARGIN) / len(values)
    shapes = "".join(
        f'<rect x="{MARGIN + width * n:.1f}" y="{HEIGHT - (HEIGHT - MARGIN) * value / most:.1f}" width="{max(1.0, width - 1):.1f}" '
        f'height="{(HEIGHT - MARGIN) * value / most:.1f}" fill="#79b"><title>{escape(event.what)}</title></rect>'
        for n, (event, value) in enumerate(zip(events, values, strict=True))
    )
    most_told = f'<text x="0" y="14" fill="currentColor">most: {amount(most)}</text>'
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg {size} font-family="sans-serif" font-size="12">{most_told}{shapes}</svg>'


def table(events: Sequence[JobEvent], first_s: float) -> str:
    """The events in this order, with their facts in words; times are seconds after ``first_s``."""
    rows = []
    for event in events:
        facts = in_words(event)
        since = f"+{event.at_s - first_s:.1f} s"
        what = f"<pre>{escape(event.what)}</pre><small>{escape(facts)}</small>"
        shown = f'<td class="n">{since}</td><td>{escape(event.kind)}</td><td>{what}</td>'
        rows.append(f'<tr class="{class_of(event.kind)}">{shown}</tr>')
    return f"<table><tr><th>since the first</th><th>event</th><th>what</th></tr>{''.join(rows)}</table>"
