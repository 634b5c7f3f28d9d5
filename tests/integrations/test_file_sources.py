"""CSV, JSON lines and Parquet: the first file determines the columns, errors name the drift, and a resume gives exactly the rest."""

from __future__ import annotations

import io
import tempfile
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

import rayad as rd
from rayad.integrations import CsvSource, JsonLinesSource, JsonRowsSource, ParquetSource
from rayad.integrations.json_text import wrong_bytes
from rayad.progress import ConfigError, DataflowError
from tests.integrations.driving import check_resume, drain, read, records
from tests.thorough import examples


def test_csv_types_come_from_the_first_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,s\n1,x\n,y\n")
    (tmp_path / "b.csv").write_text('s,n\n"line\nbreak",3\n')
    source = CsvSource(tmp_path)
    assert source.schema == pa.schema([("n", pa.int64()), ("s", pa.string())])
    assert records(source) == [{"n": 1, "s": "x"}, {"n": None, "s": "y"}, {"n": 3, "s": "line\nbreak"}]


@examples(each_run=40, soak=100)
@given(st.lists(st.integers(0, 999), max_size=60), st.integers(1, 9), st.integers(30, 90), st.booleans())
def test_csv_resumes_exactly_at_any_block_size(values: list[int], batch_rows: int, block_bytes: int, with_epoch: bool) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "a.csv")
        path.write_text("v,i\n" + "".join(f"{v},{i}\n" for i, v in enumerate(values)))
        schema = pa.schema([("v", pa.int64()), ("i", pa.int64())])
        source = CsvSource(path, schema=schema, batch_rows=batch_rows, block_bytes=block_bytes, epoch="v" if with_epoch else None)
        rows = [(row["v"], row["i"]) for row in records(source)]
        pairs = [(v, i) for i, v in enumerate(values)]
        assert rows == (sorted(pairs) if with_epoch else pairs)
        check_resume(source)


def test_csv_options(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n;s\n1;x\n")
    source = CsvSource(tmp_path / "a.csv", delimiter=";", column_types={"n": pa.float32()})
    assert source.schema.field("n").type == pa.float32()
    with pytest.raises(ConfigError, match=r"column_types names \['q'\], the columns are \['n', 's'\]"):
        CsvSource(tmp_path / "a.csv", delimiter=";", column_types={"q": pa.float32()})
    with pytest.raises(ConfigError, match="give one character"):
        CsvSource(tmp_path / "a.csv", delimiter="::")


def test_csv_values_that_do_not_fit_name_the_file_and_the_value(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    (tmp_path / "b.csv").write_text("n\nmany\n")
    with pytest.raises(DataflowError) as info:
        read(CsvSource(tmp_path))
    assert "b.csv" in str(info.value)
    assert "{n: int64}" in str(info.value)
    assert "many" in str(info.value)


def test_csv_other_columns_are_drift(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    (tmp_path / "b.csv").write_text("m\n1\n")
    with pytest.raises(DataflowError) as info:
        read(CsvSource(tmp_path))
    assert "b.csv" in str(info.value)
    assert "column 'n' is missing; column 'm' is extra" in str(info.value)


def test_empty_files_have_no_rows_but_one_file_must_have_the_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ConfigError, match="all 1 files are empty"):
        CsvSource(tmp_path)
    (tmp_path / "b.csv").write_text("n\n1\n")
    assert records(CsvSource(tmp_path)) == [{"n": 1}]


def test_missing_paths_are_named(tmp_path: Path) -> None:
    for kind in (CsvSource, JsonLinesSource, ParquetSource):
        with pytest.raises(ConfigError, match=r"there is no file or directory '.*gone'"):
            kind(tmp_path / "gone")  # type: ignore[operator]


def test_json_fields_that_are_missing_are_null_and_unknown_ones_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1, "b": "x"}\n{"a": 2}\n')
    (tmp_path / "b.json").write_text('{"b": "y", "a": 3}\n')
    source = JsonLinesSource(tmp_path)
    assert records(source) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": "y"}]
    check_resume(source)
    (tmp_path / "b.json").write_text('{"a": 3, "c": 1}\n')
    with pytest.raises(DataflowError, match=r"b.json.*unexpected field.*schema="):
        read(JsonLinesSource(tmp_path))


@examples(each_run=40, soak=100)
@given(st.integers(0, 50), st.integers(1, 9), st.integers(20, 100))
def test_json_resumes_exactly_at_any_block_size(rows: int, batch_rows: int, block_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "a.json")
        path.write_text("".join(f'{{"i": {i}}}\n' for i in range(rows)))
        source = JsonLinesSource(path, schema=pa.schema([("i", pa.int64())]), batch_rows=batch_rows, block_bytes=block_bytes)
        assert [row["i"] for row in records(source)] == list(range(rows))
        check_resume(source)


@examples(each_run=40, soak=100)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 6), st.booleans(), st.booleans())
def test_parquet_row_groups_resume_exactly(epochs: list[int], group: int, batch_rows: int, with_epoch: bool, with_filter: bool) -> None:
    with tempfile.TemporaryDirectory() as home:
        table = pa.table({"e": epochs, "i": range(len(epochs))})
        pq.write_table(table, f"{home}/a.parquet", row_group_size=group)
        source = ParquetSource(
            home, batch_rows=batch_rows, epoch="e" if with_epoch else None, filter=pc.field("e") > 1 if with_filter else None
        )
        wanted = [(e, i) for i, e in enumerate(epochs) if e > 1 or not with_filter]
        assert sorted((row["e"], row["i"]) for row in records(source)) == sorted(wanted)
        for part in source.list_parts():
            reader = source.build_part(part, None)
            floor = reader.epoch_floor()
            for epoch, batch in drain(reader):
                assert floor <= epoch
                assert set(batch.column("e").to_pylist()) == {epoch} if with_epoch else epoch == 0
        check_resume(source)


ODD = {
    "plain": pa.table({"e": [0, 0, 1], "s": ["a", None, "b"], "d": pa.array([1, 2, None], pa.decimal128(9, 2))}),
    "nested": pa.table(
        {"e": [0, 1], "l": [[1], None], "r": [{"x": 1, "y": [2]}, None], "m": pa.array([[("k", 1)], []], pa.map_("string", "int8"))}
    ),
    "dictionary": pa.table({"e": [0, 0], "c": pa.array(["x", "y"]).dictionary_encode()}),
    "dotted": pa.table({"e": [0], "a.b": [1], "a": [{"b": 2}]}),
    "times": pa.table({"e": [0, 2], "t": pa.array([1, None], pa.timestamp("ns", "UTC")), "z": pa.array([3, 4], pa.duration("us"))}),
    "views": pa.table({"e": [0], "v": pa.array(["long enough not to be inlined"], pa.large_string())}),
    "no rows": pa.table({"e": pa.array([], pa.int64()), "s": pa.array([], pa.string())}),
}


@pytest.mark.parametrize("epoch", ["e", None])
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("day", ["", "day=3", "day=x y", "day=__HIVE_DEFAULT_PARTITION__"])
def test_both_readers_of_parquet_give_the_same(
    name: str, epoch: str | None, day: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / day).mkdir(exist_ok=True)
    pq.write_table(ODD[name], tmp_path / day / "a.parquet", row_group_size=2)
    columns = ["e", *(["day"] if day else []), *ODD[name].column_names[:0:-1]]
    sources = [ParquetSource(tmp_path, epoch=epoch, columns=order, batch_rows=1) for order in (None, columns)]
    if name != "dotted" and name != "no rows":
        assert all(source.own_reader(source.fragment_of(part)) for source in sources for part in source.list_parts())
    own = [[batch for _, batch in read(source)] for source in sources]
    monkeypatch.setattr(ParquetSource, "own_reader", lambda self, fragment: None)
    scanned = [[batch for _, batch in read(source)] for source in sources]
    assert own == scanned
    assert [batch.schema for batch in own[1]] == [sources[1].schema] * len(own[1])


def test_parquet_floor_comes_from_the_statistics_before_anything_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"e": [3, 4, 7, 5]}), tmp_path / "a.parquet", row_group_size=2)
    source = ParquetSource(tmp_path, epoch="e")
    assert [source.build_part(part, None).epoch_floor() for part in source.list_parts()] == [3, 5]


def test_row_groups_travel_without_their_files(tmp_path: Path) -> None:
    """From process to process, several times: who only hands the plan on neither reads the files nor has to reach them."""
    (tmp_path / "day=3").mkdir()
    path = tmp_path / "day=3" / "a.parquet"
    pq.write_table(pa.table({"a": range(400)}), path, row_group_size=4)
    source = ParquetSource(tmp_path)
    wanted, stored = records(source), path.read_bytes()
    given: Any = (source, source.list_parts())
    path.unlink()
    for _ in range(3):
        sent = cloudpickle.dumps(given)
        assert len(sent) < 40 * len(given[1]), "a row group is a few numbers"
        given = cloudpickle.loads(sent)
    path.write_bytes(stored)
    there, parts = given
    assert [row for part in parts for _, batch in drain(there.build_part(part, None)) for row in batch.to_pylist()] == wanted
    assert sum(part.rows for part in parts) == 400


class Elsewhere(fs.FileSystemHandler):
    """A local folder as a store that answers only when so many files are being opened."""

    def __init__(self) -> None:
        self.here = fs.LocalFileSystem()
        self._meeting = threading.Barrier(1)

    def answer_when(self, opened: int) -> None:
        self._meeting = threading.Barrier(opened)

    def open_input_file(self, path: str) -> Any:
        self._meeting.wait(timeout=60)
        return self.here.open_input_file(path)

    def get_type_name(self) -> str:
        return "elsewhere"

    def get_file_info(self, paths: list[str]) -> Any:
        return self.here.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        return self.here.get_file_info(selector)

    def normalize_path(self, path: str) -> str:
        return path

    def _not_asked(self, *_: Any) -> Any:
        raise NotImplementedError

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _not_asked
    open_input_stream = open_output_stream = open_append_stream = _not_asked


def test_footers_of_a_store_are_read_several_at_a_time(tmp_path: Path) -> None:
    for number in range(8):
        pq.write_table(pa.table({"a": range(number + 1)}), tmp_path / f"{number}.parquet")
    store = Elsewhere()
    source = ParquetSource(str(tmp_path), filesystem=fs.PyFileSystem(store))
    store.answer_when(opened=8)
    assert [part.rows for part in source.list_parts()] == list(range(1, 9))
    store.answer_when(opened=1)
    (tmp_path / "5.parquet").write_bytes(b"PAR1 no more PAR1")
    with pytest.raises(DataflowError, match=r"5.parquet.*is it a whole Parquet file"):
        source.list_parts()


def test_parquet_columns_are_selected_and_filtered_groups_are_not_listed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": range(10), "b": ["x"] * 10}), tmp_path / "a.parquet", row_group_size=5)
    source = ParquetSource(tmp_path, columns=["b"], filter=pc.field("a") > 7)
    assert records(source) == [{"b": "x"}, {"b": "x"}]
    assert len(source.list_parts()) == 1
    with pytest.raises(ConfigError, match=r"there is no \['q'\] in \{a: int64, b: string\}"):
        ParquetSource(tmp_path, columns=["q"])


def test_parquet_partition_directories_become_columns(tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"a": [day * 10]}), tmp_path / f"day={day}" / "x.parquet")
    source = ParquetSource(tmp_path, epoch="day")
    assert [(epoch, batch.to_pylist()) for epoch, batch in read(source)] == [(1, [{"a": 10, "day": 1}]), (2, [{"a": 20, "day": 2}])]
    assert [part.epoch_floor for part in source.list_parts()] == [1, 2]


def hive(folder: Path, kind: str, **texts: str) -> None:
    """A file in each of ``day=<text>/``, as another program writes it."""
    for name, text in texts.items():
        (folder / f"day={text}").mkdir(parents=True)
        (folder / f"day={text}" / f"{name}.{kind}").write_text(f"n\n{name[1:]}\n" if kind == "csv" else f'{{"n": {name[1:]}}}\n')


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_partition_directories_of_others_become_columns_of_text_files_too(kind: str, tmp_path: Path) -> None:
    make: Any = CsvSource if kind == "csv" else JsonLinesSource
    hive(tmp_path / "in", kind, n1="2", n2="1", n3="__HIVE_DEFAULT_PARTITION__")
    rows = [(1, 2), (2, 1), (3, None)]
    source = make(tmp_path / "in")
    assert source.schema == pa.schema([("n", pa.int64()), ("day", pa.int32())])
    assert sorted((row["n"], row["day"]) for _, batch in read(source) for row in batch.to_pylist()) == rows
    texts = make(tmp_path / "in", schema=pa.schema([("day", pa.string()), ("n", pa.int8())]))
    assert texts.schema.names == ["day", "n"]
    assert sorted((row["n"], row["day"]) for _, batch in read(texts) for row in batch.to_pylist()) == [(1, "2"), (2, "1"), (3, None)]
    assert make(tmp_path / "in", schema=pa.schema([("n", pa.int64())])).schema.names == ["n"]
    assert make(tmp_path / "in", partitioning=None).schema.names == ["n"]
    hive(tmp_path / "days", kind, n1="2", n2="1")
    by_day = make(tmp_path / "days", epoch="day")
    assert [(epoch, batch.to_pylist()) for epoch, batch in read(by_day)] == [(1, [{"n": 2, "day": 1}]), (2, [{"n": 1, "day": 2}])]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_column_of_a_directory_that_the_files_have_too_is_that_of_the_files(kind: str, tmp_path: Path) -> None:
    make: Any = CsvSource if kind == "csv" else JsonLinesSource
    (tmp_path / "n=7").mkdir()
    (tmp_path / "n=7" / f"x.{kind}").write_text("n\n1\n" if kind == "csv" else '{"n": 1}\n')
    for schema in (None, pa.schema([("n", pa.int64())])):
        assert [batch.to_pylist() for _, batch in read(make(tmp_path, schema=schema))] == [[{"n": 1}]]


def test_a_directory_whose_text_is_none_of_the_type_is_named(tmp_path: Path) -> None:
    hive(tmp_path, "csv", n1="x")
    source = CsvSource(tmp_path, column_types={"day": pa.int64()})
    with pytest.raises(DataflowError, match=r"day=x/n1.csv': the directory says day='x', which is no int64: .*; give another type, or"):
        read(source)
    with pytest.raises(ConfigError, match=r"read_csv: partitioning='x': give 'hive', or None for the columns of the files alone"):
        CsvSource(tmp_path, partitioning="x")


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_lines_that_may_be_set_aside_do_not_take_columns_of_directories(kind: str, tmp_path: Path) -> None:
    """They were null."""
    hive(tmp_path, kind, n1="2")
    flow = rd.Dataflow("lines")
    with pytest.raises(ConfigError, match=r"\(on_error='skip'\): \['day'\] of the schema stand in the names of directories"):
        getattr(flow, f"read_{kind}")(str(tmp_path), schema=pa.schema([("n", pa.int64()), ("day", pa.int64())]), on_error="skip")


def test_parquet_schema_drift_names_file_expected_and_got(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": ["y"], "a": [2]}), tmp_path / "2.parquet")
    assert records(ParquetSource(tmp_path)) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    pq.write_table(pa.table({"a": ["x"], "c": [1]}), tmp_path / "3.parquet")
    with pytest.raises(DataflowError) as info:
        ParquetSource(tmp_path).list_parts()
    text = str(info.value)
    assert "3.parquet" in text
    assert "column 'a' is string, expected int64" in text
    assert "Expected {a: int64, b: string}, got {a: string, c: int64}" in text


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(DataflowError, match=r"a.parquet.*is it a Parquet file"):
        ParquetSource(tmp_path)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    with pytest.raises(DataflowError, match=r"a.parquet"):
        ParquetSource(tmp_path).list_parts()


def nested(levels: int) -> str:
    """A line of JSON, half of whose levels are objects; brackets in its strings count nothing."""
    pairs = (levels - 1) // 2
    return (
        '{"s": "'
        + "[" * 200
        + r"\"{"
        + '", "a": '
        + "[" * (levels - 1 - 2 * pairs)
        + '[{"a": ' * pairs
        + "1"
        + "}]" * pairs
        + "]" * (levels - 1 - 2 * pairs)
        + "}"
    )


@pytest.mark.parametrize("levels", [65, 100_000])
def test_json_of_too_many_levels_is_refused_before_it_ends_the_process(levels: int, tmp_path: Path) -> None:
    """Arrow's inference of types ended the driver by SIGSEGV."""
    path = tmp_path / "a.json"
    path.write_text('{"s": "x"}\n' * 2 + nested(64) + "\n")
    assert records(JsonLinesSource(path))[2]["a"]
    for end in ("\n", ""):
        path.write_text('{"s": "x"}\n' * 2 + nested(levels) + end)
        with pytest.raises(DataflowError) as info:
            JsonLinesSource(path, block_bytes=1 << 21)
        assert str(info.value) == (
            f"read_json: {str(path)!r}, line 3: its value has {levels} levels of brackets, and Arrow carries at most 64 between processes: "
            "write the inner ones as text in a string, or read rows: flow.source(rayad.integrations.JsonRowsSource(path))"
        )
        with pytest.raises(DataflowError, match=r"a.json' does not fit the expected columns .*changed from"):
            read(JsonLinesSource(path, block_bytes=1 << 21, schema=pa.schema([("s", pa.string()), ("a", pa.list_(pa.int64()))])))


@pytest.mark.parametrize("block_bytes", [9, 10, 20, 21, 1 << 20])
def test_json_types_come_from_the_first_block_that_is_not_blank(block_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("\n" * 30 + '{"a": 1}\n{"a": null}')
    assert records(JsonLinesSource(path, block_bytes=block_bytes)) == [{"a": 1}, {"a": None}]
    path.write_text("\n" * 30 + '{"a": "' + "x" * block_bytes * 3 + '"}\n{"a": "y"}\n')
    with pytest.raises(
        DataflowError, match=rf"a.json': line 31 is longer than two blocks of {block_bytes} bytes: give a larger block_bytes="
    ):
        JsonLinesSource(path, block_bytes=block_bytes)


def test_json_rows_of_too_many_levels_name_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("1\n" + nested(100_000))
    with pytest.raises(DataflowError, match=r"the line at byte 2 of .*a.json' nests values deeper than Python goes: maximum recursion"):
        records(JsonRowsSource(tmp_path / "a.json"))


@pytest.mark.parametrize("schema", [None, pa.schema([("a", pa.string())])])
def test_json_that_is_not_utf8_is_refused_as_csv_is(schema: pa.Schema | None, tmp_path: Path) -> None:
    """It was written on as text."""
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a": "x"}\n' * 100_000 + '{"a": "ü"}\n'.encode() + b'{"a": "x\xff"}\n')
    place = r"line 100002, byte 1100020 \(0xff: invalid start byte\); write it in UTF-8"
    with pytest.raises(DataflowError, match=rf"read_json: '.*a.json' is not UTF-8: {place}$"):
        read(JsonLinesSource(path, schema=schema))
    path.write_bytes(b'{"a": 1}\n{"a\xe2\x82": 2}\n')
    with pytest.raises(DataflowError, match=r"line 2, byte 12 \(0xe2: invalid continuation byte\)"):
        JsonLinesSource(path)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64])
def test_the_first_wrong_byte_is_found_across_pieces(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayad.integrations.json_text.READ_BYTES", size)
    assert wrong_bytes(io.BytesIO("a\nü\n€".encode())) is None
    assert wrong_bytes(io.BytesIO("a\nü\n€".encode() + b"\xe2\x82")) == "line 3, byte 8 (0xe2: unexpected end of data)"
    assert wrong_bytes(io.BytesIO("€\n€".encode() + b"\xe2\x82x")) == "line 2, byte 7 (0xe2: invalid continuation byte)"
