"""What few changes of a collection take does not depend on how much is there: no operator in columns copies all of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from tests.bytes_taken import least_bytes
from tests.thorough import by_turns

ROWS, FEW, EPOCHS = 100_000, 10, 12
BYTES_MAX = 8 * ROWS // 2
"""A copy of the numbers of all rows takes twice as much."""
windows = rd.windows

OPERATORS: dict[str, Callable[[rd.Collection], rd.Collection]] = {
    "distinct": lambda rows: rows.select("key").distinct(),
    "threshold": lambda rows: rows.select("key").threshold(rd.col("1") > 1),
    "intersect": lambda rows: rows.select("key").intersect(rows.select("key")),
    "consolidate": lambda rows: rows.consolidate(),
    "count": lambda rows: rows.key_by("key").count(),
    "sum": lambda rows: rows.key_by("key").sum("v"),
    "mean": lambda rows: rows.key_by("key").mean("v"),
    "min": lambda rows: rows.key_by("key").min("v"),
    "top_k": lambda rows: rows.key_by("key").top_k(2, "v"),
    "aggregate": lambda rows: rows.key_by("key").aggregate({"n": "count", "most": ("max", "v")}),
    "row_number": lambda rows: rows.key_by("key").row_number("at"),
    "lag": lambda rows: rows.key_by("key").lag("at"),
    "join": lambda rows: rows.key_by("key").join(rows.select("key", "v").key_by("key")),
    "left join": lambda rows: rows.key_by("key").join(rows.select("key", "v").key_by("key"), "left"),
    "anti join": lambda rows: rows.key_by("key").join(rows.select("key", "v").key_by("key"), "anti"),
    "arranged join": lambda rows: rows.arrange_by("key").join(rows.select("key", "v").arrange_by("key")),
    "as-of join": lambda rows: rows.key_by("key").join_asof(rows.select("key", "at").key_by("key"), "at"),
    "interval join": lambda rows: rows.key_by("key").join_interval(rows.select("key", "at").key_by("key"), rd.windows.between(-5, 5), "at"),
    "window": lambda rows: rows.key_by("key").window(windows.tumbling(10), "at").count(),
    "session": lambda rows: rows.key_by("key").window(windows.session(10), "at").count(),
}
KINDS: dict[str, Callable[[np.ndarray], pa.Array]] = {
    "numbers": pa.array,
    "texts": lambda keys: pa.array([f"key {key:012d}" for key in keys.tolist()]),
}


def bytes_of_few(operator: Callable[[rd.Collection], rd.Collection], kind: Callable[[np.ndarray], pa.Array]) -> int:
    """The most bytes of Python and numpy, with all of Arrow, that an epoch of ten changes takes: the least of several epochs, since now and
    then runs are merged."""

    def batch(keys: np.ndarray) -> pa.RecordBatch:
        return pa.record_batch({"key": kind(keys), "v": keys % 7, "at": keys % 100})

    flow = rd.Dataflow("few")
    operator(flow.collection("rows")).changes().probe("seen").map_batches(lambda changes: []).collect("none")
    job = flow.submit(runtime="local", parallelism=1)
    rows, seen, chance = job.collection("rows"), job.probe("seen"), np.random.default_rng(1)

    def change(epoch: int) -> None:
        rows.insert(batch(chance.integers(0, 2 * ROWS, FEW) if epoch else np.arange(ROWS)))
        if epoch:
            rows.remove(batch(np.arange(FEW * epoch, FEW * (epoch + 1))))
        rows.advance_to(epoch + 1)
        seen.wait(epoch)

    taken = least_bytes(EPOCHS, change)
    job.cancel()
    return taken


@by_turns(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_ten_changes_take_no_copy_of_all_rows(name: str, kind: str) -> None:
    assert bytes_of_few(OPERATORS[name], KINDS[kind]) < BYTES_MAX
