"""Options that the four examples share, and what they do with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click
from versions import RUNTIMES, Application, run

_OPTIONS = (
    click.option("--replicas", default=2, show_default=True, type=click.IntRange(min=1), help="Of the computing vertex; actors of a pool."),
    click.option("--runtime", default="ray", show_default=True, type=click.Choice(RUNTIMES), help="Which version."),
    click.option("--batch", type=click.IntRange(min=1), help="Items that travel together in the dataflow."),
    click.option("--chunk", default=1, show_default=True, type=click.IntRange(min=1), help="Items of a pool's call."),
    click.option("--waiting-ms", default=0.0, type=click.FloatRange(min=0), help="Each item waits besides, up to so long, by its load."),
    click.option("--seed", default=0, show_default=True, help="Of the local runtime's interleaving."),
    click.option("--check/--no-check", default=True, help="Compare with the sequential version, which takes its time."),
)


def COMMON(command: Callable[..., Any]) -> Callable[..., Any]:  # noqa: N802 - used as a decorator beside click's
    """Add the shared options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def execute(
    app: Application,
    again: Application | None = None,
    *,
    replicas: int,
    runtime: str,
    batch: int | None,
    chunk: int,
    waiting_ms: float,
    seed: int,
    check: bool,
) -> Any:
    """Run one version, say how fast it was, and compare its MD5 with that of the sequential version; gives its result.

    ``again`` is the application for the sequential version, where it needs another output.
    """
    chosen = (app if batch is None else replace(app, batch_items=batch)).waiting(waiting_ms / 1000)
    outcome = run(chosen, runtime, replicas, chunk=chunk, seed=seed)
    count = sum(1 for _ in app.items())
    workers = "one process" if runtime == "sequential" else f"{replicas} replica{'s' if replicas > 1 else ''}"
    print(f"{app.name}, {runtime}, {workers}: {count:,} items in {outcome.seconds:.3f} s, {count / outcome.seconds:,.0f} items/s")
    if not check or runtime == "sequential":
        print(f"MD5 {outcome.md5}")
        return outcome.result
    alone = run(again or app, "sequential")
    if outcome.md5 != alone.md5:
        raise SystemExit(f"MD5 {outcome.md5} is not that of the sequential version, {alone.md5}")
    speed = f"; it took {alone.seconds:.3f} s" if not waiting_ms else ""
    print(f"MD5 {outcome.md5}, as the sequential version's{speed}")
    return outcome.result
