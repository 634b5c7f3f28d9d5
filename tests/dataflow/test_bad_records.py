"""``on_error="skip"``: the operator's results of the good records, the bad ones with their errors, and each call once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.status.table import as_lines
from tests.thorough import examples

pytestmark = pytest.mark.filterwarnings("ignore:nothing that this dataflow computes")  # programs that fail before that matters

LINE = "test_bad_records.py:"


def run(out: rd.Stream, **options: Any) -> tuple[list[Any], list[Any]]:
    """The results and the errors of a run, in order; errors as ``(record, error)``."""
    out.collect("good")
    out.errors.collect("bad")
    result = out.flow.run(runtime="local", **options)
    for _, bad in result["bad"]:
        assert bad["line"].startswith(LINE)
    return sorted(record for _, record in result["good"]), sorted((bad["record"], bad["error"]) for _, bad in result["bad"])


def checked(value: int) -> int:
    """Fails on every third value, once by an exception that is easily lost."""
    if value % 15 == 0:
        return int(next(iter([])))
    if value % 3 == 0:
        raise ValueError(f"not {value}")
    return value


def told(value: int) -> str:
    """The error of :func:`checked`."""
    return "StopIteration: raised by the function; next(iterator, default) raises none" if value % 15 == 0 else f"ValueError: not {value}"


OPERATORS = {
    "map": (lambda s, f: s.map(lambda n: 10 * f(n), on_error="skip"), lambda n: [10 * n]),
    "flat_map": (lambda s, f: s.flat_map(lambda n: [f(n)] * 2, on_error="skip"), lambda n: [n, n]),
    "filter": (lambda s, f: s.filter(lambda n: f(n) % 2, on_error="skip"), lambda n: [n] if n % 2 else []),
    "inspect": (lambda s, f: s.inspect(f, on_error="skip"), lambda n: [n]),
}


@pytest.mark.parametrize("name", OPERATORS)
@examples(each_run=40, soak=100)
@given(st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=3))
def test_good_records_go_on_and_bad_ones_are_set_aside_each_called_once(name: str, epochs: list[list[int]]) -> None:
    make, expected = OPERATORS[name]
    called: Counter[int] = Counter()

    def counted(value: int) -> int:
        called[value] += 1
        return checked(value)

    values = [value for epoch in epochs for value in epoch]
    stream = rd.Dataflow("bad").from_epochs(epochs)
    good, bad = run(make(stream, counted), parallelism=2)
    assert good == sorted(out for value in values if value % 3 for out in expected(value))
    assert bad == sorted((value, told(value)) for value in values if value % 3 == 0)
    assert called == Counter(values)


@pytest.mark.parametrize("as_columns", [False, True])
@examples(each_run=40, soak=100)
@given(values=st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_of_a_batch_that_fails_the_records_are_tried_alone(as_columns: bool, values: list[int]) -> None:
    sizes = []

    def halved(batch: Any) -> Any:
        sizes.append(len(batch))
        if isinstance(batch, pa.RecordBatch):
            [checked(value) for value in batch.column("n").to_pylist()]
            return pa.RecordBatch.from_pydict({"n": pc.multiply(batch.column("n"), 2)})
        return [{"n": 2 * checked(row["n"])} for row in batch]

    flow = rd.Dataflow("batches")
    stream = flow.from_arrow(pa.table({"n": values})) if as_columns else flow.from_items([{"n": value} for value in values])
    seen: list[type] = []
    out = stream.map_batches(halved, on_error="skip")
    out.map_batches(lambda batch: [seen.append(type(batch)), batch][1]).map(lambda row: row["n"]).collect("good")
    out.errors.map(lambda bad: bad["record"]["n"]).collect("bad")
    result = flow.run(runtime="local")
    assert sorted(n for _, n in result["good"]) == sorted(2 * value for value in values if value % 3)
    assert sorted(n for _, n in result["bad"]) == sorted(value for value in values if value % 3 == 0)
    failing = any(value % 3 == 0 for value in values)
    assert sizes == ([len(values)] if not failing or len(values) == 1 else [len(values), *[1] * len(values)])
    assert set(seen) <= {pa.RecordBatch if as_columns else list}


def test_a_function_that_fails_after_some_of_its_values_gives_none_of_them() -> None:
    def values(n: int) -> Iterator[int]:
        yield n
        if n == 2:
            raise KeyError("gone")
        yield n

    out = rd.Dataflow("flat").from_items([1, 2, 3]).flat_map(values, on_error="skip")
    assert run(out) == ([1, 1, 3, 3], [(2, "KeyError: 'gone'")])


def test_errors_are_at_the_time_of_their_record_with_operator_and_line() -> None:
    flow = rd.Dataflow("lines")
    out = flow.from_epochs([[], ["{}"], ["{"]]).map(json.loads, name="parse", on_error="skip")
    out.collect("good")
    out.errors.collect("bad")
    assert out.errors is out.errors
    result = flow.run(runtime="local")
    assert [(time.epoch, record) for time, record in result["good"]] == [(1, {})]
    ((time, bad),) = result["bad"]
    assert time.epoch == 2
    assert (bad["record"], bad["operator"]) == ("{", "parse")
    assert bad["error"].startswith("JSONDecodeError: Expecting property name")
    assert bad["line"].startswith(LINE)


def test_the_status_of_a_job_counts_them_by_operator_and_says_the_last_one() -> None:
    flow = rd.Dataflow("counted")
    lines = flow.input("lines")
    lines.map(json.loads, name="parse", on_error="skip").map(lambda n: 1 // n, name="invert", on_error="skip").collect("out")
    job = flow.submit(runtime="local", parallelism=2)
    feed = job.input("lines")
    for epoch, some in enumerate([["1", "{", "0"], ["2"], ["0", "["]]):
        feed.send(some)
        feed.advance_to(epoch + 1)
    while job.step():
        pass
    invert, parse = job.status().set_aside
    assert (invert.operator, invert.count, invert.error[:17]) == ("invert", 2, "ZeroDivisionError")
    assert (parse.operator, parse.count, parse.line.partition(":")[0]) == ("parse", 2, LINE.partition(":")[0])
    assert f"2 records set aside by 'parse' ({parse.line}), the last one for JSONDecodeError: Expecting value" in as_lines(job.status())
    job.cancel()


def test_event_times_stay_and_a_union_keeps_those_of_its_sides() -> None:
    flow = rd.Dataflow("times")
    sides = [flow.from_items([(side, n) for n in range(6)]).assign_timestamps(lambda row: row[1]) for side in "ab"]
    kept = sides[0].union(sides[1]).filter(lambda row: 12 // (row[1] - 3) and row[0] in "ab", name="kept", on_error="skip")
    kept.key_by(lambda row: row[0]).window(rd.windows.tumbling(3)).count().collect("counts")
    kept.errors.map(lambda bad: (*bad["record"], bad["operator"])).collect("bad")
    result = flow.run(runtime="local")
    assert sorted((key, window.start, count) for _, (key, window, count) in result["counts"]) == [
        ("a", 0, 3), ("a", 3, 2), ("b", 0, 3), ("b", 3, 2),
    ]  # fmt: skip
    assert sorted(bad for _, bad in result["bad"]) == [("a", 3, "kept"), ("b", 3, "kept")]


@pytest.mark.parametrize("seed", range(5))
def test_order_is_restored_without_the_bad_ones(seed: int) -> None:
    flow = rd.Dataflow("in-order")
    drawn = flow.from_items(list(range(40))).rebalance(name="draw").map(checked, on_error="skip")
    drawn.ordered().collect("good")
    drawn.errors.map(lambda bad: bad["record"]).collect("bad")
    result = flow.run(runtime="local", seed=seed, parallelism={"draw": 3})
    assert [n for _, n in result["good"]] == [n for n in range(40) if n % 3]
    assert sorted(n for _, n in result["bad"]) == list(range(0, 40, 3))


def test_in_a_loop() -> None:
    flow = rd.Dataflow("loop")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        less = inner.map(lambda n: 60 // (n - 3) and n - 1, on_error="skip")
        less.errors.map(lambda bad: bad["record"]).collect("bad")
        return less.filter(lambda n: n > 0), less.filter(lambda n: n == 0)

    flow.from_items([1, 2, 5]).iterate(body).collect("out")
    result = flow.run(runtime="local")
    assert [n for _, n in result["out"]] == [0, 0]
    assert [n for _, n in result["bad"]] == [3]


# -- a bound ---------------------------------------------------------------------------------------------------------
def test_the_bound_holds_over_a_resume(tmp_path: Path) -> None:
    def build() -> rd.Dataflow:
        flow = rd.Dataflow("bounded")
        flow.input("lines").map(int, name="parse", on_error="skip", max_errors=3).collect("out")
        return flow

    config = rd.RunConfig(storage_path=str(tmp_path))
    job = build().submit(config, runtime="local")
    job.input("lines").send(["1", "x", "y"])
    job.input("lines").advance_to(1)
    while job.step():
        pass
    path = job.savepoint()
    job.cancel()

    resumed = rd.RunConfig(storage_path=str(tmp_path), resume="latest")
    job = build().submit(resumed, runtime="local")
    job.input("lines").send(["z", "2"])
    job.input("lines").close()
    assert sorted(n for _, n in job.wait()["out"]) == [1, 2]

    job = build().submit(rd.RunConfig(storage_path=str(tmp_path), resume=path), runtime="local")
    job.input("lines").send(["z", "2", "!"])
    job.input("lines").close()
    message = r"(?s)'parse' \(test_bad_records\.py:\d+\) has set aside 4 records, and max_errors=3; the last: ValueError: .*, on record '!'"
    with pytest.raises(rd.DataflowError, match=message):
        job.wait()


@pytest.mark.parametrize("errors_max", [0, 1])
def test_so_many_errors_are_allowed_and_not_one_more(errors_max: int) -> None:
    def build(values: list[str]) -> rd.Dataflow:
        flow = rd.Dataflow("bounded")
        flow.from_items(values).map(int, on_error="skip", max_errors=errors_max).collect("out")
        return flow

    assert len(build(["1", *["x"] * errors_max]).run(runtime="local", parallelism=2)["out"]) == 1
    with pytest.raises(rd.DataflowError, match=f"has set aside {errors_max + 1} records, and max_errors={errors_max}"):
        build(["1", *["x"] * (errors_max + 1)]).run(runtime="local", parallelism=2)


# -- what is no record's fault ---------------------------------------------------------------------------------------
def test_errors_of_the_program_end_the_job() -> None:
    class Later:
        def __call__(self, value: Any) -> Any:
            async def later() -> Any:
                return value

            return later()

    with pytest.raises(rd.DataflowError, match="the function given to map returned a coroutine"):
        rd.Dataflow("async").from_items([1]).map(Later(), on_error="skip").flow.run(runtime="local")
    with pytest.raises(rd.DataflowError, match="the function given to map_batches returned None"):
        rd.Dataflow("none").from_items([1]).map_batches(lambda batch: None, on_error="skip").flow.run(runtime="local")

    def full(value: Any) -> Any:
        raise MemoryError

    for name in ("map", "map_batches"):
        out = getattr(rd.Dataflow("full").from_items([1]), name)(full, on_error="skip")
        with pytest.raises(rd.DataflowError, match="MemoryError"):
            out.flow.run(runtime="local")


def test_a_function_that_changes_its_record_is_found_as_without_it() -> None:
    def change(row: dict[str, int]) -> dict[str, int]:
        row["n"] += 1
        return row

    with pytest.raises(rd.DataflowError, match="changed a record in place"):
        rd.Dataflow("changing").from_items([{"n": 1}]).map(change, on_error="skip").flow.run(runtime="local")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"on_error": "ignore"}, "map: on_error is 'ignore': it must be 'raise' or 'skip'"),
        ({"max_errors": 3}, "map: max_errors=3 is for on_error='skip'; with 'raise' the first error ends the job"),
        ({"on_error": "skip", "max_errors": -1}, "map: max_errors, a number of records, is -1"),
        ({"on_error": "skip", "max_errors": "3"}, "map: max_errors, a number of records, is '3'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], told: str) -> None:
    flow = rd.Dataflow("refused")
    stream = flow.from_items([1])
    with pytest.raises(rd.DataflowError) as error:
        stream.map(str, **options)
    assert str(error.value).startswith(told)
    with pytest.raises(rd.DataflowError, match=r"^errors at test_bad_records\.py:\d+: 'map' sets no records aside; give its operator"):
        stream.map(str).errors.collect("bad")
