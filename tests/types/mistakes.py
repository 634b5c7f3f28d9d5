"""A program with mistakes that an editor should show before it runs: pyright and mypy find each at its line. It is read, never run."""

from __future__ import annotations

import rayad as rd

flow = rd.Dataflow("mistakes")
lines = flow.from_items(["to be", "or not to be"])
words = lines.flat_map(lambda line: line.split())
counts = words.key_by(lambda word: word).count()
orders = flow.from_items([("ann", 3, 9.5), ("bob", 1, 2.0)])
table = flow.read_csv("orders.csv")


class Doubler(rd.Vertex):
    def on_recv(self, edge: int, batch: rd.Batch, time: rd.Timestamp) -> None:
        self.send_to(0, batch, time)  # mistake: a vertex has send_by


def both(inner: rd.Stream[str]) -> rd.Stream[str]:
    return inner


words.flatmap(str.upper)  # mistake: a misspelt method
words.map(lambda word: word.uper())  # mistake: a method that the record does not have
words.map(lambda word: word + 1)  # mistake: a string and a number
orders.key_by(lambda order: order.name)  # mistake: a tuple has no names
orders.map(lambda order: order[3])  # mistake: a record of three
counts.map(lambda count: count[0] + count[1])  # mistake: a word and its count
words.assign_timestamps(5)  # mistake: neither a function nor a column
words.map(str.upper, nam="upper")  # mistake: a wrong option
words.rebalance(buffer="2")  # mistake: a string where a number is due
words.join(counts)  # mistake: a missing argument
words.key_by(3)  # mistake: neither a function nor a column
words.key_by(len).window(rd.windows.tumbling(60)).cont()  # mistake: a misspelt aggregation
words.iterate(both)  # mistake: a body gives two streams
table.write_parquet("out", mode="replace")  # mistake: a mode that there is not
flow.read_csv("orders.csv", delimeter=";")  # mistake: a misspelt keyword
flow.from_items(5)  # mistake: nothing to iterate over
rd.RunConfig(snapshots=rd.SnapshotConfig(interval_s="10"))  # mistake: a string where seconds are due
rd.ScalingConfig(parallelism="four")  # mistake: a word where a number is due

job = flow.submit(rd.RunConfig(storage_path="saved"))
job.savepont()  # mistake: a misspelt call
job.rescale("counts", 2, timeout_s="60")  # mistake: a string where seconds are due
job.crash()  # mistake: only a local job can be let crash
job.input("orders").advance(3)  # mistake: it is advance_to
flow.submit(runtime="local").wait("10")  # mistake: a string where seconds are due
flow.run(timeout="10")  # mistake: it is timeout_s
flow.run().statistic  # mistake: it is statistics  # noqa: B018
rd.attach("orders").progres()  # mistake: a misspelt call
rd.read_state("saved/orders", "counts", trusted=True)  # mistake: a misspelt keyword
rd.stream("orders")  # mistake: a name that rd does not have
