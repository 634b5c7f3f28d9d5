"""A program of which nobody can see anything is told of when it starts; what is there for its effects is silent."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd

AT = r"\(test_unseen\.py:\d+\)"


class Look(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        pass


class Write:
    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


async def post(record: Any) -> Any:
    return record


def items(flow: rd.Dataflow) -> Any:
    return flow.from_items([1, 2], name="items")


def test_a_program_that_ends_in_nothing_is_told_of_with_its_ends() -> None:
    """It ran, and said nothing."""
    flow = rd.Dataflow("d")
    items(flow).map(lambda n: n + 1, name="more").key_by(lambda n: n).count(name="counts")
    flow.from_items([3], name="others").map(lambda n: n, name="same")
    told = (
        rf"^nothing that this dataflow computes can be seen: 'counts' {AT}, 'same' {AT} end without a sink\. Add \.collect\(\"name\"\), "
        r"which gives result\[\"name\"\], or another sink, such as \.write_parquet\(path\); where a function is called for its effects "
        r"alone, call it with \.inspect\(function\)$"
    )
    with pytest.warns(UserWarning, match=told) as caught:
        assert dict(flow.run(runtime="local")) == {}
    assert [Path(one.filename).name for one in caught] == ["test_unseen.py"]


SEEN: dict[str, Callable[[rd.Dataflow], Any]] = {
    "sink beside an end": lambda flow: (items(flow).collect("out"), flow.from_items([1]).map(str)),
    "probe": lambda flow: items(flow).probe("seen"),
    "inspect": lambda flow: items(flow).inspect(print),
    "inspect that skips": lambda flow: items(flow).inspect(lambda n: None, on_error="skip"),
    "vertex": lambda flow: items(flow).vertex(Look, outputs=0),
    "vertex by a function": lambda flow: items(flow).vertex(lambda: Look(), outputs=1),
    "calls of a service": lambda flow: items(flow).map_async(post),
    "class": lambda flow: items(flow).map_batches(Write),
}


@pytest.mark.parametrize("kind", SEEN)
def test_what_can_be_seen_or_is_there_for_its_effects_is_silent(kind: str) -> None:
    flow = rd.Dataflow("d")
    SEEN[kind](flow)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flow.run(runtime="local")


def test_a_job_with_snapshots_is_silent_as_its_state_can_be_read(tmp_path: Path) -> None:
    flow = rd.Dataflow("d")
    items(flow).key_by(lambda n: n).count(name="counts")
    flow.run(rd.RunConfig(storage_path=str(tmp_path)), runtime="local")
    assert len(rd.read_state(str(tmp_path / "d"), "counts")) == 2
