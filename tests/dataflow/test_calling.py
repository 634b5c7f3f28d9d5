"""Functions of users that raise StopIteration, are coroutines, or give something that is not a batch; values whose repr raises."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import rayad as rd


def stops(value: Any) -> Any:
    return next(iter([])) if value == 3 else value


def of(flow: rd.Dataflow) -> Any:
    return flow.from_items([1, 2, 3], name="items")


def keyed(flow: rd.Dataflow) -> Any:
    return of(flow).key_by(lambda n: 0)


class Longest(rd.Aggregator):
    def create(self, value: Any) -> Any:
        return value

    def merge(self, left: Any, right: Any) -> Any:
        return stops(3)

    def result(self, accumulator: Any) -> Any:
        return stops(3)


class StopsInside(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        stops(3)


class StopsLater(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.notify_at(time)

    def on_notify(self, time: rd.Timestamp) -> None:
        stops(3)


class StopsWriting(rd.Sink, rd.SinkWriter):
    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return self

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        stops(3)

    def stage(self) -> Any:
        return None

    def publish(self, staged: Any) -> Any:
        return None


class StopsReading(rd.Source, rd.SourcePart):
    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: Any, resume: Any) -> rd.SourcePart:
        return self

    def next_batch(self) -> Any:
        return stops(3)

    def offset(self) -> Any:
        return 0

    def close(self) -> None:
        return None


STOPPING: dict[str, Callable[[rd.Dataflow], Any]] = {
    "map": lambda f: of(f).map(stops),
    "map in a chain": lambda f: of(f).map(stops).map(str).filter(bool),
    "filter": lambda f: of(f).filter(stops),
    "filter in a chain": lambda f: of(f).map(int).filter(stops).map(int),
    "flat_map": lambda f: of(f).flat_map(lambda n: [stops(n)]),
    "flat_map in a chain": lambda f: of(f).map(int).flat_map(lambda n: [stops(n)]),
    "inspect": lambda f: of(f).inspect(stops),
    "map_batches": lambda f: of(f).map_batches(lambda batch: stops(3)),
    "key of count": lambda f: of(f).key_by(stops).count(),
    "key of count in a chain": lambda f: of(f).map(int).key_by(stops).count(),
    "key of sum": lambda f: of(f).key_by(stops).sum(),
    "key and value": lambda f: of(f).key_by(stops).sum(stops),
    "value": lambda f: keyed(f).sum(stops),
    "values by name": lambda f: keyed(f).aggregate({"s": ("sum", stops)}),
    "reduce": lambda f: keyed(f).reduce(lambda a, b: stops(3)),
    "fold": lambda f: keyed(f).fold(0, lambda a, b: stops(3)),
    "aggregator": lambda f: keyed(f).aggregate(Longest()),
    "top_k": lambda f: keyed(f).top_k(2, by=stops),
    "stateful_map": lambda f: keyed(f).stateful_map(lambda a, b: stops(3)),
    "distinct": lambda f: of(f).key_by(stops).distinct(),
    "join": lambda f: of(f).join(f.from_items([1, 2, 3]), stops),
    "vertex keyed": lambda f: of(f).key_by(stops).vertex(StopsLater),
    "vertex": lambda f: of(f).vertex(StopsInside),
    "notified vertex": lambda f: of(f).vertex(StopsLater),
    "event time": lambda f: of(f).assign_timestamps(stops).key_by(int).window(rd.windows.tumbling(2)).count(),
    "window value": lambda f: of(f).assign_timestamps(int).key_by(int).window(rd.windows.tumbling(2)).sum(stops),
    "session result": lambda f: of(f).assign_timestamps(int).key_by(int).window(rd.windows.session(9)).aggregate(Longest()),
    "best": lambda f: of(f).assign_timestamps(int).key_by(stops).window(rd.windows.per_epoch()).max_by(int),
    "sink": lambda f: of(f).sink(StopsWriting()),
    "source": lambda f: f.source(StopsReading()),
    "in a loop": lambda f: of(f).iterate(lambda s: (s.map(stops).filter(lambda n: False), s)),
}


@pytest.mark.parametrize("case", STOPPING)
def test_stop_iteration_in_a_users_function_is_an_error_as_any_other(case: str) -> None:
    flow = rd.Dataflow("x")
    STOPPING[case](flow).collect()
    with pytest.raises(rd.DataflowError, match="StopIteration") as caught:
        flow.run(runtime="local", parallelism=2)
    assert "failed" in str(caught.value)
    cause: BaseException | None = caught.value
    lines = ""
    while cause is not None:
        trace = cause.__traceback__
        while trace is not None:
            lines += f"{trace.tb_frame.f_code.co_name} "
            trace = trace.tb_next
        cause = cause.__cause__
    assert "stops" in lines.split(), "the user's line is not in the traceback"


@pytest.mark.parametrize("at", [1, 2, 3])
def test_the_record_on_which_it_stopped_is_named(at: int) -> None:
    flow = rd.Dataflow("x")
    of(flow).map(lambda n: next(iter([])) if n == at else n, name="m").collect()
    with pytest.raises(rd.DataflowError) as caught:
        flow.run(runtime="local")
    assert re.sub(r"\(test.*?\)", "(LINE)", str(caught.value)) == f"'m'[0] (LINE) failed at (0) on record {at}: StopIteration: "


async def later(*values: Any) -> Any:
    return values


class Later:
    async def __call__(self, value: Any) -> Any:
        return value


class LaterVertex(rd.Vertex):
    async def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:  # type: ignore[override]
        return None


class LaterAggregator(rd.Aggregator):
    async def create(self, value: Any) -> Any:
        return value

    async def merge(self, left: Any, right: Any) -> Any:
        return left


ASYNC: dict[str, Callable[[rd.Dataflow], Any]] = {
    "map": lambda f: of(f).map(later),
    "partial": lambda f: of(f).map(functools.partial(later, 1)),
    "object": lambda f: of(f).map(Later()),
    "class": lambda f: of(f).map_batches(Later),
    "flat_map": lambda f: of(f).flat_map(later),
    "filter": lambda f: of(f).filter(later),
    "map_batches": lambda f: of(f).map_batches(later),
    "inspect": lambda f: of(f).inspect(later),
    "key_by": lambda f: of(f).key_by(later),
    "value": lambda f: keyed(f).sum(later),
    "named value": lambda f: keyed(f).aggregate({"s": ("sum", later)}),
    "reduce": lambda f: keyed(f).reduce(later),
    "fold": lambda f: keyed(f).fold(0, later),
    "initial": lambda f: keyed(f).fold(later, max),
    "top_k": lambda f: keyed(f).top_k(1, by=later),
    "stateful_map": lambda f: keyed(f).stateful_map(later),
    "aggregator": lambda f: keyed(f).aggregate(LaterAggregator()),
    "time": lambda f: of(f).assign_timestamps(later),
    "best": lambda f: of(f).assign_timestamps(int).key_by(int).window(rd.windows.per_epoch()).max_by(later),
    "given": lambda f: rd.windows.given(later, "end"),
    "vertex": lambda f: of(f).vertex(LaterVertex),
    "loop": lambda f: of(f).iterate(later),
}


@pytest.mark.parametrize("case", ASYNC)
def test_async_functions_are_refused_when_the_program_is_written(case: str) -> None:
    with pytest.raises(rd.DataflowError, match=r"was given the async function .*: calling it gives a coroutine and not a result"):
        ASYNC[case](rd.Dataflow("x"))


@pytest.mark.parametrize("name", ["map", "filter", "inspect", "map_batches"])
def test_a_function_that_gives_a_coroutine_is_refused_at_its_first_call(name: str) -> None:
    for before in (lambda s: s, lambda s: s.map(int)):
        flow = rd.Dataflow("x")
        getattr(before(flow.from_items([1])), name)(lambda value: later(value)).collect()
        with pytest.raises(rd.DataflowError, match=f"the function given to {name} returned a coroutine, which nobody awaits"):
            flow.run(runtime="local")


# -- map_batches -------------------------------------------------------------------------------------------------------------------


def batches(function: Any, records: Any, parallelism: int = 1) -> list[Any]:
    flow = rd.Dataflow("x")
    flow.from_items(records).map_batches(function, name="m").collect("out")
    return [record for _, record in flow.run(runtime="local", parallelism=parallelism)["out"]]


def test_map_batches_takes_data_frames() -> None:
    frame = pd.DataFrame({"k": ["a", "a", "b"], "n": [1, 2, 3], "t": pd.to_datetime(["2020-01-01"] * 3, utc=True)})
    assert batches(lambda batch: frame[frame.n > 1], [1]) == pa.Table.from_pandas(frame[1:], preserve_index=False).to_pylist()
    assert batches(lambda batch: frame.groupby("k").n.sum().to_frame(), [1]) == [{"k": "a", "n": 3}, {"k": "b", "n": 3}]
    assert batches(lambda batch: frame[:0], [1]) == []
    with pytest.raises(rd.DataflowError, match=r"returned a DataFrame with columns \['k', 'k'\]: they must be strings that differ"):
        batches(lambda batch: frame.groupby("k")[["k"]].sum(), [1])
    with pytest.raises(rd.DataflowError, match="returned a DataFrame that Arrow cannot hold as columns"):
        batches(lambda batch: pd.DataFrame({"a": [1, "x"]}), [1])


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ("ab", "returned a str, 'ab'; it must return a list, a RecordBatch, a Table, a dict of numpy arrays, or a DataFrame of pandas or "
         "Polars: for records give list(x)"),
        ({"a": [1]}, "returned a dict, {'a': [1]}; it must return a list, a RecordBatch, a Table, a dict of numpy arrays, or a DataFrame "
         "of pandas or Polars: for columns give pyarrow.table(x)"),
        (7, "returned a int, 7; it must return"),
        ([pa.table({"a": [1]})], "returned several batches, the first a Table: give one, e.g. by pyarrow.concat_tables"),
    ],
    ids=str,
)  # fmt: skip
def test_map_batches_refuses_results_that_are_not_batches(result: Any, says: str) -> None:
    with pytest.raises(rd.DataflowError, match=re.escape(says)):
        batches(lambda batch: result, [1])


class Model:
    made = 0

    def __init__(self) -> None:
        Model.made += 1

    def __call__(self, batch: Any) -> Any:
        return (n + 1 for n in batch)


class Broken:
    def __init__(self) -> None:
        raise OSError("no weights")

    def __call__(self, batch: Any) -> Any:
        return batch


def test_a_class_given_to_map_batches_is_made_once_for_each_replica() -> None:
    Model.made = 0
    flow = rd.Dataflow("x")
    flow.from_epochs([range(10)] * 3, batch_rows=1, parts=2).map_batches(Model).collect("out")
    assert sorted(n for _, n in flow.run(runtime="local", parallelism=2)["out"]) == sorted([*range(1, 11)] * 3)
    assert Model.made == 2
    assert batches(list, [1, 2]) == [1, 2]  # a class without __call__ is itself the function
    with pytest.raises(rd.DataflowError, match=r"'m'\[0\] .* failed when it was made: OSError: no weights"):
        batches(Broken, [1])


# -- names and representations ----------------------------------------------------------------------------------------------------


def test_two_unnamed_collects_have_two_results() -> None:
    flow = rd.Dataflow("x")
    flow.from_items([1]).collect()
    flow.from_items([2]).collect()
    flow.from_items([3]).collect("third")
    result = flow.run(runtime="local")
    assert {name: [n for _, n in result[name]] for name in ("collect", "collect-2", "third")} == {
        "collect": [1], "collect-2": [2], "third": [3],
    }  # fmt: skip


class Mute:
    """Cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("no repr")

    def __str__(self) -> str:
        raise ValueError("no str")


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no str")


def breaks(value: Any) -> Any:
    raise KeyError("mine")


def breaks_mute(value: Any) -> Any:
    raise MuteError


MUTE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "map": (lambda s: s.map(breaks), "on record <a Mute whose repr() raises ValueError>: KeyError: 'mine'"),
    "chain": (lambda s: s.map(lambda m: m).map(breaks), "on record <a Mute whose repr() raises ValueError>: KeyError: 'mine'"),
    "error": (lambda s: s.map(breaks_mute), "MuteError: <its str() raises ValueError>"),
    "key": (lambda s: s.key_by(breaks).count(), "KeyError: 'mine'"),
    "key itself": (lambda s: s.key_by(lambda m: m).count(), "has no hash that is the same in every process: <a Mute whose repr()"),
    "state": (lambda s: s.key_by(id).stateful_map(lambda a, b: b), "returned <a Mute whose repr() raises ValueError>; it must return"),
    "batches": (lambda s: s.map_batches(lambda b: Mute()), "returned a Mute, <a Mute whose repr() raises ValueError>; it must return"),
    "not a function": (lambda s: s.map(Mute()), "map was given <a Mute whose repr() raises ValueError>: it takes a function"),
    "key_by": (lambda s: s.key_by([Mute()]), "key_by was given <a list whose repr() raises ValueError>: give a function"),
    "name": (lambda s: s.map(str, name=Mute()), "the operator's name <a Mute whose repr() raises ValueError> is not a name"),
}


@pytest.mark.parametrize("case", MUTE)
def test_a_repr_that_raises_does_not_hide_the_users_error(case: str) -> None:
    build, message = MUTE[case]
    flow = rd.Dataflow("x")
    with pytest.raises(rd.DataflowError, match=re.escape(message)):  # noqa: PT012 - some refuse at once
        build(flow.from_items([Mute()])).collect()
        flow.run(runtime="local")
