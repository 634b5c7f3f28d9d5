"""The commands on a job, with a fake job handle: what they print, which calls they make, and their exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import rayad as rd
from rayad.actors.cluster.joining import NoCluster
from rayad.actors.driver.attached_job import NoSuchJob
from rayad.actors.job import JobProgress, JobState
from rayad.actors.status.snapshots_late import SnapshotsLate
from rayad.cli import main
from rayad.commands import on_cluster
from rayad.commands.on_cluster import Exit
from rayad.commands.run import wait
from tests.commands.fake_handle import PROGRESS, Handle, attached


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Handle:
    made = Handle()
    attached(monkeypatch, made)
    return made


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), env={"COLUMNS": "110"})


def cells(output: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in output.splitlines() if line[:1] in "│┃"]


def test_status_shows_each_vertex_and_who_is_silent(handle: Handle) -> None:
    shown = call("status", "wordcount", "--address", "head:6379")
    assert shown.exit_code == Exit.DONE, shown.output
    assert handle.calls == [("attach", "wordcount", "head:6379"), ("progress",)]
    lines = shown.output.splitlines()
    assert lines[0] == "job 'wordcount': running, 1 failures survived; newest snapshot 4 (2.500 MB in 0.50 s), one every 10 s"
    assert cells(shown.output) == [
        ["vertex", "replicas", "frontier", "waits", "batches", "records"],
        ["words", "1", "(7)", "", "12", "1,200"],
        ["counts", "2", "(5, <0>), (5, <1>), (5, <2>) and 2 more", "(5)", "30", "1,200"],
    ]
    assert lines[-1] == "'counts'[1] on node 10.0.0.2 has not answered for 4.0 s: its process is stopped, or its node is gone"


def test_status_says_that_snapshots_fail(handle: Handle) -> None:
    late = SnapshotsLate(3, 1_790_000_000.0, "the disk is full", newest=4, age_s=95.2)
    handle.seen = replace(PROGRESS, snapshots_late=late)
    fails = "snapshots fail since 2026-09-21 14:13:20 UTC: 3 in a row, the last because the disk is full"
    told = f"{fails}; the newest snapshot, 4, is 95.2 s old"
    assert call("status", "wordcount").output.splitlines()[1] == told
    assert json.loads(call("status", "wordcount", "--json").output)["snapshots_late"]["given_up"] == 3


def test_status_of_a_job_that_starts_or_whose_coordinator_is_replaced_says_what_it_waits_for(
    handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "progress", lambda: JobProgress(JobState.STARTING, (), 0))
    shown = call("status", "wordcount").output.splitlines()
    assert (shown[0], shown[-1]) == ("job 'wordcount': starting, 0 failures survived; no snapshot in this run", "counts[1] is slow")


def test_status_in_json_has_all_of_it(handle: Handle) -> None:
    told = json.loads(call("status", "wordcount", "--json").output)
    assert (told["name"], told["state"], told["failures"]) == ("wordcount", "running", 1)
    assert told["stages"][0] == {
        "name": "words",
        "frontier": ["(7)"],
        "pending_notifications": [],
        "batches_in": 12,
        "records_in": 1200,
        "replicas": 1,
    }
    assert told["snapshot"]["total_bytes"] == 2_500_000


def test_jobs_lists_them_or_says_that_there_are_none(handle: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cells(call("jobs").output) == [["job", "state"], ["wordcount", "running"], ["silent", "does not answer"]]
    assert json.loads(call("jobs", "--json").output) == [{"name": "wordcount", "state": "running"}, {"name": "silent", "state": None}]
    monkeypatch.setattr(on_cluster, "states_of_jobs", lambda address: {})
    assert call("jobs").output == "no job runs on this cluster\n"
    assert json.loads(call("jobs", "--json").output) == []


def test_explain_and_savepoint_print_what_they_get_and_nothing_else(handle: Handle) -> None:
    assert call("explain", "wordcount").output == "counts[1] is slow\nand more\n"
    assert call("savepoint", "wordcount").output == "jobs/wordcount/snapshots/5\n"
    assert call("savepoint", "wordcount", "--timeout", "7").exit_code == Exit.DONE
    assert [one for one in handle.calls if one[0] == "savepoint"] == [("savepoint", None), ("savepoint", 7.0)]


def test_page_prints_its_address_and_then_how_the_job_ended(handle: Handle) -> None:
    assert call("page", "wordcount", "--port", "8080").output == "http://127.0.0.1:8080/\njob 'wordcount' is complete\n"
    assert handle.calls == [("attach", "wordcount", None), ("page", "127.0.0.1", 8080, False, False)]
    call("page", "wordcount", "--steps", "--state")
    assert handle.calls[-1] == ("page", "127.0.0.1", 0, True, True)


def test_rescale_takes_several_vertices(handle: Handle) -> None:
    shown = call("rescale", "wordcount", "counts=4", "a=b=2", "--timeout", "5")
    assert handle.calls[-1] == ("rescale", {"counts": 4, "a=b": 2}, 5.0)
    assert cells(shown.output)[1] == ["counts", "2", "4"]
    assert shown.output.splitlines()[-1] == "64 key-groups, 1.500 MB of state moved in 0.25 s; the longest pause of a replica: 4 ms"
    assert json.loads(call("rescale", "wordcount", "counts=4", "--json").output)["after"] == {"counts": 4}


@pytest.mark.parametrize("wanted", ["counts", "counts=", "=3", "counts=0", "counts=-1", "counts=x"])
def test_rescale_refuses_what_is_no_number_of_replicas(handle: Handle, wanted: str) -> None:
    shown = call("rescale", "wordcount", wanted)
    assert shown.exit_code == Exit.USAGE
    assert "is no number of replicas: write VERTEX=N with N of at least 1, such as counts=4" in " ".join(shown.output.split())
    assert handle.calls == []


def test_stop_drains_and_shows_the_results(handle: Handle) -> None:
    shown = call("stop", "wordcount", "--timeout", "7").output.splitlines()
    assert handle.calls[-1] == ("stop", True, 7.0)
    assert shown[:3] == ["job 'wordcount' is complete", "counts: 12 records", "  ('to', 2)"]
    assert shown[-2:] == ["  ... 2 more", "files: None"]
    assert call("stop", "wordcount", "--no-drain").output == "job 'wordcount' is cancelled\n"
    assert handle.calls[-1] == ("stop", False, None)
    assert json.loads(call("stop", "wordcount", "--json").output) == {
        "name": "wordcount",
        "state": "complete",
        "results": {"counts": 12, "files": None},
    }


def test_cancel_prints_the_outcome(handle: Handle) -> None:
    assert call("cancel", "wordcount").output == "job 'wordcount' is cancelled\n"
    assert handle.calls[-1] == ("cancel",)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoSuchJob("no job named 'wordcount' runs"), Exit.NO_JOB),
        (NoCluster("no Ray cluster could be joined"), Exit.NO_CLUSTER),
        (TimeoutError("job 'wordcount' is not complete; it goes on"), Exit.NOT_YET),
        (rd.SnapshotError("the savepoint was not taken"), Exit.FAILED),
    ],
)
def test_scripts_can_tell_errors_by_the_exit_code(monkeypatch: pytest.MonkeyPatch, error: BaseException, code: Exit) -> None:
    error.add_note("more of it")
    for words in (["status", "wordcount"], ["stop", "wordcount"], ["jobs"]):
        attached(monkeypatch, error)
        shown = call(*words)
        assert (shown.exit_code, shown.output) == (code, f"Error: {error}\nmore of it\n")


def test_ctrl_c_ends_a_command_and_not_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    attached(monkeypatch, Handle(stop=KeyboardInterrupt()))
    shown = call("stop", "wordcount")
    assert (shown.exit_code, shown.output) == (Exit.INTERRUPTED, "Error: interrupted; a job that runs goes on\n")


class Pressed(Handle):
    """Ctrl-C is pressed in each of these calls; the signal comes where nothing can be raised."""

    def __init__(self, *calls: str) -> None:
        super().__init__()
        self._pressed = calls

    def _note(self, call: str, *arguments: Any) -> None:
        super()._note(call, *arguments)
        if call in self._pressed:
            signal.raise_signal(signal.SIGINT)
            raise TimeoutError


def test_the_first_ctrl_c_of_run_drains_and_the_second_cancels() -> None:
    before = signal.getsignal(signal.SIGINT)
    drained = Pressed("wait")
    assert dict(wait(drained, None))["files"] is None
    assert drained.calls == [("wait",), ("stop", True, 1.0)]
    cancelled = Pressed("wait", "stop")
    with pytest.raises(on_cluster.Told, match=r"^job 'wordcount' was cancelled by Ctrl-C$") as told:
        wait(cancelled, None)
    assert told.value.exit_code == Exit.INTERRUPTED
    assert cancelled.calls == [("wait",), ("stop", True, 1.0), ("cancel",)]
    with pytest.raises(KeyboardInterrupt):
        wait(Pressed("wait", "stop", "cancel"), None)
    assert signal.getsignal(signal.SIGINT) is before


PROGRAM = """
import rayad as rd
flow = rd.Dataflow("fed")
flow.input("words").collect("words")
class Shown:
    def explain(self): return ""
    def to_mermaid(self): return ""
shown = Shown()
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}:flow"], "has live inputs ['words'], which nobody could feed: give --detached"),
        (["{}:shown"], "can be planned, but is no rd.Dataflow that could run"),
        (
            ["{}:flow", "--detached", "-p", "2", "-p", "words=3", "--address", "none:1"],
            "--parallelism is given for all vertices and once more",
        ),
        (["{}:flow", "-p", "0"], "'0' is no number of replicas: write VERTEX=N"),
        (["{}:flow", "--interval", "often"], "'often' is not a time"),
    ],
)
def test_run_refuses_before_it_starts_anything(tmp_path: Path, arguments: list[str], message: str) -> None:
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    shown = call("run", *(word.format(program) for word in arguments))
    assert shown.exit_code == Exit.USAGE, shown.output
    assert message in " ".join(shown.output.split())


def test_run_names_the_line_of_a_program_that_cannot_be_built(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text('import rayad as rd\nflow = rd.Dataflow("twice")\nflow.input("a").collect("out")\nflow.input("b").collect("out")\n')
    shown = call("run", f"{program}:flow")
    assert shown.exit_code == Exit.FAILED
    assert f'  {program}, line 4: flow.input("b").collect("out")' in shown.output
    assert "Traceback" not in shown.output


def test_the_command_line_starts_without_ray() -> None:
    """Ray takes seconds to import; ``rayad --help`` must not."""
    program = "import sys, rayad.cli; print([name for name in ('ray', 'pandas', 'matplotlib', 'pyspark') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
