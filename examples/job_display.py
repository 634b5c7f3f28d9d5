"""Shows a running job: on a terminal a live table, anywhere else (CI logs, ``ray job submit``) plain lines.

All figures come from ``job.progress()``: for each stage the times that can still arrive there, and how many records its replicas took in.
An epoch is complete at a stage when neither an input nor a pending notification of it can still belong to that epoch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text


class JobDisplay:
    """Watches one job to its end.

    Args:
        title: of the table.
        unit: what an epoch stands for, in the singular.
        epochs: how many there are, if known: shows bars.
        sources: names of the vertices whose records are "rows read"; the speed is theirs.
        refresh_s: seconds between two updates; each is one control call to every replica.
    """

    def __init__(
        self,
        title: str,
        *,
        unit: str = "epoch",
        epochs: int | None = None,
        sources: Iterable[str] = (),
        refresh_s: float = 0.5,
        lines_every_s: float = 2.0,
        console: Console | None = None,
    ) -> None:
        self.title = title
        self.unit = unit
        self.epochs = epochs
        self.sources = frozenset(sources)
        self.refresh_s = refresh_s
        self.lines_every_s = lines_every_s
        self.console = console or Console()
        self._began_s = time.monotonic()
        self._looked_s = self._began_s
        self._records: dict[str, int] = {}
        self._speeds: dict[str, float] = {}

    def watch(self, job: Any) -> Any:
        """Wait for the end of ``job`` and give its result; Ctrl-C cancels it."""
        try:
            return self._watch_live(job) if self.console.is_terminal else self._watch_lines(job)
        except KeyboardInterrupt:
            job.cancel()
            raise

    def _watch_live(self, job: Any) -> Any:
        with Live(Text(f"{self.title}: starting"), console=self.console, auto_refresh=False, transient=True) as live:
            while True:
                try:
                    return job.wait(timeout_s=self.refresh_s)
                except TimeoutError:
                    progress = job.progress()
                    live.update(self.table(job, progress) if _is_running(progress) else Text(self.line(progress)), refresh=True)

    def _watch_lines(self, job: Any) -> Any:
        said_s, said = -math.inf, ""
        while True:
            try:
                return job.wait(timeout_s=self.refresh_s)
            except TimeoutError:
                now_s = time.monotonic()
                if now_s - said_s < self.lines_every_s:
                    continue
                progress = job.progress()
                if _is_running(progress) or _state_of(progress) != said:  # a start is said once, however long it is
                    said_s, said = now_s, _state_of(progress)
                    self.console.print(self.line(progress), highlight=False)

    # -- what is shown ---------------------------------------------------------------------
    def complete(self, stage: Any) -> int | None:
        """How many epochs are complete at a stage; None: all."""
        still = [*stage.frontier, *stage.pending_notifications]
        return min(t.epoch for t in still) if still else None

    def line(self, progress: Any) -> str:
        """One line for the log."""
        elapsed_s = time.monotonic() - self._began_s
        if not _is_running(progress):
            return f"{elapsed_s:6.1f} s  {self.title}: {_state_of(progress)}"
        done = [(count, stage.name) for stage in progress.stages if (count := self.complete(stage)) is not None]
        count, last = min(done)
        of = "" if self.epochs is None else f" of {self.epochs}"
        rows = sum(stage.records_in for stage in progress.stages if stage.name in self.sources)
        return f"{elapsed_s:6.1f} s  {count}{of} {self.unit}s complete, {last!r} is furthest behind; {rows:,} rows read"

    def table(self, job: Any, progress: Any) -> Table:
        """The progress and speed of every stage."""
        self._take_speeds(progress)
        replicas = {stage.name: stage.parallelism for stage in job.plan.stages}
        rows = sum(stage.records_in for stage in progress.stages if stage.name in self.sources)
        elapsed_s = time.monotonic() - self._began_s
        caption = f"{elapsed_s:.1f} s since it was submitted, {rows:,} rows read, {sum(replicas.values())} replicas"
        table = Table(title=self.title, caption=caption, header_style="bold", border_style="dim", box=box.SIMPLE_HEAD)
        table.title_justify = table.caption_justify = "left"
        table.add_column("vertex", no_wrap=True)
        table.add_column(f"{self.unit}s complete", no_wrap=True)
        table.add_column("round", justify="right")
        table.add_column("records in", justify="right")
        table.add_column("per second", justify="right")
        for stage in progress.stages:
            done = self.complete(stage)
            speed = self._speeds.get(stage.name, 0.0)
            table.add_row(
                f"{stage.name} x{replicas[stage.name]}",
                self._bar(done),
                _round_of(stage),
                f"{stage.records_in:,}",
                f"{speed:,.0f}" if speed >= 0.5 else "",
                style="" if done is not None else "green",
            )
        return table

    def _bar(self, done: int | None) -> Any:
        if self.epochs is None:
            return "all" if done is None else str(done)
        count = self.epochs if done is None else min(done, self.epochs)
        grid = Table.grid(padding=(0, 1))
        grid.add_column(justify="right", width=len(str(self.epochs)))
        grid.add_column()
        grid.add_row(str(count), ProgressBar(total=max(self.epochs, 1), completed=count, width=14 if self.console.width < 90 else 24))
        return grid

    def _take_speeds(self, progress: Any) -> None:
        now_s = time.monotonic()
        passed_s = max(now_s - self._looked_s, 1e-3)
        for stage in progress.stages:
            speed = (stage.records_in - self._records[stage.name]) / passed_s if stage.name in self._records else 0.0
            before = self._speeds.get(stage.name, speed)
            self._speeds[stage.name] = 0.5 * before + 0.5 * speed  # single measurements jump between epochs
            self._records[stage.name] = stage.records_in
        self._looked_s = now_s


def _is_running(progress: Any) -> bool:
    """Whether the job runs: before its start and after its end the stages have no times."""
    return progress.state.value == "running" and any(stage.frontier or stage.pending_notifications for stage in progress.stages)


def _state_of(progress: Any) -> str:
    """What a job does of which no stage has told its times."""
    state: str = progress.state.value
    return "its processes start" if state in ("starting", "running") else state


def _round_of(stage: Any) -> str:
    """The loop counters of the earliest time at a stage in a loop."""
    times = [*stage.frontier, *stage.pending_notifications]
    counters = min(times, key=lambda t: t.sort_key()).counters if times else ()
    return ".".join(map(str, counters))
