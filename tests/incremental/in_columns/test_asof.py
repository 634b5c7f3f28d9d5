"""As-of joins of collections give in columns what they give in rows, for event times of all types, and make no rows."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import rayad as rd
from rayad.incremental import moment_vertex
from tests.incremental.in_columns.event_times import TIMES, changes_of, stream_of
from tests.thorough import amount, by_turns

DIRECTIONS = ("backward", "forward", "nearest")
OF_FLOATS = {"float", "tenths"}
"""Event times of which columns know the order, and not how far they are from each other."""


@by_turns(3)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("times", TIMES)
def test_asof_joins_in_columns_are_those_of_rows(times: str, direction: Any) -> None:
    type_of, time_of, unit = TIMES[times]
    for seed in range(amount(each_run=3, soak=60)):
        chance = random.Random(seed)
        left, right = changes_of(chance, time_of), changes_of(chance, time_of)
        tolerance = chance.choice([None, 2 * unit]) if not isinstance(unit, float) else None
        options = {
            "direction": direction,
            "tolerance": tolerance,
            "allow_exact_matches": chance.random() < 0.5,
            "how": ("inner", "left")[seed % 2],
        }
        results = []
        for in_columns in (False, True):
            flow = rd.Dataflow("asof")
            one, other = (
                stream_of(flow, some, type_of, in_columns=in_columns, name=name).as_collection(diff="n").key_by("k")
                for some, name in ((left, "left"), (right, "right"))
            )
            one.join_asof(other, "at", **options).changes().collect("out")
            refused = patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}"))
            is_far = times in OF_FLOATS and (direction == "nearest" or tolerance is not None)
            with refused if in_columns and not is_far else nullcontext():
                result = flow.run(runtime="local", seed=seed, parallelism=1 + seed % 2)
            totals: Counter[Any] = Counter()
            for time, (record, weight) in result["out"]:
                totals[time.epoch, repr(record)] += weight
            results.append({change: weight for change, weight in totals.items() if weight})
        assert results[0] == results[1], f"seed {seed}, {options}"
        assert results[0], "nothing came out"


def test_sides_whose_event_times_differ_in_type_are_joined_in_rows() -> None:
    """A whole number and a float."""
    flow = rd.Dataflow("mixed")
    left = flow.from_arrow(pa.table({"k": [1, 1], "at": [3, 7]})).as_collection().key_by("k")
    right = flow.from_arrow(pa.table({"k": [1, 1], "at": [2.5, 9.0]})).as_collection().key_by("k")
    left.join_asof(right, "at").collect("out")
    got = Counter((pair[1][0]["at"], pair[1][1]["at"]) for _, (pair, _) in flow.run(runtime="local")["out"])
    assert got == Counter({(3, 2.5): 1, (7, 2.5): 1})


def test_a_record_that_is_none_is_refused() -> None:
    flow = rd.Dataflow("none")
    keyed = flow.from_items([None, 2]).as_collection().key_by(lambda record: 1)
    keyed.join_asof(keyed, lambda record: 5).collect("out")
    with pytest.raises(rd.RayadError, match=r"join_asof\(\) was given the record None of key 1"):
        flow.run(runtime="local")


def test_a_join_whose_right_side_comes_later_or_never() -> None:
    flow = rd.Dataflow("later")
    left = flow.from_arrow(pa.table({"epoch": [0, 0], "k": [1, 2], "at": [3, 7]}), epoch="epoch", name="left").as_collection().key_by("k")
    right = flow.from_arrow(pa.table({"epoch": [2], "k": [1], "at": [1]}), epoch="epoch", name="right").as_collection().key_by("k")
    left.join_asof(right, "at", how="left").collect("out")
    refused = patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}"))
    with refused:
        result = flow.run(runtime="local")
    changes = Counter((time.epoch, key, other is not None, weight) for time, ((key, (_, other)), weight) in result["out"])
    assert changes == Counter({(0, 1, False, 1): 1, (0, 2, False, 1): 1, (2, 1, False, -1): 1, (2, 1, True, 1): 1})
