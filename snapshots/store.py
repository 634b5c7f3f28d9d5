"""Where snapshots are kept: parts with checksums, and a JSON manifest whose appearance makes the snapshot.

Layout below a folder of a file system of pyarrow's that can create a file if it is absent (local, S3, GCS, Azure)::

    <number, 12 digits>/<vertex>-<replica>-<attempt>.part      pickled by the replica; never read before its checksum holds
    <number, 12 digits>/manifest.json                          written last, in one step

The digest of a part is SHA-256. A manifest carries one of itself, or its signature where the store has a secret (``signing.py``). A part
may be named by later manifests (incremental snapshots): it is deleted only when no manifest that is kept names it.

**Who may publish.** Manifests have consecutive numbers, and each number is taken once. A run begins by taking one, its *claim*; the number
of its claim is its *run number*. From then on an older run that still lives can publish nothing: its next number is taken, or there is a
higher one. Numbers are free again when retention has deleted their manifests. So each manifest carries the run numbers so far
(``notes["claims"]``): what an older run has put under such a number later is *overtaken*, and nobody resumes from it.

**What may be deleted.** A run deletes only snapshots that one of its own manifests has retired: each says which older ones are kept
(``notes["kept"]``). So a run that has been superseded, and does not know it, deletes nothing from which its successor resumes: that one
has seen the manifest. Both are design ``docs/design/fence.md``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from pyarrow import fs

from rayad.progress import SnapshotError, arguments, say, without_secrets
from rayad.snapshots.create import check_can_create, local_path
from rayad.snapshots.errors import Damaged, StoreAwayError, Superseded
from rayad.snapshots.manifest import KeeperId, Manifest, PartFile
from rayad.snapshots.part_sink import PartSink, Pieces
from rayad.snapshots.port import Port
from rayad.snapshots.signing import RULE, Kind, Signer
from rayad.snapshots.standing import standing_of

MANIFEST = "manifest.json"
_NUMBER = re.compile(r"\d{12}")


class History(NamedTuple):
    """The run numbers of a job so far, ascending, the latest keeper of which a coordinator has claimed the store (None: none has), and the
    store."""

    claims: list[int]
    keeper: KeeperId | None
    store: str
    """The store's identity: the run that began it; "" where no manifest tells."""


class SnapshotStore:
    """Snapshots of one job in a folder.

    Args:
        folder: a path, or a URI that pyarrow knows (``s3://bucket/jobs/wordcount``).
        filesystem: with a path on it instead.
        secret: signs manifests: then nobody without it can make a part that is unpickled.
        jobs: with a secret, whose manifests are read; (): those of any job, for who looks at a store that he names.
    """

    def __init__(
        self, folder: str, *, filesystem: fs.FileSystem | None = None, secret: bytes | None = None, jobs: Collection[str] = ()
    ) -> None:
        if filesystem is None and "://" in folder:
            try:
                filesystem, folder = fs.FileSystem.from_uri(folder)
            except (OSError, ValueError) as error:
                raise SnapshotError(
                    f"cannot open the snapshot store {folder!r}: {say(error, folder)}; give a local path or a URI that pyarrow knows"
                ) from without_secrets(error, folder)
        if filesystem is None:
            filesystem, folder = fs.LocalFileSystem(), local_path(folder)
        self.filesystem = filesystem
        self.folder = folder.rstrip("/")
        self.port = Port(filesystem, folder, is_private=True)
        self._signer = Signer(None if secret is None else arguments.secret(secret, "the secret of snapshots", error=SnapshotError))
        self._jobs = jobs

    @property
    def is_signed(self) -> bool:
        """Whether there is a secret; then no manifest is loaded that is not signed with it."""
        return self._signer.signs

    # -- parts ---------------------------------------------------------------------------------------
    def write_part(self, number: int, vertex: str, replica: int, pieces: Pieces, *, attempt: str = "0") -> PartFile:
        """Write one file of a replica's part and sync it. Raises SnapshotError when the store does not take it."""
        name = f"{number:012d}/{_safe(vertex)}-{replica}-{attempt}.part"
        try:
            self._make_folder(number)
            with self.port.writing(name) as stream:
                sink = PartSink(stream)
                sink.take(pieces)
        except OSError as error:
            raise SnapshotError(f"cannot write part {name} of snapshot {number} to {self.folder!r}: {error}") from error
        return PartFile(name, sink.size, sink.digest)

    def check(self) -> None:
        """Raise ConfigError when snapshots cannot be fenced on this file system."""
        check_can_create(self.filesystem, f"the snapshot store {self.folder!r}")

    def prepare(self) -> list[str]:
        """Make the folder of the store; gives what was made, for :meth:`abandon`.

        Only the first coordinator of a job does: a folder that has gone away must not come back empty.
        """
        self.check()
        try:
            return self.port.make_root()
        except OSError as error:
            raise SnapshotError(f"cannot make the snapshot store {self.folder!r}: {error}") from error

    def abandon(self, made: Iterable[str]) -> None:
        """The job does not begin: delete the folders that :meth:`prepare` has made, where nothing is in them."""
        self.port.delete_root(made)

    def is_there(self) -> bool:
        """Whether the folder of the store is there, whatever is in it. Raises StoreAwayError when that cannot be told."""
        try:
            return self.port.has_root()
        except OSError as error:
            raise StoreAwayError(f"it cannot be told whether {self.folder!r} is there: {error}") from error

    def _make_folder(self, number: int) -> None:
        """Of a snapshot; the store's own folder has to be there."""
        self.port.make_folder(f"{number:012d}", parents=False)

    def read_part(self, file: PartFile) -> bytes:
        """The content, after its length and digest have been checked. Raises Damaged where it is missing or not what was written,
        StoreAwayError where that cannot be known."""
        try:
            data = self.port.read(file.path)
        except OSError as error:
            raise self._unread(file, error) from error
        self._check(file, data)
        return data

    def map_part(self, file: PartFile) -> memoryview:
        """As :meth:`read_part`, mapped where the store is on a disk of this machine: then the system can have the memory back."""
        if not self.port.is_on_disk:
            return memoryview(self.read_part(file))
        data = self.map_named(file)
        self._check(file, data)
        return data

    @property
    def is_shared_by_name(self) -> bool:
        """Whether a name is enough for a replica to use a file: the store is on a disk of this machine, and not signed."""
        return self.port.is_on_disk and not self.is_signed

    def map_named(self, file: PartFile) -> memoryview:
        """A file that a replica of this machine has written or verified: its digest is not looked at, since who uses some of it reads no
        more. Raises Damaged where it is not there with its length."""
        try:
            data = self.port.mapped(file.path)
        except OSError as error:
            raise self._unread(file, error) from error
        if data is None:
            return memoryview(self.read_part(file))
        self._check_size(file, len(data))
        return data

    def _check(self, file: PartFile, data: bytes | memoryview) -> None:
        self._check_size(file, len(data))
        if not hmac.compare_digest(hashlib.sha256(data).hexdigest(), file.digest):
            raise Damaged(
                f"part {file.path} in {self.folder!r} is not what was written: its digest differs from the manifest's", path=file.path
            )

    def check_part(self, file: PartFile) -> None:
        """As :meth:`read_part`, a piece at a time and without giving the content."""
        digest, size = hashlib.sha256(), 0
        try:
            for piece in self.port.pieces(file.path):
                digest.update(piece)
                size += len(piece)
        except OSError as error:
            raise self._unread(file, error) from error
        if size != file.size or not hmac.compare_digest(digest.hexdigest(), file.digest):
            raise Damaged(
                f"part {file.path} in {self.folder!r} is not what was written: {size} bytes of {file.size}, or another digest",
                path=file.path,
            )

    def check_all(self, manifest: Manifest) -> None:
        """Read all files that a manifest names. Raises as :meth:`check_part`."""
        for file in sorted(manifest.files()):
            self.check_part(file)

    def check_listed(self, manifest: Manifest, suspected: Collection[str] = ()) -> None:
        """Look whether all files that a manifest names are there, with their lengths. Whoever uses one reads and verifies it. Raises as
        :meth:`check_part`.

        Read here is what sinks have staged, which goes to them before anything else is known to be whole, and what is ``suspected``:
        paths of files that somebody could not read.
        """
        files = sorted(manifest.files())
        try:
            there = self.port.files(file.path for file in files)
        except OSError as error:
            raise StoreAwayError(f"the files of snapshot {manifest.number} in {self.folder!r} cannot be listed: {error}") from error
        for file, entry in zip(files, there, strict=True):
            if entry is None:
                raise self._unread(file, FileNotFoundError("there is no such file"))
            self._check_size(file, entry.size)
        staged = {one.file for one in manifest.staged}
        for file in files:
            if file in staged or file.path in suspected:
                self.check_part(file)

    def _check_size(self, file: PartFile, size: int) -> None:
        if size != file.size:
            raise Damaged(f"part {file.path} in {self.folder!r} has {size} bytes, its manifest says {file.size}", path=file.path)

    def _unread(self, file: PartFile, error: OSError) -> SnapshotError:
        """A part that is missing where manifests are is lost. What else prevents reading may pass, and then the part is as it was."""
        is_lost = isinstance(error, FileNotFoundError) and self.numbers()
        kind = Damaged if is_lost else StoreAwayError
        return kind(f"part {file.path} in {self.folder!r} cannot be read: {error}", path=file.path)

    # -- manifests -----------------------------------------------------------------------------------
    def publish(self, manifest: Manifest, *, after: int) -> None:
        """Make a snapshot of its parts, in one step. ``after``: the newest snapshot that its run knows, 0: none.

        Raises StoreAwayError when that one is not there, or is of another run: the folder has gone away, or is another one; then nothing is
        published, since what the manifest builds on is not there. Where somebody has deleted it, and the one before it is there, a snapshot
        that builds on nothing is published. Raises SnapshotError when there is a newer one than the run knows, or, after the creation, one
        that is newer than the manifest: then the run is over, and its manifest stays where it is (who has published the newer one knows
        whether it counts). Or when it cannot be written.
        """
        number = manifest.number
        if after and manifest.claims and manifest.claims[-1] != number:
            after = self._newest_of_run(manifest, after)
        self._refuse_unless_newest(number, after, number)
        body = json.dumps(manifest.to_json(), sort_keys=True)
        name = f"{number:012d}/{MANIFEST}"
        mark = self._signer.sign(Kind.MANIFEST, manifest.job, name, [body.encode()]).hex()
        marks = {"signature": mark, "rule": RULE} if self._signer.signs else {"digest": mark}
        try:
            self._make_folder(number)
            is_ours = self.port.create(name, json.dumps({"manifest": body, **marks}).encode())
            self.port.sync()
        except OSError as error:
            raise SnapshotError(f"cannot publish snapshot {number} in {self.folder!r}: {error}") from error
        if not is_ours:
            raise SnapshotError(f"snapshot {number} is there already in {self.folder!r}: two coordinators, or a number used twice")
        self._refuse_unless_newest(number, after, number + 1)

    def _refuse_unless_newest(self, number: int, after: int, at_least: int) -> None:
        numbers = self.numbers()
        if numbers and numbers[-1] >= at_least:
            what = "is there already" if number in numbers else f"comes after snapshot {numbers[-1]}, which is there"
            raise SnapshotError(f"snapshot {number} {what} in {self.folder!r}: two coordinators, or a number used twice")
        if after and after not in numbers:
            raise StoreAwayError(
                f"snapshot {after}, the newest, is not in {self.folder!r} any more: the folder has gone away, is another one, or was "
                "emptied; nothing is published there until it is back"
            )

    def _newest_of_run(self, manifest: Manifest, after: int) -> int:
        """The newest snapshot of its run that is there: ``after``, or the one before it, where that was deleted and is not built on.

        The snapshots of a run are behind each other: raises StoreAwayError where the one before this is of another run.
        """
        try:
            if self.port.file(f"{after:012d}/{MANIFEST}") is None:
                numbers = self.numbers()
                is_whole = None not in self.port.files(file.path for file in manifest.files())
                if not is_whole or not numbers or numbers[-1] > after:
                    return after  # which is refused
                after = numbers[-1]
            found = self.load(after)
        except OSError as error:
            raise StoreAwayError(f"what is in {self.folder!r} cannot be told: {error}") from error
        except StoreAwayError:
            raise
        except SnapshotError:
            return after  # it is damaged, which a recovery tells
        if found.run != manifest.run:
            raise StoreAwayError(
                f"snapshot {after} in {self.folder!r} is of run {found.run!r}, and the newest was of this one, {manifest.run!r}: the "
                "folder is another one; nothing is published there until its own is back"
            )
        return after

    def numbers(self) -> list[int]:
        """The snapshots that have been published, ascending. Raises StoreAwayError when the folder cannot be listed."""
        try:
            names = [entry.name for entry in self.port.entries() if not entry.is_file and _NUMBER.fullmatch(entry.name)]
            found = self.port.files(f"{name}/{MANIFEST}" for name in names)
        except OSError as error:
            raise StoreAwayError(f"the snapshots in {self.folder!r} cannot be listed: {error}") from error
        return [int(name) for name, file in zip(names, found, strict=True) if file is not None]

    def history(self) -> History:
        """What all manifests that can be read know of earlier runs. What one knew that is damaged, those beside it know, too."""
        there: list[Manifest] = []
        for number in self.numbers():
            try:
                there.append(self.load(number))
            except StoreAwayError:
                raise
            except SnapshotError:
                continue
        claims = sorted({claim for manifest in there for claim in manifest.claims})
        while len(claims) > 1 and claims[1] <= there[0].number:
            del claims[0]  # it concerns no snapshot that is there
        keeper = max((one.keeper for one in there if one.keeper is not None), default=None)
        return History(claims, keeper, self._identity(there))

    def _identity(self, there: Sequence[Manifest]) -> str:
        """Raises SnapshotError where signed manifests are of several stores."""
        found: dict[str, list[int]] = {}
        for manifest in there:
            found.setdefault(manifest.store, []).append(manifest.number)
        if self._signer.signs and len(found) > 1:
            told = "; ".join(f"{numbers} of store {store!r}" for store, numbers in found.items())
            raise SnapshotError(
                f"{self.folder!r} has snapshots of several stores, each signed: {told}. Somebody has put files of another store here; "
                "move those away that are not of this one"
            )
        return there[-1].store if there else ""

    def load(self, number: int) -> Manifest:
        """A published snapshot's manifest. Raises SnapshotError, naming it, when it is missing or not as it was written."""
        name = f"{number:012d}/{MANIFEST}"
        try:
            outer = json.loads(self.port.read(name))
            body = outer["manifest"]
            is_signed = "signature" in outer
            mark = bytes.fromhex(outer["signature" if is_signed else "digest"])
            text, rule = body.encode(), outer.get("rule", RULE)
        except OSError as error:
            raise StoreAwayError(f"{name} in {self.folder!r} cannot be read: {type(error).__name__}: {say(error)}", path=name) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SnapshotError(f"{name} in {self.folder!r} cannot be read: {type(error).__name__}: {say(error)}", path=name) from error
        if rule != RULE:
            raise SnapshotError(
                f"{name} in {self.folder!r} is signed by rule {rule!r}, and this version of Rayad knows rule {RULE}: use the version that "
                "wrote it",
                path=name,
            )
        if is_signed != self._signer.signs or not self._signer.is_of(mark, Kind.MANIFEST, _job_in(body), name, [text]):
            why = self._signer.why_not(mark, [text], is_signed=is_signed)
            raise SnapshotError(f"{name} in {self.folder!r} {why}", path=name)
        try:
            manifest = Manifest.from_json(json.loads(body))
        except SnapshotError as error:
            raise SnapshotError(f"snapshot {number} in {self.folder!r}: {error}", path=name) from error
        if manifest.number != number:
            raise SnapshotError(f"{name} in {self.folder!r} is the manifest of snapshot {manifest.number}: files were moved", path=name)
        if self._signer.signs and self._jobs and manifest.job not in self._jobs:
            raise SnapshotError(
                f"{name} in {self.folder!r} is signed for job {manifest.job!r}, and read for {' or '.join(map(repr, self._jobs))}: the "
                "store of one job lies in the place of another's. If it was copied, or the job renamed, on purpose: "
                f"SnapshotConfig(secret=..., signed_for={manifest.job!r})",
                path=name,
            )
        return manifest

    def newest_first(
        self, numbers: Sequence[int] | None = None, check: Callable[[Manifest], None] | None = None
    ) -> Iterator[tuple[int, Manifest | None, str]]:
        """Each snapshot's number, its manifest where that can be read, and why the snapshot cannot be used; "" where it can.

        Args:
            numbers: as they have been listed; by default they are listed now.
            check: looks at the files of a snapshot; by default :meth:`check_all`, which reads them, as behind one that cannot be used:
                that one may be the record of why this one was passed over before.

        Raises StoreAwayError where one cannot be read at the moment: a snapshot that is passed over is void, so what may be whole is not
        passed over.
        """
        look = self.check_all if check is None else check
        for number, manifest, why, _ in standing_of(self.numbers() if numbers is None else numbers, self.load):
            try:
                if manifest is not None and not why:
                    look(manifest)
            except StoreAwayError:
                raise
            except SnapshotError as error:
                why = str(error)
            if why:
                look = self.check_all
            yield number, manifest, why

    def why_not(self, number: int, numbers: Sequence[int]) -> str:
        """Why a snapshot cannot be resumed from although it is there; "" where it can, as far as manifests tell."""
        standing = standing_of([one for one in numbers if one >= number], self.load)
        return next((one.why for one in standing if one.number == number), "it is not there")

    def latest(
        self, numbers: Sequence[int] | None = None, check: Callable[[Manifest], None] | None = None
    ) -> tuple[Manifest | None, list[str]]:
        """The newest snapshot that can be used (None: there is none), and why newer ones are not. The arguments are those of
        :meth:`newest_first`."""
        refused: list[str] = []
        for number, manifest, why in self.newest_first(numbers, check):
            if not why:
                return manifest, refused
            refused.append(f"snapshot {number} is not used: {why}")
        return None, refused

    def to_keep(self, number: int, keep: int, savepoints: Collection[int]) -> list[int]:
        """Which snapshots stay beside savepoints when ``number`` is published: the newest ``keep - 1`` before it that may be resumed from.

        So what was retired once stays retired. Others that cannot be read stay, too, for somebody who can repair them; they do not count.
        ``savepoints``: that are known.
        """
        stay, count = list[int](), 1
        older = standing_of([one for one in self.numbers() if one < number], self.load)
        while count < keep and (one := next(older, None)) is not None:
            if one.number in savepoints or (one.manifest is not None and one.manifest.kind == "savepoint"):
                continue
            if one.manifest is not None or one.is_damaged:
                stay.append(one.number)
                count += one.manifest is not None
        return sorted(stay)

    def retain(self, number: int, kept: Collection[int], savepoints: Collection[int] = ()) -> list[int]:
        """Delete the snapshots below ``number`` that its manifest has retired, and parts up to it that no manifest names that stays.

        Savepoints stay; ``savepoints`` are those that are known. Gives the numbers deleted. The manifest goes first: a crash in between
        leaves parts behind, never a manifest without them. What is newer is left alone: it may be being written, or is of a run that has
        superseded this one. Raises SnapshotError when the store does not do it: then the next time does the rest.
        """
        try:
            return self._retain(number, {*kept, *savepoints, number})
        except OSError as error:
            raise SnapshotError(f"old snapshots in {self.folder!r} cannot be deleted: {error}") from error

    def _retain(self, number: int, stay: set[int]) -> list[int]:
        numbers = [one for one in self.numbers() if one <= number]
        if number not in numbers:
            raise StoreAwayError(f"snapshot {number} is not in {self.folder!r} any more: nothing is deleted there until it is back")
        named: set[str] = set()
        damaged: set[int] = set()
        gone: list[int] = []
        for one in numbers:
            try:
                manifest = self.load(one)
            except StoreAwayError:
                raise
            except SnapshotError:
                damaged.add(one)
                continue
            if one in stay or manifest.kind == "savepoint":
                named.update(file.path for file in manifest.files())
            else:
                gone.append(one)
        gone += sorted(damaged - stay)
        damaged &= stay
        there = set(numbers) - set(gone)
        for one in gone:
            self.port.delete(f"{one:012d}/{MANIFEST}")
        for entry in self.port.entries():
            is_older = not entry.is_file and _NUMBER.fullmatch(entry.name) and int(entry.name) <= number
            if is_older and int(entry.name) not in damaged:
                self._clean(entry.name, named, int(entry.name) in there)
        return sorted(gone)

    def _clean(self, name: str, named: set[str], is_kept: bool) -> None:
        left = 0
        for entry in self.port.entries(name):
            if entry.name in named or (is_kept and entry.name == f"{name}/{MANIFEST}"):
                left += 1
            else:
                self.port.delete(entry.name)
        if not left and not is_kept:
            self.port.delete_empty(name)


def below(folder: str, *names: str) -> str:
    """The path or URI of something in a folder; the query of a URI (``?endpoint_override=...``) stays at its end.

    >>> below("s3://bucket/jobs/?region=eu-west-1", "wordcount", "snapshots"), below("/jobs/", "wordcount")
    ('s3://bucket/jobs/wordcount/snapshots?region=eu-west-1', '/jobs/wordcount')
    """
    path, mark, query = folder.partition("?") if "://" in folder else (folder, "", "")
    return "/".join([path.rstrip("/"), *names]) + mark + query


def _job_in(body: str) -> str:
    """The job that a manifest says it is of, before it is known to be true; "" where it says nothing."""
    try:
        job = json.loads(body)["job"]
    except (ValueError, KeyError, TypeError):
        return ""
    return job if isinstance(job, str) else ""


def _safe(name: str) -> str:
    """A vertex' name as part of a file name; different names stay different."""
    return re.sub(r"[^A-Za-z0-9_]", lambda match: f"%{ord(match[0]):x}", name)


__all__ = ["MANIFEST", "Damaged", "History", "SnapshotStore", "StoreAwayError", "Superseded", "below"]
