"""How long ``import rayad`` takes from the wheel, in an environment with what it declares and nothing else. A command of its own:

    python -m benchmarks.imports
    python -m benchmarks.imports --repetitions 20

Each import runs in a process of its own, and in turn, so that other load affects all alike; the shortest and the median time in
milliseconds. Beside it the imports that it needs (numpy, pyarrow), and the one that it must not load at once (Ray).
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from pathlib import Path

import click

from benchmarks.installed import build, copy_project, environment_with

WHAT = ("numpy", "pyarrow", "rayad", "rayad.graphs", "rayad.integrations", "ray")
PROGRAM = """
import importlib, sys, time
began = time.perf_counter()
importlib.import_module(sys.argv[1])
print((time.perf_counter() - began) * 1e3, len([n for n in sys.modules if n.split('.')[0] == 'rayad']), 'ray' in sys.modules)
"""


def once(python: Path, name: str, folder: Path) -> tuple[float, int, bool]:
    """Milliseconds, how many modules of ours are loaded afterwards, and whether Ray is."""
    done = subprocess.run([str(python), "-I", "-c", PROGRAM, name], capture_output=True, text=True, check=True, cwd=folder)
    milliseconds, ours, has_ray = done.stdout.split()
    return float(milliseconds), int(ours), has_ray == "True"


@click.command()
@click.option("--repetitions", default=7, show_default=True, help="Processes for each import.")
def main(repetitions: int) -> None:
    """Milliseconds of imports from the wheel."""
    with tempfile.TemporaryDirectory(prefix="rayad-imports-") as name:
        folder = Path(name)
        project = folder / "project"
        project.mkdir()
        python = environment_with(build(copy_project(project), "build_wheel", folder), folder / "environment")
        for what in WHAT:
            once(python, what, folder)  # compiles to bytecode
        runs = [{what: once(python, what, folder) for what in WHAT} for _ in range(repetitions)]
    click.echo(f"{'import':20}{'least ms':>10}{'middle ms':>11}{'our modules':>13}  with Ray")
    for what in WHAT:
        times_ms = [run[what][0] for run in runs]
        _, ours, has_ray = runs[0][what]
        click.echo(f"{what:20}{min(times_ms):>10.0f}{statistics.median(times_ms):>11.0f}{ours:>13}  {'yes' if has_ray else 'no'}")


if __name__ == "__main__":
    main()
