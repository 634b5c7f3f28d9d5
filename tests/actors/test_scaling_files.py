"""The autoscaler's files: the journal that is read back and continued, MPR's folder with a controller in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rayad as rd
from rayad.actors.scaling.files import ControllerFolder, JournalFile, journal_of, read_lines
from rayad.autoscale import DS2, DecisionOutcome, Hold
from rayad.autoscale.mpr import throughput_since
from tests.actors.simulated_job import SimulatedJob, loop_of

CONTROLLER = Path(__file__).with_name("controller.py")


def test_a_journal_is_read_back_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "jobs" / "scaling.jsonl"
    job = SimulatedJob()
    loop = loop_of(job, DS2(), JournalFile(path, "words"))
    job.rounds(loop, 8)
    loop.finish()
    lines = read_lines(path)
    assert lines[0]["kind"] == "begin"
    assert lines[0]["job"] == "words"
    samples = [line for line in lines if line["kind"] == "sample"]
    assert len(samples) == 7
    assert samples[0]["vertices"]["count"]["parallelism"] == 1
    assert samples[-1]["vertices"]["count"]["observed_rate"] == pytest.approx(400.0, rel=0.2)
    journal = journal_of(lines)
    journal.check_invariants()
    assert loop.core is not None
    changed = [record for record in loop.core.journal.records if record.decision.changes]
    assert [record for record in journal.records if record.decision.changes] == changed
    assert changed[-1].outcome is DecisionOutcome.APPLIED
    assert changed[-1].got, "it was written once more when it was known"
    after = loop_of(job, DS2(), journal=journal)
    job.rounds(after, 3)
    assert after.core is not None
    assert after.core.journal.records[-1].number == journal.records[-1].number


def test_only_the_last_run_of_a_journal_counts_and_a_last_line_may_be_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "scaling.jsonl"
    for name in ("first", "second"):
        job = SimulatedJob()
        job.rounds(loop_of(job, DS2(), JournalFile(path, name)), 3)
    with path.open("a") as file:
        file.write('{"kind": "sam')
    lines = read_lines(path)
    assert [line["job"] for line in lines if line["kind"] == "begin"] == ["second"]
    path.write_text("hello\nyou\n")
    with pytest.raises(rd.ConfigError, match=r"line 1 of .* is 'hello': it is no journal of an autoscaler"):
        read_lines(path)
    with pytest.raises(rd.ConfigError, match=r"the journal .*none' cannot be read: No such file"):
        read_lines(tmp_path / "none")


def test_a_journal_that_grew_too_large_begins_another_file(tmp_path: Path) -> None:
    path = tmp_path / "scaling.jsonl"
    job = SimulatedJob()
    job.rounds(loop_of(job, DS2(), JournalFile(path, "words", bytes_max=4000)), 20)
    assert path.stat().st_size < 4000 + 2000
    assert path.with_name("scaling.jsonl.1").exists()
    assert read_lines(path)[0]["kind"] == "begin"


def test_the_folder_has_the_statistics_of_listing_5_11(tmp_path: Path) -> None:
    job = SimulatedJob(rate=50.0)
    folder = ControllerFolder(tmp_path, job.dataflow.layout)
    assert json.loads((tmp_path / "parameters.json").read_text()) == {"lines": 1, "count": 1}
    job.rounds(loop_of(job, folder, folder), 4)
    stage = json.loads((tmp_path / "stats_count.json").read_text())["count"]
    assert list(stage) == ["2000", "4000", "6000"], "milliseconds"
    assert set(stage["2000"]) == {"Compute0"}
    assert set(stage["2000"]["Compute0"]) == {"ItemsConsumed", "ItemsProduced", "averageItemsProduced"}
    rate, last = throughput_since(json.loads((tmp_path / "stats_lines.json").read_text())["lines"], "2000")
    assert last == "6000"
    assert rate == pytest.approx(50.0, rel=0.05)


def test_parameters_are_applied_once_and_invalid_ones_are_reported(tmp_path: Path) -> None:
    job = SimulatedJob(rate=50.0)
    folder = ControllerFolder(tmp_path, job.dataflow.layout)
    loop = loop_of(job, folder, folder)
    parameters = tmp_path / "parameters.json"
    job.rounds(loop, 2)
    assert job.asked == []
    parameters.write_text('{"lines": 1, "count": 3}')
    held = job.rounds(loop, 2)
    assert job.asked == [{"count": 3}]
    assert held[0] is not None
    assert held[0].reason == "parameters.json says {'lines': 1, 'count': 3}"
    job.rescale({"count": 2}, 1.0, job.layout())
    job.rounds(loop, 3)
    assert job.asked == [{"count": 3}, {"count": 2}], "a user's own change stays"
    reasons = []
    for text in ('{"count": 3', '{"count": "many"}', '{"words": 3}', '{"lines": 2}', "[1]", '{"count": 1000}'):
        parameters.write_text(text)
        reasons.append(job.rounds(loop, 1)[0])
    assert all(isinstance(held, Hold) for held in reasons)
    expected = [
        "cannot be read now",
        "asks for 'many' replicas of 'count': it must be an int",
        "names 'words': the vertices are ['count', 'lines']",
        "asks for 2 replicas of 'lines', which stays at 1: it is a source",
        "is [1]: it must be an object from vertex name to replicas",
        "asks for 1000 replicas of 'count': it can have 1 to 256",
    ]
    for held_for, words in zip(reasons, expected, strict=True):
        assert held_for is not None
        assert words in held_for.reason
    parameters.write_text('{"count": 4}')
    job.rounds(loop, 1)
    assert job.asked[-1] == {"count": 4}


def test_a_controller_in_another_process_scales_the_job(tmp_path: Path) -> None:
    """MPR's own algorithm (listings 7.1 and 7.2) in a plain script: from 1 replica, at 100 a second each, to a goal of 600."""
    job = SimulatedJob(rate=600.0)
    folder = ControllerFolder(tmp_path, job.dataflow.layout)
    loop = loop_of(job, folder, folder)
    words = [sys.executable, str(CONTROLLER), str(tmp_path), "count", "600", "8"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdin is not None
        assert controller.stdout is not None
        said = []
        for _ in range(8):
            job.rounds(loop, 2)
            controller.stdin.write("look\n")
            controller.stdin.flush()
            said.append(controller.stdout.readline().strip())
    assert controller.returncode == 0
    assert said[0] == "first look"
    assert job.dataflow.layout["count"] >= 5, said
