"""A user's process for each key: records in the order of event time, timers that fire when the watermark has passed them, state.

What a process sees is a function of the data and the epochs (docs/decisions/061-keyed-processes.md): when a time is complete, its records
and the timers that the watermark has then passed come key by key in the order of their moments; records before timers of the same moment,
records of the same moment by their representation. A record at the watermark is in time, so the watermark has passed a timer only when it
is beyond it: no record in time comes after a timer of its moment. Like Flink's ``KeyedProcessFunction``, but for that order.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from operator import lt
from typing import Any

from rayad.dataflow.operators.state.by_key.by_moment import KeyedByMoment
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.windows.late_records import in_order_of_time
from rayad.dataflow.operators.windows.watermarks import Marks
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.event_times import compared, event_time
from rayad.dataflow.vertex import EndVertex
from rayad.progress import DataflowError, Timestamp, show

Held = tuple[Any, list[Any]]
"""The state of a key, and its timers in order."""
NOTHING: Held = (None, [])
Arrived = tuple[Any, ...]
"""A record: its event time, the input that it came by, itself."""


class Process(ABC):
    """Event-driven processing per key, with state and timers. A replica makes one object for all of its keys: what belongs to a key is
    ``context.state``.

    >>> class Silence(Process):
    ...     'Tells when a key has been silent for ten minutes.'
    ...     def on_record(self, key, record, context):
    ...         if context.state is not None:
    ...             context.clear_timer(context.state)
    ...         context.state = context.time + 10
    ...         context.set_timer(context.state)
    ...     def on_timer(self, key, context):
    ...         context.emit(context.time)
    ...         context.state = None
    """

    state_version: int = 1
    """Raise it when ``context.state`` of earlier snapshots can no longer be used: a resume from them is refused then."""

    @abstractmethod
    def on_record(self, key: Any, record: Any, context: ProcessContext) -> None:
        """Called for each record of the stream."""

    def on_other(self, key: Any, record: Any, context: ProcessContext) -> None:
        """Called for each record of the other stream, if there is one."""
        raise NotImplementedError(f"{type(self).__name__} has another stream but no on_other(self, key, record, context)")

    def on_timer(self, key: Any, context: ProcessContext) -> None:
        """Called when the watermark has passed a timer of the key: all records up to it that are in time have come. ``context.time`` is
        the timer."""
        raise NotImplementedError(f"{type(self).__name__} sets timers but has no on_timer(self, key, context)")


class _TimerOf:
    """What a timer is called in errors."""

    __slots__ = ("_key",)

    def __init__(self, key: Any) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"a timer of {show(self._key, 60)}"


class ProcessContext:
    """The key's state, the time, and the means to emit and set timers, as a :class:`Process` is called with.

    Attributes:
        state: anything that can be pickled; None at first, and setting None forgets the key.
        time: the event time of the record, or the moment of the timer.
        is_late: whether the record is before the watermark of the epochs before its own.
        is_end: whether the input has ended: all timers that are left fire, and new ones never will.
    """

    __slots__ = ("_key", "_out", "is_end", "is_late", "state", "time", "timers")

    def __init__(self, key: Any, held: Held, out: list[Any], *, is_end: bool = False) -> None:
        self._key = key
        self._out = out
        self.state, timers = held
        self.timers = list(timers)
        """The moments of its timers, in order; to be read."""
        self.time: Any = None
        self.is_late = False
        self.is_end = is_end

    def emit(self, value: Any) -> None:
        """Send ``(key, value)``."""
        self._out.append((self._key, copy.deepcopy(value) if value is self.state else value))  # the state may go on changing in place

    def set_timer(self, moment: Any) -> None:
        """Ask for ``on_timer`` when the watermark has passed ``moment``; the same moment is set once only.

        A moment that the watermark has already passed fires at once, in its order. Raises DataflowError for a value that is not a moment,
        and in ``on_timer`` for a moment that is not later than the current one.
        """
        moment = event_time(moment, _TimerOf(self._key))
        compared(moment, self.time)  # says what does not go together
        at = bisect_left(self.timers, moment)
        if self.is_end:
            return
        if at == len(self.timers) or self.timers[at] != moment:
            self.timers.insert(at, moment)

    def clear_timer(self, moment: Any) -> None:
        """Cancel a timer; nothing happens if it is not set."""
        moment = event_time(moment, _TimerOf(self._key))
        if moment in self.timers:
            self.timers.remove(moment)


class Processes(KeyedByMoment):
    """State and timers by key."""

    def moment_of(self, value: Held) -> Any:
        return value[1][0] if value[1] else None

    def put(self, kept: MutableMapping[Any, Any], key: Any, held: Held) -> None:
        """What the key has now; ``kept`` is what :meth:`changing` gave."""
        if held[0] is None and not held[1]:
            kept.pop(key, None)
        else:
            kept[key] = held
            self.schedule((key,))

    def due(self, mark: Any) -> Iterator[list[Any]]:
        """The keys with timers before ``mark`` (None: none), some after others: see :meth:`come`."""
        return iter(()) if mark is None else self.come(lt, mark)

    def entries_of(self, kept: Mapping[Any, Any]) -> dict[str, Entries]:
        columns = {"value": [state for state, _ in kept.values()], "timers": [timers for _, timers in kept.values()]}
        return {"": Entries(list(kept), columns)}

    def put_entries(self, name: str, entries: Entries) -> None:
        held = zip(entries.columns["value"], entries.columns["timers"], strict=True)
        with self.changing(entries.keys) as kept:
            kept.update(zip(entries.keys, held, strict=True))


class KeyedProcess(KeyedVertex, EndVertex):
    """Runs a :class:`Process` on one or two keyed inputs. Ports: the inputs, as ``late_records.PlaceRows`` makes them, then the largest
    event times of each side.

    Args:
        make: the process's class, or what makes one.
        delays: as of :class:`Marks`.
        inputs: 1 or 2.
    """

    sequential = True
    broadcast_may_repeat = True
    may_change = frozenset({"make", "delays"})

    def __init__(self, make: Callable[[], Process], delays: tuple[Any, ...], inputs: int = 1) -> None:
        self.make = make
        self.inputs = inputs
        self.pending = Waiting(self, Batches(), Batches())  # of this stream, of the other
        self.marks = Marks(delays, self.pending)
        self.state = Processes()

    def setup(self) -> None:
        self.process = self.make()
        if not isinstance(self.process, Process):
            raise DataflowError(
                f"process {self.name!r} was given {show(self.make, 60)}, which makes {show(self.process, 60)}: that is no rd.Process"
            )

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        waiting = self.pending[time]
        if edge < self.inputs:
            waiting[edge].append(batch)
        else:
            self.marks.see(edge - self.inputs, to_rows(batch), time)

    def on_notify(self, time: Timestamp) -> None:
        before = self.marks.ahead_of(time)
        self.marks.advance(time)
        for piece in self.pending.pieces(time):
            arrived: dict[Any, list[Arrived]] = {}
            for port, batches in enumerate(piece):
                for batch in batches:
                    for key, (moment, record) in batch:
                        arrived.setdefault(key, []).append((moment, port, record))
            self._complete(time, arrived, arrived, before)
        for due in self.state.due(self.marks.watermark.now):
            self._complete(time, due, {}, before)

    def _complete(self, time: Timestamp, keys: Collection[Any], arrived: Mapping[Any, list[Arrived]], before: Any) -> None:
        """Records of these keys, all that each has in a time that is complete, and the timers that are due with it."""
        out: list[Any] = []
        now = self.marks.watermark.now
        with self.state.changing(keys) as kept:
            for key in keys:
                context = ProcessContext(key, kept.get(key, NOTHING), out)
                self._run(key, in_order_of_time(arrived.get(key, [])), context, before, now)
                self.state.put(kept, key, (context.state, context.timers))
        if out:
            self.send_by(0, out, time)

    def _run(self, key: Any, records: list[Arrived], context: ProcessContext, before: Any, now: Any) -> None:
        """Records, and the timers before ``now``, as their moments come."""
        timers, at = context.timers, 0
        while True:
            timer = timers[0] if timers and now is not None and timers[0] < now else None
            if at < len(records) and (timer is None or records[at][0] <= timer):
                context.time, port, record = records[at]
                context.is_late = before is not None and context.time < before
                (self.process.on_other if port else self.process.on_record)(key, record, context)
                at += 1
            elif timer is not None:
                self._fire(key, context)
            else:
                return

    def _fire(self, key: Any, context: ProcessContext) -> None:
        moment = context.time = context.timers.pop(0)
        context.is_late = False
        self.process.on_timer(key, context)
        if context.timers and context.timers[0] <= moment:
            raise DataflowError(
                f"process {self.name!r}: on_timer at {show(moment)} of key {show(key, 60)} has set a timer at {show(context.timers[0])}, "
                "which is not later: it would fire without end; set later ones only"
            )

    def on_end(self, time: Timestamp) -> None:
        for some in self.state.taken_out():
            out: list[Any] = []
            for key, held in some:
                context = ProcessContext(key, held, out, is_end=True)
                while context.timers:
                    context.time = context.timers.pop(0)
                    self.process.on_timer(key, context)
            if out:
                self.send_by(0, out, time)


__all__ = ["KeyedProcess", "Process", "ProcessContext"]
