"""All combinations tried: *exact*, *refused*, or an error that says what is wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import rayad as rd
from tests.every_type.arrays import COLUMNS, ROWS, as_told
from tests.every_type.ends import SINKS, SOURCES, NoFile
from tests.every_type.exact import counted
from tests.every_type.groups import moment_in_utc
from tests.every_type.operators import Epochs, Operator, operators

EXACT, REFUSED, ABSENT = "exact", "refused", "absent"
INEXACT = {"time64[ns]"}
"""Types of which pyarrow's ``to_pylist`` loses digits: no Python value is right, so whatever needs rows must refuse them."""
TWO_EPOCHS = 7


@dataclass(frozen=True, slots=True)
class Tried:
    """One combination: ``how`` is rows or columns, or source and sink; ``problem`` is empty where all is well."""

    kind: str
    role: str
    operator: str
    how: str
    outcome: str
    problem: str = ""


def batch_of(kind: str) -> pa.RecordBatch:
    """The column beside a key, a time and a number."""
    at = np.arange(ROWS)
    return pa.record_batch({"k": at % 3, "t": at, "until": at + 3, "v": at % 5, "x": COLUMNS[kind]})


def is_length(kind: str) -> bool:
    """Whether values of the type, as event times, are moments, dates or durations instead of numbers."""
    return kind.startswith(("timestamp", "date", "duration"))


def is_time(kind: str) -> bool:
    """Whether the column can be the event time: then it is tried without its null, which would be refused."""
    return is_length(kind) or kind.startswith(("int", "uint", "float", "decimal"))


def in_utc(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records whose moments plain Python compares as moments; in a zone it compares what the clock shows."""
    return [{name: moment_in_utc(value) for name, value in record.items()} for record in records]


def wanted(kind: str, operator: Operator, epochs: Epochs) -> Any:
    """The result that plain Python gives; None if it has none."""
    if kind in INEXACT:
        return None
    try:
        found = list(operator.model(epochs))
    except TypeError:
        return None
    return counted((record if epoch < 0 else (epoch, record) for epoch, record in found), near=operator.near)


def run_operator(operator: Operator, epochs: list[Any], *, of_epochs: bool) -> Any:
    """The operator's result, or its refusal."""
    flow = rd.Dataflow()
    operator.build(flow.from_epochs(epochs)).collect("out")
    found = flow.run(runtime="local", parallelism=2)["out"]
    return counted(((time.epoch, record) if of_epochs else record for time, record in found), near=operator.near)


def judged(expected: Any, run: Any) -> tuple[str, str]:
    """Outcome and problem."""
    try:
        found = run()
    except rd.DataflowError as error:
        return REFUSED, "" if str(error).strip() else "a refusal without a message"
    except Exception as error:
        return REFUSED, f"{type(error).__name__}: {error!s:.300}"
    if expected is None:
        return EXACT, f"plain Python has no answer, and {str(dict(found))!s:.200} came out"
    if found == expected:
        return EXACT, ""
    return EXACT, f"missing {dict(expected - found)!s:.200}; too much {dict(found - expected)!s:.200}"


def tried_operators(kind: str) -> Iterator[Tried]:
    """Every operator, on rows and on columns."""
    whole = batch_of(kind)
    for operator in operators("day" if kind.startswith("date") else "length" if is_length(kind) else "number"):
        batch = whole.filter(whole.column("x").is_valid()) if operator.role == "time" and is_time(kind) else whole
        batches = [batch] if operator.role == "time" else [batch.slice(0, TWO_EPOCHS), batch.slice(TWO_EPOCHS)]
        rows = [as_told(part.to_pylist()) for part in batches]
        expected = wanted(kind, operator, [in_utc(some) for some in rows])
        of_epochs = not any(word in operator.name for word in ("window", "tumbling", "sliding", "session", "as-of"))
        for how, epochs in (("rows", rows), ("columns", batches)):
            if how == "rows" and kind in INEXACT:
                continue
            outcome, problem = judged(expected, lambda o=operator, e=epochs, of=of_epochs: run_operator(o, e, of_epochs=of))
            yield Tried(kind, operator.role, operator.name, how, outcome, problem)


def tried_ends(kind: str) -> Iterator[Tried]:
    """Every source with every sink."""
    batch = batch_of(kind)
    for source, read in SOURCES.items():
        if source == "from_items" and kind in INEXACT:
            continue  # the digits are lost before Rayad sees the records
        for sink, write in SINKS.items():
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                flow = rd.Dataflow()
                try:
                    stream = read(flow, batch, folder)
                except NoFile:
                    yield Tried(kind, "ends", source, sink, ABSENT)
                    continue
                except rd.DataflowError as error:
                    yield Tried(kind, "ends", source, sink, REFUSED, "" if str(error).strip() else "a refusal without a message")
                    continue
                if kind in INEXACT:
                    yield Tried(kind, "ends", source, sink, *judged_in_columns(batch, flow, write(stream, folder)))
                    continue
                take, expected = write(stream, folder), batch
                if sink in ("to_spark", "write_delta") or (sink == "write_iceberg" and kind != "uuid"):
                    expected = as_spark_has_it(batch, in_rows=source == "from_items")
                outcome, problem = judged(
                    counted(expected.to_pylist()), lambda f=flow, t=take: counted(rows_of(t(f.run(runtime="local", parallelism=2))))
                )
                yield Tried(kind, "ends", source, sink, outcome, problem)


def as_spark_has_it(batch: pa.RecordBatch, *, in_rows: bool) -> pa.RecordBatch:
    """The batch in Spark's types, and Delta's and Iceberg's: unsigned integers of 64 bits become decimals, and extension types become their
    storage. A bool8 from Python rows is a plain bool already."""
    column = batch.column("x")
    if column.type == pa.uint64():
        column = column.cast(pa.decimal128(20, 0))
    elif isinstance(column, pa.ExtensionArray) and not (in_rows and column.type == pa.bool8()):
        column = column.storage
    return batch.set_column(batch.schema.get_field_index("x"), "x", column)


def judged_in_columns(batch: pa.RecordBatch, flow: rd.Dataflow, take: Any) -> tuple[str, str]:
    """For types without right Python values: a result in rows is wrong, a result in columns must be equal."""
    try:
        found = take(flow.run(runtime="local", parallelism=2))
    except rd.DataflowError:
        return REFUSED, ""
    except Exception as error:
        return REFUSED, f"{type(error).__name__}: {error!s:.300}"
    if not isinstance(found, pa.Table):
        return EXACT, "Python rows came out, and digits are lost in them"
    same = found.sort_by("t").column("x").combine_chunks().cast(pa.int64()).equals(batch.column("x").cast(pa.int64()))
    return EXACT, "" if same else "digits were lost"


def rows_of(found: Any) -> list[Any]:
    """A sink's result as rows."""
    return list(found.to_pylist()) if isinstance(found, pa.Table) else list(found)


def tried(kind: str) -> list[Tried]:
    """Everything for one type."""
    return [*tried_operators(kind), *tried_ends(kind)]
