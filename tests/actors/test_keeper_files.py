"""What a keeper finds again after its process has died: the record, and the frames of live inputs."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

import rayad as rd
from rayad.actors.store import keeper_files
from rayad.actors.store.keeper_files import Frame, KeeperFiles, KeeperRecord
from rayad.snapshots.store import Superseded

FRAMES = [Frame(number, 8, [b"", bytes([number]), b"\n{"], bool(number % 2), f"sender:{number}") for number in range(5)]


def files(folder: Path, token: str = "1", secret: bytes | None = None) -> KeeperFiles:
    """As a process sees them that Ray has started after another one died."""
    return KeeperFiles("job", rd.RunConfig(storage_path=str(folder), snapshots=rd.SnapshotConfig(secret=secret)), token)


def begun(folder: Path, token: str = "1", secret: bytes | None = None) -> KeeperFiles:
    """Of a new keeper."""
    made = files(folder, token, secret)
    made.begin()
    made.write_record(KeeperRecord((1.0,)))
    return made


def again(folder: Path) -> KeeperFiles:
    """Another process of the same keeper, which has written its record."""
    made = files(folder)
    made.write_record(dataclasses.replace(made.record(), starts_s=(*made.record().starts_s, 2.0)))
    return made


def test_the_next_process_reads_what_the_one_before_has_written(tmp_path: Path) -> None:
    assert files(tmp_path).record() == KeeperRecord()
    mine = begun(tmp_path)
    record = KeeperRecord((1.5, 2.5), ("a", "b"), True, {"batch_rows": 17}, True, running_s=(2.0,))
    mine.write_record(KeeperRecord((1.5,)))
    mine.write_record(record)
    assert mine.outcome() is None
    mine.write_outcome(b"complete")
    for frame in FRAMES:
        mine.append("a/b c", frame)
    assert (files(tmp_path).record(), files(tmp_path).outcome()) == (record, b"complete")
    other = again(tmp_path)
    assert list(other.load("a/b c")) == FRAMES
    assert mine.marks("a/b c") == other.marks("a/b c") == {"sender": 4}
    assert list(other.load("a_b c")) == []


def test_frames_in_snapshots_stay_while_their_sender_may_repeat_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(keeper_files.clock, "monotonic", lambda: now_s)
    mine = begun(tmp_path)
    for frame in FRAMES:
        mine.append("x", frame)
        now_s += keeper_files.REMEMBER_S / 2
    mine.trim("x", 4)
    assert list(again(tmp_path).load("x")) == FRAMES[3:]
    mine.trim("x", 4)
    now_s += keeper_files.REMEMBER_S
    mine.trim("x", 4)
    assert list(again(tmp_path).load("x")) == FRAMES[4:]


def test_what_earlier_keepers_have_left_goes_and_at_the_end_everything(tmp_path: Path) -> None:
    (tmp_path / "job" / "keeper-of-an-earlier-version" / "inputs").mkdir(parents=True)
    begun(tmp_path, "old").append("x", FRAMES[0])
    mine = begun(tmp_path, "new")
    mine.append("x", FRAMES[0])
    later = begun(tmp_path, "later")
    assert [keeper.id.number for keeper in (mine, later)] == [2, 3]
    mine.delete_earlier()
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == ["keeper-000000000002-new", "keeper-000000000003-later"]
    later.delete_earlier()
    mine.delete()
    later.delete()
    later.delete()
    assert list((tmp_path / "job").iterdir()) == []


def test_a_process_that_was_taken_for_dead_is_told_so(tmp_path: Path) -> None:
    """Ray starts another process of a keeper whose node it counts as dead; the one before may live."""
    mine = begun(tmp_path)
    mine.append("x", FRAMES[0])
    other = again(tmp_path)
    assert list(other.load("x")) == FRAMES[:1]
    over = "another process of the keeper of job 'job' has begun: this one is over, and takes nothing more"
    with pytest.raises(Superseded, match=over):
        mine.append("x", FRAMES[1])
    with pytest.raises(Superseded, match=over):
        mine.write_record(KeeperRecord((1.0, 7.0)))
    with pytest.raises(Superseded, match=over):
        mine.write_outcome(b"failed")
    assert again(tmp_path).outcome() is None
    other = again(tmp_path)
    assert list(other.load("x")) == FRAMES[:1]
    other.append("x", FRAMES[1]._replace(mark="other:1"))
    assert [frame.mark for frame in again(tmp_path).load("x")] == ["sender:0", "other:1"]
    other = again(tmp_path)
    other.write_outcome(b"complete")
    assert files(tmp_path).outcome() == b"complete"


def test_a_call_is_taken_while_another_thread_writes_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is there before its writer knows that it is."""
    mine = begun(tmp_path)
    create = mine.port.create
    with ThreadPoolExecutor(1) as other:
        appended: list[Future[None]] = []

        def slowly(name: str, data: bytes) -> bool:
            is_ours = create(name, data)
            appended.append(other.submit(mine.append, "x", FRAMES[0]))
            wait(appended, timeout=0.2)
            return is_ours

        monkeypatch.setattr(mine.port, "create", slowly)
        mine.write_record(KeeperRecord((1.0,), is_stopping=True))
        appended[0].result(timeout=10.0)
    assert list(again(tmp_path).load("x")) == FRAMES[:1]


def test_a_record_that_is_there_although_the_store_told_of_a_failure_is_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = begun(tmp_path)
    create = mine.port.create

    def unconfirmed(name: str, data: bytes) -> bool:
        assert create(name, data)
        raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(mine.port, "create", unconfirmed)
        with pytest.raises(rd.SnapshotError, match="connection reset"):
            mine.write_record(KeeperRecord((1.0,), is_stopping=True))
    mine.append("x", FRAMES[0])
    mine.write_record(KeeperRecord((1.0,), is_cancelled=True))
    assert files(tmp_path).record() == KeeperRecord((1.0,), is_cancelled=True)
    assert list(again(tmp_path).load("x")) == FRAMES[:1]
    with pytest.raises(Superseded):
        mine.write_record(KeeperRecord((1.0,)))


def test_a_folder_that_has_gone_away_is_not_made_again(tmp_path: Path) -> None:
    mine = begun(tmp_path)
    mine.append("x", FRAMES[0])
    (tmp_path / "job").rename(tmp_path / "away")
    for make in (False, True):
        if make:
            (tmp_path / "job").mkdir()
        with pytest.raises(rd.SnapshotError, match="cannot write"):
            mine.append("x", FRAMES[1])
        with pytest.raises(rd.SnapshotError, match="cannot write"):
            mine.write_record(KeeperRecord())
    assert list((tmp_path / "job").iterdir()) == []


def test_a_file_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    begun(tmp_path, secret=b"0123456789abcdef").append("x", FRAMES[0])
    with pytest.raises(rd.SnapshotError, match="record-000000000001', of job 'job', is signed: give the secret"):
        files(tmp_path).record()
    (path,) = tmp_path.rglob("000000000000-*")
    path.write_bytes(path.read_bytes()[:-1])
    mine = files(tmp_path, secret=b"0123456789abcdef")
    mine.record()
    with pytest.raises(rd.SnapshotError, match="is not what was written"):
        list(mine.load("x"))
