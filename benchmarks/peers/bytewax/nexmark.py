"""Bytewax: Nexmark queries 1, 2, 5 and 7 over the rows of Parquet files, with its window operators. Keys are strings, as they must be.

One process with several worker threads, or several processes with one each. The files are distributed over the workers, so records of one
key come out of order by as much as the readers are apart. The clock waits for a day, so that no record is late: windows close at the end.

The time begins when the first worker opens a source, so without the start of interpreters and of the cluster, and ends when the last
sink has been closed; the clock is the one that all processes of a machine share.
"""

import datetime as dt
import zlib
from pathlib import Path

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.parquet as pq
from _cluster import BATCH_ROWS, Keep, KeepPart, TimedSource, arguments, found_in, lock, measure, told
from bytewax.dataflow import Dataflow
from bytewax.inputs import StatefulSourcePartition

ORIGIN = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
WINDOW, SLIDE = dt.timedelta(seconds=10), dt.timedelta(seconds=2)


class BidsPart(StatefulSourcePartition):
    """The bids of one file as tuples."""

    def __init__(self, path: str) -> None:
        columns = ["auction", "bidder", "price", "date_time"][: 4 if arguments["query"] > 2 else 3]
        self.batches = pq.ParquetFile(path).iter_batches(BATCH_ROWS, columns=columns)

    def next_batch(self):
        columns = [c.cast(pa.timestamp("ms", "UTC")) if pa.types.is_timestamp(c.type) else c for c in next(self.batches).columns]
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def snapshot(self):
        return None


class SumsPart(KeepPart):
    """Keeps the number of results and the sum of each of their columns: there are many."""

    def write_batch(self, items):
        with lock:
            if items:
                told["found"].append([len(items), *(sum(column) for column in zip(*items, strict=True))])
                told["found"] = [[sum(column) for column in zip(*told["found"], strict=True)]]


def higher(a, b):
    """Of two ``(number, [who])`` the one with the larger number; for equal numbers both merged."""
    return (a[0], a[1] + b[1]) if a[0] == b[0] else max(a, b, key=lambda best: best[0])


def clock(of):
    return win.EventClock(of, wait_for_system_duration=dt.timedelta(days=1))


def query1(bids):
    return op.map("euros", bids, lambda bid: (bid[0], bid[1], bid[2] * 908 // 1000))


def query2(bids):
    return op.map("pick", op.filter("some", bids, lambda bid: bid[0] % 123 == 0), lambda bid: (bid[0], bid[2]))


def query5(bids):
    windower = win.SlidingWindower(length=WINDOW, offset=SLIDE, align_to=ORIGIN)
    counts = win.count_window("count", bids, clock(lambda bid: bid[3]), windower, key=lambda bid: str(bid[0])).down
    by_window = op.map("by-window", counts, lambda item: (str(item[1][0]), (item[1][1], [int(item[0])])))
    best = op.reduce_final("best", by_window, higher)
    step_ms = int(SLIDE.total_seconds() * 1000)
    return op.flat_map("rows", best, lambda item: [(int(item[0]) * step_ms, auction, item[1][0]) for auction in item[1][1]])


def query7(bids):
    windower = win.TumblingWindower(length=WINDOW, align_to=ORIGIN)
    # Two keys, so that both workers have something to do.
    keyed = op.map("key", bids, lambda bid: (str(bid[1] % 2), (bid[2], [(bid[0], bid[1])], bid[3])))
    reduced = win.reduce_window("max", keyed, clock(lambda best: best[2]), windower, lambda a, b: (*higher(a, b)[:2], a[2])).down
    best = op.reduce_final("best", op.map("by-window", reduced, lambda item: (str(item[1][0]), item[1][1])), higher)
    step_ms = int(WINDOW.total_seconds() * 1000)
    return op.flat_map("rows", best, lambda item: [(int(item[0]) * step_ms, *who, item[1][0]) for who in item[1][1]])


QUERIES = {1: query1, 2: query2, 5: query5, 7: query7}


def digest_of(all_told):
    """Of the rows, or of the sums of long results."""
    found = found_in(all_told)
    if arguments["query"] <= 2:
        return [sum(column) & (2**63 - 1) for column in zip(*found, strict=True)]
    return [len(found), sum(zlib.crc32(repr(row).encode()) for row in found)]


flow = Dataflow("nexmark")
bids = op.input("bids", flow, TimedSource(Path(arguments["folder"]).glob("bids/*/*.parquet"), BidsPart))
op.output("out", QUERIES[arguments["query"]](bids), Keep(SumsPart if arguments["query"] <= 2 else KeepPart))
measure(flow, digest_of)
