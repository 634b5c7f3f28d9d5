"""The frames of a job's page: when one is due, and what a browser that was away gets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rayad.actors.job import JobState, JobStatus
from rayad.actors.status.frames import POINTS_MOST, STILL_S, Story, Wanted
from rayad.actors.status.job_status import EdgeStatus, ReplicaStatus, SnapshotStatus, VertexStatus
from rayad.actors.status.journal import JobEvent
from rayad.actors.status.snapshots_late import SnapshotsLate
from rayad.actors.status.table import HEADER, vertex_cells
from rayad.progress import Timestamp

COUNTS = VertexStatus("<counts>", "app.py:7", replicas=(ReplicaStatus(0, rate_in=10.0, busy_share=0.2, backpressured_share=0.6),))
STATUS = JobStatus(
    "words",
    JobState.RUNNING,
    at_s=100.0,
    window_s=1.0,
    vertices=(VertexStatus("lines", is_start=True, replicas=(ReplicaStatus(0),), frontier=(Timestamp(4),)), COUNTS),
    edges=(EdgeStatus("lines", "<counts>"), EdgeStatus("<counts>", "<counts>", is_feedback=True)),
    snapshot=SnapshotStatus(5, "snapshot", 3.0, 0.25, 2_000, 1_000),
    events=1,
)
RUNNING = JobEvent(99.0, "running", "4 actors run", {"actors": 4})
FAILURE = JobEvent(103.0, "failure", "'<counts>'[0]: ValueError: <script>alert(1)</script> (app.py:7)", {"number": 1})


def at(now_s: float, epoch: int = 3, **changed: Any) -> JobStatus:
    """The status at a moment, the frontier of the counts in an epoch; as `StatusTaker` gives it: clocks have moved on."""
    counts = replace(COUNTS, frontier=(Timestamp(epoch),), lag_epochs=4 - epoch, lag_s=now_s - 99.0)
    assert STATUS.snapshot is not None
    aged = replace(STATUS.snapshot, age_s=now_s - 97.0)
    return replace(STATUS, at_s=now_s, vertices=(STATUS.vertices[0], counts), snapshot=aged, **changed)


def told(story: Story, status: JobStatus, events: tuple[JobEvent, ...] = (RUNNING,), why: str = "") -> bool:
    """One look, as the actor does it."""
    wanted = story.wants(status)
    return story.tell(status, events if wanted.journal else None, why if wanted.why else None)


def test_a_frame_is_due_when_a_frontier_has_passed_or_something_changed_and_not_because_clocks_go() -> None:
    story = Story("words")
    assert told(story, at(100.0))
    assert not told(story, at(101.0)), "only the age of the snapshot and the lag by the clock differ"
    assert told(story, at(102.0, epoch=4)), "the frontier has passed"
    assert told(story, at(103.0, epoch=4, events=2), (RUNNING, FAILURE)), "the journal has grown"
    assert told(story, at(104.0, epoch=4, events=2, failures=1)), "a figure differs"
    assert not told(story, at(105.0, epoch=4, events=2, failures=1))
    assert told(story, JobStatus("words", JobState.FAILED, 106.0), (RUNNING, FAILURE)), "the job is in another state"
    assert (story.number, story.is_over) == (5, True)
    assert [vertex["name"] for vertex in story.frame(0)["vertices"]] == ["lines", "<counts>"], "as it was last seen"


def test_snapshots_that_fail_are_shown_and_their_clocks_make_no_frame_due() -> None:
    story, late = Story("words"), SnapshotsLate(2, 90.0, "the disk is full", newest=5, age_s=3.0)
    told(story, at(100.0))
    assert told(story, at(101.0, snapshots_late=late))
    assert story.frame(0)["lines"][0] == "snapshots fail since 1970-01-01 00:01:30 UTC: 2 in a row, the last because the disk is full"
    assert not told(story, at(102.0, snapshots_late=replace(late, age_s=4.0)))
    assert told(story, at(103.0, snapshots_late=replace(late, given_up=3)))
    starts_again = replace(JobStatus("words", JobState.STARTING, 104.0), snapshots_late=replace(late, doing="beginning", doing_s=11.0))
    assert told(story, starts_again)
    assert story.frame(0)["lines"][0].endswith("; beginning takes long")


def test_the_journal_is_asked_for_when_it_has_grown_and_the_reason_when_no_frontier_moves() -> None:
    story = Story("words")
    assert story.wants(at(100.0)) == Wanted(journal=True, why=False)
    story.tell(at(100.0), (RUNNING,))
    assert story.wants(at(101.0)) == Wanted(journal=False, why=False)
    story.tell(at(101.0))
    still = at(100.0 + STILL_S)
    assert story.wants(still) == Wanted(journal=False, why=True)
    assert story.tell(still, why="'<counts>'[0] is busy"), "the reason is new"
    assert story.frame(0)["why"] == "'<counts>'[0] is busy"
    assert story.frame(0)["still_s"] == STILL_S
    assert story.wants(at(100.5 + STILL_S)) == Wanted(journal=False, why=False), "asked a moment ago"
    assert story.wants(at(100.0 + 2 * STILL_S)) == Wanted(journal=False, why=True)
    assert told(story, at(107.0, epoch=4))
    assert (story.frame(0)["why"], story.frame(0)["still_s"]) == ("", None), "it moves again"
    assert story.wants(JobStatus("words", JobState.COMPLETE, 200.0)) == Wanted(journal=True, why=False)


def test_a_frame_shows_what_the_table_shows_as_text_and_numbers() -> None:
    story = Story("words")
    told(story, at(100.0, events=2), (RUNNING, FAILURE))
    frame = story.frame(0)
    assert frame["header"] == HEADER
    assert [vertex["cells"] for vertex in frame["vertices"]] == [vertex_cells(vertex) for vertex in at(100.0).vertices]
    assert frame["edges"] == [("lines", "<counts>", False), ("<counts>", "<counts>", True)]
    assert [vertex["level"] for vertex in frame["vertices"]] == [0, 3], "three quarters of its time at most"
    assert frame["events"]["failure"] == FAILURE.what, "the browser puts text in as text"
    assert json.loads(json.dumps(frame))["name"] == "words"


def test_a_failure_stands_at_the_head_until_the_job_runs_again() -> None:
    story = Story("words")
    told(story, at(100.0, events=2), (RUNNING, FAILURE))
    assert story.frame(0)["events"]["failure"] == FAILURE.what
    told(story, at(101.0, events=3), (RUNNING, FAILURE, JobEvent(104.0, "recovery", "4 actors run again after 1.00 s", {})))
    assert story.frame(0)["events"]["failure"] == ""
    ends = (
        JobEvent(105.0, "end", "cancelled", {"state": "cancelled"}),
        JobEvent(105.0, "end", "failed: it is too late", {"state": "failed"}),
    )
    for end, shown in zip(ends, ("", "failed: it is too late"), strict=True):
        story = Story("words")
        told(story, at(106.0, events=2), (RUNNING, end))
        assert story.frame(0)["events"]["failure"] == shown


def test_points_are_bounded_and_reach_back_to_the_first() -> None:
    story = Story("words")
    for n in range(5 * POINTS_MOST):
        told(story, at(100.0 + n, epoch=n))
    points = story.frame(0)["points"]
    assert POINTS_MOST // 2 <= len(points) <= POINTS_MOST
    assert points[0][0] == 100.0
    assert [point[1]["<counts>"][1] for point in points] == [point[0] - 100.0 for point in points]


LOOKS = st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=20)


@given(LOOKS)
def test_a_browser_that_reads_some_frames_has_in_the_end_what_one_that_read_all_has(looks: list[tuple[int, bool, bool]]) -> None:
    """``looks``: how many epochs the frontier moves, whether something is written into the journal, whether the slow browser reads."""
    story, epoch, events = Story("words"), 0, (RUNNING,)
    has: dict[str, tuple[int, list[Any], Any]] = {"fast": (0, [], None), "slow": (0, [], None)}

    def read(who: str) -> None:
        number, points, history = has[who]
        if story.number > number:
            frame = story.frame(number)
            assert frame["is_whole"] == (number == 0)
            has[who] = frame["number"], [*points, *frame["points"]], frame["events"] or history

    for n, (steps, is_noted, is_read) in enumerate(looks):
        epoch += steps
        events = (*events, replace(RUNNING, at_s=100.0 + n)) if is_noted else events
        before = story.number
        assert told(story, at(100.0 + n, epoch, events=len(events)), events) == (story.number == before + 1)
        read("fast")
        if is_read:
            read("slow")
    read("slow")
    assert has["slow"] == has["fast"]
