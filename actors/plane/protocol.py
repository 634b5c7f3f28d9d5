"""What travels on the data plane besides batches: kinds of frames, reports, views, credits.

Reports and views are small and frequent, so they are flat tuples of ints through ``marshal`` (all processes of a job run the same
Python version, which Ray enforces, and connections are authenticated).
"""

from __future__ import annotations

import enum
import marshal
import struct
from collections.abc import Iterable
from typing import Any

from rayad.actors.plane.replica_id import ReplicaId
from rayad.progress import Timestamp, View

PROGRESS = "progress"
"""The progress actor's name on the plane."""
COORDINATOR = "coordinator"
"""The coordinator's name on the plane: it begins snapshots and is told of their parts."""
READER = "reader"
"""Begins the name on the plane of who reads state: see :func:`reader_name`."""
DRIVER = "driver"
"""With the stage of a live input behind it, the name on the plane of who feeds that input: see :func:`driver_name`."""


class Kind(enum.IntEnum):
    """Kinds of frames. The channel is the edge for DATA, BARRIER and CREDIT between replicas, 0 for what concerns a whole process (REPORT,
    DONE, FINISHED, SWITCHED, READ, ANSWER), otherwise the stage whose replica in that process is meant.

    A frame whose kind begins with INPUT carries its number among all frames of that live input since the job began: see `pack_number`.
    """

    DATA = 1
    CREDIT = 2
    REPORT = 3
    VIEW = 4
    READY = 5
    GO = 6
    DONE = 7
    INPUT_BATCH = 8
    INPUT_ADVANCE = 9
    INPUT_CLOSE = 10
    SUBSCRIBE = 11
    BARRIER = 12
    BEGIN = 13
    PART = 14
    PART_FAILED = 15
    GIVE_UP = 16
    FINISHED = 17
    REWOUND = 18
    SWITCHED = 19
    FENCE = 20
    FENCED = 21
    TRANSFER = 22
    LEAVE = 23
    INPUT_NOTE = 24
    INPUT_SAVE = 25
    SAVE_WANTED = 26
    WORKING = 27
    READ = 28
    ANSWER = 29
    PACE = 30


SPIN_S = 500e-6
"""How long replicas and the progress actor spin for the next frame before they sleep, while frames come that fast: waking an idle CPU
takes some 30 to 50 µs, more than all the work for a barrier (docs/performance.md). It is longer than a barrier takes without spinning:
else a slow machine never begins to spin."""
_CREDIT = struct.Struct("<IQd")
NUMBER_BYTES = 8


INPUT_FRAMES = frozenset({Kind.INPUT_BATCH, Kind.INPUT_ADVANCE, Kind.INPUT_CLOSE, Kind.INPUT_NOTE, Kind.INPUT_SAVE})


def pack_save(name: str, epoch: int) -> bytes:
    """Payload of SAVE_WANTED: the live input and its epoch for which a snapshot is wanted."""
    return epoch.to_bytes(8, "little") + name.encode()


def unpack_save(payload: Any) -> tuple[str, int]:
    """The inverse of :func:`pack_save`.

    >>> unpack_save(pack_save("clicks", 3))
    ('clicks', 3)
    """
    data = bytes(payload)
    return data[8:].decode(), int.from_bytes(data[:8], "little")


def driver_name(stage: int) -> str:
    """The name on the plane of who feeds a live input."""
    return f"{DRIVER}.{stage}"


def is_driver(peer: str) -> bool:
    """Whether a peer feeds a live input.

    >>> is_driver(driver_name(3)), is_driver("v3.0")
    (True, False)
    """
    return peer.startswith(DRIVER)


def reader_name(reader: str) -> str:
    """The name on the plane of one who reads state; no two have the same."""
    return f"{READER}.{reader}"


def is_reader(peer: str) -> bool:
    """Whether a peer reads state.

    >>> is_reader(reader_name("a")), is_reader("v3.0")
    (True, False)
    """
    return peer.startswith(READER)


def replica_name(stage: int, replica: int) -> str:
    """A replica's name on the plane."""
    return ReplicaId(stage, replica).plane_name


def stage_of(name: str) -> int:
    """The stage of a replica, from its name.

    >>> stage_of(replica_name(7, 1))
    7
    """
    return ReplicaId.from_plane_name(name).stage


def replica_of(name: str) -> int:
    """The number of a replica within its stage, from its name.

    >>> replica_of(replica_name(7, 1))
    1
    """
    return ReplicaId.from_plane_name(name).replica


class Changes(list[tuple[int, Timestamp, int]]):
    """A report as it is, where both ends are in one process."""


def pack_report(changes: Iterable[tuple[int, Timestamp, int]]) -> bytes:
    """One report: ``(location, time, delta)`` changes, applied together or not at all."""
    return marshal.dumps([(location, delta, time[0], time[1]) for location, time, delta in changes])


def unpack_report(payload: bytes | memoryview | Changes) -> list[tuple[int, Timestamp, int]]:
    """The inverse of :func:`pack_report`; a report that was not packed is given as it is.

    >>> unpack_report(pack_report([(3, Timestamp(1, (2,)), -1)]))
    [(3, Timestamp(1, (2,)), -1)]
    """
    if isinstance(payload, Changes):
        return payload
    of = Timestamp.of
    return [(location, of(epoch, counters), delta) for location, delta, epoch, counters in marshal.loads(payload)]


def pack_view(view: View) -> bytes:
    """One published view."""
    inputs, pending, end = view
    return marshal.dumps(([(t[0], t[1]) for t in inputs], [(t[0], t[1]) for t in pending], None if end is None else end[0]))


def unpack_view(payload: bytes | memoryview | View) -> View:
    """The inverse of :func:`pack_view`; a view that was not packed is given as it is.

    >>> unpack_view(pack_view(View((Timestamp(1),), ())))
    View(input_frontier=(Timestamp(1),), notify_frontier=(), end=None)
    """
    if isinstance(payload, View):
        return payload
    inputs, pending, end = marshal.loads(payload)
    of = Timestamp.of
    return View(tuple([of(*t) for t in inputs]), tuple([of(*t) for t in pending]), None if end is None else of(end, ()))


_PACE = struct.Struct("<Q?")


def pack_pace(complete_before: int, is_free: bool) -> bytes:
    """Payload of PACE: see :meth:`rayad.actors.replica.input.pace.Pace.told`."""
    return _PACE.pack(complete_before, is_free)


def unpack_pace(payload: bytes | memoryview) -> tuple[int, bool]:
    """The inverse of :func:`pack_pace`.

    >>> unpack_pace(pack_pace(7, False))
    (7, False)
    """
    return _PACE.unpack(payload)


def pack_number(number: int) -> bytes:
    """Encode the number of a frame of a live input: by it a replica recognises what a driver that reconnects sends again."""
    return number.to_bytes(NUMBER_BYTES, "little")


def unpack_number(payload: bytes | memoryview) -> tuple[int, bytes | memoryview]:
    """The number of a frame of a live input, and the rest.

    >>> unpack_number(pack_number(7) + b"batch")
    (7, b'batch')
    """
    return int.from_bytes(payload[:NUMBER_BYTES], "little"), payload[NUMBER_BYTES:]


def pack_credit(batches: int, size: int, busy_s: float = 0.0) -> bytes:
    """A grant of credits, with how long the receiver has worked on what it grants back."""
    return _CREDIT.pack(batches, size, busy_s)


def unpack_credit(payload: bytes | memoryview) -> tuple[int, int, float]:
    """Batches and bytes granted, and how long the receiver has worked on them, in seconds.

    >>> unpack_credit(pack_credit(3, 500, 0.25))
    (3, 500, 0.25)
    """
    return _CREDIT.unpack(payload)
