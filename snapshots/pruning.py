"""Deleting old snapshots on somebody's word: by what manifests name, never by what lies in a snapshot's folder.

A file stays as long as a manifest that stays names it, whichever snapshot's folder it is in. The newest snapshot stays always, and what is
in folders above it is left alone: it may be being written. So a job that runs on the store goes on: what its next snapshot names is named
by the newest one, or is its own. What is removed must not be resumed from at the same time (docs/design/fence.md, 8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rayad.progress import SnapshotError
from rayad.snapshots.standing import standing_of
from rayad.snapshots.store import MANIFEST, SnapshotStore

_NUMBER = re.compile(r"\d{12}")


@dataclass(frozen=True, slots=True)
class Pruning:
    """What is removed of a store, or would be.

    Args:
        removed: numbers of snapshots, ascending.
        kept: numbers of those that stay, ascending.
        files: how many files, manifests included; also those that no snapshot names: what attempts left that were given up.
        freed_bytes: their length.
    """

    removed: tuple[int, ...]
    kept: tuple[int, ...]
    files: int
    freed_bytes: int


def prune(store: SnapshotStore, keep: int, *, savepoints: bool = False, does: bool = False) -> Pruning:
    """Remove all but the newest snapshots that a job can resume from, and savepoints; give what is removed.

    Args:
        store: of one job.
        keep: so many of the newest stay, at least 1. A run's claim counts as the snapshot that it stands for; the beginnings of runs, which
            hold nothing, do not count.
        savepoints: whether savepoints are removed like others.
        does: whether it is done; else it is only told.

    Manifests go first. Then manifests are read once more, so that files stay which one names that has come meanwhile. Raises SnapshotError
    where a manifest cannot be read, since nobody knows what it names, where a file is missing of a snapshot that is to stay, or where none
    can be resumed from; StoreAwayError where the store cannot be read. Then nothing has been deleted.
    """
    if keep < 1:
        raise SnapshotError(f"prune(keep={keep}): at least the newest snapshot stays; give keep=1 or more")
    numbers = store.numbers()
    if not numbers:
        raise SnapshotError(f"there is no snapshot in {store.folder!r}: give the <storage_path>/<job name>/snapshots of a job")
    stay = _staying(store, numbers, keep, savepoints=savepoints)
    gone = [number for number in numbers if number not in stay]
    try:
        there = _files(store, numbers[-1])
        named = _named(store, stay)
        if does:
            for number in gone:
                store.port.delete(_manifest(number))
            named |= _named(store, [number for number in store.numbers() if number not in gone])
        freed = {name: size for name, size in there.items() if name not in named}
        if does:
            for name in freed:
                store.port.delete(name)
            for folder in {name.partition("/")[0] for name in freed}:
                store.port.delete_empty(folder)
    except OSError as error:
        raise SnapshotError(f"old snapshots in {store.folder!r} cannot be deleted: {error}; call it again for the rest") from error
    return Pruning(tuple(gone), tuple(sorted(stay)), len(freed), sum(freed.values()))


def _staying(store: SnapshotStore, numbers: Sequence[int], keep: int, *, savepoints: bool) -> set[int]:
    """The numbers of those that stay."""
    stay, counted = {numbers[-1]}, set[int]()
    for number, manifest, why, is_damaged in standing_of(numbers, store.load):
        is_wanted = len(counted) < keep
        if is_damaged:
            raise SnapshotError(
                f"snapshot {number} in {store.folder!r} cannot be read, so it is not known which files it names, and nothing is deleted: "
                f"{why}; repair it, or delete its {_manifest(number)}"
            )
        if manifest is None:
            continue  # it is void, retired or overtaken: nobody resumes from it
        if is_wanted:
            stay.add(number)
            if manifest.kind != "start":
                store.check_listed(manifest)
                counted.add(int(manifest.notes.get("stands_for", number)))
        elif manifest.kind == "savepoint" and not savepoints:
            stay.add(number)
    if not counted:
        raise SnapshotError(f"no snapshot in {store.folder!r} can be resumed from, so nothing is deleted there")
    return stay


def _named(store: SnapshotStore, numbers: Iterable[int]) -> set[str]:
    """The files that these snapshots name, with their manifests."""
    out: set[str] = set()
    for number in numbers:
        out.add(_manifest(number))
        out.update(file.path for file in store.load(number).files())
    return out


def _files(store: SnapshotStore, newest: int) -> dict[str, int]:
    """The lengths of all files in the folders of snapshots up to the newest, by name."""
    folders = [entry.name for entry in store.port.entries() if not entry.is_file and _NUMBER.fullmatch(entry.name)]
    entries = (entry for folder in folders if int(folder) <= newest for entry in store.port.entries(folder))
    return {entry.name: entry.size for entry in entries if entry.is_file}


def _manifest(number: int) -> str:
    return f"{number:012d}/{MANIFEST}"


__all__ = ["Pruning", "prune"]
