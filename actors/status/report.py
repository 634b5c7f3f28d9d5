"""The journal of a job as one HTML file: no script, no style sheet, nothing from a network. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from rayad.actors.status.journal import JobEvent
from rayad.actors.status.table import amount

WIDTH, HEIGHT, MARGIN = 860, 110, 30
"""Pixels of a drawing."""
COLOURS = {
    "running": "#2a7", "failure": "#c22", "recovery": "#27c", "snapshot": "#888", "snapshot given up": "#d80", "layout": "#72c",
    "layout refused": "#d80", "decision": "#72c", "stopping": "#555", "end": "#111",
}  # fmt: skip
"""By the kind of an event."""
_STYLE = (
    "body{font:14px sans-serif;max-width:900px;margin:2em auto;color:#111;background:#fff}table{border-collapse:collapse;width:100%}"
    "td,th{border-bottom:1px solid #ddd;padding:3px 8px;text-align:left;vertical-align:top}td.n{text-align:right;white-space:nowrap}"
    "pre{white-space:pre-wrap;margin:0;font:13px monospace}"
)


def as_report(name: str, events: Sequence[JobEvent]) -> str:
    """A page about what happened to a job: how it ended, a line of time, its snapshots, and every event with its figures."""
    parts = [f"<h1>Job {escape(name)}</h1>", f"<p>{escape(_summary(events))}</p>"]
    if events:
        parts += ["<h2>Line of time</h2>", _line_of_time(events)]
    snapshots = [event for event in events if event.kind == "snapshot"]
    if snapshots:
        parts += ["<h2>Snapshots: bytes</h2>", _bars(snapshots, "total_bytes"), "<h2>Snapshots: seconds</h2>", _bars(snapshots, "took_s")]
    parts += ["<h2>Events</h2>", _table(events)]
    head = f'<meta charset="utf-8"><title>Job {escape(name)}</title><style>{_STYLE}</style>'
    return f"<!doctype html>\n<html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _summary(events: Sequence[JobEvent]) -> str:
    if not events:
        return "Nothing is known of it."
    counts = {kind: sum(event.kind == kind for event in events) for kind in COLOURS}
    told = ", ".join(f"{count} x {kind}" for kind, count in counts.items() if count)
    end = next((event.what for event in reversed(events) if event.kind == "end"), "it has not ended")
    return f"{_when(events[0].at_s)} to {_when(events[-1].at_s)} UTC, {events[-1].at_s - events[0].at_s:.1f} s: {end}. {told}."


def _when(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _x(event: JobEvent, events: Sequence[JobEvent]) -> float:
    length_s = max(events[-1].at_s - events[0].at_s, 1e-9)
    return MARGIN + (WIDTH - 2 * MARGIN) * min(max((event.at_s - events[0].at_s) / length_s, 0.0), 1.0)


def _line_of_time(events: Sequence[JobEvent]) -> str:
    marks = "".join(
        f'<circle cx="{_x(event, events):.1f}" cy="30" r="6" fill="{COLOURS.get(event.kind, "#888")}"><title>'
        f"{escape(f'+{event.at_s - events[0].at_s:.1f} s {event.kind}: {event.what}')}</title></circle>"
        for event in events
    )
    kinds = [kind for kind in COLOURS if any(event.kind == kind for event in events)]
    legend = "".join(
        f'<text x="{MARGIN + 95 * place}" y="65" fill="{COLOURS[kind]}" font-size="12">{escape(kind)}</text>'
        for place, kind in enumerate(kinds)
    )
    line = f'<line x1="{MARGIN}" y1="30" x2="{WIDTH - MARGIN}" y2="30" stroke="#bbb"/>'
    return f'<svg width="{WIDTH}" height="75" font-family="sans-serif">{line}{marks}{legend}</svg>'


def _bars(events: Sequence[JobEvent], figure: str) -> str:
    values = [float(event.facts.get(figure) or 0.0) for event in events]
    most = max(values) or 1.0
    width = (WIDTH - 2 * MARGIN) / len(values)
    bars = "".join(
        f'<rect x="{MARGIN + width * n:.1f}" y="{HEIGHT - (HEIGHT - MARGIN) * value / most:.1f}" width="{max(1.0, width - 1):.1f}" '
        f'height="{(HEIGHT - MARGIN) * value / most:.1f}" fill="#79b"><title>{escape(event.what)}</title></rect>'
        for n, (event, value) in enumerate(zip(events, values, strict=True))
    )
    most_told = f'<text x="0" y="14">most: {amount(most)}</text>'
    return f'<svg width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">{most_told}{bars}</svg>'


def _table(events: Sequence[JobEvent]) -> str:
    rows = []
    for event in events:
        facts = ", ".join(f"{name} {value}" for name, value in event.facts.items() if value not in (None, "", {}))
        colour = COLOURS.get(event.kind, "#888")
        since = f"+{event.at_s - events[0].at_s:.1f} s"
        what = f"<pre>{escape(event.what)}</pre><small>{escape(facts)}</small>"
        rows.append(f'<tr><td class="n">{since}</td><td style="color:{colour}">{escape(event.kind)}</td><td>{what}</td></tr>')
    return f"<table><tr><th>since the first</th><th>event</th><th>what</th></tr>{''.join(rows)}</table>"
