"""Odd arguments to every public name: each works, or the call raises one of Rayad's errors.

Issue 11: "Errors and crashes where there should be none" (`KeyedStream.map` raised a bare AttributeError, `tumbling(np.int64(10))` failed),
and similar cases: wrong arity, numpy's numbers, bools for ints, NaN and infinite durations, misspelt keywords, paths, `submit(config, 2)`.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import re
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rayad as rd
from rayad.dataflow.records.calling import WrongCall
from rayad.progress import arguments

pytestmark = pytest.mark.filterwarnings("ignore:nothing that this dataflow computes")  # programs that fail before that matters


class V(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)


class Bench:
    """Streams of every kind, and folders with files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.flow = rd.Dataflow("d")
        self.items = self.flow.from_items([1, 2, 3], name="items")
        self.keyed = self.items.key_by(lambda n: n % 2)
        timed = self.items.assign_timestamps(lambda n: n).key_by(lambda n: n % 2)
        self.windowed = timed.window(rd.windows.tumbling(2))
        self.edges = self.flow.from_items([(1, 2)], name="edges")
        self.other = rd.Dataflow("o").from_items([1])
        self.loop = self.flow.loop("loop")
        self.inside = self.loop.enter(self.items)

    def job(self, **options: Any) -> Any:
        flow = rd.Dataflow("j")
        flow.input("live").probe("seen").key_by(lambda n: n).count(name="c").collect("out")
        return flow.submit(runtime="local", **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("odd")
    (made / "a.csv").write_text("a,b\n1,2\n")
    (made / "a.json").write_text('{"a": 1}\n')
    return made


def one(record: Any) -> Any:
    return record


def two(a: Any, b: Any) -> Any:
    return a


def none() -> int:
    return 1


# -- every public name x every argument x odd values -------------------------------------------------------------------------

Names = dict[str, tuple[Callable[[Bench], Any], dict[str, Any]]]


def _of(where: str, **methods: dict[str, Any]) -> Names:
    return {f"{where}.{name}": ((lambda b, n=name: getattr(getattr(b, where), n)), given) for name, given in methods.items()}


def table() -> pa.Table:
    return pa.table({"a": [1]})


CALLS: Names = {
    **_of(
        "items",
        map={"function": one}, flat_map={"function": list}, filter={"predicate": one}, map_batches={"function": one}, as_columns={},
        inspect={"function": one}, union={}, as_records={}, key_by={"key": one}, rebalance={}, ordered={}, assign_timestamps={"time": one},
        vertex={"vertex": V}, join={"other": lambda b: b.edges, "on": one}, iterate={"body": lambda s: (s, s), "max_rounds": 2},
        enter={"loop": lambda b: b.flow.loop()}, sink={"sink": None}, collect={}, probe={}, window={"windows": rd.windows.per_epoch()},
        write_parquet={"path": "p"}, write_csv={"path": "p"}, write_json={"path": "p"}, write_delta={"table": "p"},
        write_iceberg={"table": "n.t"},
        select={}, with_columns={"columns": {"b": pc.field("a") + 1}}, rename={"names": {"a": "b"}}, drop={},
    ),
    **_of(
        "keyed",
        count={}, sum={}, min={}, max={}, mean={}, reduce={"function": two}, top_k={"k": 1}, aggregate={"aggregator": "sum"},
        fold={"initial": 0, "function": two}, distinct={}, stateful_map={"function": two}, join={"other": lambda b: b.keyed},
        window={"windows": rd.windows.per_epoch()}, vertex={"vertex": V},
    ),
    **_of(
        "windowed",
        count={}, sum={}, min={}, max={}, mean={}, reduce={"function": two}, top_k={"k": 1}, aggregate={"aggregator": "sum"},
        max_by={"value": one}, min_by={"value": one}, join={"other": lambda b: b.keyed},
    ),
    **_of(
        "flow",
        source={"source": None}, from_items={"items": [1]}, from_epochs={"epochs": [[1]]}, input={"name": "live"}, vertex={"vertex": V},
        loop={}, plan={}, to_mermaid={}, explain={}, submit={"runtime": "local"}, run={"runtime": "local"},
        from_arrow={"table": lambda b: table()},
    ),
    **_of("loop", enter={"stream": lambda b: b.items}, feedback={}, leave={"stream": lambda b: b.inside}),
    "loop.leave_updates": (lambda b: b.loop.leave_updates, {"stream": lambda b: b.inside, "of": lambda b: b.items}),
    "ArrowSource": (lambda b: functools.partial(b.flow.from_arrow, table()), {"epoch": "a", "parts": 1, "batch_rows": 2}),
    "CsvSource": (
        lambda b: functools.partial(b.flow.read_csv, b.folder / "a.csv"),
        dict.fromkeys(("schema", "column_types", "delimiter", "epoch", "batch_rows", "block_bytes", "filesystem")),
    ),
    "JsonLinesSource": (
        lambda b: functools.partial(b.flow.read_json, b.folder / "a.json"), dict.fromkeys(("schema", "epoch", "block_bytes", "filesystem")),
    ),
    "TextSource": (
        lambda b: functools.partial(b.flow.read_text, b.folder / "a.csv"),
        dict.fromkeys(("columnar", "encoding", "batch_rows", "split_bytes", "filesystem")),
    ),
    "ParquetSink": (
        lambda b: functools.partial(b.items.write_parquet, b.folder / "out"),
        dict.fromkeys(("partition_by_epoch", "epoch_column", "mode", "schema", "compression", "row_group_rows", "filesystem")),
    ),
    **{f"read_{kind}": ((lambda b, k=kind: getattr(b.flow, f"read_{k}")), {"path": None}) for kind in ("csv", "json", "text", "parquet")},
    "read_committed": (lambda b: lambda path: rd.read_committed(path), {"path": None}),
    **{config.__name__: ((lambda b, c=config: c), {}) for config in (rd.RunConfig, rd.SnapshotConfig, rd.FailureConfig, rd.ScalingConfig)},
    "Resources": (lambda b: rd.Resources, {}),
    "Dataflow": (lambda b: rd.Dataflow, {}),
    **{
        f"windows.{name}": ((lambda b, n=name: getattr(rd.windows, n)), given)
        for name, given in {
            "tumbling": {"size": 1}, "sliding": {"size": 1, "slide": 1}, "session": {"gap": 1}, "given": {"start": "a", "end": "b"},
        }.items()
    },
    **{
        f"graphs.{name}": ((lambda b, n=name: getattr(rd.graphs, n)), {"edges": lambda b: b.edges, **more})
        for name, more in {
            "connected_components": {}, "pagerank": {}, "bfs": {"sources": [1]}, "strongly_connected_components": {},
        }.items()
    },
    **{
        f"job.{name}": ((lambda b, n=name: getattr(b.job(), n)), given)
        for name, given in {
            "rescale": {"vertex": "c", "replicas": 2}, "stop": {"timeout_s": 1}, "input": {"name": "live"}, "probe": {"name": "seen"},
            "savepoint": {}, "cancel": {}, "progress": {}, "explain_stuck": {},
        }.items()
    },
    "job.configure": (lambda b: lambda **changes: b.job().configure(**changes), {"batch_rows": 2, "combine_hold_s": 1}),
    "input.send": (lambda b: b.job().input("live").send, {"records": [1]}),
    "input.advance_to": (lambda b: b.job().input("live").advance_to, {"epoch": 1}),
    "probe.wait": (lambda b: b.job().probe("seen").wait, {"epoch": 0}),
    "probe.complete": (lambda b: b.job().probe("seen").complete, {"epoch": 0}),
}  # fmt: skip
ODD: dict[str, Any] = {
    "None": None, "True": True, "-1": -1, "0": 0, "2.5": 2.5, "nan": float("nan"), "inf": float("inf"), "huge": 10**30, "empty": "",
    "text": "x y", "nul": "a\0b", "bytes": b"x", "list": [], "names": ["a"], "dict": {"a": 1}, "object": object(), "none": none, "two": two,
    "class": int, "np.int": np.int64(2), "np.nan": np.float64("nan"), "np.bool": np.True_, "np.array": np.arange(2), "Decimal": Decimal(1),
    "Fraction": Fraction(1, 3), "timedelta": dt.timedelta(seconds=1), "date": dt.date(2026, 1, 1), "Path": Path("odd-arguments"),
    "stream": lambda b: b.items, "keyed": lambda b: b.keyed, "other": lambda b: b.other, "config": rd.RunConfig(),
}  # fmt: skip
OF_BENCH = ("stream", "keyed", "other")
OF_STREAMS = ("other", "loop", "table", "edges", "of", "stream")


@pytest.mark.parametrize("name", CALLS)
def test_every_argument_of_a_public_name_is_accepted_or_refused_with_an_error_of_rayads(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    find, given = CALLS[name]
    bench = Bench(folder)
    function = find(bench)
    is_part = isinstance(function, functools.partial)
    parameters = () if is_part else inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    base = {} if is_part or name == "job.configure" else given
    tried = 0
    for argument in {**dict.fromkeys(known), **given}:
        for odd, value in ODD.items():
            settled = {key: of(bench) if key in OF_STREAMS and callable(of) else of for key, of in base.items()}
            settled[argument] = value(bench) if odd in OF_BENCH else value
            tried += 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    find(bench)(**settled)
                    bench = Bench(folder)  # something was added to it
                except rd.RayadError:
                    pass
                except TimeoutError:
                    assert "timeout" in argument
                except Exception as error:
                    if (argument, odd) != ("body", "class"):  # what int(stream) raises
                        pytest.fail(f"{name}({argument}={odd}) raised a bare {type(error).__name__}: {error}")
    assert tried >= len(ODD) * len(known)


# -- what is told ------------------------------------------------------------------------------------------------------------

CALLED: dict[str, tuple[Callable[[Bench], Any], str]] = {
    "map of no argument": (
        lambda b: b.items.map(none),
        "map was given none() and calls it as none(record): give a function that takes 1 argument",
    ),
    "key of two": (
        lambda b: b.items.key_by(two),
        "key_by was given two(a, b) and calls it as two(record): give a function that takes 1 argument",
    ),
    "reduce of one": (
        lambda b: b.keyed.reduce(one),
        "reduce was given one(record) and calls it as one(left, right): give a function that takes 2 arguments",
    ),
    "fold whose initial takes something": (
        lambda b: b.keyed.fold(one, two),
        "fold (initial) was given one(record) and calls it as one(): give a function that takes no argument",
    ),
    "value of two": (
        lambda b: b.windowed.sum(two),
        "what takes the value of a record was given two(a, b) and calls it as two(record): give a function that takes 1 argument",
    ),
    "body of none": (
        lambda b: b.items.iterate(none),
        "iterate at LINE was given none() and calls it as none(inner): give a function that takes 1 argument",
    ),
    "on_recv of other arguments": (
        lambda b: b.items.vertex(type("W", (rd.Vertex,), {"on_recv": lambda self, batch: None})),
        "W has on_recv(self, batch), and the job calls it as on_recv(edge, batch, time): give it these arguments",
    ),
    "a vertex that needs arguments": (
        lambda b: b.items.vertex(type("W", (rd.Vertex,), {"__init__": lambda self, size: None})),
        "vertex() was given W(size) and calls it as W(): give a function that takes no argument",
    ),
    "a number as ScalingConfig": (
        lambda b: b.flow.submit(rd.RunConfig(), 2),  # type: ignore[arg-type]
        "submit() was given 2 as ScalingConfig: it takes rd.ScalingConfig(...); for numbers of replicas alone give parallelism=2, or "
        "parallelism={name: 2}",
    ),
    "a dict as RunConfig": (
        lambda b: b.flow.run({"name": "x"}),  # type: ignore[arg-type]
        "submit() was given {'name': 'x'} as first argument: it takes a RunConfig, then a ScalingConfig",
    ),
    "a dict as SnapshotConfig": (
        lambda b: rd.RunConfig(snapshots={"interval_s": 1}),  # type: ignore[arg-type]
        "RunConfig.snapshots is {'interval_s': 1}: it must be an instance of rd.SnapshotConfig: rd.SnapshotConfig(...)",
    ),
    "an infinite interval": (
        lambda b: rd.SnapshotConfig(interval_s=float("inf")),
        "SnapshotConfig.interval_s is inf: it must be a finite number above 0, 'auto', or None",
    ),
    "a timedelta for seconds": (
        lambda b: rd.RunConfig(start_timeout_s=dt.timedelta(seconds=3)),  # type: ignore[arg-type]
        "RunConfig.start_timeout_s is datetime.timedelta(seconds=3): it must be a number above 0; of a timedelta give x.total_seconds()",
    ),
    "an infinite wait": (
        lambda b: b.job().wait(float("inf")),
        "wait(timeout_s) is inf: it must be a finite number of at least 0, or None for as long as it takes",
    ),
    "a word for a flag": (lambda b: b.keyed.sum(exact="no"), "sum: exact is 'no': it must be True or False"),  # type: ignore[arg-type]
    "bytes as a path": (
        lambda b: b.items.write_parquet(b"out"),  # type: ignore[arg-type]
        "write_parquet: the directory is b'out': it must be a path, as a string that is not empty or a pathlib.Path; of bytes "
        "os.fsdecode(x)",
    ),
    "an empty folder": (
        lambda b: rd.RunConfig(storage_path=""),
        "RunConfig.storage_path is '': it must be a path, as a string that is not empty or a pathlib.Path, or None",
    ),
    "no loop to enter": (lambda b: b.items.enter(5), "enter at LINE was given 5: it takes a loop, made by flow.loop()"),  # type: ignore[arg-type]
    "an input that is a list": (lambda b: b.job().input(["live"]), "dataflow 'j' has no live input ['live']: it has ['live']"),
    "a result that nobody gives": (
        lambda b: b.job().stop()["x"],
        "there is no result 'x': the sinks of this dataflow are ['out']",
    ),
    "a savepoint of a job that is over": (
        lambda b: (lambda job: (job.stop(), job.savepoint()))(b.job(run=rd.RunConfig(storage_path=b.folder / "over"))),  # type: ignore[arg-type]
        "job 'j' is complete: no savepoint can be taken",
    ),
    "another layout of a job that is over": (
        lambda b: (lambda job: (job.stop(), job.rescale("c", 2)))(b.job()),
        "rescale({'c': 2}): job 'j' is complete",
    ),
    "a dict and a number": (
        lambda b: b.job().rescale({"c": 2}, 3),
        "rescale({'c': 2}, 3): give a dict alone, or a vertex' name and its number of replicas",
    ),
    # keywords
    "misspelt keyword": (
        lambda b: b.keyed.count(nam="c"),  # type: ignore[call-arg]
        "count at LINE: there is no argument 'nam': did you mean 'name'?; it is called as count(*, name=None)",
    ),
    "name without its keyword": (
        lambda b: b.keyed.count("c"),  # type: ignore[misc]
        "count at LINE: 1 arguments were given without a name, and it takes none so; it is called as count(*, name=None)",
    ),
    "missing argument": (
        lambda b: b.keyed.fold(0),  # type: ignore[call-arg]
        "fold at LINE: missing 1 required positional argument: 'function'; it is called as fold(initial, function, value=None, *, "
        "name=None)",
    ),
    "misspelt keyword of a window": (
        lambda b: rd.windows.session(gup=3),  # type: ignore[call-arg]
        "session at LINE: there is no argument 'gup': did you mean 'gap'?; it is called as session(gap)",
    ),
    "misspelt keyword of a handle": (
        lambda b: b.job().wait(timeout=3),
        "wait at LINE: there is no argument 'timeout': did you mean 'timeout_s'?; it is called as wait(timeout_s=None, *, progress=False)",
    ),
    "misspelt resource": (
        lambda b: b.items.map(one, num_gpu=1),  # type: ignore[call-arg]
        "map() got an unexpected keyword argument 'num_gpu'; what a replica needs is asked for by num_cpus, num_gpus, memory, resources: "
        "did you mean 'num_gpus'?",
    ),
    "misspelt option of the run": (
        lambda b: b.flow.run(runtime="local", paralelism=2),
        "unknown options ['paralelism'] for runtime='local': did you mean 'parallelism'?",
    ),
}


def shown(error: BaseException) -> str:
    return re.sub(r"test_odd_arguments\.py:\d+", "LINE", str(error))


@pytest.mark.parametrize("case", CALLED)
def test_an_odd_call_is_refused_with_what_to_do(case: str, folder: Path) -> None:
    bench = Bench(folder)
    call, message = CALLED[case]
    nodes = len(bench.flow.graph.nodes)
    with pytest.raises(rd.RayadError) as caught:
        call(bench)
    assert shown(caught.value) == message
    assert len(bench.flow.graph.nodes) == nodes


def test_a_wrong_call_is_a_type_error_too_and_errors_from_inside_are_left_alone() -> None:
    with pytest.raises(TypeError, match=r"did you mean 'mode'\?; it is called as write_parquet\(path, \*, partition_by") as caught:
        rd.Dataflow().from_items([1]).write_parquet("nowhere", mod="append")
    assert isinstance(caught.value, WrongCall)
    with pytest.raises(TypeError, match=r"^of the body$") as inner:
        rd.Dataflow().from_items([1]).iterate(lambda inner: raises(TypeError("of the body")))
    assert not isinstance(inner.value, rd.RayadError)


def raises(error: Exception) -> Any:
    raise error


def test_valid_calls_with_unusual_arguments_work(folder: Path) -> None:
    @functools.wraps(two)
    def wrapped(*args: Any) -> Any:  # shows the arguments of two, and takes one
        return args[0]

    bench = Bench(folder)
    functions = (str, {1: 2}.get, np.sqrt, functools.partial(two, b=1), functools.partial(two, 1), wrapped, (5).__add__)
    for number, function in enumerate(functions):
        bench.items.map(function).collect(f"of {number}")
    bench.keyed.top_k(np.int64(2)).collect("top")  # type: ignore[arg-type]
    run = rd.RunConfig(storage_path=folder / "store", batch_rows=np.int32(2), combine_hold_s=np.float64(0.1))  # type: ignore[arg-type]
    scaling = rd.ScalingConfig(parallelism={"top_k": np.int64(2)})  # type: ignore[dict-item]
    result = bench.flow.run(run, scaling, runtime="local", seed=np.int64(1))  # type: ignore[arg-type]
    again = bench.flow.run(runtime="local")  # the same dataflow twice
    assert [n for _, n in result["of 5"]] == [n for _, n in again["of 5"]] == [1, 2, 3]
    assert sorted(n for _, n in result["top"]) == [(0, [2]), (1, [3, 1])]
    assert (type(run.batch_rows), run.batch_rows, run.storage_path) == (int, 2, str(folder / "store"))


@pytest.mark.parametrize(
    ("rule", "value", "given"),
    [
        (arguments.whole, np.int8(3), 3), (arguments.number, np.float32(0.5), 0.5), (arguments.number, Fraction(1, 2), 0.5),
        (arguments.number, 3, 3), (arguments.flag, np.False_, False), (arguments.path, Path("a/b"), "a/b"), (arguments.text, "a", "a"),
    ],
)  # fmt: skip
def test_a_rule_gives_plain_values_of_python(rule: Callable[..., Any], value: Any, given: Any) -> None:
    found = rule(value, "x")
    assert found == given
    assert type(found) is type(given)
