"""The four applications of MPR (Löff, PUCRS 2023, 6.1), written in examples/mpr: as a dataflow, beside pools of Ray actors and one loop.

All versions call the same kernel on the same items and give the same bytes. *Pool*: hand-written, two calls in flight for each actor.
*ActorPool*: ``ray.util.ActorPool``, which has one. A call carries one item, as in the obvious program; for prime numbers there is also a
pool whose calls carry as many as the dataflow's batches. More replicas than processors only help work that waits: *waiting* kernels sleep
for each item, in proportion to its load.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import ray

from benchmarks import inputs
from benchmarks.machine import ROOT, WORKER_NICE, in_process
from benchmarks.measurement import Chart, Line, Measurement, Panel, Ratio
from benchmarks.side_by_side import Outcome, System, compare

TITLE = "The MPR applications: a dataflow, pools of actors, one loop"
NEEDS_RAY = True
FOLDER = ROOT / "examples" / "mpr"
MODULES = ("kernels", "outputs", "adapting", "versions", "command_line")
MANDELBROT, LANES, BZIP2 = "Mandelbrot", "lane detection", "bzip2"
PRIMES, CHUNKS = "primes", "primes in chunks"
PROGRAMS = {MANDELBROT: "mandelbrot", LANES: "lanes", BZIP2: "bzip2_file", PRIMES: "primes", CHUNKS: "primes"}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    workers: tuple[int, ...] = (1, 2)
    actor_pools: bool = True
    """Whether ActorPool is measured, too."""
    mandelbrot: tuple[int, int, int] = (2, 500, 3000)
    """Frames, their size, iterations."""
    video: tuple[int, int] = (800, 640)
    """Frames, their width."""
    text_mb: float = 60.0
    primes: int = 20_000
    primes_in_chunks: int = 2_000_000
    chunk: int = 1_000
    waits: tuple[str, ...] = (MANDELBROT, LANES)
    waiting_workers: tuple[int, ...] = (1, 2, 4, 8)
    waiting_mandelbrot: tuple[int, int, int] = (1, 160, 200)
    waiting_mandelbrot_ms: float = 50.0
    waiting_video: tuple[int, int] = (200, 160)
    waiting_video_ms: float = 15.0
    changing: tuple[int, ...] = (3, 1, 4, 2)
    """The numbers of replicas in runs with changes: one change right after the other, repeated until the run ends."""
    changes_most: int = 100


FULL = Sizes()
QUICK = Sizes(
    repetitions=1,
    workers=(2,),
    actor_pools=False,
    mandelbrot=(1, 40, 60),
    video=(10, 160),
    text_mb=2.0,
    primes=500,
    primes_in_chunks=5_000,
    waits=(MANDELBROT,),
    waiting_workers=(3,),
    waiting_mandelbrot=(1, 20, 50),
    waiting_mandelbrot_ms=10.0,
    waiting_video=(10, 160),
    waiting_video_ms=5.0,
    changes_most=1,
)


def module(name: str) -> Any:
    """A module of examples/mpr. Its folder is not on the path of Ray's workers, so they get its functions and classes by value."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    for each in (*MODULES, name):
        loaded = importlib.import_module(each)
        for pickler in (cloudpickle, ray.cloudpickle):
            if each not in pickler.list_registry_pickle_by_value():
                pickler.register_pickle_by_value(loaded)
    return importlib.import_module(name)


def video(frames: int, width: int) -> Path:
    """The drawn drive."""

    def make(folder: Path) -> int:
        module("lanes").write_video(folder / "drive.avi", frames, width, width * 9 // 16)
        return frames

    return inputs.made(f"mpr-drive-{frames}x{width}", make) / "drive.avi"


def text(megabytes: float) -> Path:
    """The text to compress."""

    def make(folder: Path) -> float:
        module("bzip2_file").write_text(folder / "text", megabytes)
        return megabytes

    return inputs.made(f"mpr-text-{megabytes:g}", make) / "text"


def application(name: str, sizes: Sizes, scratch: Path, waits: bool = False) -> Any:
    """An application at its size; its output, if that is a file, in ``scratch``."""
    program = module(PROGRAMS[name])
    if name == MANDELBROT:
        app = program.application(*(sizes.waiting_mandelbrot if waits else sizes.mandelbrot))
        return app.waiting(sizes.waiting_mandelbrot_ms / 1000) if waits else app
    if name == LANES:
        app = program.application(video(*(sizes.waiting_video if waits else sizes.video)), scratch / "marked.mjpeg")
        return app.waiting(sizes.waiting_video_ms / 1000) if waits else app
    if name == BZIP2:
        return program.application(text(sizes.text_mb), scratch / "text.bz2")
    return replace(program.application(sizes.primes if name == PRIMES else sizes.primes_in_chunks), batch_items=sizes.chunk)


def run_version(name: str, sizes: Sizes, runtime: str, workers: int, waits: bool = False, chunk: int = 1, adapting: Any = None) -> Outcome:
    """One run of one version."""
    with tempfile.TemporaryDirectory(prefix="rayad-mpr-") as scratch:
        done = module("versions").run(application(name, sizes, Path(scratch), waits), runtime, workers, chunk=chunk, adapting=adapting)
    return Outcome(done.seconds, done.md5)


def run_alone(name: str, sizes: Sizes) -> Outcome:
    """The loop, in a process of its own with the priority of Ray's workers."""
    told = in_process("mpr", name, json.dumps(asdict(sizes)), nice=WORKER_NICE)
    return Outcome(told["seconds"], told["md5"])


def alone(name: str) -> str:
    """The name of its series."""
    return f"{name}: one loop"


def named(name: str, runtime: str, workers: int) -> str:
    """The same of another version."""
    kind, worker = {"ray": ("dataflow", "replica"), "pool": ("pool", "actor"), "actorpool": ("ActorPool", "actor")}[runtime]
    return f"{name}: {kind}, {workers} {worker}{'s' if workers > 1 else ''}"


def systems(name: str, sizes: Sizes) -> list[System]:
    """All versions of an application."""
    out = [System(alone(name), partial(run_alone, name, sizes))]
    chunk = sizes.chunk if name == CHUNKS else 1
    versions = [(runtime, workers) for workers in sizes.workers for runtime in ("ray", "pool")]
    if sizes.actor_pools and name != CHUNKS:
        versions.append(("actorpool", max(sizes.workers)))
    run_one = partial(run_version, name, sizes, chunk=chunk)
    return out + [System(named(name, runtime, workers), partial(run_one, runtime, workers)) for runtime, workers in versions]


def ratios(name: str, sizes: Sizes) -> list[Ratio]:
    """The ratios of the dataflow to the other versions."""
    least, most = min(sizes.workers), max(sizes.workers)
    ours, pool, actorpool = (named(name, runtime, most) for runtime in ("ray", "pool", "actorpool"))
    if name == PRIMES:
        out = [Ratio(pool, ours, "far above 1"), Ratio(ours, alone(name))]
        return [*out, Ratio(actorpool, ours, "far above 1")] if sizes.actor_pools else out
    aim = "at most 1.02" if name in (MANDELBROT, BZIP2) else ""
    out = [Ratio(ours, pool, aim), Ratio(ours, alone(name))]
    if least == 1 and most > 1:
        out.append(Ratio(named(name, "ray", 1), alone(name), aim))
    return [*out, Ratio(ours, actorpool)] if sizes.actor_pools and name != CHUNKS else out


def waiting(name: str) -> str:
    """Its name with a waiting kernel."""
    return f"{name}, waiting"


def measure_waiting(name: str, sizes: Sizes, out: Measurement) -> None:
    """Work that waits, with more replicas than processors; the curve of its throughput."""
    runs: dict[str, Callable[[], Outcome]] = {}
    for workers in sizes.waiting_workers:
        for runtime in ("ray", "pool"):
            runs[named(waiting(name), runtime, workers)] = partial(run_version, name, sizes, runtime, workers, waits=True)
    what = f"{waiting(name)}: dataflow and pool gave the same bytes, whatever their number"
    done = compare(out, [System(series, run) for series, run in runs.items()], repetitions=sizes.repetitions, what=what)
    with tempfile.TemporaryDirectory() as scratch:
        items = sum(1 for _ in application(name, sizes, Path(scratch), waits=True).items())
    panel = Panel(waiting(name))
    for runtime, label in (("ray", "dataflow"), ("pool", "pool")):
        seconds = {workers: sorted(o.seconds for o in done[named(waiting(name), runtime, workers)]) for workers in sizes.waiting_workers}
        rates = [items / seconds[workers][len(seconds[workers]) // 2] for workers in sizes.waiting_workers]
        panel.lines.append(Line(label, [float(workers) for workers in sizes.waiting_workers], rates))
    out.charts[0].panels.append(panel)
    first, most = min(sizes.waiting_workers), max(sizes.waiting_workers)
    out.ratios.append(Ratio(named(waiting(name), "ray", most), named(waiting(name), "pool", most), "at most 1.02"))
    if first < most:
        out.ratios.append(Ratio(named(waiting(name), "ray", first), named(waiting(name), "ray", most), f"near {most / first:g}"))


def measure_changes(sizes: Sizes, out: Measurement) -> None:
    """Runs with one rescale after another: the share of a run during which the most affected replica was paused."""
    head = ["application", "changes", "run, s", "mean time of a change, s", "replica stood still, ms", "share of the run", "longest, ms"]
    table = out.new_table("Replicas that come and go without a break", *head)
    for name in (MANDELBROT, LANES, BZIP2, CHUNKS):  # primes one by one are done before the first new replica has started
        told = changing(sizes)
        outcome = run_version(name, sizes, "ray", sizes.changing[-1], adapting=told)
        out.check("replicas that come and go: the same bytes as those of one loop (MD5)", outcome.digest, run_alone(name, sizes).digest)
        still_ms = [1000 * change.paused_s for change in told.changed]
        longest_ms = max((1000 * change.pause_s for change in told.changed), default=0.0)
        mean_s = sum(change.took_s for change in told.changed) / max(1, len(told.changed))
        share = f"{sum(still_ms) / outcome.seconds / 10:.3f} %"
        table.add(name, len(told.changed), f"{outcome.seconds:.1f}", f"{mean_s:.2f}", f"{sum(still_ms):.1f}", share, f"{longest_ms:.1f}")


def changing(sizes: Sizes) -> Any:
    """One change after the other."""
    changes = itertools.islice(itertools.cycle(sizes.changing), sizes.changes_most)
    return module("adapting").Adapting(changes=tuple((0.0, replicas) for replicas in changes))


def run(sizes: Sizes) -> Measurement:
    """Each application by itself, all versions in turn; then the waiting ones."""
    out = Measurement("mpr", TITLE, asdict(sizes))
    began = os.getloadavg()[0]
    for name in PROGRAMS:
        compare(out, systems(name, sizes), repetitions=sizes.repetitions, what=f"{name}: all versions gave the same bytes (MD5)")
        out.ratios += ratios(name, sizes)
    out.charts.append(Chart("waiting", "Work that waits", "replicas or actors", "items/s"))
    for name in sizes.waits:
        measure_waiting(name, sizes, out)
    measure_changes(sizes, out)
    out.tables = [table for table in out.tables if any(cell != "-" for row in table.rows for cell in row[1:])]
    out.notes.append(
        f"Load of the machine (1 min): {began:.2f} at the beginning, {os.getloadavg()[0]:.2f} at the end, of {os.cpu_count()} processors. "
        f"Ray's workers and the loop run at nice {WORKER_NICE}, the driver, which feeds the pools, at {os.nice(0)}. Besides its replicas "
        "the dataflow has a source, an output and, where order is restored, a vertex that numbers items, each a process of its own."
    )
    return out


def main() -> None:
    """``python -m benchmarks.mpr NAME SIZES``: one loop, as JSON."""
    name, given = sys.argv[1], json.loads(sys.argv[2])
    fields: dict[str, Any] = {field: tuple(value) if isinstance(value, list) else value for field, value in given.items()}
    sizes = Sizes(**fields)
    done = run_version(name, sizes, "sequential", 1)
    print(json.dumps({"seconds": done.seconds, "md5": done.digest}))


if __name__ == "__main__":
    main()
