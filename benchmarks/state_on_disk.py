"""State many times as large as the memory it may have: a join of two streams over all time, one with a small side, open windows, windows
over one large epoch, records of one large epoch with the ones before, running totals, distinct values, a collection joined with its counts
(also loaded in one epoch), Python values by key, distinct Python objects, timers of keyed processes, sessions in rows, windows that all end
at one moment (``one_day``).

``python -m benchmarks.state_on_disk join --rows 16000000 --bound-mib 64`` prints, over time, how much has come, the resident anonymous
memory of the process (``/proc/self/smaps_rollup``) and how much of files it has mapped (not all is resident at once). The job runs in the
local runtime with one replica: source, operator and the rest in one process. ``--bound-mib 0``: all in memory, for comparison. The results
are checked against what numpy says of the same records.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

import click
import numpy as np
import pyarrow as pa

import rayad as rd
from benchmarks import one_day
from benchmarks.memory_over_time import Watched, anonymous
from benchmarks.sources import Generated, in_one_epoch

BATCH_ROWS = 50_000
WIDTH, WINDOWS_AT_ONCE = 100, 10


def keys_of(side: int, number: int, rows: int) -> Any:
    """The keys of a batch: of a row in eight the other side has the key, too, and no other row has it."""
    keys = np.random.default_rng((side, number)).integers(1 << 40, 1 << 62, rows)
    keys[: rows // 8] = np.arange(rows // 8) + number * BATCH_ROWS
    return keys


def side_of(side: int, rows: int, part: int) -> Iterator[rd.SourceBatch]:
    """The batches of one side of the join: a key of 8 bytes, a payload of 16; one epoch each."""
    for number in range(-(-rows // BATCH_ROWS)):
        keys = keys_of(side, number, min(BATCH_ROWS, rows - number * BATCH_ROWS))
        yield rd.SourceBatch(number, pa.record_batch({"key": keys, "a": keys ^ 1, "b": keys ^ 2}))


def joined(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """The pairs that came and those that had to: how many, and a sum over their keys."""
    found = [0, 0]

    def keep(batch: Any) -> list[Any]:
        pairs = batch.column("pair").storage
        found[0] += batch.num_rows
        found[1] += int(pairs.field("left").field("a").to_numpy().sum())
        return []

    flow = rd.Dataflow("join-on-disk")
    left, right = (flow.source(Generated(1, partial(side_of, side, rows)), name=f"side {side}").key_by("key") for side in (0, 1))
    left.join(right).map_batches(keep).collect("nothing")
    flow.run(run, runtime="local", parallelism=1)
    numbers = range(-(-rows // BATCH_ROWS))
    sizes = [min(BATCH_ROWS, rows - number * BATCH_ROWS) // 8 for number in numbers]
    shared = [
        keys_of(0, number, min(BATCH_ROWS, rows - number * BATCH_ROWS))[:size] ^ 1 for number, size in zip(numbers, sizes, strict=True)
    ]
    return tuple(found), (sum(sizes), sum(int(some.sum()) for some in shared))


def events(rows: int, windows: int) -> Iterator[pa.RecordBatch]:
    """Events of random keys, spread over all windows; when all are open, single ones of later times let a few windows end after another."""
    for number in range(-(-rows // BATCH_ROWS)):
        chance = np.random.default_rng(number)
        size = min(BATCH_ROWS, rows - number * BATCH_ROWS)
        columns = {"key": chance.integers(0, 1 << 62, size), "at": chance.integers(0, windows * WIDTH, size), "v": np.ones(size, np.int64)}
        yield pa.record_batch(columns)
    for number in range(0, windows, WINDOWS_AT_ONCE):
        yield pa.record_batch({"key": [0], "at": [(windows + number) * WIDTH], "v": [0]})


def windowed(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """The sums over the windows that came, and those that had to. Epochs come one after another: what waits for its epoch to be complete is
    no run yet."""
    windows = 1_000  # open at once
    found = [0, 0]

    def keep(batch: Any) -> list[Any]:
        found[0] += int(batch.column(batch.num_columns - 1).to_numpy().sum())
        return []

    flow = rd.Dataflow("windows-on-disk")
    stream = flow.input("events").assign_timestamps("at", max_delay=windows * WIDTH)
    stream.key_by("key").window(rd.windows.tumbling(WIDTH)).sum("v").map_batches(keep).probe("fired").collect("nothing")
    job = flow.submit(run, runtime="local", parallelism=1)
    source, fired = job.input("events"), job.probe("fired")
    for batch in events(rows, windows):
        source.send(batch)
        source.advance_to(source.epoch + 1)
        fired.wait(source.epoch - 1)
    source.close()
    job.wait()
    return found[0], rows


def at_once(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """The sums over the windows that came of one epoch, and those that had to: all records wait until it is complete."""
    windows = 1_000
    found = [0]

    def keep(batch: Any) -> list[Any]:
        found[0] += int(batch.column(batch.num_columns - 1).to_numpy().sum())
        return []

    flow = rd.Dataflow("epoch-on-disk")
    source = flow.source(Generated(1, lambda part: in_one_epoch(events(rows, windows))), name="events").assign_timestamps("at")
    source.key_by("key").window(rd.windows.tumbling(WIDTH)).sum("v").map_batches(keep).collect("nothing")
    flow.run(run, runtime="local", parallelism=1)
    return found[0], rows


AGAIN = 16
"""Behind so many batches of new keys comes one of keys that were there before, of all ages."""


def numbers_counted(rows: int) -> Iterator[Any]:
    """The numbers of the keys of each batch, all different within a batch."""
    for number, begin in enumerate(range(0, rows, BATCH_ROWS)):
        end = min(rows, begin + BATCH_ROWS)
        yield np.arange(begin, end, dtype=np.uint64)
        if number % AGAIN == AGAIN - 1:
            yield np.arange(number % 7, end, -(-end // BATCH_ROWS), dtype=np.uint64)


def keys_counted(rows: int, part: int) -> Iterator[rd.SourceBatch]:
    """Keys without order, one for each number."""
    for epoch, numbers in enumerate(numbers_counted(rows)):
        yield rd.SourceBatch(epoch, pa.record_batch({"key": (numbers * ODD).astype(np.int64)}))


ODD = np.uint64(0x9E3779B97F4A7C15)


def totalled(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """How many totals of each size came, and a function that says how many had to: it takes memory, too."""
    found: Counter[int] = Counter()

    def keep(batch: Any) -> list[Any]:
        sizes, counts = np.unique(batch.column(1).to_numpy(), return_counts=True)
        found.update(dict(zip(sizes.tolist(), counts.tolist(), strict=True)))
        return []

    flow = rd.Dataflow("totals-on-disk")
    flow.source(Generated(1, partial(keys_counted, rows)), name="keys").key_by("key").count(name="totals").map_batches(keep).collect("none")
    flow.run(run, runtime="local", parallelism=1)

    return found, partial(counted_by_size, rows)


SMALL_ROWS = 1_000


def enriched(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """How many records of one epoch met theirs of a small side that every replica has, and how many had to."""
    found = [0]

    def keep(batch: Any) -> list[Any]:
        found[0] += batch.num_rows
        return []

    def large(part: int) -> Iterator[rd.SourceBatch]:
        batches = (np.arange(begin, min(rows, begin + BATCH_ROWS)) for begin in range(0, rows, BATCH_ROWS))
        return in_one_epoch(pa.record_batch({"key": at % SMALL_ROWS, "a": at, "b": at}) for at in batches)

    flow = rd.Dataflow("broadcast-on-disk")
    small = flow.from_epochs([pa.record_batch({"id": list(range(SMALL_ROWS)), "name": [f"name {at}" for at in range(SMALL_ROWS)]})])
    joined = flow.source(Generated(1, large), name="large").key_by("key").join(small.key_by("id"), broadcast=True)
    joined.map_batches(keep).collect("none")
    flow.run(run, runtime="local", parallelism=1)
    return found[0], rows


KEYS_OF_VALUES = 1_000


def values_seen(rows: int, part: int) -> Iterator[rd.SourceBatch]:
    """Values without order of few keys, one for each number."""
    for epoch, numbers in enumerate(numbers_counted(rows)):
        keys = (numbers % np.uint64(KEYS_OF_VALUES)).astype(np.int64)
        yield rd.SourceBatch(epoch, pa.record_batch({"key": keys, "value": (numbers * ODD).astype(np.int64)}))


def seen_once(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """How many values came, with their sum, and how many had to."""
    found = [0, 0]

    def keep(batch: Any) -> list[Any]:
        found[0] += batch.num_rows
        found[1] = (found[1] + int(batch.column(1).to_numpy().view(np.uint64).sum())) % (1 << 64)
        return []

    flow = rd.Dataflow("distinct-on-disk")
    values = flow.source(Generated(1, partial(values_seen, rows)), name="values")
    values.key_by("key").distinct("value", name="seen").map_batches(keep).collect("none")
    flow.run(run, runtime="local", parallelism=1)
    return found, [rows, rows * (rows - 1) // 2 * int(ODD) % (1 << 64)]


def changes_of(rows: int) -> Iterator[pa.RecordBatch]:
    """Records of keys without order, two a key, which come; those of batches of all ages go, and come again an epoch later."""
    away = np.zeros(0, np.uint64)
    for epoch, numbers in enumerate(chain(numbers_counted(rows), [np.zeros(0, np.uint64)])):
        goes = epoch % (AGAIN + 1) == AGAIN and len(numbers) > 0
        come = np.zeros(0, np.uint64) if goes else np.concatenate([away, numbers])
        away = numbers if goes else np.zeros(0, np.uint64)
        both = np.concatenate([come, away])
        diff = np.repeat([1, -1], [len(come), len(away)])
        keys = (both >> np.uint64(1)) * ODD
        yield pa.record_batch({"key": keys.view(np.int64), "v": both.view(np.int64), "n": diff})


def pairs_summed(found: list[int], batch: Any) -> list[Any]:
    """Add up what a join of records with the count of their key gives: how many pairs, their values, and the counts."""
    weights = batch.column("diff").to_numpy()
    pair = batch.column("record").field(1)
    found[0] += int(weights.sum())
    found[1] += int((weights * pair.field(0).field("v").to_numpy()).sum())
    found[2] += int((weights * pair.field(1).to_numpy()).sum())
    return []


def collected(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """The sums over all that a join of a collection with its count by key gives, and what they had to be. Epochs come one after another, as
    for windows."""
    found = [0, 0, 0]
    flow = rd.Dataflow("collection-on-disk")
    keyed = flow.input("changes").as_collection(diff="n", checked=False).key_by("key")
    both = keyed.join(keyed.count(name="counts").keyed(), name="join")
    both.stream.map_batches(partial(pairs_summed, found)).probe("joined").collect("none")
    job = flow.submit(run, runtime="local", parallelism=1)
    source, seen = job.input("changes"), job.probe("joined")
    for batch in changes_of(rows):
        source.send(batch)
        source.advance_to(source.epoch + 1)
        seen.wait(source.epoch - 1)
    source.close()
    job.wait()
    return found, [rows, rows * (rows - 1) // 2, 2 * rows]


def loaded(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """The same of one epoch: all of the collection is loaded at once."""
    found = [0, 0, 0]
    flow = rd.Dataflow("load-on-disk")
    changes = flow.source(Generated(1, lambda part: in_one_epoch(changes_of(rows))), name="changes")
    keyed = changes.as_collection(diff="n", checked=False).key_by("key")
    keyed.join(keyed.count(name="counts").keyed(), name="join").stream.map_batches(partial(pairs_summed, found)).collect("none")
    flow.run(run, runtime="local", parallelism=1)
    return found, [rows, rows * (rows - 1) // 2, 2 * rows]


def counted_in_python(state: dict[str, Any], record: tuple[int, int]) -> tuple[dict[str, Any], int]:
    """A state of two fields."""
    state["count"] += 1
    state["last"] = record[1]
    return state, state["count"]


def nothing_counted() -> dict[str, Any]:
    return {"count": 0, "last": None}


def counted_by_size(rows: int) -> Counter[int]:
    """How many counts of each size come out."""
    out: Counter[int] = Counter()
    times = np.zeros(rows, np.uint16)
    for numbers in numbers_counted(rows):
        times[numbers] += 1
        sizes, counts = np.unique(times[numbers], return_counts=True)
        out.update(dict(zip(sizes.tolist(), counts.tolist(), strict=True)))
    return out


ROWS_AT_ONCE = 2_000
"""Python objects of an epoch: those of a few epochs are in flight, beside the state."""


def rows_of(numbers: Callable[[], Iterable[Any]], part: int) -> Iterator[rd.SourceBatch]:
    """Keys without order, one for each number, as Python objects."""
    parts = (part for each in numbers() for part in np.array_split(each, -(-len(each) // ROWS_AT_ONCE)))
    for epoch, some in enumerate(parts):
        yield rd.SourceBatch(epoch, list(zip((some * ODD).astype(np.int64).tolist(), some.tolist(), strict=True)))


def held_in_rows(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """How many counts of each size came, and a function that says how many had to: it takes memory, too."""
    found: Counter[int] = Counter()

    def keep(batch: Any) -> list[Any]:
        found.update(count for _, count in batch)
        return []

    flow = rd.Dataflow("rows-on-disk")
    keys = flow.source(Generated(1, partial(rows_of, partial(numbers_counted, rows))), name="keys").key_by(itemgetter(0))
    keys.stateful_map(counted_in_python, nothing_counted, name="counts").map_batches(keep).collect("none")
    flow.run(run, runtime="local", parallelism=1)
    return found, partial(counted_by_size, rows)


def told(record: tuple[int, int]) -> dict[str, int]:
    """A value that Python cannot hash."""
    return {"value": record[0]}


def objects_seen_once(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """How many Python objects came, with the sum of what they hold, and how many had to."""
    found = [0, 0]

    def keep(batch: Any) -> list[Any]:
        found[0] += len(batch)
        found[1] = (found[1] + sum(value["value"] for _, value in batch)) % (1 << 64)
        return []

    flow = rd.Dataflow("objects-on-disk")
    values = flow.source(Generated(1, partial(rows_of, partial(numbers_counted, rows))), name="values")
    values.key_by(lambda record: record[1] % KEYS_OF_VALUES).distinct(told, name="seen").map_batches(keep).collect("none")
    flow.run(run, runtime="local", parallelism=1)
    return found, [rows, rows * (rows - 1) // 2 * int(ODD) % (1 << 64)]


def steps_of(rows: int, in_rows: bool) -> Iterator[Any]:
    """Records of one key in sixteen numbers, all different."""
    size = ROWS_AT_ONCE if in_rows else BATCH_ROWS
    for begin in range(0, rows, size):
        numbers = np.arange(begin, min(rows, begin + size), dtype=np.uint64)
        keys = ((numbers % np.uint64(max(1, rows // 16))) * ODD).astype(np.int64)
        yield list(zip(keys.tolist(), numbers.tolist(), strict=True)) if in_rows else pa.record_batch({"key": keys, "n": numbers})


def lagged(rows: int, run: rd.RunConfig, *, in_rows: bool) -> tuple[Any, Any]:
    """How many records of one epoch came as the first of their key and as later ones, with how far these lie behind the one before, and
    what had to. All records wait until the epoch is complete."""
    found = [0, 0, 0]

    def keep(batch: Any) -> list[Any]:
        for _, (before, now) in rd.to_rows(batch):
            found[before is not None] += 1
            found[2] += 0 if before is None else now - before
        return []

    flow = rd.Dataflow("steps-on-disk")
    steps = flow.source(Generated(1, lambda part: in_one_epoch(steps_of(rows, in_rows))), name="steps")
    keyed = steps.key_by(itemgetter(0)) if in_rows else steps.key_by("key")
    keyed.lag(int, itemgetter(1) if in_rows else "n", name="lag").map_batches(keep).collect("none")
    flow.run(run, runtime="local", parallelism=1)
    keys = min(rows, max(1, rows // 16))
    return found, [keys, rows - keys, (rows - keys) * keys]


class Wakes(rd.Process):
    """Sets a timer for each key, and says when it has fired."""

    def on_record(self, key: Any, record: Any, context: Any) -> None:
        context.state = {"at": record[1], "text": str(key)}
        context.set_timer(record[1] + OPEN_TIMERS)

    def on_timer(self, key: Any, context: Any) -> None:
        context.emit(context.time - context.state["at"])
        context.state = None


OPEN_TIMERS = 500_000


def fired(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """How many timers fired, each as late after its record as it had to; the last ones when the input has ended."""
    found: Counter[int] = Counter()

    def keep(batch: Any) -> list[Any]:
        found.update(late for _, late in batch)
        return []

    flow = rd.Dataflow("timers-on-disk")
    numbers = [np.arange(begin, min(rows, begin + BATCH_ROWS), dtype=np.uint64) for begin in range(0, rows, BATCH_ROWS)]
    keys = flow.source(Generated(1, partial(rows_of, lambda: numbers)), name="keys").assign_timestamps(itemgetter(1))
    keys.key_by(itemgetter(0)).process(Wakes, name="wakes").map_batches(keep).collect("none")
    flow.run(run, runtime="local", parallelism=1)
    return found, Counter({OPEN_TIMERS: rows})


OPEN_SESSIONS = 500_000


def of_session(number: int) -> int:
    """Each key comes twice, so many records apart."""
    return int(number % OPEN_SESSIONS + number // (2 * OPEN_SESSIONS) * OPEN_SESSIONS) * int(ODD)


def sessions_of(record: tuple[int, int]) -> int:
    """The key."""
    return of_session(record[1])


def closed(rows: int, run: rd.RunConfig) -> tuple[Any, Any]:
    """How many sessions of each length and count came, and how many had to."""
    found: Counter[tuple[int, int]] = Counter()

    def keep(batch: Any) -> list[Any]:
        found.update((window.end - window.start, len(some)) for _, window, some in batch)
        return []

    flow = rd.Dataflow("sessions-on-disk")
    numbers = [np.arange(begin, min(rows, begin + BATCH_ROWS), dtype=np.uint64) for begin in range(0, rows, BATCH_ROWS)]
    events = flow.source(Generated(1, partial(rows_of, lambda: numbers)), name="events").assign_timestamps(itemgetter(1))
    windows = events.key_by(sessions_of).window(rd.windows.session(OPEN_SESSIONS + 1))
    windows.aggregate("collect_list", itemgetter(1), name="sessions").map_batches(keep).collect("none")
    flow.run(run, runtime="local", parallelism=1)
    due: Counter[tuple[int, int]] = Counter()
    for begin in range(0, rows, 2 * OPEN_SESSIONS):
        there = min(rows - begin, 2 * OPEN_SESSIONS)
        twice = max(0, there - OPEN_SESSIONS)
        due[2 * OPEN_SESSIONS + 1, 2] += twice
        due[OPEN_SESSIONS + 1, 1] += min(there, OPEN_SESSIONS) - twice
    return found, +due


WORK: dict[str, Callable[[int, rd.RunConfig], tuple[Any, Any]]] = {
    "join": joined,
    "broadcast": enriched,
    "windows": windowed,
    "epoch": at_once,
    "lag": partial(lagged, in_rows=False),
    "lag-rows": partial(lagged, in_rows=True),
    "totals": totalled,
    "distinct": seen_once,
    "collection": collected,
    "load": loaded,
    "rows": held_in_rows,
    "objects": objects_seen_once,
    "timers": fired,
    "sessions": closed,
    **one_day.KINDS,
}


@click.command()
@click.argument("what", type=click.Choice(list(WORK)))
@click.option(
    "--rows", default=16_000_000, show_default=True, help="Of each side of the join; of all windows; how many keys or values there are."
)
@click.option("--bound-mib", default=64, show_default=True, help="RunConfig.state_memory_bytes, in MiB; 0: none.")
@click.option("--directory", type=click.Path(), help="RunConfig.spill_directory.")
def main(what: str, rows: int, bound_mib: int, directory: str | None) -> None:
    """Run one of them, and print memory over time."""
    config = rd.RunConfig(state_memory_bytes=bound_mib << 20 if bound_mib else None, spill_directory=directory)
    work = WORK[what]
    work(10_000, config)  # what is imported is there
    before_mib, watched, began_s = anonymous(), Watched(), time.process_time()
    came, due = work(rows, config)
    watched.close()
    used_s = time.process_time() - began_s
    due = due() if callable(due) else due
    click.echo(
        f"{what}: {rows:,} rows, bound {bound_mib or 'none'} MiB: anonymous {before_mib:.0f} MiB before, {watched.peak_mib:.0f} at most; "
        f"{used_s:.1f} s of processor time; results {'exact' if came == due else f'WRONG: {came}, not {due}'}"
    )


if __name__ == "__main__":
    main()
