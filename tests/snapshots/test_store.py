"""Snapshots on disk: what is published is whole, what was changed is refused by name, what nothing needs is deleted and nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from pyarrow import fs

from rayad.progress import ConfigError, SnapshotError
from rayad.snapshots.manifest import Manifest, PartFile, ReplicaPart
from rayad.snapshots.resume_point import begin_run, choose
from rayad.snapshots.store import MANIFEST, SnapshotStore, StoreAwayError


def manifest(number: int, *files: PartFile) -> Manifest:
    parts = tuple(ReplicaPart("count", replica, (file,)) for replica, file in enumerate(files))
    return Manifest(number, "wc", {"count": {"replicas": len(files)}}, 256, parts)


def taken(store: SnapshotStore, number: int, *contents: bytes) -> Manifest:
    store.prepare()
    newest = max(store.numbers(), default=0)
    files = [store.write_part(number, "count", replica, [content[:2], content[2:]]) for replica, content in enumerate(contents)]
    made = manifest(number, *files)
    store.publish(made, after=newest)
    return made


def test_written_parts_come_back(tmp_path: Path) -> None:
    store = SnapshotStore(str(tmp_path / "job"))
    assert store.numbers() == []
    assert store.latest() == (None, [])
    made = taken(store, 3, b"first part", b"")
    assert store.numbers() == [3]
    assert store.load(3) == made
    assert store.latest() == (made, [])
    assert [store.read_part(file) for part in made.parts for file in part.files] == [b"first part", b""]


def test_parts_without_a_manifest_are_no_snapshot(tmp_path: Path) -> None:
    store = SnapshotStore(str(tmp_path))
    made = taken(store, 1, b"a")
    store.write_part(2, "count", 0, [b"half"])
    (tmp_path / f"{2:012d}" / f"{MANIFEST}.writing").write_bytes(b"torn")
    assert store.numbers() == [1]
    assert store.latest() == (made, [])


@pytest.mark.parametrize("how", ["flipped", "truncated", "grown", "missing"])
def test_a_changed_part_is_refused_by_name_and_the_one_before_is_used(tmp_path: Path, how: str) -> None:
    store = SnapshotStore(str(tmp_path))
    older = taken(store, 1, b"older state")
    newer = taken(store, 2, b"newer state", b"of another replica")
    (file,) = newer.parts[1].files
    path = tmp_path / file.path
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    else:
        data[3] ^= 1 if how == "flipped" else 0
        path.write_bytes(bytes(data[:-1] if how == "truncated" else data + b"x" if how == "grown" else data))
    with pytest.raises(SnapshotError) as caught:
        store.read_part(file)
    assert file.path in str(caught.value)
    found, refused = store.latest()
    assert found == older
    assert len(refused) == 1
    assert "snapshot 2 is not used" in refused[0]
    assert file.path in refused[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("wc", "xx"),
        lambda text: "{}",
        lambda text: "[1]",
        lambda text: "",
    ],
    ids=["torn", "changed", "empty object", "list", "empty"],
)
def test_a_changed_manifest_is_refused(tmp_path: Path, change: object) -> None:
    store = SnapshotStore(str(tmp_path))
    older = taken(store, 1, b"a")
    taken(store, 2, b"b")
    path = tmp_path / f"{2:012d}" / MANIFEST
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    with pytest.raises(SnapshotError, match=MANIFEST):
        store.load(2)
    assert store.latest()[0] == older


def test_a_manifest_under_another_number_is_refused(tmp_path: Path) -> None:
    store = SnapshotStore(str(tmp_path))
    taken(store, 1, b"a")
    os.rename(tmp_path / f"{1:012d}", tmp_path / f"{7:012d}")
    with pytest.raises(SnapshotError, match="manifest of snapshot 1: files were moved"):
        store.load(7)


def test_another_format_is_refused(tmp_path: Path) -> None:
    store = SnapshotStore(str(tmp_path))
    made = taken(store, 1, b"a")
    with pytest.raises(SnapshotError, match="format 3, this version of Rayad reads formats 1 to 2"):
        Manifest.from_json({**json.loads(json.dumps(made.to_json())), "format": 3})
    with pytest.raises(SnapshotError, match="lacks a field or has one too many"):
        Manifest.from_json({"format": 1, "parts": []})


def test_a_manifest_of_format_1_has_no_files_of_runs(tmp_path: Path) -> None:
    made = taken(SnapshotStore(str(tmp_path)), 1, b"a")
    plain = json.loads(json.dumps(made.to_json()))
    for part in plain["parts"]:
        del part["runs"]
    again = Manifest.from_json({**plain, "format": 1})
    assert again.parts == made.parts
    assert again.files() == made.files()


def test_a_number_is_published_once(tmp_path: Path) -> None:
    store = SnapshotStore(str(tmp_path))
    made = taken(store, 1, b"a")
    with pytest.raises(SnapshotError, match="is there already"):
        store.publish(manifest(1), after=1)
    assert store.load(1) == made


def test_with_a_secret_nothing_made_without_it_is_read(tmp_path: Path) -> None:
    mine = SnapshotStore(str(tmp_path), secret=b"s" * 32)
    made = taken(mine, 1, b"a")
    for secret, why in ((None, "is signed: give the secret"), (b"t" * 32, "or was signed with another secret")):
        with pytest.raises(SnapshotError, match=why):
            SnapshotStore(str(tmp_path), secret=secret).load(1)
    assert mine.latest() == (made, [])


def test_retention_keeps_what_is_named(tmp_path: Path) -> None:
    store = SnapshotStore(str(tmp_path))
    base = store.write_part(1, "count", 0, [b"full"])
    store.publish(manifest(1, base), after=0)
    for number in (2, 3, 4):
        more = store.write_part(number, "count", 0, [b"changes"])
        kind = "savepoint" if number == 2 else "snapshot"
        store.publish(Manifest(number, "wc", {}, 256, (ReplicaPart("count", 0, (base, more)),), kind=kind), after=number - 1)
    store.write_part(5, "count", 0, [b"being written"])
    assert store.to_keep(4, 1, []) == store.to_keep(4, 1, [2]) == []
    assert store.to_keep(4, 2, []) == [3]
    assert store.retain(4, []) == [1, 3]
    assert store.numbers() == [2, 4]
    assert store.read_part(base) == b"full"  # its snapshot is gone, others build on it
    assert not (tmp_path / f"{3:012d}").exists()
    assert (tmp_path / f"{5:012d}").exists()
    assert store.latest()[0] is not None


def test_who_was_superseded_deletes_nothing_of_its_successor(tmp_path: Path) -> None:
    """Regression: it kept what it knew, and deleted the savepoints of the run that had superseded it."""
    store = SnapshotStore(str(tmp_path))
    for number in (1, 2, 3):
        taken(store, number, b"state")
    store.publish(dataclasses.replace(manifest(4, store.write_part(4, "count", 0, [b"x"])), kind="savepoint"), after=3)
    taken(store, 5, b"state")
    assert store.retain(3, [2]) == [1]
    assert store.numbers() == [2, 3, 4, 5]
    assert len(list(tmp_path.rglob("*.part"))) == 4


def test_what_a_newer_snapshot_has_retired_is_not_resumed_from(tmp_path: Path) -> None:
    """Its run may be deleting it at any moment, however long ago it has published what retires it."""
    store = SnapshotStore(str(tmp_path))
    for number in (1, 2):
        taken(store, number, b"state")
    (file,) = (store.write_part(3, "count", 0, [b"newest"]),)
    store.publish(dataclasses.replace(manifest(3, file), notes={"kept": [2]}), after=2)
    (tmp_path / file.path).unlink()
    assert [(number, why) for number, _, why in store.newest_first()][1:] == [(2, ""), (1, "snapshot 3 has retired snapshot 1")]
    with pytest.raises(SnapshotError, match=r"snapshot 1 in .* cannot be resumed from: snapshot 3 has retired snapshot 1"):
        choose(store, 1, store.numbers())
    assert choose(store, 2, store.numbers())[0] == store.load(2)


def test_what_an_old_run_publishes_under_a_number_that_is_free_again_does_not_count(tmp_path: Path) -> None:
    """A number is free again when retention has deleted its manifest."""
    store = SnapshotStore(str(tmp_path))
    taken(store, 1, b"state")
    for number, claims in ((3, [1, 2]), (4, [1, 2])):
        file = store.write_part(number, "count", 0, [b"of run 2"])
        store.publish(dataclasses.replace(manifest(number, file), notes={"claims": claims}), after=number - 1 if number == 4 else 1)
    stale = dataclasses.replace(manifest(2, store.write_part(2, "count", 0, [b"of run 1"])), notes={"claims": [1]})
    with pytest.raises(SnapshotError, match="snapshot 2 comes after snapshot 4"):
        store.publish(stale, after=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "_refuse_unless_newest", lambda *_: None)  # it stood still after it had looked, and was killed then
        store.publish(stale, after=1)
    found = list(store.newest_first())
    assert [number for number, *_ in found] == [4, 3, 2, 1]
    assert found[2][1:] == (None, "snapshot 2 is of run 1, which run 2 had superseded before")
    assert store.history().claims == [1, 2]


@pytest.mark.parametrize("how", ["gone", "another", "emptied"])
def test_nothing_is_published_where_the_newest_snapshot_is_not(tmp_path: Path, how: str) -> None:
    """Regression: an unmounted folder was made again, and snapshots that build on others were published there."""
    folder = tmp_path / "job"
    store = SnapshotStore(str(folder))
    for number in (1, 2):
        taken(store, number, b"state")
    part = store.write_part(3, "count", 0, [b"more"])
    os.rename(folder, tmp_path / "away")
    if how == "emptied":
        folder.mkdir()
    if how == "another":
        taken(SnapshotStore(str(folder)), 1, b"other")
    with pytest.raises(StoreAwayError, match=r"snapshot 2, the newest, is not in .*nothing is published there until it is back"):
        store.publish(manifest(3, part), after=2)
    if how == "gone":
        with pytest.raises(SnapshotError, match="cannot write part"):
            store.write_part(3, "count", 0, [b"more"])
        assert not folder.exists()
    with pytest.raises(StoreAwayError, match=r"snapshot 2 is not in .*: nothing is deleted there until it is back"):
        store.retain(2, [])


def of_run(number: int, run: str, *files: PartFile) -> Manifest:
    return dataclasses.replace(manifest(number, *files), run=run, notes={"claims": [1]})


def test_a_snapshot_that_builds_on_nothing_follows_one_that_was_deleted(tmp_path: Path) -> None:
    """Somebody deletes a savepoint while it is the newest snapshot: snapshots were late until the job was submitted again."""
    store = SnapshotStore(str(tmp_path))
    store.prepare()
    first = store.write_part(1, "count", 0, [b"first"])
    store.publish(of_run(1, "mine", first), after=0)
    base = store.write_part(2, "count", 0, [b"base"])
    store.publish(of_run(2, "mine", base), after=1)
    shutil.rmtree(tmp_path / f"{2:012d}")
    more = store.write_part(3, "count", 0, [b"more"], attempt="1")
    with pytest.raises(StoreAwayError, match="snapshot 2, the newest, is not in"):
        store.publish(of_run(3, "mine", base, more), after=2)  # an increment
    whole = store.write_part(3, "count", 0, [b"whole"], attempt="2")
    store.publish(of_run(3, "mine", whole), after=2)
    assert store.numbers() == [1, 3]


def test_nothing_is_published_behind_a_snapshot_of_another_run(tmp_path: Path) -> None:
    """Another folder has come in the place of the store, and its numbers are the same by chance."""
    ours, theirs = SnapshotStore(str(tmp_path / "ours")), SnapshotStore(str(tmp_path / "theirs"))
    for store, run in ((ours, "mine"), (theirs, "other")):
        store.prepare()
        store.publish(of_run(1, run), after=0)
        store.publish(of_run(2, run), after=1)
    os.rename(tmp_path / "ours", tmp_path / "away")
    os.rename(tmp_path / "theirs", tmp_path / "ours")
    for after in (2, 3):  # the second: there are fewer, and nothing is built on
        with pytest.raises(StoreAwayError, match=r"snapshot 2 in .* is of run 'other', and the newest was of this one, 'mine'"):
            ours.publish(of_run(after + 1, "mine"), after=after)
    assert ours.numbers() == [1, 2]


def test_only_the_first_coordinator_makes_the_folder(tmp_path: Path) -> None:
    """Regression: one that was started before the job was known to have begun found its folder away, and began anew beside it."""
    store = SnapshotStore(str(tmp_path / "store" / "job"))
    begin = partial(begin_run, store, "latest", job="wc", graph={"vertices": {}}, key_groups=8)
    with pytest.raises(StoreAwayError, match="is not there, and a coordinator of job 'wc' that has died may have begun there"):
        begin(run="second", is_first=False)

    def refuses(earlier: Manifest | None) -> dict[str, object]:
        raise ConfigError("the output is refused")

    with pytest.raises(ConfigError, match="the output is refused"):
        begin(run="first", start=refuses)
    assert list(tmp_path.iterdir()) == []
    begin(run="first")
    (tmp_path / "store" / "job" / f"{1:012d}" / MANIFEST).unlink()  # it died just before
    assert begin(run="second", is_first=False)[0].number == 1


def test_retention_does_not_count_what_cannot_be_read(tmp_path: Path) -> None:
    """A manifest that was spoilt stays for whoever can mend it; it ended the job when the next snapshot was published."""
    store = SnapshotStore(str(tmp_path))
    for number in (1, 2, 3, 4):
        taken(store, number, b"state")
    (tmp_path / f"{3:012d}" / MANIFEST).write_text("{")
    assert store.to_keep(4, 2, []) == [2, 3]
    assert store.retain(4, [2, 3]) == [1]
    assert store.numbers() == [2, 3, 4]
    assert len(list((tmp_path / f"{3:012d}").iterdir())) == 2
    taken(store, 5, b"state")
    assert store.to_keep(5, 2, []) == [4]
    assert store.retain(5, [4]) == [2, 3]


def test_a_number_below_the_newest_cannot_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention deletes what took a number: an old run could publish there again."""
    store = SnapshotStore(str(tmp_path))
    for number in (1, 2, 3):
        taken(store, number, b"state")
    store.retain(3, [])
    with pytest.raises(SnapshotError, match="comes after snapshot 3"):
        store.publish(manifest(2), after=1)
    # A process that stands still between looking and publishing finds out afterwards. What it has published stays: it deletes nothing.
    seen = iter([[1], [2, 3]])
    monkeypatch.setattr(store, "numbers", lambda: next(seen))
    with pytest.raises(SnapshotError, match=r"comes after snapshot 3|is there already"):
        store.publish(manifest(2), after=1)
    monkeypatch.undo()
    assert store.numbers() == [2, 3]


def test_snapshots_that_a_claim_has_skipped_are_void(tmp_path: Path) -> None:
    """Also when the claim cannot be used itself: what lies between was taken back where it was shown."""
    store = SnapshotStore(str(tmp_path))
    first = taken(store, 1, b"state")
    taken(store, 2, b"passed over")
    taken(store, 3, b"passed over")
    (file,) = (store.write_part(4, "count", 0, [b"later"]),)
    store.publish(dataclasses.replace(manifest(4, file), kind="resume", notes={"void": [2, 3]}), after=3)
    (tmp_path / file.path).unlink()
    found, refused = store.latest()
    assert found == first
    assert [why.split(":")[0] for why in refused] == [f"snapshot {n} is not used" for n in (4, 3, 2)]
    assert "snapshot 2 is void" in refused[2]


def test_names_of_vertices_stay_apart(tmp_path: Path) -> None:
    store = SnapshotStore(str(tmp_path))
    names = ["a-b", "a/b", "a b", "a%2db", "ab", "ä", "../x"]
    files = [store.write_part(1, name, 0, [name.encode()]) for name in names]
    assert len({file.path for file in files}) == len(names)
    assert [store.read_part(file).decode() for file in files] == names
    assert {path.parent.name for path in tmp_path.rglob("*.part")} == {f"{1:012d}"}


def test_a_store_that_cannot_be_written_or_opened_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.write_text("a file where the folder should be")
    with pytest.raises(SnapshotError, match="cannot make the snapshot store"):
        SnapshotStore(str(folder)).prepare()
    with pytest.raises(SnapshotError, match="cannot write part"):
        SnapshotStore(str(folder)).write_part(1, "v", 0, [b"x"])
    with pytest.raises(SnapshotError, match="cannot open the snapshot store"):
        SnapshotStore("nosuch://bucket/x")


def test_any_file_system_of_pyarrow(tmp_path: Path) -> None:
    below = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    store = SnapshotStore("jobs/wc", filesystem=below)
    made = taken(store, 1, b"a")
    assert store.latest() == (made, [])
    assert (tmp_path / "jobs" / "wc" / f"{1:012d}" / MANIFEST).exists()


def test_what_a_void_snapshot_has_retired_stays_retired(tmp_path: Path) -> None:
    """Regression: its run may still be deleting that, and somebody who went back further resumed from it."""
    store = SnapshotStore(str(tmp_path))
    for number in (1, 2):
        taken(store, number, b"state")
    store.publish(dataclasses.replace(manifest(3, store.write_part(3, "count", 0, [b"x"])), notes={"kept": [2]}), after=2)
    store.publish(dataclasses.replace(manifest(4), kind="resume", notes={"void": [3]}), after=3)
    assert store.why_not(3, store.numbers()) == "snapshot 4 says that snapshot 3 is void"
    assert store.why_not(1, store.numbers()) == "snapshot 3 has retired snapshot 1"
    assert store.why_not(2, store.numbers()) == ""
    assert store.to_keep(5, 9, []) == [2, 4]
