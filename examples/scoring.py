"""A model on batches: how late will a flight arrive, and how far off is the model from day to day?

    python examples/scoring.py                # in this process
    python examples/scoring.py --ray          # on Ray, two replicas with a model each
    python examples/scoring.py --days 59

    flights ──> predict (a model in each replica) ──> mean error of each carrier, week by week

The model learns from January, by least squares, and is saved to a file. Each replica loads it once, and gives it batches as
numpy arrays. A model on a GPU is written the same way: ``map_batches(..., num_gpus=1)``.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from flights_data import read_with_arrow

import rayad as rd

LEARNED_DAYS = 31
ARRIVED = pc.field("arr_delay").is_valid() & pc.field("dep_delay").is_valid()


def features(flights: dict[str, Any]) -> np.ndarray[Any, Any]:
    """What the model sees of each flight, shape (flights, 4)."""
    hour = flights["at"].astype("M8[h]").astype(int) % 24
    return np.column_stack([np.ones(len(hour)), flights["dep_delay"], flights["distance"] / 1000, hour])


def learn(flights: pa.Table, path: Path) -> None:
    """Save the weights that fit these flights best."""
    known = {name: flights[name].to_numpy() for name in ("at", "dep_delay", "distance", "arr_delay")}
    weights, *_ = np.linalg.lstsq(features(known), known["arr_delay"], rcond=None)
    np.save(path, weights)


# -- the dataflow ------------------------------------------------------------------------------
class Delay:
    """Predicts delays. Made once in each replica."""

    def __init__(self, path: str) -> None:
        self.weights = np.load(path)

    def __call__(self, flights: dict[str, Any]) -> dict[str, Any]:
        predicted = features(flights) @ self.weights
        return {"carrier": flights["carrier"], "at": flights["at"], "error": np.abs(predicted - flights["arr_delay"])}


def flow(days: int = 90, model: str = "model.npy") -> rd.Dataflow:
    """The dataflow, over the flights behind those that the model has learned."""
    dataflow = rd.Dataflow("scoring")
    flights = dataflow.from_arrow(read_with_arrow(days).filter(pc.field("day") >= LEARNED_DAYS), epoch="day", name="flights")
    scored = flights.filter(ARRIVED).map_batches(Delay, name="predict", batch_format="numpy", fn_constructor_args=(model,))
    weeks = scored.assign_timestamps("at").key_by("carrier").window(rd.windows.tumbling(dt.timedelta(days=7)))
    weeks.aggregate({"flights": "count", "error": ("mean", "error")}).collect("weeks")
    return dataflow


# -- running it --------------------------------------------------------------------------------
@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--days", default=90, show_default=True, type=click.IntRange(LEARNED_DAYS + 1, 365), help="How many days of 2013.")
@click.option("--ray", "on_ray", is_flag=True, help="Run on Ray, with two replicas.")
def main(days: int, on_ray: bool) -> None:
    """Print the error of each carrier in the first and in the last week."""
    options: dict[str, Any] = {"runtime": "ray", "parallelism": 2} if on_ray else {"runtime": "local"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npy"
        learn(read_with_arrow(LEARNED_DAYS).filter(ARRIVED), path)
        weeks = [record for _, record in flow(days, str(path)).run(**options)["weeks"]]
    first, last = min(window for _, window, _ in weeks), max(window for _, window, _ in weeks)
    errors = {(carrier, window): found for carrier, window, found in weeks}
    print(f"{sum(found['flights'] for found in errors.values()):,} flights scored, by a model of the {LEARNED_DAYS} days before")
    print(f"mean error in minutes  week of {first.start:%d %b}  week of {last.start:%d %b}")
    for carrier in sorted({carrier for carrier, _ in errors}):
        shown = [errors.get((carrier, week)) for week in (first, last)]
        print(f"{carrier:>21}" + "".join(f"{found['error']:16.1f}" if found else f"{'-':>16}" for found in shown))


if __name__ == "__main__":
    main()
