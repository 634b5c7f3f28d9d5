"""A run that resumes from a snapshot of another run needs the same input: differences are named, and nothing is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.store.job_store import open_store
from rayad.dataflow.items import ItemsSource


def counts(lines: Any, home: Path, *, resume: str | None = None) -> list[Any]:
    flow = rd.Dataflow("counts")
    stream = flow.read_csv(str(lines), name="lines") if isinstance(lines, Path) else flow.from_items(lines, name="lines")
    stream.map(lambda row: row["a"] if isinstance(row, dict) else row).key_by(lambda a: a).count().collect("out")
    result = flow.run(rd.RunConfig(storage_path=str(home), resume=resume), runtime="local")
    return sorted(record for _, record in result["out"])


def test_a_snapshot_remembers_the_input_and_a_run_resumes_with_the_same_input(tmp_path: Path) -> None:
    lines = tmp_path / "lines.csv"
    lines.write_text("a\n1\n1\n2\n")
    first = counts(lines, tmp_path / "store")
    assert first == [(1, 2), (2, 1)]
    manifest, _ = open_store("counts", rd.RunConfig(storage_path=str(tmp_path / "store"))).latest()
    assert manifest is not None
    assert list(manifest.graph["inputs"]["lines"]["files"]) == [str(lines)]
    assert counts(lines, tmp_path / "store", resume="latest") == first


def test_a_file_that_grew_is_named(tmp_path: Path) -> None:
    lines = tmp_path / "lines.csv"
    lines.write_text("a\n1\n")
    counts(lines, tmp_path / "store")
    lines.write_text("a\n1\n2\n")
    with pytest.raises(rd.SnapshotError, match=rf"the input of 'lines' has changed: files: '{lines}' was '4 bytes, .* and is '6 bytes, "):
        counts(lines, tmp_path / "store", resume="latest")
    assert counts(lines, tmp_path / "store", resume="never") == [(1, 1), (2, 1)]


def test_other_items_are_noticed(tmp_path: Path) -> None:
    counts([1, 2], tmp_path)
    with pytest.raises(rd.SnapshotError, match=r"the input of 'lines' has changed: contents was '[0-9a-f]{16}' and is "):
        counts([1, 3], tmp_path, resume="latest")


class Says(ItemsSource):
    """A source with a fingerprint of its own."""

    def __init__(self, says: Any) -> None:
        super().__init__([[1]])
        self.says = says

    def fingerprint(self, parts: Any) -> Any:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (ValueError("gone"), r"source 's' \(.*test_inputs.py:\d+\) failed in fingerprint: ValueError: gone"),
        ({"when": object()}, "gave a fingerprint that is no plain JSON: .*; give numbers, texts, dicts of these"),
        ([1], r"gave \[1\] as fingerprint: it must be a dict, or None"),
    ],
)
def test_a_fingerprint_that_cannot_be_kept_is_refused(tmp_path: Path, says: Any, message: str) -> None:
    flow = rd.Dataflow("says")
    flow.source(Says(says), name="s").collect("out")
    with pytest.raises(rd.DataflowError, match=message):
        flow.run(rd.RunConfig(storage_path=str(tmp_path)), runtime="local")
    assert [record for _, record in flow.run(runtime="local")["out"]] == [1]  # nothing is asked where nothing is kept


def test_a_source_without_a_fingerprint_is_trusted(tmp_path: Path) -> None:
    for resume in (None, "latest"):
        flow = rd.Dataflow("says")
        flow.source(Says(None), name="s").collect("out")
        result = flow.run(rd.RunConfig(storage_path=str(tmp_path), resume=resume), runtime="local")
        assert [record for _, record in result["out"]] == [1]
