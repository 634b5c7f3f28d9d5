"""Naiad's example of a vertex: distinct words at once, their counts when an epoch is complete.

    python examples/distinct_count.py            # in this process
    python examples/distinct_count.py --ray      # on Ray

The vertex has two outputs. On the first it sends each distinct record of an epoch as soon as it sees it; that needs no coordination.
On the second it sends how often each came. It knows that only in ``on_notify``, when everything of that epoch has arrived.
(Murray et al., Naiad, SOSP 2013, figure 4.)
"""

from __future__ import annotations

import sys
from typing import Any

import rayad as rd

EPOCHS = [["to", "be", "or", "not", "to", "be"], ["that", "is", "the", "question"], ["to", "be", "is", "to", "do"]]


class DistinctCount(rd.Vertex):
    """Output 0: the distinct records of each epoch, early. Output 1: ``(record, count)`` of each epoch, when it is complete."""

    def __init__(self) -> None:
        self.counts: dict[rd.Timestamp, dict[Any, int]] = {}

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        if time not in self.counts:
            self.counts[time] = {}
            self.notify_at(time)
        counts = self.counts[time]
        fresh = []
        for record in rd.to_rows(batch):
            if record not in counts:
                fresh.append(record)
            counts[record] = counts.get(record, 0) + 1
        self.send_by(0, fresh, time)

    def on_notify(self, time: rd.Timestamp) -> None:
        counts = self.counts.pop(time, {})  # {}: they were given to another replica
        if counts:
            self.send_by(1, list(counts.items()), time)

    # For rescaling while it runs (docs/design/rescaling.md); without these two the number of replicas stays as it is.
    def give(self, groups: frozenset[int]) -> Any:
        given = {}
        for time, counts in self.counts.items():
            leaving = [record for record in counts if rd.key_group(record, self.key_groups) in groups]
            given[time] = {record: counts.pop(record) for record in leaving}
        return given

    def take(self, state: Any) -> None:
        for time, counts in state.items():
            if time not in self.counts:
                self.counts[time] = {}
                self.notify_at(time)
            self.counts[time].update(counts)


def flow() -> rd.Dataflow:
    """The dataflow; two replicas share the words by key when it runs with ``parallelism=2``."""
    dataflow = rd.Dataflow("distinct-count")
    words = dataflow.from_epochs(EPOCHS, name="words").key_by(lambda word: word)
    distinct, counts = dataflow.vertex(DistinctCount, inputs=[words], outputs=2, name="distinct-count")
    distinct.collect("distinct")
    counts.collect("counts")
    return dataflow


def main() -> None:
    """Run it and print the results, epoch by epoch."""
    result = flow().run(parallelism=2, runtime="ray" if "--ray" in sys.argv[1:] else "local")
    for epoch, words in enumerate(EPOCHS):
        time = rd.Timestamp(epoch)
        distinct = sorted(record for at, record in result["distinct"] if at == time)
        counts = sorted(record for at, record in result["counts"] if at == time)
        print(f"epoch {epoch}: {' '.join(words)}")
        print(f"  distinct: {' '.join(distinct)}")
        print(f"  counts:   {' '.join(f'{word}={count}' for word, count in counts)}")


if __name__ == "__main__":
    main()
