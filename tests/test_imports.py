"""Nothing is imported that is not used: what a fresh process has loaded after ``import rayad``, after jobs, and in the actors of one.

Each names what must be absent; how long imports take is measured by ``python -m benchmarks imports``, not here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

OTHERS = {"aiohttp", "click", "cryptography", "obstore", "pandas", "polars", "pyspark", "raydp", "rich"}
"""Dependencies that neither a program of rows nor its replicas need."""
SERVERS = {"asyncio", "concurrent.futures", "email", "http", "multiprocessing", "ssl", "urllib.request", "xml"}
"""Parts of Python's library that other libraries bring along."""
PARTS_OF_ARROW = {f"pyarrow.{name}" for name in ("acero", "csv", "dataset", "feather", "flight", "json", "orc", "parquet", "substrait")}
PARTS_OF_NUMPY = {f"numpy.{name}" for name in ("fft", "ma", "polynomial", "random", "testing")}
WORD_COUNT = """
import rayad as rd
flow = rd.Dataflow("wordcount")
flow.from_items(["to be", "or not to be"]).flat_map(str.split).key_by(str).count().collect("counts")
"""
RUN_LOCALLY = f"{WORD_COUNT}\nassert len(flow.run(runtime='local')['counts']) == 4"
NEEDED_LATER = ("actors", "autoscale", "commands", "graphs", "incremental", "integrations", "snapshots", "sql")


def loaded_after(program: str) -> set[str]:
    """The modules of a fresh interpreter that has run this program."""
    told = f"{program}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    environment = {**os.environ, "RAYAD_PROGRESS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=10 * PATIENCE_S, env=environment
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def among(loaded: set[str], unwanted: set[str]) -> list[str]:
    """Which of these modules, or of those inside them, are loaded."""
    return sorted(name for name in loaded if any(name == each or name.startswith(f"{each}.") for each in unwanted))


def test_import_rayad_loads_no_other_library_and_no_runtime() -> None:
    loaded = loaded_after("import rayad")
    assert among(loaded, OTHERS | SERVERS | {"cloudpickle", "numpy", "packaging", "pyarrow", "ray", "xxhash"}) == []
    assert among(loaded, {"logging", "socket", "subprocess", "tempfile", "threading"}) == []
    assert among(loaded, {f"rayad.{name}" for name in NEEDED_LATER}) == []
    assert among(loaded, {"rayad.dataflow.compiling", "rayad.dataflow.operators", "rayad.dataflow.streams"}) == []


def test_a_program_that_is_written_and_not_run_loads_no_runtime() -> None:
    loaded = loaded_after(WORD_COUNT)
    operators = ("joins.asof", "joins.broadcast", "joins.intervals", "joins.join", "process")
    assert among(loaded, {f"rayad.dataflow.operators.{name}" for name in operators}) == []
    assert among(loaded, OTHERS | SERVERS | PARTS_OF_ARROW | PARTS_OF_NUMPY | {"pyarrow.fs", "ray"}) == []
    assert among(loaded, {f"rayad.{name}" for name in NEEDED_LATER}) == []


def test_a_local_word_count_loads_neither_ray_nor_what_it_does_not_use() -> None:
    loaded = loaded_after(RUN_LOCALLY)
    assert among(loaded, OTHERS | SERVERS - {"ssl"} | PARTS_OF_ARROW | PARTS_OF_NUMPY | {"ray"}) == []  # pyarrow.fs brings ssl
    unused = {f"rayad.actors.{name}" for name in ("cluster", "host", "page", "saved_state", "scaling", "store.keeper_files")}
    unused |= {f"rayad.actors.coordinator.{name}" for name in ("control", "coordinated_job", "on_ray", "starting")}
    unused |= {f"rayad.autoscale.{name}" for name in ("autoscaler", "decisions", "ds2", "journal", "limits", "mpr", "policies", "rates")}
    assert among(loaded, unused | {"rayad.commands", "rayad.graphs", "rayad.integrations"}) == []


NUMBERS = """
import pyarrow as pa
import rayad as rd
flow = rd.Dataflow("numbers")
flow.from_arrow(pa.table({"n": [1, 2]})).collect("numbers")
"""


@pytest.mark.parametrize(("program", "loads"), [(WORD_COUNT, False), (NUMBERS, True)])
def test_a_process_of_replicas_looks_for_pandas_before_its_first_batch_where_there_are_columns(
    program: str, loads: bool, tmp_path: Path
) -> None:
    """Arrow imports it at the first array that it makes."""
    plan = tmp_path / "plan"
    write = f"pathlib.Path({str(plan)!r}).write_bytes(cloudpickle.dumps(flow.plan(1)))"
    loaded_after(f"{program}\nimport cloudpickle, pathlib\n{write}\nassert flow.plan(1).has_columns is {loads}")
    taken = f"""
import pathlib
import rayad as rd
from rayad.actors import vertex_actor
from rayad.actors.replica.places import Places
vertex_actor.show_in_logs = lambda *_: None
actor = object.__new__(vertex_actor.VertexActor)
parcel = [pathlib.Path({str(plan)!r}).read_bytes()]
actor.take(parcel, "v0.0", Places(), rd.RunConfig(), "job", b"", {loads})
assert actor._refusal is None, actor._refusal
"""
    assert ("pandas" in loaded_after(taken)) is loads


RUNS = {"vertex": "host.replica_process", "progress": "host.progress_process", "coordinator": "coordinator.coordinated_job"}
"""What an actor loads besides its class."""


@pytest.mark.parametrize("actor", RUNS)
def test_an_actor_loads_what_it_runs(actor: str) -> None:
    """Ray itself has loaded much of Python's library before, and is not asked about."""
    loaded = loaded_after(f"import rayad.actors.{actor}_actor, rayad.actors.{RUNS[actor]}")
    assert among(loaded, OTHERS | PARTS_OF_ARROW | PARTS_OF_NUMPY) == []
    unused = {"autoscaler_actor", "driver", "local", "page", "saved_state", "scaling"}
    if actor != "coordinator":
        unused |= {"coordinator", "job", "lead.change_leader", "lead.job_leader", "store"}
    if actor == "progress":
        unused |= {"replica.core", "vertex_actor"}
    assert among(loaded, {f"rayad.actors.{name}" for name in unused}) == []
    others = ("autoscale.decisions", "commands", "dataflow.streams", "graphs", "integrations")
    assert among(loaded, {f"rayad.{name}" for name in others}) == []


def test_a_coordinator_starts_processes_before_it_loads_what_it_runs() -> None:
    loaded = loaded_after("import rayad.actors.coordinator_actor, rayad.actors.coordinator.starting")
    assert among(loaded, {"numpy", "pyarrow", "rayad.dataflow.plan", *(f"rayad.actors.{name}" for name in RUNS.values())}) == []


def test_the_side_of_the_user_loads_no_autoscaler_nor_keeper_before_a_job_has_one() -> None:
    loaded = loaded_after(f"{WORD_COUNT}\nimport rayad.actors.driver.submitting")
    unused = {"actors.autoscaler_actor", "actors.driver.attached_job", "actors.driver.keeper", "actors.page", "actors.saved_state"}
    unused |= {"actors.local", "actors.scaling", "autoscale.decisions", "commands", "graphs", "integrations"}
    assert among(loaded, {f"rayad.{name}" for name in unused}) == []
    assert among(loaded, OTHERS | PARTS_OF_ARROW | PARTS_OF_NUMPY) == []
