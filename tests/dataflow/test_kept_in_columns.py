"""``top_k``, ``first``, ``last``, ``count_distinct``, ``collect_list`` in columns: partials by their definitions, and what rows give."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.aggregates.kept import Different, Everything, Kept, Ranked, placed
from rayad.dataflow.operators.aggregates.lists import Lists, list_array
from rayad.dataflow.operators.aggregates.top_k import TopK
from tests.every_type.arrays import COLUMNS
from tests.programs import model as m
from tests.thorough import by_turns, examples

NAN = float("nan")
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "small integers": (pa.int64(), st.integers(-3, 3)),
    "large integers": (pa.uint64(), st.sampled_from([0, 2**63, 2**64 - 1])),
    "floats": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("inf"), -float("inf"), NAN])),
    "text": (pa.string(), st.sampled_from(["", "a", "b", "ü"])),
    "bools": (pa.bool_(), st.booleans()),
}


def ranked(values: list[Any], most: int, largest: bool, greatest_repr: bool) -> list[Any]:
    """By the definition."""
    known = [value for value in values if value is not None and value == value]
    return sorted(sorted(known, key=repr, reverse=greatest_repr), reverse=largest)[:most]


@pytest.mark.parametrize("kind", KINDS)
@examples(each_run=16, soak=200)
@given(data=st.data())
def test_ranked_values_are_those_of_the_definition(kind: str, data: st.DataObject) -> None:
    values = st.none() | KINDS[kind][1]
    groups = data.draw(st.lists(st.one_of(st.lists(values, max_size=9), st.lists(values, min_size=20, max_size=40)), max_size=4))
    most, largest, greatest = data.draw(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()))
    items, lengths = pa.array([value for group in groups for value in group], KINDS[kind][0]), np.array([len(g) for g in groups], np.int64)
    found = Ranked(most, largest=largest, greatest_repr=greatest).gathered(items, np.arange(len(items)), lengths)
    assert repr(found.to_pylist()) == repr([ranked(group, most, largest, greatest) for group in groups])


@examples(each_run=16, soak=200)
@given(data=st.data(), most=st.integers(1, 4), greatest=st.booleans())
def test_placed_values_that_tie_are_in_the_order_of_their_repr(data: st.DataObject, most: int, greatest: bool) -> None:
    pair = st.tuples(st.sampled_from([1, 2, None]), st.sampled_from(["a", "B", "c'", None]))
    groups = data.draw(st.lists(st.lists(pair, max_size=30), max_size=3))
    flat = [pair for group in groups for pair in group]
    items = placed(pa.array([p for p, _ in flat], pa.int64()), pa.array([v for _, v in flat], pa.string()))
    partial = Ranked(most, largest=True, greatest_repr=greatest)
    found = partial.gathered(items, np.arange(len(items)), np.array([len(g) for g in groups], np.int64)).to_pylist()
    for group, kept in zip(groups, found, strict=True):
        known = [(p, v) for p, v in group if p is not None and v is not None]
        known.sort(key=lambda pair: repr(pair[1]), reverse=greatest)
        known.sort(key=lambda pair: pair[0], reverse=True)
        assert [(each["place"], each["value"]) for each in kept] == known[:most]


PARTIALS: list[Kept] = [Ranked(3, largest=False), Everything(), Different()]


@pytest.mark.parametrize("partial", PARTIALS, ids=lambda partial: type(partial).__name__)
def test_merging_parts_is_gathering_the_whole(partial: Kept) -> None:
    chance = random.Random(5)
    groups = [[chance.choice([None, *range(40)]) for _ in range(chance.randrange(60))] for _ in range(30)]

    def made(parts: list[list[Any]]) -> pa.ListArray:
        flat = pa.array([value for part in parts for value in part], pa.int64())
        return partial.gathered(flat, np.arange(len(flat)), np.array([len(part) for part in parts], np.int64))

    cuts = [chance.randrange(len(group) + 1) for group in groups]
    halves = [[g[:c] for g, c in zip(groups, cuts, strict=True)], [g[c:] for g, c in zip(groups, cuts, strict=True)]]
    (merged,) = partial.merged(*([Lists.of(made(half))] for half in halves))
    kind = pa.list_(pa.int64())
    assert list(map(sorted, merged.as_column(kind).to_pylist())) == list(map(sorted, made(groups).to_pylist()))


def test_lists_set_again_and_again_take_no_room_for_what_they_were() -> None:
    chance, kept, kind = random.Random(3), [[] for _ in range(50)], pa.list_(pa.int64())
    lists = Lists.of(pa.array(kept, kind))
    for _ in range(400):
        slots = chance.sample(range(50), 20)
        new = [[chance.randrange(9) for _ in range(chance.randrange(60))] for _ in slots]
        lists[np.array(slots)] = Lists.of(pa.array(new, kind))
        for slot, some in zip(slots, new, strict=True):
            kept[slot] = some
    assert lists.as_column(kind).to_pylist() == kept
    assert sum(map(len, lists.__dict__["_items"])) < 2 * sum(map(len, kept)) + (1 << 13)


def both(epochs: list[list[dict[str, Any]]], schema: pa.Schema, build: Any) -> None:
    """Fail unless rows and columns give the same."""
    found = []
    for source in (epochs, [pa.RecordBatch.from_pylist(rows, schema=schema) for rows in epochs]):
        flow = rd.Dataflow()
        build(flow.from_epochs(source, batch_rows=6))
        found.append(flow.run(runtime="local", parallelism=2))
    for sink in found[0]:
        assert Counter(map(repr, found[1][sink])) == Counter(map(repr, found[0][sink])), sink


SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.int64()), ("f", pa.float32())])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", None]),
            "v": st.sampled_from([1, 2, 2**62, None]),
            "t": st.integers(0, 12),
            "f": st.sampled_from([0.5, -0.0, 0.0, NAN, None]),
        }
    ),
    max_size=14,
)


def everything(stream: rd.Stream) -> None:
    keyed = stream.assign_timestamps("t", max_delay=99).key_by("k")
    sides: dict[str, Any] = {"running": keyed, "tumbling": keyed.window(rd.windows.tumbling(4))}
    sides |= {"sliding": keyed.window(rd.windows.sliding(6, 3)), "session": keyed.window(rd.windows.session(2))}
    sides["epochs"] = keyed.window(rd.windows.per_epoch())
    for name, side in sides.items():
        side.top_k(2, "f").collect(f"values {name}")
        side.top_k(2, by="v").collect(f"records {name}")
        side.last(by="f").collect(f"last {name}")
        side.first("f").collect(f"first {name}")
        side.count_distinct("f").collect(f"different {name}")
        several = {"total": ("sum", "v"), "n": "count", "last": ("last", "f"), "all": ("count_distinct", "v"), "first": ("first", "v", "f")}
        side.aggregate(several).collect(f"several {name}")  # the total may leave 64 bits, and all go on in rows


@examples(each_run=5, soak=100)
@given(epochs=st.lists(ROWS, min_size=1, max_size=3))
def test_rows_and_columns_give_the_same(epochs: list[list[dict[str, Any]]]) -> None:
    both([[{name: row[name] for name in SCHEMA.names} for row in rows] for rows in epochs], SCHEMA, everything)


@by_turns(3)
@pytest.mark.parametrize("kind", [kind for kind in COLUMNS if kind != "time64[ns]"])
def test_every_type_may_be_part_of_a_ranked_record(kind: str) -> None:
    column = COLUMNS[kind]
    batch = pa.record_batch({"k": [i % 2 for i in range(len(column))], "p": np.arange(len(column)) % 5, "v": column})
    found = []
    for source in ([batch, batch.slice(3)], [rd.to_rows(batch), rd.to_rows(batch.slice(3))]):
        flow = rd.Dataflow()
        keyed = flow.from_epochs(source, batch_rows=5).key_by("k")
        keyed.top_k(3, by="p").collect("top")
        keyed.last("v", by="p").collect("last")
        keyed.collect_list("v").map(lambda pair: (pair[0], sorted(map(repr, pair[1])))).collect("list")
        keyed.count_distinct("v").collect("different")
        found.append(flow.run(runtime="local", parallelism=2))
    for sink in ("top", "last", "list", "different"):
        m.require_same([(t, repr(r)) for t, r in found[0][sink]], [(t, repr(r)) for t, r in found[1][sink]], sink)


def test_a_large_group_is_looked_at_in_blocks() -> None:
    rng = np.random.default_rng(1)
    sizes = np.array([3, 10_000, 0, 40, 7, 25_000, 1])
    items = pa.array(rng.integers(0, 1000, sizes.sum()))
    found = Ranked(5, largest=True).gathered(items, np.arange(len(items)), sizes).to_pylist()
    expected = [sorted(group, reverse=True)[:5] for group in list_array(items, sizes).to_pylist()]
    assert found == expected


def test_a_subclass_of_an_aggregation_handles_rows() -> None:
    class Odd(TopK):
        def result(self, accumulator: Any) -> Any:
            return [-value for value in super().result(accumulator)]

    flow = rd.Dataflow()
    flow.from_epochs([pa.record_batch({"k": [1, 1, 1], "v": [1, 2, 3]})]).key_by("k").aggregate(Odd(2), "v").collect("out")
    assert [record for _, record in flow.run(runtime="local")["out"]] == [(1, [-3, -2])]
