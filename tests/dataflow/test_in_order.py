"""``lag`` pairs each record with the one before it of the same key; ``head`` gives the first records of each key. The order of arrival does
not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from tests.thorough import examples

EPOCHS = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 3)), max_size=6), min_size=1, max_size=4)
Rounds = list[list[tuple[str, int]]]


def ordered(rounds: Rounds) -> list[tuple[int, str, int]]:
    """``(round, key, value)`` in the order of ``abs(value)``."""
    return [(at, *pair) for at, pairs in enumerate(rounds) for pair in sorted(pairs, key=lambda pair: (abs(pair[1]), repr(pair)))]


def lagged(rounds: Rounds) -> Counter[Any]:
    """What plain Python makes of the records of each time, in order."""
    out: Counter[Any] = Counter()
    last: dict[str, int] = {}
    for at, key, value in ordered(rounds):
        out[at, (key, (last.get(key), value))] += 1
        last[key] = value
    return out


def headed(rounds: Rounds) -> Counter[Any]:
    """The same for ``head``: the first three records of each key."""
    out: Counter[Any] = Counter()
    given: Counter[str] = Counter()
    for at, key, value in ordered(rounds):
        out[at, (key, value)] += given[key] < 3
        given[key] += 1
    return +out


class Operator(NamedTuple):
    name: str
    apply: Callable[..., rd.Stream]
    model: Callable[[Rounds], Counter[Any]]


LAG = Operator("lag", lambda keyed, *by: keyed.lag(*by), lagged)
HEAD = Operator("head", lambda keyed, *by: keyed.head(3, *by), headed)
OPERATORS = pytest.mark.parametrize("operator", [LAG, HEAD], ids=lambda operator: operator.name)


def distance(value: int) -> int:
    return abs(value)


@OPERATORS
@examples(each_run=10, soak=30)
@given(epochs=EPOCHS, parallelism=st.integers(1, 3), seed=st.integers(0, 99))
def test_lag_and_head_equal_those_of_plain_python(operator: Operator, epochs: list[Any], parallelism: int, seed: int) -> None:
    flow = rd.Dataflow()
    keyed = flow.from_epochs(epochs, parts=2, batch_rows=2).key_by(lambda pair: pair[0])
    operator.apply(keyed, distance, lambda pair: pair[1]).collect("out")
    found = flow.run(runtime="local", parallelism=parallelism, seed=seed)["out"]
    assert Counter((time.epoch, record) for time, record in found) == operator.model(epochs)


@OPERATORS
@settings(max_examples=10, deadline=None)
@given(records=st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 3)), min_size=1, max_size=5), parallelism=st.integers(1, 2))
def test_inside_a_loop_a_round_is_a_time(operator: Operator, records: list[Any], parallelism: int) -> None:
    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        again = inner.map(lambda pair: (pair[0], pair[1] + 4)).filter(lambda pair: pair[1] < 8)
        return again, operator.apply(inner.key_by(lambda pair: pair[0]), distance, lambda pair: pair[1])

    flow = rd.Dataflow()
    flow.from_items(records).iterate(body).collect("out")
    rounds = [records]
    while rounds[-1]:
        rounds.append([(key, value + 4) for key, value in rounds[-1] if value + 4 < 8])
    expected: Counter[Any] = Counter()
    for (_, record), times in operator.model(rounds).items():
        expected[record] += times
    assert Counter(record for _, record in flow.run(runtime="local", parallelism=parallelism)["out"]) == expected


def test_the_order_may_be_a_column() -> None:
    flow = rd.Dataflow()
    keyed = flow.from_epochs([pa.record_batch({"k": [1, 1, 1], "at": [3, 1, 2]})]).key_by("k")
    keyed.lag("at").map(lambda pair: (pair[1][0] and pair[1][0]["at"], pair[1][1]["at"])).collect("lag")
    keyed.head(2, "at").map(lambda pair: pair[1]["at"]).collect("head")
    result = flow.run(runtime="local")
    assert [record for _, record in result["lag"]] == [(None, 1), (1, 2), (2, 3)]
    assert [record for _, record in result["head"]] == [1, 2]


@OPERATORS
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, None], " was given None as the place of ('k', None): null and NaN have no order; filter them out"),
        ([1, "a"], " cannot order records by values of types ['int', 'str']"),
    ],
)
def test_records_without_an_order_are_refused(operator: Operator, values: list[Any], message: str) -> None:
    flow = rd.Dataflow()
    keyed = flow.from_items([("k", value) for value in values]).key_by(lambda pair: pair[0])
    operator.apply(keyed, lambda pair: pair[1]).collect("out")
    with pytest.raises(rd.DataflowError) as raised:
        flow.run(runtime="local")
    assert operator.name + message in str(raised.value)


@OPERATORS
def test_an_invalid_order_is_refused_where_it_is_written(operator: Operator) -> None:
    keyed = rd.Dataflow().from_items([1]).key_by(lambda x: x)
    with pytest.raises(rd.DataflowError, match=f"{operator.name} was given by=3: give a function of the record or a column name"):
        operator.apply(keyed, 3)


def test_head_takes_at_least_one() -> None:
    with pytest.raises(rd.DataflowError, match="head: n is 0: it must be an int of at least 1"):
        rd.Dataflow().from_items([1]).key_by(lambda x: x).head(0, abs)


@OPERATORS
@pytest.mark.parametrize("known", [True, False])
def test_a_field_that_the_value_does_not_have_is_told_with_what_to_do(operator: Operator, known: bool, tmp_path: Path) -> None:
    """What is ordered is the value. Where the columns are known that is told where it is written."""
    pq.write_table(pa.table({"k": [1], "n": [5]}), tmp_path / "a.parquet")
    flow = rd.Dataflow()
    stream: Any = flow.read_parquet(str(tmp_path / "a.parquet")) if known else flow.from_epochs([[{"k": 1, "n": 5}]])
    keyed = stream.key_by("k")
    apply = {"lag": keyed.lag, "head": lambda by, value: keyed.head(1, by, value)}[operator.name]

    def run() -> None:
        apply("n", "n").collect("out")
        flow.run(runtime="local")

    told = "what is ordered is the value, which is int64" if known else "lag|head was told by which field to order, and 5 has no such field"
    with pytest.raises(rd.DataflowError, match=told) as raised:
        run()
    assert "by=lambda value: value" in str(raised.value)
