"""A directory of files as a sink that is written exactly once, with each snapshot; the format of the files is a value of it.

Replicas write below ``<path>/_staging/<job>-<replica>-<writer>/``; readers pass over names that start with ``_``. ``commit`` moves the
finished files into place one by one and then replaces ``_SUCCESS``, a JSON manifest of all files of the output, each with its
snapshot: that replacement is the commit, and :mod:`rayad.integrations.file_output.committed` reads by it. Each step can be repeated: a
file that is already in place is left there, so a commit that was cut off is finished by committing the same again. What no longer belongs
there (the old output of ``mode="overwrite"``, files of snapshots that are rolled back) is deleted after the manifest is replaced, never
before, so that either the old or the new output is there at any time.

With a log for Spark there is also what Spark reads the output by as a stream (:mod:`rayad.integrations.file_output.spark_log`). It is
written after the manifest and follows from it.

All nodes have to see the directory, and only one job at a time may write to it: the manifest has one writer. On object stores a move is a
copy and a delete; the manifest still separates whole from partial output.
"""

from __future__ import annotations

import base64
import json
import os
import time as clock
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import fs

from rayad.dataflow.sink import Sink, SinkWriter
from rayad.integrations.blocks import schema_drift
from rayad.integrations.file_output.committed import (
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
from rayad.integrations.file_output.compacting import Joiner, groups_to_join
from rayad.integrations.file_output.formats import FileFormat, ParquetFormat, format_of, is_data
from rayad.integrations.file_output.partitions import check_partition_by, check_types
from rayad.integrations.file_output.spark_log import SPARK_LOG, SparkLogFolder, numbered
from rayad.integrations.file_output.writer import FileWriter, StagedFile
from rayad.integrations.paths import check_schema
from rayad.progress import ConfigError, DataflowError, arguments

MODES = ("error", "append", "overwrite")


def check_name(name: str) -> str:
    """Give a relative file name back; ConfigError if it could lead out of the output directory or into what is not output.

    >>> check_name("epoch=3/part-0.parquet")
    'epoch=3/part-0.parquet'
    """
    parts = name.split("/")
    bad = not name or "\0" in name or "\\" in name or name.startswith("/") or any(part in ("", ".", "..") for part in parts)
    if bad or parts[0].startswith((STAGING, MANIFEST, SPARK_LOG)):
        raise ConfigError(f"refused the file name {name!r}; names are relative, below the output directory, without '..'")
    return name


class FileSink(Sink):
    """Writes records to files below ``path``; ``result`` gives :class:`PublishedFiles`. Its subclasses say of which format."""

    commits = True
    where: ClassVar[str] = "write_files"

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: FileFormat,
        *,
        partition_by_epoch: bool,
        partition_by: str | Sequence[str],
        epoch_column: str | None,
        mode: str,
        schema: pa.Schema | None,
        filesystem: fs.FileSystem | None,
    ) -> None:
        where = self.where
        arguments.choice(mode, f"{where}: mode", *MODES, error=ConfigError)
        check_schema(schema, where)
        arguments.flag(partition_by_epoch, f"{where}: partition_by_epoch", error=ConfigError)
        if epoch_column is not None:
            arguments.text(epoch_column, f"{where}: epoch_column", error=ConfigError, more=", the name of a column, or None")
        self.filesystem, self.path = open_directory(path, filesystem, where)
        if self.filesystem.get_file_info(self.path).type == fs.FileType.File:
            raise ConfigError(f"{where}: {self.path!r} is a file; give a directory")
        self.format = kind
        self.job = uuid.uuid4().hex[:12]
        self.mode = mode
        self.partition_by_epoch = partition_by_epoch
        self.partition_by = check_partition_by(partition_by, where)
        if schema is not None and self.partition_by:
            check_types(schema, self.partition_by, where)
        if schema is not None:
            kind.check_schema(pa.schema([field for field in schema if field.name not in self.partition_by]), where)
        self.epoch_column = epoch_column
        self.schema = schema
        self.compact = False
        """Whether commits join small files, which are Parquet then."""
        self.spark_base: str | None = None
        """The directory's URI for Spark, where a log is wanted."""
        self._has_history = False  # whether this job may have committed before
        self._void: tuple[int, int] | None = None  # snapshots that the next commit rolls back, first and last
        self._swept = False  # whether this instance has removed files that do not belong there

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
        self._check_kind(before)
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
            return FileWriter(self, replica)
        before = read_manifest(self.filesystem, self.path)
        return FileWriter(self, replica, self._without_epoch(before.schema) if before is not None and before.job == self.job else None)

    def _without_epoch(self, schema: pa.Schema | None) -> pa.Schema | None:
        """The schema of the records whose files have this schema."""
        at = -1 if schema is None or self.epoch_column is None else schema.get_field_index(self.epoch_column)
        return schema if schema is None or at < 0 else schema.remove(at)

    def stored(self, table: pa.Table) -> pa.Table:
        """``table`` in the types of the files: its own, unless a subclass knows that their reader needs others."""
        return table

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
                f"{self.where}: {self.path!r} already holds {len(foreign)} files ({foreign[0]!r} ..) and mode='error'; "
                "give mode='overwrite' or mode='append', or another directory; to continue a job that was interrupted, resume it"
            )

    def _check_kind(self, before: OutputManifest | None) -> None:
        """An output is of one format."""
        if before is not None and before.files and before.content != self.format.as_json():
            raise ConfigError(
                f"{self.where}: {self.path!r} holds an output of other files: {before.content or format_of(None).kind}, these would be "
                f"{self.format.as_json() or self.format.kind}; write to another directory"
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
                f"{self.where}: the output of job {self.job!r} in {self.path!r} {whose}: what earlier snapshots committed would be lost; "
                "put the directory back as it was, or start the job afresh"
            )

    # -- the log for Spark -----------------------------------------------------------------------------
    @property
    def _log(self) -> SparkLogFolder:
        return SparkLogFolder(self.filesystem, self.path, self.staging())

    def _check_log(self, last: int, manifest: OutputManifest | None) -> None:
        self._log.check(last, manifest, may_replace=self.mode == "overwrite", where=self.where)

    def _with_log(self, before: OutputManifest | None, after: OutputManifest) -> OutputManifest:
        """``after``, with its entries in Spark's log."""
        log = before.spark if before is not None else None
        base = self.spark_base or (log.base if log is not None else None)
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
        self._check_kind(before)
        if before is None:
            before = self._begin()
        void = before.jobs.get(self.job, ())
        if self._void is not None and self._void not in void:
            void = (*void, self._void)
        new_void = self._void if self._void not in before.jobs.get(self.job, ()) else None
        kept = {file.name: file for file in before.files if self._stays(file, void, new_void)}
        gone = self._cut(before.files, kept, new_void)
        fresh = self._fresh(files, kept, snapshot)
        self._check_schemas(files, before.schema if before.job == self.job else None)
        self._move(fresh)
        kept.update({file.name: CommittedFile(file.name, file.rows, file.size_bytes, self.job, snapshot) for file in fresh})
        if self.compact and before.spark is None:
            gone += self._join(kept, snapshot)
        jobs = {job: ranges for job, ranges in before.jobs.items() if self.mode == "append"} | {self.job: void}
        schema = files[0].schema if files else before.schema if before.job == self.job else None
        listed = tuple(kept[name] for name in sorted(kept))
        after = OutputManifest(self.job, jobs, listed, schema or self._declared(), content=self.format.as_json())
        after = self._with_log(before, after)
        is_new = not after.says_the_same(before)
        if is_new:
            write_manifest(self.filesystem, self.path, after)
        self._tell_spark(after, is_new=is_new, swept=swept)
        if not swept:
            self._sweep(set(kept))
        elif is_new:
            for name in gone:
                self.filesystem.delete_file(f"{self.path}/{name}")
        self._has_history, self._swept, self._void = True, True, None
        return after.published(self.path)

    def _checked(self, staged: Sequence[Any]) -> list[StagedFile]:
        files = [file for group in staged for file in (group or ())]
        for file in files:
            check_name(file.name)
            if not os.path.normpath(file.staged).startswith(self.staging() + "/"):
                raise ConfigError(f"{self.where}: refused the staged file {file.staged!r}: it is not below {self.staging()!r}")
        return files

    def _check_void(self, snapshot: int, before: OutputManifest | None) -> None:
        for low, high in before.jobs.get(self.job, ()) if before is not None else ():
            if low <= snapshot <= high:
                raise DataflowError(
                    f"{self.where}: snapshot {snapshot} cannot be committed to {self.path!r}: the job resumed from snapshot {low - 1} "
                    f"meanwhile, and what snapshots {low} to {high} committed was removed; resume from {low - 1}, or from one after {high}"
                )

    def _stays(self, file: CommittedFile, void: Iterable[tuple[int, int]], new_void: tuple[int, int] | None) -> bool:
        if file.job != self.job:
            return self.mode == "append"
        if file.first >= 0:  # the snapshots that were void when it was joined are not in it
            return new_void is None or file.snapshot < new_void[0]
        return not any(low <= file.snapshot <= high for low, high in void)

    # -- joined files --------------------------------------------------------------------------------
    def _cut(self, files: Iterable[CommittedFile], kept: dict[str, CommittedFile], void: tuple[int, int] | None) -> list[str]:
        """Keep those rows of joined files that a roll-back leaves; gives the names of files that others replace."""
        if void is None:
            return []
        cut = [file for file in files if file.job == self.job and 0 <= file.first < void[0] <= file.snapshot]
        return self._replace([([file], partial(self._joiner().cut, file, void[0])) for file in cut], kept)

    def _join(self, kept: dict[str, CommittedFile], snapshot: int) -> list[str]:
        """Join small files of earlier snapshots; gives the names of those that joined ones replace."""
        groups = groups_to_join(kept.values(), self.job, snapshot)
        return self._replace([(group, partial(self._joiner().join, group)) for group in groups], kept)

    def _joiner(self) -> Joiner:
        assert isinstance(self.format, ParquetFormat), "only Parquet files are joined"
        return Joiner(self.format, self.filesystem, self.path)

    def _replace(
        self, works: Sequence[tuple[list[CommittedFile], Callable[[str, str], CommittedFile]]], kept: dict[str, CommittedFile]
    ) -> list[str]:
        """Make a file in place of some, for each of the works, and list it in their place."""
        gone: list[str] = []
        for files, write in works:
            folder, slash, _ = files[0].name.rpartition("/")
            own = f"part-{self.job}-joined-{uuid.uuid4().hex[:12]}{self.format.suffix}"
            staged, name = f"{self.staging()}/{self.job}-joined/{own}", f"{folder}{slash}{own}"
            made = write(staged, name)
            self._move([StagedFile(staged, name, made.rows, made.size_bytes, pa.schema([]))])
            for file in files:
                kept.pop(file.name, None)
                gone.append(file.name)
            kept[name] = made
        return gone

    def _fresh(self, files: Sequence[StagedFile], kept: dict[str, CommittedFile], snapshot: int) -> list[StagedFile]:
        """The staged files of a snapshot that are not committed yet. One that the manifest does not list is in a joined file of its
        directory if that reaches over the snapshot: snapshots are committed in order, each as a whole."""
        joined = {
            (file.name.rpartition("/")[0], file.first, file.snapshot) for file in kept.values() if file.first >= 0 and file.job == self.job
        }
        over = {folder for folder, first, last in joined if first <= snapshot <= last}
        return [file for file in files if file.name not in kept and file.name.rpartition("/")[0] not in over]

    def _begin(self) -> OutputManifest:
        """Write the manifest of the files that were there before, so that it is right from the first move on."""
        entries = tuple(self._entry(name) for name in self._present() if not self._is_mine(name))
        manifest = OutputManifest(self.job, {self.job: ()}, entries, content=self.format.as_json())
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
        if is_data(self.format.kind, name):
            try:
                rows = self.format.count_rows(self.filesystem, path)
            except pa.ArrowException as error:
                if self.mode == "append":
                    raise ConfigError(
                        f"{self.where}: cannot append to {self.path!r}: {name!r} is no whole file of {self.format.kind}: {error}"
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
                raise DataflowError(f"{self.where}: replicas gave different columns: {drift}") from drift

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
                f"{self.where}: cannot publish {file.name!r}: its staged file {file.staged!r} is gone and {target!r} "
                f"{'is missing' if there.type != fs.FileType.File else f'has {there.size} bytes, not {file.size_bytes}'}; "
                "was the directory cleaned while the job ran? Is it seen by all nodes?"
            )

    # -- cleaning up ---------------------------------------------------------------------------------
    def _sweep(self, listed: set[str]) -> None:
        """Delete files of this job that the manifest does not have and, when overwriting, all other files of its format."""
        for name in self._present():  # other files are not deleted: they are not ours
            if name not in listed and (self._is_mine(name) or (self.mode == "overwrite" and is_data(self.format.kind, name))):
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


__all__ = ["MODES", "FileSink", "check_name"]
