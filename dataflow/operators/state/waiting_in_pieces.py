"""What waits for its time, of which batches in columns go to disk beyond a bound on memory, and which is taken in a piece at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.runs.disk import Bounded
from rayad.dataflow.operators.state.runs.waiting_runs import Kept, LargeTimes, are_columns
from rayad.dataflow.operators.state.waiting import Batches, Form, Waiting
from rayad.progress import Timestamp


class PartInRuns(NamedTuple):
    """What waits for one time, in a snapshot or on its way to a sibling: batches, None of none, and by input its runs."""

    batches: Any
    runs: Mapping[int, Any]


class WaitingInPieces(Waiting):
    """Batches by time, for ``on_notify(time)`` to ask for :meth:`pieces`.

    Args:
        vertex: that is notified.
        forms: what ``waiting[time]`` is a tuple of, at least two. Those that are :class:`Batches` go to disk; a time of which something is
            in others is taken in as one piece.
    """

    def __init__(self, vertex: KeyedVertex, *forms: Form) -> None:
        super().__init__(vertex, *forms)
        self._states = vertex.states
        self._large = LargeTimes(self)

    def pieces(self, time: Timestamp) -> Iterator[Kept]:
        """Pop what waits for a time, a piece after the other, each as ``waiting[time]`` is; all that a key has is in one piece. Between two
        the states of the vertex are held within their bound."""
        if time not in self:
            return
        kept, large = self.pop(time), self._large
        if not large.is_large(time):
            yield kept
        elif not are_columns(kept):
            large.back(time, kept)
            yield kept
        else:
            for piece in large.pieces(time, kept):
                yield piece
                if large.memory is not None:
                    large.memory.hold(self._states().values())

    @property
    def is_beyond_memory(self) -> bool:
        """Whether any of it is in runs."""
        return not self._large.is_empty

    def runs(self) -> Iterable[Bounded]:
        return (self._large,)

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        stored = super().checkpoint()
        return {time: PartInRuns(kept, runs) if (runs := self._large.stored(time)) else kept for time, kept in stored.items()}

    def take_changes(self) -> Callable[[], Any] | None:
        """What is in runs is never part of an increment."""
        return None if self.is_beyond_memory else super().take_changes()

    def restore(self, stored: Any) -> None:
        self._large.forget()
        for time, kept in stored.items():
            if isinstance(kept, PartInRuns):
                self._large.restored(time, kept.runs)
        super().restore({time: kept.batches if isinstance(kept, PartInRuns) else kept for time, kept in stored.items()})

    # -- to other replicas -----------------------------------------------------------
    def index(self, key_groups: int) -> Iterator[None]:
        yield from super().index(key_groups)
        yield from self._large.index(key_groups)

    def give(self, groups: frozenset[int], key_groups: int) -> dict[Timestamp, Any] | None:
        given: dict[Timestamp, Any] = super().give(groups, key_groups) or {}
        for time in self:
            runs = self._large.give(time, groups, key_groups)
            if runs:
                given[time] = PartInRuns(given.get(time), runs)
        return given or None

    def take(self, given: dict[Timestamp, Any]) -> None:
        for time in sorted(given, key=Timestamp.sort_key):
            some, kept = given[time], self[time]
            if isinstance(some, PartInRuns):
                self._large.take(time, some.runs)
                some = some.batches
            if some is not None:
                self._form.take(kept, some)

    def gave(self) -> None:
        super().gave()
        self._large.gave()

    # -- as a table --------------------------------------------------------------------
    def pairs(self, time: Timestamp) -> list[tuple[int, Any, Any]]:
        rows = self._large.rows_of(time)
        return super().pairs(time) + [(at, key, value) for at, batch in rows for _, key, value in Batches().pairs([batch])]


__all__ = ["PartInRuns", "WaitingInPieces"]
