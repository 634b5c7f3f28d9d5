"""``rayad plot``: the picture of how a job was scaled."""

from __future__ import annotations

from pathlib import Path

import click

from rayad.actors.status.terminal import echo
from rayad.progress import RayadError
from rayad.scaling_plot import plot_journal


@click.command()
@click.argument("journal", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="PNG, SVG or PDF to write.")
@click.option("--vertex", "vertices", multiple=True, help="Only this vertex; may be repeated. By default those that were scaled.")
@click.option("--goal", "goals", multiple=True, metavar="VERTEX=RATE", help="Items a second that a vertex was to produce.")
@click.option("--title", default=None, help="Above the picture; the job's name by default.")
def plot(journal: Path, out: Path, vertices: tuple[str, ...], goals: tuple[str, ...], title: str | None) -> None:
    """Draw throughput, goal and replicas over time from an autoscaler's JOURNAL, the file scaling.jsonl in the job's storage folder."""
    try:
        pictures = plot_journal(journal, out, vertices=vertices, goals=dict(_goal(text) for text in goals), title=title)
    except RayadError as error:
        raise click.ClickException(str(error)) from None
    for picture in pictures:
        counts = " ".join(str(count) for i, count in enumerate(picture.replicas) if i == 0 or count != picture.replicas[i - 1])
        echo(f"{picture.vertex}: {picture.mean_throughput:.6g} items/s over {picture.until_s[-1]:.4g} s; replicas {counts}")
    echo(str(out))


def _goal(text: str) -> tuple[str, float]:
    name, separator, rate = text.rpartition("=")
    try:
        return name, float(rate if separator and name else "")
    except ValueError:
        raise click.UsageError(f"--goal is {text!r}: write VERTEX=RATE, for example count=500") from None
