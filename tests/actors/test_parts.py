"""Parts of snapshots as files: state pickled in place or in a forked copy comes back; failures are reported."""

from __future__ import annotations

import dataclasses
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.host.part_writer import PartWriter, Written
from rayad.actors.plane.spilling_queue import SpillFile
from rayad.actors.replica.captures import Capture
from rayad.actors.replica.parts.part_files import SetAside, StagedValues, StateChain, dumped, loaded
from rayad.actors.replica.parts.part_reading import read_part
from rayad.actors.replica.rest import PartRest
from rayad.dataflow.operators.joins.join import Join
from rayad.dataflow.operators.keys.key_first import key_first
from rayad.progress import SnapshotError, Timestamp
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.manifest import PartFile, ReplicaPart
from rayad.snapshots.store import SnapshotStore

WRITTEN = threading.Event()


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(str(tmp_path))


@pytest.fixture
def writer(store: SnapshotStore) -> Iterator[PartWriter]:
    flow = rd.Dataflow("parts")
    flow.from_items([1]).key_by(lambda n: n).count(name="counts").collect("out")
    stage = next(stage for stage in flow.plan(1).stages if stage.name == "counts")
    made = PartWriter(store, stage, 0, 1, WRITTEN.set)
    yield made
    made.close()


def write(writer: PartWriter, state: Callable[[], Any], *, large: bool, number: int = 1, inline: bool = False) -> Written:
    capture = Capture(Barrier(number, number), PartRest(), state, False, [("out", ["staged"])])
    writer.take_state(capture, records=10**6 if large else 1, inline=inline)
    writer.complete(capture)
    return outcome(writer)


def outcome(writer: PartWriter) -> Written:
    """Wait for the writer's report, and give it."""
    assert WRITTEN.wait(20)
    WRITTEN.clear()
    return writer.done.popleft()


@pytest.mark.parametrize("large", [False, True])
def test_a_part_comes_back(store: SnapshotStore, writer: PartWriter, large: bool) -> None:
    state = {"rows": {f"key {i}": i for i in range(20_000)}, "array": np.arange(50_000), "batch": pa.record_batch({"x": range(9)})}
    written = write(writer, lambda: state, large=large)
    assert not written.why_failed
    assert written.state is not None
    again = read_part(store, ReplicaPart("counts", 0, (written.state,), written.rest)).states[0]
    assert again["rows"] == state["rows"]
    assert np.array_equal(again["array"], state["array"])
    assert again["batch"].equals(state["batch"])
    again["array"][0] = 7  # it belongs to the vertex
    assert [staged.sink for staged in written.staged] == ["out"]


@pytest.mark.parametrize("large", [False, True])
def test_runs_are_written_once_and_named_by_the_parts_that_follow(store: SnapshotStore, writer: PartWriter, large: bool) -> None:
    """Also where a copy of the process pickles the state, before the files have names; and after a recovery, of what is left of a run."""
    vertex = joined(0, 40_000)
    parts = []
    for number in (1, 2):
        written = write_vertex(writer, vertex, number, large=large)
        vertex.sides.columns.accept(0, side_of_join(0, number, 1), Timestamp(0))  # behind the capture
        assert not written.why_failed
        assert written.state is not None
        parts.append(ReplicaPart("counts", 0, (written.state,), written.rest, runs=written.runs))
    assert [len(part.runs) for part in parts] == [2, 2]
    assert parts[0].runs == parts[1].runs, "the second part names what the first has written"
    assert parts[1].files[0].size < 20_000
    again = Join()
    again.restore(read_part(store, parts[1]).states[0])
    again.sides.give(frozenset(range(128)), 256)  # runs become slices
    written = write_vertex(writer, again, 3, large=large)
    assert written.runs == parts[0].runs
    assert written.state is not None
    assert written.state_bytes == written.state.size, "nothing else was written"
    last = Join()
    last.restore(read_part(store, ReplicaPart("counts", 0, (written.state,), written.rest, runs=written.runs)).states[0])
    assert rows_of_join(last) == rows_of_join(again)
    assert 0 < len(rows_of_join(last)) < 80_000


@pytest.mark.parametrize("large", [False, True])
def test_an_increment_names_the_files_of_the_whole_state_that_it_builds_on(store: SnapshotStore, writer: PartWriter, large: bool) -> None:
    vertex, chain = joined(0, 40_000), StateChain()
    written = write_vertex(writer, vertex, 1, large=large, chain=chain)
    assert len(written.runs) == 2
    for number in (2, 3):
        vertex.sides.columns.accept(0, side_of_join(0, 40_000 * number, 40_000), Timestamp(0))
        vertex.sides.columns.side(0).all()  # what has come becomes large runs, of which there is no file yet
        again = write_vertex(writer, vertex, number, large=large, chain=chain)
        assert again.capture.is_increment
        assert again.runs == written.runs
    last = Join()
    for at, state in enumerate(read_part(store, ReplicaPart("counts", 0, chain.files, again.rest, runs=again.runs)).states):
        (last.restore_changes if at else last.restore)(state)
    assert rows_of_join(last) == rows_of_join(vertex)
    assert [len(runs.files()) for runs in last.sides.columns.runs()] == [2, 1], "what came in increments is written next"


def test_a_file_of_runs_that_is_another_one_is_refused(store: SnapshotStore, writer: PartWriter) -> None:
    written = write_vertex(writer, joined(0, 40_000), 1, large=False)
    assert written.state is not None
    part = ReplicaPart("counts", 0, (written.state,), written.rest, runs=written.runs[:1])
    with pytest.raises(SnapshotError, match="it refers to file 1 of the 1 files of its runs"):
        read_part(store, part)
    with pytest.raises(SnapshotError, match=rf"part {re.escape(written.state.path)} in .* cannot be read"):
        read_part(store, dataclasses.replace(part, runs=(written.state, written.state)))


def side_of_join(side: int, first: int, count: int) -> pa.RecordBatch:
    keys = range(first, first + count)
    return key_first(pa.record_batch({"k": keys, f"v{side}": keys}), ("k",))


def joined(first: int, count: int) -> Join:
    vertex = Join()
    for side in (0, 1):
        list(vertex.sides.columns.accept(side, side_of_join(side, first, count), Timestamp(0)))
    return vertex


def rows_of_join(vertex: Join) -> list[Any]:
    return sorted(row["k"] for runs in vertex.sides.columns.runs() for run in runs.each_live() for row in run.rows.to_pylist())


def write_vertex(writer: PartWriter, vertex: Join, number: int, *, large: bool, chain: StateChain | None = None) -> Written:
    """With a chain every attempt before is published."""
    barrier = Barrier(number, number, base=number - 1 if chain is not None else 0)
    chain = chain or StateChain()
    chosen = chain.choose(vertex, barrier)
    capture = Capture(barrier, PartRest(), chosen.make, chosen.is_increment, [], chosen.runs)
    writer.take_state(capture, records=10**6 if large else 1, inline=False)
    writer.complete(capture)
    written = outcome(writer)
    chain.wrote(barrier, written.state, incremental=chosen.is_increment)
    return written


def test_staged_values_on_disk_become_files_of_their_own_in_order(store: SnapshotStore, writer: PartWriter, tmp_path: Path) -> None:
    disk = SpillFile(str(tmp_path))
    values = [["before"], SetAside(disk, "out", b"1" * 3_000_000), SetAside(disk, "out", ["2"]), ["behind"], ["last"]]
    capture = Capture(Barrier(1, 1), PartRest(), None, False, [("out", value) for value in values])
    writer.take_state(capture, records=1, inline=False)
    writer.complete(capture)
    written = outcome(writer)
    assert not written.why_failed
    assert [part.count for part in written.staged] == [1, 1, 1, 2]
    assert list(StagedValues(store, written.staged)) == [["before"], b"1" * 3_000_000, ["2"], ["behind"], ["last"]]
    disk.close()


def test_large_state_is_as_it_was_at_the_capture(store: SnapshotStore, writer: PartWriter) -> None:
    state = {i: [i] for i in range(200_000)}
    capture = Capture(Barrier(1, 1), PartRest(), lambda: state, False, [])
    writer.take_state(capture, records=10**6, inline=False)
    for value in state.values():
        value.append(-1)
    state.clear()
    writer.complete(capture)
    file = outcome(writer).state
    assert file is not None
    assert loaded(store.read_part(file)) == {i: [i] for i in range(200_000)}


def test_the_copy_pickles_in_another_process_unless_it_must_not(store: SnapshotStore, writer: PartWriter) -> None:
    pids = []
    for number, (large, inline) in enumerate([(True, False), (True, True), (False, False)], start=1):
        file = write(writer, os.getpid, large=large, inline=inline, number=number).state
        assert file is not None
        pids.append(loaded(store.read_part(file)))
    assert pids[0] != os.getpid()
    assert pids[1:] == [os.getpid()] * 2


@pytest.mark.parametrize("large", [False, True])
def test_a_checkpoint_that_raises_is_reported(writer: PartWriter, large: bool) -> None:
    def state() -> Any:
        raise ValueError("no state today")

    assert write(writer, state, large=large).why_failed == "its state could not be taken: ValueError: no state today"
    assert not write(writer, lambda: 5, large=large, number=2).why_failed


def test_no_copy_is_left_behind(writer: PartWriter) -> None:
    capture = Capture(Barrier(1, 1), PartRest(), lambda: threading.Event().wait(60), False, [])
    writer.take_state(capture, records=10**6, inline=False)
    (child,) = writer._children.values()
    writer.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


LOCK = threading.Lock()


class Locked:
    """Cannot be pickled while the lock is held, like an object that calls a client library with a lock of its own."""

    def __reduce__(self) -> Any:
        with LOCK:
            return int, (7,)


def test_a_copy_that_hangs_is_killed_and_the_next_snapshot_is_pickled_in_place(store: SnapshotStore) -> None:
    """Regression: a lock that another thread holds at the fork stays locked in the copy for ever; all snapshots after it waited."""
    flow = rd.Dataflow("parts")
    flow.from_items([1]).key_by(lambda n: n).count(name="counts").collect("out")
    stage = next(stage for stage in flow.plan(1).stages if stage.name == "counts")
    writer = PartWriter(store, stage, 0, 1, WRITTEN.set, hung_s=0.4)
    try:
        capture = Capture(Barrier(1, 1), PartRest(), Locked, False, [])
        with LOCK:
            writer.take_state(capture, records=10**6, inline=False)
            (child,) = writer._children.values()
        writer.complete(capture)
        assert outcome(writer).why_failed == (
            "its state could not be taken: the copy of the process that pickled it hung, without output and without processor time for "
            "0.4 s, as when another thread held a lock at the fork; from now on it is pickled in place"
        )
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
        file = write(writer, lambda: [Locked(), os.getpid()], large=True, number=2).state
        assert file is not None
        assert loaded(store.read_part(file)) == [7, os.getpid()]
    finally:
        writer.close()


def test_a_copy_that_works_without_output_is_not_killed(store: SnapshotStore) -> None:
    """Pickling has no output before it is done, so the check is whether the copy uses its processor."""
    flow = rd.Dataflow("parts")
    flow.from_items([1]).key_by(lambda n: n).count(name="counts").collect("out")
    stage = next(stage for stage in flow.plan(1).stages if stage.name == "counts")
    writer = PartWriter(store, stage, 0, 1, WRITTEN.set, hung_s=2.0)

    def busy() -> int:
        until_s = time.monotonic() + 3.0
        while time.monotonic() < until_s:
            pass
        return 5

    try:
        assert write(writer, busy, large=True).state is not None
    finally:
        writer.close()


def test_a_copy_whose_attempt_is_given_up_is_killed(writer: PartWriter) -> None:
    """Regression: it continued, and every later part waited for it."""
    capture = Capture(Barrier(1, 1), PartRest(), lambda: threading.Event().wait(60), False, [])
    writer.take_state(capture, records=10**6, inline=False)
    writer.give_up(1)
    assert not write(writer, lambda: 5, large=True, number=2).why_failed


def test_a_file_that_is_not_a_part_is_refused(store: SnapshotStore) -> None:
    file = store.write_part(1, "counts", 0, [b"something else"])
    with pytest.raises(SnapshotError, match="cannot be unpickled here: ValueError: it begins with"):
        read_part(store, ReplicaPart("counts", 0, (), file))


def test_columns_are_kept_outside_of_the_pickle() -> None:
    pieces = dumped({"array": np.zeros(10**6), "name": "x"})
    assert max(len(bytes(piece)) for piece in pieces[:2]) < 1_000
    assert loaded(b"".join(bytes(piece) for piece in pieces))["array"].shape == (10**6,)


class Counting(rd.Vertex):
    """Knows what has changed."""

    def take_changes(self) -> Callable[[], Any]:
        return lambda: "changes"


def test_increments_build_on_the_last_published_capture_and_on_nothing_else() -> None:
    chain, vertex = StateChain(), Counting()
    big, small = PartFile("full", 100, "0"), PartFile("part", 10, "0")
    assert not chain.choose(vertex, Barrier(1, 1))[1]
    chain.wrote(Barrier(1, 1), big, incremental=False)
    assert chain.choose(vertex, Barrier(2, 2, base=1))[1]
    assert chain.wrote(Barrier(2, 2, base=1), small, incremental=True) == (big, small)
    assert not chain.choose(vertex, Barrier(3, 3, base=1))[1], "attempt 2 was given up: its changes would be missing"
    chain.wrote(Barrier(3, 3, base=1), big, incremental=False)
    assert chain.choose(vertex, Barrier(4, 4, base=3))[1]
    assert not chain.choose(vertex, Barrier(5, 4, base=3))[1], "attempt 4 took the changes with it"


def test_increments_end_when_they_outweigh_the_whole() -> None:
    chain, vertex = StateChain(), Counting()
    chain.choose(vertex, Barrier(1, 1))
    chain.wrote(Barrier(1, 1), PartFile("full", 100, "0"), incremental=False)
    kinds = []
    for number in range(2, 8):
        barrier = Barrier(number, number, base=number - 1)
        increments = chain.choose(vertex, barrier)[1]
        kinds.append(increments)
        chain.wrote(barrier, PartFile(f"{number}", 45 if increments else 100, "0"), incremental=increments)
    assert kinds == [True, True, True, False, True, True]


def test_what_a_sink_cannot_keep_is_told_with_its_type(tmp_path: Path) -> None:
    """A snapshot failed with "cannot pickle 'generator' object", which says neither where nor what to do."""
    flow = rd.Dataflow("handles")
    flow.from_items([1, 2]).map(lambda n: (n for n in [n]) if n == 2 else n).collect("out")
    with pytest.raises(rd.DataflowError) as caught:
        flow.run(rd.RunConfig(storage_path=str(tmp_path)), runtime="local")
    assert "sink 'out' cannot keep what it has got: a builtins.generator cannot be pickled (TypeError: cannot pickle " in str(caught.value)
    assert "; send its data, not handles such as files, sockets, locks or generators" in str(caught.value)
