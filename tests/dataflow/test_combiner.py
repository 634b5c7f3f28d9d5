"""Partials in a busy sender's combiner: none is lost or doubled, whatever batches come and whenever it is flushed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.operators.aggregates import combiner as combining
from rayad.dataflow.operators.aggregates.aggregators import Count, Max, Mean, Min, Several, Sum
from rayad.dataflow.operators.aggregates.combiner import Combine, Combiner
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.selectors import KeySelector, ValueSelector
from rayad.progress import DataflowError, Timestamp

T = Timestamp
BY_COLUMN, BY_FUNCTION = KeySelector(columns=("k",)), KeySelector(function=itemgetter("k"))
VALUE = ValueSelector(column="v")


def merged(combine: Combine, batches: list[Any]) -> dict[Any, Any]:
    """The receiver's totals of partials, for rows and for columns."""
    aggregator = combine.aggregator
    out: dict[Any, Any] = {}
    for batch in batches:
        if isinstance(batch, pa.RecordBatch):
            lists = [column.to_pylist() for column in batch.columns]
            pairs = [(row[0], aggregator.accumulator(row[1:])) for row in zip(*lists, strict=True)]
        else:
            pairs = batch
        aggregator.merge_into(out, pairs)
    return {key: aggregator.result(value) for key, value in out.items()}


@pytest.mark.parametrize("key", [BY_COLUMN, BY_FUNCTION], ids=["columns", "rows"])
@pytest.mark.parametrize("aggregator", [Count(), Sum(), Min(), Max(), Mean()], ids=lambda a: a.name)
@pytest.mark.parametrize("seed", range(5))
def test_partials_add_up_whenever_they_are_flushed(key: KeySelector, aggregator: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(combining, "ROWS_MAX", rng.choice([7, 50, 10_000]))
    monkeypatch.setattr(combining, "KEYS_MAX", rng.choice([3, 10_000]))
    monkeypatch.setattr(combining, "TRIAL_ROWS", 5)
    monkeypatch.setattr(combining, "UNTRIED_ROWS", 30)
    monkeypatch.setattr(combining, "SAMPLE_ROWS_MIN", 4)
    combine = Combine(key, ValueSelector() if isinstance(aggregator, Count) else VALUE, aggregator)
    combiner = Combiner(combine, rng.choice([1, 600, 1 << 20]))
    keys = rng.choice([2, 1000])
    sent: dict[Timestamp, list[Any]] = defaultdict(list)
    rows: dict[Timestamp, list[tuple[int, Any]]] = defaultdict(list)
    for _ in range(60):
        time = T(rng.randrange(3))
        some = [(rng.randrange(keys) * 1_000_003, rng.choice([None, rng.randrange(9)])) for _ in range(rng.randrange(1, 12))]
        rows[time] += some
        batch = pa.record_batch({"k": pa.array([k for k, _ in some], pa.int64()), "v": pa.array([v for _, v in some], pa.int64())})
        sent[time] += combiner.add(time, batch if rng.random() < 0.8 else to_rows(batch))
        if rng.random() < 0.2:
            for at, out in combiner.flush():
                sent[at].append(out)
            assert not combiner.holding
    for at, out in combiner.flush():
        sent[at].append(out)
    for time, some in rows.items():
        plain = Combine(BY_FUNCTION, combine.value, aggregator).apply([{"k": k, "v": v} for k, v in some])
        assert merged(combine, sent[time]) == {k: aggregator.result(a) for k, a in plain}


@pytest.mark.parametrize("key", [BY_COLUMN, BY_FUNCTION], ids=["columns", "rows"])
def test_what_is_kept_back_is_bounded(key: KeySelector) -> None:
    """Under a bound on memory a sender gathers less: ``MemoryBound.gathered_bytes_max``."""
    batch = pa.record_batch({"k": [7 * at for at in range(100)], "v": [1] * 100})

    def kept_back(bytes_max: int) -> list[Any]:
        gatherer = Combine(key, VALUE, Sum()).gatherer(bytes_max)
        return [bool(gatherer.add(T(0), batch)) for _ in range(4)]

    assert kept_back(1 << 20) == [False] * 4
    assert kept_back(1) == [True] * 4
    assert kept_back(batch.nbytes + 1 if key is BY_COLUMN else 101 * combining.BYTES_OF_KEY) == [False, key is BY_COLUMN] * 2


def test_keys_that_hardly_repeat_are_not_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combining, "SAMPLE_ROWS_MIN", 100)
    combiner = Combiner(Combine(BY_COLUMN, VALUE, Sum()))
    batch = pa.record_batch({"k": [f"{i}" for i in range(1000)], "v": list(range(1000))})
    (out,) = combiner.add(T(0), batch)
    assert out.num_rows == 1000
    assert not combiner.holding
    combined = Combiner(Combine(BY_COLUMN, VALUE, Sum()))
    assert combined.add(T(0), batch.slice(0, 99)) == []
    ((_, held),) = combined.flush()
    assert out.schema.equals(held.schema, check_metadata=True)


def test_dictionaries_are_looked_at_by_their_indices() -> None:
    values, rows = pa.array([f"{i}" for i in range(combining.SAMPLE_ROWS_MIN)]), combining.SAMPLE_ROWS_MIN
    for indices, given_up in ((range(rows), True), ([i % 9 for i in range(rows)], False)):
        combiner = Combiner(Combine(BY_COLUMN, ValueSelector(), Count()))
        keys = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), values)
        assert bool(combiner.add(T(0), pa.record_batch({"k": keys}))) == given_up


def test_batches_of_another_form_flush_what_was_there() -> None:
    combine = Combine(BY_COLUMN, VALUE, Sum())
    combiner = Combiner(combine)
    assert combiner.add(T(0), pa.record_batch({"k": ["a"], "v": pa.array([1], pa.int32())})) == []
    first = combiner.add(T(0), pa.record_batch({"k": ["a"], "v": pa.array([0.5])}))
    assert [batch.to_pydict() for batch in first] == [{"k": ["a"], "sum(v)": [1], "count(v)": [1]}]
    assert merged(combine, [*first, *(batch for _, batch in combiner.flush())]) == {"a": 1.5}


def test_sums_beyond_64_bits_go_through_rows() -> None:
    combine = Combine(BY_COLUMN, VALUE, Sum())
    combiner = Combiner(combine)
    for _ in range(3):
        assert combiner.add(T(0), pa.record_batch({"k": ["a"], "v": [2**62]})) == []
    assert merged(combine, [batch for _, batch in combiner.flush()]) == {"a": 3 * 2**62}
    assert not combiner.holding


def test_several_aggregations_leave_as_they_are_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combining, "SAMPLE_ROWS_MIN", 2)
    combine = Combine(BY_COLUMN, ValueSelector(), Several({"n": Count(), "s": Sum(), "m": Mean()}, (ValueSelector(), VALUE, VALUE)))
    combiner = Combiner(combine)
    (out,) = combiner.add(T(0), pa.record_batch({"k": ["a", "b"], "v": [1, None]}))
    assert merged(combine, [out]) == {"a": {"n": 1, "s": 1, "m": 1.0}, "b": {"n": 1, "s": None, "m": None}}


def test_a_missing_column_is_named() -> None:
    combiner = Combiner(Combine(BY_COLUMN, VALUE, Sum()))
    with pytest.raises(DataflowError, match="there is no column 'k'"):
        combiner.add(T(0), pa.record_batch({"x": [1]}))


def test_row_steps_in_a_row_name_the_one_that_fails() -> None:
    flow = rd.Dataflow()
    flow.from_items(["a b", "c 0"]).flat_map(str.split, name="cut").map(lambda w: 1 / (w != "0"), name="divide").key_by(
        bool
    ).count().collect("out")
    with pytest.raises(DataflowError, match=r"'divide'\[0\].*on record '0'"):
        flow.run(runtime="local")
    flow = rd.Dataflow()
    flow.from_items(["a b"]).map(str.split, name="cut").key_by(lambda w: w).count(name="n").collect("out")
    with pytest.raises(DataflowError, match=r"a key is not hashable: \['a', 'b'\]"):
        flow.run(runtime="local")


def test_row_steps_in_a_row_that_fail_only_once_say_so() -> None:
    failures = iter([True])

    def moody(word: str) -> str:
        if next(failures, False):
            raise OSError("moody")
        return word

    flow = rd.Dataflow()
    flow.from_items(["a"]).map(moody, name="moody").filter(bool, name="some").collect("out")
    with pytest.raises(DataflowError, match=r"'moody' or 'some'.*but not when they were run again: OSError: moody"):
        flow.run(runtime="local", check_records=False)  # which looks at each step by itself


@pytest.mark.parametrize("seed", range(20))
def test_a_job_with_combiners_counts_the_same(seed: int) -> None:
    epochs = [[f"w{(i * 7 + e) % 13}" for i in range(e)] for e in range(20)]
    flow = rd.Dataflow()
    flow.from_epochs(epochs, parts=3, batch_rows=4).key_by(lambda w: w).count().collect("out")
    totals: Counter[str] = Counter()
    expected = []
    for epoch, words in enumerate(epochs):
        totals.update(words)
        expected += [(T(epoch), (word, totals[word])) for word in set(words)]
    assert Counter(flow.run(runtime="local", parallelism=3, seed=seed)["out"]) == Counter(expected)
