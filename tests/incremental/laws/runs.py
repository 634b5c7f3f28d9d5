"""One run of the laws: a random program over a random history, cut into epochs in two ways, each disturbed, against recomputation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.incremental.moment_vertex import MomentVertex
from rayad.incremental.records import Row
from tests.incremental.disturbed import Together, run_disturbed, together_of
from tests.incremental.field_programs import Form, InFields
from tests.incremental.laws import programs
from tests.incremental.laws.in_sql import IN_SQL
from tests.incremental.laws.inputs import IN_FIELDS_TOLD, IN_PAIRS, AsChanges, OfLog
from tests.incremental.laws.operators import IN_COLUMNS, NODES, Edge
from tests.incremental.laws.programs import OF_COLUMNS, OF_ROWS, Program, built, computed, history
from tests.incremental.programs import History, Kept, Shape

IN_FIELDS: tuple[Form, ...] = ("columns", "columns", "both", "rows later")
NOTIFICATIONS = 20_000
"""No right run needs more in one process, a disturbed one included; a wrong rule may go on for ever."""
UNDISTURBED = 4000
"""Of runs to which nothing happens."""
STEPS = 2000
"""Of a run, between which it is disturbed."""
CRASHES = 0.002
"""The share of steps that are followed by a failure: more, and a long run hardly goes on."""


def drawn(chance: random.Random, form: Form | None = None) -> tuple[Form, Program]:
    """A random program, and as what its records come: pairs in rows, or records with fields in columns or in both. ``form``: this one."""
    form = form or ("rows" if chance.random() < 0.5 else chance.choice(IN_FIELDS))
    return form, programs.drawn(chance, OF_ROWS if form == "rows" else OF_COLUMNS)


def program_of(form: Form, program: Program, told: str = "changes") -> Kept:
    """As a program of one input, with its table from scratch. ``told``: how edges are told, see :class:`AsChanges` and
    :data:`IN_FIELDS_TOLD`."""

    def table(there: Counter[Any]) -> dict[Edge, int]:
        return {edge: weight for edge, weight in computed(program, there, {}).items() if weight}

    if form == "rows":
        return AsChanges("random", lambda edges: built(program, edges), table, Shape(NODES, 0, 0), told)

    def of_fields(there: Counter[Any]) -> dict[Any, int]:
        return {Row(src=a, dst=b): weight for (a, b), weight in table(there).items()}

    how = IN_SQL if told == "sql" else IN_COLUMNS
    made = OfLog if told == "a log" else InFields
    return made("random", lambda edges: built(program, edges, how), of_fields, Shape(NODES, 0, 0), form)


def cut(changes: History, chance: random.Random) -> History:
    """The same changes, in the same order, in other epochs."""
    one_by_one = [change for some in changes for change in some]
    share = chance.random()
    out: History = [[]]
    for change in one_by_one:
        if out[-1] and chance.random() < share:
            out.append([])
        out[-1].append(change)
    return out


def end_of(collected: Any) -> dict[Any, int]:
    """The table at the end."""
    table: Counter[Any] = Counter()
    for _, (record, weight) in collected:
        table[record] += weight
    return {record: weight for record, weight in table.items() if weight}


def quick(seed: int, form: Form | None = None) -> None:
    """The program of a seed over its history, in a form or in any, undisturbed, with one to three replicas. Raises AssertionError where it
    is wrong."""
    chance = random.Random(seed)
    program, changes = program_of(*drawn(chance, form)), history(chance)
    job = program.flow(changes).submit(runtime="local", seed=seed, parallelism=1 + seed % 3)
    program.verify(changes, job.wait()["out"])


def whole(program: Kept, chance: random.Random, folder: Path) -> Counter[str]:
    """A program over a history and another cut of it, with kills, restores and changes of layout between any two moments; each table is
    that from scratch after each epoch, and at the end they are the same. Gives how often each of these has happened."""
    changes = history(chance)
    ends, seen = [], Counter(runs=1)
    for number, some in enumerate((changes, cut(changes, chance))):
        seed = chance.getrandbits(30)
        taken = Together(program, together_of(seed))
        job: LocalJob = run_disturbed(taken, some, seed, folder / str(number), steps=STEPS, crashes=CRASHES)
        ends.append(end_of(job.wait()["out"]))
        seen["epochs"] += len(some)
        seen += Counter(event.kind for event in job.journal())
    assert ends[0] == ends[1], f"two cuts of one history end in {ends[0]} and {ends[1]}"
    return seen


def disturbed(seed: int, form: Form | None = None) -> Counter[str]:
    """The run of a seed, in a form or in any: see :func:`whole`."""
    chance = random.Random(seed)
    form, program = drawn(chance, form)
    told = chance.choice(IN_PAIRS if form == "rows" else IN_FIELDS_TOLD)
    with TemporaryDirectory() as folder:
        seen = whole(program_of(form, program, told), chance, Path(folder))
    return seen + Counter({f"loops in {form}" if told == "changes" else f"loops of {told} in {'rows' if form == 'rows' else 'fields'}": 1})


def first_found(
    plant: Callable[[ExitStack], None], seeds: range, run: Callable[[int], Any] = quick, notifications: int = NOTIFICATIONS
) -> int | None:
    """The first of these seeds that shows a wrong rule, also by more than so many notifications; None: none does."""
    handled = 0
    notified = MomentVertex.on_notify

    def counting(self: MomentVertex, time: rd.Timestamp) -> None:
        nonlocal handled
        handled += 1
        assert handled < notifications, "it goes on for ever"
        notified(self, time)

    with ExitStack() as stack:
        plant(stack)
        stack.enter_context(patch.object(MomentVertex, "on_notify", counting))
        for seed in seeds:
            handled = 0
            try:
                run(seed)
            except Exception:
                return seed
    return None


__all__ = ["UNDISTURBED", "cut", "disturbed", "drawn", "first_found", "program_of", "quick", "whole"]
