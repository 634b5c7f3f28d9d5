"""Calls that are refused while a dataflow is built or planned: each gives this whole message and adds nothing to the graph."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import rayad as rd

pytestmark = pytest.mark.filterwarnings("ignore:nothing that this dataflow computes")  # programs that fail before that matters


class Bench:
    """A dataflow with streams in the root, in two loops, and another dataflow."""

    def __init__(self) -> None:
        self.flow = rd.Dataflow("d")
        self.items = self.flow.from_items([1], name="items")
        self.loop, self.side = self.flow.loop("loop"), self.flow.loop("side")
        self.inside, self.beside = self.loop.enter(self.items, name="inside"), self.side.enter(self.items, name="beside")
        self.back = self.loop.feedback(name="back")
        self.other = rd.Dataflow("o").from_items([2], name="other")


class V(rd.Vertex):
    pass


DAY = dt.timedelta(days=1)
OTHER = "at LINE was given <Stream 'other' of 'o'>, a stream of another dataflow than this Dataflow('d', 4 nodes)"
CROSS = "an edge may not cross scopes; use loop.enter(stream) or loop.leave(stream)"
NAME = "is not a name: use 1 to 100 letters, digits, '_', '-', '.' or blanks, beginning with a letter, digit or '_' and without '..'"
ROUNDS = "it must be an int of at least 1, or None for as long as there is something"
AGAIN_OUT = "it must return two streams (again, out): what is fed back and what leaves"
INSIDE = "it must be made from the stream that the body was given, inside the loop"

Case = tuple[Callable[[Bench], Any], str]
REFUSED: dict[str, Case] = {
    # scopes
    "union of an outer with an inner stream": (
        lambda b: b.items.union(b.inside),
        f"'union' (LINE) is in 'root' but its input 'inside' (LINE) is in 'loop': {CROSS}",
    ),
    "union of an inner with an outer stream": (
        lambda b: b.inside.union(b.items),
        f"'union' (LINE) is in 'loop' but its input 'items' (LINE) is in 'root': {CROSS}",
    ),
    "vertex over two scopes": (
        lambda b: b.flow.vertex(V, inputs=[b.inside, b.items]),
        f"'V' (LINE) is in 'loop' but its input 'items' (LINE) is in 'root': {CROSS}",
    ),
    "join over two scopes": (
        lambda b: b.items.join(b.inside, on=str),
        f"join at LINE: one side is in 'root', the other in 'loop': {CROSS}",
    ),
    "join of two loops": (
        lambda b: b.inside.key_by(str).join(b.beside.key_by(str)),
        f"join at LINE: one side is in 'loop', the other in 'side': {CROSS}",
    ),
    "outer stream fed back": (
        lambda b: b.back.connect(b.items),
        "feedback 'back' (LINE) is in 'loop', the stream given at LINE is in 'root': an edge may not cross scopes",
    ),
    "outer stream leaves": (lambda b: b.loop.leave(b.items), "leave() at LINE: the stream is in 'root', not in loop 'loop'"),
    "other loop's stream enters": (
        lambda b: b.side.enter(b.inside),
        "enter() at LINE: the stream is in 'loop', but loop 'side' lies in 'root'; enter the loops in between first",
    ),
    "connected twice": (
        lambda b: (b.back.connect(b.inside), b.back.connect(b.inside)),
        "feedback 'back' (LINE) is connected twice, again at LINE: union the streams first",
    ),
    # other dataflows, other things
    "union with another dataflow": (lambda b: b.items.union(b.other), f"union {OTHER}"),
    "join with another dataflow": (lambda b: b.items.key_by(str).join(b.other.key_by(str)), f"join {OTHER}"),
    "vertex of another dataflow": (lambda b: b.flow.vertex(V, inputs=[b.items, b.other]), f"an input {OTHER}"),
    "keyed vertex of another dataflow": (lambda b: b.flow.vertex(V, inputs=[b.other.key_by(str)]), f"an input {OTHER}"),
    "another dataflow enters": (lambda b: b.loop.enter(b.other), f"enter {OTHER}"),
    "another dataflow leaves": (lambda b: b.loop.leave(b.other), f"leave {OTHER}"),
    "another dataflow is fed back": (lambda b: b.back.connect(b.other), f"connect of feedback 'back' {OTHER}"),
    "union with a keyed stream": (
        lambda b: b.items.union(b.items.key_by(str)),
        "union at LINE was given <KeyedStream 'items' of 'd' by str>: it takes a Stream; a keyed one is not, call it before "
        "key_by",
    ),
    "union with a number": (
        lambda b: b.items.union(5),
        "union at LINE was given 5: it takes a Stream; a keyed one is not, call it before key_by",
    ),
    "keyed join with a stream": (
        lambda b: b.items.key_by(str).join(b.items),
        "join at LINE was given <Stream 'items' of 'd'>: both sides must be keyed with key_by",
    ),
    # iterate
    "body gives nothing": (lambda b: b.items.iterate(lambda i: None), f"the body given to iterate at LINE returned None: {AGAIN_OUT}"),
    "body gives one stream": (
        lambda b: b.items.iterate(lambda i: i),
        f"the body given to iterate at LINE returned <Stream 'union' of 'd'>: {AGAIN_OUT}",
    ),
    "body gives a keyed stream": (
        lambda b: b.items.iterate(lambda i: (i, i.key_by(str))),
        "the body given to iterate at LINE returned (<Stream 'union' of 'd'>, <KeyedStream 'union' of 'd' by str>): "
        f"{AGAIN_OUT}",
    ),
    "body gives an outer stream": (
        lambda b: b.items.iterate(lambda i: (i, b.items), name="it"),
        f"the body given to iterate at LINE returned out in 'root': {INSIDE}",
    ),
    "body feeds an outer stream": (
        lambda b: b.items.iterate(lambda i: (b.items, i), name="it"),
        f"the body given to iterate at LINE returned again in 'root': {INSIDE}",
    ),
    "body is no function": (
        lambda b: b.items.iterate(5),
        "iterate at LINE was given 5: it takes a function body(inner) that returns (again, out)",
    ),
    "no rounds": (lambda b: b.items.iterate(lambda i: (i, i), max_rounds=0), f"max_rounds is 0: {ROUNDS}"),
    "rounds as a bool": (lambda b: b.loop.feedback(True), f"max_rounds is True: {ROUNDS}"),
    "rounds as a float": (lambda b: b.loop.feedback(2.0), f"max_rounds is 2.0: {ROUNDS}"),
    # names
    "operator name with a slash": (lambda b: b.items.map(str, name="a/b"), f"the operator's name 'a/b' {NAME}"),
    "operator name with dots": (lambda b: b.items.key_by(str).count(name="a..b"), f"the operator's name 'a..b' {NAME}"),
    "operator name with a line break": (
        lambda b: b.items.key_by(str).join(b.items.key_by(str), name="a\n"),
        f"the operator's name 'a\\n' {NAME}",
    ),
    "operator name of another type": (lambda b: b.items.union(name=5), f"the operator's name 5 {NAME}"),
    "long name": (lambda b: b.items.probe("x" * 101), f"the operator's name '{'x' * 101}' {NAME}"),
    "loop name": (lambda b: b.flow.loop("../x").enter(b.items), f"the loop name '../x' {NAME}"),
    "sink name": (lambda b: b.items.collect("../x"), f"the sink name '../x' {NAME}"),
    "input name": (lambda b: b.flow.input("a/b"), f"the operator's name 'a/b' {NAME}"),
    "operator named twice": (
        lambda b: b.items.rebalance().map(str, name="inside"),
        "the name 'inside' is used twice: at LINE and at LINE; names in one dataflow are unique",
    ),
    "window named twice": (
        lambda b: b.items.assign_timestamps(int).window(rd.windows.session(1)).count(name="inside"),
        "the name 'inside' is used twice: at LINE and at LINE; names in one dataflow are unique",
    ),
    "loop named like an operator": (
        lambda b: b.items.iterate(lambda i: (i, i), name="items"),
        "the name 'items' is used twice: at LINE and at LINE; names in one dataflow are unique",
    ),
    # vertices
    "vertex instance": (
        lambda b: b.items.vertex(V()),
        "vertex() was given <ADDRESS>: give the class (or a function that makes an instance), so that each replica has its own",
    ),
    "vertex of another class": (lambda b: b.items.vertex(dict), "vertex() was given the class dict: it must be a subclass of rd.Vertex"),
    "vertex inputs not in a list": (
        lambda b: b.flow.vertex(V, inputs=b.items),
        "vertex() was given inputs=<Stream 'items' of 'd'>: give a list of streams",
    ),
    "vertex without inputs": (
        lambda b: b.flow.vertex(V, inputs=[]),
        "vertex() was given no inputs: use flow.source(MySource()) for something that makes records by itself",
    ),
    "vertex input of another type": (
        lambda b: b.flow.vertex(V, inputs=[5]),
        "an input at LINE is 5: it must be a Stream or KeyedStream of this dataflow",
    ),
    "negative outputs": (lambda b: b.items.vertex(V, outputs=-1), "outputs is -1: it must be an int of at least 0"),
    "vertex parallelism": (lambda b: b.items.vertex(V, parallelism=0), "parallelism of 'V' is 0: it must be an int of at least 1"),
    # functions, keys, values
    "map of no function": (lambda b: b.items.map(5), "map was given 5: it takes a function"),
    "key of no function": (lambda b: b.items.key_by(5), "key_by was given 5: it takes a function, or the name or names of columns"),
    "a condition as text": (
        lambda b: b.items.filter("n > 1"),
        "filter was given 'n > 1': it takes a function, or an expression over columns such as pyarrow.compute.field('n') > 1",
    ),
    "no key columns": (
        lambda b: b.items.key_by([]),
        "key_by was given []: give a function, a column name or a non-empty list of column names",
    ),
    "value of no function": (
        lambda b: b.items.key_by(str).sum(5),
        "the value to aggregate is 5: give a function of the record or a column name",
    ),
    "unknown aggregation": (
        lambda b: b.items.key_by(str).aggregate("median"),
        "there is no aggregation 'median': use one of ['all', 'any', 'approx_count_distinct', 'collect_list', 'count', 'count_distinct', "
        "'exact_mean', 'exact_sum', 'first', 'last', 'max', 'mean', 'min', 'std', 'sum', 'var'] or an instance of rd.Aggregator",
    ),
    "no aggregations": (lambda b: b.items.key_by(str).aggregate({}), "aggregate was given an empty dict: name at least one aggregation"),
    "aggregation in three": (
        lambda b: b.items.key_by(str).aggregate({"a": ("sum", 1, 2, 3)}),
        "aggregate was given ('sum', 1, 2, 3) for 'a': give an aggregation, a pair (aggregation, value), or of first and last "
        "(aggregation, value, by)",
    ),
    "top_k of none": (lambda b: b.items.key_by(str).top_k(0), "top_k: k is 0: it must be an int of at least 1"),
    # sources and sinks
    "items as a text": (lambda b: b.flow.from_items("abc"), "items is the str 'abc': give a list of records; for one text, [text]"),
    "items as a dict": (
        lambda b: b.flow.from_items({"a": 1}),
        "items is the dict {'a': 1}: give a list of records; for its entries, list(x.items())",
    ),
    "items as a series": (lambda b: b.flow.from_items(pd.Series([1])), "items is a Series: give x.tolist()"),
    "items as an array": (lambda b: b.flow.from_items(pa.array([1])), "items is a Int64Array: give x.to_pylist()"),
    "items as a number": (lambda b: b.flow.from_items(5), "items is 5: give a list of records"),
    "epochs as numbers": (lambda b: b.flow.from_epochs([1, 2]), "epoch 0 is 1: give a list of records"),
    "epochs as a number": (lambda b: b.flow.from_epochs(5), "from_epochs was given 5: give a list with one list of records for each epoch"),
    "no parts": (lambda b: b.flow.from_items([1], parts=0), "parts is 0: it must be an int of at least 1"),
    "no rows in a batch": (lambda b: b.flow.from_items([1], batch_rows=0), "batch_rows is 0: it must be an int of at least 1"),
    "source of another type": (lambda b: b.flow.source(5), "source() was given 5: it takes an instance of a subclass of rd.Source"),
    "sink of another type": (lambda b: b.items.sink(5), "sink() was given 5: it takes an instance of a subclass of rd.Sink"),
    # windows
    "window of another type": (
        lambda b: b.items.window(5),
        "window was given 5: use rd.windows.per_epoch(), tumbling(...), sliding(...), session(...), given(...) or count(...)",
    ),
    "window without event time": (
        lambda b: b.items.key_by(str).window(rd.windows.tumbling(3)),
        "window at LINE: the stream 'items' has no event time; call assign_timestamps(...) after the last map before it",
    ),
    "window in a loop": (
        lambda b: b.inside.assign_timestamps(int).window(rd.windows.tumbling(3)),
        "window at LINE: the stream 'inside' is inside the loop 'loop', where event time does not go on; use rd.windows.per_epoch() "
        "there, or window outside the loop",
    ),
    "window of no size": (lambda b: rd.windows.tumbling(0), "window size is 0: it must be a positive number or timedelta"),
    "session as a bool": (lambda b: rd.windows.session(True), "session gap is True: it must be a positive number or timedelta"),
    "slide of another kind": (
        lambda b: rd.windows.sliding(5, DAY),
        "window size is 5 and slide datetime.timedelta(days=1): both must be numbers, or both timedeltas",
    ),
    "offset of another kind": (
        lambda b: rd.windows.tumbling(5, DAY),
        "window offset is datetime.timedelta(days=1) for windows of 5: it must be of the same kind, or a datetime for "
        "timedeltas",
    ),
    "time of no function": (
        lambda b: b.items.assign_timestamps(5),
        "assign_timestamps was given 5: give a function of the record or a column name",
    ),
    "negative delay": (
        lambda b: b.items.assign_timestamps(int, max_delay=-1),
        "max_delay is -1: it must be a number or timedelta of at least 0, in the unit of the event times",
    ),
}  # fmt: skip


def shown(error: BaseException) -> str:
    return re.sub(r"<[\w.]+ object at 0x\w+>?", "<ADDRESS>", re.sub(r"test_refusals\.py:\d+", "LINE", str(error)))


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_call_says_why_and_adds_nothing(case: str) -> None:
    bench = Bench()
    call, message = REFUSED[case]
    before = [node.name for node in bench.flow.graph.nodes]
    scopes = len(bench.flow.graph.scopes)
    with pytest.raises(rd.DataflowError) as caught:
        call(bench)
    assert shown(caught.value) == message
    assert [node.name for node in bench.flow.graph.nodes] == before
    assert len(bench.flow.graph.scopes) == scopes


def test_a_sink_name_is_used_once_and_both_lines_are_named() -> None:
    flow = rd.Dataflow()
    items = flow.from_items([1], name="out")
    items.collect("out")  # the operator's name is another thing
    with pytest.raises(rd.DataflowError) as caught:
        items.collect("out")
    assert shown(caught.value) == "the sink name 'out' is used twice: at LINE and at LINE; each names one entry of the result"
    assert [n for _, n in flow.run(runtime="local")["out"]] == [1]
    twice = rd.Dataflow()
    twice.from_items([1]).collect().map(str)
    with pytest.raises(rd.DataflowError, match="the sink name 'collect' is used twice"):
        twice.from_items([2]).collect("collect")


# -- planning -----------------------------------------------------------------------------------------------------------------


def unconnected(flow: rd.Dataflow) -> None:
    loop = flow.loop("loop")
    entered = loop.enter(flow.from_items([1]))
    loop.leave(entered.union(loop.feedback(name="back")))


def nothing_enters(flow: rd.Dataflow) -> None:
    flow.from_items([1])
    loop = flow.loop("loop")
    back = loop.feedback()
    back.connect(back.map(str))


def never_entered(flow: rd.Dataflow) -> None:
    loop = flow.loop("loop")
    back = loop.feedback(name="back")
    back.connect(back.map(str))
    loop.enter(flow.from_items([1]))


def end_vertex_in_a_loop(flow: rd.Dataflow) -> None:
    flow.from_items([1]).iterate(lambda inner: (inner.vertex(rd.EndVertex, name="end"), inner), name="loop")


def failing_parts(flow: rd.Dataflow) -> None:
    class Broken(rd.Source):
        def list_parts(self) -> Any:
            raise FileNotFoundError("no such folder")

        def build_part(self, part: Any, resume: Any | None) -> Any:
            return None

    flow.source(Broken(), name="broken")


UNPLANNED: dict[str, tuple[Callable[[rd.Dataflow], None], str]] = {
    "empty": (lambda flow: None, "dataflow 'd' is empty: begin with flow.from_items(...), flow.input(...) or another source"),
    "unconnected": (
        unconnected,
        "the feedback 'back' (LINE) of loop 'loop' is not connected: call feedback.connect(stream) with the stream that shall come "
        "round again",
    ),
    "nothing enters": (nothing_enters, "nothing enters the loop 'loop' (LINE): call loop.enter(stream)"),
    "never entered": (
        never_entered,
        "'back' (LINE) gets no input from any source: its cycle is never entered; union it with loop.enter(stream)",
    ),
    "end vertex in a loop": (
        end_vertex_in_a_loop,
        "'end' (LINE) is an EndVertex inside loop 'loop': it keeps the right to send until its input ends, so the loop could never end; "
        "put it outside the loop",
    ),
    "failing parts": (failing_parts, "source 'broken' (LINE) failed in list_parts: FileNotFoundError: no such folder"),
}


@pytest.mark.parametrize("case", UNPLANNED)
def test_programs_that_cannot_be_planned_are_refused_with_the_reason(case: str) -> None:
    build, message = UNPLANNED[case]
    flow = rd.Dataflow("d")
    build(flow)
    for attempt in (flow.plan, flow.explain, flow.to_mermaid, lambda: flow.run(runtime="local")):
        with pytest.raises(rd.DataflowError) as caught:
            attempt()
        assert shown(caught.value) == message


INT = "it must be an int of at least 1"
PARALLELISM: list[tuple[Any, str]] = [
    *((value, f"parallelism is {value!r}: {INT}") for value in (0, -1, 1.0, True, "2")),
    *(({"v": value}, f"parallelism of 'v' is {value!r}: {INT} or a range (least, most) of such") for value in (0, True, (1,), "x")),
    ({"v": (3, 1)}, "parallelism of 'v' is (3, 1): the least number is above the most; write (1, 3)"),
    ({"nope": 2}, "parallelism names 'nope', which is not in 'd': its vertices are ['in', 's', 'v']"),
    (
        {"m": 2},
        "parallelism names 'm', a stateless operator (LINE) without a process of its own: it runs in the vertices before it; "
        "the vertices of 'd' are ['in', 's', 'v']",
    ),
    ({"in": 2}, "parallelism names 'in', a live input (LINE): it has one replica; call rebalance() behind it to spread its records"),
    (
        300,
        "'v' (LINE) has 300 replicas but there are only 256 key-groups: a replica without a key-group would get nothing; "
        "lower the parallelism or raise RunConfig(key_groups=...)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("parallelism", "message"), PARALLELISM, ids=lambda value: repr(value)[:30])
def test_wrong_parallelism_is_refused(parallelism: Any, message: str) -> None:
    flow = rd.Dataflow("d")
    flow.from_items([1], name="s").map(str, name="m").key_by(str).count(name="v")
    flow.input("in")
    with pytest.raises(rd.DataflowError) as caught:
        flow.plan(parallelism)
    assert shown(caught.value) == message


CONFIGURED: list[tuple[Callable[[], Any], str]] = [
    (lambda: rd.RunConfig(key_groups=0), "RunConfig.key_groups is 0: it must be an int from 1 to 32768"),
    (lambda: rd.RunConfig(key_groups=True), "RunConfig.key_groups is True: it must be an int from 1 to 32768"),
    (lambda: rd.RunConfig(window_batches=0.5), "RunConfig.window_batches is 0.5: it must be an int of at least 1"),
    (lambda: rd.RunConfig(window_bytes=float("nan")), "RunConfig.window_bytes is nan: it must be a number above 0"),
    (lambda: rd.RunConfig(cpus_per_replica=-1), "RunConfig.cpus_per_replica is -1: it must be a number of at least 0"),
    (lambda: rd.SnapshotConfig(interval_s=0), "SnapshotConfig.interval_s is 0: it must be a number above 0, 'auto', or None"),
    (lambda: rd.FailureConfig(max_failures=-1), "FailureConfig.max_failures is -1: it must be an int of at least 0, or None"),
]


@pytest.mark.parametrize(("make", "message"), CONFIGURED, ids=[message.split(" is ")[0] for _, message in CONFIGURED])
def test_wrong_settings_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(rd.ConfigError) as caught:
        make()
    assert str(caught.value) == message


def test_run_and_submit_say_which_arguments_they_need() -> None:
    flow = rd.Dataflow("d")
    flow.input("x")
    attempts: list[tuple[Callable[[], Any], str]] = [
        (lambda: flow.run(runtime="local"), "'d' has live inputs ['x']: use submit(), feed job.input('x') and close() it, then job.wait()"),
        (lambda: flow.submit(runtime="spark"), "runtime is 'spark': it must be 'ray' or 'local'"),
        (lambda: flow.submit(5), "submit() was given 5 as first argument: it takes a RunConfig, then a ScalingConfig"),  # type: ignore[arg-type]
        (
            lambda: flow.submit(None, rd.ScalingConfig(), parallelism=2),
            "both a ScalingConfig and parallelism= were given: give one of them",
        ),
        (lambda: flow.submit(runtime="local", seed="a"), "seed is 'a': it must be an int"),  # type: ignore[arg-type]
    ]
    for attempt, message in attempts:
        with pytest.raises(rd.RayadError) as caught:
            attempt()
        assert str(caught.value) == message


def test_settings_without_effect_are_reported(tmp_path: Path) -> None:
    flow = rd.Dataflow()
    flow.from_items([1]).key_by(lambda r: r).count(name="counts").collect("counts")
    run = rd.RunConfig(
        storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s="auto"), failures=rd.FailureConfig(max_failures=3)
    )
    scaling = rd.ScalingConfig(parallelism={"counts": (1, 8)}, policy="ds2")
    with pytest.warns(UserWarning) as caught:  # noqa: PT030 - the messages are below
        flow.submit(run, scaling, runtime="local").wait()
    assert [str(warning.message) for warning in caught] == [
        "the local runtime has no autoscaler: replicas stay as they are at the beginning, but for job.rescale()",
    ]
