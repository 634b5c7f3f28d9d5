"""The command line, on a file with a stand-in for a dataflow: what matters here is which object is found and what is printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rayad.cli import main

PROGRAM = """
import helper

class Flow:
    def explain(self): return "2 stages"
    def to_mermaid(self): return "flowchart LR"

flow = Flow()
other = 3
def build(): return Flow()
def wrong(): return 3

if __name__ == "__main__":
    raise SystemExit("must not run")
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "helper.py").write_text("")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_version_names_rayad_ray_and_python() -> None:
    result = CliRunner().invoke(main, ["version"])
    assert result.exit_code == 0
    assert result.output.startswith("rayad ")
    assert f"python {sys.version_info[0]}.{sys.version_info[1]}" in result.output


@pytest.mark.parametrize("name", ["flow", "build"])
def test_plan_prints_the_explanation_of_a_flow_or_of_what_a_function_returns(program: str, name: str) -> None:
    result = CliRunner().invoke(main, ["plan", f"{program}:{name}"])
    assert (result.exit_code, result.output) == (0, "2 stages\n")


def test_plan_prints_mermaid_on_request(program: str) -> None:
    result = CliRunner().invoke(main, ["plan", f"{program}:flow", "--mermaid"])
    assert (result.exit_code, result.output) == (0, "flowchart LR\n")


def test_plan_leaves_sys_path_as_it_was(program: str) -> None:
    before = list(sys.path)
    CliRunner().invoke(main, ["plan", f"{program}:flow"])
    assert sys.path == before


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{program}", "'{program}' names no dataflow; write FILE.py:FLOW, for example program.py:flow"),
        ("nowhere.py:flow", "there is no file 'nowhere.py' (asked for by 'nowhere.py:flow')"),
        ("{program}:missing", "'{program}' has no 'missing' at its top level; the dataflows there are: flow"),
        ("{program}:other", "'{program}:other' is a int, not a Dataflow or a function that returns one; the dataflows there are: flow"),
        ("{program}:wrong", "'{program}:wrong' is a int, not a Dataflow or a function that returns one; the dataflows there are: flow"),
        ("{program}:Flow", None),
    ],
)
def test_plan_refuses_what_is_no_dataflow_and_says_why(program: str, target: str, message: str | None) -> None:
    result = CliRunner().invoke(main, ["plan", target.format(program=program)])
    assert result.exit_code == 2
    assert message is None or f"Error: {message.format(program=program)}\n" in result.output
