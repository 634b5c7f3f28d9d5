"""How often the processes of a vertex have ended in a row, and what a job that fails of it is told. Pure.

A process that ends tells nothing: it may have been a node's end, or a record whose call ends every process that it comes to. The second
comes back after each restart, as the job resumes before it; what comes once does not. So ends count together until the work of the last
one lies behind: a snapshot is published that a good while of work precedes. One that is taken as soon as the job runs again, before it
meets the record, says nothing; so the while is CALM_S, and at least twice as long as an end has come behind the snapshot before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rayad.actors.plane.protocol import PROGRESS, stage_of
from rayad.actors.replica.places import is_worker
from rayad.dataflow.operators.bad_records import Tried, function_of
from rayad.dataflow.plan import ApplyStep, Plan, Stage

HOW_MOST = 300
"""So many characters of Ray's own words are told."""
STEPS_MOST = 8
"""So many functions are named."""
_EXIT_CODE = re.compile(r"with an exit code (-?\d+)")
_SIGNAL = re.compile(r"receives a (SIG[A-Z]+)")
CALM_S = 60.0
"""So long the job runs before a snapshot ends a row."""


class Crashes:
    """The ends of processes of one job, by stage.

    >>> crashes = Crashes()
    >>> crashes.on_ended(dict.fromkeys(["v3.0", "v3.1", "v5.0"], ""), 10.0); crashes.on_running(12.0)
    >>> crashes.on_ended({"v3.1": "parse"}, 13.0); crashes.in_a_row
    {3: 2, 5: 1}
    >>> crashes.on_running(15.0); crashes.on_snapshot(15.1), crashes.on_snapshot(15.0 + CALM_S), crashes.in_a_row
    ([], [3, 5], {})
    """

    def __init__(self) -> None:
        self._in_a_row: dict[int, int] = {}
        self._workers_in_a_row = 0
        self._working: dict[int, list[str]] = {}  # the steps in which processes ended, where they are known
        self._since_s = float("inf")  # when the job began to run
        self._base_s = float("inf")  # since when it works on what no snapshot has
        self._behind_s = 0.0  # how far an end of this row was behind the snapshot before it

    @property
    def in_a_row(self) -> Mapping[int, int]:
        """How often, by stage; replicas that end at once count once."""
        return dict(self._in_a_row)

    def on_running(self, now_s: float) -> None:
        """The job runs, from the beginning or from a snapshot."""
        self._since_s = self._base_s = now_s

    def on_ended(self, ended: Mapping[str, str], now_s: float) -> None:
        """The processes of these have ended, at once, each in a step, "" where that is not known. A worker tells of no stage."""
        if any(map(is_worker, ended)):
            self._workers_in_a_row += 1
            self._behind_s = max(self._behind_s, now_s - self._base_s)
        alone = {name: step for name, step in ended.items() if name != PROGRESS and not is_worker(name)}
        for name, step in alone.items():
            if step:
                self._working.setdefault(stage_of(name), []).append(step)
        for stage in sorted({stage_of(name) for name in alone}):
            self._in_a_row[stage] = self._in_a_row.get(stage, 0) + 1
            self._behind_s = max(self._behind_s, now_s - self._base_s)

    def on_snapshot(self, now_s: float) -> list[int]:
        """A snapshot has been published: gives the stages whose row is over."""
        self._base_s = now_s
        if now_s - self._since_s < max(CALM_S, 2 * self._behind_s):
            return []
        stages, self._in_a_row, self._working, self._behind_s = list(self._in_a_row), {}, {}, 0.0
        self._workers_in_a_row = 0
        return stages

    def told(self, plan: Plan) -> str:
        """What a job that gives up is told of it; "" where no stage's processes have ended twice in a row."""
        at, times = max(self._in_a_row.items(), key=lambda one: one[1], default=(0, 0))
        if times < 2:
            return self._told_of_workers(plan)
        stage = plan.stage(at)
        steps = functions_in(stage)
        told = f"a process of {plan.called(at)!r} ({stage.where}) ended {times} times in a row: it seems to be at the same work"
        if not steps:
            return f"{told}, a record perhaps; a function in an operator of its own (map, map_batches) can set such records aside"
        names = _shown(steps)
        asked = [(step.name, step.element.after_crashes) for step in steps if isinstance(step.element, Tried)]
        late = [f"{name!r} has after_crashes={after}" for name, after in asked if after is not None and after > times]
        if late:
            return f"{told}; {', '.join(late)}: allow as many restarts by FailureConfig(max_failures=...), or give less"
        known = self._working.get(at, [])
        if len(set(known)) == 1 and (found := [step for step in steps if step.name == known[0]]):
            return (
                f"{told}. It ended in {found[0].name!r} ({found[0].where}), {len(known)} of {len(known)} times that this is known. If a "
                f"record ends the process, on_error='skip', after_crashes={min(times - 1, 2)} there sets such records aside"
            )
        return (
            f"{told}. The functions that run in it: {names}. If a record of theirs ends the process, "
            f"on_error='skip', after_crashes={min(times - 1, 2)} at {'that operator' if len(steps) > 1 else 'it'} sets such records aside"
        )

    def _told_of_workers(self, plan: Plan) -> str:
        steps = [step for stage in plan.stages for step in functions_in(stage)]
        times = self._workers_in_a_row
        if times < 2 or not steps:
            return ""
        which = "that operator" if len(steps) > 1 else "it"
        return (
            f"a worker ended {times} times in a row: it seems to be at the same work. The functions that run in it: {_shown(steps)}. If a "
            f"record of theirs ends the process, on_error='skip', after_crashes={min(times - 1, 2)} at {which} gives it processes of its "
            "own, and sets such records aside"
        )


def how_it_died(told: str) -> str:
    """How a process has ended, in few words, from what Ray tells of the death of its actor.

    >>> how_it_died("The actor died unexpectedly.\\nWorker exits unexpectedly. Worker exits with an exit code 5.")
    'exit status 5'
    >>> how_it_died("The actor died unexpectedly.\\nThe actor is dead because its node has died.")
    'The actor is dead because its node has died'
    """
    if (signal := _SIGNAL.search(told)) is not None:
        return signal[1]
    if (code := _EXIT_CODE.search(told)) is not None:
        return f"exit status {code[1]}"
    if "End of file" in told:
        return "its process ended without a word, as by a signal: SIGKILL where memory runs out, SIGSEGV of native code"
    lines = told.strip().split("\n")
    because = [line for line in lines if " because " in line]
    return (because or lines)[0].strip().rstrip(".")[:HOW_MOST]


def told_place(plan: Plan, name: str, working: str) -> str:
    """Where in a process that has died its end may have come from; "" where only Rayad's code runs in it."""
    if name == PROGRESS:
        return ""
    stages = plan.stages if is_worker(name) else [plan.stage(stage_of(name))]
    steps = [step for stage in stages for step in functions_in(stage) if not working or step.name == working]
    return f"; {'it was in' if working else 'functions in it:'} {_shown(steps)}" if steps else ""


def _shown(steps: Sequence[ApplyStep]) -> str:
    some = ", ".join(f"{step.name!r} ({step.where})" for step in steps[:STEPS_MOST])
    return some if len(steps) <= STEPS_MOST else f"{some} and {len(steps) - STEPS_MOST} more"


def functions_in(stage: Stage) -> list[ApplyStep]:
    """The steps of a stage that call a function of the user's and can set records aside, upstream first."""
    steps = [step for step in reversed(stage.steps) if isinstance(step, ApplyStep)]
    return [step for step in steps if step.element.base and not function_of(step.element).can_repeat]


def isolated_steps(stage: Stage, ended: int) -> list[str]:
    """The names of the steps that run in a process of their own after so many ends in a row."""
    steps = [step for step in functions_in(stage) if isinstance(step.element, Tried)]
    return [step.name for step in steps if step.element.isolated_after(ended)]


__all__ = ["Crashes", "functions_in", "isolated_steps"]
