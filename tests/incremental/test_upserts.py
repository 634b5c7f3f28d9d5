"""The newest record of each key, in rows and in columns: the same table after each epoch, whatever happens meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.batches import rows_at
from rayad.incremental.columns import weighted_runs
from rayad.incremental.columns.newest import NewestColumns
from rayad.incremental.columns.reducing import Gathered
from rayad.incremental.inputs.sources import Upsert
from rayad.incremental.records import as_record, in_contents
from rayad.incremental.steps import Field
from tests.incremental.disturbed import run_disturbed
from tests.incremental.field_programs import Form, stream_of
from tests.incremental.programs import History
from tests.thorough import amount, by_turns

SEEDS = amount(each_run=12, soak=300)
FORMS: tuple[Form, ...] = ("rows", "columns", "both", "rows later")
SCHEMA = pa.schema({"id": pa.string(), "at": pa.int64(), "gone": pa.bool_(), "n": pa.int64()})
Epochs = list[list[dict[str, Any]]]


def epochs_of(seed: int, *, ordered: bool) -> Epochs:
    """Random records: some come late, some are equal in order, some say that their key is gone, or do not say whether."""
    chance, out = random.Random(seed), []
    for epoch in range(6):
        keys = [chance.choice("abcdefg") for _ in range(chance.randrange(9))]
        keys = keys if ordered else sorted(set(keys))
        some = [(key, epoch + chance.randrange(-2, 3), chance.choice([True, False, None]), chance.randrange(3)) for key in keys]
        out.append([dict(zip(SCHEMA.names, each, strict=True)) for each in some])
    return out


def tables_after(epochs: Epochs, *, ordered: bool) -> list[Counter[Any]]:
    """What is there after each epoch."""
    newest_of: dict[str, tuple[Any, Any]] = {}
    out = []
    for epoch, records in enumerate(epochs):
        for record in map(as_record, records):
            place = (record["at"] if ordered else 0, epoch, in_contents(record))
            if record["id"] not in newest_of or place >= newest_of[record["id"]][0]:
                newest_of[record["id"]] = place, record
        out.append(Counter(record for _, record in newest_of.values() if not record["gone"]))
    return out


@dataclass(frozen=True)
class Upserts:
    """The newest of random records."""

    form: Form
    ordered: bool
    epochs: Epochs

    def flow(self, changes: History) -> rd.Dataflow:
        """See ``disturbed.Program``."""
        flow = rd.Dataflow("upserts")
        order = "at" if self.ordered else None
        stream_of(flow, self.epochs, SCHEMA, self.form).as_collection(key="id", order=order, deleted="gone", name="newest").collect("out")
        return flow

    def verify(self, changes: History, collected: Any) -> None:
        """See there."""
        there: Counter[Any] = Counter()
        given = [(time.epoch, record, weight) for time, (record, weight) in collected]
        for epoch, wanted in enumerate(tables_after(self.epochs, ordered=self.ordered)):
            for at, record, weight in given:
                if at == epoch:
                    there[as_record(record)] += weight
            assert there == wanted, f"epoch {epoch}: {there} instead of {wanted}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ordered", [True, False])
def test_tables_are_those_of_a_model(form: Form, ordered: bool) -> None:
    for seed in range(SEEDS):
        program = Upserts(form, ordered, epochs_of(seed, ordered=ordered))
        out = program.flow([]).run(runtime="local", seed=seed, parallelism=1 + seed % 3)["out"]
        program.verify([], out)


@by_turns(2)
@pytest.mark.parametrize("form", FORMS)
def test_failures_and_changes_of_layout_change_nothing(form: Form, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        ordered = seed % 2 == 0
        run_disturbed(Upserts(form, ordered, epochs_of(seed, ordered=ordered)), [[] for _ in range(6)], seed, tmp_path / str(seed))


def test_columns_stay_columns() -> None:
    """Also where keys have equal places and records equal codes."""
    zero = lambda self, rows: np.zeros(rows.num_rows, np.uint64)  # noqa: E731
    for equal in (False, True):
        made: list[Upsert] = []
        first = Upsert.__init__

        def init(self: Upsert, *args: Any, first: Any = first, made: list[Upsert] = made) -> None:
            first(self, *args)
            made.append(self)

        with patch.object(Upsert, "__init__", init):
            with patch.object(weighted_runs.WeightedRuns, "places", zero if equal else weighted_runs.WeightedRuns.places):
                for seed in range(SEEDS):
                    program = Upserts("columns", True, epochs_of(seed, ordered=True))
                    program.verify([], program.flow([]).run(runtime="local", parallelism=1)["out"])
        assert made
        assert not any(each.newest.kept for each in made)


def test_what_has_no_form_in_columns_is_rows() -> None:
    """An order that is null for some record is compared by Python, which says what is wrong."""
    flow = rd.Dataflow("null")
    table = pa.table({"id": [1, 1], "at": pa.array([1, None], pa.int64())})
    flow.from_arrow(table).as_collection(key="id", order="at").collect("out")
    with pytest.raises(rd.DataflowError, match=r"'[<>]' not supported"):
        flow.run(runtime="local")


def test_what_was_stored_before_there_were_columns_is_resumed() -> None:
    """By functions there are none, as there were none then."""
    before, now = Upsert(len, None), Upsert(Field("at"), Field("gone"))
    record = as_record({"id": "a", "at": 1, "gone": False})
    with before.newest.changing(["a"]) as kept:
        kept["a"] = record
    stored = before.checkpoint()
    before.take_changes()
    with before.newest.changing(["b"]) as kept:
        kept["b"] = record
    changed = before.take_changes()
    now.restore(stored)
    assert changed is not None
    now.restore_changes(changed())
    assert "columns" not in stored
    assert dict(now.newest.kept) == {"a": record, "b": record}


def _first(self: NewestColumns, gathered: Gathered, come: Run) -> pa.Array:
    rows, which = gathered.found(self.inputs["newest"].now, come)
    return rows_at(come.rows.column(1), rows[np.unique(which, return_index=True)[1]])


PLANTED: dict[str, Any] = {
    "_is_older": lambda self, new, old: np.zeros(len(old), np.bool_),
    "are_gone": lambda self, records: np.zeros(len(records), np.bool_),
    "_newest_of": _first,
}


def run_all() -> None:
    """Forty programs."""
    for seed in range(40):
        program = Upserts("columns", True, epochs_of(seed, ordered=True))
        program.verify([], program.flow([]).run(runtime="local", parallelism=1)["out"])


@pytest.mark.parametrize("what", PLANTED)
def test_the_model_finds_what_is_planted(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NewestColumns, what, PLANTED[what])
    with pytest.raises(AssertionError):
        run_all()
