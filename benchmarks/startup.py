"""The time from ``flow.run`` to the first record, by number of vertex replicas; that of a short word count, cold and in a session, from
call to result; the first epoch of a wide dataflow; and the number of processes and their memory.

With Ray running already, and without: then a process of its own starts Ray and runs the flow, and ``ray.init`` is part of the time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import ray

import rayad as rd
from benchmarks.machine import actor_processes, in_process, resident_mib, settle, start_ray, unique_mib
from benchmarks.measurement import Measurement

TITLE = "Start of a job"
NEEDS_RAY = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    replicas: tuple[int, ...] = (1, 2, 4, 8)
    cold_repetitions: int = 3
    cold_replicas: tuple[int, ...] = (1, 2, 4, 8)
    stages: int = 5
    wide: int = 16
    """Replicas of each of these stages."""
    wide_repetitions: int = 3
    epochs: int = 60


FULL = Sizes()
QUICK = Sizes(repetitions=1, replicas=(1, 2), cold_repetitions=0, cold_replicas=(), wide=2, wide_repetitions=1, epochs=3)


class NoteFirst(rd.Vertex):
    """Emits the time of its first record, by the clock that all processes of a machine share."""

    def on_recv(self, edge: int, batch: Any, at: rd.Timestamp) -> None:
        self.send_by(0, [(self.replica, time.time(), os.nice(0))], at)


def program(*, live: bool = False) -> rd.Dataflow:
    """Source, broadcast, vertex, sink: as many vertex actors as replicas, and one for the source."""
    flow = rd.Dataflow("startup")
    start = flow.input("start") if live else flow.from_items(["go"], name="start")
    start.broadcast().vertex(NoteFirst, name="note").probe("seen").collect("first")
    return flow


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds to the first record anywhere, until every replica had one, and to the result."""

    first_s: float
    all_s: float
    end_s: float
    replicas: int
    nice: int
    statistics: Any


def run_once(replicas: int, *, began: float | None = None, **options: Any) -> Run:
    """Run the program; ``began`` is when the clock started, by default now."""
    began = time.time() if began is None else began
    if not options:
        options = {"scaling": rd.ScalingConfig(parallelism={"note": replicas}, placement="vertices")}
    else:
        options["parallelism"] = replicas
    result = program().run(**options)
    ended = time.time()
    told = [record for _, record in result["first"]]
    times = [at_s - began for _, at_s, _ in told]
    return Run(min(times), max(times), ended - began, len({r for r, _, _ in told}), told[0][2], result.statistics)


def look_at_processes(replicas: int) -> list[tuple[str, float, float]]:
    """Class, resident and unshared MiB of each actor process of a running job."""
    job = program(live=True).submit(None, rd.ScalingConfig(parallelism={"note": replicas}, placement="vertices"))
    try:
        handle = job.input("start")
        handle.send(["go"])
        handle.advance_to(1)
        job.probe("seen").wait(0, timeout_s=60)
        found = [(kind, resident_mib(pid) or 0.0, unique_mib(pid) or 0.0) for pid, kind in actor_processes().items()]
        handle.close()
        job.wait(timeout_s=60)
    except BaseException:
        job.cancel()
        raise
    return found


def run(sizes: Sizes) -> Measurement:
    """All numbers of replicas in turn, several times; then without a running Ray; then the processes."""
    out = Measurement("startup", TITLE, asdict(sizes))
    first = {n: out.new_series(f"to the first record, {n} replicas, Ray running", "s", "?") for n in sizes.replicas}
    every = {n: out.new_series(f"to every replica's first record, {n} replicas, Ray running", "s", "?") for n in sizes.replicas}
    cold = {n: out.new_series(f"to the first record, {n} replicas, Ray not running", "s", "?") for n in sizes.cold_replicas}
    for _ in range(sizes.repetitions):
        for n in sizes.replicas:
            settle()
            done = run_once(n)
            out.check("every replica saw the record", done.replicas, n)
            first[n].add(done.first_s)
            every[n].add(done.all_s)
            first[n].nice = every[n].nice = str(done.nice)
    for _ in range(sizes.cold_repetitions):
        for n in sizes.cold_replicas:
            settle()
            told = in_process("startup", str(n))
            out.check("every replica saw the record", told["replicas"], n)
            cold[n].add(told["first_s"])
            cold[n].nice = str(told["nice"])
    _add_word_counts(out, sizes)
    _add_wide(out, sizes)
    _add_processes(out, sizes)
    return out


def word_count() -> rd.Dataflow:
    """A thousand lines: what a run takes is its start and its end."""
    flow = rd.Dataflow("words")
    flow.from_items(["to be or not to be"] * 1000, name="lines").flat_map(str.split).key_by(lambda word: word).count().collect("counts")
    return flow


def _add_word_counts(out: Measurement, sizes: Sizes) -> None:
    """From the call to the result, with two workers, Ray running: each run with new processes, and each behind another one in a session."""
    cold = out.new_series("word count from call to result, new processes", "s", "?")
    warm = out.new_series("word count from call to result, in a session", "s", "?")

    def count(**options: Any) -> float:
        began_s = time.perf_counter()
        result = word_count().run(**options)
        took_s = time.perf_counter() - began_s
        out.check("words that were counted", sorted(record for _, record in result["counts"])[0], ("be", 2000))
        return took_s

    for _ in range(sizes.repetitions):
        settle()
        cold.add(count(scaling=rd.ScalingConfig(parallelism=2, placement="workers")))
    with rd.session(workers=2):
        count()
        for _ in range(sizes.repetitions):
            warm.add(count())


def _add_wide(out: Measurement, sizes: Sizes) -> None:
    """From ``submit`` to the first complete epoch of a wide dataflow, and from then on an epoch after the other, each with 100 records."""
    what = f"{sizes.stages} stages of {sizes.wide} replicas"
    first, each = out.new_series(f"to the first epoch, {what}", "s", "?"), out.new_series(f"an epoch, {what}", "ms", "?")
    for _ in range(sizes.wide_repetitions):
        settle()
        flow = rd.Dataflow("wide")
        stream: Any = flow.input("numbers")
        for stage in range(sizes.stages):
            stream = stream.rebalance(name=f"stage-{stage}").map(lambda number: number + 1)
        stream.probe("seen").collect("out")
        began_s = time.perf_counter()
        job = flow.submit(parallelism=sizes.wide)
        try:
            handle, probe = job.input("numbers"), job.probe("seen")
            took_s = []
            for epoch in range(sizes.epochs):
                epoch_s = time.perf_counter()
                handle.send(list(range(100)))
                handle.advance_to(epoch + 1)
                probe.wait(epoch, timeout_s=120)
                took_s.append(time.perf_counter() - epoch_s)
                if epoch == 0:
                    first.add(time.perf_counter() - began_s)
            handle.close()
            records = len(list(job.wait(timeout_s=120)["out"]))
        except BaseException:
            job.cancel()
            raise
        out.check("records that came through", records, 100 * sizes.epochs)
        each.add(1e3 * sorted(took_s)[len(took_s) // 2])


def _add_processes(out: Measurement, sizes: Sizes) -> None:
    title = "Processes of a job and their memory in MiB, on average"
    table = out.new_table(title, "vertex replicas", "processes", "class", "of it", "RSS", "USS", "USS of the job")
    for n in sizes.replicas:
        found = look_at_processes(n)
        whole = sum(unique for _, _, unique in found)
        for kind in sorted({kind for kind, _, _ in found}):
            mine = [(resident, unique) for k, resident, unique in found if k == kind]
            table.add(n, len(found), kind, len(mine), sum(r for r, _ in mine) / len(mine), sum(u for _, u in mine) / len(mine), whole)
        out.check("a job is its replicas, the source, the progress actor and the coordinator", len(found), n + 3)


def main() -> None:
    """Without a running Ray: the number of replicas in, seconds as JSON out. The clock starts when the imports are done."""
    began = time.time()
    start_ray(max(4, os.cpu_count() or 1))
    done = run_once(int(sys.argv[1]), began=began)
    ray.shutdown()
    print(json.dumps({"first_s": done.first_s, "replicas": done.replicas, "nice": done.nice}))


if __name__ == "__main__":
    main()
