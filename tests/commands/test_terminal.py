"""What goes to a terminal: control characters in names, records and errors of users are shown, and not obeyed."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.job import JobState
from rayad.actors.process.unwaited import Unwaited
from rayad.actors.status import terminal
from rayad.cli import main
from rayad.commands.results import show_results
from rayad.progress import DataflowError, visible

TITLE, CLEARED, BACK, REVERSED = "\x1b]0;owned\x07", "\x1b[2J", "good\rbad", "\u202egpj.exe"
EVIL = f"{TITLE}{CLEARED}{BACK}{REVERSED}\x9b1m\x7f"
SHOWN = r"\x1b]0;owned\x07\x1b[2Jgood\rbad\u202egpj.exe\x9b1m\x7f"
PROGRAM = f"""
import rayad as rd

def fails(word):
    raise ValueError({EVIL!r})

flow = rd.Dataflow("words")
flow.from_items(["a"]).map(fails).collect("out")
broken = lambda: fails("at once")
"""


@pytest.fixture
def program(tmp_path: Path, locally: None) -> str:
    (tmp_path / "program.py").write_text(PROGRAM)
    return str(tmp_path / "program.py")


def obeyed(text: str) -> set[str]:
    """The characters in a text that a terminal obeys."""
    return {one for one in text if one != "\n" and visible(one) != one}


@given(st.text())
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    shown = visible(text)
    assert not any(ord(one) < 32 and one not in "\n\t" for one in shown)
    assert visible(shown) == shown


def test_newlines_tabs_and_other_scripts_stay() -> None:
    text = "a\tb\n\u05ea\u05d5\u05d3\u05d4 ありがとう é\u0301 👩\u200d🚀"
    assert visible(text) == text


def test_a_users_exception_is_shown_by_rayad_run(program: str) -> None:
    result = CliRunner().invoke(main, ["run", f"{program}:flow"])
    assert result.exit_code == 1
    assert SHOWN in result.output
    assert not obeyed(result.output)


def test_an_exception_of_the_users_file_is_shown_by_the_hook_of_the_process(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = CliRunner().invoke(main, ["plan", f"{program}:broken"])
    assert isinstance(result.exception, ValueError)
    assert sys.excepthook is terminal.show_exception
    assert result.exc_info is not None
    sys.excepthook(*result.exc_info)
    told = capsys.readouterr().err
    assert SHOWN in told
    assert "Traceback (most recent call last)" in told
    assert not obeyed(told)


def test_a_rayad_error_in_a_program_of_ones_own_has_no_control_characters() -> None:
    flow = rd.Dataflow("words")

    def fails(word: str) -> str:
        raise ValueError(EVIL)

    flow.from_items(["a"]).map(fails).collect("out")
    with pytest.raises(DataflowError) as raised:
        flow.run(runtime="local")
    assert SHOWN in str(raised.value)


def test_results_show_records_and_names(capsys: pytest.CaptureFixture[str]) -> None:
    flow = rd.Dataflow("words")
    flow.from_items([{"name": EVIL}, {EVIL: 1}]).collect("rows")
    flow.from_arrow(pa.table({EVIL: [EVIL]})).collect("table", columnar=True)
    result = flow.run(runtime="local")
    result.show()
    show_results("words", JobState.COMPLETE, dict(result), as_json=False)
    told = capsys.readouterr().out
    assert r"\x1b[2J" in told
    assert not obeyed(told)


def test_tables_lines_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    from rayad.commands import on_cluster

    on_cluster.print_table(("vertex", EVIL), [(EVIL, 3)])
    terminal.console(width=300).print(f"plain {EVIL}", markup=False)
    terminal.echo(f"line {EVIL}")
    terminal.echo(f"line {EVIL}", err=True)
    on_cluster.print_json({"name": EVIL})

    class Forgotten:
        name, is_watched = "shop", False

        def unwaited(self) -> str:
            return f"is lost: {EVIL}"

    jobs = Unwaited()
    job = Forgotten()
    jobs.watch(job)
    jobs.tell(job)
    told = capsys.readouterr()
    assert not obeyed(told.out) | obeyed(told.err)
    assert told.err.count(SHOWN) == 2
    assert f"line {SHOWN}" in told.out
    assert r"\u001b[2J" in told.out


def test_errors_of_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    result = CliRunner().invoke(main, ["interval", "--cost", "1s", "--mtbf", "1h", "--plot", EVIL])
    assert result.exit_code == 2
    assert not obeyed(result.output)
