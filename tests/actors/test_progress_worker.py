"""What the progress worker makes of processes that come, and come again, while others are still about to register."""

from __future__ import annotations

import random

import pytest

import rayad as rd
from rayad.actors.local.bus import Bus, Ready
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import PROGRESS, Kind, pack_report
from rayad.actors.replica.places import Places
from rayad.actors.replica.upstream import Region, region_of
from rayad.actors.worker.progress_worker import ProgressWorker
from rayad.dataflow.plan import Plan


def two_sources() -> Plan:
    flow = rd.Dataflow("two")
    left, right = flow.from_items([1], name="left"), flow.from_items([2], name="right")
    left.key_by(lambda n: n).join(right.key_by(lambda n: n), name="both").collect("out")
    return flow.plan(1)


def progress_of(plan: Plan, places: Places) -> tuple[ProgressWorker, list[tuple[str, int]]]:
    """One that survives the loss of replicas, and whom it was told to expect, in which incarnation."""
    link, expected = Bus(random.Random(0), Ready()).link(PROGRESS, 1), []
    link.expect = lambda peer, incarnation: expected.append((peer, incarnation))  # type: ignore[method-assign]
    return ProgressWorker(plan, places, link, survives=True), expected


def frame(kind: Kind, name: str, incarnation: int, count: int = 0) -> Frame:
    stage = int(name[1:].split(".")[0])
    report = pack_report([(stage, rd.Timestamp(0), count)] if count else [])
    return Frame(name, kind, stage, 0, b"\0" + report if kind == Kind.READY else report, incarnation)


def test_a_worker_that_is_about_to_connect_keeps_its_incarnation_when_a_newcomer_joins_it() -> None:
    """Regression: it was expected in the newcomers' incarnation, so that its frames were refused and the job never began."""
    plan = two_sources()
    both = next(stage.id for stage in plan.stages if stage.name == "both")
    progress, expected = progress_of(plan, Places(2, {stage.id: 0 for stage in plan.stages}))
    progress.join([f"v{both}.1"], 2)
    assert expected == [("w1", 2)], "w1 is new"
    progress, expected = progress_of(plan, Places(1, {stage.id: 0 for stage in plan.stages}))
    progress.join([f"v{both}.0"], 2)
    assert expected == [], "w0 holds replicas that have not registered yet"


def test_a_second_failure_before_all_have_answered_to_the_first_is_answered_together_with_it() -> None:
    """Regression: the second switch took the place of the first, whose newcomers were never let go."""
    plan = two_sources()
    names = {stage.name: f"v{stage.id}.0" for stage in plan.stages}
    ids = {stage.name: stage.id for stage in plan.stages}
    progress, _ = progress_of(plan, Places())
    sent: list[tuple[str, int]] = []
    progress.link.send = lambda peer, kind, *_: sent.append((peer, kind))  # type: ignore[method-assign, assignment]
    progress.turn([frame(Kind.READY, name, 1) for name in names.values()])
    for incarnation, lost in ((2, "left"), (3, "right")):
        region = region_of(plan, [ids[lost]])
        assert isinstance(region, Region)
        progress.switch([names[lost]], region, incarnation)
    sent.clear()
    living = [frame(Kind.REWOUND, names["both"], 1), frame(Kind.REWOUND, names["right"], 1), frame(Kind.REWOUND, names["both"], 1)]
    progress.turn([*living, frame(Kind.REWOUND, names["left"], 2), frame(Kind.READY, names["right"], 3)])
    assert not [name for name, kind in sent if kind == Kind.GO], "left has not registered"
    progress.turn([frame(Kind.READY, names["left"], 2)])
    assert sorted(name for name, kind in sent if kind == Kind.GO) == sorted((names["left"], names["right"]))


def test_what_a_survivor_did_with_what_a_newcomer_sent_again_counts_when_the_counts_are_replaced() -> None:
    """Regression: it was counted at once, and lost when the counts of the region were replaced: the job waited for ever for a batch that
    had waited for room at the cut, and was consumed."""
    plan = two_sources()
    names, ids = {stage.name: f"v{stage.id}.0" for stage in plan.stages}, {stage.name: stage.id for stage in plan.stages}
    edge = next(edge for edge in plan.edges if edge.source == ids["left"])
    progress, _ = progress_of(plan, Places())
    progress.turn([frame(Kind.READY, name, 1) for name in names.values()])
    region = region_of(plan, [ids["left"]])
    assert isinstance(region, Region)
    progress.switch([names["left"]], region, 2)

    def told(kind: Kind, name: str, incarnation: int, count: int) -> Frame:
        report = pack_report([(edge.count_location, rd.Timestamp(0), count)] if count else [])
        channel = 0 if kind == Kind.REPORT else ids[name]
        return Frame(names[name], kind, channel, 0, b"\0" + report if kind == Kind.READY else report, incarnation)

    progress.turn([told(Kind.REPORT, "both", 1, -1), told(Kind.REWOUND, "both", 1, 0), told(Kind.REWOUND, "right", 1, 0)])
    progress.turn([told(Kind.REPORT, "both", 1, -1)])
    progress.turn([told(Kind.READY, "left", 2, 1)])
    counted = [count for location, _, count in progress.tracker.counts() if location == edge.count_location]
    assert counted == [], "the batch that was sent again is consumed; the one before the roll-back is forgotten"


def test_nothing_is_sent_to_a_newcomer_that_has_not_connected() -> None:
    """Regression: a replica failed before all had registered, and the others' views went to the one in its place, too."""
    plan = two_sources()
    names, ids = {stage.name: f"v{stage.id}.0" for stage in plan.stages}, {stage.name: stage.id for stage in plan.stages}
    progress, _ = progress_of(plan, Places())
    sent: list[str] = []
    progress.link.send = lambda peer, kind, *_: sent.append(peer) if kind == Kind.VIEW else None  # type: ignore[method-assign, assignment]
    progress.link.connected = lambda peer: peer != names["left"]  # type: ignore[method-assign]
    progress.turn([frame(Kind.READY, names["right"], 1)])
    region = region_of(plan, [ids["left"]])
    assert isinstance(region, Region)
    progress.switch([names["left"]], region, 2)
    progress.turn([frame(Kind.READY, names["both"], 1)])
    progress.show(names["left"], ids["both"], b"")
    progress.show(names["both"], ids["both"], b"")
    assert names["left"] not in sent
    assert names["both"] in sent


def two_sources_and_more() -> Plan:
    """Something lives on when what joins the sources fails."""
    flow = rd.Dataflow("more")
    left, right = flow.from_items([1], name="left"), flow.from_items([2], name="right")
    both = left.key_by(lambda n: n).join(right.key_by(lambda n: n), name="both")
    both.key_by(lambda pair: pair[0]).count(name="after").collect("out")
    return flow.plan(1)


def restart(progress: ProgressWorker, failed: str, incarnation: int) -> list[str]:
    """A vertex has failed; gives the names of its replica and of those upstream of it."""
    region = region_of(progress.plan, [stage.id for stage in progress.plan.stages if stage.name == failed])
    assert isinstance(region, Region)
    names = [f"v{stage}.0" for stage in sorted(region.stages)]
    progress.switch(names, region, incarnation)
    return names


@pytest.mark.parametrize("has_registered", [True, False])
def test_what_a_newcomer_had_from_the_cut_is_void_when_its_senders_fail_before_it_is_counted(has_registered: bool) -> None:
    """Regression: `both` resumes with a batch that was in flight at the cut, and drops it as `left` fails, which sends it again. It was
    counted for ever, and so its time was never complete. Found by vertex-end, seed 92, of tests/simulation/test_upstream.py."""
    plan = two_sources_and_more()
    ids = {stage.name: stage.id for stage in plan.stages}
    edges = {plan.stage(edge.source).name: edge.count_location for edge in plan.edges if edge.target == ids["both"]}
    waiting, epoch = plan.stage(ids["both"]).notify_location, rd.Timestamp(0)
    progress, _ = progress_of(plan, Places())
    progress.turn([frame(Kind.READY, f"v{stage}.0", 1) for stage in ids.values()])

    def told(kind: Kind, name: str, incarnation: int, *changes: tuple[int, rd.Timestamp, int]) -> Frame:
        report = pack_report(list(changes))
        return Frame(f"v{ids[name]}.0", kind, ids[name], 0, b"\0" + report if kind == Kind.READY else report, incarnation)

    restart(progress, "both", 2)
    had = ((edges["left"], epoch, 1), (edges["right"], epoch, 1), (waiting, epoch, 1))
    progress.turn([told(Kind.REWOUND, "after", 1), told(Kind.READY, "right", 2)])
    if has_registered:
        progress.turn([told(Kind.READY, "both", 2, *had)])
    restart(progress, "left", 3)
    progress.turn(
        [
            told(Kind.REWOUND, "both", 2, *(() if has_registered else had), (waiting, epoch, 1)),
            told(Kind.REWOUND, "after", 1),
            told(Kind.REWOUND, "right", 2),
        ]
    )
    if not has_registered:
        progress.turn([told(Kind.READY, "both", 2)])
    progress.turn([told(Kind.READY, "left", 3)])
    counts = {location: count for location, _, count in progress.tracker.counts()}
    assert edges["left"] not in counts, "left sends it again, and counts it then"
    assert (counts[edges["right"]], counts[waiting]) == (1, 2), "right has not failed again"


def test_a_newcomer_is_sent_no_view_before_the_counts_are_replaced() -> None:
    """Those of the replica before it say more than what it has resumed from; one may still wait for room in that one's socket."""
    plan = two_sources_and_more()
    progress, _ = progress_of(plan, Places())
    progress.turn([frame(Kind.READY, f"v{stage.id}.0", 1) for stage in plan.stages])
    both = next(stage.id for stage in plan.stages if stage.name == "both")
    sent: list[str] = []
    progress.link.send = lambda peer, kind, *_: sent.append(peer) if kind == Kind.VIEW else None  # type: ignore[method-assign, assignment]
    progress.link.connected = lambda peer: True  # type: ignore[method-assign]
    progress.late[f"v{both}.0", both] = b"from before"
    new = restart(progress, "both", 2)
    progress.show(f"v{both}.0", both, b"")
    progress.show_late()
    assert sent == []
    living = [f"v{stage.id}.0" for stage in plan.stages if f"v{stage.id}.0" not in new]
    progress.turn([*(frame(Kind.REWOUND, name, 1) for name in living), *(frame(Kind.READY, name, 2) for name in new)])
    assert f"v{both}.0" in sent
