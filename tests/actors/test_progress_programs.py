"""Programs of the local runtime on a terminal and in a pipe: the line that they show, and how Ctrl-C ends them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.running import environment
from tests.patience import PATIENCE_S
from tests.terminal import CTRL_C, Terminal

PROGRAM = """
import sys, threading, time
import rayad as rd

release = threading.Event()

def slow(number):
    time.sleep(0.01)
    if number == 50:
        print("the program says: half way", flush=True)
    return number

def source(path):
    flow = rd.Dataflow("numbers")
    flow.read_text(path, batch_rows=5).map(int).map(slow).key_by(lambda n: n % 3).count(name="count").collect("counts")
    return flow

options = {"run": rd.RunConfig(storage_path=sys.argv[2])} if len(sys.argv) > 2 else {}
result = source(sys.argv[1]).run(runtime="local", **options)
print(sorted(count for _, (_, count) in result["counts"])[-1])
"""


def program(folder: Path, numbers: int) -> list[str]:
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    (folder / "numbers.txt").write_text("".join(f"{n}\n" for n in range(numbers)), encoding="utf-8")
    return [sys.executable, str(folder / "program.py"), str(folder / "numbers.txt")]


def test_a_terminal_shows_one_line_that_grows_and_goes_away(tmp_path: Path) -> None:
    with Terminal(program(tmp_path, 300), env=environment(), cwd=str(tmp_path)) as terminal:
        assert terminal.end() == ["the program says: half way", "100"]
        assert terminal.status == 0
    lines = [line for screen in terminal.seen for line in screen if line.startswith("rayad: 'numbers'")]
    assert max(sum(line.startswith("rayad") for line in screen) for screen in terminal.seen) == 1
    shares = [int(line.split("%")[0].split()[-1]) for line in lines if "%" in line]
    assert shares == sorted(shares)
    assert len(set(shares)) >= 3
    assert any("records/s" in line for line in lines)
    said = "the program says: half way"
    assert any(screen[:1] == [said] and screen[-1].startswith("rayad: 'numbers'") for screen in terminal.seen)


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    with Terminal(program(tmp_path, 150), env=environment(RAYAD_PROGRESS="0"), cwd=str(tmp_path)) as terminal:
        terminal.end()
    assert not [line for screen in terminal.seen for line in screen if "rayad" in line]


def test_a_pipe_gets_nothing_of_a_short_job(tmp_path: Path) -> None:
    done = subprocess.run(
        program(tmp_path, 60), env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=True, cwd=tmp_path
    )
    assert done.stdout == "the program says: half way\n20\n"
    assert done.stderr == "" or done.stderr.startswith("rayad: job 'numbers': "), "only a machine that needs 10 s for it may tell"


def test_a_pipe_gets_lines_of_a_long_job(tmp_path: Path) -> None:
    done = subprocess.run(
        program(tmp_path, 1_150), env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=True, cwd=tmp_path
    )
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("rayad: job 'numbers': ")
    assert "records/s" in first
    assert last.startswith("rayad: job 'numbers' is complete after ")
    assert "1,150 records read" in last


@pytest.mark.parametrize("saves", [False, True])
def test_ctrl_c_ends_a_program_with_one_line_and_status_130(saves: bool, tmp_path: Path) -> None:
    store = tmp_path / "store"
    command = program(tmp_path, 5_000) + ([str(store)] if saves else [])
    with Terminal(command, env=environment(), cwd=str(tmp_path), columns=300) as terminal:
        terminal.until(lambda screen: bool(screen) and "records/s" in screen[-1])
        terminal.press(CTRL_C)
        *_, last = terminal.end()
    assert terminal.status == 130
    assert not [line for line in terminal.screen if "Traceback" in line or "File " in line]
    assert last.startswith("rayad: interrupted: job 'numbers' cancelled after ")
    if saves:
        assert last.endswith(f"; resume it with resume='latest', name='numbers' and storage_path={str(store)!r}")
    else:
        assert last.endswith("; it kept no snapshots to resume from (RunConfig(storage_path=...))")


CAUGHT = """
import os, signal, sys, threading
import rayad as rd

def slow(number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGINT)
    return number

flow = rd.Dataflow("numbers")
flow.from_items(range(10), batch_rows=1).map(slow).collect("out")
try:
    flow.run(runtime="local")
except KeyboardInterrupt as error:
    print(f"caught: {error}")
    print(sys.excepthook.__module__)
raise ValueError("of the program itself")
"""


def test_a_program_can_catch_it_and_its_other_errors_are_shown_as_ever(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CAUGHT], env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path
    )
    assert done.stdout.startswith("caught: interrupted: job 'numbers' cancelled after ")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert done.stderr.splitlines()[-1] == "ValueError: of the program itself"


def test_a_process_that_gets_the_signal_ends_as_one_that_is_typed_at(tmp_path: Path) -> None:
    command = program(tmp_path, 5_000)
    running = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "the program says: half way\n"
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
    assert running.returncode == 130
    assert [line.split(" after ")[0] for line in errors.splitlines()] == ["rayad: interrupted: job 'numbers' cancelled"]
