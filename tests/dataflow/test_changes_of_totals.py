"""``changes()`` of running totals: what is computed of them is, at each epoch, what a new computation from all input would give."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from tests.thorough import examples

EPOCHS = st.lists(st.lists(st.sampled_from("abcde"), max_size=5), min_size=1, max_size=5)


def moves(change: Any) -> list[tuple[Any, int]]:
    before, after = change[1]
    return [(after, 1), *([(before, -1)] if before is not None else [])]


def at_epoch(results: list[Any], epoch: int) -> dict[Any, Any]:
    """The newest value of each key at the end of an epoch."""
    return dict(record for time, record in sorted(results, key=lambda one: one[0].epoch) if time.epoch <= epoch)


@examples(each_run=21, soak=60)
@given(EPOCHS, st.integers(1, 3), st.integers(0, 99), st.booleans())
def test_counts_of_counts_are_right_at_every_epoch(epochs: list[list[str]], parallelism: int, seed: int, columns: bool) -> None:
    flow = rd.Dataflow("counts-of-counts")
    given_ = [pa.record_batch({"w": pa.array(words, pa.string())}) for words in epochs] if columns else epochs
    counts = flow.from_epochs(given_, parts=2).key_by("w" if columns else (lambda word: word)).count()
    counts.changes().flat_map(moves).key_by(lambda pair: pair[0]).sum(lambda pair: pair[1]).collect("by count")
    counts.changes().collect("changes")
    result = flow.run(runtime="local", parallelism=parallelism, seed=seed)
    so_far: Counter[str] = Counter()
    for epoch, words in enumerate(epochs):
        before = so_far.copy()
        so_far.update(words)
        found = {count: words for count, words in at_epoch(result["by count"], epoch).items() if words}
        assert found == dict(Counter(so_far.values()))
        told = {key: change for time, (key, change) in result["changes"] if time.epoch == epoch}
        assert told == {word: (before.get(word), so_far[word]) for word in set(words)}


@examples(each_run=14, soak=40)
@given(EPOCHS, st.integers(1, 3), st.integers(0, 99), st.integers(1, 3), st.booleans())
def test_the_latest_is_the_table_at_the_end(epochs: list[list[str]], parallelism: int, seed: int, to: int, columns: bool) -> None:
    flow = rd.Dataflow("table")
    given_ = [pa.record_batch({"w": pa.array(words, pa.string())}) for words in epochs] if columns else epochs
    counts = flow.from_epochs(given_, parts=2).key_by("w" if columns else (lambda word: word)).count()
    table = counts.latest(name="table")
    table.collect("table")
    table.key_by(lambda pair: pair[1]).count().collect("words by count")  # these are records: an operator with state may follow
    job = flow.submit(runtime="local", parallelism=parallelism, seed=seed)
    for _ in range(seed):
        job.step()
    job.start_rescale({"table": to})
    result = job.wait()
    expected = Counter(word for words in epochs for word in words)
    assert sorted(record for _, record in result["table"]) == sorted(expected.items())
    assert dict(record for _, record in result["words by count"]) == dict(Counter(expected.values()))


@examples(each_run=14, soak=40)
@given(EPOCHS, st.integers(1, 4), st.integers(1, 3), st.integers(0, 99), st.integers(1, 3), st.booleans())
def test_the_table_every_few_epochs(epochs: list[list[str]], every: int, parallelism: int, seed: int, to: int, columns: bool) -> None:
    flow = rd.Dataflow("tables")
    given_ = [pa.record_batch({"w": pa.array(words, pa.string())}) for words in epochs] if columns else epochs
    counts = flow.from_epochs(given_, parts=2).key_by("w" if columns else (lambda word: word)).count()
    tables = counts.latest(every=every, name="table")
    tables.collect("tables")
    tables.key_by(lambda pair: pair[1]).window(rd.windows.per_epoch()).count().collect("words by count")
    job = flow.submit(runtime="local", parallelism=parallelism, seed=seed)
    for _ in range(seed):
        job.step()
    job.start_rescale({"table": to})
    result = job.wait()
    wanted = {}
    for epoch in {at - at % every + every - 1 for at, words in enumerate(epochs) if words}:
        wanted[epoch] = Counter(word for words in epochs[: epoch + 1] for word in words)
    assert Counter((at.epoch, *pair) for at, pair in result["tables"]) == Counter(
        (epoch, *pair) for epoch, table in wanted.items() for pair in table.items()
    )
    by_count = {(epoch, count): many for epoch, table in wanted.items() for count, many in Counter(table.values()).items()}
    assert {(at.epoch, count): many for at, (count, _, many) in result["words by count"]} == by_count


def test_a_table_every_few_epochs_belongs_to_no_loop() -> None:
    def body(again: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        least = again.key_by(lambda pair: pair[0]).min(lambda pair: pair[1])
        return least.filter(lambda pair: False), least.latest(every=2)

    with pytest.raises(rd.DataflowError, match=r"latest at .* was given every=2 inside the loop 'again': a table belongs to an epoch"):
        rd.Dataflow("loop").from_items([("a", 5)]).iterate(body, name="again")
    counts = rd.Dataflow("none").from_epochs([["a"], ["a"]]).key_by(lambda w: w).count()
    with pytest.raises(rd.DataflowError, match="latest: every is 0"):
        counts.latest(every=0)


def test_the_latest_record_of_a_key_by_its_order() -> None:
    flow = rd.Dataflow("moves")
    moves_ = flow.from_epochs([[("a", 5, "x"), ("a", 9, "y")], [("a", 1, "z"), ("b", 2, "w"), ("b", 1, "v")]])
    moves_.key_by(lambda move: move[0]).latest(lambda place: place[1], lambda move: move[1:]).collect("out")
    assert sorted(record for _, record in flow.run(runtime="local")["out"]) == [("a", (1, "z")), ("b", (2, "w"))]


@pytest.mark.parametrize("call", ["changes", "latest"])
def test_totals_that_leave_a_loop_have_no_order(call: str) -> None:
    def body(again: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        counts = again.key_by(abs).count(name="rounds")
        return counts.map(lambda pair: pair[0]).filter(lambda n: False), counts

    out = rd.Dataflow("loop").from_items([1, 2]).iterate(body)
    with pytest.raises(rd.DataflowError, match=rf"{call} at .*: 'rounds' .* is within a loop, so a key may leave it several times"):
        getattr(out, call)()


def test_there_is_no_latest_of_what_is_no_total() -> None:
    with pytest.raises(rd.DataflowError, match=r"latest at .*: 'items' gives no running totals"):
        rd.Dataflow("none").from_items([1]).latest()


def test_of_several_aggregations_and_of_a_fold() -> None:
    flow = rd.Dataflow("several")
    keyed = flow.from_epochs([[("a", 1)], [("a", 2), ("b", 5)]]).key_by(lambda pair: pair[0])
    keyed.aggregate({"n": "count", "most": ("max", lambda pair: pair[1])}).changes().collect("several")
    keyed.fold(list, lambda state, pair: [*state, pair[1]]).changes(name="taken-back").collect("fold")
    result = flow.run(runtime="local")
    assert [record for time, record in result["several"] if record[0] == "a"] == [
        ("a", (None, {"n": 1, "most": 1})),
        ("a", ({"n": 1, "most": 1}, {"n": 2, "most": 2})),
    ]
    assert sorted((time.epoch, *record) for time, record in result["fold"]) == [
        (0, "a", (None, [1])),
        (1, "a", ([1], [1, 2])),
        (1, "b", (None, [5])),
    ]


def test_in_a_loop_round_after_round() -> None:
    flow = rd.Dataflow("loop")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        least = inner.key_by(lambda pair: pair[0]).min(lambda pair: pair[1], name="least")
        return least.filter(lambda pair: pair[1] > 2).map(lambda pair: (pair[0], pair[1] - 1)), least.changes()

    flow.from_items([("a", 5), ("b", 3)]).iterate(body).collect("out")
    found = sorted((record for _, record in flow.run(runtime="local")["out"]), key=str)
    assert found == sorted([("a", (None, 5)), ("a", (5, 4)), ("a", (4, 3)), ("a", (3, 2)), ("b", (None, 3)), ("b", (3, 2))], key=str)


def test_it_is_for_totals() -> None:
    stream = rd.Dataflow("none").from_items([("a", 1)])
    with pytest.raises(
        rd.DataflowError, match=r"^changes at test_changes_of_totals\.py:\d+: 'items' gives no running totals; it is for what"
    ):
        stream.changes()
    counts = rd.Dataflow("again").from_epochs([["a"], ["a"]]).key_by(lambda w: w).count()
    with pytest.raises(rd.DataflowError, match=r"\.changes\(\) gives what an update takes back, too"):
        counts.key_by(lambda pair: pair[1]).count()


@pytest.mark.parametrize("seed", range(0, 120, 5))
def test_latest_gives_a_key_once_though_it_moves_when_the_input_has_ended(seed: int) -> None:
    """A replica that had given its keys, and gave them away then, was asked for by a sibling: they came twice."""
    flow = rd.Dataflow()
    stream = flow.from_epochs([[(key, epoch) for key in range(6)] for epoch in range(3)], parts=2)
    stream.key_by(lambda row: row[0]).latest(lambda row: row[1], name="latest").collect("out")
    job = flow.submit(runtime="local", seed=seed, parallelism=3)
    for _ in range(seed):
        job.step()
    job.start_rescale({"latest": 2})
    assert sorted(record for _, record in job.wait(timeout_s=60)["out"]) == [(key, (key, 2)) for key in range(6)]
