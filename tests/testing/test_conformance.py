"""``rayad.testing``: connectors that keep their contract pass; each planted defect is found by the law that it breaks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rayad as rd
from rayad.integrations.arrow import ArrowSource
from rayad.integrations.file_output.committed import read_manifest
from rayad.integrations.file_output.parquet import ParquetSink
from rayad.integrations.files import CsvSource
from rayad.integrations.parquet import ParquetSource
from rayad.integrations.text import TextSource
from rayad.testing import LawBroken, check_sink, check_source
from tests.testing import connectors as given

TABLE = pa.table({"n": list(range(100)), "epoch": [n // 30 for n in range(100)]})


def test_a_source_that_keeps_the_contract_passes() -> None:
    check_source(given.Numbers, given.ALL)
    check_source(given.Endless, given.ALL, quiet_s=0.02)


@pytest.mark.parametrize("defect", given.SOURCE_DEFECTS, ids=lambda defect: defect.__name__)
def test_a_defect_of_a_source_is_found(defect: Any) -> None:
    with pytest.raises(LawBroken, match=f"^{defect.law}".replace("(", r"\(").replace(")", r"\)")):
        check_source(lambda: given.Defective(defect), quiet_s=0.2)


def test_records_that_are_missing_are_named() -> None:
    with pytest.raises(LawBroken, match=r"^all records come once: missing: \[99\] \(1 in all\); too many: \[\] \(0 in all\)$"):
        check_source(given.Numbers, [*given.ALL, 99])


def test_a_sink_that_keeps_the_contract_passes() -> None:
    places = itertools.count()
    check_sink(lambda: given.Table(next(places)), given.rows_of, histories=50)


@pytest.mark.parametrize("defect", given.SINK_DEFECTS, ids=lambda defect: defect.__name__)
def test_a_defect_of_a_sink_is_found(defect: Any) -> None:
    places = itertools.count()
    with pytest.raises(LawBroken, match=f"^{defect.law}"):
        check_sink(lambda: defect(next(places)), given.rows_of, histories=50)


def test_the_error_tells_the_history() -> None:
    places = itertools.count()
    with pytest.raises(LawBroken, match=r"\nhistory \d+: .*snapshot \d+ is committed"):
        check_sink(lambda: given.CommitAddsAgain(next(places)), given.rows_of, histories=50)


# -- what comes with Rayad --------------------------------------------------------------------------------------------


def test_arrow_tables_keep_the_contract() -> None:
    check_source(lambda: ArrowSource(TABLE, epoch="epoch", batch_rows=7), TABLE.to_pylist(), resumes=5)


def test_files_keep_the_contract(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=40)
    check_source(lambda: ParquetSource(str(tmp_path / "a.parquet"), batch_rows=16), TABLE.to_pylist(), resumes=5)
    (tmp_path / "a.csv").write_text("n,s\n" + "".join(f"{n},s{n}\n" for n in range(50)))
    check_source(lambda: CsvSource(str(tmp_path / "a.csv"), batch_rows=8), [{"n": n, "s": f"s{n}"} for n in range(50)], resumes=5)
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(50)))
    check_source(lambda: TextSource(str(tmp_path / "a.txt"), batch_rows=8), [f"line {n}" for n in range(50)], resumes=5)


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_committed_parquet_keeps_the_contract(tmp_path: Path, mode: Any) -> None:
    places = itertools.count()

    def rows(sink: rd.Sink) -> list[Any]:
        assert isinstance(sink, ParquetSink)
        manifest = read_manifest(sink.filesystem, sink.path) if Path(sink.path).is_dir() else None
        return [row for file in (manifest.files if manifest else ()) for row in pq.read_table(f"{sink.path}/{file.name}").to_pylist()]

    check_sink(lambda: ParquetSink(str(tmp_path / str(next(places))), mode=mode), rows, histories=8)
