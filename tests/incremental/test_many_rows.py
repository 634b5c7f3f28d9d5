"""Many rows at once go through columns where Arrow has their types; what comes out is what it is without, and of the same Python types."""

from __future__ import annotations

import enum
import math
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.dataflow.records.values import values_of
from rayad.incremental.columns import from_rows
from rayad.incremental.columns.from_rows import column_of
from rayad.incremental.moment_vertex import MomentVertex
from tests.incremental.programs import History
from tests.thorough import amount

Build = Callable[[rd.Collection, rd.Collection], rd.Collection]
ODD: dict[str, list[Any]] = {
    "int or float": [1, 2.5],
    "int or bool": [1, True],
    "beyond 64 bits": [1, 1 << 63],
    "Decimal": [Decimal("1.0"), Decimal("1.00")],
    "half a pair": ["a", "\ud800"],
    "NaN": [math.nan],
    "tuples of two sizes": [(1,), (1, 2)],
    "empty tuples": [(), ()],
    "None for a tuple": [(1,), None],
    "other fields": [{"a": 1}, {"b": 1}],
    "more fields": [{"a": 1}, {"a": 1, "b": 1}],
    "no fields": [{}],
    "fields of a tuple": [{"0": 1}],
    "names that are no texts": [{1: 1}],
    "a list": [[1]],
    "a subclass of int": [enum.IntEnum("Number", "one")(1)],
}
FINE: list[list[Any]] = [
    [1, None, -(1 << 63)],
    [True, None],
    ["ä", None, ""],
    [0.5, None, math.inf],
    [None, None],
    [(1, ("a", None)), (2, ("b", 2.5))],
    [{"a": 1, "b": (None, "x")}, {"b": (None, "y"), "a": 2}],
]


@pytest.mark.parametrize("what", ODD)
def test_what_has_no_type_of_arrows_stays_in_rows(what: str) -> None:
    assert column_of(ODD[what]) is None


@pytest.mark.parametrize("values", FINE, ids=str)
def test_columns_give_back_what_was_there(values: list[Any]) -> None:
    column = column_of(values)
    assert column is not None
    again = values_of(column)
    assert again == values
    kinds = [[dict if isinstance(value, dict) else type(value) for value in some] for some in (values, again)]
    assert kinds[0] == kinds[1]


def test_minus_zero_is_zero() -> None:
    column = column_of([-0.0])
    assert column is not None
    assert math.copysign(1, column[0].as_py()) == 1


BUILDS: dict[str, Build] = {
    "join": lambda a, b: a.key_by("k").join(b.key_by("k")),
    "left join by a function": lambda a, b: a.key_by(lambda r: r["k"]).join(b.key_by(lambda r: r["k"]), "left"),
    "counts": lambda a, b: a.key_by("k").count(),
    "sums, then the largest": lambda a, b: a.key_by("k").sum("v").map(lambda pair: pair[1] % 7).distinct(),
    "min": lambda a, b: a.key_by("k").min("v"),
    "ranks": lambda a, b: a.key_by("k").rank("v"),
    "a loop": lambda a, b: a.map(lambda r: r["k"]).distinct().iterate(lambda it: it.concat(it.map(lambda k: k // 2)).distinct()),
    "concat": lambda a, b: a.concat(b).distinct(),
}


def _history(chance: random.Random, odd: bool) -> History:
    """A large epoch, and others that are small or large; ``odd``: now and then a value that columns do not take."""
    there: list[Any] = []
    out: History = []
    for epoch in range(5):
        some: list[tuple[Any, int]] = []
        for _ in range(60 if epoch in (0, chance.randrange(5)) else 3):
            record = {"k": chance.randrange(12), "v": chance.randrange(9)}
            if odd and epoch and chance.random() < 0.1:
                record["v"] = chance.choice([0.5, 1 << 70, 3.0])  # type: ignore[assignment]
            there.append(record)
            some.append((record, 1))
        some += [(there.pop(chance.randrange(len(there))), -1) for _ in range(40 if epoch == 3 else 2)]
        out.append(some)
    return out


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("seed", range(amount(each_run=4, soak=150)))
def test_the_tables_are_those_of_rows(build: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for many in (1 << 30, 25):
        monkeypatch.setattr("rayad.incremental.columns.steps.MANY", many)
        monkeypatch.setattr("rayad.incremental.moment_vertex.MANY", many)
        chance = random.Random(seed)
        histories = [_history(chance, odd=seed % 2 == 1) for _ in range(2)]
        flow = rd.Dataflow("many")
        sides = [
            flow.from_epochs([[{**record, "n": weight} for record, weight in some] for some in history]).as_collection(diff="n")
            for history in histories
        ]
        BUILDS[build](*sides).collect("out")
        changes: dict[int, Counter[Any]] = {}
        for time, (record, weight) in flow.run(runtime="local", seed=seed, parallelism=1 + seed % 3)["out"]:
            changes.setdefault(time.epoch, Counter())[record] += weight
        results.append({epoch: {record: n for record, n in some.items() if n} for epoch, some in changes.items()})
    assert results[0] == results[1]


def test_many_rows_are_kept_in_columns_and_a_few_bring_rows_back() -> None:
    rows = from_rows.MANY
    flow = rd.Dataflow("kept")
    records = flow.collection("records")
    records.key_by(lambda record: record["k"]).count(name="counts").changes().probe("seen").collect("out")
    job = flow.submit(runtime="local", parallelism=1)
    assert isinstance(job, LocalJob)
    (counts,) = (job.cores[stage.id, 0].vertex for stage in job.plan.stages if stage.name == "counts")
    assert isinstance(counts, MomentVertex)
    given = job.collection("records")
    given.insert([{"k": n % 10, "n": n} for n in range(rows)])
    given.advance_to(1)
    assert job.probe("seen").wait(0)
    assert counts.figures() == {"rows of input": 10}
    given.remove([{"k": 3, "n": 3}])
    given.advance_to(2)
    assert job.probe("seen").wait(1)
    assert counts.figures() == {"keys of input": 10}
    given.close()
    table: Counter[Any] = Counter()
    for _, (record, weight) in job.wait()["out"]:
        table[record] += weight
    assert +table == Counter({(key, (rows + 9 - key) // 10 - (key == 3)): 1 for key in range(10)})


def test_records_without_fields_stay_in_rows() -> None:
    flow = rd.Dataflow("kept")
    flow.from_items([(n % 10, n) for n in range(4 * from_rows.MANY)]).as_collection().key_by(lambda pair: pair[0]).count(
        name="counts"
    ).collect("out")
    job = flow.submit(runtime="local", parallelism=1)
    assert isinstance(job, LocalJob)
    (counts,) = (job.cores[stage.id, 0].vertex for stage in job.plan.stages if stage.name == "counts")
    job.wait()
    assert isinstance(counts, MomentVertex)
    assert counts.figures() == {"keys of input": 10}
