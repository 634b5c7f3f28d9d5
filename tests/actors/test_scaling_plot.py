"""The picture of a scaled job: what it shows, and that it is a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import rayad as rd
from rayad.actors.scaling.files import JournalFile, read_lines
from rayad.autoscale import DS2, MprThresholds
from rayad.cli import main
from rayad.scaling_plot import pictures_of, plot_journal
from tests.actors.simulated_job import SimulatedJob, loop_of

PNG = b"\x89PNG\r\n\x1a\n"


def journal(tmp_path: Path, policy: object = None, rounds: int = 12) -> Path:
    path = tmp_path / "scaling.jsonl"
    job = SimulatedJob(rate=400.0)
    loop = loop_of(job, policy or DS2(utilization=0.8), JournalFile(path, "words"))  # type: ignore[arg-type]
    job.rounds(loop, rounds)
    loop.finish()
    return path


def test_throughput_goal_and_replicas_over_time(tmp_path: Path) -> None:
    (picture,) = pictures_of(read_lines(journal(tmp_path, MprThresholds("count", 400.0))))
    assert picture.vertex == "count", "the one that was scaled"
    assert picture.since_s[0] == 0.0
    assert picture.until_s == pytest.approx([2.0 * (i + 1) for i in range(11)], abs=0.5)
    assert picture.replicas[0] == 1
    assert set(picture.goal[1:]) == {400.0}
    assert picture.throughput[0] == pytest.approx(100.0, rel=0.05)
    assert picture.throughput[-1] == pytest.approx(400.0, rel=0.3)
    assert len(picture.trend()) == 11
    assert picture.trend()[-1] == pytest.approx(picture.throughput[-1], rel=0.5)


def test_the_command_writes_a_png_and_says_what_it_shows(tmp_path: Path) -> None:
    out = tmp_path / "pictures" / "scaling.png"
    path = journal(tmp_path)
    done = CliRunner().invoke(main, ["plot", str(path), "-o", str(out), "--vertex", "count", "--goal", "count=400"])
    assert done.exit_code == 0, done.output
    assert out.read_bytes().startswith(PNG)
    assert done.output.startswith("count: ")
    assert "replicas 1 5" in done.output
    assert [p.goal[0] for p in plot_journal(path, out, goals={"count": 123.0})] == [123.0]


def test_journals_that_cannot_be_drawn_are_refused(tmp_path: Path) -> None:
    path = journal(tmp_path)
    with pytest.raises(rd.ConfigError, match=r"the journal has no vertex 'counts': its vertices are \['count', 'lines'\]"):
        pictures_of(read_lines(path), ["counts"])
    with pytest.raises(rd.ConfigError, match="the journal has no measurements"):
        pictures_of(read_lines(journal(tmp_path, rounds=1)))
    done = CliRunner().invoke(main, ["plot", str(path), "-o", str(tmp_path / "a.png"), "--goal", "400"])
    assert done.exit_code == 2
    assert "--goal is '400': write VERTEX=RATE" in done.output
