"""The laws of keyed state where snapshots are lists of files: runs are written once, a file is there as long as a snapshot names it, and
what was put in is there after recoveries, attempts that were given up and moves of key-groups."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from rayad.actors.replica.parts import part_files
from rayad.actors.replica.parts.part_files import dumped, loaded
from rayad.actors.worker.state_files import StateFiles
from rayad.dataflow.operators.joins.asof_runs import AsOfColumns
from rayad.dataflow.operators.joins.columns import ColumnJoin
from rayad.dataflow.operators.joins.kept_runs import KeptSide
from rayad.dataflow.operators.keys.key_first import key_first
from rayad.dataflow.operators.state.runs import disk, files
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.files import Content, RowsInFile, RunFile, opened, writes
from rayad.dataflow.operators.state.runs.merging import InOrder
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import FAN_IN, Runs
from rayad.dataflow.operators.windows.session_columns import Sessions
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.windows import AsOf
from rayad.progress import Timestamp
from tests.dataflow.forms import FORMS, Form, Row, batch
from tests.dataflow.test_laws_of_state import Replica, check_runs, run_one
from tests.dataflow.test_laws_of_state import _small_states_count as _small_states_count  # the same for these tests
from tests.thorough import amount

SEEDS = amount(each_run=(*range(10), 31, 99), soak=(*range(2000),))
"""With 31 and 99 each form is written anew after a recovery from files, which is what is counted: few seeds have that."""
SEEDS_OF_A_DEFECT = 100


def _put_numbered(runs: Runs, rows: list[Row]) -> None:
    numbers = np.array([value + 100 for _, _, value in rows])
    runs.add(runs.arranged(runs.read(batch(rows), number=7, more=numbers)))


def _rows_of_numbered(runs: Runs) -> Iterator[Row]:
    for run in runs.each_live():
        assert run.beside["number"] == 7
        assert (run.beside["more"] == run.rows.column(2).to_numpy() + 100).all(), "what is beside a row goes with it"
        yield from zip(*(column.to_pylist() for column in run.rows.columns), strict=True)


IN_FILES = [form for form in FORMS if form.name in ("Runs", "Runs with moments", "Runs by time", "Panes", "Sessions", "KeptSide")]
IN_FILES += [dataclasses.replace(IN_FILES[0], name="Runs with numbers beside rows", put=_put_numbered, rows=_rows_of_numbered)]


@pytest.fixture(autouse=True)
def _small_runs_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILED_BYTES_MIN", 60)


class Store:
    """Files by their names, and the number of the snapshot in whose folder each is."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, bytes]] = {}
        self.published = 0
        self.written = 0

    def write(self, file: RunFile) -> None:
        assert file.content is not None
        sink = pa.BufferOutputStream()
        writes(file.content)(sink)
        self.written += 1
        name = f"file {self.written}"
        self.files[name] = self.published + 1, sink.getvalue().to_pybytes()
        file.written(name)

    def publish(self, names: list[Any]) -> None:
        """As retention does it: what the manifest does not name goes, in the folders up to its number."""
        self.published += 1
        assert set(names) <= self.files.keys(), "a manifest names a file that is not there"
        self.clean(names, self.published)

    def clean(self, names: list[Any], number: int) -> None:
        self.files = {name: found for name, found in self.files.items() if name in names or found[0] > number}


class InFiles(Replica):
    """A replica whose runs are files of its snapshots. A capture is pickled at once, and its files are written after the next change."""

    def __init__(self, form: Form, memory: MemoryBound | None = None) -> None:
        self.pending: tuple[tuple[RunFile, ...], bytes, list[Row]] | None = None
        super().__init__(form, memory)
        self.store = Store()
        self.chance = random.Random(len(form.name))
        self.names: list[Any] = []
        self.is_resumed = False

    @property
    def chain(self) -> list[bytes]:
        return self._chain

    @chain.setter
    def chain(self, data: list[bytes]) -> None:
        self._chain = data
        self.pending = None  # key-groups move: the attempt is given up

    def put(self, rows: list[Row]) -> None:
        super().put(rows)
        self.finish()

    def files(self) -> tuple[RunFile, ...]:
        """As a vertex asks its states."""
        return tuple(file for runs in self.state.runs() for file in runs.files())

    def capture(self) -> tuple[tuple[RunFile, ...], bytes]:
        runs = self.files()
        self.state.take_changes()
        return runs, b"".join(bytes(piece) for piece in dumped(self.state.checkpoint(), runs))

    def snapshot(self) -> bool:
        """Gives whether it is the first after a recovery from files."""
        self.finish()
        if self.chance.random() < 0.3:  # an attempt that is given up: its files are known
            for run in self.capture()[0]:
                if run.content is not None:
                    self.store.write(run)
        runs, data = self.capture()
        self.pending = runs, data, list(self.expected)
        is_first, self.is_resumed = self.is_resumed, False
        if self.chance.random() < 0.5:
            self.finish()
        return is_first

    def finish(self) -> None:
        """Write and publish what was captured."""
        if self.pending is None:
            return
        (runs, data, then), self.pending = self.pending, None
        for run in runs:
            if run.content is not None:
                self.store.write(run)
        self.names, self.chain, self.then = [run.name for run in runs], [data], then
        self.published()
        restored, expected = self._again(), self.expected
        self.expected = self.then
        self._check(restored)
        self.expected = expected

    def published(self) -> None:
        """All that is named is written."""
        self.store.publish(self.names)

    def _again(self) -> Any:
        found: dict[int, tuple[RunFile, Content]] = {}

        def content_of(number: int) -> tuple[RunFile, Content]:
            if number not in found:
                name = self.names[number]
                found[number] = RunFile(None, name), opened(self.store.files[name][1])
            return found[number]

        state = self.form.make()
        state.restore(loaded(self.chain[0], content_of))
        return state

    def crash(self) -> None:
        self.finish()  # all replicas go back to one snapshot
        super().crash()
        assert [run.name for run in self.files()] == self.names, "what was in files is there, and has its name"
        self.is_resumed = bool(self.names)

    def check(self) -> None:
        super().check()
        if self.pending is None:
            assert all(run.name is None or run.name in self.store.files for run in self.files())


@pytest.mark.parametrize("form", IN_FILES, ids=lambda form: form.name)
def test_what_was_put_in_is_there_and_nothing_is_written_twice(form: Form) -> None:
    assert sum([run_one(form, seed, kind=InFiles) for seed in SEEDS]) > 0


def test_what_goes_on_behind_what_was_searched_is_near_it() -> None:
    runs = Runs(1)
    first, second, third = (runs.arranged(runs.read(batch([(key, 0, 0)])))[0] for key in (1, 2, 3))
    first, second, third = sorted((first, second, third), key=lambda run: int(run.place[0]))
    sequence = InOrder([first, second])
    assert sequence.near(second.place) == [second]
    sequence.append(third)
    assert sequence.near(third.place) == [third]


class HeldWhenPut(InFiles):
    """What has been restored is in memory until more is put in."""

    def hold(self) -> None:
        """Later."""

    def put(self, rows: list[Row]) -> None:
        super().put(rows)
        super().hold()


def test_rows_that_were_seen_are_in_files_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "FILE_BYTES_MIN", 1)
    (form,) = (form for form in FORMS if form.name == "SeenRows")
    memory = MemoryBound(1 << 9, StateFiles("seen", None))
    assert sum([run_one(form, seed, memory, kind=HeldWhenPut) for seed in SEEDS]) > 0


@pytest.mark.parametrize("name", ["Runs", "Runs by time"])
def test_a_large_run_in_pieces_is_not_written_again_after_a_recovery(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "FILE_BYTES_MIN", 1)
    (form,) = (form for form in FORMS if form.name == name)
    replica = InFiles(form, MemoryBound(1 << 12, StateFiles("large", None)))
    for key in range(2_000, 8_000, 1_000):
        replica.put([(key + at, key + at, 0) for at in range(1_000)])
        replica.state.all()
    replica.snapshot()
    replica.finish()
    there = set(replica.names)
    assert len(there) > 2 * FAN_IN, "one run in many pieces"
    replica.crash()
    for key in range(6):
        replica.put([(key, key, key)])
        replica.state.all()
        replica.snapshot()
    replica.finish()
    assert there <= set(replica.names), "a few rows do not let all be merged"


# -- defects that the laws must find ---------------------------------------------------------------


@contextmanager
def around(target: Any, name: str, change: Callable[..., Any]) -> Iterator[None]:
    real = getattr(target, name)
    with ExitStack() as stack:
        stack.enter_context(patch.object(target, name, lambda self, *args, **named: change(real, self, *args, **named)))
        yield


def all_rows_are_in_the_first_file(real: Any, self: Any, obj: Any) -> Any:
    found = real(self, obj)
    return found and (0, *found[1:])


def a_slice_from_the_beginning(real: Any, self: Any, low: int, high: int) -> Any:
    run = real(self, low, high)
    run.first = 0
    return run


def rows_that_are_copied_keep_the_file(real: Any, self: Any, rows: Any) -> Any:
    run = real(self, rows)
    run.file = self.file
    return run


def a_file_is_not_listed_now_and_then(real: Any, self: Any) -> Any:
    return real(self)[self.count % 3 == 0 :]


def the_folder_of_the_attempt_is_cleaned(real: Any, self: Any, names: list[Any], number: int) -> None:
    real(self, names, number + 1)
    self.files = {name: found for name, found in self.files.items() if found[0] > number - 2}


def marks_of_rows_that_are_over_are_lost(real: Any, self: Any, run: Run, marks: Any) -> None:
    real(self, run, np.full_like(marks, 255))


def a_file_that_is_not_written_has_a_name(real: Any, self: Any, file: RunFile) -> None:
    if self.written % 3 == 2:
        self.written += 1
        file.written(f"file {self.written}")
    else:
        real(self, file)


DEFECTS = [
    (part_files._RunPickler, "persistent_id", all_rows_are_in_the_first_file),
    (Run, "cut", a_slice_from_the_beginning),
    (Run, "at", rows_that_are_copied_keep_the_file),
    (Runs, "files", a_file_is_not_listed_now_and_then),
    (Store, "clean", the_folder_of_the_attempt_is_cleaned),
    (Sessions, "marked", marks_of_rows_that_are_over_are_lost),
    (KeptSide, "marked", marks_of_rows_that_are_over_are_lost),
    (Store, "write", a_file_that_is_not_written_has_a_name),
]


@pytest.mark.parametrize(("target", "name", "change"), DEFECTS, ids=lambda given: getattr(given, "__name__", ""))
def test_the_laws_find_a_defect(target: Any, name: str, change: Any) -> None:
    forms = sorted(IN_FILES, key=lambda form: not isinstance(form.make(), target))  # first those that have the mistake
    with around(target, name, change), pytest.raises((AssertionError, ValueError, KeyError, IndexError)):
        sum(run_one(form, seed, kind=InFiles) for form in forms for seed in range(SEEDS_OF_A_DEFECT))


# -- files -----------------------------------------------------------------------------------------


def _filled() -> Runs:
    runs = Runs(1, 1)
    runs.add(runs.arranged(runs.read(batch([(key, key % 3, key) for key in range(500)]), number=7)))
    return runs


def test_a_file_has_rows_places_and_moments() -> None:
    runs = _filled()
    (file,) = runs.files()
    assert file.content is not None
    sink = pa.BufferOutputStream()
    writes(file.content)(sink)
    again = opened(sink.getvalue().to_pybytes())
    assert again.rows.equals(file.content.rows, check_metadata=True)
    assert again.place.tolist() == file.content.place.tolist()
    assert again.tick.tolist() == file.content.tick.tolist()
    assert again.key_groups == runs.key_groups


def test_rows_of_a_file_that_the_part_does_not_list_are_pickled() -> None:
    runs = _filled()
    runs.files()
    stored = runs.checkpoint()
    assert isinstance(stored[0][0], RowsInFile)
    again = Runs(1, 1)
    again.restore(loaded(b"".join(bytes(piece) for piece in dumped(stored))))
    assert again.count == 500
    assert not any(run.file for run in again.all())


def test_places_are_by_the_number_of_key_groups_of_the_files() -> None:
    runs = _filled()
    runs.place_by(12)
    (file,) = runs.files()
    again = Runs(1, 1)
    again.restore(runs.checkpoint())
    assert again.key_groups == 12
    assert again.all()[0].file is file
    check_runs(again)


def test_rows_that_come_with_places_by_another_number_are_sorted_again() -> None:
    runs = _filled()
    runs.place_by(12)
    runs.files()
    again = Runs(1, 1)
    again.take(runs.checkpoint())
    assert again.count == 500
    assert again.all()[0].file is None, "it is in another order than the file"
    check_runs(again)


def test_both_sides_of_a_join_have_places_by_one_number_after_a_recovery() -> None:
    """Also where only one of them is in files."""
    sides = [key_first(pa.record_batch({"k": range(count), f"v{side}": range(count)}), ("k",)) for side, count in enumerate((500, 2))]
    join = ColumnJoin()
    for side, rows in enumerate(sides):
        list(join.accept(side, rows, Timestamp(0)))
    list(join.index(12))
    assert [len(runs.files()) for runs in join.runs()] == [1, 0]
    again = ColumnJoin()
    again.restore(join.checkpoint())
    assert [runs.key_groups for runs in again.runs()] == [12, 12]
    assert sum(out.num_rows for _, out in again.accept(1, sides[1], Timestamp(0))) == 2


def _results_of_an_as_of_join(direction: Any) -> list[list[Any]]:
    """Of 100 left records at different moments, of which 30 meet a right one at theirs: before a recovery from files, when these 30 are
    settled, and after it."""
    joins = [AsOfColumns(AsOf(None, True, direction), "left") for _ in range(2)]
    for side, count in enumerate((100, 30)):
        moments = pa.array(range(count))
        records = key_first(pa.record_batch({"k": [at % 7 for at in range(count)], f"v{side}": moments}), ("k",), (("at", moments),))
        joins[0].check(side, [records])
        joins[0].accept(side, [records], None, 0)
    before = joins[0].due(30)
    assert len(joins[0].side(0).files()) == 1
    assert len(joins[0].side(1).files()) == (0 if direction == "forward" else 1), "looking ahead nothing needs a right record behind"
    joins[1].restore(joins[0].checkpoint())
    assert [run.file is not None for run in joins[1].side(0).all()] == [True]
    return [[row for out in some for row in to_rows(out)] for some in (before, joins[1].due(None))]


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_left_records_of_an_as_of_join_in_a_file_give_their_result_once(direction: str) -> None:
    before, after = _results_of_an_as_of_join(direction)
    assert [len(before), len(after)] == [30, 70]
    assert all(right["v1"] == left["v0"] for _, (left, right) in before)
    assert sorted(left["v0"] for _, (left, _) in [*before, *after]) == list(range(100))
    assert {right is None for _, (_, right) in after} == {direction == "forward"}


def test_bits_of_left_records_that_are_lost_are_found() -> None:
    with around(AsOfColumns, "put_bits", lambda real, self, side, run, bits: real(self, side, run, np.full_like(bits, True))):
        before, after = _results_of_an_as_of_join("forward")
    assert [len(before), len(after)] == [30, 100]


def test_what_is_no_file_of_a_run_is_refused() -> None:
    sink = pa.BufferOutputStream()
    rows = batch([(1, 2, 3)])
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_batch(rows)
    with pytest.raises(ValueError, match="it is a file of runs of format '', this version of Rayad reads format 1"):
        opened(sink.getvalue().to_pybytes())
    (file,) = _filled().files()
    assert file.content is not None
    with pytest.raises(ValueError, match="rows 400 to 600 are wanted of a file of 500 rows"):
        file.content.cut(400, 200)
