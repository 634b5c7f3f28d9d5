"""`KeyedStream`: running totals, joins and other operators that keep state per key.

Each puts a stateless step before the exchange, which makes pairs and combines what it can, and a vertex behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Unpack, overload

from rayad.dataflow.logical_graph import LogicalEdge, Partition, PartitionKind
from rayad.dataflow.operators import stateless as el
from rayad.dataflow.operators.aggregates import aggregators as agg
from rayad.dataflow.operators.aggregates.by_name import by_name
from rayad.dataflow.operators.aggregates.collected import CollectList, CountDistinct
from rayad.dataflow.operators.aggregates.combiner import Combine
from rayad.dataflow.operators.aggregates.first_last import First, Last
from rayad.dataflow.operators.aggregates.sketches import ApproxCountDistinct, Quantile
from rayad.dataflow.operators.aggregates.top_k import TopK
from rayad.dataflow.operators.aggregates.truth import AllTrue, AnyTrue
from rayad.dataflow.operators.aggregates.variance import Deviation, Variance
from rayad.dataflow.operators.distinct import Distinct, OnceInBatch
from rayad.dataflow.operators.head import Head
from rayad.dataflow.operators.keys import keyed
from rayad.dataflow.operators.lag import Lag
from rayad.dataflow.operators.latest import Latest
from rayad.dataflow.operators.stateful_map import StatefulMap
from rayad.dataflow.operators.time_to_live import Ttl
from rayad.dataflow.operators.totals import totals
from rayad.dataflow.records.calling import checked_function
from rayad.dataflow.records.event_times import kind_of_lengths
from rayad.dataflow.records.selectors import KeySelector, ValueSelector
from rayad.dataflow.records.type_variables import K, Plain, U, V, W, X
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.records.wrong_calls import explains_calls
from rayad.dataflow.streams import fitting, schemas, updates
from rayad.dataflow.streams.in_time.timed_edges import require_event_time
from rayad.dataflow.streams.keyed_steps import (
    exchange,
    in_order,
    record_unless,
    require_no_ttl,
    require_order,
    value_of,
)
from rayad.dataflow.streams.making import Make
from rayad.dataflow.streams.misplaced import Advising
from rayad.dataflow.streams.steps import materialised
from rayad.dataflow.streams.stream import Stream, own_stream
from rayad.dataflow.windows import Between, Direction, PerEpoch, Window, Windows
from rayad.progress import DataflowError, arguments, show

if TYPE_CHECKING:
    from rayad.dataflow.operators.aggregates.aggregators import Aggregator
    from rayad.dataflow.operators.joins.asof import AsOfHow
    from rayad.dataflow.operators.joins.matching import How
    from rayad.dataflow.operators.process import Process
    from rayad.dataflow.resources import OfKeyedVertex
    from rayad.dataflow.streams.flow import Dataflow
    from rayad.dataflow.streams.windowed_stream import LateStream, WindowedStream
    from rayad.dataflow.vertex import Vertex


def input_edge(flow: Dataflow, stream: Any, what: str = "an input") -> LogicalEdge:
    """The edge that a stream becomes when a vertex takes it as input."""
    if isinstance(stream, KeyedStream):
        require_no_ttl(stream, what, "a vertex of yours forgets by a rule of its own; leave ttl() out")
        inner = materialised(own_stream(flow, stream.stream, what))
        return LogicalEdge(inner.node, inner.port, Partition(PartitionKind.KEYS, stream.key))
    if not isinstance(stream, Stream):
        raise DataflowError(f"{what} at {users_line()} is {show(stream)}: it must be a Stream or KeyedStream of this dataflow")
    stream = own_stream(flow, stream, what)
    return LogicalEdge(stream.node, stream.port, stream.partition)


@explains_calls
class KeyedStream(Advising, Generic[K, V]):
    """Records with a key. Aggregations give ``(key, value)`` records: running totals, each changed key once in every completed epoch.

    With more than one epoch these are updates, each of which replaces the key's earlier value; operators with state refuse them (see
    ``Stream.as_records``).
    """

    def __init__(self, stream: Stream[V], key: KeySelector, ttl: Ttl | None = None) -> None:
        self.stream = stream
        self.key = key
        self.time_to_live = ttl

    def __repr__(self) -> str:
        return f"<KeyedStream {self.stream.name!r} of {self.flow.name!r} by {self.key.describe()}>"

    @property
    def flow(self) -> Dataflow:
        """The dataflow that this stream belongs to."""
        return self.stream.flow

    def ttl(self, after: Any, of: Literal["keys", "records"] = "keys") -> KeyedStream[K, V]:
        """Let operators behind this stream forget keys that have been inactive for long (time-to-live).

        A key is forgotten when an epoch completes and the key's largest event time is more than ``after`` behind the watermark; if it comes
        again, it starts afresh. ``after`` is a number or timedelta in the unit of the event times, or an ``rd.Ttl``.

        It applies to running totals, ``fold``, ``reduce``, ``top_k``, ``distinct``, ``lag``, ``head``, ``latest``, ``stateful_map``, and to
        the join over all time, where both sides need it; windows and joins in time end by themselves. ``stateful_map`` and ``join`` then
        answer when an epoch completes. Not allowed in loops.

        ``of="records"``: each record is forgotten ``after`` past its own event time, even if its key stays active. This is for the join
        over all time, which then gives no pair of records further apart than the earlier one's time-to-live, and for ``distinct``, where a
        value counts as new again more than ``after`` later. Each side of a join may have its own time-to-live.
        """
        ttl = after if isinstance(after, Ttl) else Ttl(after, of)
        if of not in ("keys", ttl.of):
            raise DataflowError(f"ttl at {users_line()} was given {ttl!r} and of={of!r}: say it once, rd.Ttl({ttl.after!r}, of={of!r})")
        for length in require_event_time(self.stream, "ttl", "keys end outside of all loops").lengths():
            kind_of_lengths([ttl.after, length])
        return KeyedStream(self.stream, self.key, ttl)

    def _running(self, base: str, element: el.Element, make: Any, name: str | None) -> Stream:
        out = exchange(self, base, element, make, name)
        updates.gives_updates(self.flow.graph, out.node, self.stream.node)
        return out

    def _aggregate(self, aggregator: agg.Aggregator, value: Any, name: str | None) -> Stream:
        selector = value_of(self, value, aggregator.name)
        fitting.require_values(schemas.known(self.stream), aggregator, selector, aggregator.name, self.key.columns)
        element = Combine(self.key, selector, aggregator)
        return self._running(aggregator.name, element, Make(totals.Totals, aggregator, columnar=bool(self.key.columns)), name)

    def count(self, *, name: str | None = None) -> Stream[tuple[K, int]]:
        """Count the records of each key."""
        return self._aggregate(agg.Count(), None, name)

    @overload
    def sum(self, value: Callable[[V], U], *, exact: bool = False, name: str | None = None) -> Stream[tuple[K, U]]: ...
    @overload
    def sum(
        self: KeyedStream[X, tuple[Any, Never]], value: None = None, *, exact: bool = False, name: str | None = None
    ) -> Stream[tuple[X, Any]]: ...
    @overload
    def sum(
        self: KeyedStream[X, tuple[Any, int]], value: None = None, *, exact: bool = False, name: str | None = None
    ) -> Stream[tuple[X, int]]: ...
    @overload
    def sum(
        self: KeyedStream[X, tuple[Any, W]], value: None = None, *, exact: bool = False, name: str | None = None
    ) -> Stream[tuple[X, W]]: ...
    @overload
    def sum(
        self: KeyedStream[X, Plain], value: None = None, *, exact: bool = False, name: str | None = None
    ) -> Stream[tuple[X, Plain]]: ...
    @overload
    def sum(self, value: str | None = None, *, exact: bool = False, name: str | None = None) -> Stream[tuple[K, Any]]: ...
    def sum(self, value: Callable[[V], Any] | str | None = None, *, exact: bool = False, name: str | None = None) -> Any:
        """Sum ``value`` per key. ``value`` is a function or column; default: the second of a pair, the only column besides the key, or
        the record itself.

        Integers, decimals and fractions are summed exactly. Floats are added in order of arrival, so two runs may differ by rounding; with
        ``exact=True`` they are summed exactly and rounded once, which handles one record at a time even in columns. Text and lists are
        refused.
        """
        return self._aggregate(agg.ExactSum() if arguments.flag(exact, "sum: exact") else agg.Sum(), value, name)

    @overload
    def min(self, value: Callable[[V], U], *, name: str | None = None) -> Stream[tuple[K, U]]: ...
    @overload
    def min(self: KeyedStream[X, tuple[Any, W]], value: None = None, *, name: str | None = None) -> Stream[tuple[X, W]]: ...
    @overload
    def min(self: KeyedStream[X, Plain], value: None = None, *, name: str | None = None) -> Stream[tuple[X, Plain]]: ...
    @overload
    def min(self, value: str | None = None, *, name: str | None = None) -> Stream[tuple[K, Any]]: ...
    def min(self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Any:
        """Keep the smallest ``value`` of each key."""
        return self._aggregate(agg.Min(), value, name)

    @overload
    def max(self, value: Callable[[V], U], *, name: str | None = None) -> Stream[tuple[K, U]]: ...
    @overload
    def max(self: KeyedStream[X, tuple[Any, W]], value: None = None, *, name: str | None = None) -> Stream[tuple[X, W]]: ...
    @overload
    def max(self: KeyedStream[X, Plain], value: None = None, *, name: str | None = None) -> Stream[tuple[X, Plain]]: ...
    @overload
    def max(self, value: str | None = None, *, name: str | None = None) -> Stream[tuple[K, Any]]: ...
    def max(self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Any:
        """Keep the largest ``value`` of each key."""
        return self._aggregate(agg.Max(), value, name)

    def mean(self, value: Callable[[V], Any] | str | None = None, *, exact: bool = False, name: str | None = None) -> Stream[tuple[K, Any]]:
        """Compute the arithmetic mean of ``value`` per key; for ``exact`` see :meth:`sum`. Means of decimals are rounded to 28 digits,
        or to as many as their sum has."""
        return self._aggregate(agg.ExactMean() if arguments.flag(exact, "mean: exact") else agg.Mean(), value, name)

    def var(
        self, value: Callable[[V], Any] | str | None = None, *, ddof: int = 1, name: str | None = None
    ) -> Stream[tuple[K, float | None]]:
        """Compute the variance of ``value`` per key: of a sample, or with ``ddof=0`` of a whole population.

        None if there are fewer than ``ddof + 1`` values; nulls are ignored. Integers and fractions in rows are computed exactly and rounded
        once; everything else, decimals too, in floats.
        """
        return self._aggregate(Variance(ddof), value, name)

    def std(
        self, value: Callable[[V], Any] | str | None = None, *, ddof: int = 1, name: str | None = None
    ) -> Stream[tuple[K, float | None]]:
        """Compute the standard deviation of ``value`` per key: the square root of :meth:`var`."""
        return self._aggregate(Deviation(ddof), value, name)

    def any(self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Stream[tuple[K, bool | None]]:
        """Tell per key whether any ``value`` is true. Values are bools; nulls are ignored; None if there are only nulls."""
        return self._aggregate(AnyTrue(), value, name)

    def all(self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Stream[tuple[K, bool | None]]:
        """Tell per key whether all ``value`` are true. Values are bools; nulls are ignored; None if there are only nulls."""
        return self._aggregate(AllTrue(), value, name)

    @overload
    def first(self, value: None = None, *, by: Callable[[V], Any] | str | None = None, name: str | None = None) -> Stream[tuple[K, V]]: ...
    @overload
    def first(
        self, value: Callable[[V], U], *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> Stream[tuple[K, U]]: ...
    @overload
    def first(self, value: str, *, by: Callable[[V], Any] | str | None = None, name: str | None = None) -> Stream[tuple[K, Any]]: ...
    def first(
        self, value: Callable[[V], Any] | str | None = None, *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> Any:
        """Keep the first ``value`` (default: the record) of each key, by event time or by ``by``, a function or column.

        Ties: the one with the smallest ``repr``. Null values, and records whose position is null or NaN, are ignored.
        """
        return self._aggregate(*in_order(self, First(), value, by, "first"), name)

    @overload
    def last(self, value: None = None, *, by: Callable[[V], Any] | str | None = None, name: str | None = None) -> Stream[tuple[K, V]]: ...
    @overload
    def last(
        self, value: Callable[[V], U], *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> Stream[tuple[K, U]]: ...
    @overload
    def last(self, value: str, *, by: Callable[[V], Any] | str | None = None, name: str | None = None) -> Stream[tuple[K, Any]]: ...
    def last(
        self, value: Callable[[V], Any] | str | None = None, *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> Any:
        """Keep the last ``value`` (default: the record) of each key, by event time or by ``by``, a function or column.

        Ties: the one with the greatest ``repr``. Null values, and records whose position is null or NaN, are ignored.
        """
        return self._aggregate(*in_order(self, Last(), value, by, "last"), name)

    def count_distinct(self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Stream[tuple[K, int]]:
        """Count the different ``value`` of each key, exactly: all of them are stored. Nulls are ignored. Values are compared as in
        :meth:`distinct`."""
        return self._aggregate(CountDistinct(), value, name)

    def approx_count_distinct(self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Stream[tuple[K, int]]:
        """Estimate how many different ``value`` each key has, by a sketch of 2.5 kB per key with a standard error of 1.1 %.

        Nulls are ignored. Handles rows. Needs ``pip install 'rayad[sketches]'``.
        """
        return self._aggregate(ApproxCountDistinct(), value, name)

    def quantile(
        self, q: float, value: Callable[[V], Any] | str | None = None, *, relative_error: float = 0.01, name: str | None = None
    ) -> Stream[tuple[K, Any]]:
        """Estimate the quantile ``q`` (0 to 1; 0.5 is the median) of ``value`` per key, by a sketch.

        The result is within ``relative_error`` of the value with rank floor(q * (n - 1)) among n values. Null and NaN are ignored. Handles
        rows. Needs ``pip install 'rayad[sketches]'``.
        """
        return self._aggregate(Quantile(q, relative_error), value, name)

    @overload
    def collect_list(self, value: Callable[[V], U], *, name: str | None = None) -> Stream[tuple[K, list[U]]]: ...
    @overload
    def collect_list(self: KeyedStream[X, tuple[Any, W]], value: None = None, *, name: str | None = None) -> Stream[tuple[X, list[W]]]: ...
    @overload
    def collect_list(self: KeyedStream[X, Plain], value: None = None, *, name: str | None = None) -> Stream[tuple[X, list[Plain]]]: ...
    @overload
    def collect_list(self, value: str | None = None, *, name: str | None = None) -> Stream[tuple[K, list[Any]]]: ...
    def collect_list(self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Any:
        """Collect the non-null ``value`` of each key in a list. Each update has the whole list.

        Epochs are in order; within an epoch the order is that of arrival, which another run need not repeat.
        """
        return self._aggregate(CollectList(), value, name)

    @overload
    def reduce(self, function: Callable[[V, V], U], value: None = None, *, name: str | None = None) -> Stream[tuple[K, V | U]]: ...
    @overload
    def reduce(self, function: Callable[[W, W], U], value: Callable[[V], W], *, name: str | None = None) -> Stream[tuple[K, W | U]]: ...
    @overload
    def reduce(self, function: Callable[[Any, Any], Any], value: str, *, name: str | None = None) -> Stream[tuple[K, Any]]: ...
    def reduce(self, function: Callable[[Any, Any], Any], value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Any:
        """Combine the records (or ``value``) of each key by ``function(a, b)``, which must be associative and commutative.

        ``min``, ``max``, ``operator.add``, ``and_`` and ``or_`` of a column stay in columns, where that gives the same result.
        """
        return self._aggregate(agg.Reduce(checked_function(function, "reduce", "left", "right")), record_unless(value), name)

    @overload
    def top_k(
        self, k: int, value: None = None, *, by: Callable[[V], Any] | str | None = None, name: str | None = None
    ) -> Stream[tuple[K, list[V]]]: ...
    @overload
    def top_k(
        self, k: int, value: Callable[[V], U], *, by: Callable[[U], Any] | str | None = None, name: str | None = None
    ) -> Stream[tuple[K, list[U]]]: ...
    @overload
    def top_k(
        self, k: int, value: str, *, by: Callable[[Any], Any] | str | None = None, name: str | None = None
    ) -> Stream[tuple[K, list[Any]]]: ...
    def top_k(
        self,
        k: int,
        value: Callable[[V], Any] | str | None = None,
        *,
        by: Callable[[Any], Any] | str | None = None,
        name: str | None = None,
    ) -> Any:
        """Keep the ``k`` largest records (or ``value``) of each key, as a list, largest first.

        ``by``, a function or column, gives what is compared; records for which it is null or NaN are ignored.
        """
        require_order(self, by, value, "top_k")
        return self._aggregate(TopK(k, by), record_unless(value), name)

    @overload
    def aggregate(self, aggregator: dict[str, Any], value: None = None, *, name: str | None = None) -> Stream[tuple[K, dict[str, Any]]]: ...
    @overload
    def aggregate(
        self, aggregator: Aggregator | str, value: Callable[[V], Any] | str | None = None, *, name: str | None = None
    ) -> Stream[tuple[K, Any]]: ...
    def aggregate(self, aggregator: Any, value: Any = None, *, name: str | None = None) -> Any:
        """Compute an :class:`Aggregator` of your own, or several aggregations at once.

        A dict gives ``(key, dict)``: ``{"flights": "count", "delay": ("mean", "dep_delay")}``. The third item of a tuple is the order for
        ``first`` and ``last``: ``("last", "price", "time")``.
        """
        if isinstance(aggregator, dict):
            combined, values = several(self, aggregator, self.key.columns)
            return self._aggregate(combined, values, name)
        return self._aggregate(*in_order(self, by_name(aggregator), value, None, "aggregate"), name)

    @overload
    def fold(
        self, initial: Any, function: Callable[[Any, V], U], value: None = None, *, name: str | None = None
    ) -> Stream[tuple[K, U]]: ...
    @overload
    def fold(
        self, initial: Any, function: Callable[[Any, W], U], value: Callable[[V], W], *, name: str | None = None
    ) -> Stream[tuple[K, U]]: ...
    @overload
    def fold(self, initial: Any, function: Callable[[Any, Any], U], value: str, *, name: str | None = None) -> Stream[tuple[K, U]]: ...
    def fold(
        self, initial: Any, function: Callable[[Any, Any], Any], value: Callable[[V], Any] | str | None = None, *, name: str | None = None
    ) -> Any:
        """Fold the records (or ``value``) of each key: ``function(state, value)`` returns the new state. ``initial`` is the first state,
        or a function that makes it."""
        _check_initial(initial, "fold (initial)")
        element = keyed.PairValue(self.key, value_of(self, record_unless(value), "fold"))
        return self._running("fold", element, Make(totals.Fold, initial, checked_function(function, "fold", "state", "value")), name)

    @overload
    def distinct(self, value: None = None, *, name: str | None = None) -> Stream[tuple[K, V]]: ...
    @overload
    def distinct(self, value: Callable[[V], U], *, name: str | None = None) -> Stream[tuple[K, U]]: ...
    @overload
    def distinct(self, value: str, *, name: str | None = None) -> Stream[tuple[K, Any]]: ...
    def distinct(self, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Any:
        """Send each distinct ``(key, record)`` once, or each ``(key, value)``. Records are compared by content; dicts, lists and NaN are
        allowed."""
        selector = value_of(self, record_unless(value), "distinct")
        if self.time_to_live is not None and self.time_to_live.of == "records":
            from rayad.dataflow.streams.in_time.records_that_end import distinct_of_records

            return distinct_of_records(self, selector, self.time_to_live, name)
        return exchange(self, "distinct", OnceInBatch(self.key, selector), Make(Distinct), name)

    @overload
    def lag(self, by: Callable[[V], Any] | str, value: None = None, *, name: str | None = None) -> Stream[tuple[K, tuple[V | None, V]]]: ...
    @overload
    def lag(
        self, by: Callable[[U], Any] | str, value: Callable[[V], U], *, name: str | None = None
    ) -> Stream[tuple[K, tuple[U | None, U]]]: ...
    @overload
    def lag(self, by: Callable[[Any], Any] | str, value: str, *, name: str | None = None) -> Stream[tuple[K, tuple[Any | None, Any]]]: ...
    def lag(self, by: Callable[[Any], Any] | str, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Any:
        """Pair each record (or ``value``) with the previous one of its key: ``(key, (previous, record))``; ``previous`` is None for the
        first.

        Records are ordered by epoch (in loops also by round), then by ``by``, a function or column, then by their ``repr``. Results are
        sent when the epoch completes.
        """
        require_order(self, by, value, "lag")
        element = keyed.PairValue(self.key, value_of(self, record_unless(value), "lag"))
        return exchange(self, "lag", element, Make(Lag, _place(by, "lag")), name)

    @overload
    def latest(self, by: Callable[[V], Any] | str, value: None = None, *, name: str | None = None) -> Stream[tuple[K, V]]: ...
    @overload
    def latest(self, by: Callable[[U], Any] | str, value: Callable[[V], U], *, name: str | None = None) -> Stream[tuple[K, U]]: ...
    @overload
    def latest(self, by: Callable[[Any], Any] | str, value: str, *, name: str | None = None) -> Stream[tuple[K, Any]]: ...
    def latest(self, by: Callable[[Any], Any] | str, value: Callable[[V], Any] | str | None = None, *, name: str | None = None) -> Any:
        """Send the last record (or ``value``) of each key, as ``(key, record)``, when the input has ended.

        Records are ordered as in :meth:`lag`. For running totals use ``totals.latest()``.
        """
        require_order(self, by, value, "latest")
        element = keyed.PairValue(self.key, value_of(self, record_unless(value), "latest"))
        return exchange(self, "latest", element, Make(Latest, _place(by, "latest")), name)

    @overload
    def head(self, n: int, by: Callable[[V], Any] | str, value: None = None, *, name: str | None = None) -> Stream[tuple[K, V]]: ...
    @overload
    def head(self, n: int, by: Callable[[U], Any] | str, value: Callable[[V], U], *, name: str | None = None) -> Stream[tuple[K, U]]: ...
    @overload
    def head(self, n: int, by: Callable[[Any], Any] | str, value: str, *, name: str | None = None) -> Stream[tuple[K, Any]]: ...
    def head(
        self, n: int, by: Callable[[Any], Any] | str, value: Callable[[V], Any] | str | None = None, *, name: str | None = None
    ) -> Any:
        """Send the first ``n`` records (or ``value``) of each key, as ``(key, record)``. Later ones are dropped and take no memory.

        Records are ordered as in :meth:`lag`.
        """
        require_order(self, by, value, "head")
        element = keyed.PairValue(self.key, value_of(self, record_unless(value), "head"))
        return exchange(self, "head", element, Make(Head, arguments.whole(n, "head: n", least=1), _place(by, "head")), name)

    @overload
    def stateful_map(
        self, function: Callable[[Any, V], tuple[Any, U | None]], initial: Any = None, value: None = None, *, name: str | None = None
    ) -> Stream[tuple[K, U]]: ...
    @overload
    def stateful_map(
        self, function: Callable[[Any, W], tuple[Any, U | None]], initial: Any = None, *, value: Callable[[V], W], name: str | None = None
    ) -> Stream[tuple[K, U]]: ...
    @overload
    def stateful_map(
        self, function: Callable[[Any, Any], tuple[Any, U | None]], initial: Any = None, *, value: str, name: str | None = None
    ) -> Stream[tuple[K, U]]: ...
    def stateful_map(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        initial: Any = None,
        value: Callable[[V], Any] | str | None = None,
        *,
        name: str | None = None,
    ) -> Any:
        """Call ``function(state, record)`` for each record as it arrives; it returns ``(state, out)``, and ``(key, out)`` is sent.

        ``initial`` is the state of a new key, or a function that makes one. A returned state of None forgets the key; an ``out`` of None is
        not sent.
        """
        _check_initial(initial, "stateful_map (initial)")
        element = keyed.PairValue(self.key, value_of(self, record_unless(value), "stateful_map"))
        make = Make(StatefulMap, checked_function(function, "stateful_map", "state", "record"), initial)
        return exchange(self, "stateful_map", element, make, name)

    @overload
    def join(
        self, other: KeyedStream[Any, W], *, broadcast: bool = False, name: str | None = None, parallelism: int | None = None
    ) -> Stream[tuple[K, tuple[V, W]]]: ...
    @overload
    def join(
        self,
        other: KeyedStream[Any, W],
        *,
        within: Between,
        how: Literal["inner"] = "inner",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> LateStream[tuple[K, tuple[V, W]], tuple[K, tuple[V | None, W | None]]]: ...
    @overload
    def join(
        self, other: KeyedStream[Any, W], *, within: Between, how: How, name: str | None = None, parallelism: int | None = None
    ) -> LateStream[tuple[K, Any], tuple[K, tuple[V | None, W | None]]]: ...
    def join(
        self,
        other: KeyedStream[Any, Any],
        *,
        within: Between | None = None,
        how: How = "inner",
        broadcast: bool = False,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Inner join: ``(key, (left, right))`` for each pair of records with equal keys, at the least upper
        bound of their times.

        ``broadcast=True``: ``other`` is small, and goes to every replica; records of this stream are not exchanged by key, so a
        frequent key does no harm. The results are the same; they come when their epoch is complete. Not in loops, and not with ``within``
        or ``ttl``.

        With ``within=rd.between(lower, upper)`` only pairs whose event times are so far from each other: ``lower <= right - left <=
        upper``. Then ``how`` may be as in SQL: "left", "right" and "full" also give records that meet none, with None in the other's
        place, "semi" and "anti" give records of this stream alone, ``(key, record)``, that meet some or none. A null key equals nothing.
        Pairs come in the epoch of the later of the two, records that meet none in that in which the watermarks of both streams have
        passed their intervals; then they are forgotten. A record that comes behind both watermarks is in no result: ``late`` has it,
        as ``(key, (record, None))``, or ``(key, (None, record))`` of ``other``.
        """
        from rayad.dataflow.streams.keyed_joins import join

        return join(self, other, within, how, broadcast, name, parallelism)

    def join_asof(
        self,
        other: KeyedStream[Any, W],
        *,
        how: AsOfHow = "left",
        direction: Direction = "backward",
        tolerance: Any = None,
        allow_exact_matches: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> LateStream[tuple[K, tuple[V, W | None]], tuple[K, tuple[V | None, W | None]]]:
        """Join each record with the last record of ``other`` that has its key and is not later, by event time: a trade with the price at
        that time.

        Results are ``(key, (left, right))``, one for each left record; ``right`` is None if there is none, and with ``how="inner"`` such
        records are dropped. ``direction="forward"`` looks for the first record that is not earlier, ``"nearest"`` for the nearer of the two
        (the earlier one on a tie). ``tolerance`` is the largest distance, a number or timedelta like the event times;
        ``allow_exact_matches=False`` excludes equal times.

        A result is sent in the epoch in which both watermarks have passed everything that the left record could still match: its own event
        time, and for "forward" and "nearest" that of a right record ahead, or the tolerance; at the latest at the end of the input. Among
        right records with equal event times the one of the later epoch wins; within an epoch the one with the greater ``repr``, because
        arrival order is undefined. Except for "forward", the last right record of each key is kept; without ``tolerance`` it is kept for
        ever. A record behind both watermarks is in no result; ``late`` has it, as for :meth:`join`.
        """
        from rayad.dataflow.streams.keyed_joins import join_asof

        return join_asof(self, other, how, direction, tolerance, allow_exact_matches, name, parallelism)

    def window(self, windows: Windows, *, lateness: Any = None, early: bool = False) -> WindowedStream[V, K, Window]:
        """Aggregate in windows: see :mod:`rayad.windows`. Results are ``(key, window, value)``; ``.late`` of a result has the late
        records, as ``(key, window, record)``.

        An event-time window fires in the epoch in which the watermark passes its end. Windows that are still open when the input ends fire
        in the last epoch that any input upstream reached, even if none of its records came here; for a live input that is the last
        ``advance_to``.

        ``lateness``, in the unit of the event times: a window that has fired still accepts records until the watermark is so far beyond its
        end, and sends its new value in each epoch that changed it. ``early=True``: each epoch sends the new value of every window that it
        changed, even before the window's end. With either, results are updates, as those of running totals, whose key is ``(key, window)``;
        ``.changes()`` and ``.latest()`` read them. Windows are then tumbling, sliding or given, and handled in rows.
        """
        from rayad.dataflow.streams.windowed_stream import WindowedStream

        require_no_ttl(self, "window", "windows end when they fire; leave ttl() out")
        return WindowedStream(self, windows, lateness=lateness, early=early)

    def per_epoch(self) -> WindowedStream[V, K, Window]:
        """Aggregate each epoch on its own, instead of running totals: short for ``window(rd.windows.per_epoch())``."""
        return self.window(PerEpoch())

    def process(
        self, process: Callable[[], Process], *, other: KeyedStream | None = None, name: str | None = None, parallelism: int | None = None
    ) -> Stream[tuple[K, Any]]:
        """Run an ``rd.Process`` (a class, or a function that makes one) and send ``(key, value)`` for each value that it emits.

        It keeps a state for each key, gets the records of an epoch in order of event time when the epoch completes, and timers when the
        watermark has passed them; timers that are left fire at the end of the input. Records of ``other``, a second keyed stream, go to
        ``on_other``. Handles rows.
        """
        from rayad.dataflow.streams.in_time.processes import keyed_process

        return keyed_process(self, process, other, name, parallelism)

    @overload
    def vertex(self, vertex: Callable[[], Vertex], *, outputs: Literal[1] = 1, **how: Unpack[OfKeyedVertex]) -> Stream[Any]: ...
    @overload
    def vertex(self, vertex: Callable[[], Vertex], *, outputs: Literal[0], **how: Unpack[OfKeyedVertex]) -> None: ...
    @overload
    def vertex(self, vertex: Callable[[], Vertex], *, outputs: Literal[2], **how: Unpack[OfKeyedVertex]) -> tuple[Stream, Stream]: ...
    @overload
    def vertex(self, vertex: Callable[[], Vertex], *, outputs: int, **how: Unpack[OfKeyedVertex]) -> Any: ...
    def vertex(self, vertex: Callable[[], Vertex], *, outputs: int = 1, name: str | None = None, parallelism: int | None = None) -> Any:
        """Add a vertex with this stream as its only input, exchanged by key: see :meth:`Dataflow.vertex`."""
        return self.flow.vertex(vertex, inputs=[self], outputs=outputs, name=name, parallelism=parallelism)


def _check_initial(initial: Any, what: str) -> None:
    if callable(initial):
        checked_function(initial, what)


def _place(by: Any, what: str) -> Callable[[Any], Any]:
    if isinstance(by, str):
        return itemgetter(by)
    if not callable(by):
        raise DataflowError(f"{what} was given by={show(by, 60)}: give a function of the record or a column name")
    return checked_function(by, f"{what} (by)", "record")


class Tuple:
    """A picklable function: several values of one record as a tuple."""

    def __init__(self, functions: list[Callable[[Any], Any]]) -> None:
        self.functions = functions

    def __call__(self, record: Any) -> tuple[Any, ...]:
        return tuple([f(record) for f in self.functions])


def several(keyed_stream: KeyedStream, spec: dict[str, Any], others: tuple[str, ...]) -> tuple[agg.Several, Tuple]:
    """The aggregation that a dict describes, and what takes its values out of a record of ``keyed_stream``; columns ``others`` are none."""
    if not spec:
        raise DataflowError("aggregate was given an empty dict: name at least one aggregation")
    parts: dict[str, agg.Aggregator] = {}
    selectors: list[ValueSelector] = []
    for name, entry in spec.items():
        if not isinstance(name, str):
            raise DataflowError(f"aggregate was given {show(name, 60)} as a name: it must be a string")
        if isinstance(entry, tuple) and len(entry) not in (2, 3):
            raise DataflowError(
                f"aggregate was given {show(entry)} for {name!r}: give an aggregation, a pair (aggregation, value), or of first and last "
                "(aggregation, value, by)"
            )
        how, value, by = (*entry, None)[:3] if isinstance(entry, tuple) else (entry, None, None)
        what = f"aggregate ({show(name, 60)})"
        parts[name], value = in_order(keyed_stream, by_name(how), value, by, what)
        selectors.append(value_of(keyed_stream, record_unless(value) if parts[name].takes_record else value, what))
        fitting.require_values(schemas.known(keyed_stream.stream), parts[name], selectors[-1], what, others)
    return agg.Several(parts, selectors), Tuple([selector.row_value(others) for selector in selectors])
