"""`WindowedStream`: a keyed stream cut into windows over epochs or event time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, overload

from rayad.dataflow.logical_graph import LogicalEdge, NodeKind
from rayad.dataflow.operators.aggregates import aggregators as agg
from rayad.dataflow.operators.aggregates.by_name import by_name
from rayad.dataflow.operators.aggregates.collected import CollectList, CountDistinct
from rayad.dataflow.operators.aggregates.combiner import Combine
from rayad.dataflow.operators.aggregates.first_last import First, Last
from rayad.dataflow.operators.aggregates.sketches import ApproxCountDistinct, Quantile
from rayad.dataflow.operators.aggregates.top_k import TopK
from rayad.dataflow.operators.aggregates.truth import AllTrue, AnyTrue
from rayad.dataflow.operators.aggregates.variance import Deviation, Variance
from rayad.dataflow.operators.joins import windowed as window_join
from rayad.dataflow.operators.joins.matching import ALONE, How
from rayad.dataflow.operators.results import WithoutKey
from rayad.dataflow.operators.totals.epochs import EpochWindows
from rayad.dataflow.operators.windows import assigning as windowing
from rayad.dataflow.operators.windows import late_records
from rayad.dataflow.operators.windows.best import BestOfBatch, BestRecords, EachRecord, EpochBest
from rayad.dataflow.operators.windows.counted import CountedWindows
from rayad.dataflow.operators.windows.firing import EventWindows
from rayad.dataflow.operators.windows.updating import UpdatingWindows
from rayad.dataflow.records.calling import checked_function
from rayad.dataflow.records.event_times import kind_of_lengths, length_from_zero
from rayad.dataflow.records.selectors import ValueSelector
from rayad.dataflow.records.type_variables import At, L, Plain, T, U, V, W
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.records.wrong_calls import explains_calls
from rayad.dataflow.streams import fitting, schemas, updates
from rayad.dataflow.streams.in_time.timed_edges import largest_of, placed, require_event_time, sides_of
from rayad.dataflow.streams.keyed_steps import exchange_each_epoch, in_order, record_unless, require_order, require_records, value_of
from rayad.dataflow.streams.keyed_stream import KeyedStream, several
from rayad.dataflow.streams.making import BY_PAIR, Make
from rayad.dataflow.streams.misplaced import Advising
from rayad.dataflow.streams.steps import materialised, through
from rayad.dataflow.streams.stream import Stream, own_stream
from rayad.dataflow.windows import AsOf, Between, Counted, Given, PerEpoch, Session, Sliding, Tumbling, Windows
from rayad.progress import DataflowError, arguments, show

if TYPE_CHECKING:
    from rayad.dataflow.operators.aggregates.aggregators import Aggregator


@explains_calls
class WindowedStream(Advising, Generic[V, *At]):
    """A stream cut into windows: aggregations and joins on it give one result for each window, of a keyed stream for each key and
    window."""

    def __init__(
        self, keyed_stream: KeyedStream[Any, V], windows: Windows, *, keyless: bool = False, lateness: Any = None, early: bool = False
    ) -> None:
        if not isinstance(windows, (PerEpoch, Tumbling, Sliding, Session, Given, Counted)):
            raise DataflowError(
                f"window was given {show(windows, 60)}: use rd.windows.per_epoch(), tumbling(...), sliding(...), session(...), given(...) "
                "or count(...)"
            )
        self.keyed = keyed_stream
        self.windows = windows
        self.keyless = keyless
        self.lateness = _lateness(windows, lateness)
        self.early = arguments.flag(early, f"window at {users_line()}: early")
        self._gives_updates = self.lateness is not None or self.early
        self._require_bounds_that_stay()
        stream = keyed_stream.stream
        if not isinstance(windows, PerEpoch):
            check_lengths(stream, windows, self.lateness)
            require_records(keyed_stream, "window")
            require_event_time(stream, "window", "use rd.windows.per_epoch() there, or window outside the loop")
            fitting.require_windows(stream.flow.graph, sides_of(stream), windows, "window")

    def _require_bounds_that_stay(self) -> None:
        if self._gives_updates and not isinstance(self.windows, (Tumbling, Sliding, Given)):
            why = (
                "sessions grow and merge, and nothing could take back what was given of one before"
                if isinstance(self.windows, Session)
                else "these windows have no end in event time"
            )
            raise DataflowError(
                f"window at {users_line()} was given {'lateness' if self.lateness is not None else 'early'} with {show(self.windows, 60)}: "
                f"{why}; use rd.windows.tumbling(...), sliding(...) or given(...), or leave it out"
            )

    def _require_final(self, what: str, why: str) -> None:
        if self._gives_updates:
            raise DataflowError(f"{what} at {users_line()}: {why}; leave lateness and early out of window(...)")

    def _finish(self, aggregator: agg.Aggregator, value: Any, name: str | None) -> LateStream[Any, Any]:
        selector = value_of(self.keyed, value, aggregator.name)
        others = (*self.keyed.key.columns, *self._columns_of_times())
        fitting.require_values(schemas.known(self.keyed.stream), aggregator, selector, aggregator.name, others)
        if isinstance(self.windows, PerEpoch):
            element = Combine(self.keyed.key, selector, aggregator)
            make = Make(EpochWindows, aggregator, columnar=bool(self.keyed.key.columns))
            out = exchange_each_epoch(self.keyed, aggregator.name, element, make, name)
        else:
            out = self._event_windows(aggregator, selector, name)
        found: LateStream[Any, Any] = self._bare(out)
        return found

    def _columns_of_times(self) -> list[str]:
        """The columns of event times, which are no values."""
        sides = [] if isinstance(self.windows, PerEpoch) else sides_of(self.keyed.stream)
        return [side.selector.column for side in sides if side.selector is not None and side.selector.column is not None]

    def _bare(self, out: Stream) -> Any:
        """The results, without the one key where there is none. Of windows over epochs nothing is late: it is a stream without ``late``."""
        if not self.keyless:
            return out
        bare = through(out, "without-key", WithoutKey())
        if not isinstance(out, LateStream):
            return bare
        return LateStream(bare.flow, bare.node, 0, lambda: through(out.late, "without-key", WithoutKey()))

    def _counted(self, aggregator: agg.Aggregator, value: ValueSelector, name: str | None, behind: Any) -> Stream:
        graph, key, stream = self.keyed.flow.graph, self.keyed.key, materialised(self.keyed.stream)
        graph.require_free(name)
        base = name or f"{aggregator.name}-windows"
        times = [side.selector for side in sides_of(stream)]
        others = (*key.columns, *(one.column for one in times if one.column is not None))
        make = Make(CountedWindows, aggregator, self.windows, value, others).reading(key=key, value=value, time=times)
        edge = LogicalEdge(placed(stream, f"{base}.prepare", partial(late_records.PlaceRows, key, windows=None)), 0, BY_PAIR)
        node = graph.add(NodeKind.VERTEX, stream.scope, name=name, base=base, op=make, inputs=[edge])
        result = Stream(self.keyed.flow, node.id)
        return result if behind is None else through(result, f"{base}.each", behind)

    def _event_windows(self, aggregator: agg.Aggregator, value: ValueSelector, name: str | None, behind: Any = None) -> Stream:
        if isinstance(self.windows, Counted):
            return self._counted(aggregator, value, name, behind)
        graph = self.keyed.flow.graph
        graph.require_free(name)
        base = name or f"{aggregator.name}-windows"
        key, windows = self.keyed.key, self.windows
        stream = materialised(self.keyed.stream)
        sides = sides_of(stream)
        delays = tuple(side.rule.told for side in sides)

        def element(times: ValueSelector) -> Any:
            return windowing.AssignWindows(key, value, aggregator, times, windows, self.keyless)

        edges = [LogicalEdge(placed(stream, f"{base}.prepare", element), 0, BY_PAIR), *largest_of(self.keyed.flow, sides, base)]
        columnar = bool(key.columns) or self.keyless
        if self._gives_updates:
            make = Make(UpdatingWindows, aggregator, windows, delays, self.lateness, self.early, columnar=columnar)
        else:
            make = Make(EventWindows, aggregator, windows, delays, columnar=columnar)
        make.reading(key=key, value=value, time=[side.selector for side in sides])
        node = graph.add(NodeKind.VERTEX, stream.scope, name=name, base=base, op=make, inputs=edges)
        if self._gives_updates:
            updates.gives_updates(graph, node.id, stream.node)
        more = () if self.lateness is None else (self.lateness,)

        def late() -> Stream:
            start = placed(stream, f"{base}.late.prepare", lambda times: late_records.PlaceRecords(key, times, windows, self.keyless))
            kind = late_records.LateSessionRecords if isinstance(windows, Session) else late_records.LateRecords
            make = Make(kind, windows, delays, *more).reading(key=key, time=[side.selector for side in sides])
            inputs = [LogicalEdge(start, 0, BY_PAIR), *edges[1:]]
            beside = graph.add(NodeKind.VERTEX, stream.scope, name=None, base=f"{base}.late", op=make, inputs=inputs)
            return Stream(self.keyed.flow, beside.id)

        result = LateStream(self.keyed.flow, node.id, 0, late)
        if behind is None:
            return result
        return LateStream(self.keyed.flow, through(result, f"{base}.each", behind).node, 0, late)

    def count(self, *, name: str | None = None) -> LateStream[tuple[*At, int], tuple[*At, V]]:
        """Count the records in each window."""
        return self._finish(agg.Count(), None, name)

    @overload
    def sum(self, value: Callable[[V], U], *, exact: bool = False, name: str | None = None) -> LateStream[tuple[*At, U], tuple[*At, V]]: ...
    @overload
    def sum(
        self: WindowedStream[tuple[Any, Never], *At], value: None = None, *, exact: bool = False, name: str | None = None
    ) -> LateStream[tuple[*At, Any], tuple[*At, Any]]: ...
    @overload
    def sum(
        self: WindowedStream[tuple[Any, int], *At], value: None = None, *, exact: bool = False, name: str | None = None
    ) -> LateStream[tuple[*At, int], tuple[*At, Any]]: ...
    @overload
    def sum(
        self: WindowedStream[tuple[Any, W], *At], value: None = None, *, exact: bool = False, name: str | None = None
    ) -> LateStream[tuple[*At, W], tuple[*At, Any]]: ...
    @overload
    def sum(
        self: WindowedStream[Plain, *At], value: None = None, *, exact: bool = False, name: str | None = None
    ) -> LateStream[tuple[*At, Plain], tuple[*At, Any]]: ...
    @overload
    def sum(
        self, value: str | None = None, *, exact: bool = False, name: str | None = None
    ) -> LateStream[tuple[*At, Any], tuple[*At, V]]: ...
    def sum(self, value: Callable[[V], Any] | str | None = None, *, exact: bool = False, name: str | None = None) -> Any:
        """Sum ``value`` in each window; for ``value`` and ``exact`` see :meth:`KeyedStream.sum`."""
        return self._finish(agg.ExactSum() if arguments.flag(exact, "sum: exact") else agg.Sum(), value, name)

    @overload
    def min(self, value: Callable[[V], U], *, name: str | None = None) -> LateStream[tuple[*At, U], tuple[*At, V]]: ...
    @overload
    def min(
        self: WindowedStream[tuple[Any, W], *At], value: None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, W], tuple[*At, Any]]: ...
    @overload
    def min(
        self: WindowedStream[Plain, *At], value: None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, Plain], tuple[*At, Any]]: ...
    @overload
    def min(self, value: str | None = None, *, name: str | None = None) -> LateStream[tuple[*At, Any], tuple[*At, V]]: ...
    def min(self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Any:
        """Find the smallest ``value`` in each window."""
        return self._finish(agg.Min(), value, name)

    @overload
    def max(self, value: Callable[[V], U], *, name: str | None = None) -> LateStream[tuple[*At, U], tuple[*At, V]]: ...
    @overload
    def max(
        self: WindowedStream[tuple[Any, W], *At], value: None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, W], tuple[*At, Any]]: ...
    @overload
    def max(
        self: WindowedStream[Plain, *At], value: None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, Plain], tuple[*At, Any]]: ...
    @overload
    def max(self, value: str | None = None, *, name: str | None = None) -> LateStream[tuple[*At, Any], tuple[*At, V]]: ...
    def max(self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Any:
        """Find the largest ``value`` in each window."""
        return self._finish(agg.Max(), value, name)

    def mean(
        self, value: Callable[[V], Any] | str | None = None, *, exact: bool = False, name: str | None = None
    ) -> LateStream[tuple[*At, Any], tuple[*At, V]]:
        """Compute the mean of ``value`` in each window; for ``exact`` see :meth:`KeyedStream.sum`."""
        return self._finish(agg.ExactMean() if arguments.flag(exact, "mean: exact") else agg.Mean(), value, name)

    def var(
        self, value: Callable[[V], Any] | str | None = None, *, ddof: int = 1, name: str | None = None
    ) -> LateStream[tuple[*At, float | None], tuple[*At, V]]:
        """Compute the variance of ``value`` in each window; for ``ddof`` see :meth:`KeyedStream.var`."""
        return self._finish(Variance(ddof), value, name)

    def std(
        self, value: Callable[[V], Any] | str | None = None, *, ddof: int = 1, name: str | None = None
    ) -> LateStream[tuple[*At, float | None], tuple[*At, V]]:
        """Compute the standard deviation of ``value`` in each window; for ``ddof`` see :meth:`KeyedStream.var`."""
        return self._finish(Deviation(ddof), value, name)

    def any(
        self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, bool | None], tuple[*At, V]]:
        """Tell whether any ``value`` in each window is true. Values are bools; nulls are ignored; None if there are only nulls."""
        return self._finish(AnyTrue(), value, name)

    def all(
        self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, bool | None], tuple[*At, V]]:
        """Tell whether all ``value`` in each window are true. Values are bools; nulls are ignored; None if there are only nulls."""
        return self._finish(AllTrue(), value, name)

    @overload
    def first(
        self, value: None = None, *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> LateStream[tuple[*At, V], tuple[*At, V]]: ...
    @overload
    def first(
        self, value: Callable[[V], U], *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> LateStream[tuple[*At, U], tuple[*At, V]]: ...
    @overload
    def first(
        self, value: str, *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> LateStream[tuple[*At, Any], tuple[*At, V]]: ...
    def first(
        self, value: Callable[[V], Any] | str | None = None, *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> Any:
        """Find the first ``value`` in each window; for ``by`` and ties see :meth:`KeyedStream.first`."""
        return self._finish(*in_order(self.keyed, First(), value, by, "first"), name)

    @overload
    def last(
        self, value: None = None, *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> LateStream[tuple[*At, V], tuple[*At, V]]: ...
    @overload
    def last(
        self, value: Callable[[V], U], *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> LateStream[tuple[*At, U], tuple[*At, V]]: ...
    @overload
    def last(
        self, value: str, *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> LateStream[tuple[*At, Any], tuple[*At, V]]: ...
    def last(
        self, value: Callable[[V], Any] | str | None = None, *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> Any:
        """Find the last ``value`` in each window; for ``by`` and ties see :meth:`KeyedStream.last`."""
        return self._finish(*in_order(self.keyed, Last(), value, by, "last"), name)

    def count_distinct(
        self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, int], tuple[*At, V]]:
        """Count the different ``value`` in each window, exactly: see :meth:`KeyedStream.count_distinct`."""
        return self._finish(CountDistinct(), value, name)

    def approx_count_distinct(
        self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, int], tuple[*At, V]]:
        """Estimate how many different ``value`` each window has: see :meth:`KeyedStream.approx_count_distinct`."""
        return self._finish(ApproxCountDistinct(), value, name)

    def quantile(
        self, q: float, value: Callable[[V], Any] | str | None = None, *, relative_error: float = 0.01, name: str | None = None
    ) -> LateStream[tuple[*At, Any], tuple[*At, V]]:
        """Estimate the quantile ``q`` of ``value`` in each window: see :meth:`KeyedStream.quantile`."""
        return self._finish(Quantile(q, relative_error), value, name)

    @overload
    def collect_list(self, value: Callable[[V], U], *, name: str | None = None) -> LateStream[tuple[*At, list[U]], tuple[*At, V]]: ...
    @overload
    def collect_list(
        self: WindowedStream[tuple[Any, W], *At], value: None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, list[W]], tuple[*At, Any]]: ...
    @overload
    def collect_list(
        self: WindowedStream[Plain, *At], value: None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, list[Plain]], tuple[*At, Any]]: ...
    @overload
    def collect_list(self, value: str | None = None, *, name: str | None = None) -> LateStream[tuple[*At, list[Any]], tuple[*At, V]]: ...
    def collect_list(self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Any:
        """Collect the non-null ``value`` of each window in a list: see :meth:`KeyedStream.collect_list`."""
        return self._finish(CollectList(), value, name)

    @overload
    def reduce(
        self, function: Callable[[V, V], U], value: None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, V | U], tuple[*At, V]]: ...
    @overload
    def reduce(
        self, function: Callable[[W, W], U], value: Callable[[V], W], *, name: str | None = None
    ) -> LateStream[tuple[*At, W | U], tuple[*At, V]]: ...
    @overload
    def reduce(
        self, function: Callable[[Any, Any], Any], value: str, *, name: str | None = None
    ) -> LateStream[tuple[*At, Any], tuple[*At, V]]: ...
    def reduce(self, function: Callable[[Any, Any], Any], value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Any:
        """Combine the records (or ``value``) of each window by ``function(a, b)``, which must be associative and commutative."""
        return self._finish(agg.Reduce(checked_function(function, "reduce", "left", "right")), record_unless(value), name)

    @overload
    def top_k(
        self, k: int, value: None = None, *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> LateStream[tuple[*At, list[V]], tuple[*At, V]]: ...
    @overload
    def top_k(
        self, k: int, value: Callable[[V], U], *, by: Callable[[U], Any] | str | None = None, name: str | None = None
    ) -> LateStream[tuple[*At, list[U]], tuple[*At, V]]: ...
    @overload
    def top_k(
        self, k: int, value: str, *, by: Callable[[Any], Any] | str | None = None, name: str | None = None
    ) -> LateStream[tuple[*At, list[Any]], tuple[*At, V]]: ...
    def top_k(
        self,
        k: int,
        value: Callable[[V], Any] | str | None = None,
        *,
        by: Callable[[Any], Any] | str | None = None,
        name: str | None = None,
    ) -> Any:
        """Find the ``k`` largest records (or ``value``) of each window: see :meth:`KeyedStream.top_k`."""
        require_order(self.keyed, by, value, "top_k")
        return self._finish(TopK(k, by), record_unless(value), name)

    @overload
    def join(
        self, other: KeyedStream[Any, W], *, how: Literal["inner"] = "inner", name: str | None = None, parallelism: int | None = None
    ) -> LateStream[tuple[*At, tuple[V, W]], tuple[*At, tuple[V | None, W | None]]]: ...
    @overload
    def join(
        self, other: KeyedStream[Any, W], *, how: How, name: str | None = None, parallelism: int | None = None
    ) -> LateStream[tuple[*At, Any], tuple[*At, tuple[V | None, W | None]]]: ...
    def join(
        self, other: KeyedStream[Any, W], *, how: How = "inner", name: str | None = None, parallelism: int | None = None
    ) -> LateStream[Any, Any]:
        """Join two keyed streams in each tumbling or sliding window: ``(key, window, (left, right))`` for each pair with equal keys.

        ``how`` is as in SQL: "left", "right" and "full" also send records without a match in their window, with None for the missing one;
        "semi" and "anti" send the records of this stream alone, ``(key, window, record)``, that have a match or have none. A null key
        matches nothing.

        ``other`` has event times of its own (``assign_timestamps``). A window fires when the watermarks of both streams have passed its
        end. A pair that lies in several sliding windows is sent in each. ``late`` has the records of windows that had already fired, as
        ``(key, window, (record, None))``, or ``(key, window, (None, record))`` of ``other``.
        """
        if self.keyless:
            raise DataflowError(f"join at {users_line()} was given {show(other)}: both sides must be keyed with key_by")
        self._require_final("join", "a pair is given once, when both sides' watermarks have passed the end of its window")
        if not isinstance(self.windows, (Tumbling, Sliding)):
            raise DataflowError(f"join at {users_line()}: windows of a join are tumbling or sliding, not {show(self.windows)}")
        return join_in_time(window_join.WindowJoin, self.keyed, other, self.windows, how, "window-join", name, parallelism)

    def max_by(self, value: Callable[[V], Any] | str, *, name: str | None = None) -> LateStream[tuple[*At, V], tuple[*At, V]]:
        """Send the records with the largest ``value`` (function or column) of each window, as ``(key, window, record)``: all of them if
        several share it."""
        return self._best(BestRecords(value_of(self.keyed, value, "max_by"), largest=True), name)

    def min_by(self, value: Callable[[V], Any] | str, *, name: str | None = None) -> LateStream[tuple[*At, V], tuple[*At, V]]:
        """Send the records with the smallest ``value`` (function or column) of each window, as ``(key, window, record)``: all of them if
        several share it."""
        return self._best(BestRecords(value_of(self.keyed, value, "min_by"), largest=False), name)

    def _best(self, aggregator: BestRecords, name: str | None) -> LateStream[Any, Any]:
        self._require_final(aggregator.name, "it may give several records of a window, of which none takes the place of another")
        fitting.require_values(schemas.known(self.keyed.stream), aggregator, aggregator.by, aggregator.name)
        if isinstance(self.windows, PerEpoch):
            element = BestOfBatch(self.keyed.key, aggregator, self.keyless)
            out = exchange_each_epoch(self.keyed, aggregator.name, element, Make(EpochBest, aggregator), name)
        else:
            out = self._event_windows(aggregator, ValueSelector.of(record_unless(None)), name, EachRecord())
        found: LateStream[Any, Any] = self._bare(out)
        return found

    @overload
    def aggregate(
        self, aggregator: dict[str, Any], value: None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, dict[str, Any]], tuple[*At, V]]: ...
    @overload
    def aggregate(
        self, aggregator: Aggregator | str, value: Callable[[V], Any] | str | None = None, *, name: str | None = None
    ) -> LateStream[tuple[*At, Any], tuple[*At, V]]: ...
    def aggregate(self, aggregator: Any, value: Any = None, *, name: str | None = None) -> Any:
        """Compute an :class:`Aggregator` of your own, or several aggregations at once, in each window: see
        :meth:`KeyedStream.aggregate`."""
        if isinstance(aggregator, dict):
            combined, values = several(self.keyed, aggregator, (*self.keyed.key.columns, *self._columns_of_times()))
            return self._finish(combined, values, name)
        return self._finish(*in_order(self.keyed, by_name(aggregator), value, None, "aggregate"), name)


class LateStream(Stream[T], Generic[T, L]):
    """The results of event-time windows, and what came too late for them."""

    def __init__(self, flow: Any, node: int, port: int, late: Callable[[], Stream[L]]) -> None:
        super().__init__(flow, node, port)
        self._make_late = late
        self._late: Stream[L] | None = None

    @property
    def late(self) -> Stream[L]:
        """The records that came after their window had fired, unchanged: ``(key, window, record)``, or ``(window, record)`` of windows over
        all records. A record comes once for each window that it missed. The first use adds a vertex beside that
        of the windows, which gets all records, and keeps those of a time until the time before it is complete.
        """
        if self._late is None:
            self._late = self._make_late()
        return self._late


def join_in_time(
    vertex: Any,
    left: KeyedStream,
    other: KeyedStream,
    windows: Any,
    how: How,
    base: str,
    name: str | None,
    parallelism: int | None,
) -> LateStream:
    """The join of two keyed streams by a vertex that is a ``JoinInTime``: in windows, within an interval, or as of a time."""
    stream, flow = left.stream, left.flow
    if not isinstance(other, KeyedStream):
        raise DataflowError(f"join at {users_line()} was given {show(other)}: both sides must be keyed with key_by")
    arguments.choice(how, f"join at {users_line()}: how", *ALONE)
    own_stream(flow, other.stream, "join")
    for side in (left, other):
        require_records(side, "join")
        require_event_time(side.stream, "join", "join outside of all loops")
        try:
            check_lengths(side.stream, windows)
        except DataflowError as error:
            raise DataflowError(f"join at {users_line()}: {error}") from error
        fitting.require_windows(flow.graph, sides_of(side.stream), windows, "join")
    fitting.require_meeting((schemas.known(left.stream), left.key), (schemas.known(other.stream), other.key), "join")
    flow.graph.require_free(name)
    base = name or base
    edges: list[LogicalEdge] = []
    largest: list[LogicalEdge] = []
    delays: tuple[Any, ...] = ()
    selectors: list[ValueSelector] = []
    for side, keeps_all in zip((left, other), ALONE[how], strict=True):
        start = materialised(side.stream)
        sides = sides_of(start)
        element = partial(late_records.PlaceRecords, side.key, windows=windows, drops_null=not keeps_all)
        edges.append(LogicalEdge(placed(start, f"{base}.prepare", element), 0, BY_PAIR))
        largest += largest_of(flow, sides, base)
        delays += tuple(each.rule.told for each in sides)
        selectors += [each.selector for each in sides]
    more = () if how == "inner" else (how,)  # snapshots of earlier versions are of inner joins
    make = Make(vertex, windows, delays, *more).reading(key=left.key, right_key=other.key, time=selectors)
    node = flow.graph.add(
        NodeKind.VERTEX, stream.scope, name=name, base=base, op=make, inputs=edges + largest, outputs=2, parallelism=parallelism
    )
    return LateStream(flow, node.id, 0, lambda: Stream(flow, node.id, 1))


def _lateness(windows: Any, value: Any) -> Any:
    """None where it is 0."""
    found = length_from_zero(value, f"window at {users_line()}: lateness")
    return found or None


def check_lengths(stream: Stream, windows: Any, *more: Any) -> None:
    """Raise DataflowError where a length of the stream's watermark does not go with the windows, or one of ``more`` (None: none)."""
    if isinstance(windows, (Given, Counted)) or stream.event_time is None:
        return
    if isinstance(windows, Between):
        own = [windows.lower, windows.upper]
    elif isinstance(windows, AsOf):
        own = [] if windows.tolerance is None else [windows.tolerance]
    else:
        own = [windows.gap] if isinstance(windows, Session) else [windows.size]
    for length in (*stream.event_time.lengths(), *(length for length in more if length is not None)):
        kind_of_lengths([*own, length])
