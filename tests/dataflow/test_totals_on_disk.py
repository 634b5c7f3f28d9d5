"""Running totals of more keys than memory may have: in sorted runs on disk, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.operators.state.runs import order
from rayad.dataflow.operators.state.runs.rows_that_leave import HERE
from rayad.dataflow.operators.totals.below import TotalsBelow
from tests.thorough import by_turns

EPOCHS, ROWS, KEYS, BOUND = 16, 3_000, 16_000, 1 << 20
KINDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "integers": lambda numbers: {"k": pa.array(numbers)},
    "texts": lambda numbers: {"k": pa.array([f"key {number}" for number in numbers.tolist()])},
    "two columns": lambda numbers: {"k": pa.array(numbers % 7, pa.int8()), "l": pa.array(numbers)},
    "integers and null": lambda numbers: {"k": pa.array([number or None for number in numbers.tolist()], pa.int32())},
}
Rows = list[tuple[int, Any, Any]]
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[list[int]], Any]]] = {
    "sum": (lambda keyed: keyed.sum("v", name="totals"), sum),
    "min": (lambda keyed: keyed.min("v", name="totals"), min),
    "top_k": (lambda keyed: keyed.top_k(2, "v", name="totals"), lambda values: sorted(values)[-2:]),
    "collect_list": (lambda keyed: keyed.collect_list("v", name="totals"), sorted),
    "count_distinct": (lambda keyed: keyed.count_distinct("v", name="totals"), lambda values: len(set(values))),
}
"""By name the totals of a stream by key, and what they are of the values of a key, lists in order."""


def batches(kind: str) -> list[pa.RecordBatch]:
    chance = np.random.default_rng(7)
    given = [(chance.integers(0, KEYS, ROWS), chance.integers(-5, 99, ROWS)) for _ in range(EPOCHS)]
    return [pa.record_batch({**KINDS[kind](keys), "v": values}) for keys, values in given]


def expected(job: Job) -> Rows:
    """What has to come out: of each epoch its keys, with the totals of all so far."""
    given, (_, total) = job.given, FUNCTIONS[job.function]
    so_far: dict[Any, list[int]] = {}
    out: Rows = []
    for epoch, batch in enumerate(given):
        *keys, values = (column.to_pylist() for column in batch.columns)
        rows = list(zip(zip(*keys, strict=True), values, strict=True))
        for key, value in rows:
            so_far.setdefault(key, []).append(value)
        out += [(epoch, key, total(so_far[key])) for key in {key for key, _ in rows}]
    return sorted(out, key=repr)


class Job:
    """A job whose epochs come one by one."""

    def __init__(self, kind: str, function: str, folder: Path, bound: int | None = BOUND) -> None:
        self.given = batches(kind)
        self.function = function
        self._config = rd.RunConfig(storage_path=str(folder), state_memory_bytes=bound)
        self.most_below = 0
        self.begin()

    def begin(self, **options: Any) -> None:
        keys = self.given[0].schema.names[:-1]
        flow = rd.Dataflow("totals")
        keyed = flow.input("rows").key_by(keys if len(keys) > 1 else keys[0])
        totals = FUNCTIONS[self.function][0](keyed)
        totals.as_columns(*keys, "total").probe("seen").collect("out")
        self.job: Any = flow.submit(self._config, runtime="local", **{"parallelism": 2, **options})

    def resume(self) -> None:
        """End it, and go on from a savepoint."""
        self.job.savepoint()
        self.job.cancel()
        self.begin(resume="latest")

    @property
    def below(self) -> int:
        totals = [core.vertex.totals for core in self.job.cores.values() if hasattr(core.vertex, "totals")]
        return sum(part.count_below for two in totals for part in two.columns.there)

    def run(self, disturb: Callable[[Job, int], Any] = lambda job, epoch: None) -> Rows:
        for epoch, batch in enumerate(self.given):
            rows = self.job.input("rows")
            rows.send(batch)
            rows.advance_to(epoch + 1)
            self.job.probe("seen").wait(epoch)
            self.most_below = max(self.most_below, self.below)
            disturb(self, epoch)
        self.job.input("rows").close()
        rows = self.job.wait()["out"]
        return sorted(((time.epoch, tuple(row.values())[:-1], _in_order(row["total"])) for time, row in rows), key=repr)


def _in_order(total: Any) -> Any:
    return sorted(total) if isinstance(total, list) else total


def disturbed(job: Job, epoch: int) -> None:
    match epoch % 4:
        case 0:
            job.job.rescale("totals", 1 + epoch // 4 % 3)
        case 1:
            job.job.savepoint()
        case 2:
            job.job.crash()
        case 3:
            job.resume()


@by_turns(2)
@pytest.mark.parametrize(
    ("kind", "function"),
    [*((kind, function) for kind in KINDS for function in ("sum", "min")), *(("texts", function) for function in list(FUNCTIONS)[2:])],
)
def test_totals_are_the_same_with_most_keys_on_disk(kind: str, function: str, tmp_path: Path) -> None:
    job = Job(kind, function, tmp_path)
    assert job.run(disturbed) == expected(job)
    assert job.most_below > KEYS // 8


def test_keys_of_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def few(columns: Any, key_groups: int) -> Any:
        return order.places_of(columns, key_groups) >> np.uint64(56) << np.uint64(56)

    monkeypatch.setattr("rayad.dataflow.operators.state.runs.runs.places_of", few)
    job = Job("texts", "sum", tmp_path)
    assert job.run() == expected(job)


def test_a_job_whose_totals_fit_has_nothing_below(tmp_path: Path) -> None:
    job = Job("integers", "sum", tmp_path, bound=None)
    job.run()
    assert not job.most_below


def test_a_running_job_is_read_wherever_its_totals_are(tmp_path: Path) -> None:
    seen = []

    def read(job: Job, epoch: int) -> None:
        if epoch in (8, EPOCHS - 1):
            table = job.job.table("totals")
            values = table.get_many(range(0, KEYS, 50))
            seen.append((values, table.scan()))

    job = Job("integers", "sum", tmp_path)
    rows = job.run(read)
    assert job.most_below
    for values, scanned in seen:
        (epoch,) = {value.epoch for value in values.values()}
        totals = {key: total for at, (key,), total in sorted(rows, key=lambda row: row[0]) if at <= epoch}
        assert {key: value.value for key, value in values.items()} == {key: totals.get(key) for key in values}
        epoch = int(scanned.schema.metadata[b"rayad.epoch"])
        totals = {key: total for at, (key,), total in sorted(rows, key=lambda row: row[0]) if at <= epoch}
        assert dict(zip(*(column.to_pylist() for column in scanned.columns[:2]), strict=True)) == totals


# -- defects that this must find -------------------------------------------------------------------


def stays_below(self: TotalsBelow, keys: list[pa.Array]) -> Any:
    """A key that comes again has a slot, and its row counts, too."""
    found = REAL_TAKEN_OUT(self, keys)
    for run in self.all():
        run.beside.pop(HERE, None)
    return found


def is_not_found(self: TotalsBelow, keys: list[pa.Array]) -> Any:
    """A key that comes again begins with nothing."""
    return np.zeros(0, np.int64), None


def loses_one(self: TotalsBelow, totals: pa.RecordBatch) -> None:
    REAL_PUT(self, totals.slice(1))


REAL_TAKEN_OUT, REAL_PUT = TotalsBelow.taken_out, TotalsBelow.put


@pytest.mark.parametrize(
    ("method", "defect"),
    [("taken_out", stays_below), ("taken_out", is_not_found), ("put", loses_one)],
    ids=lambda it: getattr(it, "__name__", it),
)
def test_planted_defects_are_found(method: str, defect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TotalsBelow, method, defect)
    job = Job("integers", "sum", tmp_path)
    assert job.run(disturbed) != expected(job)
