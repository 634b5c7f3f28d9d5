"""Late records are given unchanged, for all kinds of windows; each record is in a window or late; unions keep event times."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.progress import DataflowError
from tests.programs.windowed import sessions
from tests.thorough import examples

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("until", pa.int64()), ("i", pa.int64())])
WINDOWS = {
    "tumbling": rd.windows.tumbling(4),
    "floats": rd.windows.tumbling(0.7),
    "sliding": rd.windows.sliding(6, 2),
    "sliding, no multiple": rd.windows.sliding(5, 3, 1),
    "sliding with gaps": rd.windows.sliding(2, 5),
    "session": rd.windows.session(2),
    "given": rd.windows.given("t", "until"),
}
RECORD = st.fixed_dictionaries({"k": st.integers(0, 5), "t": st.integers(-8, 24), "until": st.integers(0, 30)})
EPOCHS = st.lists(st.lists(RECORD, max_size=7), min_size=1, max_size=4)


def numbered(epochs: list[list[dict[str, int]]]) -> list[list[dict[str, int]]]:
    number = iter(range(10_000))
    return [[{**record, "i": next(number)} for record in records] for records in epochs]


def windows_of(windows: Any, record: dict[str, int]) -> list[rd.Window]:
    if isinstance(windows, type(WINDOWS["given"])):
        return [rd.Window(record["t"], record["until"])] if record["t"] < record["until"] else []
    return list(windows.assign(record["t"]))


def expected_late(epochs: list[Any], windows: Any, delay: int) -> Counter[Any]:
    out: Counter[Any] = Counter()
    if isinstance(windows, type(WINDOWS["session"])):
        _, late = sessions([[(r["k"], r["t"], r["i"]) for r in records] for records in epochs], windows.gap, len, delay)
        return Counter((at.epoch, key, window, record[2]) for at, (key, window, record) in late)
    mark: int | None = None
    for epoch, records in enumerate(epochs):
        for record in records:
            late = [window for window in windows_of(windows, record) if mark is not None and window.end <= mark]
            out.update((epoch, record["k"], window, record["i"]) for window in late)
        mark = max([*(record["t"] - delay for record in records), *([] if mark is None else [mark])], default=None)
    return out


@pytest.mark.parametrize("windows", WINDOWS)
@settings(max_examples=5)
@given(epochs=EPOCHS.map(numbered), delay=st.integers(0, 6), parallelism=st.integers(1, 3), seed=st.integers(0, 99), to=st.integers(1, 4))
def test_each_record_is_in_its_windows_or_late_for_them(
    windows: str, epochs: list[Any], delay: int, parallelism: int, seed: int, to: int
) -> None:
    """`.late` used to give an aggregate of the late records. Meanwhile replicas are added and removed."""
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs]
    expected = expected_late(epochs, WINDOWS[windows], delay)
    all_windows = sum(len(windows_of(WINDOWS[windows], record)) for records in epochs for record in records)
    for source in (batches, epochs, [batch if i % 2 else batch.to_pylist() for i, batch in enumerate(batches)]):
        flow = rd.Dataflow()
        stream = flow.from_epochs(source, batch_rows=2, parts=2).assign_timestamps("t", max_delay=delay)
        keyed, everything = stream.key_by("k").window(WINDOWS[windows]), stream.window(WINDOWS[windows])
        for name, result in {"count": keyed.count(name="counted"), "max_by": keyed.max_by("i"), "all": everything.count()}.items():
            result.collect(name)
            result.late.collect(f"late {name}")  # type: ignore[attr-defined]
        job = flow.submit(runtime="local", seed=seed, parallelism=parallelism)
        for _ in range(seed):
            job.step()
        job.start_rescale({"counted": to, "count-windows.late": to})
        result = job.wait(timeout_s=100)
        for name in ("count", "max_by"):
            assert Counter((t.epoch, k, window, record["i"]) for t, (k, window, record) in result[f"late {name}"]) == expected
        assert Counter((t.epoch, record["k"], window, record["i"]) for t, (window, record) in result["late all"]) == expected
        assert sum(n for _, (_, _, n) in result["count"]) + len(result["late count"]) == all_windows
        records = {record["i"]: record for some in epochs for record in some}
        assert all(record == records[record["i"]] for _, (*_, record) in result["late count"])


@pytest.mark.parametrize("windows", WINDOWS)
def test_late_records_of_all_windows_in_rows_and_columns(windows: str) -> None:
    epochs = numbered([[{"k": 0, "t": 9, "until": 12}], [{"k": t % 3, "t": t, "until": t + 3} for t in range(-4, 12)]])
    expected = expected_late(epochs, WINDOWS[windows], 0)
    assert len(expected) > 4
    for source in (epochs, [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs]):
        flow = rd.Dataflow()
        flow.from_epochs(source).assign_timestamps("t").key_by("k").window(WINDOWS[windows]).count().late.collect("late")
        late = flow.run(runtime="local")["late"]
        assert Counter((t.epoch, k, window, record["i"]) for t, (k, window, record) in late) == expected


def test_late_records_of_columns_stay_columns_and_open_into_plain_ones() -> None:
    batches = [pa.record_batch({"k": [1], "t": [100], "x": ["a"]}), pa.record_batch({"k": [2, 2], "t": [3, 99], "x": ["b", "c"]})]
    flow = rd.Dataflow()
    late = flow.from_epochs(batches).assign_timestamps("t").key_by("k").window(rd.windows.tumbling(0.5)).count().late
    late.as_columns().collect("late", columnar=True)
    assert flow.run(runtime="local")["late"].to_pylist() == [
        {"k": 2, "window_start": 3.0, "window_end": 3.5, "t": 3, "x": "b"},
        {"k": 2, "window_start": 99.0, "window_end": 99.5, "t": 99, "x": "c"},
    ]


def test_a_program_that_does_not_use_late_has_no_vertex_for_late_records() -> None:
    def vertices(late: bool) -> list[str]:
        flow = rd.Dataflow()
        counted = flow.from_items([{"t": 1}]).assign_timestamps("t").window(rd.windows.tumbling(5)).count()
        counted.collect("out")
        if late:
            assert counted.late is counted.late
        return [node.name for node in flow.graph.nodes if node.name.endswith(".late")]

    assert (vertices(False), vertices(True)) == ([], ["count-windows.late"])


# -- unions ----------------------------------------------------------------------------------------


def union_of(flow: rd.Dataflow, left: list[Any], right: list[Any], *, filtered: bool = False) -> rd.Stream:
    a = flow.from_epochs(left).assign_timestamps("t", max_delay=1)
    b = flow.from_epochs([[(r["k"], r["t"]) for r in records] for records in right]).assign_timestamps(lambda r: r[1], max_delay=3)
    out = a.union(b)
    return out.filter(lambda r: True) if filtered else out


def key_of(record: Any) -> Any:
    return record["k"] if isinstance(record, dict) else record[0]


@examples(each_run=4, soak=12)
@given(left=EPOCHS, right=EPOCHS, filtered=st.booleans(), parallelism=st.integers(1, 3), seed=st.integers(0, 99))
def test_a_union_keeps_event_times_with_the_lower_watermark(
    left: list[Any], right: list[Any], filtered: bool, parallelism: int, seed: int
) -> None:
    """`union` lost event times unless both sides had them in the same place; now each side has its own."""
    windows = rd.windows.tumbling(4)
    flow = rd.Dataflow()
    counted = union_of(flow, left, right, filtered=filtered).key_by(key_of).window(windows).count()
    counted.collect("out")
    counted.late.collect("late")
    result = flow.run(runtime="local", parallelism=parallelism, seed=seed)
    marks: list[int | None] = [None, None]
    late: Counter[Any] = Counter()
    total = 0
    for epoch in range(max(len(left), len(right))):
        sides = [side[epoch] if epoch < len(side) else [] for side in (left, right)]
        mark = None if None in marks else min(m for m in marks if m is not None)
        for record in (record for records in sides for record in records):
            total += 1
            window = windows.assign(record["t"])[0]
            if mark is not None and window.end <= mark:
                late[epoch, record["k"], window] += 1
        for side, delay in enumerate((1, 3)):
            newest = [record["t"] - delay for record in sides[side]]
            known = marks[side]
            marks[side] = max([*newest, *([] if known is None else [known])], default=None)
    assert Counter((t.epoch, k, window) for t, (k, window, _) in result["late"]) == late
    assert sum(n for _, (_, _, n) in result["out"]) + len(result["late"]) == total


def test_a_union_of_a_stream_with_itself_has_each_record_twice() -> None:
    flow = rd.Dataflow()
    a = flow.from_items([{"t": 1}, {"t": 7}]).assign_timestamps("t")
    a.union(a).filter(lambda r: r["t"] < 5).window(rd.windows.tumbling(5)).count().collect("out")
    assert [r for _, r in flow.run(runtime="local")["out"]] == [(rd.Window(0, 5), 2)]


def test_unions_can_be_joined_and_united_again() -> None:
    flow = rd.Dataflow()
    some = [[{"k": 1, "t": 3}], [{"k": 1, "t": 8}]]
    both = union_of(flow, some, some)
    third = flow.from_epochs([[(1, "x", 4)]]).assign_timestamps(lambda r: r[2])
    all_three = both.union(third).key_by(key_of)
    joined = all_three.window(rd.windows.tumbling(5)).join(third.key_by(lambda r: r[0]))
    joined.collect("out")
    got = Counter(repr(r) for _, r in flow.run(runtime="local", parallelism=2)["out"])
    window = rd.Window(0, 5)
    assert got == Counter(repr((1, window, (r, (1, "x", 4)))) for r in ({"k": 1, "t": 3}, (1, 3), (1, "x", 4)))


def test_a_union_of_streams_with_and_without_event_times_is_refused() -> None:
    flow = rd.Dataflow()
    timed = flow.from_items([1], name="timed").assign_timestamps(lambda n: n)
    bare = flow.from_items([2], name="bare")
    for make in (lambda: timed.union(bare), lambda: bare.union(timed)):
        with pytest.raises(DataflowError) as error:
            make()
        assert str(error.value).endswith(
            "the stream 'timed' has event times and 'bare' has none; call assign_timestamps(...) on each of them, or on the union alone"
        )
    assert bare.union(bare).event_time is None


def test_a_union_behind_an_exchange_keeps_event_times_of_one_column() -> None:
    flow = rd.Dataflow()
    a, b = (flow.from_items([{"t": 1}]).assign_timestamps("t") for _ in range(2))
    a.union(b).rebalance().filter(lambda r: True).window(rd.windows.tumbling(5)).count().collect("out")
    with pytest.raises(DataflowError, match=r"has no event time; call assign_timestamps\(...\) after the last map before it"):
        union_of(flow, [[]], [[]]).rebalance().filter(lambda r: True).window(rd.windows.tumbling(5))
    assert [r for _, r in flow.run(runtime="local")["out"]] == [(rd.Window(0, 5), 2)]


# -- keys of several types in windows --------------------------------------------------------------


def test_keys_of_several_integer_types_are_one_key_in_windows() -> None:
    batches = [pa.record_batch({"k": pa.array([1, 2, -3], kind), "t": [1, 2, 3]}) for kind in (pa.int32(), pa.int64(), pa.int8())]
    for windows in (rd.windows.tumbling(10), rd.windows.session(20), rd.windows.sliding(10, 5)):
        for source in (batches, [b.to_pylist() for b in batches], [batches[0], batches[1].to_pylist(), batches[2]]):
            flow = rd.Dataflow()
            flow.from_epochs(source).assign_timestamps("t").key_by("k").window(windows).count().collect("out")
            got = Counter({(k, w): n for _, (k, w, n) in flow.run(runtime="local", parallelism=3)["out"]})
            assert set(got.values()) == {3}
            assert {k for k, _ in got} == {1, 2, -3}
