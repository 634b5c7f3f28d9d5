"""Sketches: near the exact answer, and the same whatever the order in which values came and were merged."""

from __future__ import annotations

import math
import random
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.aggregates.sketches import ApproxCountDistinct, Quantile
from tests.thorough import examples

NUMBERS = st.one_of(st.integers(-(10**12), 10**12), st.floats(-1e30, 1e30), st.just(0), st.none(), st.just(float("nan")))


def merged(aggregator: Aggregator, values: list[Any], draw: random.Random) -> Any:
    """The accumulator of these values, divided, shuffled, stored and merged as it comes."""
    parts = [aggregator.create(values[0])]
    for value in values[1:]:
        if len(parts) < 100 and draw.random() < 0.3:
            parts.append(aggregator.create(value))
        else:
            at = draw.randrange(len(parts))
            parts[at] = aggregator.add(parts[at], value)
    while len(parts) > 1:
        draw.shuffle(parts)
        right = cloudpickle.loads(cloudpickle.dumps(parts.pop()))
        parts[-1] = aggregator.merge(parts[-1], right)
    return cloudpickle.loads(cloudpickle.dumps(parts[0]))


@examples(each_run=40, soak=100)
@given(st.lists(NUMBERS, min_size=1, max_size=60), st.floats(0, 1), st.sampled_from([0.001, 0.01, 0.2]), st.integers(0, 1000))
def test_a_quantile_is_within_its_error_and_has_no_order(values: list[Any], q: float, error: float, seed: int) -> None:
    aggregator, draw = Quantile(q, error), random.Random(seed)
    found = aggregator.result(merged(aggregator, values, draw))
    draw.shuffle(values)
    assert aggregator.result(merged(aggregator, values, draw)) == found
    known = sorted(value for value in values if value is not None and value == value)
    if not known:
        assert found is None
        return
    exact = known[int(q * (len(known) - 1))]
    assert found is not None
    assert abs(found - exact) <= error * abs(exact) * (1 + 1e-9) + 1e-300


@pytest.mark.parametrize("count", [0, 1, 30, 400, 3000, 40_000])
def test_different_values_are_counted_about_right_and_in_no_order(count: int) -> None:
    aggregator, draw = ApproxCountDistinct(), random.Random(count)
    values: list[Any] = [f"user {draw.randrange(1 << 60)}" for _ in range(count)]
    values = [None, *values, *values[: count // 2]]
    found = set()
    for _ in range(3):
        draw.shuffle(values)
        found.add(aggregator.result(merged(aggregator, values, draw)))
    assert len(found) == 1
    assert abs(found.pop() - count) <= 0.04 * count


@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
def test_in_a_job_with_any_number_of_replicas(columnar: bool) -> None:
    draw = random.Random(7)
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.float64())])
    rows = [
        [{"k": draw.randrange(3), "t": 10 * epoch + draw.randrange(10), "v": draw.lognormvariate(3, 2)} for _ in range(300)]
        for epoch in range(3)
    ]
    batches = [pa.RecordBatch.from_pylist(some, schema=schema) for some in rows]

    def run(parallelism: int) -> dict[str, list[Any]]:
        flow = rd.Dataflow()
        keyed = flow.from_epochs(batches if columnar else rows, parts=2).assign_timestamps("t").key_by("k")
        keyed.quantile(0.9, "v").collect("running")
        keyed.approx_count_distinct("v").collect("different")
        both: dict[str, Any] = {"p50": (rd.Quantile(0.5), "v"), "n": ("approx_count_distinct", "v")}
        keyed.window(rd.windows.tumbling(10)).aggregate(both).collect("both")
        keyed.window(rd.windows.per_epoch()).quantile(0.25, "v").collect("epochs")
        result = flow.run(runtime="local", parallelism=parallelism, seed=parallelism)
        return {name: sorted((at.epoch, record) for at, record in result[name]) for name in ("running", "different", "both", "epochs")}

    found = run(1)
    assert run(2) == run(3) == found
    for epoch in range(3):
        for key in range(3):
            so_far = sorted(row["v"] for some in rows[: epoch + 1] for row in some if row["k"] == key)
            exact = so_far[int(0.9 * (len(so_far) - 1))]
            assert dict(record for at, record in found["running"] if at == epoch)[key] == pytest.approx(exact, rel=0.011)
            assert dict(record for at, record in found["different"] if at == epoch)[key] == pytest.approx(len(so_far), rel=0.04)
            here = sorted(row["v"] for row in rows[epoch] if row["k"] == key)
            quarter = {record[0]: record[-1] for at, record in found["epochs"] if at == epoch}[key]
            assert quarter == pytest.approx(here[int(0.25 * (len(here) - 1))], rel=0.011)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda keyed: keyed.quantile(95),
            r"quantile was given q=95: it is a share, from 0 to 1; 0.95 is",
        ),
        (lambda keyed: keyed.quantile(0.5, relative_error=1), "quantile was given relative_error=1: it is more than 0 and less than 1"),
        (lambda keyed: keyed.quantile(0.5, lambda row: "x"), r"quantile was given 'x' of type str: it (takes finite|adds) numbers"),
        (lambda keyed: keyed.quantile(0.5, lambda row: math.inf), "quantile was given inf of type float: it takes finite numbers"),
        (lambda keyed: keyed.quantile(0.5, lambda row: 10**400), "quantile was given 10+.* of type int: it takes finite numbers"),
        (
            lambda keyed: keyed.approx_count_distinct(lambda row: [row]),
            "of type list, which has no hash that is",
        ),
    ],
)
def test_refusals(build: Any, message: str) -> None:
    flow = rd.Dataflow()
    keyed = flow.from_items([1, 2]).key_by(lambda row: row)

    def run() -> None:
        build(keyed).collect("out")
        flow.run(runtime="local")

    with pytest.raises(rd.DataflowError, match=message):
        run()
