"""Nexmark queries 1, 2, 3, 4, 5, 7 and 8 as Rayad programs over columns, four of them over Python rows too, and digests of results.

An epoch is a range of the input. Each program gives the result of the query's SQL over all of the input, in some order; for query 4, a
running average, that is its last value for each category.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd

WINDOW, SLIDE = dt.timedelta(seconds=10), dt.timedelta(seconds=2)
MASK = 2**63 - 1


class Sums(rd.Sink):
    """Takes every record and keeps the number of rows and the sum of each column, as the sinks of streaming benchmarks do."""

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return SumsWriter()

    def publish(self, staged: Sequence[Any]) -> list[int]:
        return [sum(column) & MASK for column in zip(*(part for part in staged if part), strict=True)]


class SumsWriter(rd.SinkWriter):
    """The sums of one replica."""

    def __init__(self) -> None:
        self.sums: list[int] = []

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        if isinstance(batch, pa.RecordBatch):
            some = [batch.num_rows, *(pc.sum(column).as_py() for column in batch.columns)]
        else:
            some = [len(batch), *(sum(column) for column in zip(*batch, strict=True))]
        self.sums = [a + b for a, b in zip(self.sums or [0] * len(some), some, strict=True)]

    def stage(self) -> list[int]:
        return self.sums


def read(flow: rd.Dataflow, folder: Path, kind: str, *columns: str) -> rd.Stream:
    """These columns of one kind of event, by epoch."""
    return flow.read_parquet(f"{folder}/{kind}/*/*.parquet", columns=[*columns, "epoch"], epoch="epoch", name=kind)


def query1(flow: rd.Dataflow, folder: Path) -> None:
    """Every bid with its price in euros (908 for 1,000 dollars)."""
    read(flow, folder, "bids", "auction", "bidder", "price").map_batches(in_euros).sink(Sums(), "out")


def in_euros(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The conversion."""
    euros = pc.divide(pc.multiply(batch.column("price"), 908), 1_000)
    return pa.RecordBatch.from_arrays([batch.column("auction"), batch.column("bidder"), euros], names=["auction", "bidder", "euros"])


def query2(flow: rd.Dataflow, folder: Path) -> None:
    """Price and auction of the bids on every 123rd auction."""
    read(flow, folder, "bids", "auction", "price").map_batches(every_123rd).sink(Sums(), "out")


def every_123rd(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The selection."""
    wanted = batch.column("auction").to_numpy() % 123 == 0
    return batch.select(["auction", "price"]).filter(pa.array(wanted))


def query3(flow: rd.Dataflow, folder: Path) -> None:
    """The people who sell in category 10 and live in Oregon, Idaho or California."""
    auctions = read(flow, folder, "auctions", "id", "seller", "category").map_batches(of_category_10)
    persons = read(flow, folder, "persons", "id", "name", "city", "state").map_batches(in_three_states)
    sales = auctions.key_by("seller").join(persons.key_by("id"), name="sales")
    sales.as_columns("seller", "auction", "name", "city", "state").collect("out", columnar=True)


def of_category_10(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A selection."""
    return batch.filter(pc.equal(batch.column("category"), 10)).select(["id", "seller"])


def in_three_states(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A selection."""
    return batch.filter(pc.is_in(batch.column("state"), pa.array(["OR", "ID", "CA"]))).select(["id", "name", "city", "state"])


def query4(flow: rd.Dataflow, folder: Path) -> None:
    """The average closing price in each category: an auction closes when event time reaches its end."""
    auctions = read(flow, folder, "auctions", "id", "category", "date_time", "expires").map_batches(without_epoch)
    bids = read(flow, folder, "bids", "auction", "price", "date_time").map_batches(without_epoch)
    offers = auctions.key_by("id").join(bids.key_by("auction"), name="bids of auctions")
    offers = offers.as_columns("auction", "category", "opens", "closes", "price", "at").assign_timestamps("at")
    final = offers.key_by(["auction", "category"]).window(rd.windows.given("opens", "closes")).max("price", name="closing price")
    prices = final.as_columns("auction", "category", "opens", "closes", "final")
    prices.key_by("category").mean("final", name="average").collect("out")


def without_epoch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drop the column that comes from the file's folder."""
    return batch.drop_columns(["epoch"])


def query5(flow: rd.Dataflow, folder: Path) -> None:
    """The auctions with the most bids in the last ten seconds, every two seconds."""
    bids = read(flow, folder, "bids", "auction", "date_time").assign_timestamps("date_time")
    counts = bids.key_by("auction").window(rd.windows.sliding(WINDOW, SLIDE)).count(name="counts")
    counted = counts.as_columns("auction", "start", "end", "bids")
    hottest = counted.key_by("start").window(rd.windows.per_epoch()).max_by("bids", name="hottest")  # a window fires in one epoch
    hottest.as_columns().map_batches(lambda batch: batch.select(["start", "auction", "bids"])).collect("out", columnar=True)


def query7(flow: rd.Dataflow, folder: Path) -> None:
    """The highest bid of every ten seconds."""
    bids = read(flow, folder, "bids", "auction", "bidder", "price", "date_time").assign_timestamps("date_time")
    highest = bids.window(rd.windows.tumbling(WINDOW)).max_by("price", name="highest").as_columns()
    highest.map_batches(lambda batch: batch.select(["window_start", "auction", "bidder", "price"])).collect("out", columnar=True)


def query8(flow: rd.Dataflow, folder: Path) -> None:
    """The people who registered and opened an auction within the same ten seconds."""
    persons = read(flow, folder, "persons", "id", "name", "date_time").map_batches(without_epoch).assign_timestamps("date_time")
    auctions = read(flow, folder, "auctions", "seller", "date_time").map_batches(without_epoch).assign_timestamps("date_time")
    both = persons.key_by("id").window(rd.windows.tumbling(WINDOW)).join(auctions.key_by("seller"), name="new sellers").as_columns()
    once = both.key_by(["window_start", "id", "name"]).window(rd.windows.per_epoch()).count(name="once").as_columns()
    once.map_batches(lambda batch: batch.select(["window_start", "id", "name"])).collect("out", columnar=True)


QUERIES: dict[int, Callable[[rd.Dataflow, Path], None]] = {
    1: query1, 2: query2, 3: query3, 4: query4, 5: query5, 7: query7, 8: query8,
}  # fmt: skip


# -- the same with a Python record for each event -----------------------------------------------------
def rows_query1(flow: rd.Dataflow, folder: Path) -> None:
    """Query 1."""
    bids = read(flow, folder, "bids", "auction", "bidder", "price")
    bids.map(lambda bid: (bid["auction"], bid["bidder"], bid["price"] * 908 // 1000)).sink(Sums(), "out")


def rows_query2(flow: rd.Dataflow, folder: Path) -> None:
    """Query 2."""
    some = read(flow, folder, "bids", "auction", "price").filter(lambda bid: bid["auction"] % 123 == 0)
    some.map(lambda bid: (bid["auction"], bid["price"])).sink(Sums(), "out")


def rows_query5(flow: rd.Dataflow, folder: Path) -> None:
    """Query 5."""
    bids = read(flow, folder, "bids", "auction", "date_time").map(lambda bid: (bid["auction"], bid["date_time"]))
    timed = bids.assign_timestamps(lambda bid: bid[1]).key_by(lambda bid: bid[0])
    counts = timed.window(rd.windows.sliding(WINDOW, SLIDE)).count(name="counts").map(lambda row: (row[1].start, row[0], row[2]))
    hottest = counts.key_by(lambda row: row[0]).window(rd.windows.per_epoch()).max_by(lambda row: row[2], name="hottest")
    hottest.map(lambda row: row[2]).collect("out")


def rows_query7(flow: rd.Dataflow, folder: Path) -> None:
    """Query 7."""
    bids = read(flow, folder, "bids", "auction", "bidder", "price", "date_time")
    timed = bids.map(lambda bid: (bid["auction"], bid["bidder"], bid["price"], bid["date_time"])).assign_timestamps(lambda bid: bid[3])
    highest = timed.window(rd.windows.tumbling(WINDOW)).max_by(lambda bid: bid[2], name="highest")
    highest.map(lambda row: (row[0].start, *row[1][:3])).collect("out")


ROW_QUERIES: dict[int, Callable[[rd.Dataflow, Path], None]] = {1: rows_query1, 2: rows_query2, 5: rows_query5, 7: rows_query7}


def program(query: int, folder: Path, *, rows: bool = False) -> rd.Dataflow:
    """One query as a dataflow over columns, or over Python rows."""
    flow = rd.Dataflow(f"nexmark-{query}{'-rows' if rows else ''}")
    (ROW_QUERIES if rows else QUERIES)[query](flow, folder)
    return flow


# -- forms -------------------------------------------------------------------------------------------
def form_of(query: int, found: Any, *, as_rows: bool = False) -> Any:
    """The result in its form: sums (queries 1 and 2), a dict of averages (4), else an Arrow table, or a list of Python rows."""
    if query in (1, 2):
        return found
    if query == 4:
        return {key: mean for _, (key, mean) in sorted(found, key=lambda item: item[0].sort_key())}
    if isinstance(found, Sequence):
        return [record for _, record in found]
    if not as_rows or found is None:
        return found
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


# -- digests ---------------------------------------------------------------------------------------
def digest_of(query: int, found: Any) -> list[Any]:
    """Number of rows and one number for the result of :func:`form_of`, independent of order; the peers' scripts compute the same."""
    if query in (1, 2):
        return list(found)
    if query == 4:
        return [len(found), sorted([key, round(mean, 3)] for key, mean in found.items())]
    if not isinstance(found, pa.Table):
        rows = [tuple(_in_ms(value) for value in row) for row in found or []]
        return [len(rows), sum(zlib.crc32(repr(row).encode()) for row in rows)]
    columns = [found.column(i) for i in range(found.num_columns)]
    return rows_digest([column.to_pylist() if pa.types.is_string(column.type) else _whole(column) for column in columns], found.num_rows)


def _in_ms(value: Any) -> Any:
    """Moments as whole milliseconds, other values as they are."""
    if not isinstance(value, dt.datetime):
        return value
    return (value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)


def _whole(column: pa.ChunkedArray) -> list[int]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms"))
    return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def rows_digest(columns: list[list[Any]], rows: int) -> list[int]:
    """Number of rows and the sum of their checksums; moments as milliseconds.

    >>> rows_digest([[1, 2], ["a", "b"]], 2) == rows_digest([[2, 1], ["b", "a"]], 2)
    True
    """
    return [rows, sum(zlib.crc32(repr(row).encode()) for row in zip(*columns, strict=True))]
