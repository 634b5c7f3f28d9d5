"""What a keeper finds again after its process has died: the record, and the frames of live inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

import rayad as rd
from rayad.actors.store import keeper_files
from rayad.actors.store.keeper_files import Frame, KeeperFiles, KeeperRecord

FRAMES = [Frame(number, 8, [b"", bytes([number]), b"\n{"], bool(number % 2), f"sender:{number}") for number in range(5)]


def files(folder: Path, token: str = "1", secret: bytes | None = None) -> KeeperFiles:
    return KeeperFiles("job", rd.RunConfig(storage_path=str(folder), snapshots=rd.SnapshotConfig(secret=secret)), token)


def test_the_next_process_reads_what_the_one_before_has_written(tmp_path: Path) -> None:
    mine = files(tmp_path)
    assert mine.record() == KeeperRecord()
    record = KeeperRecord((1.5, 2.5), ("a", "b"), True, {"batch_rows": 17}, True, running_s=(2.0,))
    mine.write_record(KeeperRecord((1.5,)))
    mine.write_record(record)
    assert mine.outcome() is None
    mine.write_outcome(b"complete")
    for frame in FRAMES:
        mine.append("a/b c", frame)
    assert (files(tmp_path).record(), files(tmp_path).outcome()) == (record, b"complete")
    again = files(tmp_path)
    assert list(again.load("a/b c")) == FRAMES
    assert mine.marks("a/b c") == again.marks("a/b c") == {"sender": 4}
    assert list(files(tmp_path).load("a_b c")) == []


def test_frames_in_snapshots_stay_while_their_sender_may_repeat_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(keeper_files.clock, "monotonic", lambda: now_s)
    mine = files(tmp_path)
    for frame in FRAMES:
        mine.append("x", frame)
        now_s += keeper_files.REMEMBER_S / 2
    mine.trim("x", 4)
    assert list(files(tmp_path).load("x")) == FRAMES[3:]
    mine.trim("x", 4)
    now_s += keeper_files.REMEMBER_S
    mine.trim("x", 4)
    assert list(files(tmp_path).load("x")) == FRAMES[4:]


def test_what_others_have_left_goes_and_at_the_end_everything(tmp_path: Path) -> None:
    files(tmp_path, "old").append("x", FRAMES[0])
    mine = files(tmp_path, "new")
    mine.append("x", FRAMES[0])
    mine.delete_others()
    assert [path.name for path in (tmp_path / "job").iterdir()] == ["keeper-new"]
    mine.delete()
    mine.delete()
    assert list((tmp_path / "job").iterdir()) == []


def test_a_file_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    files(tmp_path, secret=b"0123456789abcdef").append("x", FRAMES[0])
    with pytest.raises(rd.SnapshotError, match="is not what was written, or was written with another secret"):
        list(files(tmp_path).load("x"))
    (path,) = tmp_path.rglob("000000000000")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(rd.SnapshotError, match="is not what was written"):
        list(files(tmp_path, secret=b"0123456789abcdef").load("x"))
