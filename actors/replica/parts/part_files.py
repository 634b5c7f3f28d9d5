"""A replica's part of a snapshot as files: what is written, how increments chain, how it is read back."""

from __future__ import annotations

import io
import itertools
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, overload

import cloudpickle  # type: ignore[import-untyped]

from rayad.actors.replica.captures import Written
from rayad.actors.replica.rest import PartRest
from rayad.actors.replica.waiting_batches import Disk
from rayad.dataflow.collected import TimedBatches
from rayad.dataflow.last_values import LastValues
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.runs import files as run_files
from rayad.dataflow.operators.state.runs.files import Content, RowsInFile, RunFile
from rayad.dataflow.plan import Stage
from rayad.dataflow.vertex import Vertex
from rayad.progress import DataflowError, SnapshotError, say
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.manifest import PartFile, StagedPart
from rayad.snapshots.store import SnapshotStore

CHAIN_MAX = 16
"""After so many increments the whole state is written again: a restore must read every increment."""
_MAGIC = b"RAYADPT1"
_PIECE_BYTES = 1 << 20
Attempt = str
ContentOf: TypeAlias = Callable[[Any], tuple[RunFile, Content]]
"""Gives a file of a run by its number in the part's list, or by its name, and what is in it."""


class ChosenState(NamedTuple):
    """What a capture takes of a vertex: a function that gives it, whether that is an increment, and the files of runs that it refers to."""

    make: Callable[[], Any]
    is_increment: bool
    runs: tuple[RunFile, ...]


class StateChain:
    """The files that a replica's state consists of, as of its last capture, and whether the next one may be an increment on them.

    An increment is valid only on the snapshot published last, and only if this replica's last capture was its part of that snapshot. It
    names the files of runs that the whole state before it refers to.
    """

    def __init__(self) -> None:
        self.files: tuple[PartFile, ...] = ()
        self._written = 0  # the attempt to which ``files`` belong
        self._captured = 0
        self._runs: tuple[RunFile, ...] = ()  # of the last whole state

    def choose(self, vertex: Vertex, barrier: Barrier) -> ChosenState:
        """What is to be written now."""
        changes = vertex.take_changes()
        may_chain = bool(self.files) and barrier.base == self._captured == self._written and len(self.files) < CHAIN_MAX
        self._captured = barrier.number
        if changes is not None and may_chain:
            whole, *increments = self.files
            if sum(file.size for file in increments) <= whole.size + sum(run.name.size for run in self._runs):
                return ChosenState(changes, True, self._runs)
        self._runs = vertex.run_files() if isinstance(vertex, KeyedVertex) else ()
        return ChosenState(vertex.checkpoint, False, self._runs)

    def wrote(self, barrier: Barrier, file: PartFile | None, *, incremental: bool) -> tuple[PartFile, ...]:
        """A file has been written for an attempt; gives all files of the state."""
        fresh = () if file is None else (file,)
        self.files = (*self.files, *fresh) if incremental else fresh
        self._written = barrier.number
        return self.files


def has_state(stage: Stage) -> bool:
    """Whether replicas of a stage have a vertex whose state is to be kept."""
    return stage.kind is NodeKind.VERTEX


def attempt_name(incarnation: int, barrier: Barrier, what: str) -> Attempt:
    """Distinguishes the files of one slot: parts of attempts given up, and of older incarnations, keep their own names."""
    return f"{incarnation}.{barrier.number}.{what}"


class _RunPickler(cloudpickle.Pickler):
    """Pickles rows that are in a file as what the file is called and the rows that are meant; ``called``: gives None for a file that the
    reader does not know."""

    def __init__(self, file: io.BytesIO, called: Callable[[RunFile], Any], buffer_callback: Callable[[pickle.PickleBuffer], Any]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self._called = called

    def persistent_id(self, obj: Any) -> tuple[Any, int, int] | None:
        called = self._called(obj.file) if isinstance(obj, RowsInFile) else None
        return None if called is None else (called, obj.first, obj.content.rows.num_rows)


class _RunUnpickler(pickle.Unpickler):
    """Reads what :class:`_RunPickler` wrote."""

    def __init__(self, data: memoryview, buffers: Iterable[Any], content_of: ContentOf) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self._content_of = content_of

    def persistent_load(self, pid: Any) -> RowsInFile:
        called, first, count = pid
        file, content = self._content_of(called)
        return RowsInFile(content.cut(first, count), file, first)


def dumped(value: Any, runs: Sequence[RunFile] = (), *, by_name: bool = False) -> list[bytes | memoryview]:
    """A value as pieces of a part file: a head with their sizes, a pickle, and the large buffers that it refers to (columns, arrays).

    Classes and functions of ``__main__`` go by value, since the process that resumes may have another main module. Buffers that
    can still change are copied: the pieces may be written later. Rows of ``runs`` are not in it: it has the numbers of their files;
    ``by_name``: it has the names of all files that are written, for a reader who has the same store.
    """
    buffers: list[pickle.PickleBuffer] = []
    if runs or by_name:
        stream, numbers = io.BytesIO(), {id(run): number for number, run in enumerate(runs)}
        called = attrgetter("name") if by_name else lambda run: numbers.get(id(run))
        _RunPickler(stream, called, buffers.append).dump(value)
        data = stream.getvalue()
    else:
        data = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    pieces: list[bytes | memoryview] = [data]
    for buffer in buffers:
        raw = buffer.raw()
        pieces.append(raw if raw.readonly else raw.tobytes())
    return [_MAGIC + struct.pack(f"<Q{len(pieces)}Q", len(pieces), *(_size(piece) for piece in pieces)), *pieces]


def dumped_staged(key: str, value: Any) -> list[bytes | memoryview]:
    """What a sink has staged, as :func:`dumped`. Raises DataflowError where that cannot be pickled, with the type of what cannot."""
    try:
        return dumped(value)
    except Exception as error:
        kind = type(_unpicklable(value))
        raise DataflowError(
            f"sink {key!r} cannot keep what it has got: a {kind.__module__}.{kind.__qualname__} cannot be pickled "
            f"({type(error).__name__}: {say(error)}); send its data, not handles such as files, sockets, locks or generators"
        ) from error


def _unpicklable(value: Any) -> Any:
    """The first part of lists, tuples and what collect() keeps that cannot be pickled."""
    while isinstance(value, list | tuple | TimedBatches | LastValues):
        value = list(value.of_key.values()) if isinstance(value, LastValues) else value
        for part in value:
            try:
                cloudpickle.dumps(part, protocol=5)
            except Exception:
                value = part
                break
        else:
            return value
    return value


def loaded(data: bytes | memoryview, content_of: ContentOf | None = None) -> Any:
    """The inverse of :func:`dumped`, of the joined pieces. Raises ValueError when they are not of this form.

    ``content_of``: gives the files that it refers to; None: there are none.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"it begins with {bytes(data[: len(_MAGIC)])!r}, not with {_MAGIC!r}")
    (count,) = struct.unpack_from("<Q", data, len(_MAGIC))
    sizes = struct.unpack_from(f"<{count}Q", data, len(_MAGIC) + 8)
    at = len(_MAGIC) + 8 * (count + 1)
    view = memoryview(data)
    pieces = []
    for size in sizes:
        pieces.append(view[at : at + size])
        at += size
    buffers = [bytearray(piece) for piece in pieces[1:]]
    return pickle.loads(pieces[0], buffers=buffers) if content_of is None else _RunUnpickler(pieces[0], buffers, content_of).load()


def _size(piece: bytes | memoryview) -> int:
    return piece.nbytes if isinstance(piece, memoryview) else len(piece)


class SetAside:
    """A value that a sink's writer staged, on disk until its snapshot, in the form of a part file: it is copied into one in pieces."""

    __slots__ = ("_disk", "_place")

    def __init__(self, disk: Disk, key: str, value: Any) -> None:
        self._disk = disk
        self._place = disk.write(b"".join(dumped_staged(key, value)))

    def pieces(self) -> Iterator[bytes]:
        """The content of the part file."""
        begin, size = self._place
        for at in range(0, size, _PIECE_BYTES):
            yield self._disk.read((begin + at, min(_PIECE_BYTES, size - at)))

    def load(self) -> Any:
        """The value."""
        return loaded(self._disk.read(self._place))

    def free(self) -> None:
        """It is not needed any more: give the space back."""
        self._disk.free(self._place)


def write_rest(store: SnapshotStore, stage: Stage, replica: int, incarnation: int, barrier: Barrier, rest: PartRest) -> PartFile:
    """Write everything but the state. Raises SnapshotError when the store does not take it."""
    return store.write_part(barrier.slot, stage.name, replica, dumped(rest.plain()), attempt=attempt_name(incarnation, barrier, "rest"))


def write_state(
    store: SnapshotStore, stage: Stage, replica: int, incarnation: int, written: Written, chunks: Iterable[bytes | memoryview]
) -> None:
    """Write the pickled state or increment of a capture, and the files of its runs that have no name yet; ``written`` notes them.

    The name of a file is of its attempt alone, as that of any other: a writer that is late writes to no file that somebody else names.
    """
    barrier = written.capture.barrier
    what = "changes" if written.capture.is_increment else "state"
    written.state = store.write_part(barrier.slot, stage.name, replica, chunks, attempt=attempt_name(incarnation, barrier, what))
    written.state_bytes = written.state.size
    for number, run in enumerate(written.capture.runs):
        if run.content is not None:
            attempt = attempt_name(incarnation, barrier, f"run{number}")
            file = store.write_part(barrier.slot, stage.name, replica, run_files.writes(run.content), attempt=attempt)
            written.state_bytes += file.size
            run.written(file)
    written.runs = tuple(run.name for run in written.capture.runs)


def write_staged(
    store: SnapshotStore, stage: Stage, replica: int, incarnation: int, barrier: Barrier, staged: Iterable[tuple[str, Any]]
) -> tuple[StagedPart, ...]:
    """Write what the sinks have staged: a file for each sink, however many attempts were given up before; one for each value on disk."""
    by_sink: dict[str, list[Any]] = {}
    for key, value in staged:
        by_sink.setdefault(key, []).append(value)
    out: list[StagedPart] = []
    for key, values in by_sink.items():
        for data, count in _contents(key, values):
            name = attempt_name(incarnation, barrier, f"staged{len(out)}")
            file = store.write_part(barrier.slot, stage.name, replica, data, attempt=name)
            out.append(StagedPart(key, stage.name, replica, file, count))
    return tuple(out)


def _contents(key: str, values: Iterable[Any]) -> Iterator[tuple[Iterable[bytes | memoryview], int]]:
    """Files that hold these values in their order, and how many each holds."""
    for is_aside, group in itertools.groupby(values, lambda value: isinstance(value, SetAside)):
        if is_aside:
            yield from ((value.pieces(), 1) for value in group)
        else:
            kept = list(group)
            yield dumped_staged(key, kept if len(kept) > 1 else kept[0]), len(kept)


def is_nothing(staged: Any) -> bool:
    """Whether a writer had nothing to stage: None, or an empty container."""
    return staged is None or (hasattr(staged, "__len__") and len(staged) == 0)


class StagedValues(Sequence[Any]):
    """What the writers of a sink have staged, read from the store a file at a time, each time that it is looked through.

    Looking through it raises SnapshotError where a file cannot be read.
    """

    def __init__(self, store: SnapshotStore, parts: Iterable[StagedPart]) -> None:
        self._store = store
        self._parts = tuple(parts)

    def __len__(self) -> int:
        return sum(part.count for part in self._parts)

    def __iter__(self) -> Iterator[Any]:
        for part in self._parts:
            yield from self._values(part)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return list(self)[index]
        at = range(len(self))[index]
        for part in self._parts:
            if at < part.count:
                return self._values(part)[at]
            at -= part.count
        raise IndexError(index)

    def _values(self, part: StagedPart) -> list[Any]:
        value = _load(self._store, part.file)
        return list(value) if part.count > 1 else [value]


def merge_staged(
    store: SnapshotStore,
    slot: int,
    staged: Sequence[StagedPart],
    attempt: Attempt,
    condense: Callable[[Sequence[Any]], Sequence[Any]] = lambda values: values,
) -> StagedPart:
    """Write what these files hold into one, as ``condense`` of their sink gives it. Raises SnapshotError."""
    first = staged[0]
    values = list(condense(StagedValues(store, staged)))
    data = dumped(values if len(values) > 1 else values[0])
    file = store.write_part(slot, first.vertex, first.replica, data, attempt=attempt)
    return StagedPart(first.sink, first.vertex, first.replica, file, len(values))


def _load(store: SnapshotStore, file: PartFile) -> Any:
    return unpickled(store, file, store.read_part(file))


def unpickled(store: SnapshotStore, file: PartFile, data: bytes | memoryview, content_of: ContentOf | None = None) -> Any:
    """What is in a part file of this content. ``content_of``: see :func:`loaded`. Raises SnapshotError where that fails here."""
    try:
        return loaded(data, content_of)
    except SnapshotError:
        raise  # of a file of a run
    except Exception as error:
        raise SnapshotError(
            f"part {file.path} in {store.folder!r} is as it was written, but cannot be unpickled here: "
            f"{type(error).__name__}: {say(error)}; is a class or module that it needs missing or renamed?",
            path=file.path,
        ) from error
