"""What waits for its time to be complete. The first of a time asks for its notification, whether it comes in a batch or from another
replica, so an operator asks for none. Beyond a bound on memory it goes to disk, and is taken in a piece at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rayad.dataflow.operators.state.keyed_state import KeyedVertex, WholeState
from rayad.dataflow.operators.state.runs.disk import Bounded
from rayad.dataflow.operators.state.runs.waiting_runs import LargeTimes
from rayad.dataflow.operators.state.tables import TIME, Entries
from rayad.dataflow.operators.state.waiting_forms import Form, KnownGroups
from rayad.progress import DataflowError, Timestamp


class PartInRuns(NamedTuple):
    """What waits for one time, in a snapshot or on its way to a sibling: what is in memory, None of nothing, and by form its runs."""

    batches: Any
    runs: Mapping[int, Any]


class Waiting(dict[Timestamp, Any], WholeState):
    """What waits, by time: ``waiting[time]`` is there to be added to, and ``on_notify(time)`` asks for its :meth:`pieces`.

    A time stays here until then, though all of it may have been given to another replica: so there is one notification for each.

    Args:
        vertex: that is notified.
        forms: what ``waiting[time]`` is; of several a tuple.
    """

    is_in_flight = True

    def __init__(self, vertex: KeyedVertex, *forms: Form) -> None:
        super().__init__()
        self._vertex = vertex
        self._forms = forms
        self._known: KnownGroups | None = None
        self._large = LargeTimes(forms, lambda: [(time, self._parts(kept)) for time, kept in self.items()])

    def _parts(self, kept: Any) -> Sequence[Any]:
        """What waits for a time, form by form."""
        return kept if len(self._forms) > 1 else (kept,)

    def _whole(self, parts: Iterable[Any]) -> Any:
        """The inverse of :meth:`_parts`."""
        several = tuple(parts)
        return several if len(self._forms) > 1 else several[0]

    def _each(self, kept: Any) -> Iterator[tuple[Form, Any]]:
        return zip(self._forms, self._parts(kept), strict=True)

    def __missing__(self, time: Timestamp) -> Any:
        kept = self[time] = self._whole(form.new() for form in self._forms)
        self._vertex.notify_at(time)
        return kept

    def rows(self) -> int:
        """How many rows wait as Python objects."""
        return sum(form.rows(part) for kept in self.values() for form, part in self._each(kept))

    def pieces(self, time: Timestamp) -> Iterator[Any]:
        """Pop what waits for a time, a piece after the other, each as ``waiting[time]`` is; all that a key has is in one piece. Between two
        the states of the vertex are held within their bound."""
        if time not in self:
            return
        kept, large = self.pop(time), self._large
        if not large.is_large(time):
            yield kept
            return
        for piece in large.pieces(time, self._parts(kept)):
            yield self._whole(piece)
            if large.memory is not None:
                large.memory.hold(self._vertex.states().values())

    def is_in_pieces(self, time: Timestamp) -> bool:
        """Whether :meth:`pieces` of a time gives several, perhaps."""
        return self._large.is_large(time)

    def has(self, time: Timestamp) -> bool:
        """Whether anything waits for a time for which something has waited."""
        return any(self._parts(self[time])) or self._large.has(time)

    @property
    def is_beyond_memory(self) -> bool:
        """Whether any of it is in runs."""
        return not self._large.is_empty

    def runs(self) -> Iterable[Bounded]:
        return (self._large,)

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        stored = {time: self._whole(form.stored(part) for form, part in self._each(kept)) for time, kept in self.items()}
        return {time: PartInRuns(kept, runs) if (runs := self._large.stored(time)) else kept for time, kept in stored.items()}

    def take_changes(self) -> Callable[[], Any] | None:
        """What is in runs is never part of an increment."""
        return None if self.is_beyond_memory else super().take_changes()

    def restore(self, stored: Any) -> None:
        """The runtime knows what was asked for."""
        self.clear()
        self._large.forget()
        for time, kept in stored.items():
            if isinstance(kept, PartInRuns):
                self._large.restored(time, kept.runs)
                kept = kept.batches
            self[time] = self._whole(form.taken_back(part) for form, part in self._each(kept))

    # -- to other replicas -----------------------------------------------------------
    def _groups(self, key_groups: int) -> KnownGroups:
        if self._known is None:
            self._known = KnownGroups(key_groups)
        return self._known

    def index(self, key_groups: int) -> Iterator[None]:
        dicts = [each for kept in self.values() for form, part in self._each(kept) for each in form.dicts(part)]
        yield from self._groups(key_groups).index(dicts)
        yield from self._large.index(key_groups)

    def give(self, groups: frozenset[int], key_groups: int) -> dict[Timestamp, Any] | None:
        known, out = self._groups(key_groups), dict[Timestamp, Any]()
        for time, kept in self.items():
            parts = [form.give(part, known, groups) for form, part in self._each(kept)]
            given = self._whole(parts) if any(parts) else None
            runs = self._large.give(time, groups, key_groups)
            if runs or given:
                out[time] = PartInRuns(given, runs) if runs else given
        return out or None

    def take(self, given: dict[Timestamp, Any]) -> None:
        for time in sorted(given, key=Timestamp.sort_key):
            some, kept = given[time], self[time]
            if isinstance(some, PartInRuns):
                self._large.take(time, some.runs)
                some = some.batches
            for (form, part), new in zip(self._each(kept), () if some is None else self._parts(some), strict=False):
                form.take(part, new)

    def gave(self) -> None:
        self._known = None
        self._large.gave()

    # -- as a table --------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        """What waits: its time, and by which of the forms it has come."""
        rows = [(time, at, *pair) for time, kept in self.items() for at, pair in self._pairs(time, kept)]
        keys = [key for _, _, key, _ in rows]
        return {"": Entries(keys, {TIME: [row[0] for row in rows], "input": [row[1] for row in rows], "value": [row[3] for row in rows]})}

    def _pairs(self, time: Timestamp, kept: Any) -> Iterator[tuple[int, tuple[Any, Any]]]:
        for there in (self._parts(kept), self._large.looked_at(time)):
            for at, (form, part) in enumerate(zip(self._forms, there, strict=True)):
                yield from ((at, pair) for pair in form.pairs(part))

    def put_entries(self, name: str, entries: Entries) -> None:
        """Refused: nobody has asked for its notification, and nothing counts it."""
        raise DataflowError("what waits for its time is part of no table that can be written: write the state that it becomes")


__all__ = ["PartInRuns", "Waiting"]
