"""The join with a small side that every replica has: records of the large side stay in the batches in which they came.

Each record of the small side gets a number, by a vertex of one replica, and goes to all replicas of the join. So the small side is
*replicated state*: whatever moves to another replica takes all of it along, and what comes there twice is known by its numbers. A batch of
the large side gets a *tag*, one of few numbers that take turns; batches with one tag are at one replica, and move together, as keys do. So
snapshots and changes of layout have nothing new to do (docs/decisions/067-broadcast-joins.md).

Replicas see the small side at different moments, so batches meet it when a time is complete: then all of them know the same of it. Of
each tag it is known up to which time its batches have met the small side. When the small side has ended, and a replica has all of it,
batches meet it as they come, and none is kept. Sources: the broadcast state of Flink, the broadcast hash join of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.joins.matching import matches
from rayad.dataflow.operators.joins.pairs import joined_batch
from rayad.dataflow.operators.keys.column_keys import common_type, equal_keys
from rayad.dataflow.operators.keys.key_first import KeyFirst, pairs_of
from rayad.dataflow.operators.keys.keyed import TAGS, distinct_names
from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.by_key.lists import KeyedLists
from rayad.dataflow.operators.state.keyed_state import Everywhere, KeyedVertex
from rayad.dataflow.operators.state.stored_columns import stored_mixed, taken_back_mixed
from rayad.dataflow.operators.state.tables import TIME, Entries
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.stateless import columns_given
from rayad.dataflow.records.batches import batch_rows, keyed_columns, mark_keyed, no_rows, one_batch, take_rows
from rayad.dataflow.records.key_hashing import hash_columns
from rayad.dataflow.records.selectors import KeySelector
from rayad.dataflow.records.sorting import stable_order
from rayad.dataflow.vertex import EndVertex, Vertex
from rayad.progress import Timestamp


def labelled(batch: Any, labels: Any) -> Any:
    """A batch of :class:`KeyFirst` with a number before each record, by which it is routed: ``(number, (key, record))``, or a column."""
    if not isinstance(batch, pa.RecordBatch):
        return list(zip(labels, batch, strict=True))
    (*_, name) = distinct_names(batch.schema.names, ["label"])
    columns = [pa.array(labels, pa.int64()), *batch.columns]
    out = pa.RecordBatch.from_arrays(columns, names=[name, *batch.schema.names])
    return mark_keyed(out.replace_schema_metadata({**batch.schema.metadata, WIDTH: str(keyed_columns(batch.schema)).encode()}), 1)


WIDTH = b"rayad.width"
"""In a schema's metadata: how many columns of keys are behind the labels."""


def unlabelled(batch: Any) -> tuple[Any, Any]:
    """The numbers, and the batch of :class:`KeyFirst`."""
    if not isinstance(batch, pa.RecordBatch):
        return [label for label, _ in batch], [pair for _, pair in batch]
    names, metadata = batch.schema.names[1:], dict(batch.schema.metadata)
    width = int(metadata.pop(WIDTH))
    out = pa.RecordBatch.from_arrays(batch.columns[1:], names=names).replace_schema_metadata(metadata)
    return batch.column(0).to_numpy(), mark_keyed(out, width)


@dataclass(slots=True)
class Tagged(KeyFirst):
    """Batches of the large side, each with the next tag."""

    turn: int = 0

    def apply(self, batch: Any) -> Any:
        out = KeyFirst.apply(self, batch)
        self.turn = (self.turn + 1) % TAGS
        return labelled(out, [self.turn] * batch_rows(out) if isinstance(out, list) else np.full(out.num_rows, self.turn))

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return columns_given(self, schema)


OVER = -1
"""In the place of a number: behind it is how many records the small side has in all."""


class Numbered(Vertex):
    """Numbers the records of the small side, as one replica."""

    def __init__(self, key: KeySelector) -> None:
        self._element = KeyFirst(key)
        self.next = 0

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        """As :meth:`KeyedVertex.schemas_of`."""
        given = None if inputs[0] is None else columns_given(self._element, inputs[0])
        nothing = None if given is None else no_rows(given)
        return () if nothing is None else (labelled(nothing, range(0)).schema,)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        out = self._element.apply(batch)
        first, self.next = self.next, self.next + batch_rows(out)
        self.send_by(0, labelled(out, range(first, self.next)), time)

    def checkpoint(self) -> int:
        return self.next

    def restore(self, state: int) -> None:
        self.next = state


class NumberedToItsEnd(Numbered, EndVertex):
    """The same, of an input that no later run opens again: says how many records there were when it has ended."""

    def on_end(self, time: Timestamp) -> None:
        self.send_by(0, [(OVER, self.next)], time)


class LeftBatches(KeyedLists):
    """Batches of the large side by their tags."""

    def __init__(self) -> None:
        super().__init__(1)

    def entries(self) -> dict[str, Entries]:
        rows = [(tag, time, pair) for tag, some in self.kept[0].items() for batch, time in some for pair in pairs_of(batch)]
        columns = {TIME: [row[1] for row in rows], "of": [row[2][0] for row in rows], "value": [row[2][1] for row in rows]}
        return {"": Entries([row[0] for row in rows], columns)}

    def put_entries(self, name: str, entries: Entries) -> None:
        found: dict[Any, list[Any]] = {}
        columns = entries.columns
        for tag, time, key, value in zip(entries.keys, columns[TIME], columns["of"], columns["value"], strict=True):
            found.setdefault((tag, time), []).append((key, value))
        for (tag, time), pairs in found.items():
            self.add(0, [(tag, pairs)], time)


class SmallSide(Everywhere):
    """All of the small side, at every replica: ``(time, numbers, batch)``.

    Args:
        pending: what waits at the same vertex.
    """

    def __init__(self, pending: Waiting) -> None:
        self._pending = pending
        self.parts: list[tuple[Timestamp, Any, Any]] = []
        self.waiting: set[Timestamp] = set()
        """Times of which something is here, and which this replica, or one from which it has come, has not handled."""
        self._numbers: set[int] = set()
        self._found: dict[Any, Matcher] = {}
        self._last: Timestamp | None = None
        """The last time of which something is here."""
        self._total: int | None = None
        """How many records there are in all; None: that has not been told."""

    def is_over(self, time: Timestamp) -> bool:
        """Whether all of the small side is here, and none of it is of a later time."""
        return len(self._numbers) == self._total and (self._last is None or self._last.sort_key() <= time.sort_key())

    def met(self, batch: Any) -> Iterator[Any]:
        """The pairs of a batch of the large side with all that is here, as batches."""
        return iter(()) if self._last is None else self.matcher(None, self._last).pairs(batch)

    def add(self, numbers: Any, batch: Any, time: Timestamp) -> None:
        """Take in what is not here yet."""
        if isinstance(batch, list) and OVER in numbers:
            at = numbers.index(OVER)
            self._total = batch[at]
            numbers, batch = numbers[:at] + numbers[at + 1 :], batch[:at] + batch[at + 1 :]
        new = [at for at, number in enumerate(numbers) if number not in self._numbers]
        if len(new) < len(numbers):
            numbers = [numbers[at] for at in new]
            batch = take_rows(batch, pa.array(new, pa.int64())) if isinstance(batch, pa.RecordBatch) else [batch[at] for at in new]
        if new:
            self._numbers.update(int(number) for number in numbers)
            self.parts.append((time, [int(number) for number in numbers], batch))
            self._last = time if self._last is None else max(self._last, time, key=Timestamp.sort_key)
            self._found.clear()

    def matcher(self, after: Timestamp | None, until: Timestamp) -> Matcher:
        """Of what came after a time (None: ever), up to a time."""
        if (after, until) not in self._found:
            self._found = {known: found for known, found in self._found.items() if known[1] == until}
            low = () if after is None else after.sort_key()
            some = [batch for time, _, batch in self.parts if low < time.sort_key() <= until.sort_key()]
            self._found[after, until] = Matcher(some)
        return self._found[after, until]

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        return [(time, numbers, stored_mixed([batch])) for time, numbers, batch in self.parts], set(self.waiting), self._total

    def restore(self, stored: Any) -> None:
        self.parts, self._numbers, self.waiting, self._last, self._total = [], set(), set(), None, None
        self._found.clear()
        self._know(stored)

    def _know(self, stored: Any) -> None:
        parts, waiting, *total = stored  # nothing told it once
        self.waiting |= waiting
        self._total = next((told for told in (self._total, *total) if told is not None), None)
        for time, numbers, batch in parts:
            self.add(numbers, taken_back_mixed(batch)[0], time)

    # -- to other replicas -----------------------------------------------------------
    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        return super().give(groups, key_groups) if self.parts or self._total is not None else None

    def take(self, given: Any) -> None:
        """Know what :meth:`give` gave as well; times that its replica had not handled wait here, too."""
        self._know(given)
        for time in given[1]:
            self._pending[time]

    # -- as a table ------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        rows = [
            (key, value, time, number)
            for time, numbers, batch in self.parts
            for number, (key, value) in zip(numbers, pairs_of(batch), strict=True)
        ]
        names = ("value", TIME, "number")
        return {"": Entries([row[0] for row in rows], {name: [row[at] for row in rows] for at, name in enumerate(names, start=1)})}

    def put_entries(self, name: str, entries: Entries) -> None:
        columns = entries.columns
        for key, value, time, number in zip(entries.keys, columns["value"], columns[TIME], columns["number"], strict=True):
            self.add([number], [(key, value)], time)


class Matcher:
    """Some of the small side, to be met: an index in columns, and a dict by key in rows, as they are asked for."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches
        self._rows: dict[Any, list[Any]] | None = None
        self._columns: tuple[Any, Any, pa.RecordBatch] | None = None
        columns = bool(batches) and all(isinstance(batch, pa.RecordBatch) for batch in batches)
        alike = columns and all(batch.schema.equals(batches[0].schema, check_metadata=True) for batch in batches)
        self.schema: pa.Schema | None = batches[0].schema if alike else None

    def __bool__(self) -> bool:
        return bool(self.batches)

    def pairs(self, left: Any) -> Iterator[Any]:
        """The pairs of a batch of the large side, as batches."""
        if not self.batches:
            return
        if self.schema is not None and isinstance(left, pa.RecordBatch) and _go_together(left.schema, self.schema):
            yield from self._in_columns(left)
            return
        out = self._in_rows(left)
        if out:
            yield out

    def _in_columns(self, left: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        keys = keyed_columns(left.schema) or 0
        if self._columns is None:
            right = one_batch(pa.Table.from_batches(self.batches))
            self._columns = (*_in_order(right, keys), right)
        codes, order, right = self._columns
        mine, positions = _in_order(left, keys)
        for at_left, at_right in matches(mine, codes):
            left_rows, right_rows = pa.array(positions[at_left]), pa.array(order[at_right])
            same = np.logical_and.reduce(
                [equal_keys(left.column(i).take(left_rows), right.column(i).take(right_rows)) for i in range(keys)]
            )
            if not same.all():
                left_rows, right_rows = left_rows.filter(pa.array(same)), right_rows.filter(pa.array(same))
            if len(left_rows):
                yield joined_batch(take_rows(left, left_rows), take_rows(right, right_rows), (left.schema, self.schema))

    def _in_rows(self, left: Any) -> list[Any]:
        if self._rows is None:
            self._rows = {}
            for batch in self.batches:
                for key, record in pairs_of(batch):
                    self._rows.setdefault(key, []).append(record)
        found, nothing = self._rows, ()
        return [(key, (record, other)) for key, record in pairs_of(left) for other in found.get(key, nothing)]


def _in_order(batch: pa.RecordBatch, keys: int) -> tuple[Any, Any]:
    """The hashes of keys in order, and their rows."""
    codes = hash_columns(batch.columns[:keys]).view(np.int64)
    order = stable_order(codes)
    return codes[order], order


def _go_together(left: pa.Schema, right: pa.Schema) -> bool:
    keys = keyed_columns(left)
    return keys == keyed_columns(right) and all(common_type(left.field(i).type, right.field(i).type) is not None for i in range(keys or 0))


class BroadcastJoin(KeyedVertex):
    """``(key, (left, right))`` for each pair of records with equal keys, at the later of their times. Port 0 takes tagged batches of the
    large side, port 1 numbered ones of the small side, which go to all replicas. What has met all of a small side that has ended is not
    kept."""

    sequential = True
    broadcast_may_repeat = True

    def __init__(self) -> None:
        self.pending = Waiting(self, Batches())
        self.left = LeftBatches()
        self.met = KeyedDict()
        """The time up to which the batches of each tag have met the small side."""
        self.right = SmallSide(self.pending)

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        left, right = (None if schema is None else no_rows(schema) for schema in inputs)
        if left is None or right is None:
            return ()
        (_, left), (_, right) = unlabelled(left), unlabelled(right)
        together = _go_together(left.schema, right.schema)
        return (joined_batch(left, right, (left.schema, right.schema)).schema,) if together else ()

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if edge == 1:
            self.pending[time]
            self.right.waiting.add(time)
            self.right.add(*unlabelled(batch), time)
        elif self.right.is_over(time):
            self._send(self.right.met(unlabelled(batch)[1]), time)
        else:
            self.pending[time].append(batch)

    def on_notify(self, time: Timestamp) -> None:
        self._meet_again(time)
        is_over = self.right.is_over(time)
        for batch in chain.from_iterable(self.pending.pieces(time)):
            for tag, part in by_tag(batch):
                self._send(self.right.matcher(None, time).pairs(part), time)
                if not is_over:
                    self.left.add(0, [(tag, part)], time)
                    self._has_met([tag], time)
        self.right.waiting.discard(time)
        if is_over:
            met = list(self.met.kept)
            self.left.drop(met)
            self.met.drop(met)

    def _meet_again(self, time: Timestamp) -> None:
        """Batches that are here meet what is new of the small side."""
        behind = [(tag, met) for tag, met in self.met.kept.items() if met.sort_key() < time.sort_key()]
        for tag, met in behind:
            new = self.right.matcher(met, time)
            for part, _ in self.left.kept[0][tag] if new else ():
                self._send(new.pairs(part), time)
        self._has_met([tag for tag, _ in behind], time)

    def _has_met(self, tags: list[int], time: Timestamp) -> None:
        with self.met.changing(tags) as met:
            met.update(dict.fromkeys(tags, time))

    def _send(self, batches: Iterable[Any], time: Timestamp) -> None:
        for batch in batches:
            self.send_by(0, batch, time)


def by_tag(batch: Any) -> Iterator[tuple[int, Any]]:
    """The parts of a batch of the large side by tag."""
    tags, records = unlabelled(batch)
    if isinstance(records, pa.RecordBatch):
        for tag in np.unique(tags).tolist():
            rows = np.flatnonzero(tags == tag)
            yield tag, records if len(rows) == len(tags) else take_rows(records, pa.array(rows))
        return
    found: dict[int, list[Any]] = {}
    for tag, pair in zip(tags, records, strict=True):
        found.setdefault(tag, []).append(pair)
    yield from found.items()


__all__ = ["BroadcastJoin", "Matcher", "Numbered", "SmallSide", "Tagged"]
