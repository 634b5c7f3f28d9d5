"""The benchmark of collections that forget: it measures what forgets, in both forms."""

from __future__ import annotations

import pytest

from benchmarks import collection_lateness
from rayad.dataflow.records.batches import to_rows
from rayad.incremental.records import as_record


@pytest.mark.parametrize("name", collection_lateness.vertices(2))
def test_what_comes_is_forgotten_in_both_forms(name: str) -> None:
    of_rows, of_columns, kind = collection_lateness.vertices(2)[name]
    batches = collection_lateness.changes_of(kind, 5, 20, 40)
    rows = [[tuple(map(as_record, row)) for row in to_rows(batch)] for batch in batches]
    for make, given in ((of_rows, rows), (of_columns, batches)):
        seconds, kept = collection_lateness.measured(make, given, 20, 10)
        assert seconds > 0
        assert kept < 40 * 20
