"""Why a job does not move: each of the thirteen situations planted as facts, with the whole sentence; and what comes before what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rayad.actors.lead.diagnosis import Cause, Facts, Finding, Missing, Stamp, diagnose, sentences
from rayad.actors.process.activity import Activity
from rayad.actors.replica.report import ReplicaReport, Waits
from rayad.progress import Timestamp
from rayad.snapshots.attempts import ReplicaName

NODE = "10.0.0.2"
OPEN = Waits(input_epoch=4, input_idle_s=9.0)


def facts(*reports: ReplicaReport, stamps: tuple[Stamp, ...] = (), **others: object) -> Facts:
    """Of a job with an input that is open and idle, as that of every job that waits to be fed is."""
    all_of_them = (ReplicaReport("in", 0, node=NODE, waits=OPEN), *reports)
    named = {(report.name, report.replica): report for report in all_of_them}
    return Facts(named, (Stamp("in", Timestamp(4)), *stamps), **others)  # type: ignore[arg-type]


def at(
    name: str, replica: int = 0, *, node: str = NODE, activity: Activity | None = None, records: int = 0, **waits: object
) -> ReplicaReport:
    return ReplicaReport(name, replica, node=node, activity=activity, records_in=records, waits=Waits(**waits))  # type: ignore[arg-type]


def skewed() -> Facts:
    hot = at("counts", 1, records=960, queued=8)
    return facts(at("counts", 0, records=20), hot, at("counts", 2, records=20), at("in2", no_credit=((("counts", 1), 5),)))


ON = Activity("on_recv", Timestamp(3), 12.0, "predict (model.py:80)")
LATE = Stamp("body", Timestamp(3, (48213,)))
WAITS_FOR_CREDIT = at("maps", no_credit=((("out", 0), 6),))
SITUATIONS: dict[str, tuple[Facts, Cause, ReplicaName | None, str]] = {
    "idle input": (
        facts(at("counts", notifications=(Timestamp(4),)), stamps=(Stamp("counts", Timestamp(4)),)),
        Cause.IDLE_INPUT,
        ("in", 0),
        f"waits for input 'in'[0] on node {NODE}, which is open in epoch 4 and has got nothing for 9.0 s: send, advance or close it.",
    ),
    "slow sink": (
        facts(replace(at("out", queued=7), sinks=("table",)), WAITS_FOR_CREDIT),
        Cause.SINK,
        ("out", 0),
        f"waits for 'out'[0] on node {NODE}, which writes to sink 'table' more slowly than records come: 7 batches queued there, "
        "6 more waiting for its credit.",
    ),
    "endless loop": (
        facts(at("body", looped=1), stamps=(LATE,)),
        Cause.LOOP,
        ("body", 0),
        f"waits for 'body'[0] on node {NODE}: epoch 3 is in round 48213, and 1 batch came round the loop again.",
    ),
    "lost connection": (
        facts(at("counts", lost=(("'maps'[1]", 2.5),))),
        Cause.CONNECTION,
        ("counts", 0),
        f"waits for a connection of 'counts'[0] on node {NODE} with 'maps'[1], which was lost 2.5 s ago: both ends live, and try again.",
    ),
    "aligning snapshot": (
        facts(at("join", aligning=7, aligning_s=3.0, missing=(("maps", 1),)), at("maps", 1)),
        Cause.ALIGNING,
        ("join", 0),
        f"waits for snapshot 7 at 'join'[0] on node {NODE}: the barrier of 'maps'[1] has not come for 3.0 s.",
    ),
    "dead node": (
        facts(stamps=(Stamp("counts", Timestamp(4)),), missing=(Missing("'counts'[1]", ("counts", 1), "10.0.0.3", 6.0, peers=3),)),
        Cause.NODE_GONE,
        ("counts", 1),
        "waits for 'counts'[1] on node 10.0.0.3, at (4), which has not answered for 6.0 s: nobody of the job answers on that node, 4 "
        "actors: it is gone, or cut off.",
    ),
    "blocked user function": (
        facts(at("predict", activity=ON)),
        Cause.BLOCKED,
        ("predict", 0),
        f"waits for 'predict'[0] on node {NODE}, which is in on_recv at (3) for 12.0 s, in predict (model.py:80).",
    ),
    "full spill disk": (
        facts(at("body", spilled_bytes=3 << 20, spill_free_bytes=1 << 20, spill_directory="/spill", looped=90), stamps=(LATE,)),
        Cause.SPILL_FULL,
        ("body", 0),
        f"waits for 'body'[0] on node {NODE}, whose spill disk (/spill) is full: 3.0 MiB of its batches are there, 1.0 MiB are free.",
    ),
    "skewed key": (
        skewed(),
        Cause.SKEW,
        ("counts", 1),
        f"waits for 'counts'[1] on node {NODE}, which got 96% of the records of 3 replicas (a skewed key?): 8 batches queued there, "
        "5 more waiting for its credit.",
    ),
    "successor of a coordinator": (
        Facts(taking_over="its restart in 3.0 s, after failures in a row"),
        Cause.TAKING_OVER,
        None,
        "waits for its coordinator, which takes the place of another one, and waits for its restart in 3.0 s, after failures in a row.",
    ),
    "waiting placement": (
        Facts(starting="1 of 2 actors have started, after 4.0 s; waiting for 'gpu'[0]; free now: 0 CPU"),
        Cause.PLACEMENT,
        None,
        "waits for placement: 1 of 2 actors have started, after 4.0 s; waiting for 'gpu'[0]; free now: 0 CPU.",
    ),
    "store away": (
        facts(snapshots_given_up=3, why_given_up="'counts'[0] could not write its part: Connection refused"),
        Cause.STORE_AWAY,
        None,
        "waits for its store: 3 snapshots in a row failed, the last because 'counts'[0] could not write its part: Connection refused.",
    ),
    "store hangs": (
        facts(snapshots_wait="publishing snapshot 8 has taken 45.0 s so far"),
        Cause.STORE_AWAY,
        None,
        "waits for its store: publishing snapshot 8 has taken 45.0 s so far.",
    ),
    "stopped replica": (
        facts(at("counts", 1), missing=(Missing("'counts'[1]", ("counts", 1), NODE, 2.0, peers=2, alive=2),)),
        Cause.STOPPED,
        ("counts", 1),
        f"waits for 'counts'[1] on node {NODE}, which has not answered for 2.0 s: its process is stopped: 2 other actors of the job on "
        "that node answer.",
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_situation_is_the_first_finding(situation: str) -> None:
    known, cause, where, sentence = SITUATIONS[situation]
    first = diagnose(known)[0]
    assert (first.cause, first.sentence) == (cause, sentence)
    assert (first.vertex, first.replica) == (where or ("", None))


def test_time_and_round_are_those_of_the_earliest_pointstamp() -> None:
    first = diagnose(SITUATIONS["endless loop"][0])[0]
    assert (first.time, first.round, first.node) == (Timestamp(3, (48213,)), (48213,), NODE)
    assert diagnose(SITUATIONS["blocked user function"][0])[0].time == Timestamp(3)
    assert diagnose(SITUATIONS["idle input"][0])[0].since_s == 9.0


def test_who_waits_for_credit_is_followed_to_who_does_not_grant_it() -> None:
    """A chain: 'in2' waits for 'maps', 'maps' for 'out', whose function does not return."""
    first, *rest = diagnose(facts(at("in2", no_credit=((("maps", 0), 9),)), WAITS_FOR_CREDIT, at("out", activity=ON)))
    assert (first.vertex, first.cause) == ("out", Cause.BLOCKED)
    assert {one.vertex for one in rest} == {"in"}


def test_a_barrier_that_waits_for_another_one_is_not_named() -> None:
    behind = at("last", aligning=7, aligning_s=3.0, missing=(("join", 0),))
    found = diagnose(facts(behind, at("join", aligning=7, aligning_s=3.0, missing=(("maps", 0),))))
    assert [one.vertex for one in found if one.cause is Cause.ALIGNING] == ["join"]


def test_of_two_functions_that_do_not_return_the_one_at_the_earlier_time_is_first() -> None:
    """The other one has been in its function for longer, but the frontier has not reached it."""
    early, late = Stamp("early", Timestamp(3)), Stamp("late", Timestamp(9))
    longer = replace(ON, for_s=99.0, time=Timestamp(9))
    found = diagnose(facts(at("late", activity=longer), at("early", activity=ON), stamps=(early, late)))
    assert [one.vertex for one in found] == ["early", "late", "in"]


def test_of_a_silent_replica_what_it_told_last_is_not_said_to_be_so_now() -> None:
    silent = Missing("'slow'[0]", ("slow", 0), NODE, 2.0)
    assert [one.cause for one in diagnose(facts(at("slow", activity=ON), missing=(silent,)))] == [Cause.STOPPED, Cause.IDLE_INPUT]


def test_a_writer_that_does_not_return_is_a_slow_sink() -> None:
    first = diagnose(facts(at("out", activity=replace(ON, in_sink=True))))[0]
    assert (first.cause, first.sentence) == (
        Cause.SINK,
        f"waits for 'out'[0] on node {NODE}, which is in a sink's on_recv at (3) for 12.0 s, in predict (model.py:80).",
    )


def test_a_snapshot_that_aligns_and_a_commit_that_hangs_are_told_once() -> None:
    wait = {"snapshots_wait": "snapshot 8, which lacks the parts of 'join'[0], has taken 45.0 s so far"}
    aligning = facts(at("join", aligning=7, aligning_s=3.0, missing=(("maps", 1),)), **wait)
    assert [one.cause for one in diagnose(aligning)] == [Cause.ALIGNING, Cause.IDLE_INPUT]
    assert [one.cause for one in diagnose(facts(coordinator=ON, **wait))] == [Cause.SINK, Cause.IDLE_INPUT]
    assert [one.cause for one in diagnose(facts(at("join", activity=ON), **wait))] == [Cause.BLOCKED, Cause.IDLE_INPUT]
    hangs = {"snapshots_wait": "publishing snapshot 8 has taken 45.0 s so far"}
    assert Cause.STORE_AWAY in [one.cause for one in diagnose(facts(at("join", activity=ON), **hangs))], "a busy replica hides no store"


def test_evenly_spread_work_is_no_skew() -> None:
    known = facts(at("counts", 0, records=50, queued=3), at("counts", 1, records=50, queued=3))
    assert [one.cause for one in diagnose(known)] == [Cause.SLOW, Cause.SLOW, Cause.IDLE_INPUT]


def test_one_sentence_comes_first() -> None:
    two = (Finding(Cause.SLOW, "waits for a."), Finding(Cause.LOOP, "waits for b."))
    assert sentences(two, "runs") == "The job waits for a.\nalso: it waits for b."
    assert sentences((), "is not known to wait for anything") == "The job is not known to wait for anything."
    assert diagnose(Facts()) == ()
