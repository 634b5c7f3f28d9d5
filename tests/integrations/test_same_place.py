"""Two sinks that would write over each other are refused when the program is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.progress import DataflowError

Write = Callable[[rd.Stream, str], Any]
WRITES: dict[str, Write] = {
    "parquet": lambda stream, place: stream.write_parquet(place),
    "csv": lambda stream, place: stream.write_csv(place),
    "json": lambda stream, place: stream.write_json(place),
    "delta": lambda stream, place: stream.write_delta(place),
}


@pytest.mark.parametrize("inside", ["", "/late"])
@pytest.mark.parametrize("second", WRITES)
@pytest.mark.parametrize("first", ["parquet", "delta"])
def test_two_sinks_in_one_place_are_refused(tmp_path: Path, first: str, second: str, inside: str) -> None:
    """Regression: the second one was refused in the end, after all the work, when the first had committed."""
    stream = rd.Dataflow("two").from_items([{"a": 1}])
    WRITES[first](stream, f"{tmp_path}/out")
    with pytest.raises(DataflowError, match=r"the sinks '.*' \(.*test_same_place.py:\d+\) and '.*' .* write to the same place, over"):
        WRITES[second](stream, f"{tmp_path}/out{inside}")
    WRITES[second](stream, f"{tmp_path}/out-of-its-own")


def test_two_sinks_that_append_may_share_a_place(tmp_path: Path) -> None:
    flow = rd.Dataflow("both")
    for number in range(2):
        flow.from_items([{"a": number}]).write_parquet(f"{tmp_path}/out", mode="append")
    with pytest.raises(DataflowError, match="write to the same place"):
        flow.from_items([{"a": 2}]).write_parquet(f"{tmp_path}/out", mode="overwrite")
    flow.run(runtime="local")
    assert sorted(rd.read_committed(f"{tmp_path}/out").to_table().column("a").to_pylist()) == [0, 1]
