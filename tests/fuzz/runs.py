"""One random program with crashes, changes of layout, and a resume with another parallelism. All of it is drawn from a seed."""

from __future__ import annotations

import random
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import rayad as rd
from rayad.actors.replica.migration import may_move
from rayad.dataflow.logical_graph import NodeKind
from tests.fuzz.grammar import Program, Step, build, draw_program, draw_silent_sides, evaluate
from tests.late_transfers import late_transfers
from tests.programs import model as m
from tests.unsynced import leave_files_unsynced

EVENTS = ("savepoint", "crash", "rescale", "resume")
SILENT_SHARE = 0.25
"""Of the programs: two sides that may be silent, while replicas change and state is long on its way."""


@dataclass(frozen=True)
class Case:
    """A program, the seed of its interleaving, its replicas, and events, each with the number of steps before it. ``late``: the share of
    chances that state on its way to another replica lets pass."""

    seed: int
    program: Program
    parallelism: int
    events: tuple[tuple[int, str], ...]
    late: float = 0.0


@dataclass
class Outcome:
    """The outcome of a case; ``violation`` is empty if all was right."""

    seed: int
    crashes: int = 0
    rescales: int = 0
    resumes: int = 0
    violation: str = ""
    kinds: frozenset[str] = field(default_factory=frozenset)


def case_of(seed: int) -> Case:
    """The case that a seed draws."""
    draw = random.Random(seed)
    if draw.random() < SILENT_SHARE:
        events = tuple((draw.choice((0, 5, 20, 60)), draw.choice(("resume", "rescale"))) for _ in range(draw.randint(1, 3)))
        return Case(seed, draw_silent_sides(draw), draw.randint(1, 2), events, draw.choice((0.9, 0.99, 1.0)))
    program, _ = draw_program(draw)
    allowed = draw.choice([(), ("savepoint", "crash"), ("rescale",), ("resume",), EVENTS, EVENTS])
    events = tuple((draw.choice([0, 1, *range(60)]), draw.choice(allowed)) for _ in range(draw.randint(1, 5))) if allowed else ()
    return Case(seed, program, draw.randint(1, 3), events, draw.choice((0.0, 0.0, 0.9, 0.99, 1.0)))


def run_seed(seed: int) -> Outcome:
    """Run the case of a seed."""
    leave_files_unsynced()
    return run(case_of(seed))


def run(case: Case) -> Outcome:
    """Run it, and compare every stream with the model."""
    outcome = Outcome(case.seed, kinds=frozenset(kinds_of(case.program.steps)))
    with tempfile.TemporaryDirectory(prefix="rayad-fuzz-") as folder:
        try:
            with late_transfers(case.late, case.seed):
                result = _run(case, outcome, folder)
            for name, stream in evaluate(case.program).items():
                m.require_same(result[name], stream, f"stream {name}")
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            outcome.violation = f"{type(error).__name__}: {error} (at {last.filename.rsplit('/', 1)[-1]}:{last.lineno})"
    return outcome


def _run(case: Case, outcome: Outcome, folder: str) -> rd.Result:
    draw = random.Random(case.seed + 1)
    saves = any(kind in ("savepoint", "crash", "resume") for _, kind in case.events)
    config = rd.RunConfig(name="fuzz", storage_path=folder if saves else None)
    job: Any = build(case.program).submit(config, rd.ScalingConfig(parallelism=case.parallelism), runtime="local", seed=case.seed)
    live = _live_of(case.program)
    for steps, kind in case.events:
        for name, calls in live.items():
            _feed(job, name, calls[: draw.randint(0, len(calls))])
        if not all(job.step() for _ in range(steps)) and not live:
            break
        if kind == "savepoint":
            job.savepoint()
        elif kind == "crash":
            job.crash()
            outcome.crashes += 1
        elif kind == "rescale":
            outcome.rescales += _rescale(job, draw)
        else:
            job.savepoint()
            job.cancel()
            scaling = rd.ScalingConfig(parallelism=_other_replicas(job, draw))
            job = build(case.program).submit(replace(config, resume="latest"), scaling, runtime="local", seed=case.seed + steps)
            outcome.resumes += 1
        while case.late and job.rescaling is not None and not job.rescaling.has_transfers and job.step():
            pass  # what comes next comes while state is on its way
    for name, calls in live.items():
        _feed(job, name, calls)
        job.input(name).close()
    result: rd.Result = job.wait(timeout_s=120)
    job.check_invariants()
    return result


def _live_of(program: Program) -> dict[str, list[tuple[str, int]]]:
    """By name of each live input: the calls that send its records and advance its epochs, one step each.

    It ends in the epoch of its last record: results of windows at the end of the input have the time at which the input ended.
    """
    live = {}
    for index, (kind, epochs) in enumerate(program.sources):
        if kind == "live":
            calls = [[("advance", epoch), *(("send", record) for record in records)] for epoch, records in enumerate(epochs) if records]
            live[f"live {index}"] = [call for of_epoch in calls for call in of_epoch]
    return live


def _feed(job: Any, name: str, calls: list[tuple[str, int]]) -> None:
    """Make the calls that have not been made yet: a job that resumes says how much of its input it has."""
    handle = job.input(name)
    sent = 0
    for what, value in calls:
        if what == "advance":
            if value > handle.epoch:
                handle.advance_to(value)
            continue
        sent += 1
        if sent > handle.sent:
            handle.send([value])


def _other_replicas(job: Any, draw: random.Random) -> dict[str, int]:
    """Another number of replicas for each vertex that can be resumed with another one; the others keep theirs."""
    out = {}
    for stage in job.plan.stages:
        if stage.kind is NodeKind.INPUT:
            continue
        stays = stage.kind is not NodeKind.SOURCE and may_move(stage, job.plan, job.cores[stage.id, 0].vertex)
        others = [number for number in (1, 2, 3, 4) if number != stage.parallelism]
        out[stage.name] = stage.parallelism if stays else draw.choice(others)
    return out


def _rescale(job: Any, draw: random.Random) -> bool:
    """Begin a change of layout of some of the vertices that can be rescaled; it continues while the job runs."""
    if job.rescaling is not None and not job.rescaling.is_done:
        return False
    movable = [stage for stage in job.plan.stages if not may_move(stage, job.plan, job.cores[stage.id, 0].vertex)]
    wanted = {stage.name: draw.randint(1, 4) for stage in movable if draw.random() < 0.6}
    return bool(wanted) and job.start_rescale(wanted, groups=draw.choice([7, 60, None])) is not None


def kinds_of(steps: tuple[Step, ...]) -> Iterator[str]:
    """The operators of a program, those in loops too."""
    for made in steps:
        yield made.kind
        yield from kinds_of(made.body)


# -- shrinking -----------------------------------------------------------------------------------------------------------------
def shrink(case: Case, tries_max: int = 400) -> tuple[Case, Outcome]:
    """A smaller case with a violation: remove one piece after another, as long as the violation stays."""
    best, outcome = case, run(case)
    tries = 0
    shrunk = bool(outcome.violation)
    while shrunk:
        shrunk = False
        for smaller in _smaller(best):
            tries += 1
            if tries > tries_max:
                return best, outcome
            try:
                found = run(smaller)
            except Exception:  # not a valid program
                continue
            if found.violation:
                best, outcome, shrunk = smaller, found, True
                break
    return best, outcome


def _smaller(case: Case) -> Iterator[Case]:
    for i in range(len(case.events)):
        yield replace(case, events=case.events[:i] + case.events[i + 1 :])
    if case.parallelism > 1:
        yield replace(case, parallelism=1)
    if case.late:
        yield replace(case, late=0.0)
    program = case.program
    if program.exchange:
        yield replace(case, program=replace(program, exchange=False))
    if len(program.steps) > 1:
        yield replace(case, program=replace(program, steps=program.steps[:-1]))
    for steps in _with_less(program.steps):
        yield replace(case, program=replace(program, steps=steps))
    for i, (kind, epochs) in enumerate(program.sources):
        for j, epoch in enumerate(epochs):
            for k in range(len(epoch)):
                less = (*epochs[:j], (*epoch[:k], *epoch[k + 1 :]), *epochs[j + 1 :])
                yield replace(case, program=replace(program, sources=(*program.sources[:i], (kind, less), *program.sources[i + 1 :])))


def _with_less(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """One step replaced by none, or its loop by a smaller one."""
    for i, made in enumerate(steps):
        if made.kind != "same":
            yield (*steps[:i], Step("same", made.inputs[:1]), *steps[i + 1 :])
        if made.body:
            yield (*steps[:i], replace(made, body=made.body[:-1]), *steps[i + 1 :])
        for body in _with_less(made.body):
            yield (*steps[:i], replace(made, body=body), *steps[i + 1 :])
