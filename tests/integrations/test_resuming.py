"""Every source, resumed at every offset, gives the same epochs, floors and contents; errors name input that has changed."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad.integrations.text as text_module
from rayad.dataflow import Source
from rayad.dataflow.items import ItemsSource
from rayad.integrations import ArrowSource, CsvSource, JsonLinesSource, JsonRowsSource, ParquetSource, TextSource
from rayad.integrations.refs import RefSource, check_replay, number_blocks
from rayad.integrations.staged_blocks import BlockFolder, StagedBlock
from rayad.progress import ConfigError, DataflowError
from rayad.snapshots.resume_point import input_changes
from tests.integrations.driving import check_resume, records
from tests.thorough import examples

ROWS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["", "x", "yy", "a,b", "é"])), min_size=1, max_size=25)
BATCH = st.integers(1, 7)
EPOCH = st.sampled_from([None, "e"])


def table(rows: list[tuple[int, str]]) -> pa.Table:
    return pa.table({"e": pa.array([e for e, _ in rows], pa.int64()), "s": pa.array([s for _, s in rows], pa.string())})


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as home:
        yield Path(home)


@examples(each_run=40, soak=100)
@given(st.lists(ROWS, min_size=1, max_size=4), BATCH, EPOCH, st.integers(1, 5))
def test_arrow(chunks: list[list[tuple[int, str]]], batch_rows: int, epoch: str | None, parts: int) -> None:
    check_resume(ArrowSource([table(rows) for rows in chunks], batch_rows=batch_rows, epoch=epoch, parts=parts))


@examples(each_run=40, soak=100)
@given(st.lists(st.lists(st.integers(0, 99), max_size=9), max_size=4), BATCH, st.integers(1, 4), st.booleans())
def test_items_and_epochs(epochs: list[list[int]], batch_rows: int, parts: int, columns: bool) -> None:
    held = [pa.record_batch({"n": pa.array(items, pa.int64())}) for items in epochs] if columns else epochs
    check_resume(ItemsSource(held, batch_rows, parts))


@examples(each_run=40, soak=100)
@given(st.lists(ROWS, min_size=1, max_size=3), BATCH, EPOCH, st.sampled_from([16, 60, 1 << 20]), st.booleans())
def test_csv(folder: Path, files: list[list[tuple[int, str]]], batch_rows: int, epoch: str | None, block_bytes: int, packed: bool) -> None:
    paths = []
    for number, rows in enumerate(files):
        text = "".join(["e,s\n", *(f'{e},"{s}"\n' for e, s in rows)]).encode()
        paths.append(folder / f"{number}.csv{'.gz' if packed else ''}")
        paths[-1].write_bytes(gzip.compress(text) if packed else text)
    schema = pa.schema([("e", pa.int64()), ("s", pa.string())])
    check_resume(CsvSource(paths, schema=schema, batch_rows=batch_rows, epoch=epoch, block_bytes=block_bytes))


@examples(each_run=40, soak=100)
@given(st.lists(ROWS, min_size=1, max_size=3), BATCH, EPOCH, st.sampled_from([64, 1 << 20]))
def test_json_lines(folder: Path, files: list[list[tuple[int, str]]], batch_rows: int, epoch: str | None, block_bytes: int) -> None:
    paths = []
    for number, rows in enumerate(files):
        paths.append(folder / f"{number}.json")
        paths[-1].write_text("".join(json.dumps({"e": e, "s": s}) + "\n" for e, s in rows))
    schema = pa.schema([("e", pa.int64()), ("s", pa.string())])
    check_resume(JsonLinesSource(paths, schema=schema, batch_rows=batch_rows, epoch=epoch, block_bytes=block_bytes))


@examples(each_run=40, soak=100)
@given(st.lists(ROWS, min_size=1, max_size=3), BATCH, EPOCH, st.integers(1, 9), st.booleans())
def test_parquet(folder: Path, files: list[list[tuple[int, str]]], batch_rows: int, epoch: str | None, group: int, filtered: bool) -> None:
    paths = []
    for number, rows in enumerate(files):
        paths.append(folder / f"{number}.parquet")
        pq.write_table(table(rows), paths[-1], row_group_size=group)
    check_resume(ParquetSource(paths, batch_rows=batch_rows, epoch=epoch, filter=pc.field("e") > 1 if filtered else None))


LINES = st.lists(st.sampled_from(["", "1", "22", '"ccc"\r', '"é"', f'"{"x" * 30}"']), max_size=12).map("\n".join).map(str.encode)


@examples(each_run=40, soak=100)
@given(st.lists(LINES, min_size=1, max_size=2), BATCH, st.integers(1, 40), st.integers(1, 9), st.sampled_from(["text", "columns", "json"]))
def test_text(folder: Path, files: list[bytes], batch_rows: int, split: int, read_bytes: int, kind: str) -> None:
    paths = [folder / f"{number}.txt" for number in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    source = JsonRowsSource if kind == "json" else TextSource
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "READ_BYTES", read_bytes)
        check_resume(source(paths, split_bytes=split, batch_rows=batch_rows, columnar=kind == "columns"))


class HeldBlocks(RefSource):
    """RefSource without Ray: each block is its own reference."""

    def _fetch(self, part: Any) -> pa.Table:
        return part.ref if not isinstance(part, StagedBlock) else super()._fetch(part)


@examples(each_run=40, soak=100)
@given(st.lists(ROWS, min_size=1, max_size=4), BATCH, EPOCH, st.booleans())
def test_blocks_by_reference_and_staged(
    folder: Path, blocks: list[list[tuple[int, str]]], batch_rows: int, epoch: str | None, staged: bool
) -> None:
    tables = [table(rows) for rows in blocks]
    parts = number_blocks([(t, t.num_rows) for t in tables])
    if not staged:
        check_resume(HeldBlocks(tables[0].schema, parts, epoch=epoch, batch_rows=batch_rows))
        return
    with tempfile.TemporaryDirectory(dir=folder) as home:
        place = BlockFolder(home, "from_blocks")
        assert place.read() is None
        place.stage(tables[0].schema, lambda copy: [StagedBlock(*p[:3], place.write_block(p.number, copy, p.ref)) for p in parts])
        source = HeldBlocks(tables[0].schema, None, epoch=epoch, batch_rows=batch_rows, folder=place, staged=place.read())
        check_resume(source)
        if epoch is None:
            assert records(source) == [row for t in tables for row in t.to_pylist()]


# -- what a snapshot remembers of the input ---------------------------------------------------------


def changes(before: Callable[[], Source], change: Callable[[], Any], now: Callable[[], Source] | None = None) -> list[str]:
    """The differences of two fingerprints after a round trip through JSON, as in a manifest; none without the change."""
    prints = []
    for make in (before, before, now or before):
        if len(prints) == 2:
            change()
        source = make()
        prints.append(json.loads(json.dumps(source.fingerprint(source.list_parts()), sort_keys=True)))
    assert input_changes(prints[0], prints[1]) == []
    return input_changes(prints[1], prints[2])


def files_of(home: Path, kind: str) -> Callable[[], Source]:
    for name in ("a", "b"):
        if kind == "parquet":
            pq.write_table(pa.table({"e": [1]}), home / f"{name}.parquet")
        else:
            (home / f"{name}.{kind}").write_text('{"e": 1}\n' if kind == "json" else "e\n1\n")
        os.utime(home / f"{name}.{kind}", ns=(0, 0))
    make: Any = {"csv": CsvSource, "json": JsonLinesSource, "parquet": ParquetSource, "txt": TextSource}[kind]
    return lambda: make(home)


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "txt"])
def test_files_that_grew_or_were_replaced_or_removed_are_named(tmp_path: Path, kind: str) -> None:
    make = files_of(tmp_path, kind)
    b = tmp_path / f"b.{kind}"
    (touched,) = changes(make, lambda: os.utime(b, ns=(0, 10**9)))
    size = b.stat().st_size
    assert touched == (
        f"files: '{b}' was '{size} bytes, changed 1970-01-01T00:00:00.000000' and is '{size} bytes, changed 1970-01-01T00:00:01.000000'"
    )
    assert any(f"files: '{tmp_path / f'c.{kind}'}' is new" in line for line in changes(make, lambda: b.rename(tmp_path / f"c.{kind}")))
    assert any(f"'{tmp_path / f'c.{kind}'}' is gone" in line for line in changes(make, lambda: (tmp_path / f"c.{kind}").unlink()))


def test_files_that_grew_are_named_with_both_sizes(tmp_path: Path) -> None:
    make = files_of(tmp_path, "csv")
    (line,) = changes(make, lambda: (tmp_path / "a.csv").write_text("e\n1\n2\n"))
    assert line.startswith(f"files: '{tmp_path}/a.csv' was '4 bytes, changed 1970")
    assert "' and is '6 bytes, changed 2" in line


def test_settings_that_change_what_an_offset_means_are_named(tmp_path: Path) -> None:
    files_of(tmp_path, "csv")
    one: Callable[[], Source] = lambda: CsvSource(tmp_path)  # noqa: E731
    assert changes(one, int, lambda: CsvSource(tmp_path, epoch="e")) == ["epoch was None and is 'e'"]
    assert changes(one, int, lambda: CsvSource(tmp_path, delimiter=";")) == ["delimiter was ',' and is ';'"]
    assert changes(one, int, lambda: CsvSource(tmp_path, column_types={"e": pa.int8()})) == ["columns was '{e: int64}' and is '{e: int8}'"]
    assert changes(one, int, lambda: CsvSource(tmp_path, batch_rows=1)) == []
    reordered = changes(one, int, lambda: CsvSource([tmp_path / "b.csv", tmp_path / "a.csv"]))
    assert reordered == [f"order of files was None and is '{tmp_path}/b.csv, {tmp_path}/a.csv'"]
    text = changes(lambda: TextSource(tmp_path), int, lambda: TextSource(tmp_path, split_bytes=2))
    assert text == ["parts was 2 and is 4", "split_bytes was 33554432 and is 2"]
    (tmp_path / "p").mkdir()
    files_of(tmp_path / "p", "parquet")
    parquet = changes(lambda: ParquetSource(tmp_path / "p"), int, lambda: ParquetSource(tmp_path / "p", filter=pc.field("e") > 0))
    assert parquet == ["filter was None and is '(e > 0)'"]


def test_contents_in_memory_are_compared() -> None:
    big = pa.table({"x": range(5_000)})
    assert "rows was 5000 and is 4999" in changes(lambda: ArrowSource(big), int, lambda: ArrowSource(big.slice(1)))
    (line,) = changes(lambda: ArrowSource(big), int, lambda: ArrowSource(pa.table({"x": range(1, 5_001)})))
    assert line.startswith("contents was ")
    chunked = pa.table({"x": pa.chunked_array([range(10), range(10, 5_000)])})
    assert changes(lambda: ArrowSource(big), int, lambda: ArrowSource(chunked)) == []
    items = changes(lambda: ItemsSource([[1, 2], [3]]), int, lambda: ItemsSource([[1, 2], [4]]))
    assert [item.split()[0] for item in items] == ["contents"]
    grown = changes(lambda: ItemsSource([[1, 2], [3]]), int, lambda: ItemsSource([[1, 2, 9]]))
    assert grown[1:] == ["records of epochs: '0' was 2 and is 3", "records of epochs: '1' is gone"]
    assert changes(lambda: ItemsSource([[object()]]), int, lambda: ItemsSource([[object()]])) == []
    assert changes(lambda: ItemsSource([pa.record_batch({"a": [1]})]), int, lambda: ItemsSource([pa.record_batch({"a": [2]})]))


def test_many_changes_are_counted() -> None:
    before = {"files": {f"f{i}": "1 bytes" for i in range(12)}}
    lines = input_changes(before, {"files": {}})
    assert len(lines) == 6
    assert lines[-1] == "files: 7 more"
    assert input_changes(None, before) == input_changes(before, None) == []


def test_blocks_that_were_staged_again_are_another_input(tmp_path: Path) -> None:
    schema = pa.schema([("e", pa.int64())])

    def make() -> Source:
        place = BlockFolder(str(tmp_path / "in"), "from_blocks")
        if place.read() is None:
            held = pa.table({"e": [1, 2]})
            place.stage(schema, lambda copy: [StagedBlock(0, 2, 0, place.write_block(0, copy, held))])
        return HeldBlocks(schema, None, epoch=None, folder=place, staged=place.read())

    (line,) = changes(make, lambda: (tmp_path / "in" / "_SUCCESS").unlink())
    assert line.startswith("staged copy was ")
    assert len(list((tmp_path / "in").iterdir())) == 2, "the blocks of the attempt before are gone"
    place = BlockFolder(str(tmp_path / "in"), "from_refs")
    with pytest.raises(DataflowError, match=r"schema drift in from_refs: the staged input in .*column 'e' is int64, expected string"):
        HeldBlocks(pa.schema([("e", pa.string())]), None, epoch=None, folder=place, staged=place.read())


def test_a_staging_folder_with_other_files_is_refused_and_a_damaged_block_is_named(tmp_path: Path) -> None:
    place = BlockFolder(str(tmp_path), "from_spark")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"from_spark: staging_path=.* holds 'notes.txt', which is no staged block"):
        place.prepare()
    (tmp_path / "_SUCCESS").write_text("{}")
    with pytest.raises(ConfigError, match="is no staged input: _SUCCESS cannot be read"):
        place.read()
    name = place.write_block(0, "c", pa.table({"e": [1]}))
    with pytest.raises(DataflowError, match=r"staged block 0 in .* has 1 rows, not 2"):
        place.load(StagedBlock(0, 2, 0, name))
    (tmp_path / name).write_bytes(b"torn")
    with pytest.raises(DataflowError, match="staged block 0 cannot be read"):
        place.load(StagedBlock(0, 1, 0, name))


@pytest.mark.parametrize(("replay", "path"), [("again", None), ("stage", None), ("recompute", "x")])
def test_replay_needs_a_folder_and_a_folder_needs_replay(replay: str, path: str | None) -> None:
    with pytest.raises(ConfigError, match=f"from_spark: replay='{replay}'"):
        check_replay(replay, path, "from_spark")
