"""One clock for all comparisons: from *everything is started* to *the caller has the result in the form that was asked for*.

*Started* means: the interpreter with its imports, the engine, its threads, processes, sessions and actors; and a first tiny piece of
work, if an engine loads code at first use. All reading of the input (listing files, footers, schemas) comes later and counts, and
so does planning. The *form* is the same for all systems of a workload (a Python dict, arrays of numbers, an Arrow table), and making it
counts, too. Checks (digests) come after the clock has stopped. The time of the whole process is given beside it.

On Ray, Rayad is started as Spark is: a session with as many workers as the work asks for, and a tiny dataflow there. A job still has to
tell its workers what they are: its time is that of the whole call less these seconds (``JobStatistics.start_s``). It includes reading
footers, planning, and the end of the job, because ``run`` returns after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import rayad as rd


@dataclass(frozen=True, slots=True)
class Timed:
    """A result in the form that was asked for; ``seconds`` by the clock, without the ``start_s`` of the start."""

    value: Any
    seconds: float
    start_s: float
    statistics: Any


def timed(build: Callable[[], rd.Dataflow], form: Callable[[Any], Any], **options: Any) -> Timed:
    """Build a dataflow, run it, bring its result into a form; ``options`` are those of :meth:`rayad.Dataflow.run`, of which
    ``parallelism`` is the number of workers on Ray."""
    on_ray = options.get("runtime") != "local"
    with rd.session(workers=options["parallelism"]) if on_ray else nullcontext():
        if on_ray:
            first_use("ray")
        began = time.perf_counter()
        result = build().run(**options)
        value = form(result)
        whole_s = time.perf_counter() - began
    return Timed(value, whole_s - result.statistics.start_s, result.statistics.start_s, result.statistics)


def first_use(runtime: str = "local") -> None:
    """Run a tiny dataflow: every engine gets a first query, so that loading at first use does not count."""
    flow = rd.Dataflow("first-use")
    flow.from_arrow(pa.table({"key": ["a", "b"], "value": [1, 2]})).key_by("key").sum("value").collect("sums", columnar=True)
    flow.run(runtime=runtime)
