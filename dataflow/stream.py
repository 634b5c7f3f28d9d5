"""`Stream`, `KeyedStream`, `WindowedStream`: the operators a user calls.

A stream is a position in the logical graph (a node's output port) and nothing else; operators add nodes and give new positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rayad.dataflow import elements as el
from rayad.dataflow import hooks
from rayad.dataflow.graph import FORWARD, KeySelector, Link, NodeKind, Partition, PartitionKind, users_line
from rayad.dataflow.items import CollectSink
from rayad.dataflow.operators import aggregates as agg
from rayad.dataflow.operators import keyed, stateful, totals, windowing
from rayad.dataflow.operators.keyed import PAIRS, ValueSelector
from rayad.dataflow.sink import Sink
from rayad.dataflow.windows import PerEpoch, Session, Sliding, Tumbling
from rayad.progress import DataflowError

if TYPE_CHECKING:
    from rayad.dataflow.flow import Dataflow
    from rayad.dataflow.loops import Loop

_BY_PAIR = Partition(PartitionKind.KEYS, PAIRS)


def _constant(record: Any) -> int:
    return 0


def _without_key(record: Any) -> Any:
    return record[1:]


def input_link(flow: Dataflow, stream: Any) -> Link:
    """The edge that a stream becomes when a vertex takes it as input."""
    if isinstance(stream, KeyedStream):
        inner = stream.stream.materialised()
        link = Link(inner.node, inner.port, Partition(PartitionKind.KEYS, stream.key))
        stream = inner
    elif isinstance(stream, Stream):
        link = Link(stream.node, stream.port, stream.partition)
    else:
        raise DataflowError(f"an input is {stream!r:.60}: it must be a Stream or KeyedStream of this dataflow")
    if stream.flow is not flow:
        raise DataflowError(f"an input given at {users_line()} belongs to dataflow {stream.flow.name!r}, not to {flow.name!r}")
    return link


def _function(value: Any, what: str) -> Callable[..., Any]:
    if not callable(value):
        raise DataflowError(f"{what} was given {value!r:.60}: it takes a function")
    return value  # type: ignore[no-any-return]


class Stream:
    """Records in motion. Immutable: every operator gives a new stream."""

    def __init__(
        self, flow: Dataflow, node: int, port: int = 0, event_time: windowing.EventTime | None = None, partition: Partition = FORWARD
    ) -> None:
        self.flow = flow
        self.node = node
        self.port = port
        self.event_time = event_time
        self.partition = partition

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.flow.name!r}>"

    @property
    def name(self) -> str:
        """The name of the node that makes this stream."""
        return self.flow.graph.nodes[self.node].name

    @property
    def scope(self) -> int:
        """The number of the scope that this stream is in; 0 is outside all loops."""
        graph = self.flow.graph
        return graph.scope_of_output(graph.nodes[self.node])

    def _stateless(self, base: str, element: el.Element, name: str | None, *, keeps_time: bool = False) -> Stream:
        start = self.materialised()
        node = self.flow.graph.add(
            NodeKind.STATELESS, self.scope, name=name, base=base, op=element, inputs=[Link(start.node, start.port)]
        )
        return Stream(self.flow, node.id, 0, self.event_time if keeps_time else None)

    def materialised(self) -> Stream:
        """This stream with its exchange, if it has one, made a node."""
        if self.partition.kind is PartitionKind.FORWARD:
            return self
        node = self.flow.graph.add(
            NodeKind.EXCHANGE, self.scope, name=None, base=self.partition.kind.value, inputs=[Link(self.node, self.port, self.partition)]
        )
        return Stream(self.flow, node.id, 0, self.event_time)

    # -- stateless ---------------------------------------------------------------
    def map(self, function: Callable[[Any], Any], *, name: str | None = None) -> Stream:
        """``function(record)`` for each record."""
        return self._stateless("map", el.Map(_function(function, "map")), name)

    def flat_map(self, function: Callable[[Any], Iterable[Any]], *, name: str | None = None) -> Stream:
        """All records of ``function(record)``."""
        return self._stateless("flat_map", el.FlatMap(_function(function, "flat_map")), name)

    def filter(self, predicate: Callable[[Any], Any], *, name: str | None = None) -> Stream:
        """The records for which ``predicate(record)`` holds."""
        return self._stateless("filter", el.Filter(_function(predicate, "filter")), name, keeps_time=True)

    def map_batches(self, function: Callable[[Any], Any], *, name: str | None = None) -> Stream:
        """``function(batch)`` for each batch: a list or a RecordBatch in, a list, RecordBatch or Table out. The way to stay columnar."""
        return self._stateless("map_batches", el.MapBatches(_function(function, "map_batches")), name)

    def inspect(self, function: Callable[[Any], Any], *, name: str | None = None) -> Stream:
        """Call ``function(record)`` in passing."""
        return self._stateless("inspect", el.Inspect(_function(function, "inspect")), name, keeps_time=True)

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """The records of this and the other streams, all in the same scope."""
        streams = [s.materialised() for s in (self, *others)]
        for other in streams:
            if other.flow is not self.flow:
                raise DataflowError(f"union at {users_line()} mixes the dataflows {self.flow.name!r} and {other.flow.name!r}")
        node = self.flow.graph.add(
            NodeKind.UNION, self.scope, name=name, base="union", inputs=[Link(s.node, s.port) for s in streams]
        )
        times = {s.event_time for s in streams}
        return Stream(self.flow, node.id, 0, times.pop() if len(times) == 1 else None)

    # -- distribution --------------------------------------------------------------
    def key_by(self, key: Callable[[Any], Any] | str | list[str] | tuple[str, ...]) -> KeyedStream:
        """Key records by a function, a column, or several columns. Keys must be hashable, and equal keys meet in one replica."""
        if isinstance(key, str):
            selector = KeySelector(columns=(key,))
        elif isinstance(key, (list, tuple)):
            if not key or not all(isinstance(k, str) for k in key):
                raise DataflowError(f"key_by was given {key!r}: give a function, a column name or a non-empty list of column names")
            selector = KeySelector(columns=tuple(key))
        else:
            selector = KeySelector(function=_function(key, "key_by"))
        return KeyedStream(self, selector)

    def rebalance(self) -> Stream:
        """Spread batches over the replicas of the next operator, to whichever has the most room (MPR, 5.4.8: on demand)."""
        return Stream(self.flow, self.node, self.port, self.event_time, Partition(PartitionKind.REBALANCE))

    def broadcast(self) -> Stream:
        """Give every batch to every replica of the next operator."""
        return Stream(self.flow, self.node, self.port, self.event_time, Partition(PartitionKind.BROADCAST))

    def single(self) -> Stream:
        """Bring everything to one replica of the next operator."""
        return Stream(self.flow, self.node, self.port, self.event_time, Partition(PartitionKind.SINGLE))

    # -- stateful -------------------------------------------------------------------
    def vertex(self, vertex: Any, *, outputs: int = 1, name: str | None = None, parallelism: int | None = None) -> Any:
        """``flow.vertex`` with this stream as its only input."""
        return self.flow.vertex(vertex, inputs=[self], outputs=outputs, name=name, parallelism=parallelism)

    def join(self, other: Stream, on: Any, right_on: Any = None, *, name: str | None = None) -> Stream:
        """Inner join of two streams: ``(key, (left, right))``; ``on`` is a key as in :meth:`key_by`, ``right_on`` that of ``other``."""
        return self.key_by(on).join(other.key_by(on if right_on is None else right_on), name=name)

    def assign_timestamps(self, time: Callable[[Any], Any] | str, *, max_delay: Any = None) -> Stream:
        """Say where a record's event time is (function or column) and how much later than newer ones a record may come. Survives filter and
        union; after a map say it again."""
        return Stream(self.flow, self.node, self.port, windowing.EventTime(ValueSelector.of(time), max_delay), self.partition)

    def window(self, windows: Any) -> WindowedStream:
        """Windows over all records together; results are ``(window, value)``."""
        return WindowedStream(self.key_by(_constant), windows, keyless=True)

    # -- loops ------------------------------------------------------------------------
    def iterate(self, body: Callable[[Stream], tuple[Stream, Stream]], max_rounds: int | None = None, name: str | None = None) -> Stream:
        """A loop: ``body(inner)`` gives ``(again, out)``; ``again`` is fed back, ``out`` leaves. It ends when nothing is left in it."""
        from rayad.dataflow.loops import iterate

        return iterate(self, body, max_rounds, name)

    def enter(self, loop: Loop) -> Stream:
        """``loop.enter(self)``."""
        return loop.enter(self)

    def leave(self, loop: Loop) -> Stream:
        """``loop.leave(self)``."""
        return loop.leave(self)

    # -- ends ---------------------------------------------------------------------------
    def sink(self, sink: Sink, name: str | None = None) -> Stream:
        """Write to a :class:`Sink`; gives this stream again. ``result[name]`` is what the sink gives."""
        if not isinstance(sink, Sink):
            raise DataflowError(f"sink() was given {sink!r:.60}: it takes an instance of a subclass of rd.Sink")
        start = self.materialised()
        taken = {node.name for node in self.flow.graph.nodes}
        sinks = {str(n.options["key"]) for n in self.flow.graph.nodes if n.kind is NodeKind.SINK}
        if name is not None and name in sinks:
            raise DataflowError(f"the sink name {name!r} is used twice, again at {users_line()}; names of sinks are unique")
        shown = f"{name}.sink" if name is not None and name in taken else name
        node = self.flow.graph.add(
            NodeKind.SINK, self.scope, name=shown, base="sink", op=sink, inputs=[Link(start.node, start.port)], outputs=0, key=name
        )
        node.options["key"] = name or node.name
        return self

    def collect(self, name: str | None = None, *, columnar: bool = False) -> Stream:
        """Keep everything: ``result[name]`` is a list of ``(Timestamp, record)``, or with ``columnar`` one Arrow table."""
        return self.sink(CollectSink(columnar=columnar), name or "collect")

    def probe(self, name: str | None = None) -> Stream:
        """A place to look at progress: ``job.probe(name)`` tells which times can still appear here. Gives this stream again."""
        start = self.materialised()
        self.flow.graph.add(NodeKind.PROBE, self.scope, name=name, base="probe", inputs=[Link(start.node, start.port)], outputs=0)
        return self

    def write_parquet(self, path: str, *, name: str | None = None, **options: Any) -> Stream:
        """Write Parquet files into a folder; they appear when the job is complete."""
        return self.sink(hooks.call("write_parquet", path, **options), name or "parquet")

    def to_ray_dataset(self, name: str | None = None, **options: Any) -> Stream:
        """``result[name]`` is a Ray Dataset."""
        return self.sink(hooks.call("to_ray_dataset", **options), name or "ray-dataset")

    def to_spark(self, spark: Any, name: str | None = None, **options: Any) -> Stream:
        """``result[name]`` is a Spark DataFrame of the session ``spark``."""
        return self.sink(hooks.call("to_spark", spark, **options), name or "spark")


class KeyedStream:
    """Records with a key. Results are ``(key, value)`` records: running totals over epochs, each touched key once per completed epoch."""

    def __init__(self, stream: Stream, key: KeySelector) -> None:
        self.stream = stream
        self.key = key

    @property
    def flow(self) -> Dataflow:
        """The dataflow that this stream belongs to."""
        return self.stream.flow

    def _exchange(self, base: str, element: el.Element, make: Any, name: str | None, parallelism: int | None = None) -> Stream:
        prepared = self.stream._stateless(f"{name or base}.prepare", element, None)
        link = Link(prepared.node, 0, _BY_PAIR)
        graph = self.flow.graph
        node = graph.add(NodeKind.VERTEX, self.stream.scope, name=name, base=base, op=make, inputs=[link], parallelism=parallelism)
        return Stream(self.flow, node.id)

    def _aggregate(self, aggregator: agg.Aggregator, value: Any, name: str | None) -> Stream:
        element = keyed.Combine(self.key, ValueSelector.of(value), aggregator)
        return self._exchange(aggregator.name, element, Make(totals.Totals, aggregator), name)

    def count(self, *, name: str | None = None) -> Stream:
        """How many records each key has had."""
        return self._aggregate(agg.Count(), None, name)

    def sum(self, value: Any = None, *, name: str | None = None) -> Stream:
        """Sum of ``value`` (function or column; by default the record itself, or the second of a pair)."""
        return self._aggregate(agg.Sum(), value, name)

    def min(self, value: Any = None, *, name: str | None = None) -> Stream:
        """Smallest ``value``."""
        return self._aggregate(agg.Min(), value, name)

    def max(self, value: Any = None, *, name: str | None = None) -> Stream:
        """Largest ``value``."""
        return self._aggregate(agg.Max(), value, name)

    def mean(self, value: Any = None, *, name: str | None = None) -> Stream:
        """Arithmetic mean of ``value``."""
        return self._aggregate(agg.Mean(), value, name)

    def reduce(self, function: Callable[[Any, Any], Any], value: Any = None, *, name: str | None = None) -> Stream:
        """``function(a, b)``, associative and commutative, over all records of a key (or over ``value`` of them)."""
        return self._aggregate(agg.Reduce(_function(function, "reduce")), _record_unless(value), name)

    def top_k(self, k: int, value: Any = None, *, by: Callable[[Any], Any] | None = None, name: str | None = None) -> Stream:
        """The ``k`` largest records (or ``value`` of them) of each key, a list, largest first; ``by`` gives what is compared."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise DataflowError(f"top_k was given k={k!r}: it must be an int of at least 1")
        return self._aggregate(agg.TopK(k, by), _record_unless(value), name)

    def aggregate(self, aggregator: Any, value: Any = None, *, name: str | None = None) -> Stream:
        """An :class:`Aggregator` of yours, or a dict of several: ``{"flights": "count", "delay": ("mean", "dep_delay")}`` gives ``(key, dict)``."""
        if isinstance(aggregator, dict):
            several, values = _several(aggregator)
            return self._aggregate(several, values, name)
        return self._aggregate(agg.by_name(aggregator), value, name)

    def fold(self, initial: Any, function: Callable[[Any, Any], Any], value: Any = None, *, name: str | None = None) -> Stream:
        """``function(state, value) -> state``, beginning with ``initial`` (or what it returns, if callable)."""
        element = keyed.PairValue(self.key, ValueSelector.of(_record_unless(value)))
        return self._exchange("fold", element, Make(totals.Fold, initial, _function(function, "fold")), name)

    def distinct(self, value: Any = None, *, name: str | None = None) -> Stream:
        """Each distinct ``(key, record)`` once (or ``(key, value)``)."""
        element = keyed.PairValue(self.key, ValueSelector.of(_record_unless(value)))
        return self._exchange("distinct", element, Make(stateful.Distinct), name)

    def stateful_map(
        self, function: Callable[[Any, Any], tuple[Any, Any]], initial: Any = None, value: Any = None, *, name: str | None = None
    ) -> Stream:
        """``function(state, record) -> (state, out)`` on each record as it arrives; gives ``(key, out)``; a state of None is forgotten, an ``out`` of None
        is not sent. ``initial`` is the state of a new key, or a function that makes one."""
        element = keyed.PairValue(self.key, ValueSelector.of(_record_unless(value)))
        return self._exchange("stateful_map", element, Make(stateful.StatefulMap, _function(function, "stateful_map"), initial), name)

    def join(self, other: KeyedStream, *, name: str | None = None, parallelism: int | None = None) -> Stream:
        """Inner join: ``(key, (left, right))`` for each pair of records with equal keys, at the least upper
        bound of their times."""
        if not isinstance(other, KeyedStream):
            raise DataflowError(f"join was given {other!r:.60}: both sides must be keyed with key_by")
        links = []
        for side in (self, other):
            prepared = side.stream._stateless(f"{name or 'join'}.prepare", keyed.Pair(side.key), None)
            links.append(Link(prepared.node, 0, _BY_PAIR))
        graph = self.flow.graph
        node = graph.add(
            NodeKind.VERTEX, self.stream.scope, name=name, base="join", op=Make(stateful.Join), inputs=links, parallelism=parallelism
        )
        return Stream(self.flow, node.id)

    def window(self, windows: Any) -> WindowedStream:
        """Aggregate per window: see :mod:`rayad.windows`. Results are ``(key, window, value)``."""
        return WindowedStream(self, windows)

    def vertex(self, vertex: Any, *, outputs: int = 1, name: str | None = None, parallelism: int | None = None) -> Any:
        """``flow.vertex`` with this stream as its only input, exchanged by key."""
        return self.flow.vertex(vertex, inputs=[self], outputs=outputs, name=name, parallelism=parallelism)


def _identity(record: Any) -> Any:
    return record


def _record_unless(value: Any) -> Any:
    return _identity if value is None else value


class Make:
    """A picklable vertex factory: a class and its arguments."""

    def __init__(self, cls: Any, *args: Any, **kwargs: Any) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs
        self.__name__ = cls.__name__

    def __call__(self) -> Any:
        return self.cls(*self.args, **self.kwargs)


class Tuple:
    """A picklable function: several values of one record as a tuple."""

    def __init__(self, functions: list[Callable[[Any], Any]]) -> None:
        self.functions = functions

    def __call__(self, record: Any) -> tuple[Any, ...]:
        return tuple(f(record) for f in self.functions)


def _several(spec: dict[str, Any]) -> tuple[agg.Several, Tuple]:
    parts: dict[str, agg.Aggregator] = {}
    functions = []
    for name, entry in spec.items():
        how, value = entry if isinstance(entry, tuple) else (entry, None)
        parts[name] = agg.by_name(how)
        functions.append(ValueSelector.of(value).row_value() if value is not None or parts[name].name != "count" else _constant)
    if not parts:
        raise DataflowError("aggregate was given an empty dict: name at least one aggregation")
    return agg.Several(parts), Tuple(functions)


class WindowedStream:
    """A keyed stream cut into windows."""

    def __init__(self, keyed_stream: KeyedStream, windows: Any, *, keyless: bool = False) -> None:
        if not isinstance(windows, (PerEpoch, Tumbling, Sliding, Session)):
            raise DataflowError(f"window was given {windows!r:.60}: use rd.windows.per_epoch(), tumbling(...), sliding(...) or session(...)")
        self.keyed = keyed_stream
        self.windows = windows
        self.keyless = keyless
        stream = keyed_stream.stream
        if not isinstance(windows, PerEpoch):
            if stream.event_time is None:
                raise DataflowError(
                    f"window at {users_line()}: the stream {stream.name!r} has no event time; call assign_timestamps(...) after the last map before it"
                )
            if stream.scope != 0:
                raise DataflowError(
                    f"window at {users_line()}: event-time windows stay open until the input ends, which inside a loop would never happen; use "
                    "rd.windows.per_epoch() there, or window outside the loop"
                )

    def _finish(self, aggregator: agg.Aggregator, value: Any, name: str | None) -> Stream:
        selector = ValueSelector.of(value)
        if isinstance(self.windows, PerEpoch):
            element = keyed.Combine(self.keyed.key, selector, aggregator)
            out = self.keyed._exchange(f"{aggregator.name}-per-epoch", element, Make(totals.EpochTotals, aggregator), name)
        else:
            out = self._event_windows(aggregator, selector, name)
        return out.map(_without_key) if self.keyless else out

    def _event_windows(self, aggregator: agg.Aggregator, value: ValueSelector, name: str | None) -> Stream:
        stream = self.keyed.stream
        event_time = stream.event_time
        assert event_time is not None
        base = name or f"{aggregator.name}-windows"
        assigned = stream._stateless(
            f"{base}.prepare", windowing.AssignWindows(self.keyed.key, value, aggregator, event_time.selector, self.windows), None
        )
        largest = stream._stateless(f"{base}.largest-time", windowing.LargestTime(event_time.selector), None)
        node = self.keyed.flow.graph.add(
            NodeKind.VERTEX,
            stream.scope,
            name=name,
            base=base,
            op=Make(windowing.EventWindows, aggregator, self.windows, event_time.max_delay),
            inputs=[Link(assigned.node, 0, _BY_PAIR), Link(largest.node, 0, Partition(PartitionKind.BROADCAST))],
            outputs=2,
        )
        result = LateStream(self.keyed.flow, node.id, 0)
        result.late = Stream(self.keyed.flow, node.id, 1)
        return result

    def count(self, *, name: str | None = None) -> Stream:
        """Records per key and window."""
        return self._finish(agg.Count(), None, name)

    def sum(self, value: Any = None, *, name: str | None = None) -> Stream:
        """Sum of ``value`` per key and window."""
        return self._finish(agg.Sum(), value, name)

    def min(self, value: Any = None, *, name: str | None = None) -> Stream:
        """Smallest ``value`` per key and window."""
        return self._finish(agg.Min(), value, name)

    def max(self, value: Any = None, *, name: str | None = None) -> Stream:
        """Largest ``value`` per key and window."""
        return self._finish(agg.Max(), value, name)

    def mean(self, value: Any = None, *, name: str | None = None) -> Stream:
        """Mean of ``value`` per key and window."""
        return self._finish(agg.Mean(), value, name)

    def reduce(self, function: Callable[[Any, Any], Any], value: Any = None, *, name: str | None = None) -> Stream:
        """``function(a, b)`` per key and window."""
        return self._finish(agg.Reduce(_function(function, "reduce")), _record_unless(value), name)

    def top_k(self, k: int, value: Any = None, *, by: Callable[[Any], Any] | None = None, name: str | None = None) -> Stream:
        """The ``k`` largest values per key and window."""
        return self._finish(agg.TopK(k, by), _record_unless(value), name)

    def aggregate(self, aggregator: Any, value: Any = None, *, name: str | None = None) -> Stream:
        """As :meth:`KeyedStream.aggregate`, per key and window."""
        if isinstance(aggregator, dict):
            several, values = _several(aggregator)
            return self._finish(several, values, name)
        return self._finish(agg.by_name(aggregator), value, name)


class LateStream(Stream):
    """The results of event-time windows; ``late`` is the stream of what came after its window had fired, ``(key, window, value)`` of those records alone."""

    late: Stream
