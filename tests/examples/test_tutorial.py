"""The tutorial's Python, block by block in one process, with the results that its comments promise."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rayad as rd
from tests.checkout import ROOT
from tests.integrations.sparks_reader import rows_listed

BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def run_blocks(word: str, *, before: str = "") -> dict[str, Any]:
    """Execute the block that contains ``word``; gives its namespace."""
    (block,) = [block for block in BLOCKS if word in block]
    names: dict[str, Any] = {"rd": rd}
    exec(compile(before + block, "docs/tutorial.md", "exec"), names)
    return names


def test_a_count() -> None:
    result = run_blocks('rd.Dataflow("wordcount")')["result"]
    assert dict(record for _, record in result["counts"]) == {
        "to": 2,
        "be": 2,
        "or": 1,
        "not": 1,
        "that": 1,
        "is": 1,
        "the": 1,
        "question": 1,
    }


def test_running_totals_and_each_epoch_alone() -> None:
    result = run_blocks('rd.Dataflow("orders")')["flow"].run(runtime="local")
    assert (rd.Timestamp(1), ("apples", 5)) in result["so far"]
    assert (rd.Timestamp(1), ("apples", rd.Window(1, 2), 2)) in result["each"]


def test_windows_and_late_records() -> None:
    result = run_blocks('rd.Dataflow("sensors")')["flow"].run(runtime="local")
    first, last = rd.Timestamp(1), rd.Timestamp(2)
    windows = [(first, ("a", rd.Window(0, 10), 21.0)), (first, ("a", rd.Window(10, 20), 24.0)), (last, ("a", rd.Window(20, 30), 19.0))]
    assert sorted(result["means"]) == windows
    assert [record for _, record in result["late"]] == [("a", rd.Window(0, 10), {"sensor": "a", "at": 3, "degrees": 99})]


def test_a_loop_ends_when_nothing_is_left_in_it() -> None:
    walks = run_blocks('rd.Dataflow("collatz")')["flow"].run(runtime="local")["walks"]
    assert max((steps, start) for _, (start, _, steps) in walks) == (178, 871)


def test_groups_of_an_epoch() -> None:
    names = run_blocks('rd.Dataflow("friends")')
    moved = [record for time, record in names["flow"].run(runtime="local")["groups"] if time.epoch == 2]
    assert sorted(moved) == [("cid", "ann"), ("dan", "ann"), ("eve", "ann")]


def test_live_input() -> None:
    names = run_blocks('rd.Dataflow("live")')
    assert names["done"].complete(0)
    assert names["job"].wait()["totals"] == [(rd.Timestamp(0), ("apples", 3))]


def test_a_vertex_of_ones_own() -> None:
    names = run_blocks("class DistinctCount", before='flow = rd.Dataflow("distinct")\n')
    names["distinct"].collect("distinct")
    names["counts"].collect("counts")
    result = names["flow"].run(runtime="local")
    assert sorted(result["counts"]) == [(rd.Timestamp(0), ("be", 1)), (rd.Timestamp(0), ("to", 2)), (rd.Timestamp(1), ("be", 1))]


def test_streams_in_and_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for day in range(2):
        pq.write_table(pa.table({"shop": ["a", "a"], "price": [1.0, 2.0 + day]}), f"in/{day}.parquet")
    Path("in/_DONE").touch()
    monkeypatch.setattr(rd.Dataflow, "submit", functools.partialmethod(rd.Dataflow.submit, runtime="local"))
    run_blocks('rd.Dataflow("sales-stream")')["job"].wait()
    rows = rd.read_committed("out/means").to_table().to_pylist()
    assert sorted(rows, key=lambda row: int(row["day"])) == [
        {"shop": "a", "price": 1.5, "day": 0},
        {"shop": "a", "price": 1.75, "day": 1},
    ]
    assert rows_listed(tmp_path / "out" / "means") == rows


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_block_is_python(block: str) -> None:
    compile(block, "docs/tutorial.md", "exec")


def test_slow_functions_and_their_order() -> None:
    flow = run_blocks('rd.Dataflow("pages")')["flow"]
    for seed in range(5):
        result = flow.run(runtime="local", parallelism=3, seed=seed)
        assert [title for _, title in result["titles"]] == ["One Page", "The Last Page"]
