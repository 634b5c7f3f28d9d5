"""The coordinator's bookkeeping of snapshots: every acknowledgement is one of four kinds, one attempt at a time, numbers never repeat."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.progress import ProtocolError, SnapshotError
from rayad.snapshots.coordination import Ack, MutableSnapshots, PartReport
from rayad.snapshots.store import PartFile, ReplicaPart, StagedPart

REPLICAS = [("count", 0), ("count", 1), ("lines", 0)]


def report(number: int, vertex: str = "count", replica: int = 0, **more: object) -> PartReport:
    rest = PartFile(f"{number}/{vertex}-{replica}", 10, "00")
    return PartReport(number, ReplicaPart(vertex, replica, (), rest), **more)  # type: ignore[arg-type]


def test_acknowledgements_are_of_four_kinds() -> None:
    snapshots = MutableSnapshots(REPLICAS, interval_s=10.0)
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
    snapshots = MutableSnapshots(REPLICAS, published=7)
    first = snapshots.begin(0.0)
    with pytest.raises(ProtocolError, match="one snapshot at a time"):
        snapshots.begin(0.0)
    snapshots.on_failed(first.number, "")
    second = snapshots.begin(1.0)
    assert (first.slot, second.slot) == (8, 8)
    assert second.number == first.number + 1
    assert second.base == 0


def test_increments_may_build_on_what_was_published_only() -> None:
    snapshots = MutableSnapshots([("count", 0)])
    first = snapshots.begin(0.0)
    snapshots.on_report(report(first.number))
    assert snapshots.is_complete
    snapshots.on_published(1.0)
    lost = snapshots.begin(2.0)
    assert (lost.base, lost.slot) == (first.number, first.slot + 1)
    snapshots.on_failed(lost.number, "")
    assert snapshots.begin(3.0).base == first.number


def test_no_manifest_before_all_have_acknowledged() -> None:
    snapshots = MutableSnapshots(REPLICAS)
    barrier = snapshots.begin(0.0)
    snapshots.on_report(report(barrier.number))
    with pytest.raises(SnapshotError, match=r"missing: \[\('count', 1\), \('lines', 0\)\]"):
        snapshots.manifest(job="j", graph={}, key_groups=8, incarnation=1)


def test_what_sinks_publish_at_the_end_is_carried_along_and_the_rest_is_not() -> None:
    snapshots = MutableSnapshots([("count", 0)], finally_published=["kept"])
    for number in range(1, 4):
        barrier = snapshots.begin(float(number))
        staged = tuple(StagedPart(sink, "count", 0, PartFile(f"{number}-{sink}", 1, "0")) for sink in ("kept", "committed"))
        snapshots.on_report(report(barrier.number, staged=staged))
        manifest = snapshots.manifest(job="j", graph={}, key_groups=8, incarnation=1)
        snapshots.on_published(float(number))
        assert [s.file.path for s in manifest.staged if s.sink == "kept"] == [f"{n}-kept" for n in range(1, number + 1)]
        assert [s.file.path for s in manifest.staged if s.sink == "committed"] == [f"{number}-committed"]


def test_times() -> None:
    snapshots = MutableSnapshots([("count", 0)], interval_s=10.0, timeout_s=3.0, now_s=100.0)
    assert (snapshots.due(109.9), snapshots.due(110.0), snapshots.due_in_s(104.0)) == (False, True, 6.0)
    snapshots.begin(110.0)
    assert (snapshots.due(200.0), snapshots.expired(113.0), snapshots.expired(113.1)) == (False, False, True)
    assert MutableSnapshots([("count", 0)]).due_in_s(5.0) is None


@given(st.lists(st.sampled_from(["begin", "count0", "count1", "lines0", "fail", "publish"]), max_size=40))
def test_whatever_happens_a_snapshot_has_exactly_one_part_of_each(steps: list[str]) -> None:
    snapshots = MutableSnapshots(REPLICAS)
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
