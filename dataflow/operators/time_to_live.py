"""State that ends: a key of which nothing has come for long, by event time, is forgotten (docs/decisions/060-time-to-live.md).

When a time is complete, after its records are in, a key whose largest event time lies before the watermark after that time, less the
time-to-live, is gone. The watermark is a function of the data and the epochs, and all records of a time belong to one life of their key,
so what lives does not depend on the order of arrival. Nothing live is lost: a record that is not late and finds its key gone is further
behind the key's last one than the time-to-live.

Records that end one by one are in ``values_that_end`` (distinct) and ``joins.intervals`` (the join).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from operator import lt
from typing import Any, Literal

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Max
from rayad.dataflow.operators.aggregates.combiner import Combine
from rayad.dataflow.operators.keys.keyed import require_hashable
from rayad.dataflow.operators.state.by_key.by_moment import KeyedByMoment
from rayad.dataflow.operators.state.keyed_state import KeyedState, KeyedVertex
from rayad.dataflow.operators.state.waiting_forms import Batches, ByKey
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.stateless import GATHERED_BYTES_MAX, Element, Gatherer
from rayad.dataflow.operators.windows.watermarks import Marks
from rayad.dataflow.records.batches import keyed_columns, to_rows
from rayad.dataflow.records.event_times import compared, event_time, later, length_from_zero, watermark_of
from rayad.dataflow.records.moments import keys_in
from rayad.dataflow.records.selectors import KeySelector, ValueSelector, require_columns
from rayad.dataflow.vertex import EndVertex, VertexContext, begin
from rayad.progress import DataflowError, Timestamp, arguments

ENDED = 1
"""The output of a vertex whose keys end, which has ``(key, None)`` of each that has."""


@dataclass(frozen=True, slots=True)
class Ttl:
    """How long state is kept, by event time: a key after its last record, or each record after its own event time.

    Args:
        after: a number or timedelta of at least 0, in the unit of the event times.
        of: what ends, "keys" or "records".
    """

    after: Any
    of: Literal["keys", "records"] = "keys"

    def __str__(self) -> str:
        return f"{self.after!r} of {self.of}"

    def __post_init__(self) -> None:
        arguments.choice(self.of, "Ttl: of", "keys", "records")
        length = length_from_zero(self.after, "Ttl: after")
        if length is None:
            raise DataflowError("Ttl: after is None: give a number or timedelta; without a time-to-live leave ttl() out")
        object.__setattr__(self, "after", length)


@dataclass(slots=True)
class LastTimes(Element):
    """``(key, its largest event time)`` of a batch."""

    key: KeySelector
    times: ValueSelector

    def gatherer(self, bytes_max: int = GATHERED_BYTES_MAX) -> Gatherer | None:
        return LargestTimes(self, bytes_max) if self.key.columns and self.times.column not in (None, *self.key.columns) else None

    def apply(self, batch: Any) -> Any:
        time_of, rows = self.times.row_value(), to_rows(batch)
        found: dict[Any, Any] = {}
        for key, row in zip(self.key.keys_of(rows), rows, strict=True):
            moment = event_time(time_of(row), row)
            try:
                found[key] = later(found.get(key), moment)
            except TypeError:
                require_hashable(key)
                raise
        return list(found.items())


class LargestTimes(Gatherer):
    """Find the largest time of each key in columns: key columns and the partials of a maximum. Only for types of which Arrow's largest is
    Python's."""

    def __init__(self, element: LastTimes, bytes_max: int) -> None:
        self._element = element
        self._inner = Combine(element.key, element.times, Max()).gatherer(bytes_max)

    @property
    def holding(self) -> bool:
        return self._inner.holding

    def add(self, time: Timestamp, batch: Any) -> list[Any]:
        if isinstance(batch, pa.RecordBatch):
            name = self._element.times.column
            assert name is not None
            require_columns(batch, (*self._element.key.columns, name))
            column = batch.column(name)
            whole = pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)
            if whole and not column.null_count:
                return self._inner.add(time, batch)
        return [self._element.apply(batch)]

    def flush(self) -> list[tuple[Timestamp, Any]]:
        return self._inner.flush()


def pairs_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, Any]]:
    """What :class:`LargestTimes` gave, as :class:`LastTimes` has it."""
    width = keyed_columns(batch.schema) or 1
    keys = keys_in(batch.columns[:width])
    return ((key, event_time(time, key)) for key, time in zip(keys, batch.column(width).to_pylist(), strict=True))


class _Inside(VertexContext):
    """What a vertex inside another one sees: it sends through that, which notifies it when a time is complete."""

    def __init__(self, around: VertexContext) -> None:
        self._around = around
        self.name, self.replica, self.key_groups = around.name, around.replica, around.key_groups

    @property
    def parallelism(self) -> int:  # type: ignore[override]
        """Changes when replicas come and go."""
        return self._around.parallelism

    def send_by(self, edge: int, batch: Any, time: Timestamp) -> None:
        self._around.send_by(edge, batch, time)

    def notify_at(self, time: Timestamp, capability: Timestamp | None) -> None:
        """It is notified of the time that is complete in any case."""


class Lives(KeyedByMoment):
    """The largest event time of each key that lives.

    >>> lives = Lives()
    >>> lives.go_on({"a": 3, "b": 5}); lives.go_on({"a": 9})
    >>> list(lives.ended(9)), lives.kept
    ([['b']], {'a': 9})
    """

    def moment_of(self, value: Any) -> Any:
        return value

    def go_on(self, moments: dict[Any, Any]) -> None:
        """These keys have had records with these event times, the largest of each."""
        if not moments:
            return
        with self.changing(moments) as kept:
            new = [key for key in moments if key not in kept]
            merge_later(kept, moments.items())
            self.schedule(new)

    def ended(self, limit: Any) -> Iterator[list[Any]]:
        """The keys whose largest event time lies before ``limit``, some after others; they are forgotten."""
        for ended in self.come(lt, limit):
            self.drop(ended)
            yield ended


class KeysEnd(KeyedVertex):
    """A keyed vertex whose keys end.

    It keeps what comes until its time is complete, and gives it to the vertex inside then; so nothing looks at state that may end with an
    earlier time. Ports: those of the vertex inside, as many with what :class:`LastTimes` makes, and the largest event times of each side.
    Outputs: that of the vertex inside, and the keys that have ended, at the time that ends them.

    Args:
        make: makes the vertex inside, whose ``KeyedState`` can drop single keys.
        inputs: how many ports it has.
        delays: as of :class:`Marks`.
    """

    sequential = True
    broadcast_may_repeat = True
    may_change = frozenset({"make", "ttl", "delays"})

    def __init__(self, make: Callable[[], KeyedVertex], ttl: Ttl, delays: tuple[Any, ...], inputs: int = 1) -> None:
        self.inside = make()
        for name, state in self.inside.states().items():
            if not state.is_in_flight:
                setattr(self.inside, name, state.that_drops())
        self.ttl = ttl
        self.inputs = inputs
        self.pending = Waiting(self, *(Batches() for _ in range(inputs)), Batches(), ByKey(merge_later))
        self.marks = Marks(delays, self.pending)
        self.lives = Lives()

    def setup(self) -> None:
        begin(self.inside, _Inside(self._require()))

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        return self.inside.schemas_of(inputs[: self.inputs])

    def states(self) -> dict[str, KeyedState]:
        inside = {name: state for name, state in self.inside.states().items() if not state.is_in_flight}
        return {**inside, "lives": self.lives, "pending": self.pending, "marks": self.marks}

    # -- records and time ------------------------------------------------------------
    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        waiting = self.pending[time]
        if edge < self.inputs:
            waiting[edge].append(batch)
        elif edge < 2 * self.inputs:
            *_, columns, moments = waiting
            if isinstance(batch, pa.RecordBatch):
                columns.append(batch)
            else:
                merge_later(moments, batch)
        else:
            self.marks.see(edge - 2 * self.inputs, to_rows(batch), time)

    def on_notify(self, time: Timestamp) -> None:
        for *inputs, columns, moments in self.pending.pieces(time):
            for edge, batches in enumerate(inputs):
                for batch in batches:
                    self.inside.on_recv(edge, batch, time)
            if any(inputs) and any(state.is_in_flight for state in self.inside.states().values()):
                self.inside.on_notify(time)
            for batch in columns:
                merge_later(moments, pairs_of(batch))
            self.lives.go_on(moments)
        self.marks.advance(time)
        self._end_keys(time)  # also where the watermark is as it was: a late record may be all that its key has

    def _end_keys(self, time: Timestamp) -> None:
        """Forget the keys that have ended at the watermark after ``time``."""
        mark = self.marks.watermark.now
        limit = None if mark is None else watermark_of(mark, self.ttl.after)
        for ended in [] if limit is None else self.lives.ended(limit):
            for state in self.inside.states().values():
                if not state.is_in_flight:
                    state.drop(ended)
            self.send_by(ENDED, [(key, None) for key in ended], time)


class KeysEndSendingAtEnd(KeysEnd, EndVertex):
    """Let keys end in a vertex that still sends when its input ends."""

    def on_end(self, time: Timestamp) -> None:
        assert isinstance(self.inside, EndVertex)
        self.inside.on_end(time)


def merge_later(into: MutableMapping[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
    """The later moment of each key."""
    get = into.get
    try:
        for key, moment in pairs:
            before = get(key)
            if before is None or before < moment:
                into[key] = moment
    except TypeError:
        compared(before, moment)  # says what does not go together
        raise


__all__ = ["ENDED", "KeysEnd", "KeysEndSendingAtEnd", "LastTimes", "Ttl"]
