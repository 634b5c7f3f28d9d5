"""Windows of so many records, against plain Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.progress import DataflowError
from tests.thorough import examples

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("i", pa.int64())])
RECORD = st.fixed_dictionaries({"k": st.none() | st.integers(0, 2), "t": st.integers(0, 20)})
EPOCHS = st.lists(st.lists(RECORD, max_size=8), min_size=1, max_size=6)


def numbered(epochs: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    number = iter(range(10_000))
    return [[{"k": record["k"], "t": record["t"], "i": next(number)} for record in records] for records in epochs]


def expected(epochs: list[Any], size: int, key: Any) -> Counter[str]:
    """(key, window, numbers of its records in order)."""
    seen: dict[Any, list[int]] = {}
    for records in epochs:
        for record in sorted(records, key=lambda one: (one["t"], repr(one))):
            seen.setdefault(key(record), []).append(record["i"])
    cut = [(of, at, numbers[at : at + size]) for of, numbers in seen.items() for at in range(0, len(numbers), size)]
    return Counter(repr((of, rd.Window(at, at + len(some)), some)) for of, at, some in cut)


@examples(each_run=14, soak=40)
@given(epochs=EPOCHS.map(numbered), size=st.integers(1, 4), parallelism=st.integers(1, 3), seed=st.integers(0, 80), to=st.integers(1, 4))
def test_each_so_many_records_of_a_key_in_the_order_of_time(epochs: list[Any], size: int, parallelism: int, seed: int, to: int) -> None:
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs]
    for source in (batches, epochs, [batch if i % 2 else batch.to_pylist() for i, batch in enumerate(batches)]):
        flow = rd.Dataflow()
        stream = flow.from_epochs(source, batch_rows=2, parts=2).assign_timestamps("t")
        windowed = stream.key_by("k").window(rd.windows.count(size))
        windowed.collect_list("i", name="lists").collect("lists")
        windowed.aggregate({"n": "count", "last": ("max", "i")}).collect("several")
        windowed.max_by("i").collect("best")
        stream.window(rd.windows.count(size)).collect_list("i").collect("all")
        job = flow.submit(runtime="local", seed=seed, parallelism=parallelism)
        for _ in range(seed):
            job.step()
        job.start_rescale({"lists": to})
        result = job.wait(timeout_s=100)
        wanted = expected(epochs, size, lambda record: record["k"])
        assert Counter(repr(record) for _, record in result["lists"]) == wanted
        lists = [record for _, record in result["lists"]]
        several = Counter(repr((key, window, {"n": len(some), "last": max(some)})) for key, window, some in lists)
        assert Counter(repr(record) for _, record in result["several"]) == several
        best = Counter(repr((key, window, max(some))) for key, window, some in lists)
        assert Counter(repr((key, window, record["i"])) for _, (key, window, record) in result["best"]) == best
        everything = Counter(repr((None, window, some)) for _, (window, some) in result["all"])
        assert everything == expected(epochs, size, lambda record: None)


def test_a_window_comes_when_it_is_full() -> None:
    flow = rd.Dataflow()
    stream = flow.from_epochs([[("a", 2), ("a", 1)], [("a", 3), ("b", 1)], [("a", 9)]]).assign_timestamps(lambda row: row[1])
    stream.key_by(lambda row: row[0]).window(rd.windows.count(3)).sum(lambda row: row[1]).collect("out")
    found = sorted((at.epoch, *record) for at, record in flow.run(runtime="local")["out"])
    assert found == [(1, "a", rd.Window(0, 3), 6), (2, "a", rd.Window(3, 4), 9), (2, "b", rd.Window(0, 1), 1)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda stream: stream.key_by("k").window(rd.windows.count(0)),
            "windows.count at .*: size is 0: it must be an int of at least 1",
        ),
        (lambda stream: stream.key_by("k").window(rd.windows.count(3)), "window at .* has no event time; call assign_timestamps"),
        (
            lambda stream: (keyed := stream.assign_timestamps("t").key_by("k")).window(rd.windows.count(3)).join(keyed),
            r"windows of a join are tumbling or sliding, not Counted\(size=3\)",
        ),
    ],
)
def test_refusals(build: Any, message: str) -> None:
    stream = rd.Dataflow().from_epochs([[{"k": 1, "t": 2}]])
    with pytest.raises(DataflowError, match=message):
        build(stream)
