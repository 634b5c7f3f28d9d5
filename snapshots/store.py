"""Where snapshots are kept: parts with checksums, and a JSON manifest whose appearance makes the snapshot.

Layout below a folder of any of pyarrow's file systems (local, S3, HDFS, GCS)::

    <number, 12 digits>/<vertex>-<replica>-<attempt>.part      pickled by the replica; never read before its checksum holds
    <number, 12 digits>/manifest.json                          written last, in one step

The digest of a part is SHA-256, or HMAC-SHA-256 when the store has a secret; the manifest carries one over itself. A part may be named by
later manifests (incremental snapshots): it is deleted only when no manifest that is kept names it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from pyarrow import fs

from rayad.progress import SnapshotError, say

FORMAT = 1
"""Of manifests and parts; a store refuses others."""
MANIFEST = "manifest.json"
_NUMBER = re.compile(r"\d{12}")
_CHUNK_BYTES = 1 << 20


class StoreAwayError(SnapshotError):
    """The store cannot be listed or read at the moment; nothing is known to be damaged."""


class PartFile(NamedTuple):
    """A file of a part: path below the store's folder, length, digest in hex."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class ReplicaPart:
    """What one replica gave.

    Args:
        vertex, replica: whose it is.
        files: the vertex's state, a full file and then the increments on it, oldest first; none for a replica without state.
        rest: everything else: notifications, positions, records in flight.
    """

    vertex: str
    replica: int
    files: tuple[PartFile, ...]
    rest: PartFile | None = None


@dataclass(frozen=True, slots=True)
class StagedPart:
    """What one replica has staged for a sink: to be published with the snapshot, or at the end.

    ``count``: how many staged values are merged in the file, in order; ``vertex`` and ``replica`` are those of the first.
    """

    sink: str
    vertex: str
    replica: int
    file: PartFile
    count: int = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """One complete snapshot. Plain JSON: names, numbers, digests, nothing that is executed.

    Args:
        number: of the snapshot; they only grow.
        job: the job's name.
        graph: fingerprint of each vertex by name, see ``resume_point.Graph``.
        key_groups: into how many groups keys hash.
        parts: of all replicas.
        staged: what sinks publish because of this snapshot; for sinks that publish once, at the end, all since the beginning.
        kind: "start" (a run began here, with nothing), "resume" (a run began here with an older snapshot's parts), "snapshot",
            "savepoint" or "final" (the job was complete).
        incarnation: of the run's actors when it was taken.
        run: tells the runs of one job apart.
        notes: what the coordinator records (failures so far, time taken).
    """

    number: int
    job: str
    graph: dict[str, Any]
    key_groups: int
    parts: tuple[ReplicaPart, ...]
    staged: tuple[StagedPart, ...] = ()
    kind: str = "snapshot"
    incarnation: int = 1
    run: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @staticmethod
    def from_json(plain: dict[str, Any]) -> Manifest:
        """What :meth:`to_json` gave, after JSON. Raises SnapshotError for another format or a missing field."""
        found = plain.get("format")
        if found != FORMAT:
            raise SnapshotError(f"its manifest has format {found!r}, this version of Rayad reads format {FORMAT}")
        try:
            parts = tuple(
                ReplicaPart(
                    entry["vertex"],
                    int(entry["replica"]),
                    tuple(PartFile(*file) for file in entry["files"]),
                    PartFile(*entry["rest"]) if entry["rest"] is not None else None,
                )
                for entry in plain["parts"]
            )
            staged = tuple(
                StagedPart(entry["sink"], entry["vertex"], int(entry["replica"]), PartFile(*entry["file"]), int(entry.get("count", 1)))
                for entry in plain["staged"]
            )
            return Manifest(**{**plain, "parts": parts, "staged": staged})
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotError(f"its manifest lacks a field or has one too many: {type(error).__name__}: {say(error)}") from error

    def files(self) -> set[PartFile]:
        """All files that it names."""
        files = {file for part in self.parts for file in part.files}
        files.update(part.rest for part in self.parts if part.rest is not None)
        files.update(staged.file for staged in self.staged)
        return files


class SnapshotStore:
    """Snapshots of one job in a folder.

    Args:
        folder: a path, or a URI that pyarrow knows (``s3://bucket/jobs/wordcount``).
        filesystem: with a path on it instead.
        secret: makes digests HMACs: then nobody without it can make a part that is unpickled.
    """

    def __init__(self, folder: str, *, filesystem: fs.FileSystem | None = None, secret: bytes | None = None) -> None:
        if filesystem is None and "://" in folder:
            try:
                filesystem, folder = fs.FileSystem.from_uri(folder)
            except (OSError, ValueError) as error:
                raise SnapshotError(
                    f"cannot open the snapshot store {folder!r}: {error}; give a local path or a URI that pyarrow knows"
                ) from error
        if filesystem is None:
            filesystem, folder = fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(folder))
        self.filesystem = filesystem
        self.folder = folder.rstrip("/")
        self._secret = secret
        self._is_local = isinstance(filesystem, fs.LocalFileSystem)

    # -- parts ---------------------------------------------------------------------------------------
    def write_part(self, number: int, vertex: str, replica: int, chunks: Iterable[bytes | memoryview], *, attempt: str = "0") -> PartFile:
        """Write one file of a replica's part and sync it. Raises SnapshotError when the store does not take it."""
        name = f"{number:012d}/{_safe(vertex)}-{replica}-{attempt}.part"
        digest, size = self._digest(), 0
        try:
            self.filesystem.create_dir(f"{self.folder}/{number:012d}", recursive=True)
            with self.filesystem.open_output_stream(f"{self.folder}/{name}", compression=None) as stream:
                for chunk in chunks:
                    stream.write(chunk)
                    digest.update(chunk)
                    size += chunk.nbytes if isinstance(chunk, memoryview) else len(chunk)
            self._sync(name)
        except OSError as error:
            raise SnapshotError(f"cannot write part {name} of snapshot {number} to {self.folder!r}: {error}") from error
        return PartFile(name, size, digest.hexdigest())

    def read_part(self, file: PartFile) -> bytes:
        """The content, after its length and digest have been checked. Raises SnapshotError naming the file otherwise."""
        try:
            with self.filesystem.open_input_stream(f"{self.folder}/{file.path}", compression=None) as stream:
                data: bytes = stream.read()
        except OSError as error:
            raise SnapshotError(f"part {file.path} in {self.folder!r} cannot be read: {error}", path=file.path) from error
        if len(data) != file.size:
            raise SnapshotError(f"part {file.path} in {self.folder!r} has {len(data)} bytes, its manifest says {file.size}", path=file.path)
        digest = self._digest()
        digest.update(data)
        if not hmac.compare_digest(digest.hexdigest(), file.digest):
            raise SnapshotError(
                f"part {file.path} in {self.folder!r} is not what was written: its digest differs from the manifest's", path=file.path
            )
        return data

    def check_part(self, file: PartFile) -> None:
        """As :meth:`read_part`, a piece at a time and without giving the content."""
        digest, size = self._digest(), 0
        try:
            with self.filesystem.open_input_stream(f"{self.folder}/{file.path}", compression=None) as stream:
                while piece := stream.read(_CHUNK_BYTES):
                    digest.update(piece)
                    size += len(piece)
        except OSError as error:
            raise SnapshotError(f"part {file.path} in {self.folder!r} cannot be read: {error}", path=file.path) from error
        if size != file.size or not hmac.compare_digest(digest.hexdigest(), file.digest):
            raise SnapshotError(
                f"part {file.path} in {self.folder!r} is not what was written: {size} bytes of {file.size}, or another digest",
                path=file.path,
            )

    # -- manifests -----------------------------------------------------------------------------------
    def publish(self, manifest: Manifest) -> None:
        """Make a snapshot of its parts, in one step.

        Raises SnapshotError when there is one of that number or a newer one, or when it cannot be written. Newer ones count because
        the manifest that took the number may have been deleted since; the check is repeated afterwards, since this process may have paused.
        """
        name = f"{manifest.number:012d}/{MANIFEST}"
        path = f"{self.folder}/{name}"
        self._refuse_unless_newest(manifest.number, manifest.number)
        body = json.dumps(manifest.to_json(), sort_keys=True)
        data = json.dumps({"manifest": body, "digest": self._digest_of(body.encode())}).encode()
        try:
            self.filesystem.create_dir(f"{self.folder}/{manifest.number:012d}", recursive=True)
            # Object stores show an object when it is whole; elsewhere it appears by its renaming.
            target = f"{path}.writing" if self._is_local else path
            with self.filesystem.open_output_stream(target, compression=None) as stream:
                stream.write(data)
            if self._is_local:
                self._sync(f"{name}.writing")
                os.link(target, path)  # unlike a renaming it fails when somebody else was first
                os.unlink(target)
                self._sync_folder(os.path.dirname(path))
                self._sync_folder(self.folder)
        except FileExistsError:
            raise SnapshotError(
                f"snapshot {manifest.number} is there already in {self.folder!r}: two coordinators, or a number used twice"
            ) from None
        except OSError as error:
            raise SnapshotError(f"cannot publish snapshot {manifest.number} in {self.folder!r}: {error}") from error
        try:
            self._refuse_unless_newest(manifest.number, manifest.number + 1)
        except SnapshotError as refused:
            try:
                self.filesystem.delete_file(path)
            except OSError as error:
                raise SnapshotError(f"{refused}; snapshot {manifest.number} may be there all the same: {error}") from error
            raise

    def _refuse_unless_newest(self, number: int, at_least: int) -> None:
        numbers = self.numbers()
        if numbers and numbers[-1] >= at_least:
            what = "is there already" if number in numbers else f"comes after snapshot {numbers[-1]}, which is there"
            raise SnapshotError(f"snapshot {number} {what} in {self.folder!r}: two coordinators, or a number used twice")

    def numbers(self) -> list[int]:
        """The snapshots that have been published, ascending. Raises StoreAwayError when the folder cannot be listed."""
        try:
            infos = self.filesystem.get_file_info(fs.FileSelector(self.folder, allow_not_found=True))
            names = sorted(info.base_name for info in infos if info.type == fs.FileType.Directory and _NUMBER.fullmatch(info.base_name))
            paths = [f"{self.folder}/{name}/{MANIFEST}" for name in names]
            found = self.filesystem.get_file_info(paths) if paths else []
        except OSError as error:
            raise StoreAwayError(f"the snapshots in {self.folder!r} cannot be listed: {error}") from error
        return [int(name) for name, info in zip(names, found, strict=True) if info.type == fs.FileType.File]

    def load(self, number: int) -> Manifest:
        """A published snapshot's manifest. Raises SnapshotError, naming it, when it is missing or not as it was written."""
        name = f"{number:012d}/{MANIFEST}"
        try:
            with self.filesystem.open_input_stream(f"{self.folder}/{name}", compression=None) as stream:
                outer = json.loads(stream.read())
            body = outer["manifest"]
            digest = outer["digest"]
        except OSError as error:
            raise StoreAwayError(f"{name} in {self.folder!r} cannot be read: {type(error).__name__}: {say(error)}", path=name) from error
        except (ValueError, KeyError, TypeError) as error:
            raise SnapshotError(f"{name} in {self.folder!r} cannot be read: {type(error).__name__}: {say(error)}", path=name) from error
        if not isinstance(body, str) or not isinstance(digest, str) or not hmac.compare_digest(self._digest_of(body.encode()), digest):
            raise SnapshotError(f"{name} in {self.folder!r} is not what was written, or was written with another secret", path=name)
        try:
            manifest = Manifest.from_json(json.loads(body))
        except SnapshotError as error:
            raise SnapshotError(f"snapshot {number} in {self.folder!r}: {error}", path=name) from error
        if manifest.number != number:
            raise SnapshotError(f"{name} in {self.folder!r} is the manifest of snapshot {manifest.number}: files were moved", path=name)
        return manifest

    def newest_first(self) -> Iterator[tuple[int, Manifest | None, str]]:
        """Each snapshot's number, its manifest where that can be read, and why the snapshot cannot be used; "" when all of it is whole.

        A run that resumes from an older snapshot makes those in between void: what they committed was rolled back. Each later
        manifest lists them (``notes["void"]``).
        """
        void: dict[int, int] = {}
        for number in reversed(self.numbers()):
            if number in void:
                yield number, None, f"snapshot {void[number]} says that snapshot {number} is void"
                continue
            manifest = None
            try:
                manifest = self.load(number)
                void.update(dict.fromkeys(manifest.notes.get("void", ()), number))
                for file in sorted(manifest.files()):
                    self.check_part(file)
            except SnapshotError as error:
                yield number, manifest, str(error)
                continue
            yield number, manifest, ""

    def latest(self) -> tuple[Manifest | None, list[str]]:
        """The newest snapshot of which manifest and all parts are as they were written (None: there is none), and why newer ones are not
        used."""
        refused: list[str] = []
        for number, manifest, why in self.newest_first():
            if not why:
                return manifest, refused
            refused.append(f"snapshot {number} is not used: {why}")
        return None, refused

    def retain(self, keep: int, *, also: Sequence[int] = ()) -> list[int]:
        """Delete all but the newest ``keep`` snapshots and those of ``also`` (savepoints), and parts that no kept one names.

        Gives the numbers deleted. The manifest goes first: a crash in between leaves parts behind, never a manifest without them.
        Raises SnapshotError when the store does not do it: then the next time does the rest.
        """
        try:
            return self._retain(keep, also)
        except OSError as error:
            raise SnapshotError(f"old snapshots in {self.folder!r} cannot be deleted: {error}") from error

    def _retain(self, keep: int, also: Sequence[int]) -> list[int]:
        numbers = self.numbers()
        whole: dict[int, Manifest] = {}
        damaged: set[int] = set()  # unusable ones do not count; they stay for somebody who can repair them
        wanted = set(also) & set(numbers)
        for number in reversed(numbers):
            if number not in wanted and len(whole) >= keep:
                continue
            try:
                whole[number] = self.load(number)
            except SnapshotError:
                damaged.add(number)
        named = {file.path for manifest in whole.values() for file in manifest.files()}
        kept = damaged | whole.keys()
        gone = [number for number in numbers if number not in kept]
        for number in gone:
            self.filesystem.delete_file(f"{self.folder}/{number:012d}/{MANIFEST}")
        newest = numbers[-1] if numbers else 0
        infos = self.filesystem.get_file_info(fs.FileSelector(self.folder, allow_not_found=True))
        for info in infos:
            if info.type != fs.FileType.Directory or not _NUMBER.fullmatch(info.base_name) or int(info.base_name) > newest:
                continue  # a newer one may be being written
            if int(info.base_name) in damaged:
                continue
            self._clean(info.base_name, named, int(info.base_name) in kept)
        return gone

    def _clean(self, name: str, named: set[str], is_kept: bool) -> None:
        left = 0
        for info in self.filesystem.get_file_info(fs.FileSelector(f"{self.folder}/{name}", allow_not_found=True)):
            if f"{name}/{info.base_name}" in named or (is_kept and info.base_name == MANIFEST):
                left += 1
            else:
                self.filesystem.delete_file(info.path)
        if not left:
            self.filesystem.delete_dir(f"{self.folder}/{name}")

    # -- small things ----------------------------------------------------------------------------------
    def _digest(self) -> Any:
        return hmac.new(self._secret, digestmod=hashlib.sha256) if self._secret else hashlib.sha256()

    def _digest_of(self, data: bytes) -> str:
        digest = self._digest()
        digest.update(data)
        return str(digest.hexdigest())

    def _sync(self, name: str) -> None:
        if self._is_local:
            with open(f"{self.folder}/{name}", "rb") as file:
                os.fsync(file.fileno())

    def _sync_folder(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def below(folder: str, *names: str) -> str:
    """The path or URI of something in a folder; the query of a URI (``?endpoint_override=...``) stays at its end.

    >>> below("s3://bucket/jobs/?region=eu-west-1", "wordcount", "snapshots"), below("/jobs/", "wordcount")
    ('s3://bucket/jobs/wordcount/snapshots?region=eu-west-1', '/jobs/wordcount')
    """
    path, mark, query = folder.partition("?") if "://" in folder else (folder, "", "")
    return "/".join([path.rstrip("/"), *names]) + mark + query


def _safe(name: str) -> str:
    """A vertex' name as part of a file name; different names stay different."""
    return re.sub(r"[^A-Za-z0-9_]", lambda match: f"%{ord(match[0]):x}", name)


__all__ = ["FORMAT", "Manifest", "PartFile", "ReplicaPart", "SnapshotStore", "StagedPart", "StoreAwayError", "below"]
