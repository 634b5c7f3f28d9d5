"""``map_batches`` of collections gives what ``map`` does, in all forms, whatever happens; what is remembered is taken back."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rayad as rd
from rayad.incremental import moment_vertex
from tests.incremental.disturbed import run_disturbed
from tests.incremental.field_programs import SCHEMA, Form, InFields, stream_of
from tests.incremental.programs import Shape, history
from tests.incremental.test_beginnings import table_of
from tests.thorough import amount

FORMS: tuple[Form, ...] = ("rows", "columns", "both", "rows later")
EPOCHS = [
    [{"src": 1, "dst": 2, "diff": 1}, {"src": 2, "dst": 5, "diff": 2}, {"src": 3, "dst": 3, "diff": 1}],
    [{"src": 2, "dst": 5, "diff": -1}, {"src": 4, "dst": 4, "diff": 1}],
    [{"src": 1, "dst": 2, "diff": -1}, {"src": 2, "dst": 5, "diff": -1}],
]
"""Changes of edges."""
LEFT = {(3, 6): 1, (4, 8): 1}
"""What :func:`in_columns` and the others make of what is there at the end."""


def in_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"node": batch.column("src"), "sum": pc.add(batch.column("src"), batch.column("dst"))})


def in_rows(batch: list[Any]) -> list[Any]:
    return [{"node": edge["src"], "sum": edge["src"] + edge["dst"]} for edge in batch]


def in_numpy(batch: dict[str, Any]) -> dict[str, Any]:
    return {"node": batch["src"], "sum": batch["src"] + batch["dst"]}


def in_a_frame(frame: Any) -> Any:
    return frame.assign(node=frame["src"], sum=frame["src"] + frame["dst"])[["node", "sum"]]


def as_it_comes(batch: Any) -> Any:
    return in_columns(batch) if isinstance(batch, pa.RecordBatch) else in_rows(batch)


FUNCTIONS: dict[str | None, Callable[[Any], Any]] = {
    "pyarrow": in_columns, "rows": in_rows, "numpy": in_numpy, "pandas": in_a_frame, None: as_it_comes,
}  # fmt: skip


def result_of(build: Callable[[rd.Collection], rd.Collection], form: Form = "columns", epochs: Any = EPOCHS) -> dict[Any, int]:
    flow = rd.Dataflow("batches")
    build(stream_of(flow, epochs, SCHEMA, form).as_collection(diff="diff")).collect("out")
    return table_of(flow.run(runtime="local", parallelism=2)["out"])


def by_node(table: dict[Any, int]) -> dict[Any, int]:
    return {(record["node"], record["sum"]): weight for record, weight in table.items()}


@pytest.mark.parametrize("remember", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch_format", FUNCTIONS)
def test_each_form_gives_the_same(batch_format: Any, form: Form, remember: bool) -> None:
    function = FUNCTIONS[batch_format]
    assert by_node(result_of(lambda edges: edges.map_batches(function, batch_format=batch_format, remember=remember), form)) == LEFT


def test_columns_stay_columns() -> None:
    with patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}")):
        found = result_of(lambda edges: edges.map_batches(in_columns).key_by("node").sum("sum"))
    assert found == {(3, 6): 1, (4, 8): 1}


def test_parts_of_tuples_are_columns() -> None:
    def swapped(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"a": batch.column("1"), "b": batch.column("0")})

    for form in FORMS:
        found = result_of(lambda edges: edges.key_by("src").count().map_batches(swapped, batch_format="pyarrow"), form)
        assert {(record["a"], record["b"]): weight for record, weight in found.items()} == {(1, 3): 1, (1, 4): 1}


@pytest.mark.parametrize("form", FORMS)
def test_records_of_other_types_than_arrows_are_rows(form: Form) -> None:
    found = result_of(
        lambda edges: edges.map_batches(lambda edges: [frozenset((e["src"], e["dst"])) for e in edges], batch_format="rows"), form
    )
    assert found == {frozenset((3,)): 1, frozenset((4,)): 1}


@dataclass
class Model:
    """Made once in each replica."""

    factor: int

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"node": batch.column("src"), "sum": pc.multiply(batch.column("dst"), self.factor)})


@pytest.mark.parametrize("remember", [False, True])
def test_a_class_is_made_in_the_replica(remember: bool) -> None:
    def scored(edges: rd.Collection) -> rd.Collection:
        return edges.map_batches(Model, batch_format="pyarrow", fn_constructor_kwargs={"factor": 10}, remember=remember, num_cpus=0.1)

    with pytest.warns(UserWarning, match=r"'map_batches' \(num_cpus=0.1\) does nothing in the local runtime"):
        assert by_node(result_of(scored)) == {(3, 30): 1, (4, 40): 1}


@pytest.mark.parametrize("remember", [False, True])
@pytest.mark.parametrize(("function", "gave"), [(lambda batch: batch.slice(1), "fewer"), (lambda batch: [1] * (len(batch) + 1), "more")])
def test_as_many_records_as_were_given(function: Any, gave: str, remember: bool) -> None:
    with pytest.raises(rd.DataflowError, match=r"was given \d+ records and gave \d+; it has to give one for each, in their order.*filter"):
        result_of(lambda edges: edges.map_batches(function, batch_format="pyarrow", remember=remember))


def test_nan_is_refused() -> None:
    with pytest.raises(rd.DataflowError, match="has NaN in it"):
        result_of(lambda edges: edges.map_batches(lambda batch: {"x": np.full(batch.num_rows, np.nan)}))


def test_what_cannot_be_called_is_refused_where_it_is_written() -> None:
    edges = rd.Dataflow("wrong").collection("edges")
    with pytest.raises(rd.DataflowError, match="map_batches"):
        edges.map_batches(1)  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match="batch_format"):
        edges.map_batches(in_columns, batch_format="arrow")  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match=r"map_batches\(remember=True\): the collection is inside a loop"):
        edges.iterate(lambda inner: inner.map_batches(in_columns, remember=True))


CALLS = itertools.count()


def numbered(batch: list[Any]) -> list[Any]:
    """Not the same again."""
    return [(record, next(CALLS)) for record in batch]


def test_what_a_batch_gave_is_taken_back(tmp_path: Path) -> None:
    flow = rd.Dataflow("kept")
    flow.collection("rows").map_batches(numbered, batch_format="rows", remember=True, name="kept").changes().probe("seen").collect("out")
    config = rd.RunConfig(storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s=None))
    job = flow.submit(config, runtime="local", parallelism=2)
    sent = job.collection("rows")
    sent.insert(["a", "b", "a", *range(10)])
    sent.advance_to(1)
    job.probe("seen").wait(0)
    job.savepoint()
    job.crash()  # type: ignore[attr-defined]
    job.start_rescale({"kept": 3})  # type: ignore[attr-defined]
    sent.remove(["a", "a", *range(10)])
    sent.close()
    changes = [change for _, change in job.wait()["out"]]
    assert [record for (record, _), weight in table_of(job.wait()["out"]).items() if weight] == ["b"]
    assert Counter(weight for _, weight in changes) == {2: 1, -2: 1, 1: 11, -1: 10}


def downwards(batch: Any) -> Any:
    """Edges from the larger node to the smaller one."""
    if not isinstance(batch, pa.RecordBatch):
        return [{"src": max(edge["src"], edge["dst"]), "dst": min(edge["src"], edge["dst"])} for edge in batch]
    ends = batch.column("src"), batch.column("dst")
    return pa.record_batch({"src": pc.max_element_wise(*ends), "dst": pc.min_element_wise(*ends)})


def chains(edges: rd.Collection) -> rd.Collection:
    """From where to where edges lead one after another, as pairs: a loop whose body has a function of batches, and one behind it that is
    remembered."""
    down = edges.map_batches(downwards).distinct()

    def further(inner: rd.Collection) -> rd.Collection:
        met = inner.key_by("dst").join(down.key_by("src")).map_batches(end_to_end)
        return met.concat(inner).distinct()

    return down.iterate(further).map_batches(as_pairs, remember=True)


def end_to_end(batch: Any) -> Any:
    if not isinstance(batch, pa.RecordBatch):
        return [{"src": left["src"], "dst": right["dst"]} for _, (left, right) in batch]
    left, right = batch.column("1").flatten()
    return pa.record_batch({"src": left.field("src"), "dst": right.field("dst")})


def as_pairs(batch: list[Any]) -> list[Any]:
    return [(edge["src"], edge["dst"]) for edge in batch]


def chains_of(there: Counter[Any]) -> dict[Any, int]:
    """The same, from scratch."""
    found = {(max(edge), min(edge)) for edge in there}
    while longer := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= longer
    return dict.fromkeys(found, 1)


@pytest.mark.parametrize("form", FORMS)
def test_batches_in_loops_are_right_whatever_happens(form: Form, tmp_path: Path) -> None:
    program = InFields("chains", chains, chains_of, Shape(nodes=7, edges=6, epochs=12), form)
    for seed in range(amount(each_run=3, soak=100)):
        changes = history(program.shape, seed)
        program.verify(changes, program.flow(changes).run(runtime="local", parallelism=2)["out"])
        run_disturbed(program, changes, seed, tmp_path / str(seed))
