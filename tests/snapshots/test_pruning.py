"""Old snapshots are removed by what manifests name: a file stays that one names which stays, whichever folder it is in."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from rayad.cli import main
from rayad.progress import SnapshotError
from rayad.snapshots import pruning
from rayad.snapshots.manifest import Manifest, PartFile, ReplicaPart, StagedPart
from rayad.snapshots.pruning import Pruning, prune
from rayad.snapshots.store import SnapshotStore
from tests.snapshots.test_damaged_parts import EPOCHS, ROWS, finished, lived, submitted


def stored(folder: Path) -> SnapshotStore:
    store = SnapshotStore(str(folder))
    store.prepare()
    return store


def taken(store: SnapshotStore, number: int, *named: PartFile, kind: str = "snapshot", **notes: Any) -> Manifest:
    """A snapshot with a state and a rest of its own, files of runs that are ``named``, and one staged value."""
    own = [store.write_part(number, "v", 0, [f"{what} {number}".encode()], attempt=what) for what in ("state", "rest", "staged")]
    part = ReplicaPart("v", 0, (own[0],), own[1], None, named)
    made = Manifest(number, "j", {}, 8, (part,), (StagedPart("out", "v", 0, own[2]),), kind=kind, run="r", notes=notes)
    store.publish(made, after=number - 1)
    return made


def run_file(store: SnapshotStore, number: int) -> PartFile:
    return store.write_part(number, "v", 0, [b"rows " * number], attempt="run0")


def all_files(store: SnapshotStore) -> set[str]:
    root = Path(store.folder)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def whole(store: SnapshotStore) -> list[int]:
    """Those that can be resumed from, all of whose files are what was written."""
    return sorted(number for number, _, why in store.newest_first() if not why)


def test_files_of_removed_snapshots_stay_where_others_name_them(tmp_path: Path) -> None:
    store = stored(tmp_path / "store")
    first = run_file(store, 1)
    taken(store, 1, first)
    second = run_file(store, 2)
    taken(store, 2, first, second)
    taken(store, 3, first)
    taken(store, 4, first)
    left = store.write_part(2, "v", 0, [b"of an attempt that was given up"], attempt="9.9.state")
    before = all_files(store)
    told = prune(store, 2)
    assert all_files(store) == before, "nothing is removed unless it is said"
    assert prune(store, 2, does=True) == told
    assert (told.removed, told.kept) == ((1, 2), (3, 4))
    gone = before - all_files(store)
    assert gone >= {second.path, left.path, "000000000001/manifest.json", "000000000002/manifest.json"}
    assert told.files == len(gone) == 10
    assert whole(store) == [3, 4]
    assert first.path in all_files(store), "it is named by what stays"
    assert not Path(store.folder, "000000000002").exists()
    assert prune(store, 2, does=True) == Pruning((), (3, 4), 0, 0)


def test_what_it_tells_is_what_is_freed(tmp_path: Path) -> None:
    store = stored(tmp_path / "store")
    for number in range(1, 5):
        taken(store, number, run_file(store, number))

    def size() -> int:
        return sum(Path(store.folder, name).stat().st_size for name in all_files(store))

    before = size()
    assert prune(store, 1, does=True).freed_bytes == before - size() > 0


def test_savepoints_stay_unless_it_is_said(tmp_path: Path) -> None:
    store = stored(tmp_path / "store")
    taken(store, 1, kind="savepoint")
    for number in range(2, 5):
        taken(store, number)
    assert prune(store, 1, does=True).kept == (1, 4)
    assert whole(store) == [1, 4]
    assert prune(store, 1, savepoints=True, does=True).removed == (1,)
    assert whole(store) == [4]


def test_snapshots_that_are_void_go_and_do_not_count(tmp_path: Path) -> None:
    store = stored(tmp_path / "store")
    for number in range(1, 4):
        taken(store, number)
    taken(store, 4, kind="resume", void=[3], resumed_from=2, stands_for=2)
    told = prune(store, 2, does=True)
    assert told.kept == (1, 2, 4), "the claim on snapshot 2 counts as that one"
    assert told.removed == (3,)


def test_a_start_holds_nothing_and_does_not_count(tmp_path: Path) -> None:
    store = stored(tmp_path / "store")
    taken(store, 1)
    store.publish(Manifest(2, "j", {}, 8, (), kind="start", run="r2"), after=1)
    assert prune(store, 1, does=True).kept == (1, 2)


def test_nothing_above_the_newest_is_touched(tmp_path: Path) -> None:
    """It may be being written."""
    store = stored(tmp_path / "store")
    taken(store, 1)
    taken(store, 2)
    being_written = store.write_part(3, "v", 0, [b"of the next"], attempt="state")
    prune(store, 1, does=True)
    assert being_written.path in all_files(store)


def test_what_is_published_meanwhile_keeps_its_files(tmp_path: Path) -> None:
    """Between the list and the deletion a job goes back to a snapshot that is about to be removed, and its claim names that one's files."""
    store = stored(tmp_path / "store")
    old = taken(store, 1, run_file(store, 1))
    taken(store, 2)
    others, really = SnapshotStore(store.folder), store.port.delete

    def delete(name: str) -> None:
        really(name)
        if name == "000000000001/manifest.json" and 3 not in others.numbers():
            others.publish(dataclasses.replace(old, number=3, kind="resume", notes={"void": [2], "stands_for": 1}), after=2)

    with patch.object(store.port, "delete", delete):
        assert prune(store, 1, does=True).removed == (1,)
    assert whole(store) == [3]


@pytest.mark.parametrize("what", ["a manifest", "a file"])
def test_nothing_is_deleted_where_it_is_not_known_what_stays(tmp_path: Path, what: str) -> None:
    store = stored(tmp_path / "store")
    taken(store, 1, run_file(store, 1))
    newest = taken(store, 2)
    if what == "a manifest":
        Path(store.folder, "000000000001/manifest.json").write_text("{")
        told = "snapshot 1 .* cannot be read, so it is not known which files it names, and nothing is deleted"
    else:
        assert newest.parts[0].rest is not None
        Path(store.folder, newest.parts[0].rest.path).unlink()
        told = "000000000002/v-0-rest.part .* cannot be read: there is no such file"
    before = all_files(store)
    with pytest.raises(SnapshotError, match=told):
        prune(store, 1, does=True)
    assert all_files(store) == before


def test_at_least_one_stays_and_a_store_has_snapshots(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"prune\(keep=0\): at least the newest snapshot stays; give keep=1 or more"):
        prune(stored(tmp_path / "store"), 0)
    with pytest.raises(SnapshotError, match="there is no snapshot in"):
        prune(stored(tmp_path / "store"), 1)


# -- any store, and mistakes that are planted ------------------------------------------------------------
@st.composite
def stores(draw: st.DrawFn) -> list[tuple[str, list[int], bool]]:
    """Of each snapshot its kind, of which ones before it names the files of runs, and whether an attempt before it was given up."""
    made: list[tuple[str, list[int], bool]] = []
    for number in range(1, draw(st.integers(2, 6)) + 1):
        names = draw(st.lists(st.integers(1, number), unique=True, max_size=4))
        made.append((draw(st.sampled_from(["snapshot", "snapshot", "savepoint"])), names, draw(st.booleans())))
    return made


def check(folder: Path, made: list[tuple[str, list[int], bool]], keep: int, savepoints: bool) -> None:
    """What stays is whole, is what was to stay, and nothing else is left."""
    store = stored(folder)
    runs: dict[int, PartFile] = {}
    for number, (kind, names, has_left) in enumerate(made, 1):
        runs[number] = run_file(store, number)
        if has_left:
            store.write_part(number, "v", 0, [b"left"], attempt="left")
        taken(store, number, *(runs[one] for one in names), kind=kind)
    numbers = range(1, len(made) + 1)
    stay = [n for n in numbers if n > len(made) - keep or (made[n - 1][0] == "savepoint" and not savepoints)]
    told = prune(store, keep, savepoints=savepoints)
    assert (prune(store, keep, savepoints=savepoints, does=True), list(told.kept)) == (told, stay)
    assert whole(store) == stay
    named = {file.path for number in stay for file in store.load(number).files()}
    assert all_files(store) == named | {f"{number:012d}/manifest.json" for number in stay}


@settings(max_examples=60, deadline=None)
@given(made=stores(), keep=st.integers(1, 4), savepoints=st.booleans())
def test_what_stays_is_whole_and_all_else_is_gone(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[str, list[int], bool]], keep: int, savepoints: bool
) -> None:
    check(tmp_path_factory.mktemp("any"), made, keep, savepoints)


@contextmanager
def files_of_runs_are_forgotten() -> Iterator[None]:
    really = pruning._named

    def named(store: SnapshotStore, numbers: Any) -> set[str]:
        numbers = list(numbers)
        runs = {file.path for number in numbers for part in store.load(number).parts for file in part.runs}
        return really(store, numbers) - runs

    with patch.object(pruning, "_named", named):
        yield


@contextmanager
def only_the_newest_snapshot_names_files() -> Iterator[None]:
    really = pruning._named
    with patch.object(pruning, "_named", lambda store, numbers: really(store, [max(numbers)])):
        yield


@contextmanager
def a_folder_goes_with_its_snapshot() -> Iterator[None]:
    """Clean-up by what a folder holds."""
    really = pruning._named

    def named(store: SnapshotStore, numbers: Any) -> set[str]:
        numbers = list(numbers)
        kept = {f"{number:012d}" for number in numbers}
        return {name for name in really(store, numbers) if name.partition("/")[0] in kept}

    with patch.object(pruning, "_named", named):
        yield


@pytest.mark.parametrize("defect", [files_of_runs_are_forgotten, only_the_newest_snapshot_names_files, a_folder_goes_with_its_snapshot])
def test_a_file_that_is_removed_too_early_is_found(tmp_path: Path, defect: Callable[[], Any]) -> None:
    made = [("snapshot", [1], False), ("savepoint", [1, 2], True), ("snapshot", [1], False), ("snapshot", [1, 3], True)]
    check(tmp_path / "without", made, 2, False)
    with defect(), pytest.raises((AssertionError, SnapshotError)):
        check(tmp_path / "with", made, 2, False)


# -- jobs, and the command -------------------------------------------------------------------------------
def rayad(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_job_resumes_from_what_is_left(tmp_path: Path) -> None:
    store, older, newer = lived(tmp_path)
    told = rayad("snapshots", store.folder, "--prune", 1)
    assert told.exit_code == 0, told.output
    assert f"kept: snapshots {', '.join(map(str, (*store.numbers()[1:],)))}" in told.output
    told = rayad("snapshots", store.folder, "--prune", 1, "--savepoints")
    assert "would be removed: snapshots " in told.output
    assert told.output.endswith("nothing has been removed: add --yes to do it\n")
    assert store.numbers()[-2:] == [older.number, newer.number]
    told = rayad("snapshots", store.folder, "--prune", 1, "--savepoints", "--yes")
    assert told.output.startswith(f"removed: snapshots {', '.join(map(str, range(1, newer.number)))}; ")
    assert store.numbers() == [newer.number]
    assert all_files(store) == {file.path for file in newer.files()} | {f"{newer.number:012d}/manifest.json"}
    assert finished(submitted(tmp_path, resume="latest")) == (EPOCHS * ROWS, {1})


def test_a_job_that_runs_goes_on_and_its_next_snapshot_is_whole(tmp_path: Path) -> None:
    store, _, _ = lived(tmp_path)
    job = submitted(tmp_path, resume="latest")
    prune(store, 1, savepoints=True, does=True)
    job.savepoint()
    prune(store, 1, savepoints=True, does=True)
    job.savepoint()
    assert store.latest()[0] is not None
    job.cancel()
    assert finished(submitted(tmp_path, resume="latest")) == (EPOCHS * ROWS, {1})


def test_what_goes_with_prune_is_refused_without_it() -> None:
    told = rayad("snapshots", "somewhere", "--yes")
    assert told.exit_code == 2
    assert "--savepoints and --yes go with --prune N, which says how many of the newest snapshots stay" in told.output
    assert rayad("snapshots", "somewhere", "--prune", 0).exit_code == 2


def test_json_tells_the_same(tmp_path: Path) -> None:
    store = stored(tmp_path / "store")
    taken(store, 1)
    taken(store, 2)
    told = told_json(rayad("snapshots", store.folder, "--prune", 1, "--json"))
    assert (told["removed"], told["kept"], told["files"], told["done"]) == ([1], [2], 4, False)


def told_json(result: Result) -> dict[str, Any]:

    assert result.exit_code == 0, result.output
    return dict(json.loads(result.output))
