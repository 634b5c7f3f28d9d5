"""Spark and Ray Data blocks in a run that resumes: staged, or computed again and compared."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray.data

import rayad as rd
from rayad.dataflow import Source
from rayad.integrations import RayDatasetSource, SparkSource
from rayad.progress import DataflowError
from rayad.snapshots.resume_point import input_changes
from tests.cluster.spark_fixtures import spark
from tests.integrations.driving import check_resume, drain

__all__ = ["spark"]


def rows(source: Source) -> list[Any]:
    return [(b.epoch, row) for part in source.list_parts() for b in drain(source.build_part(part, None)) for row in b.batch.to_pylist()]


def fingerprint(source: Source) -> Any:
    return json.loads(json.dumps(source.fingerprint(source.list_parts())))


def dataset(*blocks: list[int | None]) -> Any:
    return ray.data.from_arrow([pa.table({"x": pa.array(block, pa.int64())}) for block in blocks])


@pytest.mark.cluster
@pytest.mark.usefixtures("ray_cluster")
def test_a_ray_data_set_that_is_computed_again_has_to_have_the_same_blocks() -> None:
    before = fingerprint(RayDatasetSource(dataset([1, 2, 3], [4])))
    assert input_changes(before, fingerprint(RayDatasetSource(dataset([1, 2, 3], [4])))) == []
    (other_order,) = input_changes(before, fingerprint(RayDatasetSource(dataset([1, 3, 2], [4]))))
    assert other_order.startswith("blocks: '0' was '3 rows, contents ")
    assert input_changes(before, fingerprint(RayDatasetSource(dataset([1, 2, 3], [4], [5]))))[0].startswith("blocks: '2' is new")


@pytest.mark.cluster
@pytest.mark.usefixtures("ray_cluster")
def test_a_job_on_ray_resumes_with_the_same_blocks_only(tmp_path: Path) -> None:
    def run(resume: str | None, *blocks: list[int | None]) -> list[Any]:
        flow = rd.Dataflow("replayed")
        flow.from_ray_dataset(dataset(*blocks), name="blocks").map(lambda row: row["x"]).collect("out")
        return sorted(record for _, record in flow.run(rd.RunConfig(storage_path=str(tmp_path), resume=resume))["out"])

    assert run(None, [1, 2], [3]) == run("latest", [1, 2], [3]) == [1, 2, 3]
    with pytest.raises(rd.RayadError, match="the input of 'blocks' has changed: blocks: '1' was '1 rows, contents "):
        run("latest", [1, 2], [4])


@pytest.mark.cluster
@pytest.mark.usefixtures("ray_cluster")
def test_a_staged_ray_data_set_is_read_from_its_folder_and_not_computed_again(tmp_path: Path) -> None:
    folder = str(tmp_path / "in")
    source = RayDatasetSource(dataset([2, 1], [], [0, None]), replay="stage", staging_path=folder)
    expected = [(0, {"x": x}) for x in (2, 1, 0, None)]
    assert rows(source) == expected
    check_resume(source)
    before = fingerprint(source)
    assert before["blocks"] == {"0": "2 rows", "2": "2 rows"}

    def fail(batch: Any) -> Any:
        raise ValueError("computed again")

    again = RayDatasetSource(ray.data.range(9).map_batches(fail), replay="stage", staging_path=folder)
    assert rows(again) == expected
    assert input_changes(before, fingerprint(again)) == []
    Path(folder, source.list_parts()[0].name).unlink()  # type: ignore[union-attr]
    with pytest.raises(DataflowError, match="from_ray_dataset: staged block 0 cannot be read"):
        rows(again)


@pytest.mark.cluster
@pytest.mark.spark
def test_a_spark_frame_is_computed_again_or_staged(spark: Any, tmp_path: Path) -> None:
    def frame(low: int, high: int) -> Any:
        return spark.range(low, high, 1, 2).selectExpr("id % 2 as e", "cast(id as string) as s", "cast(null as void) as nothing")

    before = fingerprint(SparkSource(frame(0, 6), epoch="e"))
    assert input_changes(before, fingerprint(SparkSource(frame(0, 6), epoch="e"))) == []
    changed = input_changes(before, fingerprint(SparkSource(frame(1, 7), epoch="e")))
    assert [line.split(" was ")[0] for line in changed] == ["partitions: '0'", "partitions: '1'"]
    source = SparkSource(frame(0, 6), epoch="e", replay="stage", staging_path=str(tmp_path / "in"))
    assert rows(source) == rows(SparkSource(frame(0, 6), epoch="e"))
    check_resume(source)
    again = SparkSource(frame(100, 102), epoch="e", replay="stage", staging_path=str(tmp_path / "in"))
    assert rows(again) == rows(source)
    assert input_changes(fingerprint(source), fingerprint(again)) == []
    with pytest.raises(DataflowError, match="schema drift in from_spark: the staged input"):
        SparkSource(spark.range(2), replay="stage", staging_path=str(tmp_path / "in"))


@pytest.mark.cluster
@pytest.mark.usefixtures("ray_cluster")
def test_blocks_are_in_the_order_of_the_input_whichever_of_rays_tasks_ends_first() -> None:
    def slow_for(late: int) -> Any:
        def wait(batch: Any) -> Any:
            time.sleep(2 * (late in batch["x"]))
            return batch

        return wait

    def source(late: int) -> RayDatasetSource:
        return RayDatasetSource(dataset([1], [2], [3]).map_batches(slow_for(late), num_cpus=0.1, zero_copy_batch=True))

    assert rows(source(1)) == rows(source(3)) == [(0, {"x": x}) for x in (1, 2, 3)]
    assert input_changes(fingerprint(source(1)), fingerprint(source(2))) == []


@pytest.mark.cluster
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("csv", "json", "images"))])
def test_what_ray_data_reads_is_bounded_input_whose_parts_are_in_the_snapshots(tmp_path: Path, kind: str) -> None:
    """Each of its readers: a run that resumes goes on with the same files, and is refused with others."""
    folder = tmp_path / "in"
    folder.mkdir()

    def write(number: int) -> None:
        if kind == "images":
            from PIL import Image

            Image.new("RGB", (4, 2), (number, 0, 0)).save(folder / f"{number}.png")
        else:
            table = pa.table({"n": pa.array([number, number + 10], pa.int64())})
            getattr(ray.data.from_arrow(table), f"write_{kind}")(str(folder))

    def value(row: Any) -> Any:
        return int(row["image"][0][0][0]) if kind == "images" else row["n"]

    def run(resume: str | None) -> list[Any]:
        flow = rd.Dataflow("read-by-ray")
        flow.from_ray_dataset(getattr(ray.data, f"read_{kind}")(str(folder)), name="files").map(value).collect("out")
        return sorted(record for _, record in flow.run(rd.RunConfig(storage_path=str(tmp_path / "runs"), resume=resume))["out"])

    write(1)
    write(2)
    expected = [1, 2] if kind == "images" else [1, 2, 11, 12]
    assert run(None) == run("latest") == expected
    write(3)
    with pytest.raises(rd.RayadError, match="the input of 'files' has changed: blocks: "):
        run("latest")
