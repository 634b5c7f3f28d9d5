"""A :class:`JobStatus` as a table: the same cells in a terminal, in plain lines, in a notebook and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rayad.actors.status.job_status import JobStatus, ReplicaStatus, VertexStatus
from rayad.progress import Timestamp

HEADER = (
    "vertex", "replicas", "in/s", "out/s", "busy", "idle", "back-pressured", "backlog", "state", "frontier", "lag (epochs)", "lag (s)",
    "skew",
)  # fmt: skip
TIMES_SHOWN = 2
_UNITS = ("", "k", "M", "G", "T", "P")


def cells(status: JobStatus, *, with_replicas: bool = False) -> list[tuple[str, ...]]:
    """The rows below :data:`HEADER`: one for each vertex; ``with_replicas``: below it one for each replica, by number and node."""
    rows = []
    for vertex in status.vertices:
        rows.append(vertex_cells(vertex))
        if with_replicas:
            rows.extend(replica_cells(replica) for replica in vertex.replicas)
    return rows


def heading(status: JobStatus) -> list[str]:
    """What is known of the job as a whole, and who does not answer, in lines of text."""
    facts = [f"job {status.name!r}: {status.state.value}", f"{status.failures} failures survived", f"{status.active} pointstamps active"]
    if status.window_s:
        facts.append(f"means over {status.window_s:.1f} s")
    bad = (
        f"{one.count:,} record{'s' if one.count > 1 else ''} set aside by {one.operator!r} ({one.line}), the last one for {one.error}"
        for one in status.set_aside
    )
    over = (
        f"{vertex.name!r}: {vertex.pruned:,} windows are over and forgotten, {vertex.refused:,} changes that came for them were not applied"
        if "windows pruned" in vertex.figures
        else f"{vertex.name!r}: {vertex.refused:,} changes came too late and were not applied"
        for vertex in status.vertices
        if vertex.refused
    )
    late = [str(status.snapshots_late)] if status.snapshots_late is not None else []
    return [", ".join(facts), _snapshot(status), *late, *status.nodes, *bad, *over, *map(str, status.silent)]


def _snapshot(status: JobStatus) -> str:
    every = f"one every {status.snapshot_interval_s:.3g} s" if status.snapshot_interval_s is not None else "taken on demand only"
    newest = status.snapshot
    if newest is None:
        return f"no snapshot in this run; {every}"
    age = f", {newest.age_s:.1f} s ago" if newest.age_s is not None else ""
    return f"snapshot {newest.number} ({newest.kind}){age}: {amount(newest.total_bytes)}B in {newest.took_s:.2f} s; {every}"


def as_lines(status: JobStatus, *, with_replicas: bool = False) -> str:
    """Plain text: columns by spaces, the first to the left, all others to the right."""
    rows = [HEADER, *cells(status, with_replicas=with_replicas)] if status.vertices else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    return "\n".join([*heading(status), *lines])


def as_html(status: JobStatus, *, with_replicas: bool = False) -> str:
    """A piece of HTML without script, style sheet or link, for notebooks."""
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADER)
    body = "".join(f"<tr>{_html(row)}</tr>" for row in cells(status, with_replicas=with_replicas))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if status.vertices else ""
    return f"<div>{'<br>'.join(map(escape, heading(status)))}{table}</div>"


def _html(row: Sequence[str]) -> str:
    return "".join(f'<td style="text-align:{"left" if place == 0 else "right"}">{escape(cell)}</td>' for place, cell in enumerate(row))


def vertex_cells(vertex: VertexStatus) -> tuple[str, ...]:
    """The cells of a vertex below :data:`HEADER`."""
    silent = sum(not one.answers for one in vertex.replicas)
    replicas = f"{len(vertex.replicas)} ({silent} silent)" if silent else str(len(vertex.replicas))
    frontier = "-" if vertex.frontier is None else _times(vertex.frontier)
    lag_s = f"{vertex.lag_s:.1f}" if vertex.lag_s is not None else "-"
    lag = str(vertex.lag_epochs) if vertex.lag_epochs is not None else "-"
    skew = f"{vertex.skew:.2f}" if vertex.skew is not None and len(vertex.replicas) > 1 else "-"
    return vertex.title or vertex.name, replicas, *_figures(vertex), frontier, lag, lag_s, skew


def replica_cells(replica: ReplicaStatus) -> tuple[str, ...]:
    """The cells of a replica below :data:`HEADER`."""
    where = f"{replica.node}:{replica.pid}" if replica.node else ""
    who = f"  [{replica.replica}] {where}".rstrip()
    return who, "" if replica.answers else "silent", *_figures(replica), "", "", "", ""


def _figures(one: VertexStatus | ReplicaStatus) -> tuple[str, ...]:
    shares = (one.busy_share, one.idle_share, one.backpressured_share)
    backlog = f"{one.backlog_batches} ({amount(one.backlog_bytes)}B)" if one.backlog_batches else "-"
    return (
        amount(one.rate_in),
        amount(one.rate_out),
        *map(_share, shares),
        backlog,
        f"{amount(one.state_bytes)}B" if one.state_bytes else "-",
    )


def _times(times: Sequence[Timestamp]) -> str:
    more = f" +{len(times) - TIMES_SHOWN}" if len(times) > TIMES_SHOWN else ""
    return " ".join(map(str, times[:TIMES_SHOWN])) + more if times else "ended"


def _share(share: float | None) -> str:
    return f"{100 * share:.0f}%" if share is not None else "-"


def amount(value: float | None) -> str:
    """A number with three digits and a unit of thousands; "-" for None.

    >>> amount(0), amount(999.6), amount(12345), amount(2_000_000), amount(0.25), amount(None)
    ('0', '1.00k', '12.3k', '2.00M', '0.25', '-')
    """
    if value is None:
        return "-"
    unit = 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    shown = f"{value:.{max(0, 2 - (value >= 10) - (value >= 100))}f}"
    return (shown if unit else shown.rstrip("0").rstrip(".") if "." in shown else shown) + _UNITS[unit]
