"""``rayad run`` and ``rayad resume``: a program's dataflow as a job on the cluster."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rayad.actors.status.terminal import echo
from rayad.commands import on_cluster
from rayad.commands.interval import Duration
from rayad.commands.program_file import load_flow
from rayad.commands.results import show_results
from rayad.commands.secret_file import SECRET_FILE
from rayad.commands.steering import Replicas
from rayad.dataflow.config import FailureConfig, RunConfig, SnapshotConfig
from rayad.dataflow.streams.flow import Dataflow
from rayad.progress import RayadError

if TYPE_CHECKING:
    from rayad.actors.job import Job

LOOK_EVERY_S = 1.0
"""How often it is looked whether Ctrl-C has come."""


class Interval(Duration):
    """A time, or ``auto``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it, or fail with what would be right."""
        return value if value == "auto" else super().convert(value, param, ctx)


class Parallelism(Replicas):
    """``N`` for all vertices, or ``VERTEX=N``; gives a pair, whose first is None for all."""

    name = "n | vertex=n"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it, or fail with what would be right."""
        count = str(value)
        return (None, int(count)) if count.isdigit() and int(count) > 0 else super().convert(value, param, ctx)


SURVIVED = "Failures that it survives. [default: with --storage 10 deaths of processes and nodes]"


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """What both commands take."""
    for option in reversed(
        [
            click.argument("target", metavar="FILE.py:FLOW"),
            click.option("--name", help="The job's; by default the dataflow's."),
            click.option("--storage", help="Folder or URI for snapshots that all nodes see; by default none is kept."),
            click.option("--interval", type=Interval(), help="Between snapshots, such as 30s, or auto."),
            SECRET_FILE,
            click.option("--max-failures", type=click.IntRange(min=0), help=SURVIVED),
            click.option("-p", "--parallelism", "replicas", multiple=True, type=Parallelism(), help="Replicas: 4, or counts=4."),
            click.option("--progress/--no-progress", default=None, help="Show how far it is. [default: unless RAYAD_PROGRESS=0]"),
            click.option("--detached/--attached", default=False, help="Leave the job running, or wait for its end. [default: attached]"),
            on_cluster.ADDRESS,
            on_cluster.JSON,
        ]
    ):
        command = option(command)
    return command


@click.command(cls=on_cluster.ClusterCommand)
@_options
@click.option("--resume", metavar="WHAT", help="latest, never, or the number or path of a snapshot.")
def run(target: str, resume: str | None, **options: Any) -> None:
    """Run the dataflow FLOW of FILE.py as a job, and print its results.

    Attached, the job ends with this command; Ctrl-C ends its input and finishes what is under way, a second one cancels it. Detached, it
    goes on: `rayad status NAME`. The cluster is that of --address, of RAY_ADDRESS, or of this machine; where there is none, an attached
    job starts a Ray of its own. FLOW is found as by `rayad plan`.
    """
    _run(target, resume, **options)


@click.command(cls=on_cluster.ClusterCommand)
@_options
@click.option("--from", "snapshot", default="latest", show_default=True, help="The number or the path of a snapshot.")
def resume(target: str, snapshot: str, **options: Any) -> None:
    """Run the dataflow FLOW of FILE.py from a snapshot of its job, by default the newest one.

    --storage and --name must be those of the job that took the snapshot, unless --from is a path.
    """
    _run(target, snapshot, **options)


def _run(
    target: str,
    resume: str | None,
    *,
    name: str | None,
    storage: str | None,
    interval: Any,
    secret: bytes | None,
    max_failures: int | None,
    replicas: tuple[tuple[str | None, int], ...],
    progress: bool | None,
    detached: bool,
    address: str | None,
    as_json: bool,
) -> None:
    flow = _load(target)
    if not isinstance(flow, Dataflow):
        raise click.UsageError(f"{target!r} can be planned, but is no rd.Dataflow that could run")
    if flow.live_inputs and not detached:
        raise click.UsageError(
            f"{target!r} has live inputs {flow.live_inputs}, which nobody could feed: give --detached and feed "
            "rd.attach(NAME).input(...), or submit it in a program that feeds it"
        )
    _let_workers_import_from(target)
    config = RunConfig(
        name=name,
        storage_path=storage,
        resume=int(resume) if resume is not None and resume.isdigit() else resume,
        snapshots=SnapshotConfig(interval_s=interval, secret=secret),
        failures=FailureConfig(max_failures=max_failures),
    )
    parallelism = _parallelism(replicas)
    if address is not None or detached:
        from rayad.actors.cluster.joining import join_ray

        join_ray(address)
    if detached:
        job = flow.submit(config, parallelism=parallelism, detached=True)
        if as_json:
            on_cluster.print_json({"name": job.name, "state": job.state})
        else:
            echo(f"job {job.name!r} runs; rayad status {job.name} shows how far it is, rayad stop {job.name} ends it")
        return
    try:
        job = flow.submit(config, parallelism=parallelism)
    except KeyboardInterrupt:
        raise on_cluster.Told(f"interrupted: job {name or flow.name!r} had not begun", on_cluster.Exit.INTERRUPTED) from None
    results = wait(job, progress)
    show_results(job.name, job.state, results, as_json=as_json)


def _load(target: str) -> Any:
    """The dataflow; an error of Rayad's in building it gets the program's line as a note."""
    try:
        return load_flow(target, keep_path=True)
    except RayadError as error:
        file = target.rpartition(":")[0]
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == file:
                error.add_note(f"  {file}, line {frame.lineno}: {frame.line}")
        raise


def _let_workers_import_from(target: str) -> None:
    """Ray tells its workers the folder of the script that runs. That is the program, not this command."""
    sys.argv[0] = str(Path(target.rpartition(":")[0]).resolve())


def _parallelism(replicas: tuple[tuple[str | None, int], ...]) -> Any:
    for_all = [count for vertex, count in replicas if vertex is None]
    named = {vertex: count for vertex, count in replicas if vertex is not None}
    if len(for_all) > 1 or (for_all and named):
        raise click.UsageError("--parallelism is given for all vertices and once more: give one number, or VERTEX=N for each vertex")
    return for_all[0] if for_all else named or None


class _CtrlC:
    """While it is entered, the first two SIGINTs are counted, and only a later one raises KeyboardInterrupt.

    Python raises it between any two instructions of the main thread: it can leave a lock taken, and is lost where a callback ignores it.
    """

    HEARD = 2

    def __init__(self) -> None:
        self.times = 0
        self._before: Any = None

    def __enter__(self) -> _CtrlC:
        self._before = signal.signal(signal.SIGINT, self._count)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _count(self, number: int, frame: Any) -> None:
        self.times += 1
        if self.times > self.HEARD:
            raise KeyboardInterrupt


def wait(job: Job, progress: bool | None) -> Any:
    """The results of the job. Shows on stderr how far it is, as ``job.wait(progress=...)``; Ctrl-C ends its input, a second one the job.

    Raises what ended the job; Told with exit code 130 when it was cancelled here.
    """
    with _CtrlC() as pressed, job.showing(progress, "wait"):
        results = _wait(job, job.wait, lambda: pressed.times > 0)
        if results is None:
            echo("the input ends here, and what is under way is finished; Ctrl-C again cancels the job", err=True)
            results = _wait(job, job.stop, lambda: pressed.times > 1)
        if results is None:
            job.cancel()
            raise on_cluster.Told(f"job {job.name!r} was cancelled by Ctrl-C", on_cluster.Exit.INTERRUPTED)
    return results


def _wait(job: Any, first: Callable[..., Any], is_interrupted: Callable[[], bool]) -> Any:
    """What ``first`` gives, or ``job.wait`` after it, each within :data:`LOOK_EVERY_S`; None when it is interrupted."""
    call = first
    while not is_interrupted():
        try:
            return call(timeout_s=LOOK_EVERY_S)  # shorter than what makes wait() itself say what it waits for
        except TimeoutError:
            call = job.wait
    return None
