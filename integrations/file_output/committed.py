"""Which files of an output are committed: the manifest ``_SUCCESS``, and reading by it.

The manifest is replaced in one step, and it alone says what belongs to the output. A reader that lists the directory instead
(``pyarrow.dataset.dataset(path)``, DuckDB's ``*.parquet``, Spark where the output has no log) may see other files in three cases, each
for a moment if nothing fails:

- between the moves of a commit and its manifest it sees files that are not yet committed; after a crash in between they stay until the job
  resumes (then they are committed, or removed if it resumed from an older snapshot);
- between the manifest and the deletions of ``mode="overwrite"`` it sees old files beside the new ones;
- between the manifest and the deletions of a roll-back it sees files of the void snapshots.

:func:`read_committed` and :func:`committed_files` read the manifest and give one committed state of the output. A later overwrite or
roll-back deletes files of that state; a reader that still uses it then gets ``FileNotFoundError`` and has to read the manifest again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import uuid
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as pads
from pyarrow import fs

from rayad.integrations.file_output.formats import format_of, is_data
from rayad.integrations.file_output.partitions import typed
from rayad.integrations.paths import check_filesystem
from rayad.progress import ConfigError, arguments

STAGING = "_staging"
MANIFEST = "_SUCCESS"
BEGUN = "-begun.json"
FORMATS = ("rayad-parquet-1", "rayad-parquet-2", "rayad-files-1")
"""The last is of outputs with other files than Parquet, or with joined ones, which earlier versions would not understand."""


class CommittedFile(NamedTuple):
    """A file of the output: its name below the directory, its size, and which snapshot of which job committed it ("" and 0: not a job).

    entry: its entry in Spark's log (:mod:`rayad.integrations.file_output.spark_log`), -1: none. shown_ms: the time of that entry, since
    1970. first, joined: of a joined file (:mod:`rayad.integrations.file_output.compacting`), the first of its snapshots, of which
    ``snapshot`` is the last, and of how many files it is made.
    """

    name: str
    rows: int
    size_bytes: int
    job: str
    snapshot: int
    entry: int = -1
    shown_ms: int = 0
    first: int = -1
    joined: int = 1

    def as_json(self) -> dict[str, str | int]:
        """Its JSON form in the manifest."""
        defaults = self._field_defaults
        return {name: value for name, value in self._asdict().items() if name not in defaults or value != defaults[name]}

    def in_entry(self, entry: int, shown_ms: int) -> CommittedFile:
        """The same file, in an entry of Spark's log."""
        return self._replace(entry=entry, shown_ms=shown_ms)


class SparkLog(NamedTuple):
    """What the manifest says of Spark's log: the URI of the directory as Spark has it, and the number of the next entry."""

    base: str
    entries: int

    def as_json(self) -> dict[str, str | int]:
        """Its JSON form in the manifest."""
        return self._asdict()


class PublishedFiles(NamedTuple):
    """What ``result[name]`` is: the directory, its files (relative names, all that the manifest lists), their rows, and the id of the job
    with the last commit."""

    path: str
    files: tuple[str, ...]
    rows: int
    job: str


class OutputManifest(NamedTuple):
    """The content of ``_SUCCESS``.

    job: the one that wrote it last. jobs: each job whose files may be in it, with its void snapshots as ranges (first, last). files: in
    order of name. schema: of the last job's files, if it wrote any. spark: the log for Spark, if there is one. content: the format
    of the files (:func:`rayad.integrations.file_output.formats.format_of`). digest: of the text that this was read from.
    """

    job: str
    jobs: dict[str, tuple[tuple[int, int], ...]]
    files: tuple[CommittedFile, ...]
    schema: pa.Schema | None = None
    spark: SparkLog | None = None
    content: dict[str, Any] | None = None
    digest: str = ""

    def says_the_same(self, other: OutputManifest) -> bool:
        """Whether two manifests have the same content; digests are not compared."""
        return self[:-1] == other[:-1]

    def with_spark(self, files: tuple[CommittedFile, ...], spark: SparkLog) -> OutputManifest:
        """The same manifest, with the entries of its files in Spark's log."""
        return self._replace(files=files, spark=spark)

    def published(self, path: str) -> PublishedFiles:
        """Names and rows."""
        return PublishedFiles(path, tuple(file.name for file in self.files), sum(file.rows for file in self.files), self.job)


def read_manifest(filesystem: fs.FileSystem, path: str) -> OutputManifest | None:
    """The manifest in a directory; None where there is none, or a marker of another program. ConfigError when it cannot be understood."""
    where = f"{path}/{MANIFEST}"
    if filesystem.get_file_info(where).type != fs.FileType.File:
        return None
    with filesystem.open_input_stream(where) as stream:
        text: bytes = stream.read()
    if not text:
        return None  # the empty marker that Spark and Hadoop write
    try:
        plain = json.loads(text)
        if not isinstance(plain, dict) or "files" not in plain:
            return None
        if plain.get("format") not in FORMATS:
            raise ValueError(f"its format is {plain.get('format')!r}, this version of Rayad knows {', '.join(FORMATS)}")
        format_of(plain.get("content"))
        job = plain["job"]
        return OutputManifest(
            job,
            {name: tuple((low, high) for low, high in void) for name, void in plain.get("jobs", {job: []}).items()},
            tuple(CommittedFile(**{"job": job, "snapshot": 0, **entry}) for entry in plain["files"]),
            pa.ipc.read_schema(pa.py_buffer(base64.b64decode(plain["schema"]))) if plain.get("schema") else None,
            SparkLog(**plain["spark"]) if plain.get("spark") else None,
            plain.get("content"),
            hashlib.sha256(text).hexdigest(),
        )
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise ConfigError(f"{where!r} is not a manifest: {error}; remove it if the directory may be written to") from error


def write_manifest(filesystem: fs.FileSystem, path: str, manifest: OutputManifest) -> None:
    """Replace the manifest in one step; it is on disk when this returns."""
    plain: dict[str, Any] = {
        "format": FORMATS[2] if manifest.content is not None or any(file.first >= 0 for file in manifest.files) else FORMATS[1],
        "job": manifest.job,
        "jobs": manifest.jobs,
        "rows": sum(file.rows for file in manifest.files),
        "schema": base64.b64encode(manifest.schema.serialize()).decode() if manifest.schema is not None else None,
        "files": [file.as_json() for file in manifest.files],
    }
    if manifest.content is not None:
        plain["content"] = manifest.content
    if manifest.spark is not None:
        plain["spark"] = manifest.spark.as_json()
    text = json.dumps(plain).encode()
    replace_file(filesystem, f"{path}/{MANIFEST}", text, through=f"{path}/{STAGING}/manifest-{manifest.job}")


def replace_file(filesystem: fs.FileSystem, path: str, content: bytes, *, through: str) -> None:
    """Give a file this content in one step: write another file and move it over this one; it is on disk when this returns."""
    temporary = f"{through}-{uuid.uuid4().hex[:8]}.json"
    filesystem.create_dir(temporary.rsplit("/", 1)[0], recursive=True)
    with filesystem.open_output_stream(temporary) as stream:
        stream.write(content)
    sync(filesystem, temporary)
    filesystem.move(temporary, path)
    sync(filesystem, path.rsplit("/", 1)[0])


def open_directory(path: str | os.PathLike[str], filesystem: fs.FileSystem | None, where: str) -> tuple[fs.FileSystem, str]:
    """The file system and the path on it of a local directory or a URI; ConfigError where it is neither."""
    text = arguments.path(path, f"{where}: the directory", error=ConfigError)
    check_filesystem(filesystem, where)
    if filesystem is not None:
        return filesystem, text.rstrip("/")
    if "://" not in text:
        return fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(text))
    try:
        home, inner = fs.FileSystem.from_uri(text)
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{where}: cannot open the URI {text!r}: {error}; give a local directory, a known URI, or filesystem=") from error
    return home, inner.rstrip("/")


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
            f"{where}: there is no manifest {path + '/' + MANIFEST!r} of Rayad, and no job writes there: is the path right? What another "
            "program wrote is read by pyarrow.dataset.dataset(path)"
        )
    return OutputManifest(begun[0], {begun[0]: ()}, (), begun[1])


def committed_files(path: str | os.PathLike[str], *, filesystem: fs.FileSystem | None = None) -> PublishedFiles:
    """The committed files of what ``write_parquet(path)``, ``write_csv`` or ``write_json`` writes; also while the job runs, or after it has
    failed.

    For Spark, where the output was not written with ``spark_log=True``:
    ``spark.read.option("basePath", out.path).parquet(*(f"{out.path}/{name}" for name in out.files))``.
    It has no files before the first commit of a job that has begun; ConfigError where no job writes.
    """
    home, inner = open_directory(path, filesystem, "committed_files")
    return _manifest_of(home, inner, "committed_files").published(inner)


def read_committed(path: str | os.PathLike[str], *, filesystem: fs.FileSystem | None = None) -> pads.Dataset:
    """A ``pyarrow.dataset.Dataset`` of the committed files of what ``write_parquet(path)``, ``write_csv`` or ``write_json`` writes, and of
    nothing else.

    It does not follow later commits: call it again to see them. Directories ``epoch=<n>`` become a column ``epoch``, those of
    ``partition_by`` the columns that they were, in their types, behind the others.
    Columns have their types in files of text, too; JSON with dates, durations or dictionaries is read at once, into memory.
    Before the first commit of a job that has begun it is empty, with the columns of ``schema=`` if that was given; ConfigError where no job
    writes.
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


def sync(filesystem: fs.FileSystem, path: str) -> None:
    """Make a local file, or the names in a local directory, survive a power cut; other file systems do so on close."""
    if isinstance(filesystem, fs.LocalFileSystem):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


__all__ = [
    "CommittedFile",
    "OutputManifest",
    "PublishedFiles",
    "SparkLog",
    "begun_by",
    "committed_files",
    "open_directory",
    "read_committed",
    "read_manifest",
    "replace_file",
    "sync",
    "write_manifest",
    "written_output",
    "written_partitioning",
]
