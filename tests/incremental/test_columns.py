"""Collections in columns give what collections in rows give, whatever happens between two moments."""

from __future__ import annotations

import gc
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.vertex import begin
from rayad.incremental import moment_vertex
from rayad.incremental.columns.form import keyed_changes
from rayad.incremental.moments import END
from rayad.progress import Timestamp
from tests.incremental.disturbed import run_disturbed
from tests.incremental.field_programs import Form, InFields, in_form
from tests.incremental.moments_driven import Engine
from tests.incremental.programs import history
from tests.incremental.test_moments import IN_COLUMNS, OF_FLOATS
from tests.thorough import amount, by_turns, examples

FORMS: tuple[Form, ...] = get_args(Form)


@by_turns(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", range(len(in_form("rows"))), ids=[program.name for program in in_form("rows")])
def test_tables_are_right_after_each_epoch(form: Form, number: int) -> None:
    program = in_form(form)[number]
    for seed in range(amount(each_run=1, soak=100)):
        changes = history(program.shape, seed)
        program.verify(changes, program.flow(changes).run(runtime="local", seed=seed, parallelism=1 + (seed + number) % 3)["out"])


@pytest.mark.parametrize("program", in_form("columns"), ids=lambda program: program.name)
def test_columns_stay_columns(program: InFields) -> None:
    """Through keys, joins, sums, expressions and loops."""
    changes = history(program.shape, 1)
    with patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}")):
        program.verify(changes, program.flow(changes).run(runtime="local", parallelism=2)["out"])


def records_of(name: str, numbers: Any) -> pa.StructArray:
    """Records with one field, which floats sum where the operator is one of floats."""
    return pa.StructArray.from_arrays([pa.array(np.asarray(numbers) * OF_FLOATS.get(name, 1))], names=["v"])


def calls(name: str, rows: int) -> int:
    """How many functions are called, of Python and of C, while a vertex takes so many rows by each input, in two moments of a loop."""
    vertex, found = IN_COLUMNS[name][0](), 0
    begin(vertex, Engine())

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    numbers = pa.array(range(rows))
    record = records_of(name, numbers)
    batches = [keyed_changes(numbers, record, [weight] * rows) for weight in (1, -1)]
    times = [Timestamp(0, (0,)), Timestamp(0, (2,))]
    for batch, time in zip(batches, times, strict=True):
        for port in range(vertex.inputs):
            vertex.on_recv(port, batch, time)
    with patch.object(vertex, "send_by", lambda *_: None):
        sys.setprofile(count)
        for time in (*times, Timestamp(0, (END,))):
            vertex.on_notify(time)
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("name", IN_COLUMNS)
def test_no_function_is_called_for_a_row(name: str) -> None:
    calls(name, 100)  # what is made once
    assert calls(name, 20_000) <= calls(name, 2_000) + 300  # more runs are merged, which calls some


@pytest.mark.parametrize("name", IN_COLUMNS)
def test_no_python_object_is_kept_for_a_row(name: str) -> None:
    vertex = IN_COLUMNS[name][0]()
    begin(vertex, Engine())
    rows = 10_000
    numbers = pa.array(np.arange(rows))
    batch = keyed_changes(numbers, records_of(name, numbers), np.ones(rows, np.int64))
    gc.collect()
    before = sys.getallocatedblocks()
    with patch.object(vertex, "send_by", lambda *_: None):
        for epoch in range(3):
            for port in range(vertex.inputs):
                vertex.on_recv(port, batch, Timestamp(epoch))
            vertex.on_notify(Timestamp(epoch))
    gc.collect()
    assert sys.getallocatedblocks() - before < rows // 10


def test_sums_beyond_64_bits_are_those_of_rows() -> None:
    """A column does not hold them: rows do."""
    big = (1 << 62) - 1
    table = pa.table({"epoch": [0, 1, 1, 2, 3], "k": [1, 1, 1, 2, 1], "v": [big, big, big, 3, big], "diff": [1, 1, 1, 1, -1]})
    flow = rd.Dataflow("beyond")
    records = flow.from_arrow(table, epoch="epoch").select("k", "v", "diff").as_collection(diff="diff")
    records.key_by("k").sum("v").collect("out")
    out = flow.run(runtime="local")["out"]
    assert sorted((time.epoch, *change) for time, change in out) == [
        (0, (1, big), 1),
        (1, (1, big), -1),
        (1, (1, 3 * big), 1),
        (2, (2, 3), 1),
        (3, (1, 2 * big), 1),
        (3, (1, 3 * big), -1),
    ]


def test_nan_is_refused_in_columns_too() -> None:
    flow = rd.Dataflow("nan")
    flow.from_arrow(pa.table({"v": [1.0, float("nan")]})).as_collection().collect("out")
    with pytest.raises(rd.RayadError, match="has NaN in it: NaN equals nothing"):
        flow.run(runtime="local")


def test_weights_are_integers() -> None:
    flow = rd.Dataflow("weights")
    flow.from_arrow(pa.table({"v": [1], "n": ["x"]})).as_collection(diff="n").collect("out")
    with pytest.raises(rd.RayadError, match=r"as_collection\(diff='n'\) was given the weight 'x'"):
        flow.run(runtime="local")
    with pytest.raises(rd.DataflowError, match="was given key and diff"):
        flow.from_items([{"a": 1}]).as_collection(key="a", diff="n")


@examples(each_run=10, soak=1000)
@given(st.sampled_from([program for form in FORMS for program in in_form(form)]), st.integers(0, 1 << 30))
def test_failures_and_changes_of_layout_between_moments_change_no_table(program: InFields, seed: int) -> None:
    """Rows, columns, and both in one job: killed, restored and rescaled."""
    with TemporaryDirectory() as folder:
        run_disturbed(program, history(program.shape, random.Random(seed).randrange(1 << 20)), seed, Path(folder))


@by_turns(3)
@pytest.mark.parametrize("name", IN_COLUMNS)
def test_what_is_kept_does_not_grow_while_as_much_goes_as_comes(name: str) -> None:
    """Runs are merged, and what has come and gone leaves with them."""
    vertex, records, epochs = IN_COLUMNS[name][0](), 100, amount(each_run=300, soak=600)
    begin(vertex, Engine())
    kept = []

    def take(epoch: int, numbers: list[int], weights: list[int]) -> None:
        for port in range(vertex.inputs):
            vertex.on_recv(port, keyed_changes(pa.array(numbers), records_of(name, numbers), np.array(weights)), Timestamp(epoch))
        vertex.on_notify(Timestamp(epoch))
        kept.append(sum(vertex.figures().values()))

    with patch.object(vertex, "send_by", lambda *_: None):
        take(0, list(range(records)), [1] * records)
        for epoch in range(1, epochs):
            take(epoch, [epoch - 1, epoch - 1 + records], [-1, 1])
    assert max(kept[epochs // 2 :]) <= max(kept[: epochs // 2])
    assert max(kept) <= 4 * records * vertex.inputs
