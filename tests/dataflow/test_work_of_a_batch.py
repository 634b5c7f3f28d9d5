"""What a small batch takes does not depend on how much state there is: no keyed operator touches, or copies, all of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from tests.bytes_taken import least_bytes
from tests.thorough import by_turns

KEYS, FEW, EPOCHS = 100_000, 10, 12
BYTES_MAX = 8 * KEYS // 2
"""A copy of the numbers of all keys takes twice as much."""
windows = rd.windows


def _in_time(rows: rd.Stream) -> rd.Stream:
    return rows.assign_timestamps("at")


def _none(rows: rd.Stream) -> rd.Stream:
    return rows.filter(rd.col("v") < 0)


OPERATORS: dict[str, Callable[[rd.Stream], rd.Stream]] = {
    "count": lambda rows: rows.key_by("key").count(),
    "mean": lambda rows: rows.key_by("key").mean("v"),
    "max": lambda rows: rows.key_by("key").max("v"),
    "aggregate": lambda rows: rows.key_by("key").aggregate({"n": "count", "most": ("max", "v")}),
    "distinct": lambda rows: rows.select("key", "v").key_by("key").distinct(),
    "top_k": lambda rows: rows.key_by("key").top_k(2, "v"),
    "count_distinct": lambda rows: rows.key_by("key").count_distinct("v"),
    "latest": lambda rows: rows.key_by("key").latest("at"),
    "lag": lambda rows: rows.key_by("key").lag("at"),
    "tumbling windows": lambda rows: _in_time(rows).key_by("key").window(windows.tumbling(1000)).count(),
    "sliding windows": lambda rows: _in_time(rows).key_by("key").window(windows.sliding(1000, 500)).sum("v"),
    "sessions": lambda rows: _in_time(rows).key_by("key").window(windows.session(1000)).count(),
    "join": lambda rows: rows.key_by("key").join(_none(rows).key_by("key")),
    "join within": lambda rows: _in_time(rows).key_by("key").join(_none(_in_time(rows)).key_by("key"), within=rd.between(-1000, 1000)),
    "as-of join": lambda rows: _in_time(rows).key_by("key").join_asof(_none(_in_time(rows)).key_by("key")),
    "join in windows": lambda rows: _in_time(rows).key_by("key").window(windows.tumbling(1000)).join(_none(_in_time(rows)).key_by("key")),
}


KINDS: dict[str, Callable[[np.ndarray], pa.Array]] = {
    "numbers": pa.array,
    "texts": lambda keys: pa.array([f"key {key:012d}" for key in keys.tolist()]),
}


def bytes_of_few(operator: Callable[[rd.Stream], rd.Stream], keys: int, kind: Callable[[np.ndarray], pa.Array] = pa.array) -> int:
    """The most bytes of Python and numpy, with all of Arrow, that an epoch of ten keys takes beside so many, of which some are there: the
    least of several epochs, since now and then runs are merged."""

    def _batch(keys: np.ndarray, at: int) -> pa.RecordBatch:
        return pa.record_batch({"key": kind(keys), "v": keys % 7, "at": np.full(len(keys), at)})

    flow = rd.Dataflow("few")
    operator(flow.input("rows")).probe("seen").map_batches(lambda batch: []).collect("none")
    job = flow.submit(runtime="local", parallelism=1)
    rows, seen, chance = job.input("rows"), job.probe("seen"), np.random.default_rng(1)

    def send(epoch: int) -> None:
        rows.send(_batch(chance.integers(0, 2 * keys, FEW) if epoch else np.arange(keys), epoch))
        rows.advance_to(epoch + 1)
        seen.wait(epoch)

    taken = least_bytes(EPOCHS, send)
    job.cancel()
    return taken


@by_turns(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_ten_keys_take_no_copy_of_all_keys(name: str, kind: str) -> None:
    assert bytes_of_few(OPERATORS[name], KEYS, KINDS[kind]) < BYTES_MAX
