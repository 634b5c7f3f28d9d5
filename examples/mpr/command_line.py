"""The options that the four examples share, and running an application with them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from adapting import POLICIES, Adapting
from versions import COMPUTING, RUNTIMES, Application, run


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    replicas: int = 2
    runtime: str = "ray"
    batch: int | None = None
    chunk: int = 1
    waiting_ms: float = 0.0
    rate: float | None = None
    policy: str | None = None
    goal: float | None = None
    interval_s: float = 1.0
    rescale: tuple[tuple[float, int], ...] = ()
    plot: Path | None = None
    seed: int = 0
    check: bool = True

    def __post_init__(self) -> None:
        if self.runtime != "ray" and (self.policy is not None or self.plot is not None):
            raise click.UsageError("--policy and --plot need --runtime ray: only jobs on Ray have an autoscaler")
        if self.runtime not in ("ray", "local") and (self.rescale or self.rate is not None):
            raise click.UsageError(f"--rescale and --rate are for the dataflow, not for --runtime {self.runtime}")
        if self.policy == "mpr" and self.goal is None:
            raise click.UsageError("--policy mpr needs --goal: the items that shall be produced a second")
        if self.policy is not None and self.rescale:
            raise click.UsageError("--policy decides by itself: give it or --rescale")


class Change(click.ParamType):
    """A change of replicas: ``SECONDS:REPLICAS``."""

    name = "SECONDS:REPLICAS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, int]:
        """Read the text; raises a usage error if it has another form."""
        at_s, colon, replicas = str(value).partition(":")
        try:
            found = float(at_s), int(replicas)
        except ValueError:
            found = -1.0, 0
        if not colon or found[0] < 0 or found[1] < 1:
            self.fail(f"{value!r}: write SECONDS:REPLICAS, for example 5:4", param, ctx)
        return found


_POSITIVE = click.FloatRange(min=0, min_open=True)
_OPTIONS = (
    click.option(
        "--replicas",
        default=2,
        show_default=True,
        type=click.IntRange(min=1),
        help="Replicas of the computing vertex, or actors of a pool.",
    ),
    click.option("--runtime", default="ray", show_default=True, type=click.Choice(RUNTIMES), help="Which version."),
    click.option("--batch", type=click.IntRange(min=1), help="Items that travel together in the dataflow."),
    click.option("--chunk", default=1, show_default=True, type=click.IntRange(min=1), help="Items in each call to a pool."),
    click.option(
        "--waiting-ms", default=0.0, type=click.FloatRange(min=0), help="Each item also waits, at most so long, in proportion to its load."
    ),
    click.option("--rate", type=_POSITIVE, help="Items that come in each second; by default as fast as they are read."),
    click.option(
        "--policy", type=click.Choice(POLICIES), help="The policy that changes the replicas while it runs: from 1 up to --replicas."
    ),
    click.option("--goal", type=_POSITIVE, help="The policy's goal: items to produce each second."),
    click.option("--interval-s", default=1.0, show_default=True, type=_POSITIVE, help="From one decision to the next."),
    click.option("--rescale", multiple=True, type=Change(), help="From that second on, so many replicas; may be repeated."),
    click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Picture of throughput and replicas (PNG, SVG)."),
    click.option("--seed", default=0, show_default=True, help="Of the local runtime's interleaving."),
    click.option("--check/--no-check", default=True, help="Compare with the sequential version, which takes long."),
)


def COMMON(command: Callable[..., Any]) -> Callable[..., Any]:  # noqa: N802 - used as a decorator beside click's
    """Add the shared options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def execute(app: Application, again: Application | None = None, **given: Any) -> Any:
    """Run one version, print how fast it was, and compare its MD5 with that of the sequential version; gives its result.

    ``again`` is the application for the sequential version, if that needs another output.
    """
    options = Options(**given)
    chosen = replace(app.waiting(options.waiting_ms / 1000), batch_items=options.batch or app.batch_items, rate_per_s=options.rate)
    with tempfile.TemporaryDirectory(prefix="rayad-mpr-") as scratch:
        journal = str(Path(scratch) / "scaling.jsonl") if options.policy is not None or options.plot is not None else None
        adapting = Adapting(options.policy, options.goal, options.interval_s, journal, options.rescale)
        outcome = run(chosen, options.runtime, options.replicas, chunk=options.chunk, seed=options.seed, adapting=adapting)
        if options.plot is not None:
            adapting.draw(options.plot, COMPUTING, app.name)
    count = sum(1 for _ in app.items())
    workers = "one process" if options.runtime == "sequential" else _replicas(options)
    print(f"{app.name}, {options.runtime}, {workers}: {count:,} items in {outcome.seconds:.3f} s, {count / outcome.seconds:,.0f} items/s")
    if not options.check or options.runtime == "sequential":
        print(f"MD5 {outcome.md5}")
        return outcome.result
    alone = run(again or app, "sequential")
    if outcome.md5 != alone.md5:
        raise SystemExit(f"MD5 {outcome.md5} is not that of the sequential version, {alone.md5}")
    speed = f"; it took {alone.seconds:.3f} s" if not options.waiting_ms else ""
    print(f"MD5 {outcome.md5}, as the sequential version's{speed}")
    return outcome.result


def _replicas(options: Options) -> str:
    counts = sorted({options.replicas, *(replicas for _, replicas in options.rescale)} if options.policy is None else {1, options.replicas})
    between = " to ".join(str(count) for count in (counts[0], counts[-1])[: len(counts)])
    return f"{between} replica{'s' if counts[-1] > 1 else ''}"
