"""Reading an output by its manifests: which files are committed.

The newest manifest (:mod:`rayad.integrations.file_output.manifests`) alone says what belongs to the output. A reader that lists the
directory instead
(``pyarrow.dataset.dataset(path)``, DuckDB's ``*.parquet``, Spark where the output has no log) may see other files in three cases, each
for a moment if nothing fails:

- between the moves of a commit and its manifest it sees files that are not yet committed; after a crash in between they stay until the job
  resumes (then they are committed, or removed if it resumed from an older snapshot);
- between the manifest and the deletions of ``mode="overwrite"`` it sees old files beside the new ones;
- between the manifest and the deletions of a roll-back it sees files of the void snapshots.

:func:`read_committed` and :func:`committed_files` read the manifests and give one committed state of the output. A later overwrite or
roll-back deletes files of that state; a reader that still uses it then gets ``FileNotFoundError`` and has to read again.
"""

from __future__ import annotations

import base64
import json
import os
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.dataset as pads
from pyarrow import fs

from rayad.integrations.file_output.formats import format_of, is_data
from rayad.integrations.file_output.manifests import MANIFESTS, CommittedFile, Output, OutputLog
from rayad.integrations.file_output.partitions import typed
from rayad.integrations.file_output.writer import STAGING
from rayad.integrations.paths import check_filesystem
from rayad.progress import ConfigError, arguments, say, without_secrets
from rayad.snapshots.create import local_path
from rayad.snapshots.port import Port

BEGUN = "-begun.json"


class PublishedFiles(NamedTuple):
    """The value of ``result[name]``: the directory, its files (relative names, everything in the manifest), their rows, and the id of
    the job that committed last."""

    path: str
    files: tuple[str, ...]
    rows: int
    job: str


class OutputManifest(NamedTuple):
    """What the newest manifest of an output says, for its readers.

    number: of the manifest. job: the one that wrote it. files: in order of name. schema: of the last job's files, if it wrote any. content:
    the format of the files (:func:`rayad.integrations.file_output.formats.format_of`).
    """

    number: int
    job: str
    files: tuple[CommittedFile, ...]
    schema: pa.Schema | None = None
    content: dict[str, Any] | None = None

    def published(self, path: str) -> PublishedFiles:
        """Names and rows."""
        return PublishedFiles(path, tuple(file.name for file in self.files), sum(file.rows for file in self.files), self.job)


def manifest_of(output: Output) -> OutputManifest:
    """What an output says to its readers."""
    files = tuple(output.files[name] for name in sorted(output.files))
    return OutputManifest(output.number, output.head.job, files, output.head.schema, output.head.content)


def read_manifest(filesystem: fs.FileSystem, path: str) -> OutputManifest | None:
    """The newest manifest in a directory; None where there is none, or only a marker of another program. ConfigError when it cannot be
    understood."""
    output = OutputLog(Port(filesystem, path)).read()
    return manifest_of(output) if output is not None else None


def open_directory(path: str | os.PathLike[str], filesystem: fs.FileSystem | None, where: str) -> tuple[fs.FileSystem, str]:
    """The file system and the path on it of a local directory or a URI; ConfigError where it is neither."""
    text = arguments.path(path, f"{where}: the directory", error=ConfigError)
    check_filesystem(filesystem, where)
    if filesystem is not None:
        return filesystem, text.rstrip("/")
    if "://" not in text:
        return fs.LocalFileSystem(), local_path(text)
    try:
        home, inner = fs.FileSystem.from_uri(text)
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(
            f"{where}: cannot open the URI {text!r}: {say(error, text)}; give a local directory, a known URI, or filesystem="
        ) from without_secrets(error, text)
    return home, inner.rstrip("/")


class Placed(Protocol):
    """What writes files: where, and whether it adds to what others have written there."""

    filesystem: fs.FileSystem
    path: str

    @property
    def mode(self) -> str: ...


def overlap(sink: Placed, other: Any) -> bool:
    """Whether two sinks write to one directory, or one inside that of the other, and not both append."""
    theirs = getattr(other, "filesystem", None), getattr(other, "path", None), getattr(other, "mode", None)
    if not isinstance(theirs[0], fs.FileSystem) or not isinstance(theirs[1], str) or not sink.filesystem.equals(theirs[0]):
        return False
    ours, its = f"{sink.path}/", f"{theirs[1]}/"
    return (ours.startswith(its) or its.startswith(ours)) and not (ours == its and sink.mode == theirs[2] == "append")


def begun_by(filesystem: fs.FileSystem, path: str) -> tuple[str, pa.Schema | None] | None:
    """The job that has begun to write to a directory, and the schema that its user gave, from the job's note there; None: no job."""
    found = filesystem.get_file_info(fs.FileSelector(f"{path}/{STAGING}", allow_not_found=True))
    notes = sorted(info.path for info in found if info.type == fs.FileType.File and info.base_name.endswith(BEGUN))
    if not notes:
        return None
    with filesystem.open_input_stream(notes[-1]) as stream:
        plain = json.loads(stream.read())
    schema = plain.get("schema")
    job = notes[-1].rsplit("/", 1)[-1].removesuffix(BEGUN)
    return job, pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))) if schema else None


def _manifest_of(filesystem: fs.FileSystem, path: str, where: str) -> OutputManifest:
    """The manifest; an empty one if a job has begun to write to an empty directory."""
    manifest = read_manifest(filesystem, path)
    if manifest is not None:
        return manifest
    begun = begun_by(filesystem, path)
    manifest = read_manifest(filesystem, path)  # the first commit may have happened in between
    if manifest is not None:
        return manifest
    if begun is None:
        raise ConfigError(
            f"{where}: there is no manifest of Rayad in {path + '/' + MANIFESTS!r}, and no job writes there: is the path right? What "
            "another program wrote is read by pyarrow.dataset.dataset(path)"
        )
    return OutputManifest(0, begun[0], (), begun[1])


def committed_files(path: str | os.PathLike[str], *, filesystem: fs.FileSystem | None = None) -> PublishedFiles:
    """List the committed files of an output of ``write_parquet``, ``write_csv`` or ``write_json``; also while the job runs, or after it
    failed.

    To read them with Spark, if the output has no ``spark_log=True``: ``spark.read.option("basePath",
    out.path).parquet(*(f"{out.path}/{name}" for name in out.files))``. A job that has begun but not committed has no files; ConfigError if
    no job writes there.
    """
    home, inner = open_directory(path, filesystem, "committed_files")
    return _manifest_of(home, inner, "committed_files").published(inner)


def read_committed(path: str | os.PathLike[str], *, filesystem: fs.FileSystem | None = None) -> pads.Dataset:
    """Open the committed files of an output of ``write_parquet``, ``write_csv`` or ``write_json`` as a ``pyarrow.dataset.Dataset``.

    It does not follow later commits: call it again to see them. Directories ``epoch=<n>`` become a column ``epoch``, those of
    ``partition_by`` their columns, with their types, after the others. Columns of text files have their types, too; JSON with dates,
    durations or dictionaries is read into memory at once. Before the first commit the data set is empty, with the columns of ``schema=`` if
    that was given; ConfigError if no job writes there.
    """
    home, inner = open_directory(path, filesystem, "read_committed")
    manifest = _manifest_of(home, inner, "read_committed")
    kind = format_of(manifest.content)
    names = [f"{inner}/{file.name}" for file in manifest.files if is_data(kind.kind, file.name)]
    if not names:
        return pads.dataset(pa.table({}) if manifest.schema is None else manifest.schema.empty_table())
    partitioning = typed(manifest.schema, [file.name for file in manifest.files])
    return kind.dataset(names, home, manifest.schema, partitioning, inner)


def written_output(filesystem: fs.FileSystem, path: str) -> tuple[str, OutputManifest] | None:
    """The directory and the manifest of the output that a file is in, if it is in one of ours."""
    folders = path.split("/")[:-1]
    while folders and "=" in folders[-1]:
        folders.pop()
    root = "/".join(folders)
    try:
        manifest = read_manifest(filesystem, root)
    except (ConfigError, OSError, ValueError):  # Spark's _SUCCESS is empty
        return None
    return (root, manifest) if manifest is not None else None


def written_partitioning(filesystem: fs.FileSystem, path: str) -> pads.Partitioning | str:
    """How the directories above a Parquet file are to be read: by the manifest of the output that it is in, if ours wrote that."""
    output = written_output(filesystem, path)
    return "hive" if output is None else typed(output[1].schema, [path[len(output[0]) :].lstrip("/")])


__all__ = [
    "BEGUN",
    "OutputManifest",
    "PublishedFiles",
    "begun_by",
    "committed_files",
    "manifest_of",
    "open_directory",
    "overlap",
    "read_committed",
    "read_manifest",
    "written_output",
    "written_partitioning",
]
