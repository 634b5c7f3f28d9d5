"""What the keeper of a detached job must know again after its process has died: a record of the job, and what was sent to live inputs.

Below the job's folder, on any file system that a store may be on::

    keeper-<number>-<token>/record-<n>                           what has been asked of the job
    keeper-<number>-<token>/outcome-<life>                       how it ended, with results, pickled; read once its digest holds
    keeper-<number>-<token>/inputs/<input>/<frame>-<life>        a frame that was sent to a live input, numbered as in `InputLog`
    keeper-<number>-<token>/inputs/<input>/from-<life>           which frames this life has found

Each file appears whole, with a checksum before its content, or its signature where the job has a secret (``snapshots/signing.py``). A
frame is written before its sender is told that it was taken, so it survives the keeper; it is not synced to the disk, so the last ones
may not survive the loss of the machine.

**Two processes of one keeper** may live at once: one on a node that was taken for dead, and the one that Ray has started instead. Records
are numbered, and each number is taken once; the number of its first record is a process' *life*. One whose number is taken, or that finds a
higher record after it has written a frame, is over: it tells the sender nothing, and the frame does not count unless a later life has
found it.

**Two keepers of one job**, on two clusters: a keeper has a number above all that it finds, of keepers and in the newest manifest, and the
manifests of its coordinators have it, too (``notes["keeper"]``). No coordinator claims the store behind one of a later keeper. So when one
of its coordinators has claimed, the earlier keepers can never resume again, and their files are deleted; before that nothing is.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import secrets
import threading
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rayad.actors.store.job_store import open_store
from rayad.dataflow.config import RunConfig
from rayad.progress import SnapshotError
from rayad.snapshots.manifest import KeeperId
from rayad.snapshots.port import Entry, Port
from rayad.snapshots.signing import Kind, Signer
from rayad.snapshots.store import Superseded

_log = logging.getLogger(__name__)
_KEEPER = re.compile(r"keeper-(?:(\d{12})-)?([^/]+)")
_RECORD = re.compile(r"record-(\d{12})")
_OUTCOME = re.compile(r"outcome-(\d{12})")
_FRAME = re.compile(r"(\d{12})-(\d{12})")
_FROM = re.compile(r"from-(\d{12})")
REMEMBER_S = 30.0
"""A frame stays for so long after it was written, also when snapshots hold it: a sender who was not told that it was taken repeats it."""


class Frame(NamedTuple):
    """One frame of a live input."""

    number: int
    """Among all of the input."""
    kind: int
    payload: list[bytes]
    credit: bool
    mark: str
    """Which call of which sender it is, ``sender:number``; "" for what no sender asked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class KeeperRecord:
    """What a keeper knows of its job beside what the store of snapshots does.

    Args:
        starts_s: when each process of the keeper began, by the clock on the wall.
        runs: of the coordinators that it has started.
        is_stopping: whether the job was asked to drain.
        changes: of the configuration, since the job began.
        is_cancelled: whether the job is to end without results, or has.
        is_fetched: whether somebody has its results.
        running_s: when the job first ran in those processes in which it came to run.
    """

    starts_s: tuple[float, ...] = ()
    runs: tuple[str, ...] = ()
    is_stopping: bool = False
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_cancelled: bool = False
    is_fetched: bool = False
    running_s: tuple[float, ...] = ()

    def lives(self) -> list[tuple[float | None, float]]:
        """Of each process before the newest one: when its job ran, None: it never did, and when the next process began.

        >>> KeeperRecord(starts_s=(0.0, 50.0, 60.0), running_s=(4.0,)).lives()
        [(4.0, 50.0), (None, 60.0)]
        """
        spans = zip(self.starts_s, self.starts_s[1:], strict=False)
        return [(next((ran_s for ran_s in self.running_s if began_s <= ran_s < died_s), None), died_s) for began_s, died_s in spans]


class KeeperFiles:
    """The files of one keeper, as one of its processes sees them.

    Args:
        job: the job's name.
        config: of the run; it has a store.
        token: the keeper's.

    Methods raise SnapshotError when the store does not answer, or a file is not what was written, and Superseded when another process of
    this keeper has begun since.
    """

    def __init__(self, job: str, config: RunConfig, token: str) -> None:
        self._store = open_store(job, config)
        self._job, self._token = job, token
        self.port = Port(self._store.filesystem, self._store.folder.rpartition("/")[0], is_private=True)
        """Of the job's folder, in which all its keepers have theirs."""
        self._signer = Signer(config.snapshots.secret)
        self._own: KeeperId | None = None
        self._nonce = secrets.token_hex(8)
        self._life = 0
        self._newest = 0  # of the records that this process has read or written
        self._turn = threading.Lock()
        """Held while a record is written, and while records are listed: each thread has to know the own record as such."""
        self._made: set[str] = set()
        self._marks: dict[str, dict[str, int]] = {}
        self._written: dict[str, dict[int, tuple[str, float]]] = {}  # by input: frames that are there, their names, when they were written

    # -- which keeper, which process -----------------------------------------------------------------
    def begin(self) -> None:
        """A new keeper: it comes after all that there are."""
        try:
            self.port.make_folder()
            before = [keeper.number for keeper in self._keepers()]
            before += [keeper.number for keeper in [self._store.history().keeper] if keeper is not None]
        except OSError as error:
            raise SnapshotError(f"cannot list {self.port.folder!r}: {error}") from error
        self._own = KeeperId(max(before, default=0) + 1, self._token)

    @property
    def id(self) -> KeeperId:
        """Which keeper this is. Raises SnapshotError when it has not begun."""
        if self._own is None:
            self._own = next((keeper for keeper in self._keepers() if keeper.token == self._token), None)
        if self._own is None:
            raise SnapshotError(f"keeper {self._token!r} of job {self._job!r} has no files in {self.port.folder!r}")
        return self._own

    def _keepers(self) -> dict[KeeperId, str]:
        """All keepers of the job, with the names of their folders."""
        found = ((_KEEPER.fullmatch(entry.name), entry.name) for entry in self._entries("") if not entry.is_file)
        return {KeeperId(int(match[1] or 0), match[2]): name for match, name in found if match is not None}

    @property
    def _folder(self) -> str:
        return f"keeper-{self.id.number:012d}-{self.id.token}"

    def _numbers(self, pattern: re.Pattern[str]) -> list[int]:
        matches = (pattern.fullmatch(entry.name.rpartition("/")[2]) for entry in self._entries(self._folder))
        return sorted(int(match[1]) for match in matches if match is not None)

    def _check_life(self) -> None:
        with self._turn:
            newest = max(self._numbers(_RECORD), default=0)
            if newest > self._newest and not self._is_own(newest):
                raise self._over()

    def _is_own(self, number: int) -> bool:
        """Whether a record is of this process: one that was written although the store told of a failure."""
        return bool(self._read_record(number)["nonce"] == self._nonce)

    def _over(self) -> Superseded:
        return Superseded(f"another process of the keeper of job {self._job!r} has begun: this one is over, and takes nothing more")

    # -- the record --------------------------------------------------------------------------------
    def record(self) -> KeeperRecord:
        """What was written last; an empty one at the beginning."""
        numbers = self._numbers(_RECORD) if self._has_begun() else []
        if not numbers:
            return KeeperRecord()
        if self._life and numbers[-1] > self._newest:
            raise self._over()
        self._newest = numbers[-1]
        plain = self._read_record(numbers[-1])
        plain.pop("nonce")
        listed = ("starts_s", "running_s", "runs")
        return KeeperRecord(**{**plain, **{name: tuple(plain.get(name, ())) for name in listed}})

    def _read_record(self, number: int) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(self._read(Kind.RECORD, f"{self._folder}/record-{number:012d}"))
        return plain

    def _has_begun(self) -> bool:
        return self._own is not None or any(keeper.token == self._token for keeper in self._keepers())

    def write_record(self, record: KeeperRecord) -> None:
        """Write it behind the one before. May be repeated when the store has told of a failure."""
        with self._turn:
            self._make_folder(self._folder)
            told = {**dataclasses.asdict(record), "nonce": self._nonce}  # no two processes write the same
            data = json.dumps(told).encode()
            while not self._create_record(self._newest + 1, data):
                if not self._is_own(self._newest + 1):
                    raise self._over()
                self._newest += 1
            number = self._newest + 1
            numbers = self._numbers(_RECORD)
            if not numbers or numbers[-1] > number:
                raise self._over()
            self._newest, self._life = number, self._life or number
            for older in numbers[:-1]:
                self._delete(f"{self._folder}/record-{older:012d}")

    def _create_record(self, number: int, data: bytes) -> bool:
        """Whether there is a record of this number with just this in it."""
        name = f"{self._folder}/record-{number:012d}"
        try:
            return self.port.create(name, self._signer.head(Kind.RECORD, self._job, name, [data]) + data)
        except OSError as error:
            raise SnapshotError(f"cannot write {self.port.path(name)!r}: {error}") from error

    def outcome(self) -> bytes | None:
        """What :meth:`write_outcome` was given, by the last process that has begun."""
        lives = self._numbers(_OUTCOME)
        if not lives:
            return None
        life, _, data = self._read(Kind.OUTCOME, f"{self._folder}/outcome-{lives[-1]:012d}").partition(b"\n")
        return data if int(life) == lives[-1] else None

    def write_outcome(self, data: bytes) -> None:
        """Keep how the job ended."""
        self._check_life()
        self._write(Kind.OUTCOME, self._folder, f"outcome-{self._life:012d}", [str(self._life).encode(), b"\n", data])
        self._check_life()

    # -- live inputs -------------------------------------------------------------------------------
    def append(self, name: str, frame: Frame) -> None:
        """Keep a frame of an input. Raises Superseded when another process may have begun before: then the sender must not be told."""
        head = {"kind": int(frame.kind), "credit": frame.credit, "mark": frame.mark, "sizes": [len(part) for part in frame.payload]}
        file = f"{frame.number:012d}-{self._life:012d}"
        self._write(Kind.FRAME, self._of_input(name), file, [json.dumps(head).encode(), b"\n", *frame.payload])
        self._check_life()
        self._written.setdefault(name, {})[frame.number] = (file, clock.monotonic())
        self._note_mark(name, frame.mark)

    def load(self, name: str) -> Iterator[Frame]:
        """The frames of an input that are kept, in order. From now on those of earlier lives that come later do not count."""
        folder = self._of_input(name)
        files = [entry.name.rpartition("/")[2] for entry in self._entries(folder)]
        there = {(int(match[1]), int(match[2])) for file in files if (match := _FRAME.fullmatch(file)) is not None}
        begun = max((int(match[1]) for file in files if (match := _FROM.fullmatch(file)) is not None), default=0)
        seen: list[list[int]] = json.loads(self._read(Kind.FRAMES_FOUND, f"{folder}/from-{begun:012d}")) if begun else []
        # What the last life that has begun here has found, and has added; all else came from processes that were over.
        counts = {(number, life) for number, life in seen} | {(number, life) for number, life in there if life == begun or not begun}
        found = dict(sorted(there & counts))  # by frame, the life that counts
        now_s = clock.monotonic()
        self._written[name] = {number: (f"{number:012d}-{life:012d}", now_s) for number, life in found.items()}
        if self._life != begun:
            self._write(Kind.FRAMES_FOUND, folder, f"from-{self._life:012d}", [json.dumps(list(found.items())).encode()])
            self._check_life()
        for number in sorted(found):
            line, _, rest = self._read(Kind.FRAME, f"{folder}/{number:012d}-{found[number]:012d}").partition(b"\n")
            head = json.loads(line)
            parts, at = [], 0
            for size in head["sizes"]:
                parts.append(rest[at : at + size])
                at += size
            self._note_mark(name, head["mark"])
            yield Frame(number, head["kind"], parts, head["credit"], head["mark"])

    def marks(self, name: str) -> dict[str, int]:
        """By sender, the number of its last call of which a frame is kept, or has been since these files were opened."""
        return dict(self._marks.get(name, {}))

    def _note_mark(self, name: str, mark: str) -> None:
        sender, _, number = mark.partition(":")
        if sender:
            self._marks.setdefault(name, {})[sender] = int(number)

    def trim(self, name: str, below: int) -> None:
        """Snapshots hold the frames below this number; those of them that no sender may repeat any more are deleted."""
        there, until_s = self._written.get(name, {}), clock.monotonic() - REMEMBER_S
        old = [(number, file) for number, (file, at_s) in there.items() if number < below and at_s < until_s]
        for number, file in old:
            if not self._delete(f"{self._of_input(name)}/{file}"):
                return  # later
            del there[number]

    # -- the end -----------------------------------------------------------------------------------
    def delete(self) -> None:
        """Nobody needs them any more."""
        if self._has_begun():
            self._delete_folder(self._folder)

    def delete_earlier(self) -> None:
        """A coordinator of this keeper has claimed the store: delete what the keepers before it have left, which cannot resume any more."""
        for keeper, folder in self._keepers().items():
            if keeper < self.id:
                self._delete_folder(folder)

    def _delete(self, name: str) -> bool:
        try:
            self.port.delete(name)
        except OSError:
            _log.debug("%r could not be deleted", self.port.path(name), exc_info=True)
            return False
        return True

    def _delete_folder(self, name: str) -> None:
        try:
            self.port.delete_folder(name)
        except OSError:
            _log.warning("%r could not be deleted", self.port.path(name), exc_info=True)

    # -- small things ------------------------------------------------------------------------------
    def _make_folder(self, folder: str) -> None:
        """Of this keeper; that of the job has to be there."""
        if folder in self._made:
            return
        try:
            parent = folder.rpartition("/")[0]
            if parent:
                self._make_folder(parent)
            self.port.make_folder(folder, parents=False)
        except OSError as error:
            raise SnapshotError(f"cannot write to {self.port.path(folder)!r}: {error}") from error
        self._made.add(folder)

    def _write(self, kind: Kind, folder: str, name: str, data: Sequence[bytes]) -> None:
        """Write a file that this process alone writes, once."""
        self._make_folder(folder)
        place = f"{folder}/{name}"
        try:
            self.port.put(place, [self._signer.head(kind, self._job, place, data), *data])
        except OSError as error:
            raise SnapshotError(f"cannot write {self.port.path(place)!r}: {error}") from error

    def _read(self, kind: Kind, name: str) -> bytes:
        path = self.port.path(name)
        try:
            data = self.port.read(name)
        except OSError as error:
            raise SnapshotError(f"cannot read {path!r}: {error}") from error
        try:
            return self._signer.opened(kind, self._job, name, data)
        except ValueError as error:
            raise SnapshotError(f"{path!r}, of job {self._job!r}, {error}") from None

    def _entries(self, folder: str) -> list[Entry]:
        try:
            return self.port.entries(folder)
        except OSError as error:
            raise SnapshotError(f"cannot list {self.port.path(folder)!r}: {error}") from error

    def _of_input(self, name: str) -> str:
        """The folder of an input; different names stay different."""
        return f"{self._folder}/inputs/" + re.sub(r"[^A-Za-z0-9_]", lambda match: f"%{ord(match[0]):x}", name)


__all__ = ["Frame", "KeeperFiles", "KeeperRecord"]
