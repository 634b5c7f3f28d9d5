"""A directory of files as a sink that is written exactly once, with each snapshot; the format of the files is a value of it.

Replicas write below ``<path>/_staging/<job>-r<run>-<replica>-<writer>/``; readers pass over names that start with ``_``. ``commit`` moves
the finished files into place one by one and then creates the next manifest (:mod:`rayad.integrations.file_output.manifests`), which has
each file with its snapshot: that creation is the commit, and :mod:`rayad.integrations.file_output.committed` reads by it. Each step can be
repeated: a file that is already in place is left there, so a commit that was cut off is finished by committing the same again. What no
longer belongs there (the old output of ``mode="overwrite"``, files of snapshots that are rolled back) is deleted after that, never before,
so that either the old or the new output is there at any time.

A coordinator may be taken for dead and live on. Its run number is in what it writes. The first commit of a run creates a manifest in any
case: from then on those before it are refused. And whoever commits deletes only what its own manifest has removed, and files of its
own run or earlier ones that no manifest has: a later run's are never touched.

With a log for Spark there is also what Spark reads the output by as a stream (:mod:`rayad.integrations.file_output.spark_log`). It is
written after the manifest and follows from it. All nodes have to see the directory. On object stores a move is a copy and a delete; the
manifest still separates whole from partial output.
"""

from __future__ import annotations

import base64
import json
import os
import time as clock
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
from pyarrow import fs

from rayad.dataflow.sink import Sink, SinkWriter
from rayad.integrations.blocks import schema_drift
from rayad.integrations.file_output.committed import BEGUN, PublishedFiles, manifest_of, open_directory, overlap
from rayad.integrations.file_output.compacting import Joiner, groups_to_join, may_be_joined
from rayad.integrations.file_output.formats import FileFormat, ParquetFormat, format_of, is_data
from rayad.integrations.file_output.manifests import MANIFESTS, MARKER, CommittedFile, Delta, Head, Output, OutputLog
from rayad.integrations.file_output.partitions import check_partition_by, check_types, cut
from rayad.integrations.file_output.spark_log import SPARK_LOG, SparkLogFolder, numbered
from rayad.integrations.file_output.writer import STAGING, FileWriter, StagedFile, run_of, staged_by
from rayad.integrations.paths import check_schema
from rayad.progress import ConfigError, DataflowError, arguments
from rayad.snapshots.create import check_can_create
from rayad.snapshots.port import Port
from rayad.snapshots.store import Superseded

MODES = ("error", "append", "overwrite")
DECISIONS_MAX = 20
"""So many times a commit is decided again where others commit to the directory at the same moment."""


def check_name(name: str) -> str:
    """Give a relative file name back; ConfigError if it could lead out of the output directory or into what is not output.

    >>> check_name("epoch=3/part-0.parquet")
    'epoch=3/part-0.parquet'
    """
    parts = name.split("/")
    bad = not name or "\0" in name or "\\" in name or name.startswith("/") or any(part in ("", ".", "..") for part in parts)
    if bad or parts[0].startswith((STAGING, MANIFESTS, MARKER, SPARK_LOG)):
        raise ConfigError(f"refused the file name {name!r}; names are relative, below the output directory, without '..'")
    return name


class FileReceipt(NamedTuple):
    """What a commit gives: the output as its coordinator holds it, which later commits change; a copy elsewhere has what it had then."""

    path: str
    job: str
    run: int
    output: Output

    @property
    def files(self) -> tuple[str, ...]:
        """Relative names of all files."""
        return self.published().files

    @property
    def rows(self) -> int:
        """Of all files."""
        return self.output.rows

    def published(self) -> PublishedFiles:
        """What ``result[name]`` is."""
        return manifest_of(self.output).published(self.path)


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
        check_can_create(self.filesystem, where)
        self.port = Port(self.filesystem, self.path)
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
        self._output: Output | None = None  # as this instance has read or written it
        self._is_settled = False  # whether this instance has removed files that do not belong there
        self._small: dict[str, CommittedFile] = {}  # files that may be joined, where commits join

    def __getstate__(self) -> dict[str, Any]:
        """A copy reads the manifests itself."""
        return {**self.__dict__, "_output": None, "_is_settled": False, "_small": {}}

    # -- before writing ------------------------------------------------------------------------------
    def identity(self) -> str:
        """The job's id, which is in the names of its files."""
        return self.job

    def adopt(self, identity: str) -> None:
        """Continue the output of another run."""
        check_name(identity)
        self.job, self._has_history = identity, True

    def is_same_place(self, other: Sink) -> bool:
        """Whether the other one writes to this directory, or to one inside or around it, and not both append."""
        return overlap(self, other)

    def check(self) -> None:
        """Refuse a directory that may not be written to, and note what is there before the job: only by the note it can be detected later
        that the job's own output has been removed. Repeatable."""
        before = self._check_place()
        self.port.make_folder(STAGING)
        if self._read_note() is None:
            declared = self._declared()
            schema = base64.b64encode(declared.serialize()).decode() if declared is not None else None
            note = json.dumps({"before": before.digest if before is not None else "", "schema": schema})
            self.port.create(self._note(), note.encode())

    def _check_place(self) -> Output | None:
        """Refuse a directory that may not be written to; gives what its newest manifest says."""
        last = self._log.last()
        before = self._manifests.read()
        self._check_free(before)
        self._check_kind(before)
        self._check_log(last, before)
        return before

    def make_staging(self, name: str) -> None:
        """Make the directory of a writer. In a job that keeps snapshots that of all staged files is there: an output that has gone away
        must not come back empty, with staged files that a snapshot then names."""
        self.port.make_folder(name, parents=not self.run)

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        """The writer of one replica."""
        if not self._has_history:
            self._check_place()
            return FileWriter(self, replica)
        before = self._manifests.read()
        known = before.head.schema if before is not None and before.head.job == self.job else None
        return FileWriter(self, replica, self._without_epoch(known))

    def _without_epoch(self, schema: pa.Schema | None) -> pa.Schema | None:
        """The schema of the records whose files have this schema."""
        at = -1 if schema is None or self.epoch_column is None else schema.get_field_index(self.epoch_column)
        return schema if schema is None or at < 0 else schema.remove(at)

    def stored(self, table: pa.Table) -> pa.Table:
        """``table`` in the types of the files: its own, unless a subclass knows that their reader needs others."""
        return table

    def cut(self, records: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The records of each directory below the output, or below that of an epoch."""
        return cut(records, self.partition_by, self.where)

    @property
    def _manifests(self) -> OutputLog:
        return OutputLog(self.port)

    def _note(self) -> str:
        return f"{STAGING}/{self.job}{BEGUN}"

    def _read_note(self) -> str | None:
        """Digest of the manifest that existed when the job began ("": none existed); None: there is no note."""
        return str(json.loads(self.port.read(self._note()))["before"]) if self.port.file(self._note()) is not None else None

    def _present(self) -> list[str]:
        """Relative names of all files but the staged ones and the manifests."""
        names = (entry.name for entry in self.port.entries(recursive=True) if entry.is_file)
        return [name for name in names if name.split("/")[0] not in (STAGING, MANIFESTS, MARKER, SPARK_LOG)]

    def _is_mine(self, name: str) -> bool:
        return name.rsplit("/", 1)[-1].startswith(f"part-{self.job}-")

    def _check_free(self, before: Output | None) -> None:
        """Mode "error": the directory may hold only files of this job."""
        if self.mode != "error" or (before is not None and before.head.job == self.job):
            return
        foreign = [name for name in self._present() if not self._is_mine(name)]
        if foreign:
            raise ConfigError(
                f"{self.where}: {self.path!r} already holds {len(foreign)} files ({foreign[0]!r} ..) and mode='error'; "
                "give mode='overwrite' or mode='append', or another directory; to continue a job that was interrupted, resume it"
            )

    def _check_kind(self, before: Output | None) -> None:
        """An output is of one format."""
        if before is not None and before.files and before.head.content != self.format.as_json():
            held = before.head.content or format_of(None).kind
            raise ConfigError(
                f"{self.where}: {self.path!r} holds an output of other files: {held}, these would be "
                f"{self.format.as_json() or self.format.kind}; write to another directory"
            )

    def _check_history(self, before: Output | None) -> None:
        """What this job has committed so far must be there, and no later run of it may have committed."""
        if before is not None and self.job in before.head.jobs:
            run = before.head.runs.get(self.job, 0)
            if run > self.run:
                raise Superseded(
                    f"{self.where}: run {run} of this job has committed to {self.path!r}: "
                    f"run {self.run} has been superseded, and commits nothing"
                )
            return
        if not self._has_history:
            self._check_free(before)
        elif self._read_note() != (before.digest if before is not None else ""):
            whose = f"now is of job {before.head.job!r}" if before is not None else "is gone"
            raise ConfigError(
                f"{self.where}: the output of job {self.job!r} in {self.path!r} {whose}: what earlier snapshots committed would be lost; "
                "put the directory back as it was, or start the job afresh"
            )

    # -- the log for Spark -----------------------------------------------------------------------------
    @property
    def _log(self) -> SparkLogFolder:
        return SparkLogFolder(self.port, STAGING)

    def _check_log(self, last: int, output: Output | None) -> None:
        log = output.head.spark if output is not None else None
        self._log.check(last, log, may_replace=self.mode == "overwrite", where=self.where)

    def _with_log(self, before: Output | None, head: Head, change: Delta) -> tuple[Head, Delta]:
        """A commit, with its entries in Spark's log."""
        log = before.head.spark if before is not None else None
        base = self.spark_base or (log.base if log is not None else None)
        if base is None:
            return head, change
        return numbered(before, head, change, base, int(1000 * clock.time()), above=-1 if log is not None else self._log.last())

    def _tell_spark(self, output: Output, change: Delta | None, *, is_settled: bool) -> None:
        """Bring the log up to date with the current manifest, of which the newest commit has changed this."""
        log = output.head.spark
        if log is None:
            if self.mode == "overwrite" and not is_settled:
                self._log.remove()  # it would name files that are about to be deleted
        elif not is_settled:
            self._log.mend(log, output)
        elif change is not None:
            self._log.write_last(log, output, change, clock.time())

    # -- committing ----------------------------------------------------------------------------------
    def publish(self, staged: Sequence[Any]) -> FileReceipt:
        """Commit all output of a job that takes no snapshots."""
        return self.commit(0, staged)

    def roll_back(self, last: int, first_new: int) -> None:
        """Make these snapshots void: the next commit removes, in the same step, what they committed; later commits of them are refused."""
        self._has_history, self._is_settled = True, False
        self._void = (last + 1, first_new - 1) if first_new > last + 1 else None

    def commit(self, snapshot: int, staged: Sequence[Any]) -> FileReceipt:
        """Move the staged files into place and commit them in a manifest; repeatable.

        DataflowError when a staged file is gone, replicas differ in their columns, or the snapshot is void because the job
        resumed from an earlier one; ConfigError when the output of this job is gone; Superseded when a later run has committed.
        """
        files = self._checked(staged)
        is_settled, self._is_settled = self._is_settled, False  # if this commit fails, the one that repeats it looks at all files again
        for _ in range(DECISIONS_MAX):
            output = self._commit(snapshot, files, is_settled)
            if output is not None:
                break
            is_settled = False
        else:
            raise DataflowError(
                f"{self.where}: the commit of snapshot {snapshot} to {self.path!r} was decided {DECISIONS_MAX} times, and each time others "
                "had committed there meanwhile; give each job a directory of its own"
            )
        self._output = output
        self._has_history, self._is_settled, self._void = True, True, None
        return FileReceipt(self.path, self.job, self.run, output)

    def _commit(self, snapshot: int, files: Sequence[StagedFile], is_settled: bool) -> Output | None:
        """One decision; None: others have committed meanwhile, and all has to be looked at again."""
        if is_settled and self._output is not None and self._manifests.is_newest(self._output):
            before: Output | None = self._output
        else:
            is_settled, last = False, self._log.last()
            before = self._manifests.read()
            self._check_log(last, before)
        self._check_history(before)
        self._check_void(snapshot, before)
        self._check_kind(before)
        if before is None:
            before = self._begin()
            if before is None:
                return None
        present = self._present() if not is_settled else []
        head, change = self._change(before, snapshot, files, present, is_settled=is_settled)
        output: Output | None = before
        if change.size or head != before.head:
            self._fill_small(before, change, is_settled=is_settled)
            output = self._manifests.append(before, head, change)
            if output is None:
                return None
        if not is_settled:
            self._manifests.mark()
            self.port.make_folder(STAGING)
        self._tell_spark(before, change if change.size else None, is_settled=is_settled)
        gone = sorted(change.removed - change.added.keys())  # two snapshots may have one staged file, if one was taken for failed
        for name in [*gone, *(name for name in present if self._is_leftover(name, before))]:
            self.port.delete(name)
        return output

    def _change(
        self, before: Output, snapshot: int, files: Sequence[StagedFile], present: Sequence[str], *, is_settled: bool
    ) -> tuple[Head, Delta]:
        """What the next manifest says; the new files are in place then."""
        job, head = self.job, before.head
        void = head.jobs.get(job, ())
        new_void = self._void if self._void not in void else None
        if new_void is not None:
            void = (*void, new_void)
        added: dict[str, CommittedFile] = {}
        removed: set[str] = set()
        if not is_settled:
            removed.update(name for name, file in before.files.items() if not self._stays(file, void, new_void))
            if self.mode == "overwrite":
                removed.update(name for name in present if name not in before.files and self._is_foreign(name, head))
            self._cut(before, new_void, added, removed)
        fresh = self._fresh(before, files, snapshot, {*added}, removed, is_settled=is_settled)
        self._check_schemas(files, head.schema if head.job == job else None)
        self._move(fresh)
        added.update({file.name: CommittedFile(file.name, file.rows, file.size_bytes, job, snapshot) for file in fresh})
        if self.compact and head.spark is None:
            self._join(before, snapshot, added, removed, is_settled=is_settled)
        schema = files[0].schema if files else head.schema if head.job == job else None
        jobs = {name: ranges for name, ranges in head.jobs.items() if self.mode == "append"} | {job: void}
        runs = {name: run for name, run in head.runs.items() if name in jobs} | {job: self.run}
        after = Head(job, jobs, runs, schema or self._declared(), content=self.format.as_json())
        return self._with_log(before, after, Delta(added, frozenset(removed)))

    def _is_foreign(self, name: str, head: Head) -> bool:
        """Whether a file that no manifest has is deleted by overwriting: one of the format that no job makes which may still commit it."""
        return (
            is_data(self.format.kind, name)
            and not self._is_mine(name)
            and name.rpartition("/")[2].split("-")[:2] not in [["part", job] for job in head.jobs if self.mode == "append"]
        )

    def _is_leftover(self, name: str, output: Output) -> bool:
        """Whether a file is of this run of the job or an earlier one, and was never committed, or is rolled back."""
        run = run_of(name.rpartition("/")[2], self.job) if self._is_mine(name) else None
        return run is not None and run <= self.run and name not in output.files

    def _checked(self, staged: Sequence[Any]) -> list[StagedFile]:
        files = [file for group in staged for file in (group or ())]
        for file in files:
            check_name(file.name)
            self._staged_name(file)
        return files

    def _staged_name(self, file: StagedFile) -> str:
        try:
            name = self.port.name_of(file.staged)
        except ValueError:
            name = ""
        if not name.startswith(f"{STAGING}/"):
            raise ConfigError(f"{self.where}: refused the staged file {file.staged!r}: it is not below {self.port.path(STAGING)!r}")
        return name

    def _check_void(self, snapshot: int, before: Output | None) -> None:
        for low, high in before.head.jobs.get(self.job, ()) if before is not None else ():
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
    def _cut(self, before: Output, void: tuple[int, int] | None, added: dict[str, CommittedFile], removed: set[str]) -> None:
        """Keep those rows of joined files that a roll-back leaves."""
        if void is None:
            return
        cut = [file for file in before.files.values() if file.job == self.job and 0 <= file.first < void[0] <= file.snapshot]
        self._replace([([file], partial(self._joiner().cut, file, void[0])) for file in cut], added, removed)

    def _join(self, before: Output, snapshot: int, added: dict[str, CommittedFile], removed: set[str], *, is_settled: bool) -> None:
        """Join small files of earlier snapshots."""
        known = self._small if is_settled else before.files
        there = [file for files in (known, added) for name, file in files.items() if name not in removed]
        groups = groups_to_join(there, self.job, snapshot)
        self._replace([(group, partial(self._joiner().join, group)) for group in groups], added, removed)

    def _fill_small(self, before: Output, change: Delta, *, is_settled: bool) -> None:
        """Note which files may be joined after a commit."""
        if self.compact:
            known = self._small if is_settled else before.files
            there = {**{name: file for name, file in known.items() if name not in change.removed}, **change.added}
            self._small = {name: file for name, file in there.items() if may_be_joined(file, self.job)}

    def _joiner(self) -> Joiner:
        assert isinstance(self.format, ParquetFormat), "only Parquet files are joined"
        return Joiner(self.format, self.port)

    def _replace(
        self,
        works: Sequence[tuple[list[CommittedFile], Callable[[str, str], CommittedFile]]],
        added: dict[str, CommittedFile],
        removed: set[str],
    ) -> None:
        """Make a file in place of some, for each of the works, and list it in their place."""
        for files, write in works:
            folder, slash, _ = files[0].name.rpartition("/")
            by = staged_by(self.job, self.run)
            own = f"part-{by}joined-{uuid.uuid4().hex[:12]}{self.format.suffix}"
            staged, name = f"{STAGING}/{by}joined/{own}", f"{folder}{slash}{own}"
            made = write(staged, name)
            self._move([StagedFile(self.port.path(staged), name, made.rows, made.size_bytes, pa.schema([]))])
            for file in files:
                added.pop(file.name, None)
                removed.add(file.name)
            added[name] = made

    def _fresh(
        self, before: Output, files: Sequence[StagedFile], snapshot: int, made: set[str], removed: set[str], *, is_settled: bool
    ) -> list[StagedFile]:
        """The staged files of a snapshot that are not committed yet. One that the manifest does not list is in a joined file of its
        directory if that reaches over the snapshot: snapshots are committed in order, each as a whole. So only a commit that may be one
        again has to look for those."""
        fresh = [file for file in files if file.name in removed or file.name not in before.files]
        if is_settled or not fresh:
            return fresh
        joined = [file for name, file in before.files.items() if file.first >= 0 and file.job == self.job and name not in removed]
        over = {file.name.rpartition("/")[0] for file in joined if file.first <= snapshot <= file.snapshot}
        over |= {name.rpartition("/")[0] for name in made}  # what is cut ends with the snapshot that is committed again
        return [file for file in fresh if file.name.rpartition("/")[0] not in over]

    def _begin(self) -> Output | None:
        """Write the manifest of the files that were there before, so that it is right from the first move on."""
        entries = {name: self._entry(name) for name in self._present() if not self._is_mine(name)}
        head, change = Head(self.job, {self.job: ()}, {self.job: self.run}, content=self.format.as_json()), Delta(entries, frozenset())
        if self._log.last() < 0:  # else the log has another program's files, until the first commit replaces it
            head, change = self._with_log(None, head, change)
        output = self._manifests.append(None, head, change)
        if output is not None:
            self._manifests.mark()
            if head.spark is not None:
                self._log.mend(head.spark, output)
        return output

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
        there = self.port.file(name)
        return CommittedFile(name, rows, there.size if there is not None else 0, "", 0)

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
            staged, folder = self._staged_name(file), file.name.rpartition("/")[0]
            if folder not in touched:
                self.port.make_folder(folder)
            touched.update((folder, ""))
            if self.port.file(staged) is not None:
                try:
                    self.port.move(staged, file.name)
                    continue
                except FileNotFoundError:
                    pass  # another coordinator has just moved it
            self._check_moved(file)
        for folder in sorted(touched):  # the files must not be lost when the manifest is not
            self.port.sync(folder)

    def _check_moved(self, file: StagedFile) -> None:
        there = self.port.file(file.name)
        if there is None or there.size != file.size_bytes:
            raise DataflowError(
                f"{self.where}: cannot publish {file.name!r}: its staged file {file.staged!r} is gone and {self.port.path(file.name)!r} "
                f"{'is missing' if there is None else f'has {there.size} bytes, not {file.size_bytes}'}; "
                "was the directory cleaned while the job ran? Is it seen by all nodes?"
            )

    # -- cleaning up ---------------------------------------------------------------------------------
    def abort(self) -> None:
        """Remove what this run staged, and what it moved and did not commit; nothing that is committed."""
        try:
            output = self._manifests.read()
            for name in self._present():
                if self._is_leftover(name, output if output is not None else Output(0, Head(self.job, {}), [], "")):
                    self.port.delete(name)
        except (OSError, ConfigError):
            pass  # the manifest still says which files are committed
        self._clean(self.job, self.run)

    def _clean(self, job: str, run: int) -> None:
        """Remove what runs of a job until this one have staged, and the job's note."""
        clean_staging(self.port, job, run)

    def result(self, receipt: FileReceipt) -> PublishedFiles:
        """The job is over: also remove the staged files of dead replicas."""
        self._clean(receipt.job, receipt.run)  # the driver's copy may have another id than the job that was resumed
        return receipt.published()


def clean_staging(port: Port, job: str, run: int) -> None:
    """Remove from the staging directory of an output what runs of a job until this one have left there; and the directory, if nothing else
    is in it."""
    try:
        found = port.entries(STAGING)
        mine = []
        for entry in found:
            by = run_of(entry.name.rpartition("/")[2], job)
            if by is not None and by <= run:
                mine.append(entry)
        for entry in mine:
            if entry.is_file:
                port.delete(entry.name)
            else:
                port.delete_folder(entry.name)
        if len(mine) == len(found):
            port.delete_folder(STAGING)
    except OSError:
        pass  # nothing is lost: nobody reads staged files


__all__ = ["MODES", "FileReceipt", "FileSink", "check_name", "clean_staging"]
