"""A vertex as its author writes it: Naiad's ``on_recv`` / ``on_notify`` and ``send_by`` / ``notify_at``.

One instance per replica, single-threaded. Source: Naiad, SOSP 2013, 2.2.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from rayad.progress import DataflowError, Timestamp, show


class _Same:
    def __repr__(self) -> str:
        return "the awaited time"


REENTRANCY_MAX = 64
"""Each nested call is a dozen frames deeper in Python's stack."""


def check_reentrancy(value: Any, what: str) -> int:
    """Check a bound on nested calls, as :attr:`Vertex.reentrancy` defines it. Raises DataflowError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= REENTRANCY_MAX:
        raise DataflowError(
            f"{what} has reentrancy = {show(value, 40)}: it is how many calls of on_recv may be nested, an int from 0 (none) to "
            f"{REENTRANCY_MAX}"
        )
    return value


SAME: Any = _Same()
"""Default of ``notify_at(capability=...)``: the callback may send from the awaited time on."""


class VertexContext(ABC):
    """What the runtime gives a vertex. Everything here is checked: nothing goes back in time."""

    name: str
    replica: int
    parallelism: int
    key_groups: int

    @abstractmethod
    def send_by(self, edge: int, batch: Any, time: Timestamp) -> None:
        """See :meth:`Vertex.send_by`."""

    @abstractmethod
    def notify_at(self, time: Timestamp, capability: Timestamp | None) -> None:
        """See :meth:`Vertex.notify_at`."""

    def now(self) -> dt.datetime:
        """See :meth:`Vertex.now`."""
        raise NotImplementedError(f"{type(self).__name__} has no clock")


class Vertex:
    """Base class of stateful vertices.

    Override :meth:`on_recv`, and :meth:`on_notify` if you ask for notifications. ``__init__`` takes no runtime arguments; replica number
    and parallelism are known from :meth:`setup` on.

    >>> class DistinctCount(Vertex):                      # Naiad, figure 4
    ...     def __init__(self):
    ...         self.counts = {}
    ...     def on_recv(self, edge, batch, time):
    ...         if time not in self.counts:
    ...             self.counts[time] = {}
    ...             self.notify_at(time)
    ...         fresh = [r for r in batch if r not in self.counts[time]]
    ...         for record in batch:
    ...             self.counts[time][record] = self.counts[time].get(record, 0) + 1
    ...         self.send_by(0, list(dict.fromkeys(fresh)), time)
    ...     def on_notify(self, time):
    ...         self.send_by(1, list(self.counts.pop(time).items()), time)
    """

    sequential: bool = False
    """Deliver a notification only when no lexicographically smaller time can still arrive (see docs/design/engine.md)."""

    waits_for_siblings: bool = True
    """Whether a notification also waits for earlier ones of the vertex's other replicas, so that asking for one time after another makes
    global barriers. False where replicas share nothing: outside loops a notification then waits for input alone, and replicas run ahead."""

    in_order: bool = False
    """Deliver batches in lexicographic order of their times: one waits (and keeps counting) while a smaller time can still arrive."""

    paces_inputs: ClassVar[bool] = False
    """Whether sources and live inputs before it wait when ``RunConfig.epochs_ahead`` of their epochs are begun and not complete here: it
    puts aside what comes for later epochs. With ``RunConfig.state_memory_bytes`` they do before all that are :attr:`sequential`."""

    checkpoint_inline: bool = False
    """Whether the state is taken in the replica's own process, however large it is: right where :meth:`checkpoint` must not run in a forked
    copy, and where it gives large arrays and little else, which are copied faster than a process is forked. May be a property."""

    broadcast_may_repeat: bool = False
    """For rescaling: whether a replica may get a broadcast batch twice. One that is added to a running job can: before the senders know
    of it, its siblings forward to it what they get."""

    state_version: int = 1
    """The version of what :meth:`checkpoint` gives, kept with snapshots beside the class's name: raise it when earlier state can no longer
    be restored, and a resume from it is refused before anything is read. A renamed class counts as another one."""

    may_change: ClassVar[frozenset[str]] = frozenset()
    """Of Rayad's own vertices: arguments of the constructor that may differ between a snapshot and the dataflow that resumes from it."""

    reentrancy: int = 0
    """How many calls of :meth:`on_recv` may run inside one another in a replica: 0 (none) to 64.

    A batch that returns to the same replica, round a loop with nothing but fused steps on the way, waits in a queue by
    default. With a bound above 0 :meth:`send_by` hands it to :meth:`on_recv` at once, before it returns, as long as fewer than so many such
    calls are running: the queue of a loop stays short, and values go round depth first. Batches for other replicas,
    and deeper ones, are queued; results that depend on the order of batches in a loop may differ. ``on_recv`` must then expect to be
    called inside its own ``send_by``, so: change the state first, then send. Source: Naiad, SOSP 2013, 3.2.
    """

    _context: VertexContext | None = None

    # -- what the author writes ------------------------------------------------
    def setup(self) -> None:
        """Called once in the replica before anything else; ``self.replica`` and ``self.parallelism`` are known."""

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        """Called when records arrive on input port ``edge``: a list of Python objects or a RecordBatch, all of ``time``."""
        raise NotImplementedError(f"{type(self).__name__} has inputs but no on_recv(self, edge, batch, time)")

    def on_notify(self, time: Timestamp) -> None:
        """Called when ``time`` is complete: nothing that could result in it here is left anywhere."""
        raise NotImplementedError(f"{type(self).__name__} asked for a notification but has no on_notify(self, time)")

    def on_park(self, batch: Any) -> Any:
        """Called when a batch must wait, in a vertex that takes times in order (:attr:`in_order`). Returns what to keep instead;
        default: the batch.

        :meth:`on_recv` gets what was kept when its time comes. Snapshots before that pickle it.
        """
        return batch

    def checkpoint(self) -> Any:
        """Return the state, picklable; default: everything in ``__dict__``.

        It is pickled before anything else happens to the vertex, so it may refer to objects that change later. Large state is pickled in a
        forked copy of the process: changes that ``checkpoint`` itself makes are lost, and it must not talk to other processes; see
        :attr:`checkpoint_inline`.
        """
        return {k: v for k, v in self.__dict__.items() if k != "_context"}

    def restore(self, state: Any) -> None:
        """Restore what :meth:`checkpoint` returned, in a new vertex, after :meth:`setup`."""
        self.__dict__.update(state)

    def take_changes(self) -> Callable[[], Any] | None:
        """For incremental snapshots: return a function that gives the changes since the last call, or None if they are unknown, so that
        all state is written.

        Called at each snapshot, in the replica. The returned function is called at most once, before anything else happens to the vertex,
        perhaps in a forked copy of the process. It returns picklable changes for :meth:`restore_changes`.
        """
        return None

    def restore_changes(self, changes: Any) -> None:
        """Apply changes, as the function of :meth:`take_changes` returned them, to the state before them."""
        raise NotImplementedError(f"{type(self).__name__} has take_changes() but no restore_changes(self, changes)")

    def give(self, groups: frozenset[int]) -> Any:
        """For rescaling: remove the state of these key-groups, with what waits for notifications, and return it, picklable; None if
        there is nothing.

        Called in the replica between two activations, for groups that change their owner; the group of a key is ``rd.key_group(key,
        self.key_groups)``. A notification that was asked for may still come for a time at which nothing is left here: do nothing then. The
        next snapshot must be a full one (:meth:`take_changes` returns None).
        """
        raise NotImplementedError(f"{type(self).__name__} has no give(self, groups): its replicas cannot be added or removed while it runs")

    def take(self, state: Any) -> None:
        """For rescaling: merge what :meth:`give` returned at another replica of this vertex into the state, between two activations.

        Call :meth:`notify_at` for each time at which part of it waits; sending is not allowed. The next snapshot must be a full one.
        """
        raise NotImplementedError(f"{type(self).__name__} has give(self, groups) but no take(self, state)")

    def index_for_giving(self) -> Iterator[None] | None:
        """For rescaling: return a generator that prepares :meth:`give` between activations, or None if there is nothing to prepare.

        Each ``next`` should take at most some milliseconds; batches arrive in between. :meth:`gave` is called after the last ``give`` of a
        change.
        """
        return None

    def gave(self) -> None:
        """For rescaling: the change for which :meth:`index_for_giving` was called is over, whether it succeeded or not."""

    def close(self) -> None:
        """Called once at the end, also after an error."""

    # -- what the author calls -------------------------------------------------
    def send_by(self, edge: int, batch: Any, time: Timestamp) -> None:
        """Send records (a list or a RecordBatch) on output port ``edge`` at ``time``, which may not lie before the time being handled."""
        self._require().send_by(edge, batch, time)

    def notify_at(self, time: Timestamp, capability: Timestamp | None = SAME) -> None:
        """Ask for ``on_notify(time)``, once, when nothing that could result in ``time`` at this vertex is left anywhere.

        ``capability`` is the earliest time at which that callback may send: by default ``time`` itself; ``None`` when it will send
        nothing, which holds nobody back (Naiad, 2.3: guarantee and capability).
        """
        self._require().notify_at(time, time if capability is SAME else capability)

    def now(self) -> dt.datetime:
        """The current moment in UTC, by the clock of this machine; with ``clock=`` in the local runtime, its seconds since 1970.

        What depends on it is not repeatable: after a failure the moment is another one.
        """
        return self._require().now()

    def _require(self) -> VertexContext:
        if self._context is None:
            raise DataflowError(f"{type(self).__name__} is not running: send_by and notify_at work inside on_recv and on_notify only")
        return self._context

    @property
    def name(self) -> str:
        """The vertex's name in the dataflow."""
        return self._require().name

    @property
    def replica(self) -> int:
        """This replica's number, from 0."""
        return self._require().replica

    @property
    def parallelism(self) -> int:
        """How many replicas the vertex has."""
        return self._require().parallelism

    @property
    def key_groups(self) -> int:
        """How many key-groups keys hash into."""
        return self._require().key_groups


def begin(vertex: Vertex, context: VertexContext) -> None:
    """Let a vertex that has just been made run in this context. (A function: a public method of ours could be one of the user's.)"""
    vertex._context = context
    vertex.setup()


class EndVertex(Vertex):
    """A vertex that may still send when its input ends, because it keeps a capability at its input frontier.

    The runtime moves the capability along with the frontier, so downstream is not held back. When no more input can come it calls
    :meth:`on_end` once, at the latest epoch that an input upstream has reached, whatever the order of arrival (decision 046). Not allowed
    inside loops, where it would keep the loop alive.
    """

    def on_advance(self, time: Timestamp) -> None:
        """Called when the input frontier moves beyond ``time``, the earliest time at which this vertex may still send: the last
        opportunity to send there.

        Which times are passed depends on timing, but every completed time has one at or before it. The default does nothing.
        """

    def on_end(self, time: Timestamp) -> None:
        """Called once when the input has ended. Sending at ``time`` is allowed."""
        raise NotImplementedError
