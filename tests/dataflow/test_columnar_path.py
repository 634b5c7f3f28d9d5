"""Columns stay columns from source to sink: no Python object is made per row; and they give what rows give."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from tests.fresh_process import in_fresh_process
from tests.programs import model as m
from tests.thorough import examples

BATCH_ROWS = 1 << 16
BATCHES = 16  # a million rows
LOOKED_AT_BATCHES = 9  # in two epochs: to look at the allocator takes a while


class Columns(rd.Source):
    """Large batches with a string key, a small integer key and large values, made on the way."""

    def __init__(self, batches: int = BATCHES) -> None:
        self.batches = batches

    def list_parts(self) -> Sequence[Any]:
        return [0]

    def build_part(self, part: Any, resume: Any | None) -> rd.SourcePart:
        return ColumnsPart(self.batches)


class ColumnsPart(rd.SourcePart):
    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.at = 0
        rng = np.random.default_rng(7)
        numbers = rng.integers(0, 50, BATCH_ROWS)
        self.batch = pa.record_batch(
            {
                "name": pc.binary_join_element_wise("name-", pa.array(numbers).cast(pa.string()), ""),
                "group": numbers,
                "value": rng.integers(10**9, 2 * 10**9, BATCH_ROWS),
                "time": np.arange(BATCH_ROWS) // 1000,
            }
        )

    def next_batch(self) -> rd.SourceBatch | None:
        self.at += 1
        return rd.SourceBatch(self.at // 8, self.batch) if self.at <= self.batches else None

    def offset(self) -> int:
        return self.at


def blocks_peak(flow: rd.Dataflow) -> int:
    """How many Python objects more than before were alive at once, looked at on every return while the dataflow runs."""
    job = flow.submit(runtime="local", parallelism=2)
    base = sys.getallocatedblocks()
    peak = 0

    def look(frame: Any, event: str, arg: Any) -> None:
        nonlocal peak
        if event in ("return", "c_return"):
            peak = max(peak, sys.getallocatedblocks() - base)

    sys.setprofile(look)
    try:
        job.wait()
    finally:
        sys.setprofile(None)
    return peak


def totals(stream: rd.Stream) -> rd.Stream:
    return stream.key_by("name").sum("value")


def several(stream: rd.Stream) -> rd.Stream:
    return stream.key_by(["name", "group"]).aggregate({"n": "count", "sum": ("sum", "value"), "mean": ("mean", "value")})


def windowed(stream: rd.Stream) -> rd.Stream:
    return stream.assign_timestamps("time").key_by("group").window(rd.windows.tumbling(10)).sum("value")


def per_epoch(stream: rd.Stream) -> rd.Stream:
    return stream.key_by("group").window(rd.windows.per_epoch()).max("value")


class Rows(rd.Vertex):
    """Takes columns by key and passes them on."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        assert isinstance(batch, pa.RecordBatch)
        self.send_by(0, batch, time)


def exchanged(stream: rd.Stream) -> rd.Stream:
    return stream.key_by("group").vertex(Rows).rebalance().map_batches(lambda b: b.slice(0, 1))  # type: ignore[no-any-return]


def projected(stream: rd.Stream) -> rd.Stream:
    """Ten operators that never leave columns."""
    cents, time = pc.field("value") * 100, pc.field("time")
    priced = stream.filter(time >= 5).with_columns({"cents": cents, "even": pc.equal(pc.bit_wise_and(time, 1), 0)}).rename({"name": "who"})
    chosen = priced.filter(pc.field("even") & pc.field("who").isin(["name-1", "name-2", "name-3"])).drop("even", "value")
    named = chosen.select("group", {"cents": pc.field("cents") - 1, "who": pc.utf8_upper(pc.field("who"))})
    return named.filter(pc.field("cents").is_valid()).rename({"group": "g"}).key_by("g").sum("cents").as_columns("g", "cents")


def as_of(stream: rd.Stream) -> rd.Stream:
    timed = stream.assign_timestamps("time", max_delay=0)
    few = stream.map_batches(lambda batch: batch.slice(0, 50)).assign_timestamps("time", max_delay=0)  # of equal times the ``repr`` decides
    joined = timed.key_by("group").join_asof(few.key_by("group"), direction="nearest")
    return joined.map_batches(lambda batch: batch.slice(0, 1))


def distinct(stream: rd.Stream) -> rd.Stream:
    """Every row differs in the first epoch, and is there again in the second."""
    numbered = stream.map_batches(lambda batch: batch.append_column("n", pa.array(np.arange(batch.num_rows))))
    return numbered.key_by("name").distinct().as_columns().key_by("group").count().as_columns("g", "n")


def distinct_values(stream: rd.Stream) -> rd.Stream:
    """Counted at the end, since a result is rows."""
    values = stream.key_by(["name", "group"]).distinct("value").as_columns("name", "group", "value").filter(pc.field("value") > 0)
    return values.key_by("group").count().as_columns("g", "n")


def top_k(stream: rd.Stream) -> rd.Stream:
    return stream.key_by("name").top_k(3, "value").as_columns("name", "top").explode("top")


def top_k_of_records(stream: rd.Stream) -> rd.Stream:
    order = np.random.default_rng(5).permutation(BATCH_ROWS)
    numbered = stream.map_batches(lambda batch: batch.append_column("n", pa.array(order)))
    return numbered.select("name", "group", "n").key_by("name").top_k(3, by="n").as_columns("name", "top")


def first_and_last(stream: rd.Stream) -> rd.Stream:
    of = {"first": ("first", "value", "value"), "last": ("last", "name", "value"), "n": "count", "groups": ("count_distinct", "group")}
    return stream.key_by("group").aggregate(of).as_columns()


def top_k_in_windows(stream: rd.Stream) -> rd.Stream:
    return stream.assign_timestamps("time").key_by("group").window(rd.windows.sliding(20, 10)).top_k(2, "value").as_columns()


PROGRAMS = {
    "totals": totals, "several": several, "windowed": windowed, "per_epoch": per_epoch, "exchanged": exchanged, "projected": projected,
    "as_of": as_of,
    "distinct": distinct, "distinct values": distinct_values, "top_k": top_k, "top_k of records": top_k_of_records,
    "first and last": first_and_last, "top_k in windows": top_k_in_windows,
}  # fmt: skip


def peaks() -> dict[str, int]:
    """Of each program and of one that makes rows; all in one process."""

    def flow(program: Any, batches: int) -> rd.Dataflow:
        flow = rd.Dataflow()
        source = flow.source(Columns(batches))
        program(source.map_batches(lambda b: b.set_column(2, "value", pc.multiply(b.column("value"), 2)))).collect("out")
        return flow

    found = {}
    for name, program in PROGRAMS.items():
        flow(program, 1).run(runtime="local", parallelism=2)  # what is imported or cached at the first use is no object per row
        found[name] = blocks_peak(flow(program, LOOKED_AT_BATCHES))
    found["rows"] = blocks_peak(flow(lambda stream: stream.map_batches(rd.to_rows).map_batches(lambda rows: rows[:1]), 1))
    return found


@pytest.fixture(scope="module")
def looked_at() -> dict[str, int]:
    found: dict[str, int] = in_fresh_process(peaks)
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_object_is_made_per_row(program: str, looked_at: dict[str, int]) -> None:
    assert looked_at[program] < BATCH_ROWS // 4


def test_the_measurement_sees_objects_per_row(looked_at: dict[str, int]) -> None:
    assert looked_at["rows"] > BATCH_ROWS


def test_a_million_rows_are_summed_right() -> None:
    flow = rd.Dataflow()
    totals(flow.source(Columns())).collect("out")
    result = flow.run(runtime="local", parallelism=2)["out"]
    batch = ColumnsPart(1).batch
    table = batch.select(["name", "value"])
    sums = pa.Table.from_batches([table]).group_by("name").aggregate([("value", "sum")]).to_pydict()
    by_name = dict(zip(sums["name"], sums["value_sum"], strict=True))
    expected = [(rd.Timestamp(e), (name, total * n)) for e, n in ((0, 7), (1, 15), (2, 16)) for name, total in by_name.items()]
    m.require_same(result, expected, "sums")


# -- rows and columns give the same --------------------------------------------------------------------------------------------

KEYS = {
    "s": (st.sampled_from(["a", "b", ""]), pa.string()),
    "i": (st.integers(-2, 2), pa.int64()),
    "f": (st.sampled_from([0.0, -0.0, 1.0, 0.5]), pa.float64()),
}
VALUES = {
    "small": (st.integers(-128, 127), pa.int8()),
    "large": (st.sampled_from([2**62, -(2**62), 2**63 - 1, 5, -(2**63)]), pa.int64()),
    "unsigned": (st.sampled_from([2**63, 2**64 - 1, 3]), pa.uint64()),
    "float": (st.sampled_from([0.5, -1.25, 1e6, float("inf")]), pa.float64()),
    "float32": (st.sampled_from([0.5, -1.25, 3.0]), pa.float32()),
    "bool": (st.booleans(), pa.bool_()),
}


def same_from_rows_and_columns(epochs: list[list[dict[str, Any]]], schema: pa.Schema, build: Any, parallelism: int, seed: int) -> None:
    batches = [pa.RecordBatch.from_pylist(rows, schema=schema) for rows in epochs]
    results = []
    for source in ([batch.to_pylist() for batch in batches], batches):
        flow = rd.Dataflow()
        build(flow.from_epochs(source, batch_rows=2))
        results.append(flow.run(runtime="local", parallelism=parallelism, seed=seed))
    assert set(results[0]) == set(results[1])
    for sink in results[0]:
        m.require_same([(t, _canonical(r)) for t, r in results[1][sink]], [(t, _canonical(r)) for t, r in results[0][sink]], sink)


def _canonical(value: Any) -> Any:
    """-0.0 is 0.0; ``repr`` tells them apart."""
    if isinstance(value, (tuple, list)):
        return tuple(_canonical(part) for part in value)
    if isinstance(value, dict):
        return {name: _canonical(part) for name, part in value.items()}
    return value + 0.0 if isinstance(value, float) else value


@pytest.mark.parametrize("value", VALUES)
@examples(each_run=3, soak=20)
@given(data=st.data(), parallelism=st.integers(1, 3), seed=st.integers(0, 99))
def test_rows_and_columns_give_the_same(value: str, data: st.DataObject, parallelism: int, seed: int) -> None:
    values, kind = VALUES[value]
    row = st.fixed_dictionaries({**{name: st.none() | keys for name, (keys, _) in KEYS.items()}, "v": st.none() | values})
    epochs = data.draw(st.lists(st.lists(row, max_size=6), min_size=1, max_size=3))
    schema = pa.schema([*((name, t) for name, (_, t) in KEYS.items()), ("v", kind)])

    def build(stream: rd.Stream) -> None:
        for key in ("s", "i", "f", ["s", "i"], ["f", "s"]):
            keyed = stream.key_by(key)
            name = "-".join(key)
            keyed.count().collect(f"count {name}")
            keyed.window(rd.windows.per_epoch()).sum("v").collect(f"window {name}")
            keyed.aggregate({"a": ("sum", "v"), "b": ("mean", "v"), "i": ("max", "v"), "n": "count"}).collect(f"several {name}")
            for how in ("sum", "min", "max", "mean"):
                getattr(keyed, how)("v").collect(f"{how} {name}")

    same_from_rows_and_columns(epochs, schema, build, parallelism, seed)


def test_values_of_other_types_become_rows() -> None:
    flow = rd.Dataflow()
    batches = [pa.record_batch({"k": ["a"], "v": pa.array([1], pa.int64())}), pa.record_batch({"k": ["a"], "v": [1.5]})]
    flow.from_epochs(batches).key_by("k").sum("v", name="sums").collect("out")
    assert [(time.epoch, record) for time, record in flow.run(runtime="local")["out"]] == [(0, ("a", 1)), (1, ("a", 2.5))]


def test_the_column_to_sum_must_be_clear() -> None:
    flow = rd.Dataflow()
    rows = [{"k": "a", "v": 1, "w": 2}]
    flow.from_items(rows).key_by("k").sum(name="sums").collect("out")
    for build in (lambda: flow.run(runtime="local"), lambda: flow.from_arrow(pa.Table.from_pylist(rows)).key_by("k").sum()):
        with pytest.raises(rd.DataflowError) as caught:
            build()
        assert str(caught.value).endswith(": which column to aggregate is not clear: besides the key ['k'] there are ['v', 'w']; name one")
