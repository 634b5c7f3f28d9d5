"""Local jobs with one live input, and savepoints of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rayad as rd
from rayad.actors.local.local_job import LocalJob


def flow_of(program: Callable[[rd.KeyedStream], Any], name: str = "saved") -> rd.Dataflow:
    """A dataflow whose live input brings words, keyed by themselves; ``program`` gives the output."""
    flow = rd.Dataflow(name)
    made = program(flow.input("words").key_by(lambda word: word))
    made.probe("seen").collect("out")
    return flow


def begun(folder: Path, program: Callable[[rd.KeyedStream], Any], *, secret: bytes | None = None, **options: Any) -> LocalJob:
    config = rd.RunConfig(storage_path=str(folder), snapshots=rd.SnapshotConfig(secret=secret))
    job = flow_of(program).submit(config, runtime="local", **options)
    assert isinstance(job, LocalJob)
    return job


def feed(job: LocalJob, epochs: Sequence[Sequence[str]]) -> None:
    """Send these epochs, and wait until they are complete."""
    words = job.input("words")
    for some in epochs:
        words.send(list(some))
        words.advance_to(words.epoch + 1)
    assert job.probe("seen").wait(words.epoch - 1)


def saved_after(job: LocalJob, epochs: Sequence[Sequence[str]]) -> str:
    """Send these epochs, take a savepoint, cancel the job; gives the savepoint."""
    feed(job, epochs)
    path = job.savepoint()
    job.cancel()
    return path


def last_of(job: LocalJob) -> dict[Any, Any]:
    """The last value of each key, after the end of the input."""
    job.input("words").close()
    found = job.wait()["out"]
    return {key: value for _, (key, value) in sorted(found, key=lambda entry: entry[0].sort_key())}


def counting_down(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
    """The body of a loop: pairs go round until their number is 0."""
    less = inner.map(lambda pair: (pair[0], pair[1] - 1))
    return less.filter(lambda pair: pair[1] > 0), less.filter(lambda pair: pair[1] == 0)
