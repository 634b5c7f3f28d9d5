"""What is known of records, call by call: pyright and mypy agree with each line. It is read, never run."""

from __future__ import annotations

from typing import Any, assert_type

import pyarrow as pa

import rayad as rd
from rayad.actors.inputs.job_input import JobInput
from rayad.actors.job import Job, Result

flow = rd.Dataflow("known")
lines = flow.from_items(["to be", "or not to be"])
assert_type(lines, rd.Stream[str])
words = lines.flat_map(lambda line: line.split())
assert_type(words, rd.Stream[str])
assert_type(words.map(str.upper).filter(lambda word: word.isalpha()).inspect(print).rebalance(), rd.Stream[str])
assert_type(words.map(len), rd.Stream[int])
assert_type(words.union(words.map(len)), rd.Stream[str | int])

by_length = words.key_by(len)
assert_type(by_length, rd.KeyedStream[int, str])
assert_type(by_length.count(), rd.Stream[tuple[int, int]])
assert_type(by_length.count().latest(), rd.Stream[tuple[int, int]])
assert_type(by_length.count().changes(), rd.Stream[tuple[int, tuple[int | None, int | None]]])
assert_type(by_length.min(), rd.Stream[tuple[int, str]])
assert_type(by_length.max(lambda word: word[0]), rd.Stream[tuple[int, str]])
assert_type(by_length.sum(lambda word: len(word)), rd.Stream[tuple[int, int]])
assert_type(by_length.first(by=lambda word: word), rd.Stream[tuple[int, str]])
assert_type(by_length.reduce(lambda one, other: one + other), rd.Stream[tuple[int, str]])
assert_type(by_length.top_k(3), rd.Stream[tuple[int, list[str]]])
assert_type(by_length.aggregate({"n": "count"}), rd.Stream[tuple[int, dict[str, Any]]])
assert_type(by_length.distinct(), rd.Stream[tuple[int, str]])
assert_type(by_length.lag(by=lambda word: word), rd.Stream[tuple[int, tuple[str | None, str]]])
assert_type(by_length.stateful_map(lambda seen, word: ((seen or 0) + 1, word)), rd.Stream[tuple[int, str]])
assert_type(by_length.join(words.map(len).key_by(lambda length: length)), rd.Stream[tuple[int, tuple[str, int]]])
assert_type(words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(), rd.Stream[tuple[str, int]])

trades = flow.from_items([("a", 1, 9.5), ("b", 2, 3.0)]).assign_timestamps(lambda trade: trade[1])
windows = trades.key_by(lambda trade: trade[0]).window(rd.windows.tumbling(60))
prices: rd.Stream[tuple[str, rd.Window, float]] = windows.max(lambda trade: trade[2])
late: rd.Stream[tuple[str, rd.Window, tuple[str, int, float]]] = windows.count().late
of_all: rd.Stream[tuple[rd.Window, int]] = trades.window(rd.windows.tumbling(60)).count()

# Of columns nothing is known, and nothing is a mistake; a dict from a function has fields of any type.
columns = flow.read_csv("orders.csv")
assert_type(columns, rd.Stream[Any])
assert_type(columns.map(lambda row: row["price"]).map(lambda price: price + 1), rd.Stream[Any])
assert_type(columns.key_by("town").sum("price"), rd.Stream[tuple[Any, Any]])
words.map(lambda word: {"word": word, "n": 1}).map(lambda row: row["n"] + 1).collect()
flow.from_items([{"word": "to", "n": 1}]).key_by(lambda row: row["word"]).sum(lambda row: row["n"] + 0.5).collect()

assert_type(words.iterate(lambda inner: (inner.filter(lambda word: word != ""), inner.map(len))), rd.Stream[int])
loop = flow.loop()
back = loop.feedback()
assert_type(loop.leave(loop.enter(words)), rd.Stream[str])
assert_type(flow.vertex(rd.Vertex, inputs=[words]), rd.Stream[Any])
assert_type(words.vertex(rd.Vertex, outputs=2), tuple[rd.Stream, rd.Stream])
flow.vertex(rd.Vertex, inputs=[by_length], outputs=0)


def bare(stream: rd.Stream, keyed: rd.KeyedStream, windowed: rd.WindowedStream) -> rd.Stream:
    """A name without its types is one of anything, also where each type has to be told."""
    assert_type(keyed.sum(), rd.Stream[tuple[Any, Any]])
    windowed.count().late.collect()
    return stream.map(lambda record: record["any"].thing)


bare(words, by_length, windows)

orders = flow.collection("orders", schema=pa.schema([("amount", pa.int64())]))
assert_type(orders, rd.Collection)
assert_type(flow.sql("select sum(amount) as total from orders", orders=orders), rd.Collection)

assert_type(flow.run(), Result)
job = flow.submit(runtime="local")
job.crash()
assert_type(job.wait(timeout_s=10), Result)
assert_type(job.input("lines"), JobInput)
on_ray = flow.submit()
on_ray.top(timeout_s=1.0)
any_job: Job = rd.attach("known")
