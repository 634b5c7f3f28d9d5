"""Sums of floats in columns are exact: what is taken away leaves nothing, and results are those of fractions."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.incremental import moment_vertex
from rayad.incremental.columns.float_sums import exact, limbs_of, rounded, with_integers
from tests.thorough import amount, examples

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
WEIGHTS = st.sampled_from([1, 2, -1, 7, -(1 << 20)])


def added(limbs: dict[int, Any]) -> dict[int, Any]:
    """All rows as one."""
    return {place: values.sum(keepdims=True) for place, values in limbs.items()}


@examples(each_run=200, soak=5000)
@given(st.lists(st.tuples(FLOATS, WEIGHTS), min_size=1, max_size=20), st.integers(-(1 << 62), 1 << 62), st.integers(1, 1 << 30))
def test_sums_and_quotients_are_the_nearest_floats(some: list[tuple[float, int]], more: int, divisor: int) -> None:
    values, weights = zip(*some, strict=True)
    total = added(limbs_of(np.array(values), np.array(weights)))
    want = sum((Fraction(value) * weight for value, weight in some), Fraction(0))
    assert exact(total, 0) == want
    for limbs, number in ((total, want), (with_integers(total, np.array([more])), want + more)):
        for by in (None, divisor):
            found, fine = rounded(limbs, 1, None if by is None else np.array([by]))
            try:
                nearest = float(number / (by or 1))
            except OverflowError:
                assert not fine[0]
                continue
            assert found[0] == nearest if fine[0] else abs(nearest) <= 2.3e-308


@examples(each_run=50, soak=1000)
@given(st.lists(FLOATS, min_size=1, max_size=20), st.randoms())
def test_what_is_taken_away_in_any_order_leaves_nothing(values: list[float], chance: random.Random) -> None:
    again = list(values)
    chance.shuffle(again)
    of, weights = np.array(values + again), np.repeat([1, -1], len(values))
    assert not any(limb.any() for limb in added(limbs_of(of, weights)).values())


@pytest.mark.parametrize("seed", range(amount(each_run=6, soak=200)))
def test_a_program_gives_in_columns_what_it_gives_in_rows(seed: int) -> None:
    """Numbers that are far apart, which come and go; no row is made of columns."""
    chance = random.Random(seed)
    there: list[Any] = []
    table: list[Any] = []
    for epoch in range(8):
        for _ in range(6):
            value = chance.choice([None, 0.1, 1e16, -1e16, 1e-9, chance.uniform(-1, 1), chance.uniform(-1, 1) * 1e20])
            there.append({"k": chance.randrange(3), "v": value})
            table.append({"epoch": epoch, **there[-1], "n": 1})
        table += [{"epoch": epoch, **there.pop(chance.randrange(len(there))), "n": -1} for _ in range(chance.randrange(len(there)))]
    table += [{"epoch": 8, **left, "n": -1} for left in there]
    results = []
    for form in ("rows", "columns"):
        flow = rd.Dataflow(f"floats-{form}")
        if form == "columns":
            schema = pa.schema({"epoch": pa.int64(), "k": pa.int64(), "v": pa.float64(), "n": pa.int64()})
            stream = flow.from_arrow(pa.Table.from_pylist(table, schema), epoch="epoch").select("k", "v", "n")
        else:
            epochs = [[{name: row[name] for name in "kvn"} for row in table if row["epoch"] == epoch] for epoch in range(9)]
            stream = flow.from_epochs(epochs)
        keyed = stream.as_collection(diff="n").key_by("k")
        keyed.sum("v").collect("sums")
        keyed.mean("v").collect("means")
        refused = patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}"))
        if form == "columns":
            with refused:
                result = flow.run(runtime="local", seed=seed, parallelism=2)
        else:
            result = flow.run(runtime="local", seed=seed, parallelism=2)
        results.append({name: Counter((time.epoch, *change) for time, change in result[name]) for name in ("sums", "means")})
        left: Counter[Any] = Counter()
        for _, (record, weight) in result["sums"]:
            left[record] += weight
        assert not +left
    assert results[0] == results[1]


BEYOND: dict[str, list[dict[str, Any]]] = {
    "integers after floats": [{"v": [0.5, 0.25]}, {"v": [3, 4]}],
    "floats after integers": [{"v": [3, 4]}, {"v": [0.5, 0.25]}],
    "more limbs than columns keep": [{"v": [0.5, 0.25]}, {"v": [10.0**exponent for exponent in range(-300, 300, 5)]}],
}


@pytest.mark.parametrize("what", BEYOND)
def test_what_columns_do_not_sum_goes_on_in_rows(what: str) -> None:
    flow = rd.Dataflow("beyond")
    streams = []
    for epoch, values in enumerate(BEYOND[what]):
        table = pa.table({"epoch": [epoch] * len(values["v"]), "k": [epoch] * len(values["v"]), **values})
        streams.append(flow.from_arrow(table, epoch="epoch").select("k", "v"))
    records = streams[0].as_collection().concat(streams[1].as_collection())
    records.key_by("k").sum("v").collect("out")
    out = {record for _, (record, _) in flow.run(runtime="local", parallelism=1)["out"]}
    sums = [sum(map(Fraction, values["v"])) for values in BEYOND[what]]
    assert out == {(k, total) if total.denominator == 1 else (k, float(total)) for k, total in enumerate(sums)}


def test_an_infinity_is_refused_as_in_rows() -> None:
    flow = rd.Dataflow("infinite")
    flow.from_arrow(pa.table({"k": [1], "v": [float("inf")]})).as_collection().key_by("k").sum("v").collect("out")
    with pytest.raises(rd.DataflowError, match="a sum over a collection was given inf: once added it cannot be taken away"):
        flow.run(runtime="local")
