"""Sorted runs beyond a bound on memory: in files, with the same results, and nothing is left of the files."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.plane.spilling_queue import SpillError
from rayad.actors.worker.state_files import StateFiles
from rayad.dataflow.operators.distinct import Distinct
from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.dataflow.operators.state.keyed_state import KeyedState, KeyedVertex
from rayad.dataflow.operators.state.runs import disk
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.merging import InOrder
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.operators.state.runs.runs_by_time import RunsByTime
from rayad.dataflow.operators.state.slots.seen_rows import SeenBelow, SeenRows
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.totals.totals import Totals
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.content_codes import content_codes
from rayad.progress import ConfigError
from tests.checkout import ROOT
from tests.dataflow.driven import Driven, check, plain
from tests.dataflow.forms import FORMS, Form, batch, let_small_states_count
from tests.dataflow.keyed_vertices import ALL, Keyed
from tests.dataflow.reading import check_reads
from tests.dataflow.test_laws_of_state import check_runs, run_one
from tests.thorough import amount, by_turns

SEEDS = amount(each_run=5, soak=600)
SEEDS_OF_A_DEFECT = 60
OF_RUNS = [form for form in FORMS if list(form.make().runs())]
IN_RUNS = (
    "Join",
    "IntervalJoin",
    "JoinOfRecordsThatEnd",
    "AsOfJoin",
    "WindowJoin",
    "EventWindows",
    "LateSessionRecords",
    "Totals",
    "KeysEnd",
    "Distinct",
)
WITH_RUNS = [keyed for keyed in ALL if type(keyed.make()).__name__ in IN_RUNS]


class Counting(StateFiles):
    """Counts the files."""

    written = 0

    def mapped(self, batch: pa.RecordBatch) -> Any:
        self.written += 1
        return super().mapped(batch)


@pytest.fixture
def files(tmp_path: Path) -> Counting:
    return Counting("state", str(tmp_path))


@pytest.fixture(autouse=True)
def _small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    let_small_states_count(monkeypatch)
    monkeypatch.setattr(disk, "FILE_BYTES_MIN", 1)


# -- results are the same --------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_max", [0, 1 << 10, 1 << 12])
@pytest.mark.parametrize("form", OF_RUNS, ids=lambda form: form.name)
def test_the_laws_of_state_hold_on_disk(form: Form, bytes_max: int, files: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    if not bytes_max:  # each run is on disk, and each merge of more than a row is in pieces
        monkeypatch.setattr(MemoryBound, "piece_bytes", 50)
    assert sum([run_one(form, seed, MemoryBound(bytes_max, files)) for seed in range(SEEDS)]) >= 0
    assert files.written > (SEEDS if bytes_max <= 1 << 10 else 0)


@by_turns(3)
@pytest.mark.parametrize("keyed", WITH_RUNS, ids=lambda keyed: keyed.name)
@settings(max_examples=amount(each_run=2, soak=30), deadline=None)
@given(data=st.data())
def test_results_of_operators_are_the_same_on_disk(keyed: Keyed, data: st.DataObject) -> None:
    memory = MemoryBound(16 * 400, StateFiles("state", None))
    step = Driven.step

    def step_and_hold(self: Driven, what: Any) -> None:
        step(self, what)
        if isinstance(self.vertex, KeyedVertex):
            memory.hold(
                state for state in self.vertex.states().values() if not isinstance(state, Waiting)
            )  # it is compared as it is stored

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driven, "step", step_and_hold)
        check(keyed.make, data.draw(keyed.steps()), view=content if isinstance(keyed.make(), (Distinct, Totals)) else keyed.view)


def content(vertex: Any) -> Any:
    """The state of totals, or what distinct has seen, wherever that is."""
    name = "seen" if isinstance(vertex, Distinct) else "totals"
    states = {other: state for other, state in vertex.states().items() if other != name}
    both = vertex.states()[name]
    kept = both.columns.as_rows() if both.columns.is_used else both.rows.kept
    kept = dict.fromkeys(comparable(kept)) if name == "seen" else kept
    rest = {name: plain(pickle.loads(pickle.dumps(state.checkpoint()))) for name, state in states.items()}
    return rest, {repr(key if name == "totals" else originals([key])): plain(value) for key, value in kept.items()}


# -- defects that this must find -------------------------------------------------------------------


class WithoutLastPiece(Runs):
    """Loses the last piece of a merge in pieces."""

    def _merge_a_piece(self, sequence: InOrder) -> None:
        super()._merge_a_piece(sequence)
        if not sequence.rest:
            sequence.done[-1:] = []


class WithRowsInTwoPieces(Runs):
    """Lets a row before an edge be behind it, too."""

    def _merge_a_piece(self, sequence: InOrder) -> None:
        before = sequence.rest[0]
        super()._merge_a_piece(sequence)
        sequence.rest += [before.cut(0, 1)] if sequence.rest else []


class WithoutWhatIsStillToBeMerged(Runs):
    """Stores what is merged alone."""

    def checkpoint(self) -> Any:
        self.all()
        for sequence in self._sequences:
            sequence.rest = sequence.rest if not sequence.done else []
        return super().checkpoint()


@pytest.mark.parametrize("defect", [WithoutLastPiece, WithRowsInTwoPieces, WithoutWhatIsStillToBeMerged])
def test_the_laws_find_a_defect_of_merging_in_pieces(defect: type[Runs], files: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryBound, "piece_bytes", 50)
    sound = FORMS[0]
    broken = Form(defect.__name__, lambda: defect(1), sound.put, sound.rows, sound.model)
    with pytest.raises(AssertionError):
        sum(run_one(broken, seed, MemoryBound(0, files)) for seed in range(SEEDS_OF_A_DEFECT))


class OfCodesAlone(SeenBelow):
    """Sorts rows by their codes, whatever key-group they are of."""

    def places(self, rows: pa.RecordBatch) -> Any:
        return content_codes(rows).view(np.uint64)


class WithoutFirst(SeenBelow):
    """Does not find the first of the rows that are asked for."""

    def known(self, rows: pa.RecordBatch) -> Any:
        known = super().known(rows)
        known[:1] = False
        return known


class AlikeByPlace(SeenBelow):
    """Takes rows of one place for alike."""

    def places(self, rows: pa.RecordBatch) -> Any:
        return super().places(rows) | np.uint64((1 << 48) - 1)

    def are_alike(self, asked: pa.RecordBatch, rows: pa.RecordBatch) -> Any:
        return np.ones(rows.num_rows, np.bool_)


@pytest.mark.parametrize("defect", [OfCodesAlone, WithoutFirst, AlikeByPlace])
def test_the_laws_find_a_defect_of_rows_that_were_seen_and_are_on_disk(
    defect: type[SeenBelow], files: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = next(form for form in FORMS if form.name == "SeenRows")
    monkeypatch.setattr(SeenRows, "runs_below", defect)
    monkeypatch.setattr(MemoryBound, "piece_bytes", 50)
    with pytest.raises(AssertionError):
        sum(run_one(sound, seed, MemoryBound(0, files)) for seed in range(SEEDS_OF_A_DEFECT))


class WithEqualPlaces(AlikeByPlace):
    """Rows share a place, and are compared."""

    are_alike = SeenBelow.are_alike


def test_rows_of_one_place_are_told_apart(files: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeenRows, "runs_below", WithEqualPlaces)
    monkeypatch.setattr(MemoryBound, "piece_bytes", 50)
    sound = next(form for form in FORMS if form.name == "SeenRows")
    assert sum(run_one(sound, seed, MemoryBound(0, files)) for seed in range(SEEDS)) >= 0


@by_turns(3)
@pytest.mark.parametrize(
    "keyed", [keyed for keyed in WITH_RUNS if type(keyed.make()).__name__ in ("Distinct", "Totals")], ids=lambda it: it.name
)
@settings(max_examples=amount(each_run=1, soak=60), deadline=None)
@given(data=st.data(), chance=st.randoms(use_true_random=False))
def test_what_is_read_is_the_same_on_disk(keyed: Keyed, data: st.DataObject, chance: Any) -> None:
    memory = MemoryBound(16 * 60, StateFiles("state", None))
    step = Driven.step

    def step_and_hold(self: Driven, what: Any) -> None:
        step(self, what)
        memory.hold(self.vertex.states().values())  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driven, "step", step_and_hold)
        check_reads(keyed.make, data.draw(keyed.steps()), chance, broadcast=keyed.broadcast)


# -- what is in memory and on disk -----------------------------------------------------------------


def filled(runs: Runs, memory: MemoryBound, batches: int, rows: int = 100) -> Iterable[Run]:
    chance = np.random.default_rng(1)
    for _ in range(batches):
        keys = chance.integers(0, 1 << 40, rows).tolist()
        runs.add(runs.arranged(runs.read(batch([(key, key % 7, 1) for key in keys]), seen=np.zeros(rows, np.bool_))))
        memory.hold([runs])
    return runs.all()


@pytest.mark.parametrize("kind", [Runs, RunsByTime])
def test_runs_in_memory_are_within_the_bound(kind: type[Runs], files: Counting) -> None:
    memory, runs = MemoryBound(64 << 10, files), kind(1, 1)
    for _ in range(20):
        filled(runs, memory, 10)
        assert runs.memory_bytes <= 32 << 10
    assert sum(run.nbytes for run in runs.all()) > 10 * memory.bytes_max


def test_rows_that_were_seen_are_within_the_bound_and_found_again(files: Counting) -> None:
    memory, seen = MemoryBound(64 << 10, files), SeenRows(to_rows)
    order = np.random.default_rng(2).permutation(40_000).tolist()
    for begin in range(0, 40_000, 400):
        some = order[begin : begin + 400]
        came = batch([(key % 50, key, 0) for key in [*some, *order[: begin + 1 : 97]]])  # keys with many rows each
        assert sorted(seen.new(came).tolist()) == list(range(400))
        memory.hold([seen])
        assert seen.memory_bytes + seen.noted_bytes <= 32 << 10
    assert len(seen) < 1_000
    assert sorted(value for _, value, _ in seen.as_rows()) == sorted(order)


def test_a_merge_in_pieces_has_rows_in_order_and_few_sequences(files: Counting) -> None:
    memory, runs = MemoryBound(64 << 10, files), Runs(1, 1)
    many = list(filled(runs, memory, 200))
    pieces = [run for run in many if run.on_disk]
    assert len(pieces) > 20
    ascending = sum(a.place[-1] < b.place[0] for a, b in pairwise(pieces))
    assert ascending > len(pieces) - 12  # each sequence begins anew
    assert max(run.nbytes for run in pieces) < memory.bytes_max


def test_rows_of_one_moment_are_merged_in_pieces(files: Counting) -> None:
    memory, runs = MemoryBound(64 << 10, files), RunsByTime(1, 1)
    keys = np.random.default_rng(5).permutation(40_000).tolist()
    for begin in range(0, 40_000, 400):
        runs.add(runs.arranged(runs.read(batch([(key, 3, key) for key in keys[begin : begin + 400]]))))
        memory.hold([runs])
        assert runs.memory_bytes <= 32 << 10
    assert max(run.nbytes for run in runs.all()) < memory.bytes_max
    assert len(runs.all()) > 20
    assert sorted(key for run in runs.all() for key in run.rows.column(0).to_pylist()) == sorted(keys)


def test_rows_that_came_before_there_was_a_bound_are_in_order_once_there_is_one(files: Counting) -> None:
    """Also where a merge in pieces is under way."""
    runs = RunsByTime(1, 1)
    for at in range(60):
        runs.add(runs.arranged(runs.read(batch([(key * 7 % 1000, key % 5, at) for key in range(at, at + 40)]))))
        runs.all()
    assert any(sequence.rest for sequence in runs._sequences)
    memory = MemoryBound(4 << 10, files)
    memory.hold([runs])
    check_runs(runs)
    filled(runs, memory, 5)
    check_runs(runs)


def test_numbers_beside_rows_on_disk_change_in_memory_alone(files: Counting) -> None:
    runs = Runs(1, 1)
    (run, *_) = filled(runs, MemoryBound(0, files), 1)
    assert run.on_disk
    run.beside["seen"][3] = True
    assert run.beside["seen"].tolist().index(True) == 3
    assert not run.place.flags.writeable
    (rows, beside, _) = runs.stored(run)
    assert beside["seen"].sum() == 1
    assert rows


@pytest.mark.parametrize("name", ["strings", "dictionary", "lists", "nulls", "nothing but keys"])
def test_columns_of_all_kinds_come_back_as_they_were(name: str, files: Counting) -> None:
    keys = pa.array(range(40), pa.int64())
    columns: dict[str, dict[str, Any]] = {
        "strings": {"k": keys, "s": [f"text {i}" for i in range(40)]},
        "dictionary": {"k": keys, "d": pa.array(["a", "b"] * 20).dictionary_encode()},
        "lists": {"k": keys, "l": [[i] * (i % 3) for i in range(40)], "t": [{"a": i, "b": None} for i in range(40)]},
        "nulls": {"k": pa.array([None if i % 5 == 0 else i for i in range(40)], pa.int64()), "n": pa.nulls(40)},
        "nothing but keys": {"k": keys},
    }
    runs = Runs(1)
    (run,) = runs.arranged(runs.read(pa.record_batch(columns[name]).slice(3, 30)))
    rows, place = run.rows, run.place.tolist()
    MemoryBound(0, files).put(run)
    assert run.on_disk
    assert run.rows.equals(rows)
    assert run.rows.schema.equals(rows.schema, check_metadata=True)
    assert run.place.tolist() == place


class Noting(KeyedState):
    """Has noted much for an increment."""

    noted_bytes = 100
    forgot = False
    checkpoint = restore = take_changes = restore_changes = give = take = None  # type: ignore[assignment]

    def forget_changes(self) -> None:
        self.forgot = True


def test_what_is_kept_for_an_increment_is_within_the_bound(files: Counting) -> None:
    few, much = Noting(), Noting()
    much.noted_bytes = 300
    MemoryBound(800, files).hold([few, much])
    assert (few.forgot, much.forgot) == (False, True)


# -- files -----------------------------------------------------------------------------------------


def test_files_have_no_name_and_their_space_is_given_back(files: Counting, tmp_path: Path) -> None:
    open_before = len(os.listdir("/proc/self/fd"))
    kept = [files.mapped(pa.record_batch({"a": range(100_000)})) for _ in range(20)]
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == open_before
    assert _maps_of(tmp_path) == 20
    part = kept[0][100:200]
    del kept
    assert _maps_of(tmp_path) == 1
    assert len(part) == 100
    del part
    assert _maps_of(tmp_path) == 0


def _maps_of(folder: Path) -> int:
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())


KILLED = """
import os, signal, sys
import pyarrow as pa
from rayad.actors.worker.state_files import StateFiles
kept = [StateFiles("state", sys.argv[1]).mapped(pa.record_batch({"a": range(100_000)})) for _ in range(5)]
print(os.statvfs(sys.argv[1]).f_bavail >= 0, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "True\n"), ended.stderr
    assert os.listdir(tmp_path) == []


def test_a_disk_that_takes_no_more_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SpillError, match=r"cannot put 800 bytes of the state of 'join' on disk, in '.*gone'.*spill_directory"):
        StateFiles("join", str(tmp_path / "gone")).mapped(pa.record_batch({"a": range(100)}))


# -- jobs ------------------------------------------------------------------------------------------

BATCHES = 12


def joined(run: rd.RunConfig) -> Counter[Any]:
    """What a join gives whose job is stopped by a savepoint in the middle, and goes on from there."""
    found: Counter[Any] = Counter()

    def keep(batch: Any) -> list[Any]:
        pairs = batch.column("pair").storage
        found.update(zip(*(pairs.field(side).field("v").to_pylist() for side in ("left", "right")), strict=True))
        return []

    def program() -> rd.Dataflow:
        flow = rd.Dataflow("join")
        left, right = (flow.input(side).key_by("key") for side in ("left", "right"))
        left.join(right).map_batches(keep).probe("joined").collect("nothing")
        return flow

    chance = np.random.default_rng(5)
    batches = [pa.record_batch({"key": chance.integers(0, 100_000, 10_000), "v": np.arange(10_000) + n * 10_000}) for n in range(BATCHES)]
    for part, resume in ((batches[: BATCHES // 2], None), (batches[BATCHES // 2 :], "latest")):
        job = program().submit(run, runtime="local", parallelism=2, resume=resume)
        inputs = [job.input(side) for side in ("left", "right")]
        for pair in zip(part[::2], part[1::2], strict=True):
            for one, some in zip(inputs, pair, strict=True):
                one.send(some)
                one.advance_to(one.epoch + 1)
            job.probe("joined").wait(inputs[0].epoch - 1)
        job.savepoint()
        job.cancel()
    return found


def test_a_job_gives_the_same_with_its_state_on_disk_over_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    mapped = StateFiles.mapped
    monkeypatch.setattr(StateFiles, "mapped", lambda self, batch: (written.append(batch.nbytes), mapped(self, batch))[1])
    in_memory = joined(rd.RunConfig(storage_path=str(tmp_path / "in memory")))
    assert (sum(in_memory.values()) > 30_000, written) == (True, [])
    folder = tmp_path / "spilled"
    folder.mkdir()
    on_disk = joined(rd.RunConfig(storage_path=str(tmp_path / "on disk"), state_memory_bytes=1 << 20, spill_directory=str(folder)))
    assert on_disk == in_memory
    assert sum(written) > 1 << 20
    assert os.listdir(folder) == []


@pytest.mark.parametrize("value", [0, -1, (1 << 20) - 1, 1.5, "1GB", True])
def test_a_bound_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"RunConfig.state_memory_bytes is .*: it must be an int of at least 1048576"):
        rd.RunConfig(state_memory_bytes=value)
