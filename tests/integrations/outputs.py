"""What the manifests of an output say, for tests."""

from __future__ import annotations

from pathlib import Path

from pyarrow import fs

from rayad.integrations.file_output.committed import OutputManifest, read_manifest
from rayad.integrations.file_output.manifests import MANIFESTS, MARKER


def manifest(path: str | Path) -> OutputManifest:
    """The newest manifest of an output on the local file system; there is one."""
    found = read_manifest(fs.LocalFileSystem(), str(path))
    assert found is not None
    return found


def is_output(path: str | Path) -> bool:
    """Whether there is a manifest."""
    return Path(path).is_dir() and read_manifest(fs.LocalFileSystem(), str(path)) is not None


def files_of(path: str | Path) -> list[str]:
    """Relative names of all files of an output, but for its manifests and their marker."""
    names = (str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file())
    return sorted(name for name in names if name != MARKER and not name.startswith(f"{MANIFESTS}/"))
