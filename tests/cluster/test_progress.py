"""On real Ray: the line of progress on a terminal and in a notebook, and Ctrl-C while Ray starts and while a job runs. Nothing stays."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

from tests.cluster.recovering import address, until
from tests.examples.running import environment
from tests.terminal import CTRL_C, Terminal

pytestmark = pytest.mark.cluster
PROGRAM = """
import time
import rayad as rd

def slow(number):
    time.sleep(0.01)
    return number

flow = rd.Dataflow("numbers")
flow.from_items(range({numbers}), batch_rows=10).map(slow).key_by(lambda n: n % 3).count(name="count").collect("counts")
{run}
"""
RAYAD = str(Path(sys.executable).parent / "rayad")


OF_ITS_OWN = {"RAY_ADDRESS": "local"}
"""A Ray of its own, though a test beside this one has one on this machine that was begun by ``ray start``, which would be joined."""


def on_terminal(folder: Path, *command: str, numbers: int, run: str = "", **env: str) -> Terminal:
    (folder / "program.py").write_text(PROGRAM.format(numbers=numbers, run=run), encoding="utf-8")
    return Terminal(command, env=environment(**env), cwd=str(folder), columns=250, rows=60)


def ends_with_all_its_processes(terminal: Terminal) -> list[str]:
    """The last screen; what the program has started ends with it."""
    started = psutil.Process(terminal.pid).children(recursive=True)
    assert started
    screen = terminal.end()
    until(lambda: not [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE], "all processes have ended")
    return screen


def test_ctrl_c_while_a_job_runs(tmp_path: Path) -> None:
    with on_terminal(tmp_path, sys.executable, "program.py", numbers=20_000, run="flow.run()", **OF_ITS_OWN) as terminal:
        terminal.until(lambda screen: any("rayad: 'numbers' " in line and "records/s" in line for line in screen))
        terminal.press(CTRL_C)
        *_, last = ends_with_all_its_processes(terminal)
    assert terminal.status == 130
    assert last.startswith("rayad: interrupted: job 'numbers' cancelled after ")
    assert last.endswith("; it kept no snapshots to resume from (RunConfig(storage_path=...))")
    assert not [line for line in terminal.screen if "Traceback" in line]
    lines = [line for screen in terminal.seen for line in screen if line.startswith("rayad: 'numbers'")]
    assert any("starting" in line for line in lines)
    assert any("%" in line for line in lines)


@pytest.mark.parametrize("command", ["run()", "rayad run"])
def test_ctrl_c_while_ray_starts(command: str, tmp_path: Path) -> None:
    words = [sys.executable, "program.py"] if command == "run()" else [RAYAD, "run", "program.py:flow"]
    run = "flow.run()" if command == "run()" else ""
    with on_terminal(tmp_path, *words, numbers=20_000, run=run, **OF_ITS_OWN) as terminal:
        until(lambda: not terminal.look() or "gcs_server" in started_by(terminal), "Ray is being started")
        terminal.press(CTRL_C)
        *_, last = ends_with_all_its_processes(terminal)
    assert terminal.status == 130
    assert not [line for line in terminal.screen if "Traceback" in line]
    assert "interrupted" in last
    assert "job 'numbers' had not begun" in last


def started_by(terminal: Terminal) -> set[str]:
    return {Path(process.name()).name for process in psutil.Process(terminal.pid).children(recursive=True)}


def test_rayad_run_shows_the_line_and_leaves_the_results(ray_cluster: None, tmp_path: Path) -> None:
    with on_terminal(tmp_path, RAYAD, "run", "program.py:flow", numbers=600, RAY_ADDRESS=address()) as terminal:
        screen = terminal.end()
    assert terminal.status == 0
    assert any("rayad: 'numbers' " in line and "%" in line for seen in terminal.seen for line in seen)
    assert not [line for line in screen if line.startswith("rayad: 'numbers'")]
    assert any("job 'numbers' is complete" in line for line in screen)


INTERRUPT = """
import os, signal, threading
threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT)).start()
"""


def test_a_notebook_has_one_output_and_a_short_interrupt(ray_cluster: None, tmp_path: Path) -> None:
    local = 'flow.run(runtime="local")'
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(PROGRAM.format(numbers=200, run=f"result = {local}")),
            nbformat.v4.new_code_cell(PROGRAM.format(numbers=200, run="result = flow.run()\nimport ray")),
            nbformat.v4.new_code_cell(PROGRAM.format(numbers=20_000, run=f"{INTERRUPT}{local}")),
            nbformat.v4.new_code_cell("ray.shutdown()"),
        ]
    )
    client = NotebookClient(notebook, timeout=240, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=environment(RAY_ADDRESS=address()), cleanup_kc=True)
    on_local, on_ray, interrupted, _ = notebook.cells
    for cell in (on_local, on_ray):
        shown = [output for output in cell.outputs if output.output_type == "display_data"]
        assert len(shown) == 1, cell.outputs
        assert shown[0].data["text/html"].startswith("<div>job &#x27;numbers&#x27; is complete after ")
        assert "200 records read" in shown[0].data["text/html"]
    (error,) = (output for output in interrupted.outputs if output.output_type == "error")
    assert error.ename == "Interrupted"
    (line,) = error.traceback
    assert line.startswith("KeyboardInterrupt: interrupted: job 'numbers' cancelled after ")
    shutil.rmtree(tmp_path)
