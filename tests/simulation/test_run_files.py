"""Seeded runs whose snapshots are lists of files, with faults and changes of layout; and mistakes with files that must be caught."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from rayad.actors.plane.spilling_queue import SpillFile
from rayad.actors.replica.output.spilled_batches import SpilledBatch
from rayad.actors.replica.parts import part_files
from rayad.actors.worker import replica_host
from rayad.dataflow.operators.state.runs.files import RunFile
from rayad.snapshots.manifest import Manifest, PartFile
from rayad.snapshots.store import SnapshotStore
from tests.simulation import harness
from tests.simulation.coordinator.run import Plan
from tests.simulation.coordinator.run import run as run_coordinator
from tests.simulation.defects import around, planted
from tests.simulation.harness import Outcome, run
from tests.simulation.run_files import JOINED, all_runs_in_files, known, most_on_disk
from tests.thorough import amount, by_turns

SEEDS = amount(each_run=8, soak=300)
SEEDS_OF_A_DEFECT = 20
FAULTS = 6


def run_one(seed: int) -> Outcome:
    return run(seed, program=JOINED, count=FAULTS, rescales=seed % 2 == 1)


def test_results_are_right_and_files_are_named_again() -> None:
    with known(JOINED), all_runs_in_files() as counts:
        for seed in range(SEEDS):
            outcome = run_one(seed)
            assert not outcome.violation, outcome
    assert min(counts["written"], counts["named again"], counts["read"]) > 4 * SEEDS, counts
    assert counts["handed over"] > SEEDS, counts


def test_results_are_right_where_runs_on_disk_become_files_of_the_store() -> None:
    with known(JOINED), all_runs_in_files(), most_on_disk() as counts:
        for seed in range(SEEDS):
            outcome = run_one(seed)
            assert not outcome.violation, outcome
    assert counts["in the store"] > 4 * SEEDS, counts


def test_results_are_right_where_replicas_share_processes_and_move() -> None:
    with known(JOINED), all_runs_in_files() as counts:
        for seed in range(2 * SEEDS):
            chance = random.Random(seed)
            parallelism, placement = chance.choice([1, 2, 3]), chance.choice(["workers", "vertices"])
            mode, crashes = chance.choice(["aligned", "unaligned", "timeout"]), chance.choice([1, 2, 3])
            todo = Plan(kills=crashes, changes=chance.choice([0, 0, 1, 2, 4]))
            run_coordinator(seed, JOINED, parallelism, placement, mode=mode, todo=todo, span=600)
    assert min(counts["written"], counts["named again"], counts["read"]) > 0, counts


OF_EVENT_TIME = [
    "sliding-columns",
    "session-columns",
    "window-join-sliding-6-columns",
    "interval-join-around-full-columns",
    "as-of-join-nearest-inner-columns",
]


OF_ROWS = ["processes", "keys-that-end", "records-that-end", "broadcast-join-rows", "sliding-rows", "session-rows", "equal-keys"]


@by_turns(2)
@pytest.mark.parametrize("name", [*OF_EVENT_TIME, *OF_ROWS, "totals-composite-columns", "per-epoch-columns", "broadcast-join-columns"])
def test_what_waits_for_its_time_on_disk_is_taken_in_once(name: str) -> None:
    program = harness.all_programs()[name]
    with all_runs_in_files(), most_on_disk() as counts:
        for seed in range(SEEDS // 4):
            outcome = run(seed, program=program, count=FAULTS, rescales=seed % 2 == 1)
            assert not outcome.violation, outcome
    assert min(counts["waiting"], counts["sent later"]) > SEEDS, counts


@by_turns(2)
@pytest.mark.parametrize("name", OF_EVENT_TIME)
def test_windows_and_joins_over_event_time_are_right_where_their_runs_are_files(name: str) -> None:
    program = harness.all_programs()[name]
    with all_runs_in_files() as counts:
        for seed in range(SEEDS):
            outcome = run(seed, program=program, count=FAULTS, rescales=seed % 2 == 1)
            assert not outcome.violation, outcome
    assert min(counts["written"], counts["named again"], counts["read"]) > 0, counts


# -- defects ---------------------------------------------------------------------------------------


def all_rows_are_in_the_first_file_of_the_list(stack: ExitStack) -> None:
    def persistent_id(real: Any, self: Any, obj: Any) -> Any:
        found = real(self, obj)
        return (0, *found[1:]) if found and isinstance(found[0], int) else found

    around(stack, part_files._RunPickler, "persistent_id", persistent_id)


def retention_does_not_see_files_of_runs(stack: ExitStack) -> None:
    def files(real: Any, self: Any) -> set[PartFile]:
        return real(self) - {file for part in self.parts for file in part.runs}  # type: ignore[no-any-return]

    around(stack, Manifest, "files", files)


def what_was_given_up_is_cleaned(stack: ExitStack) -> None:
    """An attempt cleans its folder of what attempts before it wrote, of which replicas know the names."""

    def write_part(real: Any, self: Any, number: int, vertex: str, replica: int, pieces: Any, *, attempt: str = "0") -> PartFile:
        file: PartFile = real(self, number, vertex, replica, pieces, attempt=attempt)
        mine, now = file.path.split(".")[0], file.path.removesuffix(f"{attempt.rpartition('.')[2]}.part")
        for entry in self.port.entries(f"{number:012d}"):
            if ".run" in entry.name and entry.name.startswith(f"{mine}.") and not entry.name.startswith(now):
                self.port.delete(entry.name)
        return file

    around(stack, SnapshotStore, "write_part", write_part)


def a_file_is_found_by_its_content(stack: ExitStack) -> None:
    """Also where an attempt of a former incarnation has written it, or one that retention has cleaned."""
    there: dict[tuple[str, str, str], PartFile] = {}

    def write_part(real: Any, self: Any, number: int, vertex: str, replica: int, pieces: Any, *, attempt: str = "0") -> PartFile:
        if ".run" not in attempt:
            return real(self, number, vertex, replica, pieces, attempt=attempt)  # type: ignore[no-any-return]
        digest = hashlib.sha256()
        pieces(_Digesting(digest))
        name = self.folder, vertex, digest.hexdigest()
        if name not in there:
            there[name] = real(self, number, vertex, replica, pieces, attempt=attempt)
        return there[name]

    around(stack, SnapshotStore, "write_part", write_part)


class _Digesting:
    closed = False

    def __init__(self, digest: Any) -> None:
        self.write = digest.update

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def a_file_has_a_name_before_it_is_written(stack: ExitStack) -> None:
    """An attempt that is given up before it has written a file leaves its name behind."""

    def choose(real: Any, self: Any, vertex: Any, barrier: Any) -> Any:
        chosen = real(self, vertex, barrier)
        fresh: list[RunFile] = [file for file in chosen.runs if file.content is not None]
        for file in fresh[:1] if barrier.number % 2 else ():
            file.written(PartFile(f"{barrier.slot:012d}/x.part", 1, ""))
        return chosen

    around(stack, part_files.StateChain, "choose", choose)


DEFECTS: dict[Callable[[ExitStack], None], int] = {
    all_rows_are_in_the_first_file_of_the_list: 0,
    retention_does_not_see_files_of_runs: 5,
    what_was_given_up_is_cleaned: 214,
    a_file_is_found_by_its_content: 135,
    a_file_has_a_name_before_it_is_written: 5,
}
"""Each with a seed that finds it. That a slice of a file is another one the laws find (``tests/dataflow/test_laws_of_run_files.py``)."""


@by_turns(2)
@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__)
def test_a_defect_is_caught(plant: Callable[[ExitStack], None]) -> None:
    seeds = range(DEFECTS[plant], DEFECTS[plant] + SEEDS_OF_A_DEFECT)
    with known(JOINED), all_runs_in_files():
        assert not run_one(seeds[0]).violation, "it is not there when the defect is not"
        with planted(plant):
            assert any(run_one(seed).violation for seed in seeds)


def a_spilled_batch_gives_its_space_back_when_it_is_read(stack: ExitStack) -> None:
    """A snapshot reads it, too, before it is sent."""

    def read(real: Any, self: SpilledBatch) -> bytes:
        data: bytes = real(self)
        self._file.free(self._place)
        return data

    around(stack, SpilledBatch, "read", read)


def its_credit_is_another_one_where_it_is_consumed(stack: ExitStack) -> None:
    def credit_of(real: Any, payload: Any) -> int:
        return int(real(payload)) - 8 * (type(payload) is SpilledBatch)

    around(stack, replica_host, "credit_of", credit_of)


def batches_are_written_over_each_other(stack: ExitStack) -> None:
    def write(real: Any, self: Any, item: bytes) -> tuple[int, int]:
        place: tuple[int, int] = real(self, item)
        self._write_at = place[0]
        return place

    around(stack, SpillFile, "write", write)


@by_turns(2)
@pytest.mark.parametrize(
    "plant",
    [
        a_spilled_batch_gives_its_space_back_when_it_is_read,
        its_credit_is_another_one_where_it_is_consumed,
        batches_are_written_over_each_other,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_defect_of_what_waits_on_disk_to_be_sent_is_caught(plant: Callable[[ExitStack], None]) -> None:
    program = harness.all_programs()["sliding-columns"]
    with all_runs_in_files(), most_on_disk(), planted(plant):
        assert run(0, program=program, count=FAULTS).violation
