"""`WindowedStream`: a keyed stream cut into windows over epochs or event time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayad.dataflow.graph import Link, NodeKind, Partition, PartitionKind, users_line
from rayad.dataflow.keyed_stream import BY_PAIR, KeyedStream, Make, record_unless, several
from rayad.dataflow.operators import aggregates as agg
from rayad.dataflow.operators import keyed, window_join, windowing
from rayad.dataflow.operators.column_best import BestOfBatch, BestRecords, EachRecord, EpochBest
from rayad.dataflow.operators.column_epochs import EpochWindows
from rayad.dataflow.operators.column_results import WithoutKey
from rayad.dataflow.operators.event_windows import EventWindows
from rayad.dataflow.operators.keyed import ValueSelector
from rayad.dataflow.stream import Stream, checked_function, own_stream
from rayad.dataflow.windows import Given, PerEpoch, Session, Sliding, Tumbling
from rayad.progress import DataflowError


class WindowedStream:
    """A keyed stream cut into windows."""

    def __init__(self, keyed_stream: KeyedStream, windows: Any, *, keyless: bool = False) -> None:
        if not isinstance(windows, (PerEpoch, Tumbling, Sliding, Session, Given)):
            raise DataflowError(
                f"window was given {windows!r:.60}: use rd.windows.per_epoch(), tumbling(...), sliding(...), session(...) or given(...)"
            )
        self.keyed = keyed_stream
        self.windows = windows
        self.keyless = keyless
        stream = keyed_stream.stream
        if not isinstance(windows, PerEpoch):
            if stream.event_time is None:
                raise DataflowError(
                    f"window at {users_line()}: the stream {stream.name!r} has no event time; call assign_timestamps(...) after the "
                    "last map before it"
                )
            if stream.scope != 0:
                raise DataflowError(
                    f"window at {users_line()}: event-time windows stay open until the input ends, which inside a loop would never "
                    "happen; use "
                    "rd.windows.per_epoch() there, or window outside the loop"
                )

    def _finish(self, aggregator: agg.Aggregator, value: Any, name: str | None) -> Stream:
        selector = ValueSelector.of(value)
        if isinstance(self.windows, PerEpoch):
            element = keyed.Combine(self.keyed.key, selector, aggregator)
            make = Make(EpochWindows, aggregator, columnar=bool(self.keyed.key.columns))
            out = self.keyed._exchange(f"{aggregator.name}-per-epoch", element, make, name)
        else:
            out = self._event_windows(aggregator, selector, name)
        return self._bare(out)

    def _bare(self, out: Stream) -> Stream:
        if not self.keyless:
            return out
        bare = out._stateless("without-key", WithoutKey(), None)
        if not isinstance(out, LateStream):
            return bare
        result = LateStream(bare.flow, bare.node)
        result.late = out.late._stateless("without-key", WithoutKey(), None)
        return result

    def _event_windows(self, aggregator: agg.Aggregator, value: ValueSelector, name: str | None, behind: Any = None) -> Stream:
        stream = self.keyed.stream
        event_time = stream.event_time
        assert event_time is not None
        self.keyed.flow.graph.require_free(name)
        base = name or f"{aggregator.name}-windows"
        key = self.keyed.key
        element = windowing.AssignWindows(key, value, aggregator, event_time.selector, self.windows, self.keyless)
        assigned = stream._stateless(f"{base}.prepare", element, None)
        largest = stream._stateless(f"{base}.largest-time", windowing.LargestTime(event_time.selector), None)
        node = self.keyed.flow.graph.add(
            NodeKind.VERTEX,
            stream.scope,
            name=name,
            base=base,
            op=Make(EventWindows, aggregator, self.windows, event_time.max_delay, columnar=bool(key.columns) or self.keyless),
            inputs=[Link(assigned.node, 0, BY_PAIR), Link(largest.node, 0, Partition(PartitionKind.BROADCAST))],
            outputs=2,
        )
        result = LateStream(self.keyed.flow, node.id, 0)
        result.late = Stream(self.keyed.flow, node.id, 1)
        if behind is None:
            return result
        each = LateStream(self.keyed.flow, result._stateless(f"{base}.each", behind, None).node)
        each.late = result.late._stateless(f"{base}.each", behind, None)
        return each

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
        return self._finish(agg.Reduce(checked_function(function, "reduce")), record_unless(value), name)

    def top_k(self, k: int, value: Any = None, *, by: Callable[[Any], Any] | None = None, name: str | None = None) -> Stream:
        """The ``k`` largest values per key and window."""
        return self._finish(agg.TopK(k, by), record_unless(value), name)

    def join(self, other: KeyedStream, *, name: str | None = None, parallelism: int | None = None) -> LateStream:
        """Inner join in each tumbling or sliding window: ``(key, window, (left, right))`` for each pair of records with equal keys.

        ``other`` is keyed and has event times of its own (``assign_timestamps``). A window fires when the watermarks of both streams
        have passed its end; a pair that several sliding windows hold is given in each. ``late`` has what came for a window that
        had fired, as ``(key, window, (record, None))``, or ``(key, window, (None, record))`` of ``other``.
        """
        stream, graph = self.keyed.stream, self.keyed.flow.graph
        if not isinstance(other, KeyedStream) or self.keyless:
            raise DataflowError(f"join at {users_line()} was given {other!r:.80}: both sides must be keyed with key_by")
        if not isinstance(self.windows, (Tumbling, Sliding)):
            raise DataflowError(f"join at {users_line()}: windows of a join are tumbling or sliding, not {self.windows!r:.80}")
        own_stream(self.keyed.flow, other.stream, "join")
        times = (stream.event_time, other.stream.event_time)
        if times[0] is None or times[1] is None:
            raise DataflowError(
                f"join at {users_line()}: the stream {other.stream.name!r} has no event time; call assign_timestamps(...) after the last "
                "map before it"
            )
        if other.stream.scope != stream.scope:
            raise DataflowError(f"join at {users_line()}: one side is inside a loop; windows over event time are outside of all loops")
        graph.require_free(name)
        base = name or "window-join"
        links, largest = [], []
        for side, event_time in zip((self.keyed, other), times, strict=True):
            assert event_time is not None
            placed = window_join.PlaceRecords(side.key, event_time.selector, self.windows)
            links.append(Link(side.stream._stateless(f"{base}.prepare", placed, None).node, 0, BY_PAIR))
            seen = side.stream._stateless(f"{base}.largest-time", windowing.LargestTime(event_time.selector), None)
            largest.append(Link(seen.node, 0, Partition(PartitionKind.BROADCAST)))
        make = Make(window_join.WindowJoin, self.windows, (times[0].max_delay, times[1].max_delay))
        node = graph.add(
            NodeKind.VERTEX, stream.scope, name=name, base=base, op=make, inputs=links + largest, outputs=2, parallelism=parallelism
        )
        result = LateStream(self.keyed.flow, node.id, 0)
        result.late = Stream(self.keyed.flow, node.id, 1)
        return result

    def max_by(self, value: Any, *, name: str | None = None) -> Stream:
        """The records with the largest ``value`` (function or column) per key and window, each as ``(key, window, record)``; all of
        them where several share it."""
        return self._best(BestRecords(ValueSelector.of(value), largest=True), name)

    def min_by(self, value: Any, *, name: str | None = None) -> Stream:
        """The records with the smallest ``value``, as :meth:`max_by`."""
        return self._best(BestRecords(ValueSelector.of(value), largest=False), name)

    def _best(self, aggregator: BestRecords, name: str | None) -> Stream:
        if isinstance(self.windows, PerEpoch):
            element = BestOfBatch(self.keyed.key, aggregator, self.keyless)
            out = self.keyed._exchange(f"{aggregator.name}-per-epoch", element, Make(EpochBest, aggregator), name)
            return self._bare(out)
        return self._bare(self._event_windows(aggregator, ValueSelector.of(record_unless(None)), name, EachRecord()))

    def aggregate(self, aggregator: Any, value: Any = None, *, name: str | None = None) -> Stream:
        """As :meth:`KeyedStream.aggregate`, per key and window."""
        if isinstance(aggregator, dict):
            combined, values = several(aggregator)
            return self._finish(combined, values, name)
        return self._finish(agg.by_name(aggregator), value, name)


class LateStream(Stream):
    """The results of event-time windows; ``late`` is the stream of what came after its window had fired, as ``(key, window, value)``
    of those records alone."""

    late: Stream
