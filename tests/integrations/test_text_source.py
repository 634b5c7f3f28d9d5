"""TextSource: every line is read once, however files are split into parts, and a resume gives the same batches."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rayad.integrations.text as text_module
from rayad.integrations import JsonRowsSource, TextSource
from rayad.progress import ConfigError, DataflowError
from tests.integrations.driving import check_resume, read, records
from tests.thorough import examples

contents = st.lists(st.sampled_from(["", "a", "bb", "ccc\r", "é", "x" * 30]), max_size=12).map("\n".join).map(str.encode)


def expected_lines(data: bytes) -> list[str]:
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [(line[:-1] if line.endswith(b"\r") else line).decode() for line in lines]


@examples(each_run=40, soak=100)
@given(contents, st.integers(1, 20), st.integers(1, 5), st.integers(1, 9))
@example(b"a\nb\n", 2, 1, 1)
@example(b"\n\n\n", 1, 1, 1)
def test_each_line_is_read_once_however_the_file_is_cut(data: bytes, split: int, batch_rows: int, read_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "READ_BYTES", read_bytes)
        path = Path(home, "t.txt")
        path.write_bytes(data)
        source = TextSource(path, split_bytes=split, batch_rows=batch_rows)
        assert records(source) == expected_lines(data)
        check_resume(source)


@examples(each_run=40, soak=100)
@given(contents, st.integers(1, 5))
def test_compressed_files_are_one_part_and_resume(data: bytes, batch_rows: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "t.txt.gz")
        path.write_bytes(gzip.compress(data))
        source = TextSource(path, split_bytes=3, batch_rows=batch_rows)
        assert len(source.list_parts()) == 1
        assert records(source) == expected_lines(data)
        check_resume(source)


def test_big_files_become_parts_of_about_the_size_asked_for(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("line\n" * 1000)
    parts = TextSource(tmp_path / "t.txt", split_bytes=1000).list_parts()
    assert [(p.start, p.stop) for p in parts] == [(0, 1000), (1000, 2000), (2000, 3000), (3000, 4000), (4000, None)]


def test_batches_hold_batch_rows_lines_but_for_the_last(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n".join("abcdefg"))
    assert [batch for _, batch in read(TextSource(tmp_path / "t.txt", batch_rows=3))] == [["a", "b", "c"], ["d", "e", "f"], ["g"]]


def test_columnar_batches_have_one_column_text(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a\nb\n")
    assert records(TextSource(tmp_path, columnar=True)) == [{"text": "a"}, {"text": "b"}]


def test_directories_globs_and_lists_are_read_in_order_of_name_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "_SUCCESS", ".hidden", "sub/c.txt", "_tmp/d.txt", "_day=1/e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert records(TextSource(tmp_path)) == ["_day=1/e.txt", "a.txt", "b.txt", "sub/c.txt"]
    assert records(TextSource(str(tmp_path / "*.txt"))) == ["a.txt", "b.txt"]
    assert records(TextSource([tmp_path / "b.txt", tmp_path / "a.txt"])) == ["b.txt", "a.txt"]
    assert records(TextSource(f"file://{tmp_path}/a.txt")) == ["a.txt"]


def test_other_encodings_are_decoded_and_wrong_ones_name_file_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"ok\n\xe9t\xe9\n")
    assert records(TextSource(path, encoding="latin-1")) == ["ok", "été"]
    with pytest.raises(DataflowError, match=r"line at byte 3 of '.*t.txt' is not utf-8.*give encoding="):
        read(TextSource(path))


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("nothing.txt", {}, "there is no file or directory"),
        ("*.nothing", {}, "nothing matches"),
        ("", {}, "a path is '': it must be a path"),
        ("unknown://x", {}, "cannot open the URI 'unknown://x'"),
        ("t.txt", {"encoding": "klingon"}, "encoding='klingon' is not known"),
        ("t.txt", {"encoding": "utf-16"}, "convert them to utf-8"),
        ("t.txt", {"batch_rows": -1}, "a batch, is -1"),
        ("t.txt", {"split_bytes": 0}, "split_bytes is 0"),
    ],
)
def test_wrong_arguments_fail_where_the_source_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, options: dict[str, object], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("x")
    with pytest.raises(ConfigError) as info:
        TextSource(path, **options)  # type: ignore[arg-type]
    assert words in str(info.value)
    with pytest.raises(ConfigError, match="empty list of paths"):
        TextSource([])


def test_an_empty_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no files"):
        TextSource(tmp_path)


def test_a_file_that_shrank_since_the_snapshot_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("abcdef\nghi\n")
    source = TextSource(path)
    (part,) = source.list_parts()
    path.write_text("a")
    with pytest.raises(DataflowError, match="has 1 bytes, reading should resume at 7: it changed since the snapshot"):
        source.build_part(part, 7).next_batch()


def test_a_line_without_end_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "READ_BYTES", 10)
    monkeypatch.setattr(text_module, "MAX_LINE_BYTES", 100)
    (tmp_path / "t.txt").write_text("x" * 1000)
    with pytest.raises(DataflowError, match="a line is longer than 100 bytes"):
        read(TextSource(tmp_path / "t.txt"))


def test_json_rows_may_differ_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "j.json").write_text('{"a": 1}\n\n{"b": [1, null]}\n3\n')
    source = JsonRowsSource(tmp_path / "j.json", batch_rows=1)
    assert records(source) == [{"a": 1}, {"b": [1, None]}, 3]
    check_resume(source)
    (tmp_path / "j.json").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DataflowError, match=r"line at byte 9 of .* is not JSON"):
        read(JsonRowsSource(tmp_path / "j.json"))
