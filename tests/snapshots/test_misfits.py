"""The snapshots from which a dataflow may resume: each difference from the dataflow of the snapshot is named."""

from __future__ import annotations

from pathlib import Path

import pytest

import rayad as rd
from rayad.progress import SnapshotError


def words(
    name: str = "counts", *, parallelism: int = 1, key_groups: int = 256, folder: Path, more: bool = False, resume: str | None
) -> None:
    flow = rd.Dataflow("fit")
    lines = flow.from_items(["a", "b", "a"], name="lines")
    counts = lines.key_by(lambda w: w).count(name=name)
    counts.collect("out")
    if more:
        counts.key_by(lambda pair: pair[1]).count(name="second").collect("second")
    run = rd.RunConfig(storage_path=str(folder), resume=resume, key_groups=key_groups)
    flow.run(run, runtime="local", parallelism=parallelism)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"name": "sums"}, "vertex 'counts' was renamed to 'sums', or is another one: give it its old name with name='counts'"),
        ({"key_groups": 128}, "it has 256 key-groups, the job 128"),
        ({"more": True}, "vertex 'second' is in the dataflow and not in the snapshot"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused_by_name(tmp_path: Path, changed: dict[str, object], told: str) -> None:
    words(folder=tmp_path, resume=None)
    with pytest.raises(SnapshotError) as caught:
        words(folder=tmp_path, resume="latest", **changed)  # type: ignore[arg-type]
    assert told in str(caught.value)
    assert "Run the dataflow that the snapshot was taken of, or begin afresh with resume='never'" in str(caught.value)


def test_a_vertex_that_is_gone_is_named(tmp_path: Path) -> None:
    words(folder=tmp_path, resume=None, more=True)
    with pytest.raises(SnapshotError, match="vertex 'second' is in the snapshot and not in the dataflow"):
        words(folder=tmp_path, resume="latest")


def test_a_path_of_another_job_is_refused(tmp_path: Path) -> None:
    words(folder=tmp_path, resume=None)
    with pytest.raises(SnapshotError, match="that is no snapshot of job 'fit'"):
        words(folder=tmp_path, resume=str(tmp_path / "other" / "snapshots" / "000000000001"))


def test_resume_can_be_given_to_run(tmp_path: Path) -> None:
    words(folder=tmp_path, resume=None)
    flow = rd.Dataflow("fit")
    flow.from_items(["a", "b", "a"], name="lines").key_by(lambda w: w).count(name="counts").collect("out")
    run = rd.RunConfig(storage_path=str(tmp_path))
    again = flow.run(run, runtime="local", resume="latest")
    assert sorted(record for _, record in again["out"]) == [("a", 2), ("b", 1)]
    with pytest.raises(rd.DataflowError, match="give one of them"):
        flow.run(rd.RunConfig(storage_path=str(tmp_path), resume=1), runtime="local", resume="latest")
