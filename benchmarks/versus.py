"""``python -m benchmarks.versus REVISION NAME ...``: this checkout beside an older one, in one run, interleaved.

Each pair runs a benchmark once in each tree, every second pair in the other order, each in a process of its own with a Ray of its own.
Other load of the machine affects both; the ratio of each series is taken within its pair.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from benchmarks.machine import ROOT
from benchmarks.measurement import Measurement, Series, as_table, shown

PAIRS = 5
RUN_LIMIT_S = 3600.0


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A temporary work tree of a revision."""
    with tempfile.TemporaryDirectory(prefix="rayad-before-") as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), revision], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def measured(tree: Path, name: str, *, quick: bool) -> Measurement:
    """One repetition of a benchmark of that tree, by the code of that tree."""
    with tempfile.TemporaryDirectory(prefix="rayad-versus-") as folder:
        command = [
            sys.executable,
            "-m",
            "benchmarks",
            name,
            "--repetitions",
            "1",
            "--peers",
            "none",
            "--out",
            folder,
            *(["--quick"] if quick else []),
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(tree / "src")])}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
        if done.returncode:
            raise click.ClickException(f"{name} failed in {tree}:\n{done.stderr[-2000:]}")
        return Measurement.from_json((Path(folder) / f"{name}.json").read_text(encoding="utf-8"))


def compared(befores: list[Measurement], afters: list[Measurement]) -> list[list[str]]:
    """For each series in both: the medians before and after; for the ratio after / before in each pair the median, least and most, and
    the number of pairs in which it was above 1."""
    earlier, later = ([{series.name: series for series in one.series} for one in runs] for runs in (befores, afters))
    out = []
    for name, series in earlier[0].items():
        if all(name in one for one in (*earlier, *later)):
            before, after = ([one[name].median for one in runs] for runs in (earlier, later))
            out.append(_row(series, before, after))
    return out


def _row(series: Series, before: list[float], after: list[float]) -> list[str]:
    ratios = [late / early for early, late in zip(before, after, strict=True) if early]
    if not ratios:
        return [series.name, series.unit, shown(statistics.median(before)), shown(statistics.median(after)), "-", "-", "-", "-"]
    spread = map(shown, (statistics.median(ratios), min(ratios), max(ratios)))
    above = f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)}"
    return [series.name, series.unit, shown(statistics.median(before)), shown(statistics.median(after)), *spread, above]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("revision")
@click.argument("names", nargs=-1, required=True, metavar="NAME ...")
@click.option("--pairs", type=click.IntRange(min=1), default=PAIRS, show_default=True, help="Runs of each benchmark in both trees.")
@click.option("--quick", is_flag=True, help="Small sizes, to see whether everything works.")
def main(revision: str, names: tuple[str, ...], pairs: int, quick: bool) -> None:
    """Compare this checkout with REVISION by the benchmarks NAME ..."""
    with checked_out(revision) as tree:
        for name in names:
            runs: dict[Path, list[Measurement]] = {tree: [], ROOT: []}
            for pair in range(pairs):
                for one in (tree, ROOT) if pair % 2 == 0 else (ROOT, tree):
                    runs[one].append(measured(one, name, quick=quick))
            head = ["measured", "unit", "before", "after", "after / before", "least", "most", "above 1"]
            title = f"## {name}: {runs[ROOT][0].about['commit']} over {revision}, {pairs} pairs"
            click.echo(f"{title}\n\n{as_table(head, compared(runs[tree], runs[ROOT]))}\n")


if __name__ == "__main__":
    main()
