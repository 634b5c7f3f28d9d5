"""What the keeper of a detached job must know again after its process has died: a record of the job, and what was sent to live inputs.

Below the job's folder, on any of pyarrow's file systems::

    keeper-<token>/record                        what has been asked of the job
    keeper-<token>/outcome                       how it ended, with its results, pickled; never read before its digest holds
    keeper-<token>/inputs/<input>/<number>       one frame that was sent to a live input, numbered as in `InputLog`

Each file appears whole, with a digest (or an HMAC, where the job has a secret) before its content. A frame is written before its sender is
told that it was taken, so it survives the keeper; it is not synced to the disk, so the last ones may not survive the loss of the machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import logging
import re
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyarrow import fs

from rayad.actors.store.job_store import open_store
from rayad.dataflow.config import RunConfig
from rayad.progress import SnapshotError

_log = logging.getLogger(__name__)
KEEPER = "keeper-"
DIGEST_BYTES = 32
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
    """The files of one keeper, which alone writes them.

    Args:
        job: the job's name.
        config: of the run; it has a store.
        token: the keeper's.

    Methods raise SnapshotError when the store does not answer, or a file is not what was written.
    """

    def __init__(self, job: str, config: RunConfig, token: str) -> None:
        store = open_store(job, config)
        self._fs = store.filesystem
        self._above = store.folder.rpartition("/")[0]
        self._folder = f"{self._above}/{KEEPER}{token}"
        self._secret = config.snapshots.secret
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)
        self._made: set[str] = set()
        self._marks: dict[str, dict[str, int]] = {}
        self._written: dict[str, dict[int, float]] = {}  # by input: the frames that are there, and when they were written

    # -- the record --------------------------------------------------------------------------------
    def record(self) -> KeeperRecord:
        """What was written last; an empty one at the beginning."""
        if "record" not in self._names(""):
            return KeeperRecord()
        plain = json.loads(self._read("record"))
        listed = ("starts_s", "running_s", "runs")
        return KeeperRecord(**{**plain, **{name: tuple(plain.get(name, ())) for name in listed}})

    def write_record(self, record: KeeperRecord) -> None:
        """Write it in the place of the one before."""
        self._write("", "record", [json.dumps(dataclasses.asdict(record)).encode()])

    def outcome(self) -> bytes | None:
        """What :meth:`write_outcome` was given."""
        return self._read("outcome") if "outcome" in self._names("") else None

    def write_outcome(self, data: bytes) -> None:
        """Keep how the job ended."""
        self._write("", "outcome", [data])

    # -- live inputs -------------------------------------------------------------------------------
    def append(self, name: str, frame: Frame) -> None:
        """Keep a frame of an input."""
        head = {"kind": int(frame.kind), "credit": frame.credit, "mark": frame.mark, "sizes": [len(part) for part in frame.payload]}
        self._write(_inputs(name), f"{frame.number:012d}", [json.dumps(head).encode(), b"\n", *frame.payload])
        self._written.setdefault(name, {})[frame.number] = clock.monotonic()
        self._note_mark(name, frame.mark)

    def load(self, name: str) -> Iterator[Frame]:
        """The frames of an input that are kept, in order."""
        numbers = sorted(int(file) for file in self._names(_inputs(name)) if file.isdigit())
        self._written[name] = dict.fromkeys(numbers, clock.monotonic())
        for number in numbers:
            line, _, rest = self._read(f"{_inputs(name)}/{number:012d}").partition(b"\n")
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
        for number in [number for number, at_s in there.items() if number < below and at_s < until_s]:
            try:
                self._fs.delete_file(f"{self._folder}/{_inputs(name)}/{number:012d}")
            except OSError:
                _log.debug("frame %d of input %r could not be deleted", number, name, exc_info=True)
                return  # later
            del there[number]

    # -- the end -----------------------------------------------------------------------------------
    def delete(self) -> None:
        """Nobody needs them any more."""
        self._delete(self._folder)

    def delete_others(self) -> None:
        """Delete what keepers of this job before this one have left: they are gone, since this one has the name."""
        for info in self._fs.get_file_info(fs.FileSelector(self._above, allow_not_found=True)):
            if info.base_name.startswith(KEEPER) and info.path.rstrip("/") != self._folder:
                self._delete(info.path)

    def _delete(self, folder: str) -> None:
        try:
            self._fs.delete_dir(folder)
        except FileNotFoundError:
            pass
        except OSError:
            _log.warning("%r could not be deleted", folder, exc_info=True)

    # -- small things ------------------------------------------------------------------------------
    def _digest(self, data: Sequence[bytes]) -> bytes:
        digest: Any = hmac.new(self._secret, digestmod=hashlib.sha256) if self._secret else hashlib.sha256()
        for part in data:
            digest.update(part)
        return bytes(digest.digest())

    def _write(self, folder: str, name: str, data: Sequence[bytes]) -> None:
        folder = f"{self._folder}/{folder}".rstrip("/")
        path = f"{folder}/{name}"
        try:
            if folder not in self._made:
                self._fs.create_dir(folder, recursive=True)
                self._made.add(folder)
            target = f"{path}.writing" if self._is_local else path  # an object of an object store appears when it is whole
            with self._fs.open_output_stream(target, compression=None) as stream:
                stream.write(self._digest(data))
                for part in data:
                    stream.write(part)
            if self._is_local:
                self._fs.move(target, path)
        except OSError as error:
            raise SnapshotError(f"cannot write {path!r}: {error}") from error

    def _read(self, name: str) -> bytes:
        path = f"{self._folder}/{name}"
        try:
            with self._fs.open_input_stream(path, compression=None) as stream:
                data: bytes = stream.read()
        except OSError as error:
            raise SnapshotError(f"cannot read {path!r}: {error}") from error
        if not hmac.compare_digest(self._digest([data[DIGEST_BYTES:]]), data[:DIGEST_BYTES]):
            raise SnapshotError(f"{path!r} is not what was written, or was written with another secret")
        return data[DIGEST_BYTES:]

    def _names(self, folder: str) -> list[str]:
        path = f"{self._folder}/{folder}".rstrip("/")
        try:
            return [info.base_name for info in self._fs.get_file_info(fs.FileSelector(path, allow_not_found=True))]
        except OSError as error:
            raise SnapshotError(f"cannot list {path!r}: {error}") from error


def _inputs(name: str) -> str:
    """The folder of an input; different names stay different."""
    return "inputs/" + re.sub(r"[^A-Za-z0-9_]", lambda match: f"%{ord(match[0]):x}", name)


__all__ = ["Frame", "KeeperFiles", "KeeperRecord"]
