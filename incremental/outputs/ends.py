"""Where collections end: streams of changes, callbacks, sinks that keep a table, and files that hold one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

import pyarrow as pa

from rayad.dataflow import hooks
from rayad.dataflow import options as opt
from rayad.dataflow.operators.keys.keyed import PAIRS
from rayad.dataflow.records.calling import checked_function
from rayad.dataflow.streams.keyed_stream import KeyedStream
from rayad.dataflow.streams.loops import Loop
from rayad.dataflow.streams.making import Make
from rayad.incremental import steps
from rayad.incremental.columns import steps as columns
from rayad.incremental.consolidating import Consolidate
from rayad.incremental.outputs.final_table import FinalTable
from rayad.incremental.outputs.subscribing import Subscriber
from rayad.incremental.outputs.unique import Unique
from rayad.incremental.records import as_record
from rayad.incremental.traces import add
from rayad.progress import DataflowError, Timestamp, arguments, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream

Key = Callable[[Any], Any] | str | list[str] | tuple[str, ...]
"""A function of the record, a field, or several fields."""
SUBSCRIBE = "it takes a function callback(epoch, changes), with changes as a list of (record, weight)"


@opt.tells_options
class Ends:
    """What a collection is given to. All of it is outside of loops."""

    stream: Stream
    loops: tuple[Loop, ...]

    def changes(self, *, name: str | None = None) -> Stream:
        """A stream of ``(record, weight)``: what has changed in each epoch, all in all."""
        return self._vertex(steps.by_record, Make(Consolidate), "consolidate", name, "changes")

    def collect(self, name: str | None = None) -> Stream:
        """Collect the changes: ``result[name]`` is a list of ``(Timestamp, (record, weight))``."""
        return self.changes().collect(name)

    @staticmethod
    def tables(collected: Iterable[tuple[Timestamp, tuple[Any, int]]]) -> Iterator[tuple[int, dict[Any, int]]]:
        """Of what :meth:`collect` has given: ``(epoch, table)`` after each epoch that has changes, in order. A table says of each record
        how often it is there, and is the caller's own.

        >>> changes = [(Timestamp(4), ("a", -1)), (Timestamp(0), ("a", 1)), (Timestamp(0), ("b", 2))]
        >>> list(Ends.tables(changes))
        [(0, {'a': 1, 'b': 2}), (4, {'b': 2})]
        """
        by_epoch: dict[int, list[tuple[Any, int]]] = {}
        for time, change in collected:
            by_epoch.setdefault(time.epoch, []).append(change)
        there: dict[Any, int] = {}
        for epoch in sorted(by_epoch):
            for record, weight in by_epoch[epoch]:
                add(there, as_record(record), weight)
            yield epoch, dict(there)

    def subscribe(self, callback: Callable[[int, list[tuple[Any, int]]], Any], *, name: str | None = None) -> Self:
        """Call ``callback(epoch, changes)`` once for each epoch that has changes, when it is complete, one epoch after another.

        ``changes`` is a list of ``(record, weight)``, each record once. It runs in one replica. After a failure the epochs since the last
        snapshot come again: let it replace what it did for that epoch. What it raises ends the job.
        """
        checked_function(callback, "subscribe", "epoch", "changes", rule=SUBSCRIBE)
        make = Make(Subscriber, callback)
        make.__name__ = "subscribe"
        self.changes().single().vertex(make, outputs=0, name=name, parallelism=1)
        return self

    def table(self, *, epoch: int | None = None, name: str | None = None) -> Stream:
        """A stream of the records that are there when the input has ended, each as often as it is there; ``epoch``: those after this
        one."""
        last = None if epoch is None else arguments.whole(epoch, "table: epoch", least=0)
        return self._vertex(steps.by_record, Make(FinalTable, last), "table", name, "table")

    def updates(self, key: Key, *, name: str | None = None, what: str = "updates") -> Stream:
        """A stream of one change for each key that changes in an epoch: ``(record, 1)`` where a record comes or replaces the one before
        it, ``(record, -1)`` where it goes. For sinks of your own; ``what`` they are, for errors.

        Raises DataflowError while it runs for a key that has two records, or is null.
        """
        keyed = steps.Keyed(key_of(key, what))
        return self._vertex(keyed, Make(Unique, what), f"{what}.table", name, what)

    # -- sinks that update -------------------------------------------------------------------------------------------------
    def write_postgres(
        self,
        uri: str,
        table: str,
        *,
        key: str | list[str] | tuple[str, ...],
        schema: pa.Schema,
        wait_s: float = 120.0,
        name: str | None = None,
    ) -> Self:
        """Keep a PostgreSQL table as this collection is: rows are inserted, updated and deleted, one transaction for each snapshot.

        Args:
            uri: as of :class:`rayad.integrations.postgres.PostgresSink`.
            table: there must be one, with a primary key or a unique constraint on ``key``. Rows of others in it stay, unless they have a
                key that is written here.
            key: the field, or fields, that tell records apart.
            schema: the columns that are written, in exactly the types of the table; records are dicts with these fields.
            wait_s: how long a commit retries while the server is away.
            name: of the result: how many rows the last snapshot has inserted, updated or deleted.

        Raises DataflowError while it runs for a key that has two records.
        """
        sink = hooks.call("write_postgres_table", uri, table, key=key, schema=schema, wait_s=wait_s)
        self.updates(key, what="write_postgres").sink(sink, name)
        return self

    def write_kafka(
        self,
        servers: str,
        topic: str,
        *,
        key: Key,
        value: Callable[[Any], Any] | str,
        transaction_s: float = 60.0,
        wait_s: float = 120.0,
        options: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> Self:
        """Keep a compacted Kafka topic as this collection is: a message of a key replaces the one before it, and one without a value (a
        tombstone) says that the key is gone. One transaction for each snapshot, with one message for each key that has changed.

        Args:
            servers: ``host:port,host:port``.
            topic: there must be one, with ``cleanup.policy=compact``.
            key: a function or field that gives text or bytes, the key of the message; it tells records apart.
            value: a function or field that gives text or bytes, such as ``json.dumps``.
            transaction_s: as of :class:`rayad.integrations.kafka.KafkaSink`.
            wait_s: as there.
            options: settings of librdkafka, such as those of security.
            name: of the result: the number of messages of the last snapshot.

        Raises DataflowError while it runs for a key that has two records.
        """
        by, given = key_of(key, "write_kafka"), steps.selected(value, "write_kafka (value)")
        how = {"transaction_s": transaction_s, "wait_s": wait_s, "options": options}
        sink = hooks.call("write_kafka_table", servers, topic, key=by, value=given, **how)
        self.updates(by, what="write_kafka").sink(sink, name)
        return self

    def write_delta(
        self,
        table: Any,
        *,
        key: str | list[str] | tuple[str, ...],
        schema: pa.Schema | None = None,
        name: str | None = None,
        **options: Unpack[opt.WriteDeltaTable],
    ) -> Self:
        """Keep a Delta table as this collection is: rows are inserted, updated and deleted, by one merge for each snapshot.

        Args:
            table: a directory, a URI or a ``deltalake.DeltaTable``; it is made where there is none. Rows of others in it stay, unless they
                have a key that is written here.
            key: the field, or fields, that tell records apart.
            schema: the columns that are written; records are dicts with these fields. None: those of the table.
            name: of the result, a :class:`rayad.integrations.file_output.tables.PublishedTable`.
            options: see :class:`rayad.integrations.DeltaTable`.

        Raises DataflowError while it runs for a key that has two records.
        """
        sink = hooks.call("write_delta_table", table, key=key, schema=schema, **options)
        self.updates(key, what="write_delta").sink(sink, name)
        return self

    def write_iceberg(
        self,
        table: str,
        *,
        key: str | list[str] | tuple[str, ...],
        schema: pa.Schema | None = None,
        name: str | None = None,
        **options: Unpack[opt.WriteIcebergTable],
    ) -> Self:
        """Keep an Iceberg table as this collection is: rows are inserted, updated and deleted, by one transaction for each snapshot.

        Args:
            table: ``"namespace.table"`` in ``catalog=``; it is made where there is none. Rows of others in it stay, unless they have a key
                that is written here.
            key: the field, or fields, that tell records apart.
            schema: the columns that are written; records are dicts with these fields. None: those of the table.
            name: of the result, a :class:`rayad.integrations.file_output.tables.PublishedTable`.
            options: see :class:`rayad.integrations.IcebergTable`.

        Raises DataflowError while it runs for a key that has two records.
        """
        sink = hooks.call("write_iceberg_table", table, key=key, schema=schema, **options)
        self.updates(key, what="write_iceberg").sink(sink, name)
        return self

    def write_parquet(self, path: str, *, epoch: int | None = None, name: str | None = None, **options: Unpack[opt.WriteParquet]) -> Self:
        """Write the records that are there when the input has ended to Parquet files; ``epoch``: those after this one. For ``options``
        see :class:`rayad.integrations.ParquetSink`."""
        self.table(epoch=epoch).write_parquet(path, name=name, **options)
        return self

    def write_csv(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a CSV file cannot be updated."""
        _refuse("write_csv")

    def write_json(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a JSON file cannot be updated."""
        _refuse("write_json")

    def to_ray_dataset(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a Dataset does not change."""
        _refuse("to_ray_dataset")

    def to_spark(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a DataFrame does not change."""
        _refuse("to_spark")

    def _vertex(self, keyed: Callable[[Any], Any], make: Make, base: str, name: str | None, what: str) -> Stream:
        if self.loops:
            raise DataflowError(f"{what}(): the collection is inside a loop; let it leave by being what iterate() gives")
        make.__name__ = base
        in_columns = columns.by_record if keyed is steps.by_record else columns.in_rows
        inputs = [KeyedStream(columns.mapped(self.stream, keyed, in_columns), PAIRS)]
        return self.stream.flow.vertex(make, inputs=inputs, name=name)


def key_of(key: Key, what: str) -> Callable[[Any], Any]:
    """A function of a record: itself, or that of a field or several. Raises DataflowError."""
    if isinstance(key, (list, tuple)):
        if not key or not all(isinstance(one, str) for one in key):
            raise DataflowError(f"{what}: key is {show(key, 60)}: give a field, a list of fields, or a function of the record")
        return steps.Fields(tuple(key))
    return steps.selected(key, f"{what} (key)")


def _refuse(what: str) -> NoReturn:
    raise DataflowError(
        f"{what}() of a collection: it cannot update or delete what it has written; write the changes, as records (record, weight): "
        f"changes().{what}(...); or the records that are there at the end: table().{what}(...)"
    )


__all__ = ["Ends", "Key", "key_of"]
