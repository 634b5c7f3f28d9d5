"""ArrowSource: each batch is of one epoch, epochs are in order, and a resume gives the same rest."""

from __future__ import annotations

import datetime
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.integrations import ArrowSource
from rayad.progress import ConfigError, DataflowError
from tests.integrations.driving import check_resume, drain, read, records
from tests.thorough import examples

epochs_strategy = st.lists(st.integers(0, 5), max_size=40)


def chunked(epochs: list[int], cuts: list[int]) -> pa.Table:
    table = pa.table({"e": pa.array(epochs, pa.int32()), "i": pa.array(range(len(epochs)), pa.int64())})
    bounds = sorted({0, len(epochs), *(cut % (len(epochs) + 1) for cut in cuts)})
    pieces = [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    return pa.concat_tables(pieces) if pieces else table


@examples(each_run=40, soak=100)
@given(epochs_strategy, st.lists(st.integers(0, 40), max_size=5), st.integers(1, 7), st.integers(1, 4), st.booleans())
def test_rows_are_given_once_in_epoch_order_and_the_rest_after_a_resume(
    epochs: list[int], cuts: list[int], batch_rows: int, parts: int, with_epoch: bool
) -> None:
    source = ArrowSource(chunked(epochs, cuts), batch_rows=batch_rows, parts=parts, epoch="e" if with_epoch else None)
    for part in source.list_parts():
        batches = drain(source.build_part(part, None))
        rows = [(epoch, row["e"], row["i"]) for epoch, batch in batches for row in batch.to_pylist()]
        assert all(1 <= batch.num_rows <= batch_rows for _, batch in batches)
        expected = [(e, i) for i, e in enumerate(epochs)][part.start : part.stop]
        if with_epoch:
            assert rows == [(e, e, i) for e, i in sorted(expected, key=lambda pair: pair[0])]
        else:
            assert rows == [(0, e, i) for e, i in expected]
    assert sorted(row["i"] for row in records(source)) == list(range(len(epochs)))
    check_resume(source)


def test_parts_default_to_one_per_batch_and_are_read_side_by_side_only_with_epochs() -> None:
    table = pa.table({"e": range(10)})
    assert len(ArrowSource(table, batch_rows=3).list_parts()) == 4
    assert not ArrowSource(table).interleave
    assert ArrowSource(table, epoch="e").interleave


def test_a_single_chunk_is_sliced_without_a_copy() -> None:
    table = pa.table({"x": pa.array(range(100), pa.int64())})
    (_, batch), *_ = read_here(ArrowSource(table, batch_rows=10, parts=1))
    assert batch.column(0).buffers()[1].address == table.column(0).chunk(0).buffers()[1].address


def read_here(source: ArrowSource) -> list:  # type: ignore[type-arg]
    return [b for part in source.list_parts() for b in drain(source.build_part(part, None))]


def test_metadata_on_the_form_of_rows_is_kept() -> None:
    table = pa.table({"k": ["a"], "v": [1]}).replace_schema_metadata({b"rayad.rows": b"keyed:1"})
    ((_, batch),) = read(ArrowSource(table))
    assert batch.schema.metadata == {b"rayad.rows": b"keyed:1"}


def test_lists_of_tables_and_batches_are_joined() -> None:
    table = pa.table({"x": [1, 2]})
    assert records(ArrowSource([table, table.to_batches()[0]])) == [{"x": 1}, {"x": 2}, {"x": 1}, {"x": 2}]
    assert records(ArrowSource(table.to_batches()[0])) == [{"x": 1}, {"x": 2}]
    assert read(ArrowSource(table.schema.empty_table())) == []


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        ({"x": [1]}, {}, "got a dict"),
        ([], {}, "empty list"),
        ([pa.table({"x": [1]}), "no"], {}, "item 1 is a str"),
        (pa.table({"x": [1]}), {"epoch": "y"}, "epoch='y' names 0 columns of ['x']"),
        (pa.table({"x": ["a"]}), {"epoch": "x"}, "column of type string"),
        (pa.table({"x": [datetime.date(2024, 1, 1)]}), {"epoch": "x"}, "cast it first"),
        (pa.table({"x": [1]}), {"batch_rows": 0}, "a batch, is 0: it must be an int of at least 1"),
        (pa.table({"x": [1]}), {"parts": 0}, "parts is 0: it must be an int of at least 1, or None"),
    ],
)
def test_wrong_arguments_are_refused_with_their_values(data: object, options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as info:
        ArrowSource(data, **options)  # type: ignore[arg-type]
    assert words in str(info.value)


@pytest.mark.parametrize(("values", "words"), [([1, None], "1 of 2 values"), ([3, -2], "down to -2"), ([2**63], "beyond 63 bits")])
def test_epochs_that_are_null_negative_or_too_big_are_refused(values: list[int | None], words: str) -> None:
    kind = pa.uint64() if values == [2**63] else pa.int64()
    with pytest.raises(DataflowError, match="epoch column 'e'") as info:
        ArrowSource(pa.table({"e": pa.array(values, kind)}), epoch="e")
    assert words in str(info.value)


def test_schema_drift_between_tables_names_what_differs() -> None:
    with pytest.raises(DataflowError) as info:
        ArrowSource([pa.table({"a": [1], "b": [1]}), pa.table({"a": ["x"], "c": [1]})])
    assert "column 'b' is missing; column 'c' is extra; column 'a' is string, expected int64" in str(info.value)


def test_resuming_beyond_the_end_says_the_input_changed() -> None:
    source = ArrowSource(pa.table({"x": [1]}))
    with pytest.raises(DataflowError, match="resume at row 5, but it now has 1 rows"):
        source.build_part(source.list_parts()[0], 5).next_batch()
