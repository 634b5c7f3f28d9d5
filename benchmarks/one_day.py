"""Windows of very many keys that all end at one moment: a day; also of a collection that is loaded in one epoch, where one operator hands
all of it to the next. Work of ``benchmarks.state_on_disk``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

import rayad as rd
from benchmarks.sources import Generated, in_one_epoch

DAY = 86_400
BATCH_ROWS, ROWS_AT_ONCE = 50_000, 2_000
ODD = 2_654_435_761
"""Coprime to 2**40: keys without order, each once."""


def of_the_day(rows: int, in_rows: bool, part: int) -> Iterator[rd.SourceBatch]:
    """Records of as many keys, at any time of the day; an epoch for each batch."""
    size = ROWS_AT_ONCE if in_rows else BATCH_ROWS
    for epoch, begin in enumerate(range(0, rows, size)):
        numbers = np.arange(begin, min(rows, begin + size))
        keys, at = numbers * ODD % (1 << 40), np.random.default_rng(epoch).integers(0, DAY, len(numbers))
        batch = list(zip(keys.tolist(), at.tolist(), strict=True)) if in_rows else pa.record_batch({"key": keys, "at": at})
        yield rd.SourceBatch(epoch, batch)


class Wakes(rd.Process):
    """Sets a timer for the end of the day."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.state = record[1]
        context.set_timer(DAY)

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.emit(context.time - context.state)
        context.state = None


def day_of(kind: str, in_rows: bool, rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """How many results came, with the sum of their keys, and a function that says how many had to: it takes memory, too."""
    found: Counter[str] = Counter()

    def keep(batch: Any) -> list[Any]:
        keys = np.array([row[0] for row in batch]) if isinstance(batch, list) else batch.column(0).to_numpy()
        found.update(results=len(keys), keys=int(keys.sum()))
        return []

    flow = rd.Dataflow(f"day-{kind}")
    key, at = (itemgetter(0), itemgetter(1)) if in_rows else ("key", "at")

    def side(name: str) -> Any:
        return flow.source(Generated(1, partial(of_the_day, rows, in_rows)), name=name).assign_timestamps(at).key_by(key)

    keyed = side("records")
    if kind == "timers":
        out = keyed.process(Wakes)
    elif kind == "join":
        out = keyed.window(rd.windows.tumbling(DAY)).join(side("others"))
    else:
        windowed = keyed.window(rd.windows.session(DAY) if kind == "sessions" else rd.windows.tumbling(DAY))
        out = windowed.aggregate("collect_list", at) if in_rows else windowed.max(at)
    out.map_batches(keep).collect("none")
    flow.run(run, runtime="local", parallelism=1)
    return found, partial(results_of, rows)


def late_of_the_day(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """How many counts of a collection's windows came, with the sum of their keys, and a function that says how many had to."""
    found: Counter[str] = Counter()

    def keep(batch: Any) -> list[Any]:
        key_and_window, count = batch.column(0).flatten()
        found.update(results=int(count.to_numpy().sum()), keys=int(key_and_window.flatten()[0].to_numpy().sum()))
        return []

    def loaded(part: int) -> Iterator[rd.SourceBatch]:
        batches = (one.batch for one in of_the_day(rows, False, part))
        return in_one_epoch(batch.append_column("n", np.ones(len(batch), np.int64)) for batch in batches)

    flow = rd.Dataflow("day-late")
    records = flow.source(Generated(1, loaded)).as_collection(diff="n", checked=False)
    counted = records.key_by("key").window(rd.windows.tumbling(DAY), at="at", lateness=100).count()
    counted.stream.map_batches(keep).collect("none")
    flow.run(run, runtime="local", parallelism=1)
    return found, partial(results_of, rows)


def results_of(rows: int) -> Counter[str]:
    """One of each key."""
    return Counter(results=rows, keys=int((np.arange(rows) * ODD % (1 << 40)).sum(dtype=np.uint64)))


KINDS = {
    "day-late": late_of_the_day,
} | {
    f"day-{kind}{'-rows' if in_rows else ''}": partial(day_of, kind, in_rows)
    for kind, in_rows in (
        ("windows", False),
        ("sessions", False),
        ("join", False),
        ("windows", True),
        ("sessions", True),
        ("join", True),
        ("timers", True),
    )
}

__all__ = ["KINDS"]
