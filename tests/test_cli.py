"""The command line. `plan`, on a file with a stand-in for a dataflow: what is found and printed; `interval`: figures, errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.cli import main
from rayad.commands import terminal_plot
from rayad.snapshots.interval import daly_interval_s, optimal_interval_s, utilization

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
def test_plan_refuses_objects_that_are_not_dataflows_and_says_why(program: str, target: str, message: str | None) -> None:
    result = CliRunner().invoke(main, ["plan", target.format(program=program)])
    assert result.exit_code == 2
    assert message is None or f"Error: {message.format(program=program)}\n" in result.output


TABLE_1 = ["interval", "--cost", "1.6s", "--failures", "0.05/min", "--restart", "23.1s", "--depth", "5", "--hop-delay", "27.35ms"]


def test_interval_prints_the_best_one_its_utilization_and_those_of_others() -> None:
    """The first row of table 1 of seed 004: T* = 1.0418 min, U(30 min) = 0.4222."""
    result = CliRunner().invoke(main, [*TABLE_1, "--at", "2h"], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "A snapshot every 1.042 min leaves 93.11% of the time for useful work."
    assert lines[1] == "A snapshot costs 1.6 s, a failure comes every 20 min, a restart takes 23.1 s;"
    assert lines[2] == "depth 5, hop delay 27.35 ms."
    table = {tuple(line.split()[:2]): line.split() for line in lines[4:17]}
    assert table["30", "min"][2:5] == ["usual", "42.22%", "45.35%"]
    assert table["30", "s"][3] == "91.70%"
    assert table["1.042", "min"][2:6] == ["T*,", "the", "best", "93.11%"]
    assert table["1.043", "min"][2] == "Daly"
    assert table["2", "h"][2:4] == ["asked", "for"]
    assert max(map(len, lines)) <= 80
    assert lines[-1].split() == ["30", "s", "1.042", "min", "30", "min", "2", "h"]
    assert any("\u2801" <= character <= "\u28ff" for line in lines for character in line)


def test_interval_says_which_are_too_short_for_a_snapshot() -> None:
    result = CliRunner().invoke(main, ["interval", "--cost", "40", "--mtbf", "2h"], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    row = next(line for line in result.output.splitlines() if "30 s" in line)
    assert row.split() == ["30", "s", "too", "short", "0.00%"]


def test_interval_gives_json_in_seconds() -> None:
    result = CliRunner().invoke(main, [*TABLE_1, "--json"])
    found = json.loads(result.stdout)
    assert found["interval_s"] == optimal_interval_s(1.6, 0.05 / 60)
    assert found["utilization"] == pytest.approx(utilization(found["interval_s"], 1.6, 0.05 / 60, 23.1, 5, 0.02735))
    assert found["daly_interval_s"] == daly_interval_s(1.6, 0.05 / 60, 23.1)
    assert (found["cost_s"], found["restart_s"], found["depth"], found["hop_delay_s"]) == (1.6, 23.1, 5, pytest.approx(0.02735))
    by_interval = {row["interval_s"]: row for row in found["table"]}
    assert list(by_interval) == sorted(by_interval)
    assert by_interval[1800.0]["utilization"] == pytest.approx(0.4222, abs=5e-5)
    for row in found["table"]:
        factors = row["left_by_snapshots"] * row["left_by_repeated_work"] * row["left_by_restarts"]
        assert row["utilization"] == pytest.approx(factors)
        assert row["utilization"] <= found["utilization"]


def test_the_same_rate_can_be_given_either_way() -> None:
    one, other = (
        CliRunner().invoke(main, ["interval", "--cost", "50ms", *rate, "--json"]) for rate in (["--mtbf", "0.5 d"], ["--failures", "2/d"])
    )
    assert json.loads(one.output)["interval_s"] == pytest.approx(json.loads(other.output)["interval_s"])


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_interval_draws_a_picture(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"curve{suffix}"
    result = CliRunner().invoke(main, [*TABLE_1, "--plot", str(path)])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == f"{path} written"
    assert path.read_bytes().startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--cost 5 --mtbf 5parsec", "Invalid value for '--mtbf': '5parsec' is not a time: write a number and one of us, ms, s, min, h, d,"),
        ("--cost -5s --mtbf 1h", "Invalid value for '--cost': '-5s' is not a time"),
        ("--cost nan --mtbf 1h", "Invalid value for '--cost': 'nan' is not a time"),
        ("--cost 1e999s --mtbf 1h", "'1e999s' is more than a number can hold: write a smaller one"),
        (
            "--cost 5 --failures 3",
            "Invalid value for '--failures': '3' is not a rate: write a number, / and one of us, ms, s, min, h, d, such",
        ),
        ("--cost 5", "neither of --mtbf and --failures given: give one, such as --mtbf 12h or --failures 2/d"),
        ("--cost 5 --mtbf 1h --failures 1/h", "both of --mtbf and --failures given: give one"),
        ("--cost 5 --mtbf 0", "--mtbf is 0: no work is ever done then; give a time above 0, such as 12h"),
        ("--cost 5 --failures 0/d", "--failures is 0: without failures no snapshot is needed, the best interval has no end"),
        ("--cost 0 --mtbf 1h", "--cost is 0: a snapshot that costs nothing is best taken all the time; give a time above 0, such as 50ms"),
        ("--cost 5 --mtbf 1h --at 0s", "--at is 0: an interval must be above 0; give a time such as 30s"),
        ("--cost 5 --mtbf 1h --depth 0", "Invalid value for '--depth': 0 is not in the range x>=1."),
        ("--cost 5 --mtbf 1h --plot curve.txt", "--plot curve.txt: the name must end in one of .png, .svg, .pdf"),
        ("--cost 5 --mtbf 1h --plot nowhere/a.svg", "--plot nowhere/a.svg: No such file or directory; name a file in a folder that exists"),
        ("--mtbf 1h", "Missing option '--cost'."),
    ],
)
def test_interval_refuses_what_makes_no_sense_and_says_what_to_do(arguments: str, message: str) -> None:
    result = CliRunner().invoke(main, ["interval", *arguments.split()])
    assert result.exit_code == 2
    assert f"Error: {message}" in result.output or message in result.output.splitlines()[-1]


def test_interval_without_matplotlib_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = CliRunner().invoke(main, [*TABLE_1, "--plot", "curve.svg"])
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == "Error: --plot needs matplotlib: pip install matplotlib, or leave --plot out"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=50), st.integers(24, 80), st.integers(2, 20))
def test_a_plot_has_its_size_and_reaches_its_top(ys: list[float], width: int, height: int) -> None:
    lines = terminal_plot.plot_lines(
        [1.5**i for i in range(len(ys))], ys, marks=[(1.0, "first"), (1.0, "covered")], width=width, height=height
    )
    assert len(lines) == height + 2
    assert {len(line) for line in lines[:-1]} == {width + 7}
    assert lines[-1].strip() == "first"
    columns = ["".join(cells) for cells in zip(*(line[7:] for line in lines[:height]), strict=True)]
    assert all(column.strip("\u2800") for column in columns)  # joined: no column without a dot


def test_snapshots_lists_and_verifies_a_store(tmp_path: Path) -> None:
    flow = rd.Dataflow("kept")
    flow.from_items(range(100)).key_by(lambda n: n % 3).count(name="counts").collect("counts")
    flow.run(rd.RunConfig(storage_path=str(tmp_path)), runtime="local")
    folder = tmp_path / "kept" / "snapshots"
    listed = CliRunner().invoke(main, ["snapshots", str(folder), "--verify", "--json"])
    assert listed.exit_code == 0, listed.output
    assert [entry["kind"] for entry in json.loads(listed.output)] == ["start", "final"]
    assert "final" in CliRunner().invoke(main, ["snapshots", str(folder)]).output
    part = next(folder.glob("*/*.part"))
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    damaged = CliRunner().invoke(main, ["snapshots", str(folder), "--verify"])
    assert damaged.exit_code == 1
    assert part.name in damaged.output
    nothing = CliRunner().invoke(main, ["snapshots", str(tmp_path / "nowhere")])
    assert nothing.exit_code == 1
    assert "there is no snapshot in" in nothing.output
