"""An Iceberg table as a sink that is written exactly once, by ``pyiceberg`` (``pip install rayad[iceberg]``); why so: docs/decisions/068.

What it shares with other formats, and how it works: :mod:`rayad.integrations.file_output.tables`. Here the commit is a transaction of the
table's catalog: it adds a snapshot of Iceberg with the files, and sets the table's property ``rayad.<job>``, which says which snapshot
of the job is shown and which are void. The summary of Iceberg's snapshot has the number, too. Nothing is told without a snapshot of
Iceberg, an empty one where there are no files: a catalog compares the snapshot that a transaction began with, not the properties, and so
two coordinators of one job never both succeed on one state of the table.

Others may append, compact, and roll their own jobs back meanwhile; their commits are retried around (:meth:`IcebergSink.transact`). What
rewrites or removes files of void snapshots is refused by a roll-back across it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pyarrow import fs

from rayad.integrations.file_output.committed import open_directory
from rayad.integrations.file_output.tables import Overtaken, PublishedTable, TableSink, Told, are_of, ranges
from rayad.integrations.file_output.text_types import check_values
from rayad.integrations.file_output.writer import StagedFile
from rayad.integrations.iceberg import partitions
from rayad.integrations.iceberg.catalog import Refusing, catalog_of, first_line, library, texts
from rayad.integrations.iceberg.types import ICEBERG, not_mapped, null_where_required
from rayad.integrations.paths import check_filesystem
from rayad.progress import ConfigError, DataflowError, arguments, show, without_secrets

_NAMES = "schema.name-mapping.default"
_JOB, _SNAPSHOT, _FIRST = "rayad.job", "rayad.snapshot", "rayad.first"
"""In the summaries of snapshots of Iceberg: whose it is, which snapshot it shows, whether it is the first of the job."""
MANIFESTS_MAX, EMPTY_MAX = 100, 16
"""With so many manifests, or so many of them without files, they are merged by commits that remove files, too."""
_PARTITION = 3
"""Where the partition is in a data file, as the fields of ``pyiceberg``'s records are numbered."""
VERSIONS = (1, 2)
"""Of the format, which ``pyiceberg`` writes."""
NEW_TABLE = {"commit.manifest-merge.enabled": "true"}
"""Properties of a table that is made here. Java merges manifests by default, ``pyiceberg`` does not: each commit would leave one."""


class IcebergSink(TableSink):
    """Appends records to an Iceberg table, one transaction for each snapshot; ``result`` gives
    :class:`rayad.integrations.file_output.tables.PublishedTable`.

    ``table``: its identifier, ``"namespace.table"``; the namespace must exist, the first commit creates the table. ``catalog``: a name in
    the configuration of ``pyiceberg``, or the properties of a catalog, including its ``name`` (default ``"default"``). ``mode``, if the
    table exists: ``"error"``, ``"append"``, or ``"overwrite"`` (the first commit replaces its rows; its columns stay). ``schema``: columns
    and types; default: those of the table, or of the records if it is new (as in ``write_parquet``). ``partition_by``: what partitions a
    new table: columns, or Iceberg's transforms of them, such as ``["town", "day(at)", "bucket(16, id)", "truncate(4, zip)"]``; a table
    that exists is written by its own partition spec. ``epoch_column``: name of an added column with each row's epoch. ``location`` and
    ``properties``: of a new table; by default the catalog decides the location. ``filesystem``: for the files, if the catalog's own does
    not work here, such as one with short-lived or per-table credentials.

    Types are those of Iceberg: integers become int or long, unsigned 64-bit ones decimal(20, 0), zoned times become UTC; nanoseconds must
    be whole microseconds, moments of the years 1 to 9999; durations are refused. A table's sort order is not kept: files say that they are
    not sorted. Files of commits that were rolled back stay until Iceberg's snapshots expire. The table keeps a property ``rayad.<job>`` for
    each job, which may be removed when that job will never be resumed.
    """

    where: ClassVar[str] = "write_iceberg"
    begins_anew: ClassVar[bool] = False
    """Whether a commit is decided again as soon as anybody has committed meanwhile, because it depends on the rows that are there."""

    def __init__(
        self,
        table: str,
        *,
        catalog: str | Mapping[str, Any] = "default",
        mode: Literal["error", "append", "overwrite"] = "error",
        schema: pa.Schema | None = None,
        partition_by: str | Sequence[str] = (),
        epoch_column: str | None = None,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        compression: str | None = "zstd",
        row_group_rows: int = 131_072,
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        where = self.where
        library(where)
        super().__init__(mode, schema, epoch_column, compression, row_group_rows)
        self.name = arguments.text(table, f"{where}: table", error=ConfigError, more=", its identifier 'namespace.table'")
        if not all(self.name.split(".")) or "." not in self.name:
            raise ConfigError(f"{where}: table is {show(table)}: it must be an identifier with its namespace, 'namespace.table'")
        self._properties = texts(properties, f"{where}: properties")
        if self._properties.get("format-version", "2") not in map(str, VERSIONS):
            raise ConfigError(
                f"{where}: properties has 'format-version': {self._properties['format-version']!r}, pyiceberg writes "
                f"{' and '.join(map(str, VERSIONS))}"
            )
        if location is not None:
            arguments.text(location, f"{where}: location", error=ConfigError, more=", a directory or URI, or None")
        check_filesystem(filesystem, where)
        self._catalog_name, self._catalog_properties = catalog_of(catalog, where)
        self._opened: Any = None
        self.fields = partitions.fields_of(partition_by, where)
        found = self.table()
        if found is None:
            self._location, data, io = self._place(location)
        else:
            self._location, data, io = found.location(), found.location_provider().data_path, found.io
        self.filesystem, self.path = self._open_files(data, io, filesystem)
        if not data.endswith(self.path):
            raise ConfigError(f"{where}: the files of {self.name!r} are at {data!r}, where {self.path!r} is no end of: give location=")
        self._prefix = data[: len(data) - len(self.path)]
        if self.schema is not None:
            ours = self.kinds(self.with_epoch(self.schema))
            if found is not None:
                self.check_columns(ours, self.columns_of(found))
            partitions.check_fields(ours, self.fields, where)
        if found is not None:
            self._take_over_fields(found)
            self.schema = self.without_epoch(found)  # which says what may be null

    def __getstate__(self) -> dict[str, Any]:
        """A catalog stays in its process; its name and properties travel."""
        return {**self.__dict__, "_opened": None}

    def _take_over_fields(self, found: Any) -> None:
        fields = partitions.fields_of_spec(found, self.where)
        if self.fields and self.fields != fields:
            theirs, ours = ([str(field) for field in some] for some in (fields, self.fields))
            raise ConfigError(f"{self.where}: the table {self.name!r} is partitioned by {theirs}, not by {ours}")
        self.fields = fields

    def _place(self, location: str | None) -> tuple[str, str, Any]:
        """Where a table that is not there yet will be, where its files will be, and what opens them."""
        catalog, namespace = self._catalog(), self.name.rpartition(".")[0]
        with self._reading():
            if not catalog.namespace_exists(namespace):
                raise ConfigError(
                    f"{self.where}: the catalog {self._catalog_name!r} has no namespace {namespace!r} for the table {self.name!r}: make "
                    f"it, as by catalog.create_namespace({namespace!r})"
                )
            # Not committed: the catalog is only asked where it would be.
            staged = catalog.create_table_transaction(
                self.name, pa.schema([("x", pa.int64())]), location, properties=self._new_properties()
            )
            found = staged.table_metadata.location
            data = self._properties.get("write.data.path") or f"{found.rstrip('/')}/data"
            return found, data.rstrip("/"), library(self.where).io.load_file_io({**catalog.properties, **self._properties}, found)

    def _open_files(self, uri: str, io: Any, filesystem: fs.FileSystem | None) -> tuple[fs.FileSystem, str]:
        """The file system and the directory of the files."""
        known = library(self.where).io.pyarrow.PyArrowFileIO
        scheme, host, path = known.parse_location(uri, getattr(io, "properties", {}))
        if filesystem is not None:
            return filesystem, path
        if not isinstance(io, known):
            return open_directory(uri, None, self.where)
        with self._reading():
            return io.fs_by_scheme(scheme, host), path

    # -- the table ---------------------------------------------------------------------------------------
    def _catalog(self) -> Any:
        if self._opened is None:
            try:
                self._opened = library(self.where).catalog.load_catalog(self._catalog_name, **self._catalog_properties)
            except Exception as error:  # of any catalog's client
                given = self._catalog_properties
                why = first_line(error, given)
                raise ConfigError(
                    f"{self.where}: the catalog {self._catalog_name!r} cannot be opened: {why}; catalog= is a name in the "
                    "configuration of pyiceberg, or the properties of a catalog, such as {'type': 'rest', 'uri': ...}"
                ) from without_secrets(error, given)
        return self._opened

    def _reading(self) -> Refusing:
        told = f"{self.where}: the table {self.name!r} cannot be read from the catalog {self._catalog_name!r}"
        return Refusing(told, self._catalog_properties)

    def table(self) -> Any:
        """Return the table as the catalog has it now, or None if there is none."""
        catalog = self._catalog()
        with self._reading():
            try:
                return catalog.load_table(self.name)
            except library(self.where).exceptions.NoSuchTableError:
                return None

    def columns_of(self, table: Any) -> pa.Schema:
        """Return the columns of the table's current schema. Raises ConfigError if the table is of a version that cannot be written."""
        if table.format_version not in VERSIONS:
            raise ConfigError(
                f"{self.where}: the table {self.name!r} is of version {table.format_version} of Iceberg's format, pyiceberg writes "
                f"{' and '.join(map(str, VERSIONS))}: write to a table of one of these"
            )
        found = library(self.where).io.pyarrow.schema_to_pyarrow(table.schema(), include_field_ids=False)
        return pa.schema([pa.field(f.name, ICEBERG.type_of(f.type, f.name, self.where), nullable=f.nullable) for f in found])

    def version_of(self, table: Any) -> int:
        """Return the id of the table's snapshot, or -1 if it has none."""
        snapshot = table.current_snapshot()
        return int(snapshot.snapshot_id) if snapshot is not None else -1

    # -- types -------------------------------------------------------------------------------------------
    def kinds(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns that a table for records of ``schema`` has. Raises DataflowError if Iceberg lacks a type."""
        return self.stored(schema.empty_table()).schema

    def stored(self, table: pa.Table) -> pa.Table:
        """Convert a table to the types of Iceberg. Fields inside nested columns that must not be null are declared so."""
        for field, column in zip(table.schema, table.columns, strict=True):
            for chunk in column.chunks:
                null = null_where_required(chunk, field, field.name)
                if null is not None:
                    raise DataflowError(f"{self.where}: column {null!r} of {self.name!r} is required, and a record has null there")
        out = ICEBERG.for_files(table, self.where, "leave the column out")
        check_values(out, self.where, "pyiceberg, which keeps the least and the largest value of each file, cannot hold it")
        return out

    def cut(self, records: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The records of each partition, with its name."""
        if not self.fields:
            yield "", records
            return
        names = {field.column[0] for field in self.fields}
        plain = ICEBERG.columns(
            pa.Table.from_batches([records.select([name for name in records.schema.names if name in names])]), self.where
        )
        kinds = [plain.schema.field(field.name) if field.name in names else field for field in records.schema]
        partitions.check_fields(pa.schema(kinds), self.fields, self.where)
        yield from partitions.cut(records, plain, self.fields, self.where)

    # -- what the table says -----------------------------------------------------------------------------
    @property
    def marker(self) -> str:
        """The name of the property in which the table says what of this job is in it."""
        return f"rayad.{self.job}"

    def knows(self, table: Any) -> bool:
        """Tell whether this job has committed, by the property that it leaves on the table."""
        return self.marker in table.properties

    def told_by(self, table: Any) -> Told:
        """Return what the job's property says, which stays when snapshots of Iceberg expire."""
        text = table.properties[self.marker]
        try:
            plain = json.loads(text)
            return Told(int(plain["shown"]), ranges(plain["void"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataflowError(
                f"{self.where}: the property {self.marker!r} of the table {self.name!r} is {show(text)}, which is not what this job has "
                "written: put the earlier value back"
            ) from error

    def files_of(self, table: Any, void: tuple[int, int], earlier: Sequence[tuple[int, int]]) -> list[Any]:
        """Find the files of void snapshots by their names. Refused unless their number is what the snapshots of Iceberg have added."""
        live = self._live(table)
        mine = [live[at] for at in are_of(void, [file.file_path.rpartition("/")[2] for file in live], self.job)]
        added = self._added(table, void, earlier)
        if added != len(mine):
            why = "the history of the table has expired" if added is None else f"of the {added} files they added {len(mine)} are left"
            raise DataflowError(
                f"{self.where}: snapshots {void[0]} to {void[1]} cannot be taken back from {self.name!r}: {why}, so their rows may be in "
                "other files; resume from the newest snapshot, or restore the table to the state before them"
            )
        return mine

    def _added(self, table: Any, void: tuple[int, int], earlier: Sequence[tuple[int, int]]) -> int | None:
        """How many files these snapshots of the job have added; None where the history does not go back so far."""
        added = 0
        for snapshot in _newest_first(table):
            summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            if summary.get(_JOB) != self.job:
                continue
            number = int(summary[_SNAPSHOT])
            if void[0] <= number <= void[1] and not any(low <= number <= high for low, high in earlier):
                added += int(summary.get("added-data-files", 0))
            if number < void[0] or _FIRST in summary:
                return added
        return None

    def _live(self, table: Any) -> list[Any]:
        """The data files of the table."""
        snapshot = table.current_snapshot()
        content = library(self.where).manifest.DataFileContent.DATA
        with self._reading():
            manifests = snapshot.manifests(table.io) if snapshot is not None else []
            entries = (entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True))
            return [entry.data_file for entry in entries if entry.data_file.content == content]

    # -- committing --------------------------------------------------------------------------------------
    def transact(
        self, table: Any, moved: Sequence[StagedFile], removed: Sequence[Any], after: Told, kinds: pa.Schema, *, replaces: bool
    ) -> None:
        """Commit one transaction to the catalog. If others committed meanwhile, ``pyiceberg`` retries (by the table's
        ``commit.retry.*``), as long as what the table says of this job is unchanged."""
        gone = self._live(table) if replaces else removed
        is_known = table is not None and self.knows(table)
        told = json.dumps({"shown": after.shown, "void": after.void, "commit": uuid.uuid4().hex[:12]})
        errors = library(self.where).exceptions
        try:
            transaction = self._new(kinds) if table is None else _Guarded(self, table, told).transaction()
            metadata = transaction.table_metadata
            transaction.set_properties({self.marker: told, **self._names(metadata)})
            files = [self._data_file(metadata, file) for file in moved]
            summary = {_JOB: self.job, _SNAPSHOT: str(after.shown)}
            first = {} if is_known else {_FIRST: "true"}
            update = transaction.update_snapshot(snapshot_properties={**summary, **first})
            with update.overwrite() if gone else update.merge_append() as snapshot:
                for file in files:
                    snapshot.append_data_file(file)
                for file in gone:
                    snapshot.delete_data_file(file)
            if gone and self._has_many_manifests(table):
                with transaction.update_snapshot(snapshot_properties=summary).merge_append():
                    pass  # which merges them, and leaves out those without files; an overwrite does not
            transaction.commit_transaction()
        except (errors.CommitFailedException, errors.ValidationException, errors.TableAlreadyExistsError) as error:
            self.on_refused(moved)
            raise Overtaken(first_line(error)) from error
        except (Overtaken, ConfigError):
            raise
        except Exception as error:  # of any catalog's client
            given = self._catalog_properties
            what = f"{self.where}: the commit of snapshot {after.shown} to {self.name!r} failed"
            raise DataflowError(f"{what}: {first_line(error, given)}") from without_secrets(error, given)

    def on_refused(self, moved: Sequence[StagedFile]) -> None:
        """The catalog has refused a commit with these files, which are in no table; they stay, for the commit that follows."""

    def _new(self, kinds: pa.Schema) -> Any:
        """A transaction that makes the table."""

        def begun(schema: Any, **more: Any) -> Any:
            return self._catalog().create_table_transaction(self.name, schema, self._location, properties=self._new_properties(), **more)

        if not self.fields:
            return begun(kinds)
        partitions.check_fields(kinds, self.fields, self.where)
        schema = begun(kinds).table_metadata.schema()  # with the numbers of fields, which a spec needs
        return begun(schema, partition_spec=partitions.spec_of(self.fields, schema, self.where))

    def _has_many_manifests(self, table: Any) -> bool:
        snapshot = table.current_snapshot()
        manifests = snapshot.manifests(table.io) if snapshot is not None else []
        empty = [one for one in manifests if not (one.has_added_files() or one.has_existing_files())]
        merges = table.properties.get("commit.manifest-merge.enabled", "false") == "true"
        many = int(table.properties.get("commit.manifest.min-count-to-merge", MANIFESTS_MAX))
        return len(empty) >= EMPTY_MAX or (merges and len(manifests) >= many)

    def _names(self, metadata: Any) -> dict[str, str]:
        """What readers find columns by, as the files have names and no numbers; nothing where the table has it."""
        ours, theirs = metadata.schema().name_mapping, metadata.name_mapping()
        if theirs is None:
            return {_NAMES: ours.model_dump_json()}
        missing = not_mapped(ours.root, theirs.root)
        if missing is not None:
            raise ConfigError(
                f"{self.where}: the property {_NAMES!r} of the table {self.name!r} does not have the column {missing!r}, so readers would "
                "find null in its place: add it there, or remove the property"
            )
        return {}

    def _data_file(self, metadata: Any, file: StagedFile) -> Any:
        """A file for a manifest, with the bounds of its columns, by its footer, and with the values of its partition."""
        found = library(self.where)
        partition = file.name.rpartition("/")[0]
        fields, cut_by = [str(field) for field in partitions.fields_of_spec(metadata, self.where)], partitions.cut_by(partition)
        if fields != cut_by:
            raise ConfigError(
                f"{self.where}: the table {self.name!r} is partitioned by {', '.join(fields) or 'nothing'}, and what is to be added to it "
                f"was written when it was by {', '.join(cut_by) or 'nothing'}: put that partition spec back, let the job end, and change "
                "it then"
            )
        kinds = [field.field_type for field in metadata.spec().partition_type(metadata.schema()).fields]
        values = partitions.values_in(partition, kinds, self.where)
        footers = _Footers(self.filesystem, self._prefix, found.io.pyarrow.PyArrowFile)
        made = found.io.pyarrow.parquet_file_to_data_file(footers, _WithoutPartitions(found, metadata), f"{self._prefix}{file.staged}")
        made[_PARTITION] = found.typedef.Record(*values)
        return made

    def _new_properties(self) -> dict[str, str]:
        return {**NEW_TABLE, **self._properties}


class _Footers:
    """What opens the files of a sink for ``pyiceberg``: by the file system on which they were written."""

    def __init__(self, filesystem: fs.FileSystem, prefix: str, opened: Any) -> None:
        self._filesystem, self._prefix, self._opened = filesystem, prefix, opened

    def new_input(self, location: str) -> Any:
        """A file, by its location in the table."""
        return self._opened(location, location.removeprefix(self._prefix), self._filesystem)


class _WithoutPartitions:
    """The metadata of a table for what describes a file by its footer, in which partitions cannot be found in general."""

    def __init__(self, found: Any, metadata: Any) -> None:
        self.format_version, self.properties = metadata.format_version, metadata.properties
        self.default_spec_id = metadata.default_spec_id
        self.schema = metadata.schema
        self.spec = found.partitioning.PartitionSpec


class _Guarded:
    """A table of which no transaction is tried again once what it depends on has changed: another coordinator has told something of the
    job, the partition spec is another one, or, of a sink that begins anew, anybody has committed."""

    def __init__(self, sink: IcebergSink, table: Any, told: str) -> None:
        self._sink, self._table, self._told = sink, table, told
        self._known = table.properties.get(sink.marker)
        self._spec = table.metadata.default_spec_id
        self._refresh = table.refresh

    def transaction(self) -> Any:
        """A transaction of the table."""
        self._table.refresh = self._refreshed
        return self._table.transaction()

    def _refreshed(self) -> Any:
        self._refresh()
        says = self._table.properties.get(self._sink.marker)
        if says == self._told:  # the commit has come through, and its answer was lost
            return self._table
        if says != self._known:
            raise Overtaken("another coordinator of this job has committed meanwhile")
        if self._sink.begins_anew or self._table.metadata.default_spec_id != self._spec:
            raise library(self._sink.where).exceptions.CommitFailedException("others have committed to the table meanwhile")
        return self._table


def _newest_first(table: Any) -> Iterator[Any]:
    """The snapshots of Iceberg behind the current state of a table, as far as they have not expired."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None


__all__ = ["IcebergSink", "PublishedTable"]
