"""Joins within event-time windows: what plain Python says, from rows and from columns, late records included."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.as_columns import Labels, plain_columns
from tests.programs import model as m
from tests.programs.windowed import assigner
from tests.thorough import examples

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
OTHER = pa.schema([("v", pa.int64()), ("key", pa.int32()), ("t", pa.int64())])
WINDOWS = {"tumbling": rd.windows.tumbling(4), "sliding": rd.windows.sliding(6, 2), "with gaps": rd.windows.sliding(2, 5)}


KINDS = ("inner", "left", "right", "full", "semi", "anti")


def joined(how: str, left: list[Any], right: list[Any]) -> list[tuple[Any, Any]]:
    """``(key, result)`` of the records of a window, as SQL has them: a null key equals nothing."""

    def of(record: Any, side: str) -> list[Any]:
        theirs, name, mine = (right, "key", "k") if side == "left" else (left, "k", "key")
        return [other for other in theirs if record[mine] is not None and other[name] == record[mine]]

    if how in ("semi", "anti"):
        return [(a["k"], a) for a in left if bool(of(a, "left")) == (how == "semi")]
    out = [(a["k"], (a, b)) for a in left for b in of(a, "left")]
    out += [(a["k"], (a, None)) for a in left if how in ("left", "full") and not of(a, "left")]
    return out + [(b["key"], (None, b)) for b in right if how in ("right", "full") and not of(b, "right")]


def model(left: list[list[Any]], right: list[list[Any]], windows: Any, delays: tuple[int, int], how: str) -> tuple[m.Timed, m.Timed]:
    """``(results, late)``: epoch by epoch, window by window."""
    keeps = (how in ("left", "full", "anti"), how in ("right", "full"))  # records with a null key
    assign = assigner(windows)
    kept: list[dict[rd.Window, list[Any]]] = [{}, {}]
    marks: list[int | None] = [None, None]
    mark: int | None = None
    out: m.Timed = []
    late: m.Timed = []
    last = 0

    def fire(epoch: int, until: int) -> None:
        for window in [w for w in {**kept[0], **kept[1]} if w.end <= until]:
            found = joined(how, kept[0].pop(window, []), kept[1].pop(window, []))
            out.extend((rd.Timestamp(epoch), (key, window, result)) for key, result in found)

    for epoch in range(max(len(left), len(right))):
        seen = False
        for side, epochs in enumerate((left, right)):
            for record in epochs[epoch] if epoch < len(epochs) else ():
                seen, last = True, epoch
                for window in assign(record["t"]) if record["k" if side == 0 else "key"] is not None or keeps[side] else ():
                    if mark is not None and window.end <= mark:
                        pair = (record, None) if side == 0 else (None, record)
                        late.append((rd.Timestamp(epoch), (record["k" if side == 0 else "key"], window, pair)))
                    else:
                        kept[side].setdefault(window, []).append(record)
        for side, epochs in enumerate((left, right)):
            times = [record["t"] - delays[side] for record in (epochs[epoch] if epoch < len(epochs) else ())]
            if times:
                marks[side] = max([*times, *([marks[side]] if marks[side] is not None else [])])  # type: ignore[type-var]
        if seen and marks[0] is not None and marks[1] is not None:
            mark = min(marks[0], marks[1])
            fire(epoch, mark)
    fire(last, 10_000)
    return out, late


def run(left: list[Any], right: list[Any], windows: Any, delays: tuple[int, int], how: Any, options: dict[str, Any]) -> Any:
    flow = rd.Dataflow()
    a, b = flow.from_epochs(left, batch_rows=2, parts=2), flow.from_epochs(right, batch_rows=3)
    other = b.assign_timestamps("t", max_delay=delays[1]).key_by("key")
    joined = a.assign_timestamps("t", max_delay=delays[0]).key_by("k").window(windows).join(other, how=how)
    joined.collect("out")
    joined.late.collect("late")
    return flow.run(runtime="local", **options)


def records(key: str, *others: str) -> Any:
    fields = {key: st.integers(0, 2) | st.none(), "t": st.integers(-5, 20), "v": st.integers(0, 99)}
    return st.lists(st.lists(st.fixed_dictionaries(fields), max_size=6), min_size=1, max_size=4)


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("windows", WINDOWS)
@examples(each_run=3, soak=20)
@given(
    left=records("k"),
    right=records("key"),
    delays=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_the_pairs_of_each_window(
    windows: str, how: str, left: Any, right: Any, delays: tuple[int, int], parallelism: int, seed: int
) -> None:
    columns = (
        [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in left],
        [pa.RecordBatch.from_pylist(rows, schema=OTHER) for rows in right],
    )
    rows = [[batch.to_pylist() for batch in side] for side in columns]
    expected, late = model(rows[0], rows[1], WINDOWS[windows], delays, how)
    options = {"parallelism": parallelism, "seed": seed}
    mixed = [batch.to_pylist() if i % 2 else batch for i, batch in enumerate(columns[1])]
    for sides in (columns, rows, (columns[0], mixed)):
        got = run(*sides, WINDOWS[windows], delays, how, options)  # type: ignore[misc]
        m.require_same(got["out"], expected, "pairs")
        m.require_same(got["late"], late, "late")


def test_pairs_stay_columns_and_open_into_plain_ones() -> None:
    left = pa.record_batch({"k": [1, 2], "t": [1, 12], "v": [5, 6]})
    right = pa.record_batch({"v": [7, 8, 9], "key": [1, 1, 2], "t": [3, 13, 14]})
    flow = rd.Dataflow()
    a, b = (flow.from_epochs([batch]).assign_timestamps("t") for batch in (left, right))
    joined = a.key_by("k").window(rd.windows.tumbling(10)).join(b.key_by("key"))
    joined.collect("pairs", columnar=True)
    joined.as_columns().collect("plain", columnar=True)
    result = flow.run(runtime="local")
    assert result["pairs"].schema.names == ["k", "window", "pair"]
    assert sorted(result["plain"].to_pylist(), key=str) == [
        {"k": 1, "window_start": 0, "window_end": 10, "t": 1, "v": 5, "v_right": 7, "t_right": 3},
        {"k": 2, "window_start": 10, "window_end": 20, "t": 12, "v": 6, "v_right": 9, "t_right": 14},
    ]


def pairs_of(left: Any, right: Any, how: Any, *, plain: bool = False) -> list[Any]:
    flow = rd.Dataflow()
    a, b = (flow.from_epochs([batch]).assign_timestamps("t") for batch in (left, right))
    out = a.key_by("k").window(rd.windows.tumbling(10)).join(b.key_by("key"), how=how)
    (out.as_columns() if plain else out).collect("out")
    return sorted((record for _, record in flow.run(runtime="local")["out"]), key=str)


@pytest.mark.parametrize("how", KINDS)
def test_a_side_without_any_record(how: str) -> None:
    """Nobody knows its columns."""
    some, none = pa.record_batch({"k": [1], "t": [2], "v": [3]}), pa.record_batch({"key": [1], "t": [2]}).slice(1)
    window, record = rd.Window(0, 10), {"k": 1, "t": 2, "v": 3}
    alone = {"left": (record, None), "full": (record, None), "anti": record}
    assert pairs_of(some, none, how) == ([(1, window, alone[how])] if how in alone else [])
    plain = {"k": 1, "window_start": 0, "window_end": 10, "t": 2, "v": 3}
    assert pairs_of(some, none, how, plain=True) == ([plain] if how in alone else [])
    other = some.rename_columns(["key", "t", "v"])
    found = pairs_of(none.rename_columns(["k", "t"]), other, how)
    assert found == ([(1, window, (None, {"key": 1, "t": 2, "v": 3}))] if how in ("right", "full") else [])


@pytest.mark.parametrize("kinds", [("int32", "int64"), ("int64", "int32"), ("string", "large_string"), ("uint64", "int8")])
def test_keys_of_unlike_types_keep_their_values(kinds: tuple[str, str]) -> None:
    values = (["a", "b"], ["b", "c"]) if kinds[0] == "string" else ([1, 2], [2, 2**40 if kinds[1] == "int64" else -3])
    sides = [
        pa.record_batch({name: pa.array(keys, kind), "t": [1, 1]}) for name, keys, kind in zip(("k", "key"), values, kinds, strict=True)
    ]
    found = [key for key, _, _ in pairs_of(*sides, "full")]
    assert sorted(found) == sorted([values[0][0], values[0][1], values[1][1]])


def test_outer_pairs_open_into_plain_columns_where_sides_are_columns() -> None:
    left = pa.record_batch({"k": [1, 2], "t": [1, 2], "v": [5, 6]})
    right = pa.record_batch({"v": [7, 8], "key": [1, 3], "t": [3, 4]})
    window = {"window_start": 0, "window_end": 10}
    assert pairs_of(left, right, "full", plain=True) == [
        {"k": 1, **window, "t": 1, "v": 5, "v_right": 7, "t_right": 3},
        {"k": 2, **window, "t": 2, "v": 6, "v_right": None, "t_right": None},
        {"k": 3, **window, "t": None, "v": None, "v_right": 8, "t_right": 4},
    ]
    assert pairs_of(left, right, "anti", plain=True) == [{"k": 2, **window, "t": 2, "v": 6}]
    assert pairs_of(left.to_pylist(), right.to_pylist(), "semi", plain=True) == [{"k": 1, **window, "t": 1, "v": 5}]
    with pytest.raises(rd.DataflowError, match="a pair of rows without one of its records, whose columns nothing tells: name all"):
        pairs_of(left.to_pylist(), right.to_pylist(), "left", plain=True)


@pytest.mark.parametrize("how", ["left", "right", "full"])
@pytest.mark.parametrize("within", [True, False])
def test_outer_pairs_of_rows_open_into_the_columns_that_are_named(how: Any, within: bool) -> None:
    left = [[{"k": 1, "t": 1, "v": 5}], [{"k": 2, "t": 20, "v": 6}], [{"k": 2, "t": 41, "v": 7}]]
    right = [[{"v": 1, "key": 3, "t": 2}], [], [{"v": 8, "key": 2, "t": 42}]]
    schemas = [pa.schema([(name, pa.int64()) for name in names]) for names in (("k", "t", "v"), ("v", "key", "t"))]
    names = ("k", *(() if within else ("since", "until")), "t", "v", "other", "other_t")

    def opened(sides: list[list[Any]]) -> Any:
        flow = rd.Dataflow()
        keyed = [flow.from_epochs(side).assign_timestamps("t").key_by(key) for side, key in zip(sides, ("k", "key"), strict=True)]
        pairs = keyed[0].join(keyed[1], within=rd.between(-3, 3), how=how) if within else None
        pairs = pairs or keyed[0].window(rd.windows.tumbling(5)).join(keyed[1], how=how)
        pairs.as_columns(*names).collect("out", columnar=True)
        table = flow.run(runtime="local")["out"]
        assert table.schema.names == list(names)
        return sorted(table.to_pylist(), key=repr)

    columns = [[pa.RecordBatch.from_pylist(rows, schema) for rows in side] for side, schema in zip((left, right), schemas, strict=True)]
    assert opened([left, right]) == opened(columns)
    alone = [one for one in opened([left, right]) if one["other"] is None or one["v"] is None]
    assert len(alone) == {"left": 2, "right": 1, "full": 3}[how]


def test_names_of_outer_pairs_are_counted_and_records_of_a_side_are_alike() -> None:
    def refusal(rows: list[Any], *names: str) -> str:
        with pytest.raises(rd.DataflowError) as caught:
            plain_columns(rows, names, Labels(("k",), right_keys=("k",)))
        return str(caught.value)

    alone = [(1, ({"k": 1, "v": 2}, None))]
    assert refusal(alone) == (
        "as_columns was given ({'k': 1, 'v': 2}, None), a pair of rows without one of its records, whose columns nothing tells: name all "
        "columns, as_columns('k', ...), or say those of both streams with schema=, as map takes it"
    )
    assert refusal(alone, "k") == "as_columns was given 1 names, ['k'], for 2 columns: ['k', 'v']"
    assert refusal([*alone, (2, ({"k": 2, "u": 2}, None))], "k", "v", "w") == (
        "as_columns was given 3 names, ['k', 'v', 'w'], for records with the fields ['k', 'v', 'nothing 0'], and one with "
        "['k', 'u', 'nothing 0']: names go by position; leave them out, or bring the records to the same fields with map"
    )


def test_invalid_joins_in_windows_are_refused() -> None:
    flow = rd.Dataflow()
    timed = flow.from_items([("a", 1)]).assign_timestamps(lambda r: r[1])
    keyed = timed.key_by(lambda r: r[0])
    plain = flow.from_items([("a", 1)]).key_by(lambda r: r[0])
    cases = {
        "how is 'outer': it must be 'inner', 'left', 'right', 'full', 'semi' or 'anti'": lambda: keyed.window(rd.windows.tumbling(3)).join(
            keyed,
            how="outer",  # type: ignore[arg-type]
        ),
        "both sides must be keyed with key_by": lambda: keyed.window(rd.windows.tumbling(3)).join(timed),  # type: ignore[arg-type]
        "windows of a join are tumbling or sliding, not Session(gap=3)": lambda: keyed.window(rd.windows.session(3)).join(keyed),
        "has no event time; call assign_timestamps(...) after the last map before it": lambda: keyed.window(rd.windows.tumbling(3)).join(
            plain
        ),
    }
    for message, call in cases.items():
        with pytest.raises(rd.DataflowError) as caught:
            call()
        assert str(caught.value).endswith(message)
