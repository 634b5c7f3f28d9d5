"""Collections beyond memory: with all runs on disk, and merges and moments in small pieces, results are what they are in memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.worker.state_files import StateFiles
from rayad.dataflow.operators.state.runs import disk, files
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.merging import InOrder
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.operators.state.runs.waiting_runs import LargeTimes
from rayad.incremental.columns.weighted_runs import CODE, WeightedRuns
from rayad.incremental.event_time.telling import ToldVertex
from rayad.incremental.moment_vertex import MomentVertex
from tests.incremental.disturbed import run_disturbed
from tests.incremental.event_time.test_lateness_of_joins import history as history_in_time
from tests.incremental.field_programs import Form, in_form
from tests.incremental.in_columns import lateness as late
from tests.incremental.programs import history
from tests.thorough import amount, by_turns

BOUND = 1 << 20
SEEDS = amount(each_run=1, soak=100)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Runs of a few rows go to disk, are merged in pieces of a few rows, and are files of snapshots. Gives what has happened."""
    seen = Counter[str]()
    monkeypatch.setattr(disk, "FILE_BYTES_MIN", 1)
    monkeypatch.setattr(disk, "HELD_PART", BOUND)
    monkeypatch.setattr(disk, "LEFT_PART", BOUND >> 5)
    monkeypatch.setattr(disk, "PIECE_PART", BOUND >> 8)
    monkeypatch.setattr(files, "FILED_BYTES_MIN", 60)
    opened, put, merge_a_piece = files.opened, MemoryBound.put, Runs._merge_a_piece
    monkeypatch.setattr(files, "opened", lambda data, is_mapped=False: opened(data, is_mapped=True))

    def counted_put(self: MemoryBound, run: Run) -> Run:
        seen["put on disk"] += not run.on_disk and not run.is_mapped
        seen["files of snapshots, mapped"] += not run.on_disk and run.is_mapped
        return put(self, run)

    def counted_pieces(self: Runs, sequence: InOrder) -> None:
        merge_a_piece(self, sequence)
        seen["merges in pieces"] += bool(sequence.rest)

    pieces = LargeTimes.pieces

    def counted_times(self: LargeTimes, time: Any, kept: Any) -> Any:
        several = list(pieces(self, time, kept))
        seen["moments in pieces"] += len(several) > 1
        return several

    monkeypatch.setattr(LargeTimes, "pieces", counted_times)
    monkeypatch.setattr(MemoryBound, "put", counted_put)
    monkeypatch.setattr(Runs, "_merge_a_piece", counted_pieces)
    return seen


FORMS: tuple[Form, ...] = ("columns", "both", "rows")
EACH = [(form, number) for number in range(len(in_form("columns"))) for form in amount(each_run=(FORMS[number % 3],), soak=FORMS)]


@by_turns(2)
@pytest.mark.parametrize(("form", "number"), EACH, ids=[f"{in_form('columns')[number].name}-{form}" for form, number in EACH])
def test_results_are_right_whatever_happens(form: Form, number: int, tmp_path: Path, tiny: Counter[str]) -> None:
    program = in_form(form)[number]
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        run_disturbed(program, history(program.shape, seed), seed, folder, crashes=0.02, state_memory_bytes=BOUND)
    assert tiny["put on disk"], tiny


@by_turns(2)
@pytest.mark.parametrize("form", ["columns", "rows"])
@pytest.mark.parametrize("name", ["nearest, near", "interval, full", "sessions"])
def test_what_forgets_does_so_whatever_happens(name: str, form: Form, tmp_path: Path, tiny: Counter[str]) -> None:
    for seed in range(SEEDS):
        program, folder = late.programs(form)[name], tmp_path / str(seed)
        run_disturbed(program, history_in_time(seed), seed, folder, crashes=0.02, state_memory_bytes=BOUND)
    assert tiny["put on disk"], tiny
    assert tiny["moments in pieces"] > 10, tiny


@pytest.mark.usefixtures("tiny")
def test_event_time_that_is_told_before_all_keys_have_come_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToldVertex, "pieces", MomentVertex.pieces)
    with pytest.raises(AssertionError, match="it gives"):
        run_disturbed(late.programs("columns")["sessions"], history_in_time(2)[:3], 2, tmp_path, crashes=0.0, state_memory_bytes=BOUND)


def test_what_is_tried_has_happened(tmp_path: Path, tiny: Counter[str]) -> None:
    for number, program in enumerate(in_form("columns")):
        run_disturbed(program, history(program.shape, number), number, tmp_path / str(number), crashes=0.02, state_memory_bytes=BOUND)
        if all(tiny[what] >= 5 for what in ("put on disk", "files of snapshots, mapped", "merges in pieces", "moments in pieces")):
            return
    pytest.fail(f"{tiny}")


def _runs() -> WeightedRuns:
    return WeightedRuns(pa.schema({"key": pa.int64(), "record": pa.string()}), 0, ("n",), 16)


def _add(runs: WeightedRuns, keys: Any) -> None:
    rows = pa.record_batch([pa.array(keys), pa.array([f"record {key}" for key in keys])], schema=runs.schema)
    runs.add(runs.arranged(runs.read(rows, n=np.ones(len(keys), np.int64))))


def test_no_more_is_in_memory_than_the_bound_says() -> None:
    runs, memory = _runs(), MemoryBound(4 << 20, StateFiles("state", None))
    for number in range(20):
        _add(runs, range(number * 10_000, (number + 1) * 10_000))
        runs.all()
        memory.hold([_Holder(runs)])
        assert runs.memory_bytes <= memory.bytes_max // 2
    assert runs.count == 200_000
    assert sum(int(run.beside["n"].sum()) for run in runs.all()) == 200_000


class _Holder:
    noted_bytes = 0

    def __init__(self, runs: WeightedRuns) -> None:
        self._runs = runs

    def forget_changes(self) -> None:
        self._runs.forget_changes()

    def runs(self) -> Any:
        return [self._runs]


def test_what_is_beside_the_rows_of_a_file_that_is_mapped_goes_to_disk_too() -> None:
    """Codes are found out anew, and numbers are wider than in the file: they would stay in memory."""
    runs, memory = _runs(), MemoryBound(1 << 20, StateFiles("state", None))
    _add(runs, range(5000))
    (run,) = runs.all()
    run.is_mapped, run.in_memory = True, ("n", CODE)
    before, rows, place = {name: run.beside[name].copy() for name in run.in_memory}, run.rows, run.place
    beside = dict(run.beside)
    memory.put(run)
    assert run.on_disk
    assert run.rows is rows
    assert run.place is place
    assert not run.in_memory
    for name, numbers in before.items():
        assert run.beside[name] is not beside[name]
        assert run.beside[name].dtype == numbers.dtype
        assert (run.beside[name] == numbers).all()


def test_a_bound_changes_nothing_of_what_rows_give(tmp_path: Path) -> None:
    flow = rd.Dataflow("rows")
    flow.from_epochs([[("a", 1)], [("a", 2)]]).as_collection().key_by(lambda pair: pair[0]).count().collect("out")
    out = flow.run(rd.RunConfig(state_memory_bytes=BOUND, spill_directory=str(tmp_path)), runtime="local")["out"]
    assert sorted((time.epoch, *change) for time, change in out) == [(0, ("a", 1), 1), (1, ("a", 1), -1), (1, ("a", 2), 1)]
