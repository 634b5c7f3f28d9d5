"""Change data capture: Debezium's messages in rows and in columns, also as JSON that comes with them, give the table that is there."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import rayad as rd
from rayad.incremental.inputs.envelopes import BeginEnvelopes
from rayad.incremental.inputs.sources import Upsert
from rayad.incremental.records import as_record
from tests.incremental.disturbed import run_disturbed
from tests.incremental.field_programs import Form, stream_of
from tests.incremental.programs import History
from tests.thorough import amount, by_turns

SEEDS = amount(each_run=8, soak=200)
FORMS: tuple[Form, ...] = ("rows", "columns", "both", "rows later")
ROW = pa.struct([("id", pa.int64()), ("name", pa.string()), ("n", pa.float64())])
SCHEMA = pa.schema([("before", ROW), ("after", ROW), ("op", pa.string()), ("lsn", pa.int64())])
Epochs = list[list[dict[str, Any]]]


def log_of(seed: int) -> tuple[Epochs, list[Counter[Any]]]:
    """Envelopes by epoch, in any order within one, and the table after each."""
    chance, there, lsn = random.Random(seed), dict[int, dict[str, Any]](), 0
    epochs, tables = [], []
    for _ in range(6):
        some: list[dict[str, Any]] = []
        for _ in range(chance.randrange(9)):
            lsn += 1
            key = chance.randrange(5)
            before = there.get(key)
            after = {"id": key, "name": chance.choice(["ann", None]), "n": chance.choice([0.0, 1.5, None])}
            if before is not None and chance.random() < 0.4:
                op, after = "d", None  # type: ignore[assignment]
                del there[key]
            else:
                op = "c" if before is None else chance.choice("ur")
                there[key] = after
            some.append({"before": before, "after": after, "op": op, "lsn": lsn})
            if chance.random() < 0.2:
                some.append({"before": None, "after": None, "op": chance.choice(["m", None]), "lsn": None})
        chance.shuffle(some)
        epochs.append(some)
        tables.append(Counter(map(as_record, there.values())))
    return epochs, tables


@dataclass(frozen=True)
class Captured:
    """The table of a random log."""

    form: Form
    epochs: Epochs
    tables: list[Counter[Any]]

    def flow(self, changes: History) -> rd.Dataflow:
        """See ``disturbed.Program``."""
        flow = rd.Dataflow("captured")
        rows = stream_of(flow, self.epochs, SCHEMA, self.form).as_collection(key="id", order="lsn", envelope="debezium", name="newest")
        rows.collect("out")
        return flow

    def verify(self, changes: History, collected: Any) -> None:
        """See there."""
        there: Counter[Any] = Counter()
        given = [(time.epoch, record, weight) for time, (record, weight) in collected]
        for epoch, wanted in enumerate(self.tables):
            for at, record, weight in given:
                if at == epoch:
                    there[as_record(record)] += weight
            assert +there == wanted, f"epoch {epoch}: {there} instead of {wanted}"
            assert all(weight >= 0 for weight in there.values())


@pytest.mark.parametrize("form", FORMS)
def test_tables_are_those_of_a_model(form: Form) -> None:
    for seed in range(SEEDS):
        program = Captured(form, *log_of(seed))
        program.verify([], program.flow([]).run(runtime="local", seed=seed, parallelism=1 + seed % 3)["out"])


@by_turns(2)
@pytest.mark.parametrize("form", FORMS)
def test_failures_and_changes_of_layout_change_nothing(form: Form, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        run_disturbed(Captured(form, *log_of(seed)), [[] for _ in range(6)], seed, tmp_path / str(seed))


def test_columns_stay_columns() -> None:
    rows: list[Any] = []
    kept: list[Upsert] = []
    apply, init = BeginEnvelopes.apply, Upsert.__init__

    def applied(self: BeginEnvelopes, batch: Any) -> Any:
        out = apply(self, batch)
        if isinstance(out, list):
            rows.extend(out)
        return out

    def made(self: Upsert, *args: Any) -> None:
        init(self, *args)
        kept.append(self)

    with patch.object(BeginEnvelopes, "apply", applied), patch.object(Upsert, "__init__", made):
        for seed in range(SEEDS):
            program = Captured("columns", *log_of(seed))
            program.verify([], program.flow([]).run(runtime="local", parallelism=1)["out"])
    assert not rows
    assert kept
    assert not any(each.newest.kept for each in kept)


@pytest.mark.parametrize("payload", [False, True])
@pytest.mark.parametrize("key", ["id", lambda row: row["id"]])
def test_messages_with_json_in_them_are_a_table_of_sql(payload: bool, key: Any) -> None:
    """Tombstones, which have no value, come behind removals."""
    schema = pa.schema([("payload", pa.struct(list(SCHEMA)))]) if payload else SCHEMA
    for seed in range(3):
        epochs, tables = log_of(seed)
        texts = [
            (epoch, None if one["op"] is None else json.dumps({"payload": one, "schema": {"fields": []}} if payload else one).encode())
            for epoch, some in enumerate(epochs)
            for one in some
        ]
        messages = pa.table({"epoch": [epoch for epoch, _ in texts], "value": pa.array([text for _, text in texts], pa.binary())})
        flow = rd.Dataflow("kafka")
        parsed = flow.from_arrow(messages, epoch="epoch", batch_rows=4).parse_json("value", schema).select("value").unnest("value")
        people = parsed.as_collection(key=key, order="lsn", envelope="debezium")
        assert people.schema == pa.schema(list(ROW))
        flow.sql("select name, count(*) as n, sum(n) as total from people group by name", people=people).collect("out")
        *_, (_, last) = rd.Collection.tables(flow.run(runtime="local", parallelism=2, seed=seed)["out"])
        wanted: dict[Any, tuple[int, float | None]] = {}
        for record, weight in tables[-1].items():
            count, total = wanted.get(record["name"], (0, None))
            more = None if record["n"] is None else record["n"] * weight
            wanted[record["name"]] = count + weight, more if total is None else total + (more or 0)
        assert {row["name"]: (row["n"], row["total"]) for row in last} == wanted


def test_sides_of_unlike_columns_are_rows() -> None:
    """A connector that logs only keys before: of a removal there is the key."""
    before = pa.struct([("id", pa.int64())])
    table = pa.table(
        {
            "before": pa.array([None, {"id": 1}], before),
            "after": pa.array([{"id": 1, "name": "ann", "n": None}, None], ROW),
            "op": ["c", "d"],
            "lsn": [1, 2],
            "epoch": [0, 1],
        }
    )
    flow = rd.Dataflow("unlike")
    flow.from_arrow(table, epoch="epoch").as_collection(key="id", order="lsn", envelope="debezium").collect("out")
    changes = [(time.epoch, record, weight) for time, (record, weight) in flow.run(runtime="local")["out"]]
    assert changes == [(0, {"id": 1, "name": "ann", "n": None}, 1), (1, {"id": 1, "name": "ann", "n": None}, -1)]


@pytest.mark.parametrize(
    ("op", "before", "after", "says"),
    [
        ("t", None, None, "of a table that is truncated"),
        ("d", None, {"id": 1, "name": "a", "n": 1.0}, "the field 'before' of an envelope with op='d' is missing"),
        ("u", {"id": 1, "name": "a", "n": 1.0}, None, "the field 'after' of an envelope with op='u' is missing"),
        (None, None, {"id": 1, "name": "a", "n": 1.0}, "op=None"),
    ],
)
def test_what_is_no_change_of_a_row_is_refused(op: Any, before: Any, after: Any, says: str) -> None:
    flow = rd.Dataflow("wrong")
    good = {"before": None, "after": {"id": 1, "name": "a", "n": 1.0}, "op": "c", "lsn": 1}
    table = pa.Table.from_pylist([good, {"before": before, "after": after, "op": op, "lsn": 2}], SCHEMA)
    flow.from_arrow(table).as_collection(key="id", order="lsn", envelope="debezium").collect("out")
    with pytest.raises(rd.DataflowError, match=says):
        flow.run(runtime="local")
