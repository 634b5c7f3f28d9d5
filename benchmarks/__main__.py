"""``python -m benchmarks [NAME ...]``: see docs/benchmarks.md."""

from __future__ import annotations

import dataclasses
import importlib
import time
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, results_page
from benchmarks.measurement import Measurement

NAMES = ("barrier", "loop", "rows", "columns", "slow_sink", "spill", "startup", "progress", "latency")
RESULTS = machine.ROOT / "benchmarks" / "results"
PAGE = machine.ROOT / "docs" / "benchmarks.md"


def measure(name: str, *, quick: bool, repetitions: int | None = None) -> Measurement:
    """Run one benchmark; Ray must be running when the benchmark needs it."""
    module: Any = importlib.import_module(f"benchmarks.{name}")
    sizes = module.QUICK if quick else module.FULL
    if repetitions is not None:
        sizes = dataclasses.replace(sizes, repetitions=repetitions)
    about = machine.about()
    out: Measurement = module.run(sizes)
    out.quick, out.about = quick, about
    return out


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NAME ...]")
@click.option("--quick", is_flag=True, help="Small sizes, to see whether everything works; writes no results unless --out says where.")
@click.option("--repetitions", type=click.IntRange(min=1), help="How often everything is measured, instead of what each benchmark has.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the JSON files.  [default: benchmarks/results]")
@click.option("--report", is_flag=True, help="Measure nothing: write the tables of all results into docs/benchmarks.md.")
@click.option("--list", "list_names", is_flag=True, help="Say what there is.")
def main(names: tuple[str, ...], quick: bool, repetitions: int | None, out: Path | None, report: bool, list_names: bool) -> None:
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
    folder = out if out is not None else None if quick else RESULTS
    chosen = [name for name in NAMES if name in names] if names else list(NAMES)
    if any(importlib.import_module(f"benchmarks.{name}").NEEDS_RAY for name in chosen):
        with machine.own_ray(max(4, machine.about()["cpus"] or 1)):
            run_all(chosen, quick=quick, repetitions=repetitions, folder=folder)
    else:
        run_all(chosen, quick=quick, repetitions=repetitions, folder=folder)


def run_all(names: list[str], *, quick: bool, repetitions: int | None, folder: Path | None) -> None:
    """One after another; a benchmark's results are written as soon as they are there."""
    for name in names:
        began = time.perf_counter()
        measurement = measure(name, quick=quick, repetitions=repetitions)
        click.echo(f"## {measurement.title} (`{name}`)\n\n{results_page.describe(measurement.about)}\n\n{measurement.markdown()}")
        written = f"; {measurement.write(folder).name} written" if folder is not None else ""
        click.echo(f"({time.perf_counter() - began:.1f} s{written})\n")


def write_page(folder: Path) -> None:
    """Fill the results section of the page."""
    section = results_page.render(results_page.load(folder))
    PAGE.write_text(results_page.fill(PAGE.read_text(encoding="utf-8"), section), encoding="utf-8")
    click.echo(f"{PAGE.relative_to(machine.ROOT)} holds the results of {folder.name}")


if __name__ == "__main__":
    main()
