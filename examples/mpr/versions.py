"""The versions of an application: one loop, a pool of Ray actors, a dataflow. All call the same kernel and fill the same kind of output.

- `sequential`: one process, one loop.
- `pool`: as many Ray actors as there are replicas, fed by the driver; each has two calls in flight, so that it need not wait for the
  driver between them. The driver puts results into order if the application needs that.
- `actorpool`: the same with ``ray.util.ActorPool``, which has one call in flight for each actor.
- `ray`, `local`: the dataflow ``source -> compute (replicas) -> output``, on Ray or in this process.

Times do not include the start of Ray and of actors; they end when the output is complete.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from adapting import Adapting
from kernels import Waiting

import rayad as rd

RUNTIMES = ("ray", "local", "sequential", "pool", "actorpool")
UNDER_WAY = 2
"""Calls in flight for each actor of a pool: one that it works on, and one that waits. ``rebalance`` does the same by default."""

COMPUTING = "compute"
"""The vertex whose replicas compute."""


class Output(Protocol):
    """Collects results. Each process makes its own; ``take`` and ``finish`` are separate calls so that it can be a sink."""

    def add(self, result: Any) -> None:
        """Add one result; in order of the items, if the application is ordered."""

    def take(self) -> Any:
        """The results since the last call; picklable."""

    def finish(self, parts: Sequence[Any]) -> Any:
        """The application's result from all that was taken; may be called again with the same parts."""


@dataclass(frozen=True, slots=True)
class Application:
    """What the versions have in common.

    Args:
        name: of the application.
        items: gives its items, the same ones in each call.
        kernel: item to result.
        load: for a kernel that waits, the share of the waiting time for a result, 0 to 1.
        output: makes an empty output.
        digest: the MD5 of the finished output.
        ordered: whether the output needs results in the order of the items.
        batch_items: how many items travel together in the dataflow.
        rate_per_s: items that come in each second, in the dataflow; None: as fast as they are read.
    """

    name: str
    items: Callable[[], Iterable[Any]]
    kernel: Callable[[Any], Any]
    load: Callable[[Any], float]
    output: Callable[[], Output]
    digest: Callable[[Any], str]
    ordered: bool = False
    batch_items: int = 1
    rate_per_s: float | None = None

    def waiting(self, wait_s: float) -> Application:
        """The same with a kernel that also waits."""
        return replace(self, kernel=Waiting(self.kernel, self.load, wait_s)) if wait_s else self


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: its result, the MD5 of it, how many seconds the work took."""

    result: Any
    md5: str
    seconds: float


# -- the dataflow ----------------------------------------------------------------------------
class Items(rd.Source):
    """The items of an application in one part. A reader that resumes at an item skips those before it."""

    def __init__(self, items: Callable[[], Iterable[Any]], batch_items: int, rate_per_s: float | None = None) -> None:
        self.items, self.batch_items, self.rate_per_s = items, batch_items, rate_per_s

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: int | None) -> rd.SourcePart:
        return ItemsPart(self, resume or 0)


class ItemsPart(rd.SourcePart):
    """Reads from an item on."""

    def __init__(self, source: Items, number: int) -> None:
        self.batch_items, self.number, self.rate_per_s = source.batch_items, number, source.rate_per_s
        self.items = itertools.islice(source.items(), number, None)
        self.first, self.began_s = number, time.monotonic()

    def backlog(self) -> int | None:
        """How many items have come and are not read; None if items do not come by the clock."""
        if self.rate_per_s is None:
            return None
        return self.first + int((time.monotonic() - self.began_s) * self.rate_per_s) - self.number

    def next_batch(self) -> rd.SourceBatch | None:
        waiting = self.backlog()
        if waiting == 0:
            return rd.SourceBatch(0, [])
        batch = list(itertools.islice(self.items, self.batch_items if waiting is None else min(waiting, self.batch_items)))
        self.number += len(batch)
        return rd.SourceBatch(0, batch) if batch else None

    def offset(self) -> int:
        return self.number


class OutputSink(rd.Sink):
    """An output as a sink with one writer."""

    def __init__(self, make: Callable[[], Output]) -> None:
        self.make = make

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return OutputWriter(self.make())

    def publish(self, staged: Sequence[Any]) -> Any:
        return self.make().finish(staged)


class OutputWriter(rd.SinkWriter):
    """The writer of an output."""

    def __init__(self, output: Output) -> None:
        self.output = output

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        for result in batch:
            self.output.add(result)

    def stage(self) -> Any:
        return self.output.take()


def dataflow(app: Application) -> rd.Dataflow:
    """Each item goes to a replica of the computing vertex that has room for it; all results go to one output."""
    flow = rd.Dataflow(app.name)
    items = flow.source(Items(app.items, app.batch_items, app.rate_per_s), name="source")
    results = items.rebalance(name=COMPUTING).map(app.kernel)
    arranged = results.ordered(name="in order") if app.ordered else results.single()
    arranged.sink(OutputSink(app.output), name="output")
    return flow


def run_dataflow(app: Application, replicas: int, runtime: str, seed: int = 0, adapting: Adapting | None = None) -> Outcome:
    """The dataflow from its first item until its output is published."""
    flow, adapting = dataflow(app), adapting or Adapting()
    job = flow.submit(scaling=adapting.scaling(flow, COMPUTING, replicas), runtime=runtime, seed=seed)
    try:
        result = adapting.wait(job, COMPUTING)
    except BaseException:
        job.cancel()
        raise
    return Outcome(result["output"], app.digest(result["output"]), result.statistics.run_s)


# -- without a dataflow ------------------------------------------------------------------------
def run_sequential(app: Application) -> Outcome:
    """One loop in this process."""
    return _filled(app, map(app.kernel, app.items()))


def _filled(app: Application, results: Iterable[Any]) -> Outcome:
    output = app.output()
    began_s = time.perf_counter()
    for result in results:
        output.add(result)
    finished = output.finish([output.take()])
    seconds = time.perf_counter() - began_s
    return Outcome(finished, app.digest(finished), seconds)


class Worker:
    """An actor of a pool."""

    def __init__(self, kernel: Callable[[Any], Any]) -> None:
        self.kernel = kernel

    def ready(self) -> None:
        """Answers when the actor is up."""

    def work(self, items: list[Any]) -> list[Any]:
        """The results of some items, in their order."""
        return list(map(self.kernel, items))


def run_pool(app: Application, workers: int, *, chunk: int = 1, actor_pool: bool = False) -> Outcome:
    """A pool of Ray actors; ``chunk`` items go with each call."""
    import ray

    if not ray.is_initialized():
        ray.init(include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    actors = [ray.remote(num_cpus=0)(Worker).remote(app.kernel) for _ in range(workers)]
    try:
        ray.get([actor.ready.remote() for actor in actors])
        chunks = _chunks(app.items(), chunk)
        answers = _from_actor_pool(actors, chunks, app.ordered) if actor_pool else _from_pool(actors, chunks, app.ordered)
        return _filled(app, itertools.chain.from_iterable(answers))
    finally:
        for actor in actors:
            ray.kill(actor)


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def _from_actor_pool(actors: list[Any], chunks: Iterable[list[Any]], ordered: bool) -> Iterator[list[Any]]:
    """The obvious program. The pool queues items without bound, so it is given no more than it can have in flight."""
    from ray.util import ActorPool

    pool = ActorPool(actors)
    take = pool.get_next if ordered else pool.get_next_unordered
    for number, chunk in enumerate(chunks):
        if number >= UNDER_WAY * len(actors):
            yield take()
        pool.submit(lambda actor, items: actor.work.remote(items), chunk)
    while pool.has_next():
        yield take()


def _from_pool(actors: list[Any], chunks: Iterable[list[Any]], ordered: bool) -> Iterator[list[Any]]:
    """Each actor has UNDER_WAY calls; an actor that has answered gets the next chunk."""
    import ray

    numbered = enumerate(chunks)
    calls: dict[Any, tuple[int, Any]] = {}
    answers: dict[int, list[Any]] = {}
    following = 0

    def call(actor: Any) -> None:
        for number, chunk in itertools.islice(numbered, 1):
            calls[actor.work.remote(chunk)] = (number, actor)

    for actor in actors * UNDER_WAY:
        call(actor)
    while calls:
        (done,), _ = ray.wait(list(calls))
        number, actor = calls.pop(done)
        call(actor)
        answer = ray.get(done)
        if not ordered:
            yield answer
            continue
        answers[number] = answer
        while following in answers:
            yield answers.pop(following)
            following += 1


def run(app: Application, runtime: str, replicas: int = 1, *, chunk: int = 1, seed: int = 0, adapting: Adapting | None = None) -> Outcome:
    """One version; ``chunk`` is for the pools, ``adapting`` for the dataflow."""
    if runtime == "sequential":
        return run_sequential(app)
    if runtime in ("pool", "actorpool"):
        return run_pool(app, replicas, chunk=chunk, actor_pool=runtime == "actorpool")
    return run_dataflow(app, replicas, runtime, seed, adapting)
