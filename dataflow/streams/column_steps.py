"""Steps that name columns, of streams: they leave columns as columns, and dicts as dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow import hooks
from rayad.dataflow.operators.bad_records import OnError
from rayad.dataflow.operators.projections import Drop, Explode, Rename, Select, Unnest, WithColumns
from rayad.dataflow.records.wrong_calls import explains_calls
from rayad.dataflow.streams import steps

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream


@explains_calls
class ColumnSteps:
    """What a stream has for records whose fields have names."""

    def select(
        self,
        *columns: str | Mapping[str, pc.Expression],
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
    ) -> Stream:
        """Keep only these columns, in this order: names, and dicts that map new names to expressions over columns.

        ``select("user", {"total": pc.field("price") * pc.field("n")})`` with ``import pyarrow.compute as pc``. Columns stay columns: no
        Python object is made for a row. Records that are dicts stay dicts and give the same results.

        Raises DataflowError for an expression that looks at more than one record, such as a sum. The job fails if a column is missing or a
        kernel refuses its values: integers that leave 64 bits, division by zero. With ``on_error="skip"`` such records are set aside: see
        :meth:`map`. Decision 056 says how expressions treat the types of dicts.
        """
        return steps.of_user(_itself(self), Select(columns), name, on_error, max_errors)

    def with_columns(
        self,
        columns: Mapping[str, pc.Expression],
        *,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
    ) -> Stream:
        """Keep all columns and add or replace these: ``with_columns({"twice": pc.field("n") * 2})``.

        A name that exists is replaced in its place. Each expression sees the columns as they arrived; see :meth:`select`.
        """
        return steps.of_user(_itself(self), WithColumns(columns), name, on_error, max_errors)

    def rename(self, names: Mapping[str, str], *, name: str | None = None) -> Stream:
        """Rename columns: ``rename({"old": "new"})``. Their order stays."""
        return steps.stateless(_itself(self), "rename", Rename(names), name)

    def drop(self, *columns: str, name: str | None = None) -> Stream:
        """Remove these columns and keep all others."""
        return steps.stateless(_itself(self), "drop", Drop(columns), name)

    def unnest(self, *columns: str, name: str | None = None) -> Stream:
        """Replace columns of structs (in rows: of dicts) by their fields. A null struct gives nulls. Names must not collide."""
        return steps.stateless(_itself(self), "unnest", Unnest(columns), name)

    def explode(self, column: str, *, outer: bool = False, name: str | None = None) -> Stream:
        """Send one record for each item of a column of lists, with the item in place of the list.

        An empty or null list gives no record; with ``outer`` it gives one with null.
        """
        return steps.stateless(_itself(self), "explode", Explode(column, outer), name)

    def parse_json(
        self,
        column: str,
        schema: pa.Schema,
        *,
        unexpected: Literal["ignore", "error"] = "ignore",
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
    ) -> Stream:
        """Read the JSON object in each value of a column of texts or bytes: the column becomes one of structs with the fields of
        ``schema``. A null, such as a tombstone of Kafka's, stays null.

        ``flow.from_kafka(...).parse_json("value", schema).unnest("value")`` has the fields as columns. They stay columns: no Python object
        is made for a row. A field that is missing is null. Types are those of ``read_json``: numbers and booleans as such, text, dates
        (``"2026-11-30"``), timestamps and decimals in strings, lists, structs; durations as a number of their units.

        Args:
            unexpected: fields that are not in ``schema`` are ignored, or an error.
            on_error: "raise", or "skip" to set aside the records whose value is no JSON object or does not fit: see :meth:`map`.

        The job fails at a value that is no JSON object, or in which a field does not have its type; the error shows it.
        """
        return steps.of_user(_itself(self), hooks.call("parse_json", column, schema, unexpected), name, on_error, max_errors)

    def parse_avro(
        self,
        column: str,
        schema: Any = None,
        *,
        registry: str | Mapping[str, Any] | None = None,
        subject: str | None = None,
        version: int | Literal["latest"] = "latest",
        writer: Any = None,
        wait_s: float = 60.0,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
    ) -> Stream:
        """Read the Avro record in each value of a column of bytes: the column becomes one of structs (``pip install 'rayad[avro]'``). A
        null stays null. No Python object is made for a row.

        ``flow.from_kafka(...).parse_avro("value", registry="http://localhost:8081", subject="orders-value").unnest("value")`` has the
        fields as columns. What is read is fixed here: ``schema``, or that of ``subject``. Messages that were written with other schemas are
        read as it by Avro's rules: fields that it lacks are skipped, those that a message lacks have their default, numbers are promoted.

        Args:
            schema: what is read: a schema of Avro (JSON text, or the same as dicts), or a ``pyarrow.Schema``, whose nullable fields are
                null where a message lacks them, and which matches records of any name.
            registry: the address of a schema registry, or a dict of the settings of Confluent's client (``url``, ``basic.auth.user.info``,
                ``ssl.ca.location``, ...). Each message then begins with the id of its schema (Confluent's format). Without it a message is
                Avro alone.
            subject, version: of the registry's schema to read as. The latest is looked up each time the program is written; a job that
                resumes needs the same, so give the number.
            writer: the schema of messages without ids, where it is not ``schema``.
            wait_s: how long the registry is asked again while it does not answer; then the job fails, and resumes as its
                ``FailureConfig`` says.
            on_error: "raise", or "skip" to set aside the records whose value does not fit: see :meth:`map`.

        Raises DataflowError for a schema that no column has: a union of several types, a record that contains itself.
        """
        element = hooks.call("parse_avro", column, schema, writer, registry, subject, version, wait_s)
        return steps.of_user(_itself(self), element, name, on_error, max_errors)

    def format_avro(
        self,
        column: str,
        fields: Sequence[str] | None = None,
        *,
        schema: Any = None,
        registry: str | Mapping[str, Any] | None = None,
        subject: str | None = None,
        register: bool = True,
        wait_s: float = 60.0,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
    ) -> Stream:
        """Write records as Avro: add a column of bytes, a message of the named columns for each record (``pip install 'rayad[avro]'``).

        ``totals.format_avro("value", ["customer", "total"], registry="http://localhost:8081", subject="totals-value")`` and
        ``.write_kafka(servers, "totals", value="value", key="customer")``. The named columns stay. Without ``fields`` the column has
        structs, and becomes one of bytes; a null stays null, a tombstone of Kafka's.

        Args:
            schema: of Avro, a record with a field for each column. Default: made of the columns' types, where these are known.
            registry, subject: the schema is registered there when the program is written, and messages begin with its id (Confluent's
                format). Without them a message is Avro alone.
            register: False: the schema has to be there.
            wait_s: how long the registry is asked again while it does not answer.
            on_error: "raise", or "skip" to set aside the records that do not fit the schema: see :meth:`map`.
        """
        known = _itself(self).schema if schema is None else None
        element = hooks.call("format_avro", column, fields, schema, registry, subject, register, wait_s, known)
        return steps.of_user(_itself(self), element, name, on_error, max_errors)


def _itself(some: Any) -> Stream:
    """The stream that has these."""
    return some  # type: ignore[no-any-return]


__all__ = ["ColumnSteps"]
