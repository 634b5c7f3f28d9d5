"""CSV and JSON with lines that do not fit the schema: those are set aside, each once, and all others are read as by the strict readers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.progress import ConfigError, DataflowError
from tests.thorough import examples

SCHEMA = pa.schema([("n", pa.int32()), ("word", pa.string()), ("at", pa.timestamp("s")), ("x", pa.float64())])
GOOD = {
    "csv": ["1,a,2024-01-02 03:04:05,0.5", '2,"b, ""c""",2024-01-02T00:00:00,1e3', ",,,", "  ", "", "-3,d,2024-12-31 23:59:59,nan\r"],
    "json": [
        '{"n": 1, "word": "a", "at": "2024-01-02 03:04:05", "x": 0.5}',
        ' {"word": "\\"", "x": 2}',
        "{}",
        "",
        '{"n": null, "at": null, "x": 1e300}',
    ],
}
BAD = {
    "csv": ["x,a,2024-01-02 03:04:05,0.5", "1", "1,2,3,4,5", '1,"a,2024-01-02 03:04:05,0.5', "3000000000,a,,", "1,a,yesterday,", '"'],
    "json": ["{", "null", "[]", "1", '{"n": "1"}', '{"m": 1}', '{"n": 3000000000}', '{"n": 1} {"n": 2}', '{"n": 1.5}', "not json"],
}


def read(kind: str, path: Any, **options: Any) -> Any:
    flow = rd.Dataflow("lenient")
    stream = getattr(flow, f"read_{kind}")(path, schema=SCHEMA, on_error="skip", **options)
    assert stream.schema == SCHEMA
    stream.collect("good", columnar=True)
    stream.errors.collect("bad")
    return flow.run(runtime="local", parallelism=2, seed=5)


def strict(kind: str, path: Path) -> list[Any]:
    flow = rd.Dataflow("strict")
    getattr(flow, f"read_{kind}")(str(path), schema=SCHEMA).collect("rows")
    return [row for _, row in flow.run(runtime="local")["rows"]]


@pytest.mark.parametrize("kind", ["csv", "json"])
@examples(each_run=14, soak=40)
@given(data=st.data(), split=st.integers(20, 400), rows=st.integers(1, 9))
def test_bad_lines_are_set_aside_and_good_ones_are_as_strictly_read(
    kind: str, data: Any, split: int, rows: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp(kind)
    lines = data.draw(st.lists(st.sampled_from([*GOOD[kind], *BAD[kind]]), max_size=25))
    header = ["n,word,at,x"] if kind == "csv" else []
    mixed, clean = folder / f"mixed.{kind}", folder / f"clean.{kind}"
    mixed.write_text("\n".join([*header, *lines]) + data.draw(st.sampled_from(["", "\n"])))
    good = [line for line in lines if line in GOOD[kind]]
    clean.write_text("\n".join([*header, *(line.replace("\r", "") for line in good if line.strip())]) + "\n")
    result = read(kind, str(mixed), split_bytes=split, batch_rows=rows)
    table = result["good"]
    got = sorted(map(repr, table.to_pylist() if table is not None else []))
    if any(line.strip() for line in good):
        assert got == sorted(map(repr, strict(kind, clean)))
    else:
        assert got == []
    assert sorted(bad["record"]["text"] for _, bad in result["bad"]) == sorted(line for line in lines if line in BAD[kind])
    assert {bad["operator"] for _, bad in result["bad"]} <= {f"read_{kind}"}


def test_the_header_of_each_file_is_left_out_and_has_to_be_that_of_the_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,word,at,x\n1,a,,\nx,a,,\n")
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("n,word,at,x\r\n2,b,,\r\n")
    (tmp_path / "c.csv").write_text("")
    result = read("csv", str(tmp_path))
    assert result["good"].column("n").to_pylist() == [1, 2]
    ((_, bad),) = result["bad"]
    assert bad["record"] == {"text": "x,a,,"}
    assert "CSV conversion error to int32: invalid value 'x'" in bad["error"]
    assert bad["line"].startswith("test_lenient_lines.py:")
    (tmp_path / "d.csv").write_text("word,n,at,x\na,1,,\n")
    with pytest.raises(DataflowError, match=r"the header of '.*d\.csv' is \['word', 'n', 'at', 'x'\], schema has \['n', 'word', "):
        read("csv", str(tmp_path))


def test_max_errors_and_a_resume(tmp_path: Path) -> None:
    """The lines after a snapshot are read on; bad ones are counted over both runs."""
    path = tmp_path / "in.json"
    path.write_text("".join(json.dumps({"n": n}) + "\n" if n % 10 else "?\n" for n in range(100)))
    with pytest.raises(DataflowError, match=r"read_json.*max_errors"):
        read("json", str(path), max_errors=9)
    assert len(read("json", str(path), max_errors=10)["bad"]) == 10
    flow = rd.Dataflow("resumed")
    stream = flow.read_json(str(path), schema=SCHEMA, on_error="skip", batch_rows=7)
    stream.collect("good", columnar=True)
    stream.errors.collect("bad")
    config = rd.RunConfig(storage_path=str(tmp_path / "runs"), snapshots=rd.SnapshotConfig(interval_s=1e-6))
    job = flow.submit(config, runtime="local", seed=3)
    for _ in range(60):
        job.step()
    assert job.snapshots.taken
    job.cancel()
    result = flow.run(config, runtime="local", resume="latest")
    assert sorted(result["good"].column("n").to_pylist()) == [n for n in range(100) if n % 10]
    assert len(result["bad"]) == 10


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("n\n1\n")
    flow = rd.Dataflow("refused")
    with pytest.raises(ConfigError, match=r"read_csv\(on_error='skip'\): which lines are bad depends on the types"):
        flow.read_csv(str(tmp_path), on_error="skip")
    with pytest.raises(DataflowError, match="read_csv: on_error is 'ignore'"):
        flow.read_csv(str(tmp_path), on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(DataflowError, match=r"read_csv.*there is no argument 'epoch'; it is called as read_csv\(paths"):
        flow.read_csv(str(tmp_path), schema=SCHEMA, on_error="skip", epoch="n")
    with pytest.raises(DataflowError, match="max_errors"):
        flow.read_json(str(tmp_path), max_errors=3)
