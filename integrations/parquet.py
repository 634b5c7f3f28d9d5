"""A directory of Parquet files as a sink that is written exactly once, with each snapshot.

Replicas write below ``<path>/_staging/<job>-<replica>-<writer>/``; readers pass over names that start with ``_``. ``commit`` moves the
finished files into place one by one and then replaces ``_SUCCESS``, a JSON manifest of all files of the output, each with its
snapshot: that replacement is the commit, and :mod:`rayad.integrations.committed` reads by it. Each step can be repeated: a file that
is already in place is left there, so a commit that was cut off is finished by committing the same again. What no longer belongs there
(the old output of ``mode="overwrite"``, files of snapshots that are rolled back) is deleted after the manifest is replaced, never
before, so that either the old or the new output is there at any time.

With ``spark_log`` there is also the log by which Spark reads the output as a stream (:mod:`rayad.integrations.spark_log`). It is written
after the manifest and follows from it.

All nodes have to see the directory, and only one job at a time may write to it: the manifest has one writer. On object stores a move is a
copy and a delete; the manifest still separates whole from partial output.
"""

from __future__ import annotations

import base64
import json
import os
import time as clock
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rayad.dataflow.sink import Sink, SinkWriter
from rayad.integrations.blocks import schema_drift
from rayad.integrations.committed import (
    BEGUN,
    MANIFEST,
    STAGING,
    CommittedFile,
    OutputManifest,
    PublishedFiles,
    open_directory,
    read_manifest,
    replace_file,
    sync,
    write_manifest,
)
from rayad.integrations.parquet_writer import ParquetWriter, StagedFile
from rayad.integrations.partitions import check_partition_by, check_types
from rayad.integrations.paths import check_schema
from rayad.integrations.spark.types import for_sparks_files
from rayad.integrations.spark_log import SPARK_LOG, SparkLogFolder, base_uri, encoded, numbered
from rayad.progress import ConfigError, DataflowError, arguments, show

MODES = ("error", "append", "overwrite")


def _is_known(compression: str) -> bool:
    try:
        return compression.lower() == "none" or bool(pa.Codec.is_available(compression.lower()))
    except ValueError:
        return False


def check_name(name: str) -> str:
    """Give a relative file name back; ConfigError if it could lead out of the output directory or into what is not output.

    >>> check_name("epoch=3/part-0.parquet")
    'epoch=3/part-0.parquet'
    """
    parts = name.split("/")
    bad = not name or "\0" in name or "\\" in name or name.startswith("/") or any(part in ("", ".", "..") for part in parts)
    if bad or parts[0].startswith((STAGING, MANIFEST, SPARK_LOG)):
        raise ConfigError(f"write_parquet: refused the file name {name!r}; names are relative, below the output directory, without '..'")
    return name


class ParquetSink(Sink):
    """Writes records to Parquet files below ``path``; ``result`` gives :class:`PublishedFiles`.

    ``partition_by_epoch``: a directory ``epoch=<n>`` for each epoch. ``partition_by``: columns whose values are in the names of
    directories, ``town=Ulm/``, and not in the files (:mod:`rayad.integrations.partitions`); ``rd.read_committed`` and ``read_parquet``
    give them their types back, other readers guess them from the text. ``epoch_column``: a column of this name with the epoch of each row.
    ``mode``: what to do when the directory is not empty: ``"error"``, ``"append"`` or ``"overwrite"``. ``schema``: columns and types.
    Without it the types follow the records of a replica (int, then 1.5: double) until it has written a row group or taken a snapshot with
    them, and all replicas must agree. ``row_group_rows`` are collected in memory before they are written. A job that takes snapshots makes
    at least one file for each writer and snapshot in which it had records.

    ``spark_log``: also write ``_spark_metadata/``, so that ``spark.readStream.schema(..).parquet(path)`` and ``spark.read.parquet(path)``
    see the committed files, each once, and nothing else; columns are written in types that Spark has. Spark then ignores the files of other
    programs in the directory. Entries of the log hold whole URIs. Where the URI does not follow from the file system, give it as text, such
    as ``"hdfs://host:9000/out"``. A directory that has such a log keeps it, even if its next writer does not ask for one.
    """

    commits = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        partition_by_epoch: bool = False,
        partition_by: str | Sequence[str] = (),
        epoch_column: str | None = None,
        mode: Literal["error", "append", "overwrite"] = "error",
        schema: pa.Schema | None = None,
        compression: str | None = "zstd",
        row_group_rows: int = 131_072,
        filesystem: fs.FileSystem | None = None,
        spark_log: bool | str = False,
    ) -> None:
        arguments.choice(mode, "write_parquet: mode", *MODES, error=ConfigError)
        row_group_rows = arguments.whole(row_group_rows, "write_parquet: row_group_rows", least=1, error=ConfigError)
        check_schema(schema, "write_parquet")
        arguments.flag(partition_by_epoch, "write_parquet: partition_by_epoch", error=ConfigError)
        if epoch_column is not None:
            arguments.text(epoch_column, "write_parquet: epoch_column", error=ConfigError, more=", the name of a column, or None")
        if compression is not None and not (isinstance(compression, str) and _is_known(compression)):
            raise ConfigError(f"write_parquet: compression is {show(compression)}: it must be one that Arrow has here, as 'zstd', or None")
        self.filesystem, self.path = open_directory(path, filesystem, "write_parquet")
        if self.filesystem.get_file_info(self.path).type == fs.FileType.File:
            raise ConfigError(f"write_parquet: {self.path!r} is a file; give a directory")
        self.job = uuid.uuid4().hex[:12]
        self.mode = mode
        self.partition_by_epoch = partition_by_epoch
        self.partition_by = check_partition_by(partition_by, "write_parquet")
        if self.partition_by and spark_log is not False:
            raise ConfigError("write_parquet: partition_by and spark_log do not go together: Spark's log has no types for directories")
        if schema is not None and self.partition_by:
            check_types(schema, self.partition_by, "write_parquet")
        self.epoch_column = epoch_column
        self.schema = schema
        self.compression = compression
        self.row_group_rows = row_group_rows
        self._spark_base = self._uri_for_spark(spark_log)
        self._has_history = False  # whether this job may have committed before
        self._void: tuple[int, int] | None = None  # snapshots that the next commit rolls back, first and last
        self._swept = False  # whether this instance has removed files that do not belong there

    def _uri_for_spark(self, spark_log: bool | str) -> str | None:
        """The directory's URI for Spark; None: no log is wanted."""
        if isinstance(spark_log, str) and "://" in spark_log:
            return encoded(spark_log)
        if not isinstance(spark_log, bool):
            raise ConfigError(
                f"write_parquet: spark_log is {show(spark_log)}: it must be True, False, or the URI under which Spark knows the directory, "
                "such as 's3a://bucket/folder'"
            )
        uri = base_uri(self.filesystem, self.path) if spark_log else None
        if spark_log and uri is None:
            raise ConfigError(
                f"write_parquet: spark_log=True, but Spark's URI of {self.path!r} on the {self.filesystem.type_name!r} file system is not "
                "known; give it, as spark_log='hdfs://host:9000/folder'"
            )
        return uri

    # -- before writing ------------------------------------------------------------------------------
    def identity(self) -> str:
        """The job's id, which is in the names of its files."""
        return self.job

    def adopt(self, identity: str) -> None:
        """Continue the output of another run."""
        check_name(identity)
        self.job, self._has_history = identity, True

    def check(self) -> None:
        """Refuse a directory that may not be written to, and note what is there before the job: only by the note it can be detected later
        that the job's own output has been removed. Repeatable."""
        last = self._log.last()
        before = read_manifest(self.filesystem, self.path)
        self._check_free(before)
        self._check_log(last, before)
        if self._read_note() is None:
            declared = self._declared()
            schema = base64.b64encode(declared.serialize()).decode() if declared is not None else None
            note = json.dumps({"before": before.digest if before is not None else "", "schema": schema})
            replace_file(self.filesystem, self._note(), note.encode(), through=f"{self.staging()}/note-{self.job}")

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        """The writer of one replica."""
        if not self._has_history:
            self.check()
            return ParquetWriter(self, replica)
        before = read_manifest(self.filesystem, self.path)
        return ParquetWriter(self, replica, self._without_epoch(before.schema) if before is not None and before.job == self.job else None)

    def _without_epoch(self, schema: pa.Schema | None) -> pa.Schema | None:
        """The schema of the records whose files have this schema."""
        at = -1 if schema is None or self.epoch_column is None else schema.get_field_index(self.epoch_column)
        return schema if schema is None or at < 0 else schema.remove(at)

    def stored(self, table: pa.Table) -> pa.Table:
        """``table`` in the types of the files: its own, unless their reader needs others."""
        return table if self._spark_base is None else for_sparks_files(table, "write_parquet", "leave spark_log out")

    def staging(self) -> str:
        """Where the unpublished files of all jobs are."""
        return f"{self.path}/{STAGING}"

    def _note(self) -> str:
        return f"{self.staging()}/{self.job}{BEGUN}"

    def _read_note(self) -> str | None:
        """Digest of the manifest that existed when the job began ("": none existed); None: there is no note."""
        if self.filesystem.get_file_info(self._note()).type != fs.FileType.File:
            return None
        with self.filesystem.open_input_stream(self._note()) as stream:
            return str(json.loads(stream.read())["before"])

    def _present(self) -> list[str]:
        """Relative names of all files but the staged ones and the manifest."""
        info = self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=True, allow_not_found=True))
        names = [i.path[len(self.path) :].lstrip("/") for i in info if i.type == fs.FileType.File]
        return sorted(name for name in names if name.split("/")[0] not in (STAGING, MANIFEST, SPARK_LOG))

    def _is_mine(self, name: str) -> bool:
        return name.rsplit("/", 1)[-1].startswith(f"part-{self.job}-")

    def _check_free(self, manifest: OutputManifest | None) -> None:
        """Mode "error": the directory may hold only files of this job."""
        if self.mode != "error" or (manifest is not None and manifest.job == self.job):
            return
        foreign = [name for name in self._present() if not self._is_mine(name)]
        if foreign:
            raise ConfigError(
                f"write_parquet: {self.path!r} already holds {len(foreign)} files ({foreign[0]!r} ..) and mode='error'; "
                "give mode='overwrite' or mode='append', or another directory; to continue a job that was interrupted, resume it"
            )

    def _check_history(self, before: OutputManifest | None) -> None:
        """What this job has committed so far must be there."""
        if before is not None and self.job in before.jobs:
            return
        if not self._has_history:
            self._check_free(before)
        elif self._read_note() != (before.digest if before is not None else ""):
            whose = f"now is of job {before.job!r}" if before is not None else "is gone"
            raise ConfigError(
                f"write_parquet: the output of job {self.job!r} in {self.path!r} {whose}: what earlier snapshots committed would be lost; "
                "put the directory back as it was, or start the job afresh"
            )

    # -- the log for Spark -----------------------------------------------------------------------------
    @property
    def _log(self) -> SparkLogFolder:
        return SparkLogFolder(self.filesystem, self.path, self.staging())

    def _check_log(self, last: int, manifest: OutputManifest | None) -> None:
        self._log.check(last, manifest, may_replace=self.mode == "overwrite", where="write_parquet")

    def _with_log(self, before: OutputManifest | None, after: OutputManifest) -> OutputManifest:
        """``after``, with its entries in Spark's log."""
        log = before.spark if before is not None else None
        base = self._spark_base or (log.base if log is not None else None)
        if base is None:
            return after
        return numbered(before, after, base, int(1000 * clock.time()), above=-1 if log is not None else self._log.last())

    def _tell_spark(self, manifest: OutputManifest, *, is_new: bool, swept: bool) -> None:
        """Bring the log up to date with the current manifest."""
        if manifest.spark is None:
            if self.mode == "overwrite" and not swept:
                self._log.remove()  # it would name files that are about to be deleted
        elif not swept:
            self._log.mend(manifest)
        elif is_new:
            self._log.write_last(manifest, clock.time())

    # -- committing ----------------------------------------------------------------------------------
    def publish(self, staged: Sequence[Any]) -> PublishedFiles:
        """Commit all output of a job that takes no snapshots."""
        return self.commit(0, staged)

    def roll_back(self, last: int, first_new: int) -> None:
        """Make these snapshots void: the next commit removes, in the same step, what they committed; later commits of them are refused."""
        self._has_history, self._swept = True, False
        self._void = (last + 1, first_new - 1) if first_new > last + 1 else None

    def commit(self, snapshot: int, staged: Sequence[Any]) -> PublishedFiles:
        """Move the staged files into place and commit them in the manifest; repeatable.

        DataflowError when a staged file is gone, replicas differ in their columns, or the snapshot is void because the job
        resumed from an earlier one; ConfigError when the output of this job is gone.
        """
        files = self._checked(staged)
        swept, self._swept = self._swept, False  # if this commit fails, the one that repeats it looks at all files again
        last = self._log.last() if not swept else -1
        before = read_manifest(self.filesystem, self.path)
        self._check_history(before)
        self._check_void(snapshot, before)
        if not swept:
            self._check_log(last, before)
        if before is None:
            before = self._begin()
        void = before.jobs.get(self.job, ())
        if self._void is not None and self._void not in void:
            void = (*void, self._void)
        kept = {file.name: file for file in before.files if self._stays(file, void)}
        fresh = [file for file in files if file.name not in kept]
        self._check_schemas(files, before.schema if before.job == self.job else None)
        self._move(fresh)
        kept.update({file.name: CommittedFile(file.name, file.rows, file.size_bytes, self.job, snapshot) for file in fresh})
        jobs = {job: ranges for job, ranges in before.jobs.items() if self.mode == "append"} | {self.job: void}
        schema = files[0].schema if files else before.schema if before.job == self.job else None
        after = OutputManifest(self.job, jobs, tuple(kept[name] for name in sorted(kept)), schema or self._declared())
        after = self._with_log(before, after)
        is_new = not after.says_the_same(before)
        if is_new:
            write_manifest(self.filesystem, self.path, after)
        self._tell_spark(after, is_new=is_new, swept=swept)
        if not swept:
            self._sweep(set(kept))
        self._has_history, self._swept, self._void = True, True, None
        return after.published(self.path)

    def _checked(self, staged: Sequence[Any]) -> list[StagedFile]:
        files = [file for group in staged for file in (group or ())]
        for file in files:
            check_name(file.name)
            if not os.path.normpath(file.staged).startswith(self.staging() + "/"):
                raise ConfigError(f"write_parquet: refused the staged file {file.staged!r}: it is not below {self.staging()!r}")
        return files

    def _check_void(self, snapshot: int, before: OutputManifest | None) -> None:
        for low, high in before.jobs.get(self.job, ()) if before is not None else ():
            if low <= snapshot <= high:
                raise DataflowError(
                    f"write_parquet: snapshot {snapshot} cannot be committed to {self.path!r}: the job resumed from snapshot {low - 1} "
                    f"meanwhile, and what snapshots {low} to {high} committed was removed; resume from {low - 1}, or from one after {high}"
                )

    def _stays(self, file: CommittedFile, void: Iterable[tuple[int, int]]) -> bool:
        if file.job != self.job:
            return self.mode == "append"
        return not any(low <= file.snapshot <= high for low, high in void)

    def _begin(self) -> OutputManifest:
        """Write the manifest of the files that were there before, so that it is right from the first move on."""
        entries = tuple(self._entry(name) for name in self._present() if not self._is_mine(name))
        manifest = OutputManifest(self.job, {self.job: ()}, entries)
        if self._log.last() < 0:  # else the log has another program's files, until the first commit replaces it
            manifest = self._with_log(None, manifest)
        self.filesystem.create_dir(self.path, recursive=True)
        write_manifest(self.filesystem, self.path, manifest)
        if manifest.spark is not None:
            self._log.mend(manifest)
        return manifest

    def _entry(self, name: str) -> CommittedFile:
        path = f"{self.path}/{name}"
        rows = 0
        if name.endswith(".parquet"):
            try:
                rows = pq.read_metadata(path, filesystem=self.filesystem).num_rows
            except pa.ArrowException as error:
                if self.mode == "append":
                    raise ConfigError(
                        f"write_parquet: cannot append to {self.path!r}: {name!r} is no whole Parquet file: {error}"
                    ) from error
        return CommittedFile(name, rows, self.filesystem.get_file_info(path).size, "", 0)

    def _declared(self) -> pa.Schema | None:
        if self.schema is None or self.epoch_column is None:
            return self.schema
        return self.schema.append(pa.field(self.epoch_column, pa.int64()))

    def _check_schemas(self, files: Iterable[StagedFile], schema: pa.Schema | None) -> None:
        first = schema
        for file in files:
            first = file.schema if first is None else first
            advice = "give schema= to the sink, or convert them with map()"
            drift = schema_drift(f"the output of {file.name!r}", first, file.schema, advice)
            if drift is not None:
                raise DataflowError(f"write_parquet: replicas gave different columns: {drift}") from drift

    def _move(self, files: Sequence[StagedFile]) -> None:
        touched: set[str] = set()
        for file in files:
            target = f"{self.path}/{file.name}"
            folder = target.rsplit("/", 1)[0]
            if self.filesystem.get_file_info(file.staged).type == fs.FileType.File:
                if folder not in touched:
                    self.filesystem.create_dir(folder, recursive=True)
                self.filesystem.move(file.staged, target)
            else:
                self._check_moved(file, target)
            touched.update((folder, self.path))
        for folder in sorted(touched):  # the files must not be lost when the manifest is not
            sync(self.filesystem, folder)

    def _check_moved(self, file: StagedFile, target: str) -> None:
        there = self.filesystem.get_file_info(target)
        if there.type != fs.FileType.File or there.size != file.size_bytes:
            raise DataflowError(
                f"write_parquet: cannot publish {file.name!r}: its staged file {file.staged!r} is gone and {target!r} "
                f"{'is missing' if there.type != fs.FileType.File else f'has {there.size} bytes, not {file.size_bytes}'}; "
                "was the directory cleaned while the job ran? Is it seen by all nodes?"
            )

    # -- cleaning up ---------------------------------------------------------------------------------
    def _sweep(self, listed: set[str]) -> None:
        """Delete files of this job that the manifest does not have and, when overwriting, all other Parquet files."""
        for name in self._present():  # other files are not deleted: they are not ours
            if name not in listed and (self._is_mine(name) or (self.mode == "overwrite" and name.endswith(".parquet"))):
                self.filesystem.delete_file(f"{self.path}/{name}")

    def abort(self) -> None:
        """Remove what this job staged, and what it moved and did not commit; nothing that is committed."""
        try:
            manifest = read_manifest(self.filesystem, self.path)
            listed = {file.name for file in manifest.files} if manifest is not None else set()
            for name in self._present():
                if self._is_mine(name) and name not in listed:
                    self.filesystem.delete_file(f"{self.path}/{name}")
        except (OSError, ConfigError):
            pass  # the manifest still says which files are committed
        self._clean(self.job)

    def _clean(self, job: str) -> None:
        try:
            info = self.filesystem.get_file_info(fs.FileSelector(self.staging(), allow_not_found=True))
            mine = [i for i in info if i.base_name.startswith((f"{job}-", f"manifest-{job}-", f"note-{job}-", f"spark-{job}-"))]
            for item in mine:
                if item.type == fs.FileType.Directory:
                    self.filesystem.delete_dir(item.path)
                else:
                    self.filesystem.delete_file(item.path)
            if (info and len(mine) == len(info)) or not info:
                self.filesystem.delete_dir(self.staging())
        except OSError:
            pass  # nothing is lost: nobody reads staged files

    def result(self, receipt: PublishedFiles) -> PublishedFiles:
        """The job is over: also remove the staged files of dead replicas."""
        self._clean(receipt.job)  # the driver's copy may have another id than the job that was resumed
        return receipt


__all__ = ["ParquetSink", "ParquetWriter", "PublishedFiles", "StagedFile", "check_name"]
