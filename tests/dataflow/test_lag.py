"""``lag``: each record with the one before it of its key, whatever the order of arrival."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd

EPOCHS = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 3)), max_size=6), min_size=1, max_size=4)


def model(rounds: list[list[tuple[str, int]]]) -> Counter[Any]:
    """What plain Python makes of the records of each time, in order."""
    out: Counter[Any] = Counter()
    last: dict[str, int] = {}
    for at, pairs in enumerate(rounds):
        for key, value in sorted(pairs, key=lambda pair: (abs(pair[1]), repr(pair))):
            out[at, (key, (last.get(key), value))] += 1
            last[key] = value
    return out


def distance(value: int) -> int:
    return abs(value)


@settings(max_examples=30, deadline=None)
@given(epochs=EPOCHS, parallelism=st.integers(1, 3), seed=st.integers(0, 99))
def test_it_is_what_plain_python_gives(epochs: list[Any], parallelism: int, seed: int) -> None:
    flow = rd.Dataflow()
    flow.from_epochs(epochs, parts=2, batch_rows=2).key_by(lambda pair: pair[0]).lag(distance, lambda pair: pair[1]).collect("out")
    found = flow.run(runtime="local", parallelism=parallelism, seed=seed)["out"]
    assert Counter((time.epoch, record) for time, record in found) == model(epochs)


@settings(max_examples=10, deadline=None)
@given(records=st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 3)), min_size=1, max_size=5), parallelism=st.integers(1, 2))
def test_inside_a_loop_a_round_is_a_time(records: list[Any], parallelism: int) -> None:
    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        again = inner.map(lambda pair: (pair[0], pair[1] + 4)).filter(lambda pair: pair[1] < 8)
        return again, inner.key_by(lambda pair: pair[0]).lag(distance, lambda pair: pair[1])

    flow = rd.Dataflow()
    flow.from_items(records).iterate(body).collect("out")
    rounds = [records]
    while rounds[-1]:
        rounds.append([(key, value + 4) for key, value in rounds[-1] if value + 4 < 8])
    expected: Counter[Any] = Counter()
    for (_, record), times in model(rounds).items():
        expected[record] += times
    assert Counter(record for _, record in flow.run(runtime="local", parallelism=parallelism)["out"]) == expected


def test_a_column_may_say_the_order() -> None:
    flow = rd.Dataflow()
    batch = pa.record_batch({"k": [1, 1, 1], "at": [3, 1, 2]})
    pairs = flow.from_epochs([batch]).key_by("k").lag("at")
    pairs.map(lambda pair: (pair[1][0] and pair[1][0]["at"], pair[1][1]["at"])).collect("out")
    assert [record for _, record in flow.run(runtime="local")["out"]] == [(None, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, None], "lag was given None as the place of ('k', None): null and NaN have no order; filter them out"),
        ([1, "a"], "lag cannot order records by values of types ['int', 'str']"),
    ],
)
def test_records_without_an_order_are_refused(values: list[Any], message: str) -> None:
    flow = rd.Dataflow()
    flow.from_items([("k", value) for value in values]).key_by(lambda pair: pair[0]).lag(lambda pair: pair[1]).collect("out")
    with pytest.raises(rd.DataflowError) as raised:
        flow.run(runtime="local")
    assert message in str(raised.value)


def test_what_is_no_order_is_refused_where_it_is_written() -> None:
    keyed = rd.Dataflow().from_items([1]).key_by(lambda x: x)
    with pytest.raises(rd.DataflowError, match="lag was given by=3: give a function of the record or a column name"):
        keyed.lag(3)
