"""Collections: records with multiplicities that change from epoch to epoch, and what is made of them, kept up to date.

A collection is a stream of changes, ``(record, weight)``: so often a record is inserted, or removed where the weight is negative. Operators
without state work on the changes; all others are vertices that handle one moment after another (``moment_vertex.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.keys.keyed import PAIRS
from rayad.dataflow.operators.projections import OfFields
from rayad.dataflow.records.calling import checked_function
from rayad.dataflow.resources import Asked
from rayad.dataflow.streams.keyed_stream import KeyedStream
from rayad.dataflow.streams.loops import Loop
from rayad.dataflow.streams.making import Make
from rayad.dataflow.windows import AsOf, Between, Direction, Session, Sliding, Tumbling
from rayad.incremental import aggregating, functions, ranking, reducing, steps
from rayad.incremental.columns import ordered
from rayad.incremental.columns import steps as columns
from rayad.incremental.columns.grouped import Grouped, OfSides
from rayad.incremental.columns.linear import AnyOfKey, Counted, Linear, Summed
from rayad.incremental.columns.linear import Present as AnyPresent
from rayad.incremental.columns.thresholds import Threshold
from rayad.incremental.consolidating import Consolidate
from rayad.incremental.event_time import operators as in_time
from rayad.incremental.event_time.ending import Ending, EndingReduce
from rayad.incremental.fixed_points import brought_into, fixed_point, together
from rayad.incremental.inputs.sources import Present
from rayad.incremental.joins.arranged import joined_by_arrangement
from rayad.incremental.joins.arranging import Arrangement
from rayad.incremental.joins.join import Join
from rayad.incremental.joins.kinds import HOWS, KINDS, LEFT, LEFT_KEYS, RIGHT_KEYS, How
from rayad.incremental.keeping_nothing import EnterAt, taken_together
from rayad.incremental.outputs.ends import Ends, Key, key_of
from rayad.incremental.reads import table_of_counts, table_of_records
from rayad.incremental.record_by_record import RecordByRecord
from rayad.incremental.records import as_record
from rayad.progress import DataflowError, arguments, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream


class Collection(RecordByRecord, Ends):
    """Records with multiplicities that change at times.

    >>> import rayad as rd
    >>> flow = rd.Dataflow("friends")
    >>> knows = flow.from_epochs([[("ann", "bob"), ("bob", "cid")], [("ann", "cid")]]).as_collection()
    >>> degrees = knows.key_by(lambda pair: pair[0]).count()
    >>> _ = degrees.changes().collect("degrees")
    >>> for epoch, change in sorted((time.epoch, change) for time, change in flow.run(runtime="local")["degrees"]):
    ...     print(epoch, change)
    0 (('ann', 1), 1)
    0 (('bob', 1), 1)
    1 (('ann', 1), -1)
    1 (('ann', 2), 1)
    """

    def __init__(self, stream: Stream, loops: tuple[Loop, ...] | None = None, *, checked: bool = True) -> None:
        """Of a stream of changes, ``(record, weight)``.

        A record that goes and is not there ends the job with an error that names it; how often each record is there is kept for that, and
        looked up for each change. ``checked=False``: it is not, for streams that are known to be right; then operators that see less than
        nothing of a record, or of a key, are an error (:meth:`distinct`, :meth:`KeyedCollection.count`, ...), and others give wrong tables.
        ``loops``: of collections that come from others, which are not looked at again.
        """
        if loops is None:
            stream = taken_together(stream)
            if arguments.flag(checked, "Collection: checked"):
                stream = Collection(stream, ()).by_record().vertex(Make(Present), "present", None)
        self.stream = stream
        """Of the changes."""
        self.loops = loops or ()
        """Around it, the outermost first."""
        self.schema: pa.Schema | None = None
        """The fields of its records and their types, for ``flow.sql``; None: they are not known."""

    def with_schema(self, schema: pa.Schema) -> Self:
        """The same collection, of records that have these fields, for :meth:`rayad.Dataflow.sql`.

        It reads those that a query needs: a record that has no such field, or a value that the type does not hold, ends the job with an
        error that names it. Other fields may be there.
        """
        if not isinstance(schema, pa.Schema) or len(set(schema.names)) < len(schema) or not len(schema):
            raise DataflowError(f"with_schema() was given {show(schema, 80)}: give a pyarrow.schema whose fields have names of their own")
        made = self._made(self.stream)
        made.schema = schema
        return made

    def __repr__(self) -> str:
        return f"<Collection {self.stream.name!r} of {self.stream.flow.name!r}>"

    def negate(self) -> Collection:
        """What is inserted here is removed there."""
        return self._as_here(self._made(columns.mapped(self.stream, steps.negated, columns.negated)))

    def concat(self, *others: Collection) -> Collection:
        """The records of all, with the sums of their multiplicities. Collections from outside of a loop come into it by themselves."""
        if not others or not all(isinstance(other, Collection) for other in others):
            raise DataflowError(f"concat() was given {show(others, 60)}: give collections")
        all_of, loops = together(self, *others)
        made = Collection(all_of[0].union(*all_of[1:]), loops)
        return self._as_here(made) if all(other.schema == self.schema for other in others) else made

    # -- whole records ---------------------------------------------------------------------------------------
    def distinct(self, *, name: str | None = None) -> Collection:
        """Each record that is there, once."""
        there = self.by_record().reduce_weights(reducing.distinct, "distinct", name=name, in_columns=AnyPresent())
        return self._as_here(self._made(columns.mapped(there.stream, steps.Mapped(itemgetter(0)), columns.first)))

    def threshold(self, function: Callable[[Any, int], int] | pc.Expression, *, name: str | None = None) -> Collection:
        """Each record as often as ``function(record, count)`` says, or an expression of the pair of both: ``rd.col("0")`` is the record,
        ``rd.col("0", "a")`` a field of it, ``rd.col("1")`` the count; true is once, null and false not at all."""
        in_columns = Threshold(function) if isinstance(function, pc.Expression) else None
        made = functions.Threshold(in_columns or checked_function(function, "threshold", "record", "count"))
        there = self.by_record().reduce_weights(made, "threshold", name=name, in_columns=in_columns)
        return self._made(columns.mapped(there.stream, steps.Mapped(itemgetter(0)), columns.first))

    def intersect(self, other: Collection, *, name: str | None = None) -> Collection:
        """The distinct records that are in both."""
        return self._of_sides(other, functions.in_both, "intersect", name, in_both=True)

    def except_(self, other: Collection, *, name: str | None = None) -> Collection:
        """The distinct records that are in this one, and not in the other."""
        return self._of_sides(other, functions.in_first_alone, "except", name, in_both=False)

    def _of_sides(self, other: Collection, function: reducing.Function, base: str, name: str | None, *, in_both: bool) -> Collection:
        streams, loops = together(self, other)
        tagged = [columns.mapped(stream, steps.Tagged(side), columns.Tagged(side)) for side, stream in enumerate(streams)]
        both = KeyedCollection(tagged[0].union(tagged[1]), loops)
        there = both.reduce_weights(function, base, name=name, in_columns=OfSides(in_both))
        return Collection(columns.mapped(there.stream, steps.Mapped(itemgetter(0)), columns.first), loops)

    def by_record(self) -> KeyedCollection:
        """Keyed by the whole record."""
        made = KeyedCollection(columns.mapped(self.stream, steps.by_record, columns.by_record), self.loops)
        made.shows = table_of_counts(self.schema)
        return made

    def consolidate(self, *, name: str | None = None) -> Collection:
        """The same collection; changes that come to nothing at a moment are dropped."""
        return self._as_here(self._made(self.by_record().vertex(Make(Consolidate), "consolidate", name)))

    # -- keys --------------------------------------------------------------------------------------------------
    def key_by(self, key: Callable[[Any], Any] | str) -> KeyedCollection:
        """Key the records by a function, or by a field of records that are dicts. Keys and records are hashable."""
        keyed = steps.Keyed(steps.selected(key, "key_by"))
        in_columns = columns.KeyedBy(key) if isinstance(key, str) else columns.in_rows
        made = KeyedCollection(columns.mapped(self.stream, keyed, in_columns), self.loops)
        made.shows = table_of_records(self.schema, key if isinstance(key, str) else None)
        return made

    def arrange_by(self, key: Callable[[Any], Any] | str, *, name: str | None = None) -> KeyedCollection:
        """As :meth:`key_by`, for a side that several joins share: see :meth:`KeyedCollection.arrange`."""
        return self.key_by(key).arrange(name=name)

    def keyed(self) -> KeyedCollection:
        """Pairs by their first, the second as the record: what keyed operators give."""
        return KeyedCollection(columns.mapped(self.stream, steps.by_first, columns.by_first), self.loops)

    # -- loops ---------------------------------------------------------------------------------------------------
    def iterate(self, body: Callable[[Collection], Collection], *, max_rounds: int | None = None, name: str | None = None) -> Collection:
        """To a fixed point: the collection that ``body`` makes of itself.

        ``inner`` begins as this collection; each round is what ``body(inner)`` makes of the round before it. Where a record comes or goes
        only what follows from it is computed anew, in each round, also in loops inside loops.

        Args:
            body: is given the collection inside the loop, and gives the next round of it.
            max_rounds: the last round; None: until nothing changes.
            name: of the loop.
        """
        checked_function(body, "iterate", "inner", rule="it takes a function body(inner) that gives the next round")
        return fixed_point({"it": self}, lambda inner: {"it": body(inner["it"])}, max_rounds=max_rounds, name=name)["it"]

    def enter_at(self, inner: Collection, round_of: Callable[[Any], int], *, name: str | None = None) -> Collection:
        """This collection inside the loop of ``inner``, where each record is from round ``round_of(record)`` on, and not before.

        For what would be in vain at once, such as large labels where smaller ones come: the loop then starts small. The fixed point is the
        same.
        """
        if not isinstance(inner, Collection) or not inner.loops:
            raise DataflowError(f"enter_at() was given {show(inner, 60)}: give what the body of iterate() was given")
        made = Make(EnterAt, checked_function(round_of, "enter_at", "record"))
        stream = brought_into(self, inner.loops)
        return Collection(stream.flow.vertex(made, inputs=[stream], name=name), inner.loops)

    def _made(self, stream: Stream) -> Self:
        return type(self)(stream, self.loops)

    def _as_here(self, made: Self, projection: OfFields | None = None) -> Self:
        """``made``, whose records have the fields that they have here, or those that a projection makes of them."""
        made.schema = self.schema if projection is None or self.schema is None else projection.schema_of(self.schema)
        return made


class KeyedCollection:
    """Records with a key, whose multiplicities change. Results are collections of ``(key, result)``."""

    def __init__(
        self, stream: Stream, loops: tuple[Loop, ...], arrangement: Arrangement | None = None, ending: Ending | None = None
    ) -> None:
        self.stream = stream
        """Of ``(key, value, weight)``."""
        self.loops = loops
        self.arrangement = arrangement
        """What its joins share; None: each keeps it for itself."""
        self.ending = ending
        """When its keys, which have windows, are forgotten; None: never."""
        self.shows: pa.Schema | None = None
        """The columns of a table of it, as far as they are known: of its records by key, or, by record, of how often each is there."""

    def arrange(self, *, name: str | None = None) -> KeyedCollection:
        """The same collection, which is kept once for all :meth:`join` s with it that do not feed each other, not once for each.

        A join that feeds another keeps it again, and so does each loop. ``name``: of their vertex, of which ``flow.explain()`` tells more.
        """
        self.require_no_ending("arrange")
        made = KeyedCollection(self.stream, self.loops)
        made.shows = self.shows
        made.arrangement = Arrangement(made, name)
        return made

    def vertex(self, make: Make, base: str, name: str | None, *others: KeyedCollection, **asked: Unpack[Asked]) -> Stream:
        """A vertex to which these come by key."""
        streams = [self.stream, *(other.stream for other in others)]
        make.__name__ = base
        return self.stream.flow.vertex(make, inputs=[KeyedStream(stream, PAIRS) for stream in streams], name=name, **asked)

    def reduce_weights(
        self, function: reducing.Function, base: str = "reduce", *, name: str | None = None, in_columns: Linear | Grouped | None = None
    ) -> Collection:
        """``function(key, weights)`` of the weights by value, once more whenever those of the key change: gives results and their
        weights. ``in_columns``: the same in columns."""
        return self.summed(function, None, base, name, in_columns)

    def summed(
        self,
        function: reducing.Function,
        vector: Callable[[Any], Any] | None,
        base: str,
        name: str | None,
        in_columns: Linear | Grouped | None,
    ) -> Collection:
        """As :meth:`reduce_weights`, of the sum of a vector over the values."""
        if self.ending is not None:
            made = Make(EndingReduce, self.ending.rule, function, vector, in_columns)
            return Collection(self.vertex(made, base, name, KeyedCollection(self.ending.times, ())), ())
        make = Make(reducing.Reduce, function, vector, in_columns)
        make.shows = self.shows if function is reducing.distinct else None
        return Collection(self.vertex(make, base, name), self.loops)

    def reduce(self, function: Callable[[Any, list[Any]], Iterable[Any]], *, name: str | None = None) -> Collection:
        """``function(key, values)`` of all values of a key, each as often as it is there: gives an iterable of results."""
        made = functions.OfValues(checked_function(function, "reduce", "key", "values"))
        return self.reduce_weights(made, "reduce", name=name)

    def count(self, *, name: str | None = None) -> Collection:
        """How many records a key has."""
        return self.summed(functions.count, functions.one, "count", name, Counted())

    def sum(self, value: Callable[[Any], Any] | str, *, name: str | None = None) -> Collection:
        """The sum of ``value(record)``, or of a field, exact also for floating-point numbers; None is left out. Only sums are kept, no
        records."""
        linear = Summed(value) if isinstance(value, str) else None
        return self.summed(functions.total, functions.Added(steps.selected(value, "sum")), "sum", name, linear)

    def mean(self, value: Callable[[Any], Any] | str, *, name: str | None = None) -> Collection:
        """The mean of ``value(record)``, or of a field; None is left out. Only sums are kept, no records."""
        linear = Summed(value, mean=True) if isinstance(value, str) else None
        return self.summed(functions.mean, functions.Added(steps.selected(value, "mean")), "mean", name, linear)

    def min(self, value: Callable[[Any], Any] | str | None = None, *, name: str | None = None) -> Collection:
        """The smallest ``value(record)``, or the smallest of a field; without either the smallest record."""
        return self._best(min, "min", value, name)

    def max(self, value: Callable[[Any], Any] | str | None = None, *, name: str | None = None) -> Collection:
        """The largest ``value(record)``, or the largest of a field; without either the largest record."""
        return self._best(max, "max", value, name)

    def _best(self, choose: Callable[..., Any], what: str, value: Callable[[Any], Any] | str | None, name: str | None) -> Collection:
        made = functions.Best(choose, functions.value_of(value, what))
        in_columns = None if callable(value) else ordered.Best(choose is max, value)
        return self.reduce_weights(made, what, name=name, in_columns=in_columns)

    def top_k(self, k: int, value: Callable[[Any], Any] | str | None = None, *, name: str | None = None) -> Collection:
        """The ``k`` records with the largest ``value(record)``, each as one result; ties by the records themselves. Of a field as
        :meth:`row_number` has it with ``descending=True``."""
        k = arguments.whole(k, "top_k: k", least=1)
        if isinstance(value, str):
            return self._in_order(ranking.first(k, value, "top_k"), "top_k", name)
        made = functions.Top(k, functions.value_of(value, "top_k"))
        return self.reduce_weights(made, "top_k", name=name, in_columns=ordered.Top(k, None) if value is None else None)

    def aggregate(
        self, aggregations: Mapping[str, Any] | Aggregator | str, value: aggregating.Value = None, *, name: str | None = None
    ) -> Collection:
        """Several results at once, ``(key, {name: result})``: ``{"n": "count", "total": ("sum", "v"), "most": ("max", "v")}``; or one,
        ``(key, result)``, of ``value``: a name, or an :class:`rayad.Aggregator` of yours, which adds records in the order of their
        contents. Counts, sums and means keep no records.
        """
        function, vector, in_columns = aggregating.forms_of(aggregations, value)
        return self.summed(function, vector, "aggregate", name, in_columns)

    def join(self, other: KeyedCollection, how: How = "inner", *, name: str | None = None) -> Collection:
        """``(key, (left, right))`` for each pair of records of a key, None for what is not there; "semi" and "anti" give the left records
        that have, or do not have, a match, as ``(key, left)``. A key that is None matches nothing, as in SQL.

        What a join keeps besides the records are the keys of a side, where the other one's records may be alone.
        """
        arguments.choice(how, "join: how", *HOWS)
        loops = max(self.loops, _keyed(other, "join").loops, key=len)
        left, right = self.within(loops), other.within(loops)
        left.require_no_ending("join")
        right.require_no_ending("join")
        if left.arrangement is None and right.arrangement is None:
            return left.joined(right, how, name)
        if name is not None:
            raise DataflowError(f"join(name={name!r}): one side is arranged, and its joins are one vertex; give arrange(name=...) the name")
        return joined_by_arrangement(left, right, how)

    # -- in order ----------------------------------------------------------------------------------------------
    def row_number(self, order_by: Key, *, descending: bool = False, name: str | None = None) -> Collection:
        """``(key, (record, number))``: the records of a key in order, numbered from 1, as SQL's ``row_number``.

        ``order_by``: a function of the record, a field, or a list of fields. None comes last. Records equal in it are in the order of
        their contents. A change costs as much as its key has records; so for the others here.
        """
        return self._in_order(ranking.numbered(order_by, descending, "row_number"), "row_number", name)

    def rank(self, order_by: Key, *, descending: bool = False, dense: bool = False, name: str | None = None) -> Collection:
        """``(key, (record, rank))`` as SQL's ``rank``, or ``dense_rank``: equal ones have the same. ``order_by`` as in
        :meth:`row_number`."""
        dense = arguments.flag(dense, "rank: dense")
        return self._in_order(ranking.ranked(order_by, descending, "rank", dense=dense), "rank", name)

    def lag(self, order_by: Key, n: int = 1, *, default: Any = None, descending: bool = False, name: str | None = None) -> Collection:
        """``(key, (record, before))``: each record with the one ``n`` places before it in order, or ``default``. ``order_by`` as in
        :meth:`row_number`."""
        places = arguments.whole(n, "lag: n", least=0)
        return self._in_order(ranking.shifted(order_by, descending, "lag", places, as_record(default)), "lag", name)

    def lead(self, order_by: Key, n: int = 1, *, default: Any = None, descending: bool = False, name: str | None = None) -> Collection:
        """``(key, (record, after))``: each record with the one ``n`` places after it in order, or ``default``. ``order_by`` as in
        :meth:`row_number`."""
        places = -arguments.whole(n, "lead: n", least=0)
        return self._in_order(ranking.shifted(order_by, descending, "lead", places, as_record(default)), "lead", name)

    def _in_order(self, forms: tuple[reducing.Function, Grouped | None], what: str, name: str | None) -> Collection:
        function, in_columns = forms
        return self.reduce_weights(function, what, name=name, in_columns=in_columns)

    # -- in time -----------------------------------------------------------------------------------------------
    def join_asof(
        self,
        other: KeyedCollection,
        at: Key,
        other_at: Key | None = None,
        *,
        how: Literal["left", "inner"] = "left",
        direction: Direction = "backward",
        tolerance: Any = None,
        allow_exact_matches: bool = True,
        lateness: Any = None,
        name: str | None = None,
    ) -> Collection:
        """``(key, (left, right))`` for each record, with the last record of ``other`` that has its key and is not later.

        What comes late, is corrected or goes changes what was joined. ``at`` gives the event time of a record, ``other_at`` of one of
        ``other`` (None: the same); numbers, dates or datetimes; None matches nothing. The rest as in
        :meth:`rayad.KeyedStream.join_asof`. A change costs as much as its key has records; ``lateness`` bounds them, see :meth:`window`.
        """
        arguments.choice(how, "join_asof: how", "left", "inner")
        arguments.choice(direction, "join_asof: direction", "backward", "forward", "nearest")
        rule = AsOf(tolerance, arguments.flag(allow_exact_matches, "join_asof: allow_exact_matches"), direction)
        times = key_of(at, "join_asof (at)"), key_of(at if other_at is None else other_at, "join_asof (other_at)")
        return in_time.joined_asof(self, _keyed(other, "join_asof"), rule, times, how, lateness, name)

    def join_interval(
        self,
        other: KeyedCollection,
        within: Between,
        at: Key,
        other_at: Key | None = None,
        how: How = "inner",
        *,
        lateness: Any = None,
        name: str | None = None,
    ) -> Collection:
        """As :meth:`join`, of records whose event times are so far from each other: ``lower <= right - left <= upper``.

        ``within`` is ``rd.windows.between(lower, upper)``; times as in :meth:`join_asof`. A change meets all records of its key on the
        other side; ``lateness`` bounds them, see :meth:`window`.
        """
        arguments.choice(how, "join_interval: how", *HOWS)
        if not isinstance(within, Between):
            raise DataflowError(f"join_interval() was given within={show(within, 60)}: give rd.windows.between(lower, upper)")
        times = key_of(at, "join_interval (at)"), key_of(at if other_at is None else other_at, "join_interval (other_at)")
        _keyed(other, "join_interval").require_no_ending("join")
        self.require_no_ending("join")
        return in_time.joined_in_interval(self, other, within, times, how, lateness, name)

    def window(self, windows: Tumbling | Sliding | Session, at: Key, *, lateness: Any = None, name: str | None = None) -> KeyedCollection:
        """By key and window of event time: what is computed of it is ``((key, window), result)``, and a record that is corrected corrects
        its windows, whenever that comes.

        Args:
            windows: ``rd.windows.tumbling(size)``, ``sliding(size, slide)`` or ``session(gap)``.
            at: gives the event time of a record; one without (None) is in no window.
            lateness: how long after its end a window is kept, in the unit of ``at`` (a number or timedelta): when an epoch ends in which
                the largest event time of all records is that far beyond, what is kept of the window is forgotten, and what was given of
                it stays. A change that comes for it later is counted, in the job's status and metrics, and changes nothing. Of sessions,
                and in joins by time, a change is refused whose own time is further behind event time than this (of a join that of the
                side that is behind), and what no other change can reach is forgotten: what comes out is what the others give. None: all
                is kept for ever. Outside of loops; for the aggregates right behind windows.
            name: of the vertex that finds sessions, which looks at all records of a key that changes.
        """
        if not isinstance(windows, (Tumbling, Sliding, Session)):
            raise DataflowError(f"window() was given {show(windows, 60)}: give rd.windows.tumbling(), sliding() or session()")
        return in_time.windowed(self, windows, key_of(at, "window (at)"), lateness, name)

    def require_no_ending(self, what: str) -> None:
        """Raises DataflowError where keys end."""
        if self.ending is not None:
            raise DataflowError(
                f"{what}() of windows with lateness={show(self.ending.rule.lateness, 40)}: only aggregates forget; aggregate first"
            )

    def within(self, loops: tuple[Loop, ...]) -> KeyedCollection:
        """The same collection inside these loops, into which it comes from outside."""
        if self.arrangement is not None:
            return self.arrangement.within(loops)
        return self if loops == self.loops else KeyedCollection(brought_into(self, loops), loops)

    def joined(self, other: KeyedCollection, how: How, name: str | None = None) -> Collection:
        """The join, by a vertex of its own."""
        kind, base = KINDS[how], f"{how}-join"
        inputs = []
        for port, what in enumerate(kind.inputs):
            side = self if what in (LEFT, LEFT_KEYS) else other
            if what in (LEFT_KEYS, RIGHT_KEYS):
                side = side.keys(f"{base}.{what.replace(' ', '-')}")
            inputs.append(side.not_null() if kind.alone_as(port) is None else side)
        return Collection(inputs[0].vertex(Make(Join, how), base, name, *inputs[1:]), self.loops)

    def keys(self, base: str) -> KeyedCollection:
        """The keys that it has, each once, with None; no records are kept for that."""
        return self.not_null().summed(functions.Once(None), functions.one, base, None, AnyOfKey()).keyed()

    def not_null(self) -> KeyedCollection:
        """Without the records whose key is null."""
        return KeyedCollection(columns.filtered(self.stream, steps.has_key, columns.with_key), self.loops)

    def concat(self, other: KeyedCollection) -> KeyedCollection:
        """The records of both."""
        self.require_no_ending("concat")
        other.require_no_ending("concat")
        return KeyedCollection(self.stream.union(other.stream), self.loops)

    def negate(self) -> KeyedCollection:
        """What is inserted here is removed there."""
        return KeyedCollection(columns.mapped(self.stream, steps.negated_keyed, columns.negated), self.loops)

    def plain(self) -> Collection:
        """The collection of ``(key, record)``."""
        return Collection(columns.mapped(self.stream, steps.plain, columns.plain), self.loops)


def _keyed(other: Any, what: str) -> KeyedCollection:
    if not isinstance(other, KeyedCollection):
        raise DataflowError(f"{what}() was given {show(other, 60)}: give a collection that has keys, by key_by()")
    return other


__all__ = ["Collection", "How", "KeyedCollection"]
