"""Files of a part are read several at a time: in order, and the error is that of the first file that cannot be read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rayad.actors.host.side_by_side import side_by_side
from rayad.actors.replica.parts.part_files import dumped
from rayad.actors.replica.parts.part_reading import read_part
from rayad.actors.replica.rest import FORMAT
from rayad.snapshots.errors import Damaged
from rayad.snapshots.manifest import ReplicaPart
from rayad.snapshots.store import SnapshotStore
from tests.patience import PATIENCE_S


def test_several_calls_are_under_way_at_a_time_and_answers_keep_their_order() -> None:
    both = threading.Barrier(2)

    def met(number: int) -> int:
        if number < 2:
            both.wait(PATIENCE_S)  # one alone would wait for ever
        return 10 * number

    assert list(side_by_side(met, range(6))) == [0, 10, 20, 30, 40, 50]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rayad-read")], "all of its threads have ended"


def test_nothing_and_one_thing_need_no_thread() -> None:
    here = threading.get_ident()
    assert list(side_by_side(lambda _: threading.get_ident(), [])) == []
    assert list(side_by_side(lambda _: threading.get_ident(), [1])) == [here]


@pytest.mark.parametrize("each", [map, side_by_side])
def test_the_error_names_the_file_that_is_not_what_was_written(tmp_path: Path, each: object) -> None:
    store = SnapshotStore(str(tmp_path / "store"))
    store.prepare()
    files = [store.write_part(1, "v", 0, dumped({"n": bytes(1000 + at)}), attempt=str(at)) for at in range(6)]
    rest = store.write_part(1, "v", 0, dumped({"format": FORMAT}), attempt="rest")
    part = ReplicaPart("v", 0, tuple(files), rest)
    read = read_part(store, part, each)  # type: ignore[arg-type]
    assert [len(state["n"]) for state in read.states] == [1000 + at for at in range(6)]
    for file in (*files, rest):
        path = Path(store.folder, file.path)
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(Damaged, match=file.path) as caught:
            read_part(store, part, each)  # type: ignore[arg-type]
        assert caught.value.path == file.path
        path.write_bytes(content)


def test_what_is_mapped_stays_when_its_file_is_deleted_and_is_the_readers_own(tmp_path: Path) -> None:
    store = SnapshotStore(str(tmp_path / "store"))
    store.prepare()
    file = store.write_part(1, "v", 0, [b"what was written"])
    mine, others = store.map_part(file), store.map_part(file)
    Path(store.folder, file.path).unlink()
    assert bytes(mine) == b"what was written"
    if not mine.readonly:  # it is mapped: the folder is on a disk of this machine
        mine[:4] = b"WHAT"
        assert bytes(others) == b"what was written"
