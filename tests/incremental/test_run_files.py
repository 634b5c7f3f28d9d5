"""Collections whose runs are files of snapshots: results are right whatever happens, and what is in a file is not written again."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.operators.state.runs import files
from rayad.dataflow.operators.state.runs.files import RowsInFile
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.records.key_hashing import DEFAULT_KEY_GROUPS
from rayad.incremental.columns.weighted_runs import ABOUT, CODE, WeightedRuns
from tests.dataflow.forms import FORMS, Row, let_small_states_count
from tests.dataflow.test_laws_of_run_files import InFiles
from tests.dataflow.test_laws_of_state import run_one
from tests.incremental.disturbed import run_disturbed
from tests.incremental.field_programs import in_form
from tests.incremental.programs import history
from tests.simulation.run_files import all_runs_in_files
from tests.thorough import amount

SEEDS = amount(each_run=30, soak=2000)
SEEDS_OF_A_DEFECT = 100
SCHEMA = pa.schema({"key": pa.int64(), "record": pa.string()})


# -- the form ----------------------------------------------------------------------------------------------
def _weighted() -> WeightedRuns:
    return WeightedRuns(SCHEMA, 1, ("n", ABOUT), DEFAULT_KEY_GROUPS)


def _put(runs: WeightedRuns, rows: list[Row]) -> None:
    batch = pa.record_batch([[row[0] for row in rows], [f"record {row[2]}" for row in rows]], schema=SCHEMA)
    ones = np.ones(len(rows), np.int64)
    runs.add(runs.arranged(runs.read(batch, at0=[row[1] for row in rows], n=ones, **{ABOUT: ones / 2})))


def _rows(runs: WeightedRuns) -> Iterator[Row]:
    for run in runs.each_live():
        assert run.beside["n"].dtype == run.beside["at0"].dtype == np.int64, "numbers are as wide as they are counted with"
        assert (run.beside[ABOUT] == run.beside["n"] / 2).all()
        assert (run.beside[CODE] == runs.read(run.rows, n=0).beside[CODE]).all(), "codes are those of the records"
        for key, record, at, n in zip(*(c.to_pylist() for c in run.rows.columns), run.beside["at0"], run.beside["n"], strict=True):
            yield from [(key, int(at), int(record.removeprefix("record ")))] * int(n)


WEIGHTED = dataclasses.replace(
    next(form for form in FORMS if form.name == "Runs"), name="WeightedRuns", make=_weighted, put=_put, rows=_rows
)


@pytest.fixture
def all_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    let_small_states_count(monkeypatch)
    monkeypatch.setattr(files, "FILED_BYTES_MIN", 60)


@pytest.mark.usefixtures("all_are_written")
def test_changes_that_were_put_in_are_there_and_nothing_is_written_twice() -> None:
    assert sum([run_one(WEIGHTED, seed, kind=InFiles) for seed in range(SEEDS)]) > 0


def codes_are_not_found_out_anew(real: Any, self: WeightedRuns, rows: Any, beside: Any) -> Any:
    run = Runs._run_of(self, rows, beside)
    if isinstance(rows, RowsInFile) and run.file is not None:
        run.beside = {CODE: np.zeros(len(run), np.int64), **run.beside}
    return run


@pytest.mark.usefixtures("all_are_written")
def test_the_laws_find_that_codes_and_widths_are_not_found_out_anew() -> None:
    real = WeightedRuns._run_of
    with patch.object(WeightedRuns, "_run_of", lambda self, rows, beside: codes_are_not_found_out_anew(real, self, rows, beside)):
        with pytest.raises(AssertionError):
            sum(run_one(WEIGHTED, seed, kind=InFiles) for seed in range(SEEDS_OF_A_DEFECT))


# -- programs ----------------------------------------------------------------------------------------------
def test_tables_are_right_whatever_happens(tmp_path: Path) -> None:
    """Snapshots, failures and changes of layout, in any order."""
    with all_runs_in_files() as counts:
        for program in in_form("columns"):
            for seed in range(amount(each_run=1, soak=60)):
                run_disturbed(program, history(program.shape, seed), seed, tmp_path / program.name / str(seed), crashes=0.02)
    assert min(counts["written"], counts["named again"], counts["read"]) > 0, counts


def joined(folder: Path, resume: str | None = None) -> Any:
    flow = rd.Dataflow("collections")
    left, right = (flow.collection(name) for name in ("left", "right"))
    left.key_by("k").join(right.key_by("k"), name="met").changes().probe("all").collect("met")
    run = rd.RunConfig(storage_path=str(folder), resume=resume, snapshots=rd.SnapshotConfig(interval_s=None))
    return flow.submit(run, runtime="local")


def bring(job: Any, epoch: int, first: int, rows: int) -> None:
    for side in ("left", "right"):
        keys = range(first, first + rows)
        job.collection(side).insert(pa.record_batch({"k": keys, side: [key % 7 for key in keys]}))
        job.collection(side).advance_to(epoch + 1)
    job.probe("all").wait(epoch)


def test_the_first_snapshot_after_a_recovery_names_the_files_that_are_there(tmp_path: Path) -> None:
    rows = 20_000
    job = joined(tmp_path)
    bring(job, 0, 0, rows)
    job.savepoint()
    before = job.runtime.snapshots.newest
    files_before = {file for part in job.runtime.snapshots.manifest.parts for file in part.runs}
    job.cancel()
    assert sum(file.size for file in files_before) > 2 * 16 * rows
    job = joined(tmp_path, resume="latest")
    bring(job, 1, rows, 10)
    job.savepoint()
    after, manifest = job.runtime.snapshots.newest, job.runtime.snapshots.manifest
    assert {file for part in manifest.parts for file in part.runs} == files_before
    assert after.written_bytes < before.written_bytes / 20, "what had been written is named, not written again"
    job.collection("left").remove(pa.record_batch({"k": [5, rows + 5], "left": [5, (rows + 5) % 7]}))
    for side in ("left", "right"):
        job.collection(side).advance_to(3)
        job.collection(side).close()
    found = Counter[Any]()
    for _, (record, weight) in job.wait()["met"]:
        found[repr(record)] += weight
    assert sum(found.values()) == rows + 10 - 2
    assert set(found.values()) == {0, 1}
