"""``rayad snapshots``: the snapshots in a job's store, and whether they are whole. Reads manifests and checksums; unpickles nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click
from rich.table import Table

from rayad.actors.status.terminal import console, echo, echo_json
from rayad.commands.secret_file import SECRET_FILE
from rayad.progress import SnapshotError
from rayad.snapshots.manifest import Manifest
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
@SECRET_FILE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def snapshots(folder: str, verify: bool, secret: bytes | None, as_json: bool) -> None:
    """List the snapshots in FOLDER, a job's store: <storage_path>/<job name>/snapshots, a path or a URI."""
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
