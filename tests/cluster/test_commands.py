"""The command line on a cluster with token authentication: a job that ``ray job submit`` starts with nothing but the package, and every
command on it. Some are processes of their own; the others are called in one that has joined the cluster (``command_shell.py``)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayad.commands.on_cluster import Exit
from tests.cluster.command_shell import CommandShell, Ended, command_shell
from tests.cluster.job_server import JobServer, ask, job_server
from tests.cluster.until import until
from tests.examples.running import environment
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster]
__all__ = ["job_server"]
RAYAD = str(Path(sys.executable).with_name("rayad"))
PROGRAM = """
import time
import helping
import rayad as rd

class Ticks(rd.Source):
    def list_parts(self):
        return [0]

    def build_part(self, part, resume):
        return Part(resume or 0)

class Part(rd.SourcePart):
    def __init__(self, at):
        self.at = at

    def next_batch(self):
        time.sleep(0.01)
        self.at += 1
        return rd.SourceBatch(self.at - 1, [self.at])

    def offset(self):
        return self.at

def say(tick):
    if tick == 3:
        print("the third tick", flush=True)

flow = rd.Dataflow("ticks")
flow.source(Ticks(), name="ticks").inspect(say).key_by(helping.rest).count(name="counts").collect("counts")

def finite():
    short = rd.Dataflow("finite")
    short.from_items(["to", "be", "or"]).key_by(helping.same).count().collect("counts")
    return short

"""
HELPING = """
def rest(n):
    return n % 4

def same(word):
    return word
"""


@pytest.fixture(scope="module")
def shell(job_server: JobServer) -> Iterator[CommandShell]:
    """A process that runs commands on the cluster."""
    with command_shell({**job_server.env, "RAY_ADDRESS": job_server.address}) as one:
        yield one


def rayad(shell: CommandShell, *words: str | Path, code: int = Exit.DONE) -> str:
    """What a command prints in the shell; fails unless it ends with this code, and when it says anything more on stderr than an error of
    one line."""
    return _printed(shell.run([str(word) for word in words]), words, code)


def rayad_alone(server: JobServer, *words: str | Path, code: int = Exit.DONE, cwd: Path | None = None) -> str:
    """The command as a process of its own."""
    env = {**server.env, "RAY_ADDRESS": server.address}
    command = [RAYAD, *map(str, words)]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return _printed(Ended(done.returncode, done.stdout, done.stderr), words, code)


def _printed(done: Ended, words: tuple[str | Path, ...], code: int) -> str:
    told = f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    assert done.returncode == code, told
    noise = [line for line in done.stderr.splitlines() if not re.match(r"Error: | +\d+ s: |(\x1b\[\d+m)?\(pid=gcs_server\)", line)]
    assert noise == [], told
    return done.stdout if code == Exit.DONE else done.stderr


def followed_until(server: JobServer, line: str, *words: str) -> tuple[int, str]:
    """Run a command that goes on until it has printed such a line, and end it with SIGTERM: how it ended, and its stderr."""
    env = {**server.env, "RAY_ADDRESS": server.address}
    with subprocess.Popen([RAYAD, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        found = any(line in printed for printed in running.stdout)
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=PATIENCE_S)
    assert found, err
    return running.returncode, err


def written(folder: Path) -> Path:
    """The program, in a folder of its own."""
    program = folder / "program"
    program.mkdir()
    (program / "app.py").write_text(PROGRAM)
    (program / "helping.py").write_text(HELPING)
    return program


def test_every_command_on_a_job_that_ray_job_submit_started(job_server: JobServer, shell: CommandShell, tmp_path: Path) -> None:
    program = written(tmp_path)
    storage = tmp_path / "jobs"
    assert rayad_alone(job_server, "jobs") == "no job runs on this cluster\n"
    entry = [RAYAD, "run", "app.py:flow", "--storage", storage, "--max-failures", "2", "-p", "counts=2"]
    ask(job_server, "submit", "--no-wait", "--submission-id", "ticks", "--working-dir", program, "--", *entry)
    until(lambda: "running" in rayad(shell, "jobs"), "the job runs")

    (listed,) = json.loads(rayad(shell, "jobs", "--json"))
    assert listed == {"name": "ticks", "state": "running"}
    until(lambda: _records(rayad(shell, "status", "ticks", "--json")) > 0, "records have come")
    shown = rayad(shell, "status", "ticks")
    assert shown.startswith("job 'ticks': running, 0 failures survived; ")
    assert re.search(r"│ counts +│ +2 │ \(\d+\)", shown), shown
    assert rayad(shell, "explain", "ticks").strip()
    top = json.loads(rayad(shell, "top", "ticks", "--once", "--json"))
    assert [vertex["name"] for vertex in top["vertices"]] == ["ticks", "counts"]
    assert rayad(shell, "top", "ticks", "--once", "--replicas").count(f":{top['vertices'][0]['replicas'][0]['pid']} ") == 1
    assert "no job named 'tick' runs on this cluster" in rayad_alone(job_server, "status", "tick", code=Exit.NO_JOB)

    examined = {one["what"]: one for one in json.loads(rayad(shell, "doctor", "--address", "auto", "--storage", storage, "--json"))}
    for what in ("cluster", "versions", "clocks", "ports", "shared storage", "token"):
        assert examined[what]["level"] == "ok", examined[what]
    path = rayad(shell, "savepoint", "ticks").strip()
    assert Path(path).is_relative_to(storage)
    report = json.loads(rayad(shell, "rescale", "ticks", "counts=3", "--json"))
    assert (report["before"]["counts"], report["after"]["counts"]) == (2, 3)
    assert "there is no stage of that name" in rayad(shell, "rescale", "ticks", "county=3", code=Exit.FAILED)
    assert "the third tick" in rayad(shell, "logs", "ticks")
    assert followed_until(job_server, "the third tick", "logs", "ticks", "--follow") == (Exit.TERMINATED, "")
    replicas = rayad(shell, "logs", "ticks", "--vertex", "counts")
    assert all(line.startswith("(counts[") for line in replicas.splitlines())

    ended = rayad(shell, "stop", "ticks")
    assert ended.startswith("job 'ticks' is complete\ncounts: "), ended
    printed = ask(job_server, "logs", "ticks", "--follow")  # until it has ended
    assert "succeeded" in ask(job_server, "status", "ticks").lower()
    assert "job 'ticks' is complete" in printed
    assert not re.search(r"(?i)warning|token|GcsClient|log level", printed), printed

    told = rayad_alone(job_server, "resume", "app.py:flow", "--from", path, "--storage", storage, "--detached", cwd=program)
    assert "job 'ticks' runs" in told
    assert rayad(shell, "cancel", "ticks") == "job 'ticks' is cancelled\n"


def test_ctrl_c_finishes_what_is_under_way_and_a_detached_job_is_stopped_by_its_name(
    job_server: JobServer, shell: CommandShell, tmp_path: Path
) -> None:
    program = written(tmp_path)
    with subprocess.Popen(
        [RAYAD, "run", "app.py:flow"],
        env={**job_server.env, "RAY_ADDRESS": job_server.address},
        cwd=program,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            until(lambda: running.poll() is not None or "running" in rayad(shell, "jobs"), "the job runs")
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()  # else the block waits for it
    assert running.returncode == Exit.DONE, err
    assert "the input ends here, and what is under way is finished; Ctrl-C again cancels the job" in err
    assert "job 'ticks' is complete" in out
    assert "job 'finite' runs; rayad status finite" in rayad_alone(job_server, "run", "app.py:finite", "--detached", cwd=program)
    assert rayad(shell, "stop", "finite").startswith("job 'finite' is complete\ncounts: ")  # of what it had read by then


@pytest.mark.soak
def test_the_demo_on_ray_kills_a_process_and_is_right(tmp_path: Path) -> None:
    done = subprocess.run([RAYAD, "demo", "--ray"], env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert re.search(r"process \d+, a replica of 'hours', is killed after [\d,]+ records", done.stdout)
    assert "the job survived 1 failure" in done.stdout
    assert "are as plain Python has them, after a failure" in done.stdout


def _records(told: str) -> int:
    return sum(stage["records_in"] for stage in json.loads(told)["stages"])


def test_without_a_cluster_a_command_says_so(tmp_path: Path) -> None:
    env = {**os.environ, "RAY_ADDRESS": "127.0.0.1:1"}
    done = subprocess.run([RAYAD, "jobs"], env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == Exit.NO_CLUSTER
    assert done.stderr.startswith("Error: no Ray cluster could be joined at '127.0.0.1:1'"), done.stderr
    assert "Traceback" not in done.stderr
