"""Ray Data sets as sources and results.

The data set is computed once on the driver; its blocks are read by reference (:mod:`rayad.integrations.refs`). Blocks that are not Arrow
are converted by Ray, as it does for ``to_arrow_refs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from rayad.integrations.blocks import DEFAULT_BATCH_ROWS
from rayad.integrations.refs import RefSource, Replay, check_replay, number_blocks
from rayad.integrations.staged import ArrowSink
from rayad.progress import ConfigError


class RayDatasetSource(RefSource):
    """Reads the blocks of a ``ray.data.Dataset``. The data set is computed when the source is made; its blocks are kept as long as the
    source.

    ``epoch`` names an integer column with each row's epoch; blocks are then sorted by it and read side by side, lowest epoch first.
    ``replay`` says how a run that resumes after the driver's death gets the rows: ``"recompute"`` computes the data set again, which must
    give the same blocks; ``"stage"`` writes them to ``staging_path`` once, when the job starts, and reads them there. A staged data set is
    not computed again (see :mod:`rayad.integrations.refs`).
    """

    where = "from_ray_dataset"
    hint = (
        "its owner died or the object store lost it: keep the driver alive until the job has ended, and give Ray more object store memory"
    )

    def __init__(
        self,
        dataset: Any,
        *,
        epoch: str | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        replay: Replay = "recompute",
        staging_path: str | None = None,
    ) -> None:
        import ray.data

        if not isinstance(dataset, ray.data.Dataset):
            raise ConfigError(f"from_ray_dataset: got a {type(dataset).__name__}; give a ray.data.Dataset")
        folder = check_replay(replay, staging_path, self.where)
        staged = folder.read() if folder is not None else None
        if staged is not None:
            super().__init__(staged.schema, None, epoch=epoch, batch_rows=batch_rows, folder=folder, staged=staged)
            return
        computed = _compute_in_order(dataset)
        counts = [about.num_rows for bundle in computed.iter_internal_ref_bundles() for about in bundle.metadata]
        refs: list[Any] = computed.to_arrow_refs()
        if len(counts) != len(refs):
            raise ConfigError(
                f"from_ray_dataset: Ray listed {len(counts)} blocks and {len(refs)} references; call .materialize() on the data set first"
            )
        blocks = [
            (ref, rows if rows is not None else ray.get(ref).num_rows)  # ends with the block, or with the error that it is lost
            for ref, rows in zip(refs, counts, strict=True)
        ]
        schema = _arrow_schema(computed)
        super().__init__(schema, number_blocks(blocks), keep=computed, epoch=epoch, batch_rows=batch_rows, folder=folder)


def _compute_in_order(dataset: Any) -> Any:
    """Compute the data set with its blocks in the order of its input, not in that in which Ray's tasks happen to end.

    Two computations then number the same blocks alike, which a run that resumes relies on. The data set's own setting is put back.
    """
    options = dataset.context.execution_options
    before = options.preserve_order
    options.preserve_order = True
    try:
        return dataset.materialize()
    finally:
        options.preserve_order = before


def _arrow_schema(dataset: Any) -> pa.Schema:
    schema = dataset.schema()
    if schema is None:
        return pa.schema([])
    base = schema.base_schema
    if isinstance(base, pa.Schema):
        return base
    try:
        return pa.schema(list(zip(schema.names, schema.types, strict=True)))
    except (TypeError, pa.ArrowInvalid) as error:
        raise ConfigError(
            f"from_ray_dataset: the columns {schema!r} are not Arrow types: {error}; convert them with map_batches first"
        ) from error


class RayDatasetSink(ArrowSink):
    """Gives the results as a ``ray.data.Dataset``: one block for each replica and snapshot, owned by the driver.

    Ray Data measures its blocks. Columns that pyarrow cannot measure (views of strings, binaries and lists in older versions) become large
    strings, large binaries and lists, with equal values.
    """

    where = "to_ray_dataset"

    def result(self, receipt: Sequence[bytes]) -> Any:
        """The data set."""
        import ray.data

        return ray.data.from_arrow([measurable(table) for table in self.tables(receipt)] or [pa.table({})])


def measurable(table: pa.Table) -> pa.Table:
    """``table`` with columns whose bytes pyarrow can count, as Ray Data does for every block."""
    for index, field in enumerate(table.schema):
        column = table.column(index)
        if not _is_measured(column):
            parts = [_listed(chunk) for chunk in column.chunks]
            kind = without_views(parts[0].type)
            table = table.set_column(index, field.with_type(kind), pa.chunked_array([part.cast(kind) for part in parts], kind))
    return table


def _is_measured(column: pa.ChunkedArray) -> bool:
    try:
        return bool(column.nbytes >= 0)
    except pa.ArrowTypeError:
        return False


def _listed(array: pa.Array) -> pa.Array:
    """A view of lists as lists. Arrow's own cast leaves the last one empty (tried with pyarrow 21 and 26)."""
    is_large = pat.is_large_list_view(array.type)
    if not (is_large or pat.is_list_view(array.type)):
        return array
    ends = np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int64() if is_large else pa.int32())
    make = pa.LargeListArray if is_large else pa.ListArray
    return make.from_arrays(offsets, array.flatten(), mask=array.is_null())


def without_views(kind: pa.DataType) -> pa.DataType:
    """A type for the same values without views of strings or binaries.

    >>> without_views(pa.struct([("a", pa.list_(pa.string_view()))]))
    StructType(struct<a: list<item: large_string>>)
    """
    if pat.is_string_view(kind):
        return pa.large_string()
    if pat.is_binary_view(kind):
        return pa.large_binary()
    if pat.is_struct(kind):
        return pa.struct([field.with_type(without_views(field.type)) for field in kind])
    if pat.is_list(kind):
        return pa.list_(kind.value_field.with_type(without_views(kind.value_type)))
    if pat.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(without_views(kind.value_type)))
    return kind


__all__ = ["RayDatasetSink", "RayDatasetSource"]
