"""Delta tables are as the collection is, with each snapshot; failures and changes of layout strike meanwhile."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.integrations import DeltaTable
from rayad.testing import check_sink
from tests.incremental.programs import Shape, history
from tests.incremental.test_ends import counted, degrees_of, tables
from tests.incremental.test_updating_sinks import run_with_failures
from tests.thorough import amount

deltalake = pytest.importorskip("deltalake")
SCHEMA = pa.schema([("node", pa.int64()), ("n", pa.int64())])


def rows_of(path: Path | str) -> list[Any]:
    """What a reader of Delta sees."""
    found: list[Any] = deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return found


def degrees(path: Path) -> dict[int, int]:
    rows = rows_of(path)
    assert len(rows) == len({row["node"] for row in rows})
    return {row["node"]: row["n"] for row in rows}


def changed(sink: DeltaTable, *changes: tuple[int, int, int], epoch: int = 0) -> list[Any]:
    """What a replica stages: (node, n, weight)."""
    writer = sink.open(0, 1)
    writer.write(rd.Timestamp(epoch), [({"node": node, "n": n}, weight) for node, n, weight in changes])
    return [writer.stage()]


@pytest.mark.parametrize("seed", range(amount(each_run=3, soak=40)))
def test_a_delta_table_is_as_the_collection_is(seed: int, tmp_path: Path) -> None:
    changes = history(Shape(6, 9, 12), seed)
    path = tmp_path / "degrees"
    deltalake.write_deltalake(path, pa.table({"node": [1000, 3], "n": [7, -1]}))
    flow = rd.Dataflow("degrees")
    rows = counted(rd.Collection(flow.from_epochs(changes, batch_rows=3)))
    rows.updates("node", name="out.table", what="write_delta").sink(DeltaTable(path, key="node"), "out")
    states = []
    published = run_with_failures(flow, tmp_path / "job", seed, lambda: states.append(degrees(path)))["out"]
    expected = degrees_of(tables(changes)[-1]) | {1000: 7}
    if 3 not in degrees_of(sum(tables(changes), Counter())):
        expected[3] = -1
    assert degrees(path) == expected
    assert published.version == deltalake.DeltaTable(str(path)).version()
    every = [set(degrees_of(there).items()) for there in tables(changes)]
    for state in states:
        for node, n in state.items():
            assert node in (1000, 3) or any((node, n) in some for some in every)


def test_it_keeps_the_contract_of_sinks(tmp_path: Path) -> None:
    made: list[Path] = []

    def make() -> DeltaTable:
        made.append(tmp_path / f"contract-{len(made)}")
        return DeltaTable(made[-1], key="node", schema=SCHEMA)

    def rows(_: Any) -> list[Any]:
        there = deltalake.DeltaTable.is_deltatable(str(made[-1]))
        return [({"node": row["node"], "n": row["n"]}, 1) for row in rows_of(made[-1])] if there else []

    check_sink(make, rows, histories=3, steps=6, takes_back=False, batch=lambda n: [({"node": 10 * n + k, "n": k}, 1) for k in range(3)])


def test_a_table_that_is_not_there_is_made_and_follows_through_one_method(tmp_path: Path) -> None:
    path = str(tmp_path / "new")
    full = {"Key of": "a", "day": dt.date(2026, 1, 2), "cost": Decimal("1.50"), "raw": b"\x00", 'a "b"': 1.5}
    null = {**dict.fromkeys(full), "Key of": "a", "day": full["day"]}
    other = {**full, "day": dt.date(2026, 1, 3)}
    kinds = [("Key of", pa.string()), ("day", pa.date32()), ("cost", pa.decimal128(9, 2)), ("raw", pa.binary()), ('a "b"', pa.float64())]
    flow = rd.Dataflow("typed")
    rows = rd.Collection(flow.from_epochs([[(full, 1), (other, 1)], [(full, -1), (null, 1)]]))
    rows.write_delta(path, key=("Key of", "day"), schema=pa.schema(kinds), partition_by="day", name="out")
    published = flow.run(runtime="local", parallelism=2)["out"]
    assert published.path == path
    assert sorted(rows_of(path), key=lambda row: row["day"]) == [null, other]
    assert deltalake.DeltaTable(path).metadata().partition_columns == ["day"]


def test_the_last_epoch_of_a_key_counts_whichever_replica_wrote_it(tmp_path: Path) -> None:
    sink = DeltaTable(tmp_path / "t", key="node", schema=SCHEMA)
    sink.check()
    staged = changed(sink, (1, 9, 1), (2, 2, -1), epoch=5) + changed(sink, (1, 8, 1), (2, 2, 1), epoch=4)
    first, again = sink.commit(1, staged), sink.commit(1, staged)
    assert first == again
    assert degrees(tmp_path / "t") == {1: 9}


def test_a_merge_that_changes_nothing_is_told_too(tmp_path: Path) -> None:
    """The library writes no transaction for it, and the number has to be known when the commit is repeated later."""
    sink = DeltaTable(tmp_path / "t", key="node", schema=SCHEMA)
    sink.check()
    gone = changed(sink, (7, 1, -1))
    sink.commit(3, gone)
    deltalake.write_deltalake(tmp_path / "t", pa.table({"node": [7], "n": [1]}), mode="append")
    sink.commit(3, gone)
    assert degrees(tmp_path / "t") == {7: 1}


def test_a_coordinator_that_was_taken_for_dead_is_refused(tmp_path: Path) -> None:
    sink = DeltaTable(tmp_path / "t", key="node", schema=SCHEMA)
    sink.check()
    late = DeltaTable(tmp_path / "t", key="node")
    late.adopt(sink.identity())
    sink.commit(1, changed(sink, (1, 1, 1)))
    assert late.table().version() == 1
    sink.roll_back(1, 5)
    with pytest.raises(rd.DataflowError, match=r"snapshot 3 cannot be committed to .*: the job resumed from snapshot 1 meanwhile"):
        late.commit(3, changed(late, (1, 3, 1)))
    sink.commit(5, changed(sink, (1, 5, 1)))
    assert degrees(tmp_path / "t") == {1: 5}
    with pytest.raises(rd.ConfigError, match=r"resumes from snapshot 3, but .* has the rows of snapshot 5, and what they have replaced"):
        sink.roll_back(3, 7)


def test_two_that_merge_at_once_come_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log refuses the second one, which looks again: another program's row stays, and one's own commit is not repeated."""
    sink = DeltaTable(tmp_path / "t", key="node", schema=SCHEMA)
    sink.check()
    twin = DeltaTable(tmp_path / "t", key="node")
    twin.adopt(sink.identity())
    seen = sink.told_by
    struck: list[int] = []

    def meanwhile(table: Any) -> Any:
        told = seen(table)
        if not struck:
            struck.append(1)
            deltalake.write_deltalake(tmp_path / "t", pa.table({"node": [50], "n": [5]}), mode="append")
            twin.commit(2, changed(twin, (1, 2, 1)))
        return told

    sink.commit(1, changed(sink, (1, 1, 1), (2, 1, 1)))
    monkeypatch.setattr(sink, "told_by", meanwhile)
    sink.commit(2, changed(sink, (1, 2, 1)))
    assert degrees(tmp_path / "t") == {1: 2, 2: 1, 50: 5}
    assert struck
    operations = [entry["operation"] for entry in deltalake.DeltaTable(str(tmp_path / "t")).history()]
    assert operations.count("MERGE") == 2


def test_what_it_is_given_is_checked(tmp_path: Path) -> None:
    with pytest.raises(rd.ConfigError, match=r"write_delta: there is no table at .* yet: give schema="):
        DeltaTable(tmp_path / "none", key="node")
    with pytest.raises(rd.ConfigError, match=r"write_delta: key is \['no'\], and the schema has the columns \['node', 'n'\]"):
        DeltaTable(tmp_path / "none", key="no", schema=SCHEMA)
    with pytest.raises(rd.ConfigError, match="write_delta: a column cannot be called 'rayad_there' here"):
        DeltaTable(tmp_path / "none", key="node", schema=SCHEMA.append(pa.field("rayad_there", pa.bool_())))
    deltalake.write_deltalake(tmp_path / "t", pa.table({"node": [1], "other": ["a"]}))
    with pytest.raises(rd.ConfigError, match="has the columns"):
        DeltaTable(tmp_path / "t", key="node", schema=SCHEMA)
    flow = rd.Dataflow("bare")
    flow.from_items([("a", 1)]).as_collection().updates(lambda pair: pair[0]).sink(DeltaTable(tmp_path / "u", key="node", schema=SCHEMA))
    with pytest.raises(rd.ConfigError, match=r"write_delta: the record \('a', 1\) has no fields"):
        flow.run(runtime="local")
