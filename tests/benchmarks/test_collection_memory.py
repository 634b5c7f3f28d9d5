"""Programs of collections whose memory is measured do not grow while as much goes as comes."""

from __future__ import annotations

import pytest

from benchmarks import collection_memory
from rayad.dataflow.records.remembered import Remembered
from tests.thorough import by_turns


@by_turns(2)
@pytest.mark.parametrize("operator", ["count", "join", "iterate", "as-of join, lateness"])
def test_bytes_do_not_grow_while_as_much_goes_as_comes(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remembered, "ENTRIES_MAX", 640)
    sizes = collection_memory.measured(operator, "rows", 200, 100, 1)
    assert len(sizes.bytes_a_record) == 11
    assert min(sizes.bytes_a_record) > 100
    assert max(sizes.bytes_a_record[6:]) <= 1.2 * max(sizes.bytes_a_record[1:6])
