"""`Stream`: the operators a user calls on records without a key.

A stream is a position in the logical graph (a node's output port) and nothing else; operators add nodes and give new positions.
A call that is refused adds nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Unpack, overload

import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow import hooks
from rayad.dataflow import options as opt
from rayad.dataflow.items import CollectSink
from rayad.dataflow.last_values import CollectLatest, require_keys
from rayad.dataflow.logical_graph import FORWARD, LogicalEdge, NodeKind, Partition, PartitionKind, check_name
from rayad.dataflow.operators import stateless as el
from rayad.dataflow.operators.as_columns import AsColumns
from rayad.dataflow.operators.bad_records import OnError
from rayad.dataflow.operators.in_schema import in_schema
from rayad.dataflow.operators.map_batches import of_batches
from rayad.dataflow.operators.projections import Where, WithArrivalTime
from rayad.dataflow.operators.windows.told_times import EventTime, Side
from rayad.dataflow.operators.windows.watermark_rules import WatermarkRule
from rayad.dataflow.records.calling import checked_function, require_methods
from rayad.dataflow.records.event_times import kind_of_lengths, length_from_zero
from rayad.dataflow.records.selectors import KeySelector, ValueSelector
from rayad.dataflow.records.type_variables import T, U, W, X
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.records.wrong_calls import explains_calls
from rayad.dataflow.resources import Asked, OfVertex, Step
from rayad.dataflow.sink import Sink
from rayad.dataflow.streams import fitting, schemas, steps, updates
from rayad.dataflow.streams.column_steps import ColumnSteps
from rayad.dataflow.streams.making import labels_of
from rayad.dataflow.streams.misplaced import Advising
from rayad.dataflow.windows import PerEpoch, Window, Windows
from rayad.progress import DataflowError, arguments, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.flow import Dataflow
    from rayad.dataflow.streams.keyed_stream import KeyedStream
    from rayad.dataflow.streams.loops import Loop
    from rayad.dataflow.streams.windowed_stream import WindowedStream
    from rayad.dataflow.vertex import Vertex
    from rayad.incremental.collection import Collection


_FILTER = "it takes a function, or an expression over columns such as pyarrow.compute.field('n') > 1"
_KEY = "it takes a function, or the name or names of columns"
SINK_METHODS = ("check", "open", "publish", "commit", "identity", "adopt", "roll_back", "abort", "result", "condense")


def constant(record: Any) -> int:
    """The one key of records that have none."""
    return 0


def _union_of(streams: list[Stream]) -> EventTime | None:
    """The event time of a union of streams that have it."""
    sides: list[Side] = []
    selectors = set()
    for stream in streams:
        found = stream.event_time
        if found is None:  # an exchange behind a union, where its sides can no longer be distinguished
            return None
        sides += found.sides_at(stream.node, stream.port)
        selectors.add(found.selector)
    together = all(not stream.event_time.sides or stream.event_time.together for stream in streams if stream.event_time is not None)
    if len(selectors) > 1 and not together:
        return None
    return EventTime(selectors.pop() if len(selectors) == 1 else None, WatermarkRule(), tuple(sides), together)


def own_stream(flow: Dataflow, stream: Any, what: str) -> Stream:
    """``stream``, if it is an unkeyed stream of ``flow``. ``what`` was given it, for the message."""
    if not isinstance(stream, Stream):
        raise DataflowError(
            f"{what} at {users_line()} was given {show(stream)}: it takes a Stream; a keyed one is not, call it before key_by"
        )
    if stream.flow is not flow:
        raise DataflowError(f"{what} at {users_line()} was given {show(stream)}, a stream of another dataflow than this {flow!r}")
    return stream


def _require_loop(loop: Any, what: str) -> None:
    from rayad.dataflow.streams.loops import Loop

    if not isinstance(loop, Loop):
        raise DataflowError(f"{what} at {users_line()} was given {show(loop, 60)}: it takes a loop, made by flow.loop()")


@explains_calls
@opt.tells_options
class Stream(Advising, ColumnSteps, Generic[T]):
    """Records in motion. Immutable: every operator gives a new stream.

    For editors and type checkers ``Stream[str]`` is a stream of strings; of columns nothing is known, they are a ``Stream[Any]``, as is a
    bare ``Stream``.
    """

    def __init__(
        self, flow: Dataflow, node: int, port: int = 0, event_time: EventTime | None = None, partition: Partition = FORWARD
    ) -> None:
        self.flow = flow
        self.node = node
        self.port = port
        self.event_time = event_time
        self.partition = partition
        self.scope = flow.graph.scope_of_output(flow.graph.nodes[node])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.flow.name!r}>"

    @property
    def name(self) -> str:
        """The name of the node that produces this stream."""
        return self.flow.graph.nodes[self.node].name

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the records, or None if the program does not determine them.

        They are known behind sources with a schema (Arrow, Parquet, CSV, Spark ...), projections, filters, ``inspect``, exchanges and
        unions of like columns, and behind totals, windows and joins of columns, also after ``as_columns``. They are unknown behind
        functions without ``schema=`` and behind operators that handle rows.

        Where columns are known, ``key_by``, ``assign_timestamps``, totals, windows and expressions refuse names and types that do not fit
        as soon as the program is written.
        """
        found = schemas.schema_of(self.flow.graph, self.node, self.port)
        return None if found is None else found.remove_metadata()

    @property
    def errors(self) -> Stream[dict[str, Any]]:
        """The records that an operator with ``on_error="skip"`` has set aside.

        Each is a dict of ``record``, ``error`` (class and message), ``operator`` and ``line``, at the time of the record. If a function
        fails after it has given some of a record's values, none of them is sent on. Raises DataflowError behind other operators.
        """
        raise DataflowError(f"errors at {users_line()}: {self.name!r} sets no records aside; give its operator on_error='skip'")

    # -- stateless ---------------------------------------------------------------
    # Overloads: of what nothing is known (Any fits Never, nothing else does), of dicts, whose fields have types of their own, of the rest.
    @overload
    def map(self, function: Callable[[T], Never], *, schema: None = None, **step: Unpack[Step]) -> Stream[Any]: ...
    @overload
    def map(self, function: Callable[[T], dict[str, Any]], *, schema: None = None, **step: Unpack[Step]) -> Stream[dict[str, Any]]: ...
    @overload
    def map(self, function: Callable[[T], U], *, schema: None = None, **step: Unpack[Step]) -> Stream[U]: ...
    @overload
    def map(self, function: Callable[[T], Any], *, schema: pa.Schema, **step: Unpack[Step]) -> Stream[Any]: ...
    def map(
        self,
        function: Callable[[T], Any],
        *,
        schema: pa.Schema | None = None,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
        after_crashes: int | None = None,
        **asked: Unpack[Asked],
    ) -> Stream:
        """Apply ``function(record)`` to each record. As everywhere, the function must not change the record in place: others may hold
        it.

        ``schema``: a ``pyarrow.Schema`` of the function's results. Later steps are then checked when the program is written, and work on
        columns, where a record is a dict. The function returns dicts, in which a missing field is null; or tuples, by position; or, for a
        single column, plain values. Every value is kept exactly or refused; a record that does not fit is treated like one on which the
        function fails. Without ``schema`` nothing is known behind the function and nothing is checked.

        ``on_error="skip"``: records on which the function fails are set aside and the job continues; ``.errors`` of the result holds them.
        The job fails once there are more than ``max_errors``, counted over all snapshots that it resumed from. ``after_crashes=n`` (on Ray)
        also finds a record that kills the process (``os._exit``, a segmentation fault, out of memory): when a replica's process has died n
        times in a row, the function runs in a helper process, and a record whose call kills that twice is set aside. Results of the
        function must then be picklable.

        ``num_cpus``, ``num_gpus``, ``memory`` (bytes) and ``resources`` are reserved for each replica on its node, as in Ray Data. The
        operator then has replicas of its own, as many as ``parallelism`` gives for its name; the steps behind it run in them, too.
        """
        element = in_schema(el.Map(checked_function(function, "map", "record")), schema)
        return steps.of_user(self, element, name, on_error, max_errors, after_crashes, asked=asked)

    @overload
    def flat_map(self, function: Callable[[T], Iterable[Never]], *, schema: None = None, **step: Unpack[Step]) -> Stream[Any]: ...
    @overload
    def flat_map(
        self, function: Callable[[T], Iterable[dict[str, Any]]], *, schema: None = None, **step: Unpack[Step]
    ) -> Stream[dict[str, Any]]: ...
    @overload
    def flat_map(self, function: Callable[[T], Iterable[U]], *, schema: None = None, **step: Unpack[Step]) -> Stream[U]: ...
    @overload
    def flat_map(self, function: Callable[[T], Iterable[Any]], *, schema: pa.Schema, **step: Unpack[Step]) -> Stream[Any]: ...
    def flat_map(
        self,
        function: Callable[[T], Iterable[Any]],
        *,
        schema: pa.Schema | None = None,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
        after_crashes: int | None = None,
        **asked: Unpack[Asked],
    ) -> Stream:
        """Send every record of the iterable ``function(record)``. For ``schema``, ``on_error``, ``num_cpus=...`` and so on see
        :meth:`map`."""
        element = in_schema(el.FlatMap(checked_function(function, "flat_map", "record")), schema)
        return steps.of_user(self, element, name, on_error, max_errors, after_crashes, asked=asked)

    def filter(
        self,
        predicate: Callable[[T], Any] | pc.Expression,
        *,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
        after_crashes: int | None = None,
        **asked: Unpack[Asked],
    ) -> Stream[T]:
        """Keep the records for which ``predicate(record)`` is true. The predicate may be an expression over columns, as in
        :meth:`select`; records for which it is null are dropped. For ``on_error``, ``num_cpus=...`` and so on see :meth:`map`."""
        element: el.Element
        if isinstance(predicate, pc.Expression):
            element = Where(predicate)
        else:
            element = el.Filter(checked_function(predicate, "filter", "record", rule=_FILTER))
        return steps.of_user(self, element, name, on_error, max_errors, after_crashes, keeps_time=True, asked=asked)

    def with_arrival_time(self, column: str = "arrived", *, name: str | None = None) -> Stream:
        """Add a column with the moment at which the record arrived here, by the clock of its machine, in UTC.

        With ``assign_timestamps(column)`` it is an event time. Records are dicts or columns. It is not repeatable: a record that is read
        again after a failure has another arrival time, although it is still in exactly one window. Windows over it fire when records of
        later epochs arrive; to fire by the clock alone, use :meth:`with_processing_time`. Prefer a time that the source provides, such as
        Kafka's.
        """
        return steps.stateless(self, "with_arrival_time", WithArrivalTime(column, hooks.call("arrival_clock")), name)

    def with_processing_time(self, column: str = "processed_at", *, name: str | None = None) -> Stream:
        """Add a column with the moment at which the record's epoch was complete, in UTC, and use it as event time: windows and timers
        behind it fire by the clock, even while no record arrives.

        Call it last before ``key_by`` and ``window`` or ``process``; ``assign_timestamps`` is not needed. Records are dicts or columns. No
        record is ever late, and all replicas agree: one of them reads the clock when an epoch completes, and all records of the epoch share
        that moment. The clock is therefore as fine as the epochs, and stands still while they do: use ``flow.input(name, epoch_s=0.05)`` or
        a source whose epochs follow the clock, such as Kafka. If the machine's clock is set back, this one waits until it has caught up.

        It is not repeatable: records that are read again after a failure have another moment, though each is still counted once. Source:
        processing time as in Flink and Beam, made a function of the epoch (docs/decisions/078-processing-time.md).
        """
        from rayad.dataflow.streams.in_time.processing import processing_time

        return processing_time(self, column, name)

    def map_batches(
        self,
        function: Callable[[Any], Any] | type[Any],
        *,
        batch_format: Literal["rows", "pyarrow", "numpy", "pandas", "polars"] | None = None,
        fn_constructor_args: tuple[Any, ...] = (),
        fn_constructor_kwargs: Mapping[str, Any] = MappingProxyType({}),
        schema: pa.Schema | None = None,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
        after_crashes: int | None = None,
        **asked: Unpack[Asked],
    ) -> Stream:
        """Apply ``function(batch)`` to each batch, without leaving columns: it may return a list, a RecordBatch, a Table, a dict of
        numpy arrays, or a DataFrame of pandas or Polars.

        ``batch_format`` is what the function is given, as in Ray Data. "rows": a list of records; "pyarrow": a RecordBatch; "numpy": a dict
        of arrays; "pandas", "polars": a DataFrame; None: whatever arrives, a list or a RecordBatch. Values are equal in all of them: a
        pandas column of integers with nulls is ``Int64``, types that pandas lacks are ``ArrowDtype``, and nulls among numpy's numbers are
        refused.

        A class with ``__call__(self, batch)`` is constructed once in each replica, with ``fn_constructor_args`` and
        ``fn_constructor_kwargs``, for example to load a model. Named index levels of a returned pandas DataFrame become columns; its NaN
        becomes null, as Arrow reads pandas.

        For ``schema``, ``on_error``, ``num_cpus=...`` and so on see :meth:`map`. Returned columns are matched by name and cast where no
        value changes; text is never read as a number. With ``on_error="skip"`` a batch on which the function fails is passed to it again in
        batches of one record, to find the records at fault.
        """
        step = in_schema(of_batches(function, batch_format, fn_constructor_args, fn_constructor_kwargs), schema)
        return steps.of_user(self, step, name, on_error, max_errors, after_crashes, asked=asked)

    def map_async(
        self,
        function: Callable[[T], Awaitable[Any]] | type[Any],
        *,
        concurrency: int = 32,
        timeout_s: float = 30.0,
        retries: int = 0,
        retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
        cache: int = 0,
        cache_s: float | None = None,
        cache_by: Callable[[T], Any] | None = None,
        into: str | None = None,
        combine: Callable[[T, Any], Any] | None = None,
        schema: pa.Schema | None = None,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
        after_crashes: int | None = None,
        **asked: Unpack[Asked],
    ) -> Stream:
        """Await ``function(record)`` for each record, with the calls of a batch side by side: for look-ups in a service, a database, a
        model server. Results keep the order of the records.

        A class is constructed once in each replica, without arguments, in the thread where its ``async def __call__(self, record)`` runs,
        so it can hold a session and a cache; its ``async def close(self)`` is called at the end. At most ``concurrency`` calls run at once
        in a replica. A call that takes longer than ``timeout_s`` fails with TimeoutError. A call that fails with one of ``retry_on`` is
        repeated up to ``retries`` times, after 0.1, 0.2, 0.4 ... at most 5 seconds. After a failure of the job calls are made again: each
        result is in the stream once, each call is made at least once.

        The result is the function's answer. With ``into="country"`` it is the record, a dict or a row of columns, with the answer in that
        field. With ``combine=f`` it is ``f(record, answer)``, an ordinary function.

        ``cache`` is the number of answers that each replica remembers, the most recently used ones, for equal records or equal
        ``cache_by(record)``; each for ``cache_s`` seconds, or with None as long as there is room. Errors are not remembered. Answers are
        shared: do not change them in place. ``cache_by`` requires ``into`` or ``combine``, because different records then share an answer:
        a function that returned ``{**order, "country": ...}`` would give a user's first order for all. For the bare answer use
        ``combine=lambda record, answer: answer``.

        The replica handles nothing else while a batch waits, so give slow calls replicas of their own:
        ``stream.rebalance(name="ask").map_async(ask)``. For ``schema``, ``on_error``, ``num_cpus=...`` and so on see :meth:`map`.
        """
        bounds = {"concurrency": concurrency, "timeout_s": timeout_s, "retries": retries, "retry_on": retry_on}
        remembers = {"cache": cache, "cache_s": cache_s, "cache_by": cache_by, "into": into, "combine": combine}
        element = in_schema(hooks.call("map_async", function, **bounds, **remembers), schema)
        return steps.of_user(self, element, name, on_error, max_errors, after_crashes, asked=asked)

    def as_columns(self, *names: str, name: str | None = None) -> Stream:
        """Turn results of aggregations, windows and joins into flat columns.

        Windows become ``window_start`` and ``window_end``, values one column each, pairs the columns of both records; a right column whose
        name is in use gets the suffix ``_right``. ``names`` renames all columns, in order.
        """
        for given in names:
            if not isinstance(given, str):
                raise DataflowError(f"as_columns was given {show(given, 60)}: it takes names of columns")
        element = AsColumns(names, labels_of(self.flow.graph, self.node))
        schema = schemas.known(self)
        if schema is not None:
            element.said = schemas.fitting(element, schema)
        return steps.stateless(self, "as_columns", element, name)

    def inspect(
        self,
        function: Callable[[T], Any],
        *,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
        after_crashes: int | None = None,
    ) -> Stream[T]:
        """Call ``function(record)`` for each record and pass the record on. With ``on_error="skip"`` records on which it fails are set
        aside: see :meth:`map`."""
        element = el.Inspect(checked_function(function, "inspect", "record"))
        return steps.of_user(self, element, name, on_error, max_errors, after_crashes, keeps_time=True)

    def union(self, *others: Stream[U], allow_missing_columns: bool = False, name: str | None = None) -> Stream[T | U]:
        """Merge this stream with others of the same scope.

        Known columns are matched by name; differing types are widened to one that holds all values (``schema`` shows it), and the union is
        refused if there is none. It is also refused if names differ, unless ``allow_missing_columns=True``: each record then has null in
        the columns that its stream lacks, as in Spark's ``unionByName``. That requires known columns in all streams. Records without known
        columns, and tuples from keyed operators, stay as they are.

        Either all streams have event times or none has. The watermark is the smallest of theirs; a stream that has sent nothing yet holds
        it back.
        """
        for other in others:
            own_stream(self.flow, other, "union")
        without = [s for s in (self, *others) if s.event_time is None]
        if 0 < len(without) <= len(others):
            timed = next(s for s in (self, *others) if s.event_time is not None)
            raise DataflowError(
                f"union at {users_line()}: the stream {timed.name!r} has event times and {without[0].name!r} has none; call "
                "assign_timestamps(...) on each of them, or on the union alone"
            )
        fill = arguments.flag(allow_missing_columns, "union: allow_missing_columns")
        self.flow.graph.require_free(name)
        with self.flow.graph.all_or_nothing():
            streams = schemas.alike([steps.materialised(s) for s in (self, *others)], fill=fill)
            inputs = [LogicalEdge(s.node, s.port) for s in streams]
            node = self.flow.graph.add(NodeKind.UNION, self.scope, name=name, base="union", inputs=inputs)
        return Stream(self.flow, node.id, 0, None if without else _union_of(streams))

    def as_collection(
        self,
        *,
        key: Any = None,
        order: Any = None,
        deleted: Any = None,
        diff: str | None = None,
        envelope: Literal["debezium"] | None = None,
        checked: bool = True,
        name: str | None = None,
    ) -> Collection:
        """The records as a collection (:class:`rayad.Collection`): each is inserted once, at its epoch, or with ``diff`` so often as this
        field says, an integer; a negative one removes, and ``checked`` is as of :class:`rayad.Collection`. Columns stay columns.
        Running totals are the table that they are: ``(key, total)``, where a new total takes the one before it back.

        With a ``key``, a function or a field, the newest record of a key replaces the one before it, as change data capture has it.
        ``order``: what makes a record the newer one, needed where several of a key come in one epoch; ``deleted``: whether a record says
        that its key is gone. ``envelope="debezium"``: records are Debezium's, with ``op``, ``before`` and ``after``; ``key`` is of the row,
        ``order`` of the envelope, and the collection is of the rows. ``name``: by which ``job.table`` reads what is kept of it.
        """
        asked = {"key": key, "order": order, "deleted": deleted, "diff": diff, "envelope": envelope, "checked": checked, "name": name}
        return hooks.call("as_collection", self, **asked)  # type: ignore[no-any-return]

    def as_records(self, *, name: str | None = None) -> Stream[T]:
        """Treat updates of running totals as independent records: a key may then appear several times, with different values.

        Operators with state refuse running totals over several epochs, because they would count a key once for each of its values:
        ``counts.key_by(n).count()`` would count each word under every count it ever had. Call this where that is intended (a history of
        changes) or cannot happen (each key changes in one epoch only). The records are not changed.
        """
        out = steps.stateless(self, "as_records", el.Same(), name, keeps_time=True)
        self.flow.graph.nodes[out.node].options[updates.RECORDS] = True
        return out

    @overload
    def changes(self: Stream[tuple[X, W]], *, name: str | None = None) -> Stream[tuple[X, tuple[W | None, W | None]]]: ...
    @overload
    def changes(
        self: Stream[tuple[X, Window, W]], *, name: str | None = None
    ) -> Stream[tuple[tuple[X, Window], tuple[W | None, W | None]]]: ...
    def changes(self, *, name: str | None = None) -> Any:
        """Turn updates of running totals into records ``(key, (before, after))`` that say what each update replaces.

        ``before`` is None for a new key, ``after`` is None for a key whose time-to-live has ended. For windows that send updates the key is
        ``(key, window)``. An operator with state behind totals is then right in every epoch, because it can subtract ``before``. For
        example, how many words occur how often: sum the ones of ``counts.changes().flat_map(lambda c: [(c[1][1], 1), (c[1][0], -1)])`` by
        their first field. The last value of each key is stored once more. Raises DataflowError if there are no totals.
        """
        from rayad.dataflow.streams.tables import changes_of

        return changes_of(self, name)

    @overload
    def latest(self: Stream[tuple[X, W]], *, every: int | None = None, name: str | None = None) -> Stream[tuple[X, W]]: ...
    @overload
    def latest(
        self: Stream[tuple[X, Window, W]], *, every: int | None = None, name: str | None = None
    ) -> Stream[tuple[tuple[X, Window], W]]: ...
    def latest(self, *, every: int | None = None, name: str | None = None) -> Any:
        """Send the final table of running totals at the end of the input: ``(key, value)``, once for each key. These are records, not
        updates.

        ``every=n`` sends the table after each n epochs (0 to n - 1, n to 2n - 1, ...) that had an update, in the last of them; ``every=1``
        sends it after each epoch. Keys whose time-to-live has ended are not in it. The last value of each key is stored once more. Raises
        DataflowError if there are no totals, and for ``every`` inside a loop.
        """
        from rayad.dataflow.streams.tables import latest_of

        return latest_of(self, every, name)

    # -- distribution --------------------------------------------------------------
    @overload
    def key_by(self, key: str | list[str] | tuple[str]) -> KeyedStream[Any, T]: ...
    @overload
    def key_by(self, key: tuple[str, str, *tuple[str, ...]]) -> KeyedStream[tuple[Any, ...], T]: ...
    @overload
    def key_by(self, key: Callable[[T], U]) -> KeyedStream[U, T]: ...
    def key_by(self, key: Callable[[T], Any] | str | list[str] | tuple[str, ...]) -> KeyedStream[Any, T]:
        """Key the records by a function, a column, or several columns. Keys must be hashable; records with equal keys meet in one
        replica."""
        from rayad.dataflow.streams.keyed_stream import KeyedStream

        if isinstance(key, str):
            selector = KeySelector(columns=(key,))
        elif isinstance(key, (list, tuple)):
            if not key or not all(isinstance(k, str) for k in key):
                raise DataflowError(f"key_by was given {show(key)}: give a function, a column name or a non-empty list of column names")
            selector = KeySelector(columns=tuple(key))
        else:
            selector = KeySelector(function=checked_function(key, "key_by", "record", rule=_KEY))
        schemas.require_known(self.flow.graph, self.node, self.port, selector.columns, "key_by")
        fitting.require_keys(self.schema, selector)
        return KeyedStream(self, selector)

    def rebalance(self, *, buffer: int = 2, keep_batches: bool = False, name: str | None = None) -> Stream[T]:
        """Give batches on demand to whichever replica of the next operators has room.

        On Ray a replica has at most ``buffer`` batches: the one it works on and those that wait. Use 1 for few items that take seconds
        each, more than 2 where latency between nodes is high. Batches are cut by the time that their records take: slow records travel one
        by one, fast ones by the thousand; ``keep_batches=True`` leaves batches as they are. Source: MPR (Löff, PUCRS 2023), 5.4.8.

        ``name`` is that of the vertex formed by the stateless operators behind it (``parallelism={name: 4}``, ``job.rescale(name, 4)``), by
        default "rebalance". A vertex with state behind it has its own name.
        """
        buffer = arguments.whole(buffer, "rebalance: buffer, a number of batches,", least=1)
        keep_batches = arguments.flag(keep_batches, "rebalance: keep_batches")
        self.flow.graph.require_free(name)
        partition = Partition(PartitionKind.REBALANCE, buffer=buffer, keeps_batches=keep_batches, name=name)
        return Stream(self.flow, self.node, self.port, self.event_time, partition)

    def broadcast(self) -> Stream[T]:
        """Send every batch to every replica of the next operator."""
        return Stream(self.flow, self.node, self.port, self.event_time, Partition(PartitionKind.BROADCAST))

    def single(self) -> Stream[T]:
        """Send all records to one replica of the next operator."""
        return Stream(self.flow, self.node, self.port, self.event_time, Partition(PartitionKind.SINGLE))

    def ordered(self, *, memory_bytes: int = 64 * 1024 * 1024, spill_directory: str | None = None, name: str | None = None) -> Stream[T]:
        """Restore the order that records had before ``rebalance()``: ``frames.rebalance().map(draw).ordered()``.

        That is the order in which they reached the first ``rebalance()`` above, one epoch after the other; for a source with one part it is
        the source's order. Any number of stateless operators and exchanges, with any number of replicas, may lie between the two. Records
        that wait for their turn use at most ``memory_bytes`` of memory; beyond that they wait in files in ``spill_directory`` (None: the
        directory for temporary files).
        """
        from rayad.dataflow.streams.ordered import restore_order

        return restore_order(self, memory_bytes, spill_directory, name)

    # -- stateful -------------------------------------------------------------------
    @overload
    def vertex(self, vertex: Callable[[], Vertex], *, outputs: Literal[1] = 1, **how: Unpack[OfVertex]) -> Stream[Any]: ...
    @overload
    def vertex(self, vertex: Callable[[], Vertex], *, outputs: Literal[0], **how: Unpack[OfVertex]) -> None: ...
    @overload
    def vertex(self, vertex: Callable[[], Vertex], *, outputs: Literal[2], **how: Unpack[OfVertex]) -> tuple[Stream, Stream]: ...
    @overload
    def vertex(self, vertex: Callable[[], Vertex], *, outputs: int, **how: Unpack[OfVertex]) -> Any: ...
    def vertex(
        self,
        vertex: Callable[[], Vertex],
        *,
        outputs: int = 1,
        name: str | None = None,
        parallelism: int | None = None,
        **asked: Unpack[Asked],
    ) -> Any:
        """Add a vertex with this stream as its only input: see :meth:`Dataflow.vertex`."""
        return self.flow.vertex(vertex, inputs=[self], outputs=outputs, name=name, parallelism=parallelism, **asked)

    @overload
    def join(
        self, other: Stream[W], on: str | list[str] | tuple[str, ...], right_on: Any = None, *, name: str | None = None
    ) -> Stream[tuple[Any, tuple[T, W]]]: ...
    @overload
    def join(
        self, other: Stream[W], on: Callable[[T], U], right_on: Any = None, *, name: str | None = None
    ) -> Stream[tuple[U, tuple[T, W]]]: ...
    def join(self, other: Stream[W], on: Any, right_on: Any = None, *, name: str | None = None) -> Stream[tuple[Any, tuple[T, W]]]:
        """Join two streams on equal keys: ``(key, (left, right))`` for each pair. ``on`` is a key as in :meth:`key_by`, ``right_on``
        that of ``other`` (default: ``on``)."""
        own_stream(self.flow, other, "join")
        return self.key_by(on).join(other.key_by(on if right_on is None else right_on), name=name)

    def assign_timestamps(
        self,
        time: Callable[[T], Any] | str,
        *,
        max_delay: Any = None,
        per: Callable[[T], Any] | str | None = None,
        idle_epochs: int | None = None,
        max_ahead: Any = None,
    ) -> Stream[T]:
        """Declare where a record's event time is, a function or column, and how far records may arrive out of order.

        The watermark of the stream is its largest event time minus ``max_delay`` (docs/decisions/006-event-time.md). Event times stay
        through filter, inspect and union; after a map, assign them again.

        ``per``: a column or function that gives the part of a record, such as ``"partition"`` of Kafka or a device. Each part has its own
        watermark from its first record on, and the smallest of them counts, so parts may be apart by any time.

        ``idle_epochs``: a part that has sent nothing for so many epochs no longer holds the watermark back; without ``per`` this applies to
        the whole stream in a join or union. What it sends later may be late.

        ``max_ahead``, in the unit of the event times: a record that is further ahead than this of all before it does not move the
        watermark, so that one wrong date does not make everything else late. It is still put into its window. The watermark follows such a
        jump in the next epoch with data, provided that this epoch brings no record from before the jump that is in time. Choose it larger
        than the usual pauses; within one epoch, records in smaller steps may advance by any amount.
        """
        if not (isinstance(time, str) or callable(time)):
            raise DataflowError(f"assign_timestamps was given {show(time, 60)}: give a function of the record or a column name")
        selector = ValueSelector.of(time, "assign_timestamps")
        schemas.require_known(self.flow.graph, self.node, self.port, selector.columns, "assign_timestamps")
        fitting.require_moments(self.schema, selector, "assign_timestamps")
        delay = length_from_zero(max_delay, "max_delay")
        part = None if per is None else ValueSelector.of(per, "assign_timestamps(per)")
        if part is not None:
            schemas.require_known(self.flow.graph, self.node, self.port, part.columns, "assign_timestamps(per)")
        idle = None if idle_epochs is None else arguments.whole(idle_epochs, "assign_timestamps: idle_epochs", least=1)
        ahead = length_from_zero(max_ahead, "max_ahead")
        if delay is not None and ahead is not None:
            kind_of_lengths([delay, ahead])
        event_time = EventTime(selector, WatermarkRule(delay, part is not None, idle, ahead), per=part)
        return Stream(self.flow, self.node, self.port, event_time, self.partition)

    def window(self, windows: Windows, *, lateness: Any = None, early: bool = False) -> WindowedStream[T, Window]:
        """Aggregate windows over all records together; results are ``(window, value)``. For ``lateness`` and ``early`` see
        :meth:`KeyedStream.window`."""
        from rayad.dataflow.streams.windowed_stream import WindowedStream

        return WindowedStream(self.key_by(constant), windows, keyless=True, lateness=lateness, early=early)

    def per_epoch(self) -> WindowedStream[T, Window]:
        """Aggregate each epoch on its own, over all records together: short for ``window(rd.windows.per_epoch())``."""
        return self.window(PerEpoch())

    # -- loops ------------------------------------------------------------------------
    def iterate(
        self, body: Callable[[Stream[T]], tuple[Stream[Any], Stream[U]]], max_rounds: int | None = None, name: str | None = None
    ) -> Stream[U]:
        """Run a loop: ``body(inner)`` returns ``(again, out)``; ``again`` is fed back, ``out`` leaves the loop.

        The loop ends when no record is left in it, or after ``max_rounds`` rounds.
        """
        from rayad.dataflow.streams.loops import iterate

        return iterate(self, body, max_rounds, name)

    def enter(self, loop: Loop) -> Stream[T]:
        """Bring this stream into ``loop``, in round 0: short for ``loop.enter(self)``."""
        _require_loop(loop, "enter")
        return loop.enter(self)

    def leave(self, loop: Loop) -> Stream[T]:
        """Bring this stream out of ``loop``, without its loop counter: short for ``loop.leave(self)``."""
        _require_loop(loop, "leave")
        return loop.leave(self)

    # -- ends ---------------------------------------------------------------------------
    def sink(self, sink: Sink, name: str | None = None) -> Stream[T]:
        """Write to a :class:`Sink`; returns this stream. ``result[name]`` is what the sink gives."""
        return self._sink(sink, name, "sink")

    def _sink(self, sink: Sink, name: str | None, base: str) -> Stream[T]:
        """``base``: what results without a name are called; a second one is ``base-2``, as other nodes are."""
        if not isinstance(sink, Sink):
            raise DataflowError(f"sink() was given {show(sink, 60)}: it takes an instance of a subclass of rd.Sink")
        require_methods(sink, Sink, SINK_METHODS)
        sinks = self.flow.graph.sinks
        if name is None:
            name = self.flow.graph.free_sink(base)
        else:
            check_name(name, "the sink name")
            if name in sinks:
                raise DataflowError(
                    f"the sink name {name!r} is used twice: at {sinks[name].where} and at {users_line()}; each names one entry of "
                    "the result"
                )
        for node in sinks.values():
            if node.op is not sink and sink.is_same_place(node.op):
                raise DataflowError(
                    f"the sinks {node.options['key']!r} ({node.where}) and {name!r} ({users_line()}) write to the same place, over each "
                    "other: give each one of its own, or write both streams to one: a.union(b)"
                )
        free = self.flow.graph.is_free(name)
        start = steps.materialised(self)
        sinks[name] = self.flow.graph.add(
            NodeKind.SINK,
            self.scope,
            name=name if free else None,
            base=f"{name}.sink",
            op=sink,
            inputs=[LogicalEdge(start.node, start.port)],
            outputs=0,
            key=name,
        )
        return self

    def collect(self, name: str | None = None, *, columnar: bool = False, latest: bool = False) -> Stream[T]:
        """Collect the records: ``result[name]`` is a list of ``(Timestamp, record)`` that also has ``to_pandas()``, ``to_polars()`` and
        ``to_arrow()``. Returns this stream.

        Args:
            name: of the result; default: "collect", then "collect-2" and so on.
            columnar: make ``result[name]`` one Arrow table, in the narrowest types that hold each value as it is; None if there were no
                records. DataflowError if no types hold them.
            latest: keep only the last record of each key, so that memory grows with the keys and not with their updates. For records
                ``(key, value)``, such as running totals, and ``(key, window, value)`` of windows, whose key is key and window. Later times
                win; within one time the record that arrived last, which is undefined if records of a key come from several replicas. A key
                that was forgotten (:meth:`KeyedStream.ttl`) keeps its last value.

        Raises:
            DataflowError: with ``latest``, if the stream's columns are known and have no key, or, while the job runs, if a record is not
                such a tuple.
        """
        columnar, schema = arguments.flag(columnar, "collect: columnar"), schemas.known(self)
        if not arguments.flag(latest, "collect: latest"):
            return self._sink(CollectSink(columnar=columnar, schema=schema), name, "collect")
        require_keys(schema, users_line())
        return self._sink(CollectLatest(columnar=columnar, schema=schema), name, "collect")

    def probe(self, name: str | None = None) -> Stream[T]:
        """Add a probe: ``job.probe(name)`` tells which times can still appear here. Returns this stream."""
        self.flow.graph.require_free(name)
        start = steps.materialised(self)
        self.flow.graph.add(NodeKind.PROBE, self.scope, name=name, base="probe", inputs=[LogicalEdge(start.node, start.port)], outputs=0)
        return self

    def write_parquet(self, path: str, *, name: str | None = None, **options: Unpack[opt.WriteParquet]) -> Stream[T]:
        """Write Parquet files into a folder. They become visible with each snapshot, or when the job completes.

        Read what is committed by ``rd.read_committed``. For ``options`` see :class:`rayad.integrations.ParquetSink`.
        """
        return self._sink(hooks.call("write_parquet", path, **options), name, "parquet")

    def write_csv(self, path: str, *, name: str | None = None, **options: Unpack[opt.WriteCsv]) -> Stream[T]:
        """Write CSV files into a folder, committed like those of :meth:`write_parquet`. Values that CSV cannot hold exactly are refused.
        For ``options`` see :class:`rayad.integrations.CsvSink`."""
        return self._sink(hooks.call("write_csv", path, **options), name, "csv")

    def write_json(self, path: str, *, name: str | None = None, **options: Unpack[opt.WriteJson]) -> Stream[T]:
        """Write JSON-lines files into a folder, committed like those of :meth:`write_parquet`. Values that JSON cannot hold exactly are
        refused. For ``options`` see :class:`rayad.integrations.JsonSink`."""
        return self._sink(hooks.call("write_json", path, **options), name, "json")

    def write_delta(self, table: Any, *, name: str | None = None, **options: Unpack[opt.WriteDelta]) -> Stream[T]:
        """Append to a Delta table, one transaction for each snapshot (``pip install 'rayad[delta]'``).

        ``table`` is a directory, a URI or a ``deltalake.DeltaTable``. For ``options`` see :class:`rayad.integrations.DeltaSink`.
        """
        return self._sink(hooks.call("write_delta", table, **options), name, "delta")

    def write_iceberg(self, table: str, *, name: str | None = None, **options: Unpack[opt.WriteIceberg]) -> Stream[T]:
        """Append to an Iceberg table, one transaction for each snapshot (``pip install 'rayad[iceberg]'``).

        ``table`` is ``"namespace.table"`` in ``catalog=``. For ``options`` see :class:`rayad.integrations.IcebergSink`.
        """
        return self._sink(hooks.call("write_iceberg", table, **options), name, "iceberg")

    def write_kafka(self, servers: str, topic: str, *, name: str | None = None, **options: Unpack[opt.WriteKafka]) -> Stream[T]:
        """Write to a Kafka topic, one transaction for each snapshot. For ``options`` see :class:`rayad.integrations.kafka.KafkaSink`."""
        return self._sink(hooks.call("write_kafka", servers, topic, **options), name, "kafka")

    def write_postgres(self, uri: str, table: str, *, name: str | None = None, **options: Unpack[opt.WritePostgres]) -> Stream[T]:
        """Append to a PostgreSQL table, one transaction for each snapshot. For ``options`` see
        :class:`rayad.integrations.postgres.PostgresSink`."""
        return self._sink(hooks.call("write_postgres", uri, table, **options), name, "postgres")

    def to_ray_dataset(self, name: str | None = None, **options: Unpack[opt.ToRayDataset]) -> Stream[T]:
        """Collect into a Ray Dataset: ``result[name]``."""
        return self._sink(hooks.call("to_ray_dataset", **options), name, "ray-dataset")

    def to_spark(self, spark: Any, name: str | None = None, **options: Unpack[opt.ToSpark]) -> Stream[T]:
        """Collect into a Spark DataFrame of the session ``spark``: ``result[name]``."""
        return self._sink(hooks.call("to_spark", spark, **options), name, "spark")
