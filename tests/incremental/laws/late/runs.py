"""One run of the laws of what forgets: a random program over a random history, in rows and in columns, against recomputation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.incremental.event_time.telling import RECORDS, REFUSED, WINDOWS
from tests.incremental.disturbed import Together, figures_of, run_disturbed, together_of
from tests.incremental.field_programs import Form, stream_of
from tests.incremental.laws.late.forms import FIELDS, Record
from tests.incremental.laws.late.programs import FromScratch, Program, built, drawn, history
from tests.incremental.laws.late.times import WHOLE, Times, times_of
from tests.incremental.laws.runs import cut
from tests.incremental.programs import History

FORMS: tuple[Form, ...] = ("rows", "columns", "rows later", "both")
COUNTED = (REFUSED, RECORDS, WINDOWS)
STEPS, CRASHES = 1200, 0.004
"""Steps of a run between which it is disturbed, and the share of them that are followed by a failure."""


def schema_of(times: Times) -> pa.Schema:
    """Of the fields of records and their weights."""
    return pa.schema({"key": pa.string(), "at": times.kind, "n": pa.int64(), "diff": pa.int64()})


def in_names(record: Record) -> dict[str, Any]:
    """A record with fields."""
    return dict(zip(FIELDS, record, strict=True))


@dataclass(frozen=True)
class Late:
    """A random program as one that is run.

    Args:
        program: see there.
        form: as what its records come.
        times: what event times are.
    """

    program: Program
    form: Form
    times: Times = WHOLE

    def build(self, records: rd.Collection) -> rd.Collection:
        """The program on a collection of records with fields."""
        return built(self.program, records)

    def flow(self, changes: History, together: int = 1) -> rd.Dataflow:
        """The dataflow of a history, of which so many epochs are taken together."""
        flow = rd.Dataflow(f"late-{self.form}", epochs_together=together)
        epochs = [[{**in_names(record), "diff": weight} for record, weight in some] for some in changes]
        self.build(stream_of(flow, epochs, schema_of(self.times), self.form).as_collection(diff="diff")).collect("out")
        return flow

    def verify(self, changes: History, collected: Any) -> None:
        """Raise AssertionError unless the table is right after each epoch."""
        given: list[Counter[Any]] = [Counter() for _ in changes]
        for time, (record, weight) in collected:
            given[time.epoch][tuple(record[name] for name in FIELDS)] += weight
        table: Counter[Any] = Counter()
        for epoch, want in enumerate(FromScratch(changes).tables(self.program)):
            table.update(given[epoch])
            got = {record: weight for record, weight in table.items() if weight}
            want_table = {record: weight for record, weight in want.items() if weight}
            assert got == want_table, f"{self.form}, epoch {epoch}: it gives {got}, and must give {want_table}"

    def refused(self, changes: History) -> int:
        """How many changes of a history are late."""
        law = FromScratch(changes)
        law.tables(self.program)
        return law.refused

    def verify_refused(self, changes: History, job: LocalJob) -> None:
        """Raise AssertionError unless as many changes were refused as are late."""
        got, want = figures_of(job)[REFUSED], self.refused(changes)
        assert got == want, f"{self.form}: {got} changes are refused, and {want} are late"


def quick(seed: int) -> Mapping[str, int]:
    """The program of a seed over its history, undisturbed, in each form, with one to three replicas. All forget as much. Raises
    AssertionError where one is wrong; gives what was counted."""
    chance, times = random.Random(seed), times_of(seed)
    program, changes = drawn(chance, times), history(chance, times)
    found = []
    for form in FORMS:
        late = Late(program, form, times)
        job = late.flow(changes).submit(runtime="local", seed=seed, parallelism=1 + seed % 3)
        assert isinstance(job, LocalJob)
        late.verify(changes, job.wait()["out"])
        late.verify_refused(changes, job)
        figures = figures_of(job)
        found.append({what: figures[what] for what in COUNTED})
    assert all(one == found[0] for one in found), f"by form there were forgotten: {dict(zip(FORMS, found, strict=True))}"
    return found[0]


def whole(program: Program, times: Times, chance: random.Random, folder: Path) -> Counter[str]:
    """A program over a history and another cut of it, in one form each, with kills, restores and changes of layout between any two
    moments. What is late follows from the cut, so each has its own tables. As much is forgotten as where nothing happens. Gives how often
    each of these has happened."""
    changes, seen = history(chance, times), Counter({"runs": 1, times.name: 1})
    for number, some in enumerate((changes, cut(changes, chance))):
        late = Late(program, chance.choice(FORMS), times)
        seed = chance.getrandbits(30)
        taken = Together(late, together_of(seed))
        job = run_disturbed(taken, some, seed, folder / str(number), steps=STEPS, crashes=CRASHES)
        late.verify_refused(taken.merged(some), job)
        seen[late.form] += 1
        seen["epochs"] += len(some)
        seen += Counter(event.kind for event in job.journal())
        figures = figures_of(job)
        counted = {what: figures[what] for what in COUNTED}
        calm = taken.flow(some).submit(runtime="local")
        assert isinstance(calm, LocalJob)
        calm.wait()
        want = {what: figures_of(calm)[what] for what in COUNTED}
        assert counted == want, f"{late.form}: {counted} are forgotten, and {want} where nothing happens"
        seen += Counter(counted)
    return seen


def disturbed(seed: int) -> Counter[str]:
    """The run of a seed: see :func:`whole`."""
    chance, times = random.Random(seed), times_of(seed)
    with TemporaryDirectory() as folder:
        return whole(drawn(chance, times), times, chance, Path(folder))


__all__ = ["Late", "disturbed", "in_names", "quick", "schema_of", "whole"]
