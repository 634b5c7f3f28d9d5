"""State as versions before stored it, resumed: shapes that a form has had in snapshots, and has no more."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pyarrow as pa
import pytest

from rayad.actors.worker.state_files import StateFiles
from rayad.dataflow.operators.aggregates.aggregators import Count
from rayad.dataflow.operators.state.runs import disk
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.totals.totals import TotalsInColumns
from rayad.dataflow.operators.windows.columns import WindowColumns
from rayad.dataflow.records.batches import mark_keyed
from rayad.dataflow.windows import Tumbling
from tests.dataflow.forms import FORMS


def _partials(keys: list[int], moments: list[int] | None = None) -> pa.RecordBatch:
    """Counts by key, and by moment where there are any."""
    columns = {"k": keys, **({"t": moments} if moments else {}), "n": [1] * len(keys)}
    return mark_keyed(pa.record_batch(columns), 1)


def test_windows_in_columns_were_stored_as_one_schema_and_its_runs() -> None:
    windows, again = (WindowColumns(Count(), Tumbling(10)) for _ in range(2))
    windows.takes([_partials([1], [3])])
    windows.accept([_partials([1, 2], [3, 4])], None)
    assert windows.take_changes() is None
    schemas, parts = windows.checkpoint()
    windows.accept([_partials([1], [5])], None)
    changed = windows.take_changes()
    assert changed is not None
    again.restore((schemas[0], parts[0]))
    again.restore_changes(changed()[0])
    assert again.taken(None).open == windows.taken(None).open != {}


def test_totals_in_columns_were_stored_with_the_schema_among_them() -> None:
    totals, again = (TotalsInColumns(Count()) for _ in range(2))
    totals.merge(_partials([7, 8]))
    assert totals.take_changes() is None
    schemas, parts = totals.checkpoint()
    totals.merge(_partials([8, 9]))
    changed = totals.take_changes()
    assert changed is not None
    again.restore({"schema": schemas[0], **parts[0]})
    again.restore_changes(changed()[0])
    assert again.as_rows() == totals.as_rows() == {7: 1, 8: 2, 9: 1}


class Names(pickle.Unpickler):
    """Notes which of our classes and functions a pickle names."""

    found: set[str]

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("rayad."):
            self.found.add(f"{module}.{name}")
        return super().find_class(module, name)


STATE = "rayad.dataflow.operators.state"
EVERYWHERE = {f"{STATE}.stored_columns._unchanging", "rayad.progress.timestamp._of"}


@pytest.mark.parametrize(
    ("bytes_max", "named"),
    [
        (None, {*EVERYWHERE, f"{STATE}.stored_rows.ByPosition"}),
        (0, {*EVERYWHERE, f"{STATE}.runs.above_runs.Beyond", f"{STATE}.waiting_in_pieces.PartInRuns"}),
    ],
)
def test_what_snapshots_name_is_where_it_was(bytes_max: int | None, named: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where any of it is called otherwise, or is elsewhere, no snapshot of before can be read."""
    monkeypatch.setattr(disk, "FILE_BYTES_MIN", 1)
    names: set[str] = set()
    for form in FORMS:
        state = form.make()
        form.put(state, [(1, 2, 3), (4, 5, 6)])
        if form.name == "GrowingDict":  # numbers alone are stored by position
            with state.changing(["a"]) as kept:
                kept.clear()
                kept["a"] = 1
        if bytes_max is not None:
            MemoryBound(bytes_max, StateFiles("state", None)).hold([state])
        state.take_changes()
        reader = Names(io.BytesIO(pickle.dumps(state.checkpoint(), 5)))
        reader.found = names
        reader.load()
    assert names == named
