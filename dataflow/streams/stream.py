"""`Stream`: the operators a user calls on records without a key.

A stream is a position in the logical graph (a node's output port) and nothing else; operators add nodes and give new positions.
A call that is refused adds nothing. The module is long because of the operators' documentation: a stream has a method for each.
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
from rayad.dataflow.operators.projections import Drop, Explode, Rename, Select, Unnest, Where, WithArrivalTime, WithColumns
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
class Stream(Advising, Generic[T]):
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
        """The name of the node that makes this stream."""
        return self.flow.graph.nodes[self.node].name

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of its records, where the program tells them: behind sources that know theirs (Arrow, Parquet, CSV, Spark ...),
        projections, filters, ``inspect``, ``union`` of like columns and exchanges, and behind totals, windows and joins of columns, as they
        are given and as ``as_columns`` opens them. None behind functions of records and batches without ``schema=``, and behind operators
        that handle rows.

        Where they are known, names that are not there are refused when the program is written: by ``key_by``, ``assign_timestamps``,
        totals, windows, and expressions, with the types of these.
        """
        found = schemas.schema_of(self.flow.graph, self.node, self.port)
        return None if found is None else found.remove_metadata()

    @property
    def errors(self) -> Stream[dict[str, Any]]:
        """Behind an operator with ``on_error="skip"``: what it has set aside, each as a dict of ``record``, ``error`` (class and message),
        ``operator`` and ``line``, at the time of the record. A record whose function gives several values, and fails in between, gives
        none. DataflowError behind others."""
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
        """``function(record)`` for each record. As everywhere, the function must not change the record in place: others may hold it.

        ``schema``: the columns of what the function gives, a ``pyarrow.Schema``. Steps behind it are then checked when the program is
        written and work on columns, in which a record is a dict. The function gives dicts, in which a missing field is null; or tuples, by
        position; or, of one column, values. Each value is held exactly, or refused: a record that does not fit ends the job, or is set
        aside as others on which the function fails. Without it nothing is known behind a function, and nothing is looked at.

        ``on_error="skip"``: records on which the function fails are set aside, and the job goes on; ``.errors`` of the result has them.
        ``max_errors`` ends the job when there are more than so many, those before the snapshot that it resumed from included.
        ``after_crashes=n``: also a record that ends the process (``os._exit``, a segmentation fault, out of memory) is found, on Ray. When
        processes of a replica have ended n times in a row, the function runs in a process beside the replica's, and a record whose call
        alone ends that twice is set aside; what the function gives must be such that it can be pickled.

        ``num_cpus``, ``num_gpus``, ``memory`` (bytes) and ``resources``: what each replica needs of its node on Ray, as in Ray Data; the
        operator then has replicas of its own, as many as ``parallelism`` says for its name, in which the steps fused behind it run as well.
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
        """All records of ``function(record)``. ``schema``, ``on_error``, ``num_cpus=...`` and so on: see :meth:`map`."""
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
        """The records for which ``predicate(record)`` holds, or for which an expression over columns is true, as for :meth:`select`: not
        those for which it is null. ``on_error``, ``num_cpus=...`` and so on: see :meth:`map`."""
        element: el.Element
        if isinstance(predicate, pc.Expression):
            element = Where(predicate)
        else:
            element = el.Filter(checked_function(predicate, "filter", "record", rule=_FILTER))
        return steps.of_user(self, element, name, on_error, max_errors, after_crashes, keeps_time=True, asked=asked)

    def select(
        self,
        *columns: str | Mapping[str, pc.Expression],
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
    ) -> Stream:
        """These columns alone, in this order: names, and dicts of expressions over columns by the names of their results.

        ``select("user", {"total": pc.field("price") * pc.field("n")})`` with ``import pyarrow.compute as pc``. Columns stay columns, and no
        Python object is made for a row; records that are dicts stay dicts and give the same. Raises DataflowError for an expression that
        looks at more than one record, such as a sum; in the job where a column is missing, or a kernel refuses its values: integers that
        leave 64 bits, division by zero. Decision 056 says what expressions do with the types of dicts. ``on_error="skip"``: records whose
        values a kernel refuses are set aside, see :meth:`map`.
        """
        return steps.of_user(self, Select(columns), name, on_error, max_errors)

    def with_columns(
        self,
        columns: Mapping[str, pc.Expression],
        *,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
    ) -> Stream:
        """All columns, and these: ``with_columns({"twice": pc.field("n") * 2})``. A name that is there is replaced, in its place. Each
        expression sees the columns as they came; see :meth:`select`."""
        return steps.of_user(self, WithColumns(columns), name, on_error, max_errors)

    def with_arrival_time(self, column: str = "arrived", *, name: str | None = None) -> Stream:
        """All columns, and the moment at which a record came here, by the clock of its machine, in UTC: the event time of windows by
        *processing time* (``assign_timestamps(column)``). Records are dicts or columns.

        It is not repeatable: what is read again after a failure has another arrival, though each record is still in exactly one window.
        Windows fire as records of later epochs arrive, not by the clock alone; by the clock they do with :meth:`with_processing_time`.
        Where a source has a time of its own, as Kafka has, take it.
        """
        return steps.stateless(self, "with_arrival_time", WithArrivalTime(column, hooks.call("arrival_clock")), name)

    def with_processing_time(self, column: str = "processed_at", *, name: str | None = None) -> Stream:
        """All columns, and the moment at which the record's epoch was complete, in UTC, which is then its event time: windows and timers
        behind it are in *processing time*, and fire by the clock, also while no record comes.

        Call it last before ``key_by`` and ``window`` or ``process``; no ``assign_timestamps`` is needed. Records are dicts or columns. No
        record is ever late, and all replicas agree: one of them reads the clock as each epoch is complete, and the records of an epoch
        have one moment. So the clock is as fine as the epochs, and stands still while they do: give ``flow.input(name, epoch_s=0.05)``,
        or a source whose epochs follow the clock, as Kafka's do. A machine's clock that is set back stands still until it is there again.

        It is not repeatable: records that are read again after a failure have another moment, though each is still counted once.
        Source: processing time as Flink and Beam have it, made a function of the epoch (docs/decisions/078-processing-time.md).
        """
        from rayad.dataflow.streams.processing import processing_time

        return processing_time(self, column, name)

    def rename(self, names: Mapping[str, str], *, name: str | None = None) -> Stream:
        """Columns under other names: ``rename({"old": "new"})``; their order stays."""
        return steps.stateless(self, "rename", Rename(names), name)

    def drop(self, *columns: str, name: str | None = None) -> Stream:
        """All columns but these."""
        return steps.stateless(self, "drop", Drop(columns), name)

    def unnest(self, *columns: str, name: str | None = None) -> Stream:
        """The fields of these columns of structs (in rows: of dicts) in their place; of a null, null in each. Names must differ."""
        return steps.stateless(self, "unnest", Unnest(columns), name)

    def explode(self, column: str, *, outer: bool = False, name: str | None = None) -> Stream:
        """A record for each item of a column of lists, with the item in its place. Of an empty list, and of null, there is none;
        with ``outer`` there is one with null."""
        return steps.stateless(self, "explode", Explode(column, outer), name)

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
        """``function(batch)`` for each batch: a list or a RecordBatch in, a list, RecordBatch, Table, dict of numpy arrays or DataFrame of
        pandas or Polars out. It is the way to stay columnar.

        ``batch_format``: what the function gets, as in Ray Data. "rows": a list of records; "pyarrow": a RecordBatch; "numpy": a dict of
        arrays; "pandas", "polars": a DataFrame; None: what comes, a list or a RecordBatch. Values are the same in all: a pandas column of
        integers with nulls is an ``Int64``, types that pandas lacks are its ``ArrowDtype``, and nulls among numpy's numbers are refused.

        A class with ``__call__(self, batch)`` is made once in each replica, with ``fn_constructor_args`` and ``fn_constructor_kwargs``
        (to load a model, say). Of a pandas DataFrame named levels of the index become columns; its NaN is null, as Arrow reads pandas.

        ``schema``, ``on_error``, ``num_cpus=...`` and so on: see :meth:`map`. Columns that the function gives have their places by name,
        and are cast where no value changes; text is never read as a number. With ``on_error="skip"`` a batch on which the function fails
        is given to it once more in batches of one record, to find those at fault.
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
        """``await function(record)`` for each record, the calls for a batch side by side: look-ups in a service, a database, a model's
        server. Results are in the order of the records.

        A class is made once in each replica, without arguments, in the thread where its ``async def __call__(self, record)`` runs: it can
        hold a session and a cache. An ``async def close(self)`` is called at the end. At most ``concurrency`` calls run at once in a
        replica. One that takes longer than ``timeout_s`` fails with TimeoutError; a call that fails with one of ``retry_on`` is repeated up
        to ``retries`` times, after 0.1, 0.2, 0.4 ... at most 5 s. After a failure of the job calls are made again: results are in the
        stream once, calls are made at least once.

        The result is the answer of the function. ``into="country"``: it is the record, a dict or a row of columns, with the answer in this
        field, which is replaced if it is there. ``combine=f``: it is ``f(record, answer)``, which need not be async.

        ``cache``: each replica remembers so many answers, those used last, and asks once for records that are equal, or for which
        ``cache_by(record)`` is; each for ``cache_s`` seconds, None: as long as there is room. Errors are not remembered. Answers are
        shared: do not change them in place. ``cache_by`` needs ``into`` or ``combine``, since records that differ share an answer: a
        function that gave ``{**order, "country": ...}`` would give the first order of a user for all. Where the answer alone is wanted,
        say ``combine=lambda record, answer: answer``.

        The replica handles nothing else while a batch is under way, so give it replicas of its own where calls take long:
        ``stream.rebalance(name="ask").map_async(ask)``. ``schema``, ``on_error``, ``num_cpus=...`` and so on: see :meth:`map`.
        """
        bounds = {"concurrency": concurrency, "timeout_s": timeout_s, "retries": retries, "retry_on": retry_on}
        remembers = {"cache": cache, "cache_s": cache_s, "cache_by": cache_by, "into": into, "combine": combine}
        element = in_schema(hooks.call("map_async", function, **bounds, **remembers), schema)
        return steps.of_user(self, element, name, on_error, max_errors, after_crashes, asked=asked)

    def as_columns(self, *names: str, name: str | None = None) -> Stream:
        """Results of aggregations, windows and joins as ordinary columns: ``window_start`` and ``window_end``, a column for each value,
        those of both records of a pair (a right one whose name is taken gets ``_right`` behind it). ``names`` renames all, in order."""
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
        """Call ``function(record)`` in passing. ``on_error="skip"``: what it fails on goes no further, see :meth:`map`."""
        element = el.Inspect(checked_function(function, "inspect", "record"))
        return steps.of_user(self, element, name, on_error, max_errors, after_crashes, keeps_time=True)

    def union(self, *others: Stream[U], allow_missing_columns: bool = False, name: str | None = None) -> Stream[T | U]:
        """The records of this and the other streams, all in the same scope.

        Columns that are known go by name, and unlike types become wider ones that hold the values of all, as ``schema`` says; where there
        are none, the union is refused. So are columns of unlike names, unless ``allow_missing_columns``: records then have null in each
        column that their stream does not have, as in Spark's ``unionByName``. For that the columns of all streams must be known. Where
        those of a stream are not, and of tuples, as keyed operators give them, records stay as they are.

        Event times are kept where all streams have them, or else none may. The watermark is then the smallest of theirs: a stream that has
        brought nothing yet holds it back.
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

    def as_records(self, *, name: str | None = None) -> Stream[T]:
        """Treat the updates of running totals as records, each on its own: a key may come several times, each time with another value.

        Operators with state refuse running totals over several epochs, since they would use a key once for each of its values:
        ``counts.key_by(n).count()`` would count each word under all counts that it ever had. Where you want that (a history of
        changes, say) or it cannot happen (each key is touched in one epoch only), say so by this. The records stay as they are.
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
        """Of running totals, each update with what it takes back: records ``(key, (before, after))``; ``before`` is None of a new key,
        ``after`` of one whose time-to-live is over. Windows that give updates have ``(key, window)`` as their key.

        So an operator with state behind totals is right at every epoch: it takes off what it had of ``before``. How many words came how
        often: ``counts.changes().flat_map(lambda c: [(c[1][1], 1), (c[1][0], -1)])``, and the sum of the ones by the first. The last value
        of each key is kept once more. Raises DataflowError where there are no totals.
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
        """Of running totals, the table at the end of the input: ``(key, value)``, once for each key. These are records.

        With ``every=n`` it is the table at the end of each n epochs (0 to n - 1, n to 2n - 1, ...) in which there was an update, given in
        the last of these: with ``every=1`` the table of each epoch. Keys whose time-to-live is over are not in it. The last value of each
        key is kept once more. Raises DataflowError where there are no totals, and with ``every`` inside a loop.
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
        """Key records by a function, a column, or several columns. Keys must be hashable, and equal keys meet in one replica."""
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
        """Give records to whichever replica of the next operators has room, on demand.

        On Ray, a replica has at most ``buffer`` batches at once: the one that it works on and what comes next. 1 is right for few items
        that take seconds each; more than 2 helps when latency is high. The size of a batch follows from the time that its records
        take: long ones go one by one, tiny ones by the thousand; ``keep_batches=True`` leaves batches as they are. Source: MPR
        (Löff, PUCRS 2023), 5.4.8.

        ``name``: of the vertex that the stateless operators behind it make (``parallelism={name: 4}``, ``job.rescale(name, 4)``); by
        default "rebalance". A vertex with state behind it has its own name.
        """
        buffer = arguments.whole(buffer, "rebalance: buffer, a number of batches,", least=1)
        keep_batches = arguments.flag(keep_batches, "rebalance: keep_batches")
        self.flow.graph.require_free(name)
        partition = Partition(PartitionKind.REBALANCE, buffer=buffer, keeps_batches=keep_batches, name=name)
        return Stream(self.flow, self.node, self.port, self.event_time, partition)

    def broadcast(self) -> Stream[T]:
        """Give every batch to every replica of the next operator."""
        return Stream(self.flow, self.node, self.port, self.event_time, Partition(PartitionKind.BROADCAST))

    def single(self) -> Stream[T]:
        """Bring everything to one replica of the next operator."""
        return Stream(self.flow, self.node, self.port, self.event_time, Partition(PartitionKind.SINGLE))

    def ordered(self, *, memory_bytes: int = 64 * 1024 * 1024, spill_directory: str | None = None, name: str | None = None) -> Stream[T]:
        """Restore the order that records had before ``rebalance()``: ``frames.rebalance().map(draw).ordered()``.

        That is the order in which they reached the first ``rebalance()`` above, one epoch after the other; with a source of one part
        it is the source's order. Between the two there may be any number of stateless operators and exchanges, with any number of replicas.
        Records that wait for their turn beyond ``memory_bytes`` are kept in files in ``spill_directory`` (None: where temporary files go).
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
        """``flow.vertex`` with this stream as its only input."""
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
        """Inner join of two streams: ``(key, (left, right))``; ``on`` is a key as in :meth:`key_by`, ``right_on`` that of ``other``."""
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
        """Say where a record's event time is (function or column) and by how much a record may come after newer ones. It stays through
        filter, inspect and union; after a map assign it again.

        The watermark of the stream is its largest event time less ``max_delay`` (docs/decisions/006-event-time.md). ``per``: the column or
        function that gives the part of a record, such as ``"partition"`` of Kafka or a device. Each part then has a watermark of its own,
        and the least of them counts, so a part may be behind others by any time; it takes part from its first record on.
        ``idle_epochs``: a part, or without ``per`` the whole stream in a join or union, that has brought nothing in the last so many
        epochs does not hold the watermark back. What it brings afterwards may be late.

        ``max_ahead``: by how much a record may be ahead of all before it and still move the watermark, in the unit of the event times;
        so one wrong date does not make all else late. A record further ahead is in its window as any other. The watermark follows it when
        the next epoch that brings something brings no record from before it that is in time: a stream that has jumped, or that begins, goes
        on one epoch later. Give it more than the pauses that are usual; records in smaller steps may go on by any length in an epoch.
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
        """Windows over all records together; results are ``(window, value)``. ``lateness``, ``early``: as of :meth:`KeyedStream.window`."""
        from rayad.dataflow.streams.windowed_stream import WindowedStream

        return WindowedStream(self.key_by(constant), windows, keyless=True, lateness=lateness, early=early)

    def per_epoch(self) -> WindowedStream[T, Window]:
        """``window(rd.windows.per_epoch())``: figures of each epoch alone, over all records together."""
        return self.window(PerEpoch())

    # -- loops ------------------------------------------------------------------------
    def iterate(
        self, body: Callable[[Stream[T]], tuple[Stream[Any], Stream[U]]], max_rounds: int | None = None, name: str | None = None
    ) -> Stream[U]:
        """A loop: ``body(inner)`` gives ``(again, out)``; ``again`` is fed back, ``out`` leaves. It ends when nothing is left in it."""
        from rayad.dataflow.streams.loops import iterate

        return iterate(self, body, max_rounds, name)

    def enter(self, loop: Loop) -> Stream[T]:
        """``loop.enter(self)``."""
        _require_loop(loop, "enter")
        return loop.enter(self)

    def leave(self, loop: Loop) -> Stream[T]:
        """``loop.leave(self)``."""
        _require_loop(loop, "leave")
        return loop.leave(self)

    # -- ends ---------------------------------------------------------------------------
    def sink(self, sink: Sink, name: str | None = None) -> Stream[T]:
        """Write to a :class:`Sink`; gives this stream again. ``result[name]`` is what the sink gives."""
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
        """Keep the records: ``result[name]`` is a list of ``(Timestamp, record)``, with ``to_pandas()``, ``to_polars()`` and
        ``to_arrow()`` for a table of the records.

        Without a name it is ``result["collect"]``, of a second one ``result["collect-2"]``.

        Args:
            name: of the result.
            columnar: ``result[name]`` is one Arrow table: rows as well as columns, in the narrowest types that hold each value as it is;
                DataflowError where there are none. None where there were no records.
            latest: only the last record of each key is kept, in the order of times, in memory that grows with the keys and not with
                their updates. For records ``(key, value)``, such as running totals; of windows, ``(key, window, value)``, the last of each
                key and window. Within one time the record that came last counts; where records of a key come from several replicas in one
                time, which of them is undefined. A key whose state has ended (:meth:`KeyedStream.time_to_live`) keeps its last value.

        Raises:
            DataflowError: with ``latest`` where the columns of the stream are known and have no key; while the job runs where a record is
                no pair.
        """
        columnar, schema = arguments.flag(columnar, "collect: columnar"), schemas.known(self)
        if not arguments.flag(latest, "collect: latest"):
            return self._sink(CollectSink(columnar=columnar, schema=schema), name, "collect")
        require_keys(schema, users_line())
        return self._sink(CollectLatest(columnar=columnar, schema=schema), name, "collect")

    def probe(self, name: str | None = None) -> Stream[T]:
        """A place to look at progress: ``job.probe(name)`` tells which times can still appear here. Gives this stream again."""
        self.flow.graph.require_free(name)
        start = steps.materialised(self)
        self.flow.graph.add(NodeKind.PROBE, self.scope, name=name, base="probe", inputs=[LogicalEdge(start.node, start.port)], outputs=0)
        return self

    def write_parquet(self, path: str, *, name: str | None = None, **options: Unpack[opt.WriteParquet]) -> Stream[T]:
        """Write Parquet files into a folder; they appear when the job is complete, or with each of its snapshots. Readers find what is
        committed by ``rd.read_committed``. ``options``: see :class:`rayad.integrations.ParquetSink`."""
        return self._sink(hooks.call("write_parquet", path, **options), name, "parquet")

    def write_csv(self, path: str, *, name: str | None = None, **options: Unpack[opt.WriteCsv]) -> Stream[T]:
        """Write CSV files into a folder, committed as those of :meth:`write_parquet` are. What CSV does not hold exactly is refused.
        ``options``: see :class:`rayad.integrations.CsvSink`."""
        return self._sink(hooks.call("write_csv", path, **options), name, "csv")

    def write_json(self, path: str, *, name: str | None = None, **options: Unpack[opt.WriteJson]) -> Stream[T]:
        """Write files of one JSON object a line into a folder, committed as those of :meth:`write_parquet` are. What JSON does not hold
        exactly is refused. ``options``: see :class:`rayad.integrations.JsonSink`."""
        return self._sink(hooks.call("write_json", path, **options), name, "json")

    def write_delta(self, table: Any, *, name: str | None = None, **options: Unpack[opt.WriteDelta]) -> Stream[T]:
        """Append to a Delta table, a transaction for each snapshot (``pip install 'rayad[delta]'``). ``table``: a directory, a URI or a
        ``deltalake.DeltaTable``. ``options``: see :class:`rayad.integrations.DeltaSink`."""
        return self._sink(hooks.call("write_delta", table, **options), name, "delta")

    def write_iceberg(self, table: str, *, name: str | None = None, **options: Unpack[opt.WriteIceberg]) -> Stream[T]:
        """Append to an Iceberg table, a transaction for each snapshot (``pip install 'rayad[iceberg]'``). ``table``: ``"namespace.table"``
        in ``catalog=``. ``options``: see :class:`rayad.integrations.IcebergSink`."""
        return self._sink(hooks.call("write_iceberg", table, **options), name, "iceberg")

    def write_kafka(self, servers: str, topic: str, *, name: str | None = None, **options: Unpack[opt.WriteKafka]) -> Stream[T]:
        """Write to a Kafka topic, a transaction for each snapshot. ``options``: see :class:`rayad.integrations.kafka.KafkaSink`."""
        return self._sink(hooks.call("write_kafka", servers, topic, **options), name, "kafka")

    def write_postgres(self, uri: str, table: str, *, name: str | None = None, **options: Unpack[opt.WritePostgres]) -> Stream[T]:
        """Append to a PostgreSQL table, a transaction for each snapshot. ``options``: see
        :class:`rayad.integrations.postgres.PostgresSink`."""
        return self._sink(hooks.call("write_postgres", uri, table, **options), name, "postgres")

    def to_ray_dataset(self, name: str | None = None, **options: Unpack[opt.ToRayDataset]) -> Stream[T]:
        """``result[name]`` is a Ray Dataset."""
        return self._sink(hooks.call("to_ray_dataset", **options), name, "ray-dataset")

    def to_spark(self, spark: Any, name: str | None = None, **options: Unpack[opt.ToSpark]) -> Stream[T]:
        """``result[name]`` is a Spark DataFrame of the session ``spark``."""
        return self._sink(hooks.call("to_spark", spark, **options), name, "spark")
