"""``python -m benchmarks [NAME ...]``: see docs/benchmarks.md."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import time
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, results_page, summary
from benchmarks.measurement import Measurement
from benchmarks.peer_environments import available_peers

NAMES = (
    "barrier", "loop", "rows", "columns", "slow_sink", "spill", "startup", "progress", "latency", "wordcount", "keyed_sum",
    "ten_operators", "nexmark", "kernels", "budget", "ladders", "graphs", "graph_growth", "interval", "snapshot_cost", "interval_live",
    "on_demand", "asof", "broadcast_join", "mpr", "rescale", "ds2", "kafka", "spark_stream", "seeing", "progress_line", "schemas", "frames",
    "commits", "sealing", "silence", "imports", "local",
)  # fmt: skip
RESULTS = machine.ROOT / "benchmarks" / "results"
PAGE = machine.ROOT / "docs" / "benchmarks.md"
AIMS, README = machine.ROOT / "docs" / "performance.md", machine.ROOT / "README.md"
INTERVAL = machine.ROOT / "docs" / "design" / "interval.md"
PICTURES = PAGE.parent / "images" / "benchmarks"


def measure(name: str, *, quick: bool, repetitions: int | None = None, peers: tuple[str, ...] | None = None) -> Measurement:
    """Run one benchmark, with these ``peers`` if its ``run`` takes any (None: all); Ray must be running when the benchmark needs it."""
    module: Any = importlib.import_module(f"benchmarks.{name}")
    sizes = module.QUICK if quick else module.FULL
    if repetitions is not None:
        sizes = dataclasses.replace(sizes, repetitions=repetitions)
    about = machine.about()
    with_peers = {"peers": peers} if "peers" in inspect.signature(module.run).parameters else {}
    out: Measurement = module.run(sizes, **with_peers)
    out.quick, out.about = quick, about
    return out


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NAME ...]")
@click.option("--quick", is_flag=True, help="Small sizes, to see whether everything works; writes no results unless --out says where.")
@click.option("--repetitions", type=click.IntRange(min=1), help="How many times everything is measured; by default as each benchmark says.")
@click.option("--peers", "peer_names", default="all", help="Which peers run beside Rayad: all, none, or names such as polars,bytewax.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the JSON files.  [default: benchmarks/results]")
@click.option("--report", is_flag=True, help="Measure nothing: write tables and plots of all results into docs/.")
@click.option("--list", "list_names", is_flag=True, help="List the benchmarks and peers.")
def main(
    names: tuple[str, ...], quick: bool, repetitions: int | None, peer_names: str, out: Path | None, report: bool, list_names: bool
) -> None:
    """Run the benchmarks NAME ..., by default all, and print their tables. (`python -m benchmarks.transport` is a command of its own.)"""
    if list_names:
        for name in NAMES:
            click.echo(f"{name:10} {importlib.import_module(f'benchmarks.{name}').TITLE}")
        return
    if report:
        write_page(out or RESULTS)
        return
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise click.UsageError(f"there is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    peers = chosen_peers(peer_names)
    folder = out if out is not None else None if quick else RESULTS
    chosen = [name for name in NAMES if name in names] if names else list(NAMES)
    if any(importlib.import_module(f"benchmarks.{name}").NEEDS_RAY for name in chosen):
        with machine.own_ray(max(4, machine.about()["cpus"] or 1)):
            run_all(chosen, quick=quick, repetitions=repetitions, peers=peers, folder=folder)
    else:
        run_all(chosen, quick=quick, repetitions=repetitions, peers=peers, folder=folder)


def chosen_peers(names: str) -> tuple[str, ...] | None:
    """The peers of ``--peers``; None for all."""
    if names == "all":
        return None
    wanted = () if names == "none" else tuple(name.strip() for name in names.split(","))
    unknown = sorted(set(wanted) - set(available_peers()))
    if unknown:
        raise click.UsageError(f"there is no peer {unknown[0]!r}; there are {', '.join(available_peers())}, or all, or none")
    return wanted


def run_all(names: list[str], *, quick: bool, repetitions: int | None, peers: tuple[str, ...] | None, folder: Path | None) -> None:
    """Run one benchmark after another, and write the results of each as soon as it has ended."""
    for name in names:
        began = time.perf_counter()
        measurement = measure(name, quick=quick, repetitions=repetitions, peers=peers)
        click.echo(f"## {measurement.title} (`{name}`)\n\n{results_page.describe(measurement.about)}\n\n{measurement.markdown()}")
        written = f"; {measurement.write(folder).name} written" if folder is not None else ""
        click.echo(f"({time.perf_counter() - began:.1f} s{written})\n")


def write_page(folder: Path) -> None:
    """Draw a picture of each benchmark and fill the results section of the page."""
    measurements = results_page.load(folder)
    section = results_page.render(measurements, results_page.draw_all(measurements, PAGE, PICTURES))
    PAGE.write_text(results_page.fill(PAGE.read_text(encoding="utf-8"), section), encoding="utf-8")
    for page, begin, end, table in (
        (AIMS, summary.AIMS_BEGIN, summary.AIMS_END, summary.aims_table(measurements)),
        (PAGE, summary.RIVALS_BEGIN, summary.RIVALS_END, summary.rivals_table(measurements)),
        (README, summary.HEADLINES_BEGIN, summary.HEADLINES_END, summary.headlines_table(measurements)),
        (INTERVAL, summary.INTERVAL_BEGIN, summary.INTERVAL_END, summary.interval_tables(measurements)),
    ):
        page.write_text(summary.filled(page.read_text(encoding="utf-8"), begin, end, table), encoding="utf-8")
    pages = ", ".join(str(page.relative_to(machine.ROOT)) for page in (PAGE, AIMS, README, INTERVAL))
    click.echo(f"{pages} hold the results of {folder.name}")


if __name__ == "__main__":
    main()
