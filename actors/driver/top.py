"""A job's status as a table that follows it: in a notebook, on a terminal, and as plain lines where there is neither."""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rayad.actors.job import JobState
from rayad.actors.status.job_status import JobStatus
from rayad.actors.status.progress_places import is_notebook
from rayad.actors.status.table import HEADER, as_html, as_lines, cells, heading
from rayad.actors.status.terminal import as_written, console, echo

RUNS = (JobState.STARTING, JobState.RUNNING)


def follow(
    status: Callable[[], JobStatus], show: Callable[[JobStatus], None], interval_s: float, timeout_s: float | None = None
) -> JobStatus:
    """Show a status every ``interval_s`` until the job has ended, or for ``timeout_s``; gives the last."""
    deadline_s = None if timeout_s is None else clock.monotonic() + timeout_s
    while True:
        began_s = clock.monotonic()
        told = status()
        show(told)
        left_s = began_s + interval_s - clock.monotonic()
        if told.state not in RUNS or (deadline_s is not None and clock.monotonic() + max(0.0, left_s) >= deadline_s):
            return told
        clock.sleep(max(0.0, left_s))


@contextmanager
def shown(*, with_replicas: bool = False) -> Iterator[Callable[[JobStatus], None]]:
    """What shows a status where this process shows things, each in the place of the one before where that is possible."""
    if is_notebook():
        notebook: Any = import_module("IPython.display")
        place = notebook.display(notebook.HTML(""), display_id=True)
        yield lambda status: place.update(notebook.HTML(as_html(status, with_replicas=with_replicas)))
    elif sys.stdout.isatty():
        from rich.live import Live

        with Live(console=console(), auto_refresh=False) as live:
            yield lambda status: live.update(_on_terminal(status, with_replicas), refresh=True)
    else:
        yield lambda status: echo(as_lines(status, with_replicas=with_replicas))


def _on_terminal(status: JobStatus, with_replicas: bool) -> Any:
    from rich.console import Group
    from rich.table import Table

    table = Table()
    for place, name in enumerate(HEADER):
        table.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in cells(status, with_replicas=with_replicas):
        table.add_row(*map(as_written, row))
    return Group(*map(as_written, heading(status)), *([table] if status.vertices else []))
