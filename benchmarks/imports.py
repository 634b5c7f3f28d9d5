"""Processor time of imports, each in a fresh interpreter: Rayad, what it needs, a program that is only run, and the actors of a job.

Processor time, not seconds by the clock: an import waits for nothing, and other load does not lengthen it much. Python keeps the bytecode
of all modules, as ``pip install`` and ``make`` have it; with ``PYTHONDONTWRITEBYTECODE=1`` and a checkout, ours take about twice as long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass

from benchmarks.machine import python_path
from benchmarks.measurement import Measurement, Ratio, Series

TITLE = "Imports"
NEEDS_RAY = False
LIMIT_S = 120.0
"""How long one interpreter may take."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 15


FULL = Sizes()
QUICK = Sizes(repetitions=1)


@dataclass(frozen=True, slots=True)
class Import:
    """What is measured: ``program`` runs after ``before``, which is not measured."""

    name: str
    program: str
    before: str = ""


WRITTEN = """
import rayad as rd
flow = rd.Dataflow("wordcount")
flow.from_items(["to be", "or not to be"]).flat_map(str.split).key_by(str).count().collect("counts")
"""
NEEDED = "import pyarrow, pyarrow.compute, pyarrow.fs, cloudpickle, xxhash"
RAYAD, ARROW, RAY = "import rayad", "import pyarrow", "import ray"
NEEDS = "what a job needs: Arrow with compute and fs, xxhash, cloudpickle"
RUN, BESIDE_RAY = "write and run a word count locally", "what an actor needs, beside Ray: the same"
IMPORTS = (
    Import("import numpy", "import numpy"),
    Import(ARROW, "import pyarrow"),
    Import(RAY, "import ray"),
    Import(RAYAD, "import rayad"),
    Import(NEEDS, NEEDED),
    Import("write a word count", WRITTEN),
    Import(RUN, f"{WRITTEN}\nflow.run(runtime='local', progress=False)"),
    Import(BESIDE_RAY, NEEDED, before="import ray"),
    *(
        Import(f"{kind} actor, beside Ray", f"import rayad.actors.{kind}_actor", before="import ray")
        for kind in ("vertex", "progress", "coordinator")
    ),
)
MEASURE = """
import json, sys, time
exec(sys.argv[2])
began = time.process_time()
exec(sys.argv[1])
used = time.process_time() - began
print(json.dumps([used, sum(name.partition(".")[0] == "rayad" for name in sys.modules), "pyarrow" in sys.modules]))
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One interpreter: the processor time, how many of our modules it has loaded, and whether Arrow."""

    used_s: float
    ours: int
    has_arrow: bool


def once(what: Import) -> Measured:
    """In an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, what.program, what.before],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": python_path()},
    )
    return Measured(*json.loads(done.stdout.splitlines()[-1]))


def run(sizes: Sizes) -> Measurement:
    """All of them in turn, several times, after once for the bytecode and the disk."""
    out = Measurement("imports", TITLE, asdict(sizes))
    series: dict[str, Series] = {what.name: out.new_series(what.name, "ms CPU", str(os.nice(0))) for what in IMPORTS}
    first = {what.name: once(what) for what in IMPORTS}
    out.check("import rayad loads no Arrow", first[RAYAD].has_arrow, False)
    for _ in range(sizes.repetitions):
        for what in IMPORTS:
            series[what.name].add(1e3 * once(what).used_s)
    out.ratios = [
        Ratio(RAYAD, ARROW, "< 0.5"),
        Ratio(RAYAD, RAY, "< 0.2"),
        Ratio("write a word count", NEEDS, "< 2"),
        Ratio(RUN, NEEDS, "< 3"),
        *(Ratio(f"{kind} actor, beside Ray", BESIDE_RAY, "< 2") for kind in ("vertex", "progress", "coordinator")),
    ]
    table = out.new_table("Our modules that are loaded afterwards", "after", "modules")
    for what in IMPORTS:
        if first[what.name].ours:
            table.add(what.name, first[what.name].ours)
    return out
