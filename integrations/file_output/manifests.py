"""The manifests of an output: which files are committed, as a log of which each entry is created once.

``<output>/_manifests/<number>.json`` are consecutive: number n + 1 is made from what n says, and created only if it is absent
(:mod:`rayad.snapshots.port`). So of two coordinators that commit at once one is told that the other was first, and decides again; and one
that stood still while others went on finds its number taken, or a higher one in the list that it reads after its creation. Each manifest
names, for each job that has written, the run number of its last coordinator: a lower one is over (:class:`Superseded`).

A manifest has what its commit changed (``added``, ``removed``), and the manifests before it that have the rest (``chain``). Those of
about one size are merged into the new one when there are :data:`FANOUT` of them, as in a log-structured merge tree: so a file is written
log(n) times, a reader reads about ``FANOUT * log(n)`` manifests, and a commit costs the same behind a hundred thousand files as behind a
hundred. Those that a chain no longer names are deleted; a reader that misses one begins again with the newest.

``_SUCCESS`` says that there is such an output. In outputs of earlier versions it is the manifest itself: number 0.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from rayad.integrations.file_output.formats import format_of
from rayad.progress import ConfigError
from rayad.snapshots.port import Port

MANIFESTS = "_manifests"
MARKER = "_SUCCESS"
FORMAT = "rayad-output-1"
OLD_FORMATS = ("rayad-parquet-1", "rayad-parquet-2", "rayad-files-1")
"""Of ``_SUCCESS``, where that is the manifest."""
FANOUT = 8
"""So many manifests of about one size are merged."""
READS_MAX = 50
"""A reader begins so often again, when manifests are merged and deleted while it reads."""
_NAME = re.compile(r"(\d{12})\.json")
_MARK = json.dumps({"format": FORMAT, "manifests": MANIFESTS}).encode()


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
        """This file as it stands in an entry of Spark's log."""
        return self._replace(entry=entry, shown_ms=shown_ms)


class SparkLog(NamedTuple):
    """What the manifest says of Spark's log: the URI of the directory as Spark has it, and the number of the next entry."""

    base: str
    entries: int

    def as_json(self) -> dict[str, str | int]:
        """Its JSON form in the manifest."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class Head:
    """What each manifest says whole.

    Args:
        job: the one that wrote it.
        jobs: each job whose files may be in the output, with its void snapshots as ranges (first, last).
        runs: by job, the run number of the coordinator that committed last.
        schema: of the last job's files, if it wrote any.
        spark: the log for Spark, if there is one.
        content: the format of the files (:func:`rayad.integrations.file_output.formats.format_of`).
    """

    job: str
    jobs: Mapping[str, tuple[tuple[int, int], ...]]
    runs: Mapping[str, int] = field(default_factory=dict)
    schema: pa.Schema | None = None
    spark: SparkLog | None = None
    content: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Its JSON form."""
        return {
            "job": self.job,
            "jobs": dict(self.jobs),
            "runs": dict(self.runs),
            "schema": base64.b64encode(self.schema.serialize()).decode() if self.schema is not None else None,
            "spark": self.spark.as_json() if self.spark is not None else None,
            "content": self.content,
        }

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Head:
        """What :meth:`as_json` gave. Raises ValueError, KeyError or TypeError for anything else."""
        format_of(plain.get("content"))
        job = plain["job"]
        return Head(
            job,
            {name: tuple((low, high) for low, high in void) for name, void in plain.get("jobs", {job: []}).items()},
            {name: int(run) for name, run in plain.get("runs", {}).items()},
            pa.ipc.read_schema(pa.py_buffer(base64.b64decode(plain["schema"]))) if plain.get("schema") else None,
            SparkLog(**plain["spark"]) if plain.get("spark") else None,
            plain.get("content"),
        )


class Delta(NamedTuple):
    """What one or several commits in a row have changed: the files added, by name, and the names removed of files before them."""

    added: Mapping[str, CommittedFile]
    removed: frozenset[str]

    @property
    def size(self) -> int:
        """How many files it speaks of."""
        return len(self.added) + len(self.removed)

    def then(self, later: Delta) -> Delta:
        """Both, one after the other."""
        added = {name: file for name, file in self.added.items() if name not in later.removed}
        return Delta({**added, **later.added}, self.removed | later.removed)


def tier(size: int) -> int:
    """The class of sizes of a delta: those of one tier are merged with each other.

    >>> tier(0), tier(1), tier(FANOUT - 1), tier(FANOUT), tier(FANOUT**2)
    (0, 0, 0, 1, 2)
    """
    return int(math.log(max(size, 1) + 0.5, FANOUT))


class Link(NamedTuple):
    """A manifest in the chain of a later one: its number, and the delta that it has."""

    number: int
    delta: Delta


class Output:
    """What the newest manifest says: its head, and the files. It is brought forward by each commit of the one who holds it.

    number: of the manifest; 0: one of an earlier version; -1: nobody has committed, or begun to. digest: of its text.
    """

    def __init__(self, number: int, head: Head, links: Sequence[Link], digest: str) -> None:
        self.number, self.head, self.digest = number, head, digest
        self.links = list(links)
        self.files: dict[str, CommittedFile] = {}
        self.rows = 0
        self.shown_ms = 0
        """The latest time of a file in Spark's log."""
        for link in links:
            self._apply(link.delta)

    def _apply(self, delta: Delta) -> None:
        for name in delta.removed:
            gone = self.files.pop(name, None)
            self.rows -= gone.rows if gone is not None else 0
        for name, file in delta.added.items():
            before = self.files.get(name)
            self.rows += file.rows - (before.rows if before is not None else 0)
            self.files[name] = file
            self.shown_ms = max(self.shown_ms, file.shown_ms)

    def merged(self, delta: Delta) -> tuple[list[Link], Delta]:
        """The chain and the delta of the next manifest, of which a commit has changed this."""
        links = list(self.links)
        if links and links[-1].number == 0:
            return [], self._alone([links[-1].delta, delta])
        while True:
            level = tier(delta.size)
            same = 0
            while same < len(links) and tier(links[-1 - same].delta.size) <= level:
                same += 1
            if same < FANOUT - 1:
                return links, self._alone([delta]) if not links else delta
            for link in reversed(links[len(links) - same :]):
                delta = link.delta.then(delta)
            del links[len(links) - same :]

    @staticmethod
    def _alone(deltas: Sequence[Delta]) -> Delta:
        """Deltas before which there is nothing that could be removed."""
        whole = Delta({}, frozenset())
        for delta in deltas:
            whole = whole.then(delta)
        return Delta(whole.added, frozenset())

    def advance(self, number: int, head: Head, change: Delta, links: list[Link], merged: Delta, digest: str) -> None:
        """A manifest with this content was created."""
        self.number, self.head, self.digest = number, head, digest
        self.links = [*links, Link(number, merged)]
        self._apply(change)


class OutputLog:
    """The manifests of one output. ``port``: of its directory."""

    def __init__(self, port: Port) -> None:
        self._port = port

    # -- reading -------------------------------------------------------------------------------------
    def numbers(self) -> list[int]:
        """Of the manifests that are there, ascending."""
        found = (_NAME.fullmatch(entry.name.rpartition("/")[2]) for entry in self._port.entries(MANIFESTS) if entry.is_file)
        return sorted(int(match[1]) for match in found if match is not None)

    def read(self) -> Output | None:
        """What the newest manifest says; None where there is none, or only a marker of another program. ConfigError when one cannot be
        understood."""
        for _ in range(READS_MAX):
            numbers = self.numbers()
            if not numbers:
                return self._read_old()
            try:
                return self._read(numbers[-1])
            except FileNotFoundError:
                continue  # merged into a newer one meanwhile
        raise ConfigError(f"{self._port.path(MANIFESTS)!r}: manifests disappear as they are read; does another program delete them?")

    def _read(self, number: int) -> Output:
        text, plain = self._load(number)
        where = self._port.path(manifest_name(number))
        try:
            head = Head.from_json(plain)
            links = [Link(one, _delta(self._load(one)[1])) for one in plain["chain"]]
            return Output(number, head, [*links, Link(number, _delta(plain))], hashlib.sha256(text).hexdigest())
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise ConfigError(f"{where!r} is not a manifest: {type(error).__name__}: {error}") from error

    def _load(self, number: int) -> tuple[bytes, dict[str, Any]]:
        text = self._port.read(manifest_name(number))
        try:
            plain = json.loads(text)
            if plain["format"] != FORMAT or plain["number"] != number:
                raise ValueError(
                    f"it has format {plain['format']!r} and number {plain['number']}, expected are {FORMAT!r} and the number of its name"
                )
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self._port.path(manifest_name(number))!r} is not a manifest: {error}") from error
        return text, plain

    def _read_old(self) -> Output | None:
        """What an earlier version has left: a manifest in the marker."""
        if self._port.file(MARKER) is None:
            return None
        text = self._port.read(MARKER)
        if not text or text == _MARK:
            return None  # Spark and Hadoop write an empty marker
        try:
            plain = json.loads(text)
            if not isinstance(plain, dict) or "files" not in plain:
                return None
            if plain.get("format") not in OLD_FORMATS:
                raise ValueError(f"its format is {plain.get('format')!r}, this version of Rayad knows {', '.join(OLD_FORMATS)}")
            files = [CommittedFile(**{"job": plain["job"], "snapshot": 0, **entry}) for entry in plain["files"]]
            link = Link(0, Delta({file.name: file for file in files}, frozenset()))
            return Output(0, Head.from_json(plain), [link], hashlib.sha256(text).hexdigest())
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise ConfigError(
                f"{self._port.path(MARKER)!r} is not a manifest: {error}; remove it if the directory may be written to"
            ) from error

    # -- writing -------------------------------------------------------------------------------------
    def is_newest(self, output: Output) -> bool:
        """Whether nobody has committed since this was read or written."""
        numbers = self.numbers()
        return bool(numbers) and numbers[-1] == output.number

    def append(self, before: Output | None, head: Head, change: Delta) -> Output | None:
        """Create the manifest after ``before``, with this head and what has changed; gives ``before``, brought forward to it.

        None when others were first: then nothing has happened, and who wants to commit has to read again. Manifests that the new one
        replaces are deleted.
        """
        output = before if before is not None else Output(0, head, [], "")
        number = output.number + 1
        links, merged = output.merged(change)
        plain = {
            "format": FORMAT,
            "number": number,
            "id": uuid.uuid4().hex,  # no two creations have one content
            "chain": [link.number for link in links],
            **head.as_json(),
            "rows": output.rows
            + sum(file.rows for file in change.added.values())
            - sum(output.files[name].rows for name in change.removed if name in output.files),
            "added": [file.as_json() for file in merged.added.values()],
            "removed": sorted(merged.removed),
        }
        text = json.dumps(plain).encode()
        if number == 1:
            self._port.make_folder(MANIFESTS)
        if not self._port.create(manifest_name(number), text):
            return None
        numbers = self.numbers()
        if not numbers or numbers[-1] > number:
            return None  # the number was free again: others have long gone on
        output.advance(number, head, change, links, merged, hashlib.sha256(text).hexdigest())
        stay = {link.number for link in output.links}
        for one in numbers:
            if one not in stay:
                self._port.delete(manifest_name(one))
        return output

    def mark(self) -> None:
        """Say in the marker that the directory is an output, where it does not say so."""
        if self._port.file(MARKER) is None or self._port.read(MARKER) != _MARK:
            self._port.replace(MARKER, _MARK, through=f"{MANIFESTS}/marker-{uuid.uuid4().hex}")


def manifest_name(number: int) -> str:
    """The name of a manifest below its output.

    >>> manifest_name(12)
    '_manifests/000000000012.json'
    """
    return f"{MANIFESTS}/{number:012d}.json"


def _delta(plain: Mapping[str, Any]) -> Delta:
    added = (CommittedFile(**entry) for entry in plain["added"])
    return Delta({file.name: file for file in added}, frozenset(plain["removed"]))


__all__ = [
    "MANIFESTS",
    "MARKER",
    "CommittedFile",
    "Delta",
    "Head",
    "Output",
    "OutputLog",
    "SparkLog",
    "manifest_name",
    "tier",
]
