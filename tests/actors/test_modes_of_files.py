"""Files of jobs hold users' data: on a local file system nobody but their owner may read them; what sinks write is the user's."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

import rayad as rd
from rayad.actors.plane.address import open_listeners
from rayad.actors.plane.spilling_queue import SpillFile
from rayad.actors.scaling.files import JournalFile
from rayad.actors.store.line_file import LineFile
from tests.actors.test_keeper_files import FRAMES, begun
from tests.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Of the folder and of all that is in it, as ``ls`` has them."""
    return {str(path.relative_to(folder.parent)): stat.filemode(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}


def refuse_open_ones(found: dict[str, str]) -> None:
    open_ones = {name: mode for name, mode in found.items() if mode not in ("-rw-------", "drwx------")}
    assert not open_ones


def test_files_of_a_run_on_a_local_store_are_their_owners_alone(tmp_path: Path) -> None:
    flow = rd.Dataflow("shop")
    counts = flow.from_epochs([[("a", n)] for n in range(20)]).key_by(lambda record: record[0]).count()
    counts.write_csv(str(tmp_path / "out"), schema=pa.schema([("word", pa.string()), ("n", pa.int64())]))
    config = rd.RunConfig(storage_path=str(tmp_path / "new" / "store"), snapshots=rd.SnapshotConfig(interval_s=1e-6))
    job = flow.submit(config, runtime="local")
    saved = job.savepoint()
    job.wait()
    found = modes(tmp_path / "new")
    assert any(name.endswith(".part") for name in found)
    assert os.path.isdir(saved)
    refuse_open_ones(found)
    written = modes(tmp_path / "out")
    assert {mode for name, mode in written.items() if name.endswith(".csv")} == {"-rw-r--r--"}
    assert written["out"] == "drwxr-xr-x"


def test_files_of_a_keeper_are_their_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    keeper = begun(folder)
    for frame in FRAMES:
        keeper.append("x", frame)
    keeper.write_outcome(b"complete")
    assert len(modes(folder)) > 5
    refuse_open_ones(modes(folder))


def test_journals_are_their_owners_alone(tmp_path: Path) -> None:
    JournalFile(tmp_path / "store" / "shop" / "scaling.jsonl", "shop")
    lines = LineFile(fs.LocalFileSystem(), str(tmp_path / "other" / "shop" / "journal.jsonl"))
    for line in ("first", "second"):
        lines.append(line)
        lines.close(PATIENCE_S)
        lines = LineFile(fs.LocalFileSystem(), str(tmp_path / "other" / "shop" / "journal.jsonl"))
    assert lines.read() == ["first", "second"]
    lines.close(PATIENCE_S)
    for folder in ("store", "other"):
        assert len(modes(tmp_path / folder)) == 3
        refuse_open_ones(modes(tmp_path / folder))


def test_sockets_and_spilled_state_are_their_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    listeners = open_listeners("127.0.0.1", unix="path")
    found = modes(Path(listeners.directory))
    listeners.close()
    assert sorted(found.values()) == ["drwx------", "srw-------"]
    kept: list[str] = []
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    monkeypatch.setattr("rayad.actors.plane.spilling_queue.os.unlink", kept.append)
    spilled = SpillFile(str(tmp_path))
    spilled.write(b"state")
    spilled.close()
    monkeypatch.undo()
    assert [stat.filemode(os.stat(path).st_mode) for path in kept] == ["-rw-------"]
