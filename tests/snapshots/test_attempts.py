"""The coordinator's bookkeeping of snapshots: every acknowledgement is one of four kinds, one attempt at a time, numbers never repeat."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.replica.parts.part_files import StagedValues, merge_staged, write_staged
from rayad.progress import ProtocolError, SnapshotError
from rayad.snapshots.attempts import MERGE_AT, Ack, PartReport, SnapshotAttempts, merge_from
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.manifest import PartFile, ReplicaPart, StagedPart
from rayad.snapshots.store import SnapshotStore

REPLICAS = [("count", 0), ("count", 1), ("lines", 0)]


def report(number: int, vertex: str = "count", replica: int = 0, **more: object) -> PartReport:
    rest = PartFile(f"{number}/{vertex}-{replica}", 10, "00")
    return PartReport(number, ReplicaPart(vertex, replica, (), rest), **more)  # type: ignore[arg-type]


def test_acknowledgements_are_of_four_kinds() -> None:
    snapshots = SnapshotAttempts(REPLICAS, interval_s=10.0)
    first = snapshots.begin(0.0)
    assert snapshots.on_report(report(first.number)) is Ack.SUCCESS
    assert snapshots.on_report(report(first.number)) is Ack.DUPLICATE
    assert snapshots.on_report(report(first.number, "stranger")) is Ack.UNKNOWN
    assert snapshots.on_report(report(first.number + 5)) is Ack.UNKNOWN
    assert snapshots.missing == [("count", 1), ("lines", 0)]
    assert snapshots.on_failed(first.number, "the disk is full")
    assert snapshots.on_report(report(first.number, "count", 1)) is Ack.DISCARDED
    assert not snapshots.on_failed(first.number, "again")
    assert (snapshots.given_up, snapshots.why_given_up) == (1, "the disk is full")


def test_a_second_attempt_takes_the_same_slot_and_another_number() -> None:
    snapshots = SnapshotAttempts(REPLICAS, published=7)
    first = snapshots.begin(0.0)
    with pytest.raises(ProtocolError, match="one snapshot at a time"):
        snapshots.begin(0.0)
    snapshots.on_failed(first.number, "")
    second = snapshots.begin(1.0)
    assert (first.slot, second.slot) == (8, 8)
    assert second.number == first.number + 1
    assert second.base == 0


def test_increments_build_on_published_snapshots_only() -> None:
    snapshots = SnapshotAttempts([("count", 0)])
    first = snapshots.begin(0.0)
    snapshots.on_report(report(first.number))
    assert snapshots.is_complete
    snapshots.on_published(1.0)
    lost = snapshots.begin(2.0)
    assert (lost.base, lost.slot) == (first.number, first.slot + 1)
    snapshots.on_failed(lost.number, "")
    assert snapshots.begin(3.0).base == first.number


def test_no_manifest_before_all_have_acknowledged() -> None:
    snapshots = SnapshotAttempts(REPLICAS)
    barrier = snapshots.begin(0.0)
    snapshots.on_report(report(barrier.number))
    with pytest.raises(SnapshotError, match=r"missing: \[\('count', 1\), \('lines', 0\)\]"):
        snapshots.manifest(job="j", graph={}, key_groups=8, incarnation=1)


def test_what_sinks_publish_at_the_end_is_kept_in_each_manifest_and_nothing_else() -> None:
    snapshots = SnapshotAttempts([("count", 0)], finally_published=["kept"])
    for number in range(1, 4):
        barrier = snapshots.begin(float(number))
        staged = tuple(StagedPart(sink, "count", 0, PartFile(f"{number}-{sink}", 1, "0")) for sink in ("kept", "committed"))
        snapshots.on_report(report(barrier.number, staged=staged))
        manifest = snapshots.manifest(job="j", graph={}, key_groups=8, incarnation=1)
        snapshots.on_published(float(number))
        assert [s.file.path for s in manifest.staged if s.sink == "kept"] == [f"{n}-kept" for n in range(1, number + 1)]
        assert [s.file.path for s in manifest.staged if s.sink == "committed"] == [f"{number}-committed"]


def test_times() -> None:
    snapshots = SnapshotAttempts([("count", 0)], interval_s=10.0, timeout_s=3.0, now_s=100.0)
    assert (snapshots.due(109.9), snapshots.due(110.0), snapshots.due_in_s(104.0)) == (False, True, 6.0)
    snapshots.begin(110.0)
    assert (snapshots.due(200.0), snapshots.expired(113.0), snapshots.expired(113.1)) == (False, False, True)
    assert SnapshotAttempts([("count", 0)]).due_in_s(5.0) is None


@given(st.lists(st.sampled_from(["begin", "count0", "count1", "lines0", "fail", "publish"]), max_size=40))
def test_whatever_happens_a_snapshot_has_exactly_one_part_of_each(steps: list[str]) -> None:
    snapshots = SnapshotAttempts(REPLICAS)
    slots = []
    for step in steps:
        pending = snapshots.pending
        if step == "begin" and pending is None:
            snapshots.begin(0.0)
        elif step == "fail" and pending is not None:
            snapshots.on_failed(pending.number, "")
        elif step == "publish" and snapshots.is_complete:
            manifest = snapshots.manifest(job="j", graph={}, key_groups=8, incarnation=1)
            assert sorted((part.vertex, part.replica) for part in manifest.parts) == REPLICAS
            assert {part.rest.path.split("/")[0] for part in manifest.parts if part.rest} == {str(pending.number if pending else 0)}
            slots.append(manifest.number)
            snapshots.on_published(1.0)
        elif step[-1] in "01":
            snapshots.on_report(report(snapshots.attempts, step[:-1], int(step[-1])))
    assert slots == list(range(1, len(slots) + 1))


@given(st.integers(1, 3), st.integers(1, 400))
def test_output_staged_for_the_end_is_in_few_files_each_written_few_times(replicas: int, snapshots_taken: int) -> None:
    """Issue 11: `_staged` had no bound: one file and one line of the manifest for each replica and snapshot."""
    counts: list[int] = []
    written = 0
    for _ in range(snapshots_taken):
        counts += [1] * replicas
        start = merge_from(counts)
        if start is not None:
            written += sum(counts[start:])
            counts[start:] = [sum(counts[start:])]
    total = replicas * snapshots_taken
    levels = math.ceil(math.log(total, MERGE_AT)) + 1 if total > 1 else 1
    assert sum(counts) == total
    assert len(counts) <= (MERGE_AT + 1) * levels
    assert written <= total * levels


def test_manifests_of_many_snapshots_stay_small_and_the_end_has_all_in_order(tmp_path: Path) -> None:
    flow = rd.Dataflow("many")
    flow.input("numbers").collect("out")
    job: Any = flow.submit(rd.RunConfig(storage_path=tmp_path), runtime="local", seed=3)  # type: ignore[arg-type]
    most = 0
    for number in range(60):
        job.input("numbers").send([number])
        job.input("numbers").advance_to(number + 1)
        job.savepoint()
        most = max(most, len(job.snapshots.store.manifest.staged))
    job.crash()
    job.input("numbers").close()
    assert [number for _, number in job.wait()["out"]] == list(range(60))
    assert MERGE_AT / 2 < most <= 2 * MERGE_AT


def test_output_staged_in_attempts_that_were_given_up_is_one_file_for_each_sink(tmp_path: Path) -> None:
    store = SnapshotStore(str(tmp_path))
    flow = rd.Dataflow("given-up")
    flow.from_items([1], name="items").collect("out")
    staged = [(key, [number]) for number in range(50) for key in ("out", "other")]
    parts = write_staged(store, flow.plan().stages[0], 0, 1, Barrier(50, 1, 0), staged)
    assert [(part.sink, part.count) for part in parts] == [("out", 50), ("other", 50)]
    for part in parts:
        values = StagedValues(store, [part])
        assert list(values) == list(values) == [[n] for n in range(50)]
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2
    both = merge_staged(store, 1, parts[:1] * 2, "merged")
    assert both.count == 100
    assert list(StagedValues(store, [both])) == [[n] for n in range(50)] * 2


def test_staged_values_are_a_sequence_that_reads_a_file_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SnapshotStore(str(tmp_path))
    flow = rd.Dataflow("lazy")
    flow.from_items([1], name="items").collect("out")
    oracle = [f"value {n}" for n in range(7)]
    parts: list[StagedPart] = []
    for number, (begin, end) in enumerate([(0, 3), (3, 4), (4, 7)]):
        staged = [("out", value) for value in oracle[begin:end]]
        parts += write_staged(store, flow.plan().stages[0], 0, 1, Barrier(number + 1, number + 1, 0), staged)
    read: list[str] = []
    really = store.read_part

    def noted(file: PartFile) -> bytes:
        read.append(file.path)
        return really(file)

    monkeypatch.setattr(store, "read_part", noted)
    values = StagedValues(store, parts)
    assert (len(values), read) == (7, [])
    looking = iter(values)
    assert [next(looking), next(looking)] == oracle[:2]
    assert read == [parts[0].file.path], "the other files are read when it comes to them"
    assert [*looking] == oracle[2:]
    assert [values[at] for at in range(-7, 7)] == [oracle[at] for at in range(-7, 7)]
    assert [*reversed(values)] == oracle[::-1]
    assert values[1:6:2] == oracle[1:6:2]
    with pytest.raises(IndexError):
        values[7]
    (tmp_path / parts[2].file.path).unlink()
    with pytest.raises(SnapshotError, match=r"^part \S+ in .* cannot be read"):
        list(values)
