"""Check a connector against the contracts of sources and sinks (``dataflow/source.py``, ``dataflow/sink.py``), and an aggregation
against that of ``rd.Aggregator``, on the local runtime.

Each law has a name, with which the error begins. The checks do what the runtime may do: build a part again from any offset, from a pickled
copy as in another process; repeat a commit; resume from an older snapshot; commit from a coordinator that was taken for dead.

>>> import rayad as rd
>>> from rayad.dataflow.items import ItemsSource
>>> check_source(lambda: ItemsSource([["a", "b"], ["c"]], parts=2), records=["a", "b", "c"])
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import random
import tempfile
import time as clock
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import pyarrow as pa

from rayad.dataflow import windows
from rayad.dataflow.config import RunConfig, SnapshotConfig
from rayad.dataflow.operators.aggregates.aggregators import Aggregator, created_columns
from rayad.dataflow.operators.state.contents import Contents
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.sink import Sink, SinkWriter
from rayad.dataflow.source import Source, SourcePart
from rayad.dataflow.streams.flow import Dataflow
from rayad.progress import RayadError, Timestamp, show

BLOCKS_S = 0.1
"""How long ``next_batch`` may take when there is nothing yet: its replica does nothing else meanwhile."""
SLOW_MAX = 3
"""So many calls in a row that take longer are no chance: a busy machine makes one of them slow."""
QUIET_S = 0.3
"""A part that gives nothing for so long has given all it has."""


BEGINNING = 1
"""The number of a run's beginning, which counts as a snapshot in which nothing was staged."""


class LawBroken(AssertionError):
    """A connector or an aggregation breaks its contract: the law, what was done, the result and the expected one."""


class _Read(NamedTuple):
    """One batch as it was read."""

    offset: bytes
    epoch: int
    rows: list[Any]


def _law(name: str, holds: bool, told: str) -> None:
    if not holds:
        raise LawBroken(f"{name}: {told}")


def _copy(value: Any) -> Any:
    """A pickled copy, as another process would get it."""
    return cloudpickle.loads(cloudpickle.dumps(value))


def _same(left: Any, right: Any) -> bool:
    return bool(Contents(left) == Contents(right))


def _counted(rows: Iterable[Any]) -> Counter[Contents]:
    return Counter(map(Contents, rows))


def _difference(got: Counter[Contents], wanted: Counter[Contents]) -> str:
    missing, more = ([one.value for one in (side).elements()] for side in (wanted - got, got - wanted))
    return f"missing: {show(missing[:5])} ({len(missing)} in all); too many: {show(more[:5])} ({len(more)} in all)"


# -- sources -------------------------------------------------------------------------------------------------


def check_source(
    make: Callable[[], Source],
    records: Iterable[Any] | None = None,
    *,
    batches: int = 1000,
    resumes: int = 20,
    quiet_s: float = QUIET_S,
    same_cuts: bool = True,
    seed: int = 0,
) -> None:
    """Check a source against its contract. Raises :class:`LawBroken`.

    Args:
        make: makes the source, with the same input at each call.
        records: all its records, in any order; None: not compared.
        batches: how many batches of a part are read at most; an endless part has no end.
        resumes: how many positions in each part reading is resumed at, chosen by the seed.
        quiet_s: a part that is not exhausted but gives nothing for so long is taken to have given everything.
        same_cuts: whether a resumed part cuts its records into the same batches; otherwise an epoch's records may be cut differently.
    """
    draw = random.Random(seed)
    source = make()
    parts = list(source.list_parts())
    _check_fingerprint(source, parts)
    is_bounded = True
    rows: list[Any] = []
    for number, part in enumerate(parts):
        what = f"part {number} of {len(parts)} ({show(part, 60)})"
        got, end = _read(_copy(source), _copy(part), None, what, batches, quiet_s)
        is_bounded = is_bounded and end is not None
        rows.extend(row for one in got for row in one.rows)
        _check_resumes(source, part, got, end, what, resumes, quiet_s, same_cuts, draw)
        if same_cuts:
            _check_side_by_side(source, part, got, what, quiet_s)
    if records is not None:
        got_rows, wanted = _counted(rows), _counted(records)
        _law("all records come once", got_rows == wanted, _difference(got_rows, wanted))
    if is_bounded:
        _check_in_a_job(make, _counted(rows), seed)


def _check_fingerprint(source: Source, parts: list[Any]) -> None:
    told = source.fingerprint(parts)
    again = _copy(source).fingerprint(_copy(parts))
    _law("a fingerprint is a function of the input", told == again, f"{show(told)} here, {show(again)} from a copy")
    try:
        json.dumps(told)
    except (TypeError, ValueError) as error:
        raise LawBroken(f"a fingerprint is plain JSON: {show(told)}: {error}") from error


def _read(source: Source, part: Any, resume: Any, what: str, batches: int, quiet_s: float) -> tuple[list[_Read], bytes | None]:
    """Up to ``batches`` batches; and the last offset if the part is exhausted."""
    opened = source.build_part(part, resume)
    out: list[_Read] = []
    held: list[tuple[Any, bytes]] = []
    try:
        low = 0
        while len(out) < batches:
            offset = opened.offset()
            frozen = cloudpickle.dumps(offset)
            held.append((offset, frozen))
            again = opened.offset()
            _law("offset() only looks", _same(offset, again), f"{what}: {show(offset)}, asked again {show(again)}")
            floor = opened.epoch_floor()
            _law("an epoch floor does not go back", floor >= low, f"{what}: {floor} after {low}")
            low = floor
            given = _next(opened, what, quiet_s)
            if given is None:
                frozen = cloudpickle.dumps(opened.offset())
                _check_held(held, what)
                return out, frozen
            if given is _QUIET:
                break
            epoch, rows = given
            last = out[-1].epoch if out else 0
            _law("epochs do not go back within a part", epoch >= last, f"{what}: epoch {epoch} after {last}")
            _law("no batch is below the epoch floor", epoch >= floor, f"{what}: epoch {epoch}, the floor was {floor}")
            out.append(_Read(frozen, epoch, rows))
        _check_held(held, what)
        return out, None
    finally:
        opened.close()


_QUIET: Any = object()


def _next(opened: SourcePart, what: str, quiet_s: float) -> Any:
    """The next records with their epoch; None at the end; ``_QUIET`` when nothing has come for ``quiet_s``."""
    began_s, slow = clock.monotonic(), 0
    while True:
        asked_s = clock.monotonic()
        given = opened.next_batch()
        took_s = clock.monotonic() - asked_s
        if given is None:
            return None
        epoch, batch = given if isinstance(given, tuple) and len(given) == 2 else (0, given)
        rows = to_rows(batch)
        is_epoch = isinstance(epoch, int) and not isinstance(epoch, bool) and epoch >= 0
        _law("an epoch is an integer of at least 0", is_epoch, f"{what}: epoch {show(epoch)}")
        if rows:
            return epoch, list(rows)
        slow = slow + 1 if took_s >= BLOCKS_S else 0
        _law("next_batch does not wait", slow < SLOW_MAX, f"{what}: it took {took_s:.2f} s to say that nothing is there yet")
        if clock.monotonic() - began_s > quiet_s and not slow:
            return _QUIET
        clock.sleep(0.001)


def _check_held(held: list[tuple[Any, bytes]], what: str) -> None:
    for offset, frozen in held:
        before = cloudpickle.loads(frozen)
        told = f"{what}: {show(before)} has become {show(offset)} while reading went on"
        _law("an offset does not change after it was given", _same(offset, before), told)


def _check_resumes(
    source: Source,
    part: Any,
    got: list[_Read],
    end: bytes | None,
    what: str,
    resumes: int,
    quiet_s: float,
    same_cuts: bool,
    draw: random.Random,
) -> None:
    places = list(range(len(got)))
    for at in sorted(draw.sample(places, min(resumes, len(places)))):
        offset = cloudpickle.loads(got[at].offset)
        rest, _ = _read(_copy(source), _copy(part), offset, what, len(got) - at if same_cuts else 2 * len(got) + 10, quiet_s)
        wanted, came = ([(one.epoch, one.rows) for one in batches] for batches in (got[at:], rest))
        if not same_cuts:
            wanted, came = ([(epoch, row) for epoch, rows in batches for row in rows] for batches in (wanted, came))
        told = f"{what}, resumed before batch {at} from {show(offset)}: got {show(came, 200)}, wanted {show(wanted, 200)}"
        _law("a resumed part gives the same rest, cut in the same way", _same(came, wanted), told)
    if end is not None:
        rest, _ = _read(_copy(source), _copy(part), cloudpickle.loads(end), what, 1, quiet_s)
        _law("a part that is resumed at its end gives nothing", not rest, f"{what}: {show([one.rows for one in rest])}")


def _check_side_by_side(source: Source, part: Any, got: list[_Read], what: str, quiet_s: float) -> None:
    """Read two copies of a part side by side, as two replicas of one process."""
    one, other = source.build_part(part, None), source.build_part(part, None)
    try:
        for at, wanted in enumerate(got[:20]):
            for opened in (one, other):
                given = _next(opened, what, quiet_s)
                told = f"{what}: batch {at} is {show(given)} beside another reader, {show((wanted.epoch, wanted.rows))} alone"
                _law(
                    "readers do not share their place",
                    _same(given, (wanted.epoch, wanted.rows)),
                    told,
                )
    finally:
        one.close()
        other.close()


def _check_in_a_job(make: Callable[[], Source], wanted: Counter[Contents], seed: int) -> None:
    """A job that crashes repeatedly gives each record once."""
    with tempfile.TemporaryDirectory(prefix="rayad-testing-") as folder:
        flow = Dataflow("connector")
        flow.source(make(), parallelism=2).collect("out")
        config = RunConfig(storage_path=folder, snapshots=SnapshotConfig(interval_s=None))
        job = flow.submit(config, runtime="local", seed=seed, parallelism=2)
        for _ in range(3):
            for _ in range(7):
                job.step()
            job.savepoint()
            for _ in range(5):
                job.step()
            job.crash()
        got = _counted(row for _, row in job.wait()["out"])
        _law("a job that is crashed and resumed gets all records once", got == wanted, _difference(got, wanted))


# -- sinks ---------------------------------------------------------------------------------------------------


def default_batch(number: int) -> list[Any]:
    """Records that differ from batch to batch."""
    return [{"batch": number, "row": row, "text": f"record {row} of batch {number}"} for row in range(3)]


def check_sink(
    make: Callable[[], Sink],
    read: Callable[[Sink], Iterable[Any]],
    *,
    batch: Callable[[int], Any] = default_batch,
    histories: int = 20,
    steps: int = 12,
    takes_back: bool = True,
    seed: int = 0,
) -> None:
    """Check a sink against its contract. Raises :class:`LawBroken`.

    Args:
        make: makes a sink that writes to an empty place, a new place at each call.
        read: returns the records that readers of that place see; an empty list if there are none yet.
        batch: returns the records of batch 0, 1, ...: a list or a RecordBatch.
        takes_back: whether a commit can be rolled back; otherwise jobs resume from the newest snapshot only.
        histories: how many random sequences of writes, snapshots, crashes, resumes and new runs are tried, of ``steps`` steps each.
    """
    for number in range(histories):
        history = _History(make(), read, batch, takes_back, random.Random(seed * 1_000_003 + number))
        try:
            history.play(steps)
        except LawBroken as broken:
            raise LawBroken(f"{broken}\nhistory {number}: {'; '.join(history.told)}") from None


class _History:
    """The calls that one job makes of its sink, compared with a model: a dict from snapshot to records."""

    def __init__(
        self, sink: Sink, read: Callable[[Sink], Iterable[Any]], batch: Callable[[int], Any], takes_back: bool, draw: random.Random
    ) -> None:
        self.told: list[str] = []
        self._program = cloudpickle.dumps(sink)
        self._driver = sink
        self._sink: Sink = sink
        self._read = read
        self._batch = batch
        self._takes_back = takes_back
        self._draw = draw
        self._batches = 0
        self._replicas = draw.choice((1, 2))
        self._next = BEGINNING + 1
        self._kept: dict[int, tuple[list[Any], list[Any]]] = {BEGINNING: ([], [])}  # snapshot: what was staged, which records
        self._given_up: list[Any] = []
        self._pending: list[list[Any]] = []
        self._staged_rows: list[Any] = []
        self._receipt: Any = None
        self._writers: list[SinkWriter] = []

    def play(self, steps: int) -> None:
        sink = self._sink
        sink.check()
        sink.check()
        self._identity = sink.identity()
        sink.run = BEGINNING
        self._open()
        self._sees("a sink shows nothing before the first commit")
        choices: list[Callable[[], None]] = [self._write, self._write, self._give_up]
        if sink.commits:
            choices += [self._snapshot, self._snapshot, self._crash, self._new_run]
        for _ in range(steps):
            self._draw.choice(choices)()
        self._end()

    def _note(self, what: str) -> None:
        self.told.append(what)

    def _open(self) -> None:
        self._writers = [_copy(self._sink).open(replica, self._replicas) for replica in range(self._replicas)]
        self._pending = [[] for _ in self._writers]
        self._given_up, self._staged_rows = [], []

    def _write(self) -> None:
        at = self._draw.randrange(self._replicas)
        records = self._batch(self._batches)
        self._note(f"replica {at} writes batch {self._batches}")
        self._writers[at].write(Timestamp(self._batches), records)
        self._pending[at].extend(to_rows(records))
        self._batches += 1
        self._sees("what is written shows with a commit and not before")

    def _stage(self) -> list[Any]:
        """Stage all writers, and give what they staged as the coordinator reads it from a snapshot."""
        staged = [_copy(writer.stage()) for writer in self._writers]
        self._staged_rows.extend(row for rows in self._pending for row in rows)
        self._pending = [[] for _ in self._writers]
        return staged

    def _give_up(self) -> None:
        """Give a snapshot up: what was staged belongs to the next one."""
        self._note(f"snapshot {self._next} is staged and given up")
        self._given_up.extend(self._stage())
        self._next += 1
        self._sees("what is staged shows with a commit and not before")

    def _snapshot(self) -> None:
        number = self._next
        staged = [*self._given_up, *self._stage()]
        self._sees("what is staged shows with a commit and not before")
        self._kept[number] = (staged, self._staged_rows)
        self._given_up, self._staged_rows = [], []
        self._next += 1
        times = self._draw.choice((1, 1, 2))
        self._note(f"snapshot {number} is committed" + (" twice" if times == 2 else ""))
        for _ in range(times):
            self._receipt = self._sink.commit(number, _copy(staged))
            self._sees("a commit shows what it is given, once")
        cloudpickle.dumps(self._receipt)

    def _resume(self) -> None:
        """Resume from one of the snapshots; those above it are void."""
        last = self._draw.choice([*self._kept][-3 if self._takes_back else -1 :])
        void = range(last + 1, self._next)
        old = _copy(self._sink)
        self._note(f"resume from snapshot {last}, the next is {self._next}")
        self._sink.roll_back(last, self._next)
        self._kept = {number: kept for number, kept in self._kept.items() if number <= last}
        self._receipt = self._sink.commit(last, _copy(self._kept[last][0]))
        self._sees("a job that resumes shows what its snapshot has")
        if void and self._draw.random() < 0.5:
            self._commit_void(old, self._draw.choice(void))
        self._open()

    def _commit_void(self, old: Sink, number: int) -> None:
        self._note(f"a coordinator that was taken for dead commits snapshot {number}")
        try:
            writer = _copy(old).open(0, 1)
            writer.write(Timestamp(self._batches), self._batch(self._batches))
            old.commit(number, [_copy(writer.stage())])
        except RayadError:
            pass  # refused
        self._batches += 1
        self._sees("a void snapshot is not shown")

    def _crash(self) -> None:
        for writer in self._writers:
            if self._draw.random() < 0.5:
                writer.abort()
        self._note("all replicas die")
        self._sees("what is shown stays when writers abort")
        self._resume()

    def _new_run(self) -> None:
        self._note("the driver dies; another run")
        self._sink = cloudpickle.loads(self._program)
        if self._identity is not None:
            self._sink.adopt(self._identity)
        self._sink.run = self._next
        self._resume()

    def _end(self) -> None:
        if self._sink.commits:
            self._snapshot()
        else:
            staged = [*self._given_up, *self._stage()]
            self._kept[BEGINNING] = (staged, self._staged_rows)
            self._note("the job is complete: published twice")
            for _ in range(2):
                self._receipt = self._sink.publish(_copy(staged))
                self._sees("what is published is shown, once")
        self._driver.result(_copy(self._receipt))
        self._sees("result() only looks")

    def _sees(self, law: str) -> None:
        wanted = _counted(row for _, rows in self._kept.values() for row in rows)
        got = _counted(self._read(self._sink))
        if got != wanted:
            raise LawBroken(f"{law}: {_difference(got, wanted)}")


# -- aggregations --------------------------------------------------------------------------------------------


def check_aggregator(make: Callable[[], Aggregator], values: Iterable[Any], *, kind: pa.DataType | None = None, seed: int = 0) -> None:
    """Assert that an aggregation keeps the laws of ``rd.Aggregator``, over values that the caller chooses: put a null among them where
    columns may have one, duplicates, and the ends of what the type holds.

    Args:
        make: gives a new one.
        values: at least three.
        kind: their Arrow type; by default the one that Arrow finds.
        seed: of the order in which values are merged.

    Results are compared by what they hold, floats up to a relative difference of 1e-9, since sums of floats depend on the order. Raises
    LawBroken.

    >>> import rayad as rd
    >>> class Longest(rd.Aggregator):
    ...     def create(self, value):
    ...         return value
    ...     def merge(self, left, right):
    ...         return max(left, right, key=len)
    >>> check_aggregator(Longest, ["a", "bc", "def"])
    >>> check_aggregator(Longest, ["a", "bc", "de"])  # which of two is it?
    Traceback (most recent call last):
    ...
    rayad.testing.LawBroken: merge is commutative: of 'bc' and 'de' it gives 'bc', and 'de' the other way round
    """
    values = list(values)
    if len(values) < 3:
        raise ValueError(f"check_aggregator was given {len(values)} values: laws are about three at least")
    aggregator: Aggregator = _copy(make())  # as another process gets it
    for left, right in itertools.product(values, repeat=2):
        found, turned = (_merged(aggregator, pair) for pair in ((left, right), (right, left)))
        told = f"of {show(left, 60)} and {show(right, 60)} it gives {show(found, 60)}, and {show(turned, 60)} the other way round"
        _law("merge is commutative", _close(found, turned), told)
        added = aggregator.result(aggregator.add(aggregator.create(left), right))
        told = f"{show(right, 60)} added to {show(left, 60)} gives {show(added, 60)}, merged {show(found, 60)}"
        _law("add is merge with what create gives", _close(added, found), told)
    chance = random.Random(seed)
    whole = _merged(aggregator, values)
    for _ in range(20):
        order = chance.sample(values, len(values))
        cut = chance.randrange(1, len(order))
        halves = [reduce(aggregator.merge, map(aggregator.create, half)) for half in (order[:cut], order[cut:])]
        found = aggregator.result(aggregator.merge(*halves))
        told = f"{show(order[:cut], 200)} and {show(order[cut:], 200)}, each merged, give {show(found, 60)}, all in a row {show(whole, 60)}"
        _law("merge is associative", _close(found, whole), told)
    accumulator = reduce(aggregator.merge, map(aggregator.create, values))
    first, second = aggregator.result(accumulator), aggregator.result(accumulator)
    _law("result changes nothing", _close(first, second), f"it gave {show(first, 60)} and then {show(second, 60)}")
    column = pa.array(values, kind)
    if aggregator.columns:
        _check_created(aggregator, column)
    _check_aggregated(make, column)


def _merged(aggregator: Aggregator, values: Iterable[Any]) -> Any:
    return copy.deepcopy(aggregator.result(reduce(aggregator.merge, map(aggregator.create, values))))


def _close(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right) or math.isclose(left, right, rel_tol=1e-9)
    if isinstance(left, (list, tuple)) and type(left) is type(right) and len(left) == len(right):
        return all(map(_close, left, right))
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        return all(_close(left[name], right[name]) for name in left)
    return _same(left, right)


def _check_created(aggregator: Aggregator, column: pa.Array) -> None:
    made = created_columns(aggregator, column)
    parts = [made.field(name).to_pylist() for name in aggregator.columns]
    rows = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
    for value, row in zip(column.to_pylist(), rows, strict=True):
        alone = aggregator.create(value)
        told = f"of {show(value, 60)} create gives {show(alone, 60)}, create_columns {show(row, 60)}"
        _law("create_columns gives what create does", _close(alone, row), told)


def _check_aggregated(make: Callable[[], Aggregator], column: pa.Array) -> None:
    """In jobs over rows and over columns, in two epochs: by key, and in windows."""
    rows = [{"k": at % 3, "t": at, "v": value} for at, value in enumerate(column.to_pylist())]
    batch = pa.RecordBatch.from_arrays([pa.array([row[name] for row in rows]) for name in ("k", "t")] + [column], names=["k", "t", "v"])
    half = len(rows) // 2
    found = []
    for epochs in ([rows[:half], rows[half:]], [batch.slice(0, half), batch.slice(half)]):
        flow = Dataflow()
        keyed = flow.from_epochs(epochs, batch_rows=2).assign_timestamps("t", max_delay=0).key_by("k")
        keyed.aggregate(make(), "v").collect("running")
        keyed.window(windows.sliding(6, 3)).aggregate(make(), "v").collect("windows")
        result = flow.run(runtime="local", parallelism=2)
        found.append({(sink, time, record[:-1]): record[-1] for sink in ("running", "windows") for time, record in result[sink]})
    in_rows, in_columns = found
    for at in {**in_rows, **in_columns}:
        told = f"{at[0]} at {at[1]}, of {show(at[2], 60)}: rows give {show(in_rows.get(at), 60)}, columns {show(in_columns.get(at), 60)}"
        _law("columns give what rows give", at in in_rows and at in in_columns and _close(in_rows[at], in_columns[at]), told)


__all__: Sequence[str] = ["LawBroken", "check_aggregator", "check_sink", "check_source", "default_batch"]
