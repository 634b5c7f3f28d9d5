"""``--secret-file``: the key by which snapshots are signed, in all commands that write or read them."""

from __future__ import annotations

from pathlib import Path

import click


def _read(context: click.Context, parameter: click.Parameter, file: Path | None) -> bytes | None:
    return file.read_bytes() if file is not None else None


SECRET_FILE = click.option(
    "--secret-file",
    "secret",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    callback=_read,
    help="The key of SnapshotConfig(secret=...): all bytes of this file.",
)
"""Gives ``secret``: the bytes, or None."""

__all__ = ["SECRET_FILE"]
