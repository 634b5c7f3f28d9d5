"""Seeded runs with faults in every phase: readers' views and results are those of the model, and every fault did happen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from tests.checkout import ROOT
from tests.simulation.__main__ import run_until_all_struck
from tests.simulation.faults import CELLS, MATRIX, PHASES, Fault, faults_of
from tests.simulation.harness import FAULTS, run
from tests.simulation.topologies import TOPOLOGIES
from tests.thorough import amount, by_turns

SEEDS = (
    1, 4, 14, 21, 22, 23, 25, 26, 28, 30, 32, 35, 37, 39, 40, 41, 45, 47, 50, 55, 56, 59, 65, 82, 87, 88, 96, 98, 100, 109,
)  # fmt: skip
"""Cheap ones that have every fault between them, while what is drawn stays as it is: the others come after them where it does not."""
SEEDS_MAX = 120
SEEDS_AGAIN = amount(each_run=4, soak=10)


def test_simulated_runs_give_what_the_model_says_and_every_fault_strikes() -> None:
    tally = run_until_all_struck([*amount(SEEDS, ()), *range(SEEDS_MAX)], CELLS)
    assert not tally.violations, f"{tally.violations[0].again}: {tally.violations[0].violation}"
    assert not tally.wrong(CELLS)
    assert sum(tally.cells.values()) > 0.9 * FAULTS * tally.runs


@by_turns(2)
@pytest.mark.parametrize("program", TOPOLOGIES, ids=lambda program: program.name)
def test_every_topology_without_and_with_many_faults(program: rd.Dataflow) -> None:
    for seed, count in ((1, 0), (2, 12)):
        outcome = run(seed, program=program, count=count)  # type: ignore[arg-type]
        assert not outcome.violation, outcome
        assert sum(outcome.cells.values()) >= 0.75 * count, outcome


def test_a_seed_gives_the_same_trace_in_every_process() -> None:
    """Although Python's hashes order sets differently."""
    script = f"from tests.simulation.harness import run\nfor seed in range(40, {40 + SEEDS_AGAIN}): print(run(seed).digest)"
    traces = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, cwd=ROOT, check=True)
        traces.append(done.stdout.split())
    assert traces[0] == traces[1]
    assert len(set(traces[0])) == SEEDS_AGAIN
    assert [run(seed).digest for seed in range(40, 40 + SEEDS_AGAIN)] == traces[0]


def test_the_matrix_is_gone_through() -> None:
    """Consecutive seeds have every cell, and faults at the end of a run come last."""
    seeds = range(-(-len(CELLS) // FAULTS))
    drawn = {(fault.kind, fault.phase) for seed in seeds for fault in faults_of(seed, FAULTS)}
    assert drawn == set(CELLS)
    assert {phase for phases in MATRIX.values() for phase in phases} == set(PHASES)
    phases = [fault.phase for fault in faults_of(0, 200)]
    assert "finishing" in phases
    assert "finishing" not in phases[: phases.index("finishing")]
    assert set(phases[phases.index("finishing") :]) == {"finishing"}


def test_many_attempts_given_up_in_a_row() -> None:
    faults = [Fault("given up", phase, 0) for phase in MATRIX["given up"] * 4]
    for seed in range(amount(each_run=5, soak=12)):
        outcome = run(seed, faults=faults)
        assert not outcome.violation, outcome


def test_failures_are_bounded(tmp_path: Path) -> None:
    """The failure that the job does not survive is raised, with the user's error as its cause."""

    def fails(n: int) -> int:
        raise ValueError("always")

    flow = rd.Dataflow("bounded")
    flow.from_items([1]).map(fails).collect("out")
    failures = rd.FailureConfig(max_failures=3, delay_s=0, same_error_max=None)
    job = flow.submit(rd.RunConfig(storage_path=str(tmp_path), failures=failures), runtime="local")
    assert isinstance(job, LocalJob)
    with pytest.raises(rd.DataflowError, match="always") as raised:
        job.wait()
    assert isinstance(raised.value.__cause__, ValueError)
    why = "failure 1 of 4 within 3600 s of running; FailureConfig.max_failures is 3; the last: DataflowError: "
    assert len(raised.value.__notes__) == 1
    assert raised.value.__notes__[0].startswith(f"job 'bounded': {why}")
    assert job.snapshots is not None
    assert job.runtime.job.failures == job.runtime.recoveries == 3


def test_the_command_runs_seeds_in_several_processes() -> None:
    """Regression: the function for the processes was in the module itself, where a spawned process does not find it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "18", "--processes", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert "18 runs, in 9 of which replicas come and go" in done.stdout, done.stderr
    assert "0 violations" in done.stdout
    assert done.returncode == 1, "so few runs do not have every fault in every phase, and it says so"
    assert "never struck" in done.stdout


def test_what_a_damaged_claim_has_passed_over_is_looked_at_again() -> None:
    """The record that snapshot 3 is void cannot be read; that one of its files is damaged at equal length, only reading it shows."""
    outcome = run(102_004)
    assert not outcome.violation, outcome
