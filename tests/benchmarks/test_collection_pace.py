"""What the benchmark of inputs that run ahead measures is what it says."""

from __future__ import annotations

import pytest

from benchmarks import collection_pace


@pytest.mark.parametrize(("ahead", "begun"), [(None, 200), (8, 9)])
def test_a_source_beside_an_input_that_stands_still(ahead: int | None, begun: int) -> None:
    assert collection_pace.beside(200, ahead)[0] == begun


def test_what_is_timed_is_right_and_said() -> None:
    lines = list(
        collection_pace.by_turns(100, [collection_pace.ANY, collection_pace.How(4), collection_pace.How(64, 8)], 1, runtime="local")
    )
    told = ["any number ahead", "4 ahead", "8 together"]
    assert [line.split(":")[0] for line in lines] == [f"100 epochs, {how}" for how in told]
