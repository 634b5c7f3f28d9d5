"""Bytewax: rows from Parquet files through pyarrow, keyed by ``str(key)`` (keys must be strings), reduce_final.

With ``combine`` batches stay in columns until they are summed by key with pyarrow, 131,072 rows at once, and the sums of batches are
added up: what its users write when it must be fast.

One process with several worker threads, or several processes with one each.

The time begins when the first worker opens a source, so without the start of interpreters and of the cluster, and ends when the last
sink has been closed; the clock is the one that all processes of a machine share.
"""

import operator
from pathlib import Path

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from _cluster import BATCH_ROWS, Keep, TimedSource, arguments, found_in, measure
from bytewax.dataflow import Dataflow
from bytewax.inputs import StatefulSourcePartition


class RowsPart(StatefulSourcePartition):
    """The rows of one file as (str(key), value)."""

    def __init__(self, path: str) -> None:
        self.batches = pq.ParquetFile(path).iter_batches(BATCH_ROWS)

    def next_batch(self):
        batch = next(self.batches)
        return list(zip(map(str, batch.column(0).to_pylist()), batch.column(1).to_pylist(), strict=True))

    def snapshot(self):
        return None


class SumsPart(RowsPart):
    """The sums of one row group of one file after the other as (str(key), sum)."""

    def __init__(self, path: str) -> None:
        self.batches = pq.ParquetFile(path).iter_batches(1 << 17)

    def next_batch(self):
        sums = pa.table(next(self.batches)).group_by("key").aggregate([("value", "sum")])
        return list(zip(map(str, sums.column("key").to_pylist()), sums.column("value_sum").to_pylist(), strict=True))


def digest_of(all_told):
    """Of the sums."""
    sums = found_in(all_told)
    mixed = [(int(key) * 2_654_435_761) ^ (total * 40_503) for key, total in sums]
    return [len(sums), sum(mixed) & (2**63 - 1)]


flow = Dataflow("keyed-sum")
rows = op.input("rows", flow, TimedSource(Path(arguments["folder"]).glob("*.parquet"), SumsPart if arguments.get("combine") else RowsPart))
op.output("out", op.reduce_final("sum", rows, operator.add), Keep())
measure(flow, digest_of)
