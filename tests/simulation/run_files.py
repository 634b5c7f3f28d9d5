"""Snapshots that are lists of files, under the simulation: all sorted runs are written, however small; programs whose joins have many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import rayad as rd
from rayad.actors.replica.output.spilled_batches import OutgoingBound
from rayad.actors.replica.parts import part_files, part_reading
from rayad.actors.worker.state_files import StateFiles
from rayad.dataflow.operators.state.runs import disk, files, runs
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.waiting_runs import WaitingRuns
from rayad.snapshots.manifest import PartFile
from tests.programs import model as m
from tests.programs.program import Expected, Program
from tests.simulation import harness

EPOCHS = 7
LEFT = [[(7 * epoch + 3 * i) % 5 for i in range(3)] for epoch in range(EPOCHS)]
RIGHT = [[(epoch + i) % 4 for i in range(2)] for epoch in range(EPOCHS)]


def _columns(epochs: list[list[int]], name: str) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist(records) for records in _records(epochs, name)]


def _records(epochs: list[list[int]], name: str) -> list[list[dict[str, int]]]:
    return [[{"k": key, name: 100 * e + i} for i, key in enumerate(keys)] for e, keys in enumerate(epochs)]


def joined(flow: rd.Dataflow) -> None:
    """A join over all time of columns, a row a batch: many runs, which merge."""
    sides = [flow.from_epochs(_columns(epochs, name), parts=2, batch_rows=1, name=name) for epochs, name in ((LEFT, "a"), (RIGHT, "b"))]
    sides[0].key_by("k").join(sides[1].key_by("k"), name="join").collect("pairs")


def joined_expected() -> Expected:
    left, right = m.epochs(_records(LEFT, "a")), m.epochs(_records(RIGHT, "b"))
    return {"pairs": m.joined(left, right, lambda r: r["k"], lambda r: r["k"])}


JOINED = Program("sim join in files", joined, joined_expected)


@contextmanager
def known(program: Program) -> Iterator[None]:
    """Within it the simulation finds a program by its name."""
    programs = {**harness.all_programs(), program.name: program}
    with patch.object(harness, "all_programs", lambda: programs):
        yield


@contextmanager
def most_on_disk() -> Iterator[Counter[str]]:
    """Within it nearly no run is in memory; counts the runs on disk that become files of the store, and those of batches that wait, for
    their time or for credit."""
    counts: Counter[str] = Counter()
    find, put, send = StateFiles.in_store, WaitingRuns.put, OutgoingBound.put

    def in_store(self: Any, name: PartFile) -> Any:
        found = find(self, name)
        counts["in the store" if found is not None else "not in the store"] += 1
        return found

    def put_waiting(self: Any, batches: list[pa.RecordBatch]) -> Any:
        counts["waiting"] += 1
        return put(self, batches)

    def put_outgoing(self: Any, *args: Any) -> Any:
        counts["sent later"] += 1
        return send(self, *args)

    def bound(bytes_max: int, files: StateFiles) -> MemoryBound:
        return MemoryBound(1 << 8, files)

    with patch.object(harness, "STATE_MEMORY_BYTES", 1 << 20), patch("rayad.actors.worker.workplace.MemoryBound", bound):
        with patch.object(disk, "FILE_BYTES_MIN", 1), patch.object(StateFiles, "in_store", in_store):
            with patch.object(WaitingRuns, "put", put_waiting), patch.object(OutgoingBound, "put", put_outgoing):
                yield counts


@contextmanager
def all_runs_in_files() -> Iterator[Counter[str]]:
    """Within it all runs are written, and slices of them handed over by name, however small and many; counts the files that are written,
    named by a snapshot without being written, read, and handed over."""
    counts: Counter[str] = Counter()
    write, read, hand = part_files.write_state, part_reading.RunsOfPart.content_of, part_reading.RunsByName.content_of

    def write_state(*args: Any) -> None:
        written = args[4]
        is_new = [run.content is not None for run in written.capture.runs]
        write(*args)
        counts["written"] += sum(is_new)
        counts["named again"] += len(is_new) - sum(is_new)

    def content_of(self: Any, number: int) -> Any:
        counts["read"] += 1
        return read(self, number)

    def content_by_name(self: Any, name: PartFile) -> Any:
        counts["handed over"] += 1
        return hand(self, name)

    with patch.object(files, "FILED_BYTES_MIN", 1), patch.object(part_reading.RunsOfPart, "content_of", content_of):
        with patch.object(runs, "PIECES_MAX", 99), patch.object(part_reading.RunsByName, "content_of", content_by_name):
            with patch("rayad.actors.local.part_events.write_state", write_state):
                yield counts


__all__ = ["JOINED", "all_runs_in_files", "known", "most_on_disk"]
