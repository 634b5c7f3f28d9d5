"""The status as a table, as HTML and as a drawing; whole lines."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import rayad as rd
from rayad.actors.driver.top import follow, shown
from rayad.actors.job import JobState, JobStatus
from rayad.actors.status.job_status import ReplicaStatus, SnapshotStatus, VertexStatus
from rayad.actors.status.silent import Silent
from rayad.actors.status.snapshots_late import SnapshotsLate
from rayad.actors.status.table import as_html, as_lines
from rayad.progress import Timestamp

COUNTS = VertexStatus(
    "<c>",
    replicas=(
        ReplicaStatus(0, "h1", 41, 900, 12_000.0, 12.0, 0.75, 0.25, 0.0, 3, 4096, state_bytes=2_000_000),
        ReplicaStatus(1, "h2", 42, 100, 4_000.0, 4.0, 0.25, 0.5, 0.25, answers=False),
    ),
    frontier=(Timestamp(7),),
    lag_epochs=2,
    lag_s=1.25,
)
LINES = VertexStatus("lines", is_start=True, replicas=(ReplicaStatus(0),))
STATUS = JobStatus(
    "words",
    JobState.RUNNING,
    window_s=2.0,
    vertices=(LINES, COUNTS),
    active=4,
    failures=1,
    snapshot=SnapshotStatus(5, "snapshot", 3.0, 0.25, 2_000_000, 1000),
    snapshot_interval_s=10.0,
    silent=(Silent("'<c>'[1]", "h2", 3.0),),
)


def test_plain_lines_of_vertices_and_replicas() -> None:
    assert as_lines(STATUS, with_replicas=True).splitlines() == [
        "job 'words': running, 1 failures survived, 4 pointstamps active, means over 2.0 s",
        "snapshot 5 (snapshot), 3.0 s ago: 2.00MB in 0.25 s; one every 10 s",
        "'<c>'[1] on node h2 has not answered for 3.0 s: its process is stopped, or its node is gone",
        "vertex           replicas   in/s  out/s  busy  idle  back-pressured     backlog   state  frontier  lag (epochs)  lag (s)  skew",
        "lines                   1      -      -     -     -               -           -       -         -             -        -     -",
        "  [0]                          -      -     -     -               -           -       -",
        "<c>          2 (1 silent)  16.0k     16   50%   38%             12%  3 (4.10kB)  2.00MB       (7)             2      1.2  1.50",
        "  [0] h1:41                12.0k     12   75%   25%              0%  3 (4.10kB)  2.00MB",
        "  [1] h2:42        silent  4.00k      4   25%   50%             25%           -       -",
    ]


def test_snapshots_that_fail_are_told_behind_the_newest_one() -> None:
    late = SnapshotsLate(2, 1_790_000_000.0, "the disk is <full>", newest=5, age_s=3.0)
    fails = "snapshots fail since 2026-09-21 14:13:20 UTC: 2 in a row, the last because the disk is <full>"
    told = f"{fails}; the newest snapshot, 5, is 3.0 s old"
    assert as_lines(replace(STATUS, snapshots_late=late)).splitlines()[2] == told
    assert "the disk is &lt;full&gt;" in as_html(replace(STATUS, snapshots_late=late))
    assert replace(STATUS, snapshots_late=late).as_json()["snapshots_late"]["why"] == "the disk is <full>"


def test_the_html_is_whole_and_needs_nothing_from_outside() -> None:
    html = as_html(STATUS)
    tree = ElementTree.fromstring(html.replace("<br>", "<br/>"))
    assert [cell.text for cell in tree.findall(".//tbody/tr/td")][13:15] == ["<c>", "2 (1 silent)"]
    assert not re.search(r"https?:|<script|src=|href=", html)


def test_a_job_is_followed_until_it_ends_and_no_further(capsys: pytest.CaptureFixture[str]) -> None:
    told = iter([JobStatus("words", JobState.RUNNING), JobStatus("words", JobState.COMPLETE), JobStatus("words", JobState.FAILED)])
    with shown() as show:
        assert follow(lambda: next(told), show, interval_s=0.0).state is JobState.COMPLETE
    assert capsys.readouterr().out.count("job 'words': ") == 2
    assert follow(lambda: JobStatus("words", JobState.RUNNING), lambda status: None, 60.0, timeout_s=0.0).state is JobState.RUNNING


def test_a_program_and_its_job_draw_themselves_with_loops_as_loops() -> None:
    flow = rd.Dataflow("halves")
    flow.from_items([8, 4, 2]).iterate(lambda n: (n.filter(lambda v: v > 1).map(lambda v: v // 2), n)).collect("out")
    job = flow.submit(runtime="local")
    for html, nodes in ((flow._repr_html_(), len(flow.graph.nodes)), (job._repr_html_(), len(job.plan.stages))):
        assert not re.search(r"<script|src=|href=|https?:(?!//www.w3.org/2000/svg)", html)
        svg = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])
        name = "{http://www.w3.org/2000/svg}"
        assert len(svg.findall(f"{name}rect")) == nodes
        back = [path for path in svg.findall(f"{name}path") if path.get("stroke-dasharray")]
        assert len(back) == 1
