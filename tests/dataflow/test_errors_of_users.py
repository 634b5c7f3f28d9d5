"""The user's exceptions and misuses while a job runs: the whole message names operator, replica, the user's line, time and record."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.job import JobState

pytestmark = pytest.mark.filterwarnings("ignore:nothing that this dataflow computes")  # programs that fail before that matters

T = rd.Timestamp
MINE = "(test_errors_of_users.py:N)"
EPOCHS = "it must be an int from 0 to 9223372036854775807"


def shown(error: BaseException) -> str:
    return re.sub(r"test_errors_of_users\.py:\d+", "test_errors_of_users.py:N", str(error))


class Bad(rd.Vertex):
    """Does in a hook what it was made for."""

    def __init__(self, **hooks: Callable[..., Any]) -> None:
        self.hooks = hooks

    def _run(self, hook: str, *args: Any) -> None:
        if hook in self.hooks:
            self.hooks[hook](self, *args)

    def setup(self) -> None:
        self._run("setup")

    def on_recv(self, edge: int, batch: Any, time: T) -> None:
        self._run("on_recv", batch, time)

    def on_notify(self, time: T) -> None:
        self._run("on_notify", time)

    def close(self) -> None:
        self._run("close")


def fail(*args: Any) -> Any:
    raise ValueError("no good")


def odd(n: int) -> Any:
    return fail() if n == 3 else n


class BadSource(rd.Source):
    def __init__(self, where: str) -> None:
        self.where = where

    def list_parts(self) -> Sequence[Any]:
        return [0]

    def build_part(self, part: Any, resume: Any | None) -> rd.SourcePart:
        return fail() if self.where == "build_part" else BadPart(self.where)  # type: ignore[no-any-return]


class BadPart(rd.SourcePart):
    def __init__(self, where: str) -> None:
        self.where = where
        self.at = 0

    def next_batch(self) -> Any:
        self.at += 1
        if self.where == "next_batch":
            fail()
        if self.where == "back in time":
            return rd.SourceBatch(5 - self.at, [1])
        if self.where == "bad epoch":
            return rd.SourceBatch(-1, [1])
        if self.where == "too large":
            return rd.SourceBatch(2**63, [1])
        if self.where == "bad batch":
            return rd.SourceBatch(0, "abc")
        return rd.SourceBatch(0, []) if self.where == "bad floor" else None

    def epoch_floor(self) -> Any:
        return 1.5 if self.where == "bad floor" else 0

    def offset(self) -> int:
        return self.at

    def close(self) -> None:
        if self.where == "close":
            fail()


class BadSink(rd.Sink):
    aborted: list[str] = []  # noqa: RUF012 - what happened in this process

    def __init__(self, where: str) -> None:
        self.where = where

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return fail() if self.where == "open" else BadWriter(self.where)  # type: ignore[no-any-return]

    def publish(self, staged: Sequence[Any]) -> Any:
        return fail() if self.where == "publish" else list(staged)

    def result(self, receipt: Any) -> Any:
        return fail() if self.where == "result" else receipt

    def abort(self) -> None:
        BadSink.aborted.append("sink")
        fail()  # it must not raise; if it does, the error that ended the job is still the one that is told


class BadWriter(rd.SinkWriter):
    def __init__(self, where: str) -> None:
        self.where = where

    def write(self, time: T, batch: Any) -> None:
        if self.where == "write":
            fail()

    def stage(self) -> Any:
        return fail() if self.where == "stage" else 1

    def abort(self) -> None:
        BadSink.aborted.append("writer")
        fail()


def items(flow: rd.Dataflow) -> rd.Stream:
    return flow.from_epochs([[1, 2], [3]], name="items")


def made(**hooks: Callable[..., Any]) -> Callable[[rd.Dataflow], Any]:
    return lambda flow: items(flow).vertex(lambda: Bad(**hooks), name="v")


def fold(flow: rd.Dataflow) -> Any:
    return items(flow).key_by(str).fold(0, fail, name="fold")


def drift(flow: rd.Dataflow) -> Any:
    return flow.from_items([{"a": 1}, {"a": "x"}], name="items").map_batches(rd.to_record_batch, name="columns")


ERROR = "ValueError: no good"
V = f"'v'[0] {MINE} failed in"
FAILING: dict[str, tuple[Callable[[rd.Dataflow], Any], str]] = {
    "map": (lambda f: items(f).map(odd, name="m"), f"'m'[0] {MINE} failed at (1) on record 3: {ERROR}"),
    "flat_map": (lambda f: items(f).flat_map(lambda n: [odd(n)], name="m"), f"'m'[0] {MINE} failed at (1) on record 3: {ERROR}"),
    "flat_map of a number": (
        lambda f: items(f).flat_map(lambda n: n, name="m"),
        f"'m'[0] {MINE} failed at (0) on record 1: TypeError: 'int' object is not iterable",
    ),
    "filter": (lambda f: items(f).filter(odd, name="m"), f"'m'[0] {MINE} failed at (1) on record 3: {ERROR}"),
    "inspect": (lambda f: items(f).inspect(odd, name="m"), f"'m'[0] {MINE} failed at (1) on record 3: {ERROR}"),
    "map_batches": (lambda f: items(f).map_batches(fail, name="m"), f"'m'[0] {MINE} failed at (0): {ERROR}"),
    "map_batches of nothing": (
        lambda f: items(f).map_batches(lambda batch: None, name="m"),
        f"'m'[0] {MINE} failed at (0): the function given to map_batches returned None; it must return a list, a RecordBatch, a Table, "
        "a dict of numpy arrays, or a DataFrame of pandas or Polars",
    ),
    "a fused map behind a vertex": (
        lambda f: items(f).key_by(str).count().map(lambda r: odd(int(r[0])), name="m"),
        f"'m'[0] {MINE} failed at (1) on record ('3', 1): {ERROR}",
    ),
    "a map in a loop": (
        lambda f: items(f).iterate(lambda i: (i.map(lambda n: odd(n + 1), name="m"), i)),
        f"'m'[0] {MINE} failed at (0, <0>) on record 2: {ERROR}",
    ),
    "key function of a total": (
        lambda f: items(f).key_by(odd).count(name="c"),
        f"'c.prepare'[0] {MINE} failed at (1) on record 3: {ERROR}",
    ),
    "key function of a vertex": (
        lambda f: items(f).key_by(odd).vertex(Bad, name="v"),
        f"'items'[0] {MINE} failed in key_by before 'v' at (1) on record 3: {ERROR}",
    ),
    "unhashable key of a total": (
        lambda f: items(f).key_by(lambda n: [n]).count(name="c"),
        f"'c.prepare'[0] {MINE} failed at (0) on record 1: a key is not hashable: [1] of type list; "
        "key_by must give hashable values (a tuple instead of a list)",
    ),
    "unhashable key of a vertex": (
        lambda f: items(f).key_by(lambda n: {n}).vertex(Bad, name="v"),
        f"'items'[0] {MINE} failed in key_by before 'v' at (0) on record 1: a key is not hashable: {{1}} of type set; "
        "key_by must give hashable values (a tuple instead of a list)",
    ),
    "unhashable key of a window": (
        lambda f: items(f).assign_timestamps(int).key_by(lambda n: [n]).window(rd.windows.tumbling(3)).count(name="w"),
        f"'w.prepare'[0] {MINE} failed at (0) on record 1: a key is not hashable: [1] of type list; "
        "key_by must give hashable values (a tuple instead of a list)",
    ),
    "NaN as a key in rows": (
        lambda f: f.from_items([1.0, float("nan")], name="items").key_by(lambda x: x).vertex(Bad, name="v"),
        f"'items'[0] {MINE} failed in key_by before 'v' at (0) on record nan: a key is NaN: NaN equals nothing, "
        "so records with it could never meet; replace it (for instance by None) before key_by",
    ),
    "NaN as a key in columns": (
        lambda f: f.from_items(pa.record_batch({"k": [1.0, float("nan")]}), name="items").key_by("k").count(name="c"),
        f"'items'[0] {MINE} failed in key_by before 'c' at (0): key column 'k' holds NaN: NaN equals nothing; "
        "replace it (for instance by null) before key_by",
    ),
    "missing key column": (
        lambda f: f.from_items(pa.record_batch({"k": [1]}), name="items").key_by("x").count(name="c"),
        f"'c.prepare'[0] {MINE} failed at (0): there is no column 'x': the batch has ['k']",
    ),
    "missing key in rows": (
        lambda f: f.from_items([{"k": 1}], name="items").key_by("x").count(name="c"),
        f"'c.prepare'[0] {MINE} failed at (0) on record {{'k': 1}}: KeyError: 'x'",
    ),
    "missing event time": (
        lambda f: f.from_items([{"t": 1}, {"t": None}]).assign_timestamps("t").window(rd.windows.session(3)).count(name="w"),
        f"'w.prepare'[0] {MINE} failed at (0) on record {{'t': None}}: the event time of {{'t': None}} is None: every record needs one; "
        "filter such records out first",
    ),
    "rows of two schemas": (
        drift,
        f"'columns'[0] {MINE} failed at (0): 2 records do not fit one type per column: column 'a' holds int and str, which have no type in "
        "common: Could not convert 'x' with type str: tried to convert to int64; "
        "first record: {'a': 1}; convert them with map() before this step",
    ),
    "distinct of what cannot be compared": (
        lambda f: items(f).key_by(str).distinct(lambda n: bytearray(n), name="d"),
        f"'d'[0] {MINE} failed in on_recv (input 0, 2 records from ('1', bytearray(b'\\x00'))) at (0): distinct 'd' needs hashable keys "
        "and values: unhashable type: 'bytearray'; map records to tuples first",
    ),
    "fold": (fold, f"'fold'[0] {MINE} failed in on_notify at (0): {ERROR}"),
    "stateful_map without a pair": (
        lambda f: items(f).key_by(str).stateful_map(lambda state, n: 5, name="s"),
        f"'s'[0] {MINE} failed in on_recv (input 0, 2 records from ('1', 1)) at (0): the function of stateful_map 's' returned 5; "
        "it must return (state, output)",
    ),
    # hooks of vertices
    "vertex made": (lambda f: items(f).vertex(fail, name="v"), f"{V} __init__: {ERROR}"),
    "vertex of another kind": (
        lambda f: items(f).vertex(lambda: 5, name="v"),
        f"'v' {MINE} made 5: a vertex must be an instance of a subclass of rd.Vertex",
    ),
    "setup": (made(setup=fail), f"{V} setup: {ERROR}"),
    "on_recv": (made(on_recv=fail), f"{V} on_recv (input 0, 2 records from 1) at (0): {ERROR}"),
    "on_notify": (made(on_recv=lambda v, b, t: v.notify_at(t), on_notify=fail), f"{V} on_notify at (0): {ERROR}"),
    "no on_recv": (
        lambda f: items(f).vertex(rd.Vertex, name="v"),
        f"{V} on_recv (input 0, 2 records from 1) at (0): NotImplementedError: Vertex has inputs but no on_recv(self, edge, batch, time)",
    ),
    "no on_end": (lambda f: items(f).vertex(Silent, name="v"), f"{V} on_end at (1): NotImplementedError: "),
    # sources and sinks
    "build_part": (lambda f: f.source(BadSource("build_part"), name="s"), f"'s'[0] {MINE} failed in next_batch: {ERROR}"),
    "next_batch": (lambda f: f.source(BadSource("next_batch"), name="s"), f"'s'[0] {MINE} failed in next_batch: {ERROR}"),
    "source close": (lambda f: f.source(BadSource("close"), name="s"), f"'s'[0] {MINE} failed in next_batch: {ERROR}"),
    "source back in time": (
        lambda f: f.source(BadSource("back in time"), name="s"),
        f"'s'[0] {MINE} failed in next_batch: source 's' {MINE} gave epoch 3 after epoch 4: input time may not go back; "
        "sort the input by epoch, or set interleave on the source when it is only the parts that overlap",
    ),
    "source of a bad epoch": (
        lambda f: f.source(BadSource("bad epoch"), name="s"),
        f"'s'[0] {MINE} failed in next_batch: an epoch that source 's' {MINE} gave is -1: {EPOCHS}",
    ),
    "source of too large an epoch": (
        lambda f: f.source(BadSource("too large"), name="s"),
        f"'s'[0] {MINE} failed in next_batch: an epoch that source 's' {MINE} gave is 9223372036854775808: {EPOCHS}",
    ),
    "source of a bad floor": (
        lambda f: f.source(BadSource("bad floor"), name="s"),
        f"'s'[0] {MINE} failed in next_batch: epoch_floor() of a part of source 's' {MINE} is 1.5: {EPOCHS}",
    ),
    "notified too late": (
        made(on_recv=lambda v, b, t: v.notify_at(T(t.epoch + 2**63))),
        f"{V} on_recv (input 0, 2 records from 1) at (0): Timestamp(epoch) is 9223372036854775808: {EPOCHS}",
    ),
    "source of a bad batch": (
        lambda f: f.source(BadSource("bad batch"), name="s"),
        f"'s'[0] {MINE} failed in next_batch: source 's' {MINE} gave a str: a batch is a list or a RecordBatch",
    ),
    "sink open": (lambda f: items(f).sink(BadSink("open"), "out"), f"'items'[0] {MINE} failed in open of sink 'out' {MINE}: {ERROR}"),
    "sink write": (
        lambda f: items(f).sink(BadSink("write"), "out"),
        f"'items'[0] {MINE} failed in write of sink 'out' {MINE} at (0): {ERROR}",
    ),
    "sink stage": (lambda f: items(f).sink(BadSink("stage"), "out"), f"'items'[0] {MINE} failed in stage of sink 'out' {MINE}: {ERROR}"),
    "sink publish": (lambda f: items(f).sink(BadSink("publish"), "out"), f"sink 'out' {MINE} failed in publish: {ERROR}"),
    "sink result": (lambda f: items(f).sink(BadSink("result"), "out"), f"sink 'out' {MINE} failed in publish: {ERROR}"),
    # misuse of what a vertex may call
    "sent back in time": (
        made(on_recv=lambda v, b, t: t == T(1) and v.send_by(0, b, T(0))),
        f"send_by(0, ..., (0)) from 'v'[0] {MINE} goes back in time: (1) is being handled; use a time at or beyond it",
    ),
    "notified back in time": (
        made(on_recv=lambda v, b, t: t == T(1) and v.notify_at(T(0))),
        f"notify_at((0)) from 'v'[0] {MINE} goes back in time: (1) is being handled; use a time at or beyond it",
    ),
    "capability back in time": (
        made(on_recv=lambda v, b, t: t == T(1) and v.notify_at(T(2), capability=T(0))),
        f"notify_at((2), capability=(0)), by its capability, from 'v'[0] {MINE} goes back in time: (1) is being handled; "
        "use a time at or beyond it",
    ),
    "no right to send": (
        made(on_recv=lambda v, b, t: v.notify_at(t, capability=None), on_notify=lambda v, t: v.send_by(0, [1], t)),
        f"send_by(0, ..., (0)) from 'v'[0] {MINE}: there is no right to send or ask now; do it in on_recv, or in an on_notify that "
        "was asked for "
        "with a capability",
    ),
    "sent in setup": (
        made(setup=lambda v: v.send_by(0, [1], T(0))),
        f"send_by(0, ..., (0)) from 'v'[0] {MINE}: there is no right to send or ask now; do it in on_recv, or in an on_notify that "
        "was asked for "
        "with a capability",
    ),
    "time of another depth": (
        made(on_recv=lambda v, b, t: v.send_by(0, b, T(0, (1,)))),
        f"send_by(0, ..., (0, <1>)) from 'v'[0] {MINE}: a time here is a Timestamp with 0 loop counters, this is Timestamp(0, (1,))",
    ),
    "time as a number": (
        made(on_recv=lambda v, b, t: v.notify_at(3)),
        f"notify_at(3) from 'v'[0] {MINE}: a time here is a Timestamp with 0 loop counters, this is 3",
    ),
    "no such output": (
        made(on_recv=lambda v, b, t: v.send_by(1, b, t)),
        f"send_by(1, ...) from 'v'[0] {MINE}: it has 1 outputs, numbered from 0; give outputs= to flow.vertex for more",
    ),
    "text as a batch": (
        made(on_recv=lambda v, b, t: v.send_by(0, "abc", t)),
        f"send_by(0, 'abc', (0)) from 'v'[0] {MINE}: a batch is a list of records or a pyarrow.RecordBatch; for one record, [record]",
    ),
    "number as a batch": (
        made(on_recv=lambda v, b, t: v.send_by(0, 5, t)),
        f"send_by(0, 5, (0)) from 'v'[0] {MINE}: a batch is a list of records or a pyarrow.RecordBatch; for one record, [record]",
    ),
}


class Silent(rd.EndVertex):
    def on_recv(self, edge: int, batch: Any, time: T) -> None:
        pass


@pytest.mark.parametrize("case", FAILING)
def test_an_error_says_where_and_ends_the_job(case: str) -> None:
    build, message = FAILING[case]
    flow = rd.Dataflow("d")
    build(flow)
    with pytest.raises(rd.DataflowError) as caught:
        flow.run(runtime="local")
    assert shown(caught.value) == message
    if message.endswith(ERROR):
        assert isinstance(caught.value.__cause__, ValueError)
        assert caught.value.__cause__.__traceback__ is not None
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy)) == (type(caught.value), str(caught.value))


def test_the_replica_that_failed_is_named() -> None:
    flow = rd.Dataflow("d")
    flow.from_items(range(20)).key_by(lambda n: n).vertex(lambda: Bad(on_recv=lambda v, b, t: v.replica == 2 and fail()), name="v")
    with pytest.raises(rd.DataflowError, match=r"^'v'\[2\] "):
        flow.run(runtime="local", parallelism=3)


def test_a_failed_job_aborts_its_sinks_and_closes_its_vertices() -> None:
    closed: list[str] = []
    flow = rd.Dataflow("d")
    passed = items(flow).vertex(lambda: Bad(on_recv=lambda v, b, t: v.send_by(0, b, t), close=lambda v: closed.append(v.name)), name="v")
    passed.sink(BadSink("nowhere"), "out")
    passed.map(odd)
    BadSink.aborted.clear()
    job = flow.submit(runtime="local")
    with pytest.raises(rd.DataflowError, match="no good"):
        job.wait()
    assert job.state is JobState.FAILED
    assert closed == ["v"]
    assert BadSink.aborted == ["writer", "sink"]
    with pytest.raises(rd.DataflowError, match="no good"):
        job.result("out")


def test_a_cancelled_job_aborts_its_sinks() -> None:
    flow = rd.Dataflow("d")
    items(flow).sink(BadSink("nowhere"), "out")
    BadSink.aborted.clear()
    job = flow.submit(runtime="local")
    job.cancel()
    job.cancel()
    assert BadSink.aborted == ["writer", "sink"]
    with pytest.raises(rd.DataflowError) as caught:
        job.wait()
    assert str(caught.value) == "job 'd' was cancelled: it has no results"


def live() -> Any:
    flow = rd.Dataflow("d")
    flow.input("in").probe("seen").collect("out")
    return flow.submit(runtime="local")


def test_a_live_input_refuses_calls_that_go_back_in_time_and_keeps_its_records() -> None:
    job = live()
    lines = job.input("in")
    lines.send([1])
    lines.advance_to(3)
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: lines.advance_to(2), "input 'in' cannot go back from epoch 3 to 2: epochs only grow"),
        (lambda: lines.advance_to(4.0), f"advance_to(epoch) of input 'in' is 4.0: {EPOCHS}"),
        (lambda: lines.advance_to(True), f"advance_to(epoch) of input 'in' is True: {EPOCHS}"),
        (lambda: lines.advance_to(-1), f"advance_to(epoch) of input 'in' is -1: {EPOCHS}"),
        (lambda: lines.advance_to(2**63), f"advance_to(epoch) of input 'in' is 9223372036854775808: {EPOCHS}"),
        (lambda: lines.send("abc"), "what was sent to input 'in' is the str 'abc': give a list of records; for one text, [text]"),
        (lambda: lines.send(5), "what was sent to input 'in' is 5: give a list of records"),
        (lambda: job.input("out"), "dataflow 'd' has no live input 'out': it has ['in']"),
        (lambda: job.probe("in"), "dataflow 'd' has no probe 'in': it has ['seen']"),
    ]
    for call, message in refused:
        with pytest.raises(rd.DataflowError) as caught:
            call()
        assert str(caught.value) == message
    with pytest.raises(rd.DataflowError) as caught:
        job.wait()
    assert str(caught.value) == "job 'd' cannot end: its live inputs ['in'] are open; close() them, or use job.probe(name).wait(epoch)"
    lines.send([2])
    lines.close()
    for call, message in (
        (lambda: lines.send([3]), "input 'in' is closed: it cannot send records"),
        (lambda: lines.advance_to(9), "input 'in' is closed: it cannot advance to 9"),
    ):
        with pytest.raises(rd.DataflowError) as caught:
            call()
        assert str(caught.value) == message
    result = job.wait()
    assert result["out"] == [(T(0), 1), (T(3), 2)]
    with pytest.raises(KeyError, match=r"there is no result 'nope': the sinks of this dataflow are \['out'\]"):
        result["nope"]


def test_stop_with_drain_processes_all_records_that_were_read() -> None:
    job = live()
    job.input("in").send([1])
    assert job.stop(drain=True)["out"] == [(T(0), 1)]
    assert job.state is JobState.COMPLETE
