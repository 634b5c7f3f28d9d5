"""``rayad snapshots``: the snapshots in a job's store, whether they are whole, and the removal of old ones. It unpickles nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click
from rich.table import Table

from rayad.actors.status.terminal import console, echo, echo_json
from rayad.commands.secret_file import SECRET_FILE
from rayad.progress import SnapshotError
from rayad.snapshots.manifest import Manifest
from rayad.snapshots.pruning import prune
from rayad.snapshots.store import SnapshotStore


@dataclass(frozen=True, slots=True)
class Entry:
    """One snapshot: its number and kind, replicas, bytes of all its files, and why it cannot be used ("" when it can, or was not
    checked)."""

    number: int
    kind: str
    replicas: int
    files: int
    size_bytes: int
    incremental: int
    trouble: str


@click.command()
@click.argument("folder")
@click.option("--verify", is_flag=True, help="Read every file and compare its length and checksum.")
@click.option(
    "--prune",
    "keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tell what goes if the N newest stay, and savepoints.",
)
@click.option("--savepoints", is_flag=True, help="With --prune: savepoints go like others.")
@click.option("--yes", "does", is_flag=True, help="With --prune: remove it.")
@SECRET_FILE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def snapshots(folder: str, verify: bool, keep: int | None, savepoints: bool, does: bool, secret: bytes | None, as_json: bool) -> None:
    """List the snapshots in FOLDER, a job's store: <storage_path>/<job name>/snapshots, a path or a URI."""
    if keep is None and (savepoints or does):
        raise click.UsageError("--savepoints and --yes go with --prune N, which says how many of the newest snapshots stay")
    if keep is not None:
        _prune(folder, keep, savepoints=savepoints, does=does, secret=secret, as_json=as_json)
        return
    try:
        store = SnapshotStore(folder, secret=secret)
        numbers = store.numbers()
    except (SnapshotError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not numbers:
        raise click.ClickException(f"there is no snapshot in {store.folder!r}: give the <storage_path>/<job name>/snapshots of a job")
    entries = [look(store, number, verify=verify) for number in numbers]
    if as_json:
        echo_json([asdict(entry) for entry in entries], indent=1)
    else:
        show(entries, verify=verify)
    if any(entry.trouble for entry in entries):
        raise SystemExit(1)


def _prune(folder: str, keep: int, *, savepoints: bool, does: bool, secret: bytes | None, as_json: bool) -> None:
    try:
        pruning = prune(SnapshotStore(folder, secret=secret), keep, savepoints=savepoints, does=does)
    except (SnapshotError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        echo_json({**asdict(pruning), "done": does}, indent=1)
        return
    verb = "removed" if does else "would be removed"
    numbers = f"snapshots {', '.join(map(str, pruning.removed))}" if pruning.removed else "no snapshot"
    echo(f"{verb}: {numbers}; {pruning.files} files, {pruning.freed_bytes / 1e6:.3f} MB")
    echo(f"kept: snapshots {', '.join(map(str, pruning.kept))}")
    if not does and pruning.files:
        echo("nothing has been removed: add --yes to do it")


def look(store: SnapshotStore, number: int, *, verify: bool) -> Entry:
    """Read one snapshot's entry."""
    try:
        manifest = store.load(number)
    except SnapshotError as error:
        return Entry(number, "?", 0, 0, 0, 0, str(error))
    return Entry(
        number,
        manifest.kind,
        len(manifest.parts),
        len(manifest.files()),
        sum(file.size for file in manifest.files()),
        sum(len(part.files) > 1 for part in manifest.parts),
        _trouble(store, manifest) if verify else "",
    )


def _trouble(store: SnapshotStore, manifest: Manifest) -> str:
    for file in sorted(manifest.files()):
        try:
            store.check_part(file)
        except SnapshotError as error:
            return str(error)
    return ""


def show(entries: list[Entry], *, verify: bool) -> None:
    """Print the entries as a table."""
    table = Table("snapshot", "kind", "replicas", "with increments", "files", "MB", *(["whole"] if verify else []))
    for entry in entries:
        whole = [] if not verify else ["yes" if not entry.trouble else "no"]
        size = f"{entry.size_bytes / 1e6:.3f}"
        table.add_row(str(entry.number), entry.kind, str(entry.replicas), str(entry.incremental), str(entry.files), size, *whole)
    console().print(table)
    for entry in entries:
        if entry.trouble:
            echo(f"snapshot {entry.number}: {entry.trouble}", err=True)
