"""Running totals as a table that changes: what each update takes back, the table at the end of the input, the table every few epochs.

The input is ``(key, value)``, each key at most once in a time, and of totals whose keys end (``time_to_live``) those that have, which leave
the table. docs/design/totals.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from rayad.dataflow.operators.keys.in_order import in_order, values_by_key
from rayad.dataflow.operators.state.by_key.dicts import GrowingDict, KeyedDict
from rayad.dataflow.operators.state.group_index import chosen, groups_of_keys
from rayad.dataflow.operators.state.keyed_state import Everywhere, KeyedVertex
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.stateless import GATHERED_BYTES_MAX, Element, Gatherer
from rayad.dataflow.records.batches import batch_rows, to_rows
from rayad.dataflow.vertex import EndVertex
from rayad.progress import Timestamp

SENT_ROWS = 4096
"""The records of a batch that leaves, at most."""
SHOWN = "shown"
"""The column of a stored table that says in which epoch a key was shown last."""


def _no_order(value: Any) -> int:
    """A key comes once in a time; where a program has made one key of several, their representation decides."""
    return 0


class Table(KeyedVertex):
    """Keeps the table. Ports: updates, and the keys that have ended, as ``(key, None)``.

    Args:
        keys_end: whether keys leave the table.
    """

    sequential = True
    waits_for_siblings = False

    def __init__(self, keys_end: bool = False) -> None:
        self.pending = Waiting(self, Batches(), Batches())
        self.last: KeyedDict | GrowingDict = KeyedDict() if keys_end else GrowingDict(beside=self.pending.rows)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.pending[time][edge].append(batch)

    def _come(self, time: Timestamp) -> Iterator[tuple[dict[Any, list[Any]], list[Any]]]:
        """What a time that is complete has brought, some keys after the other: the values of each that is in the table after it, in order,
        and the keys that are not. A key may have a value and end in one time; then it has ended."""
        for piece in self.pending.pieces(time):
            values, ended = (values_by_key(map(to_rows, batches)) for batches in piece)
            for key in ended:
                values.pop(key, None)
            yield (
                {key: in_order(some, _no_order, "a table of totals") if len(some) > 1 else some for key, some in values.items()},
                list(ended),
            )

    def _put(self, values: dict[Any, list[Any]], ended: list[Any]) -> None:
        """The table after a time."""
        with self.last.changing(values) as kept:
            for key, some in values.items():
                kept[key] = some[-1]
        if ended:
            assert isinstance(self.last, KeyedDict)
            self.last.drop(ended)

    def _send(self, rows: list[Any], time: Timestamp) -> None:
        for at in range(0, len(rows), SENT_ROWS):
            self.send_by(0, rows[at : at + SENT_ROWS], time)


class TableChanges(Table):
    """``(key, (before, after))`` of each update, when its time is complete; ``before`` is None of a new key, ``after`` of one that has
    ended."""

    def on_notify(self, time: Timestamp) -> None:
        for values, ended in self._come(time):
            self._complete(time, values, ended)

    def _complete(self, time: Timestamp, values: dict[Any, list[Any]], ended: list[Any]) -> None:
        kept, out = self.last.kept_of(values), []
        for key, some in values.items():
            before = kept.get(key)
            for value in some:
                out.append((key, (before, value)))
                before = value
        out += [(key, (kept[key], None)) for key in ended if key in kept]
        self._put(values, ended)
        if out:
            self._send(out, time)


class TableAtEnd(Table, EndVertex):
    """``(key, value)``, once for each key, when the input has ended."""

    gives_records = True

    def on_notify(self, time: Timestamp) -> None:
        for values, ended in self._come(time):
            self._put(values, ended)

    def on_end(self, time: Timestamp) -> None:
        for rows in self.last.taken_out():
            self._send(rows, time)


class TableEvery(Table):
    """``(key, value)``, once for each key, at the end of every ``every`` epochs in which there was an update. Ports: as of :class:`Table`,
    then what :class:`TellUpdates` makes of each of them, for all replicas: one that has no update shows its part of the table, too.

    Args:
        every: how many epochs.
        keys_end: as of :class:`Table`.
    """

    gives_records = True
    waits_for_siblings = True
    broadcast_may_repeat = True
    may_change = frozenset({"every"})

    def __init__(self, every: int, keys_end: bool = False) -> None:
        super().__init__(keys_end)
        self.every = every
        self.last: Shown = Shown()
        self.ends = EpochsAsked(self.pending)
        self.told = 2 if keys_end else 1

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if edge < self.told:
            super().on_recv(edge, batch, time)
        elif batch_rows(batch):
            self.ends.ask(time.epoch - time.epoch % self.every + self.every - 1)

    def on_notify(self, time: Timestamp) -> None:
        for values, ended in self._come(time):
            self.last.comes(values, time.epoch)
            self._put(values, ended)
        if self.ends.come(time.epoch):
            for rows in self.last.shown(time.epoch):
                self._send(rows, time)


class EpochsAsked(Everywhere):
    """The epochs at whose end the table is to be shown.

    Args:
        waiting: what waits at the same vertex.
    """

    is_in_flight = True

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._asked: set[int] = set()

    def ask(self, epoch: int) -> None:
        """At the end of this one, too."""
        self._asked.add(epoch)
        self._waiting[Timestamp(epoch)]

    def come(self, epoch: int) -> bool:
        """An epoch is complete. Gives whether it was asked for, which is forgotten."""
        asked = epoch in self._asked
        self._asked.discard(epoch)
        return asked

    def checkpoint(self) -> list[int]:
        return sorted(self._asked)

    def restore(self, stored: Any) -> None:
        self._asked = set(stored)

    def take(self, given: Any) -> None:
        for epoch in given:
            self.ask(epoch)


class Shown(KeyedDict):
    """A table by key, and in which epoch each of its keys was shown last.

    Replicas do not show their parts at the same moment, and state moves between them; a key that moves in between must be shown once.
    One mark says it for all keys of a replica, but for those that have come from a replica with another one. All replicas have
    handled the times before one before any is notified of it (``waits_for_siblings``), so marks differ by one time that shows the table.
    """

    keeps_versions = False

    def __init__(self) -> None:
        super().__init__()
        self.mark = -1
        """The last epoch at whose end keys were shown."""
        self.uneven: dict[Any, int] = {}
        """The last such epoch of keys for which it is another one."""

    def comes(self, keys: Iterable[Any], epoch: int) -> None:
        """These keys have values of this epoch. Where the table was shown at its end already, their group came here after that."""
        if epoch <= self.mark:
            self.uneven.update((key, self.uneven.get(key, -1)) for key in keys)

    def shown(self, epoch: int) -> Iterator[list[Any]]:
        """The rows that are to be shown at the end of an epoch, some after others; they count as shown."""
        if epoch > self.mark:
            rows = ((key, value) for key, value in self.kept.items() if self.uneven.get(key, self.mark) < epoch)
            while some := list(islice(rows, SENT_ROWS)):
                yield some
            self.uneven = {key: at for key, at in self.uneven.items() if at > epoch}
            self.mark = epoch
        else:
            yield [(key, self.kept[key]) for key, at in self.uneven.items() if at < epoch]
            self.uneven = {key: epoch if at < epoch else at for key, at in self.uneven.items()}
            self.uneven = {key: at for key, at in self.uneven.items() if at != self.mark}

    def drop(self, keys: list[Any]) -> None:
        super().drop(keys)
        for key in keys:
            self.uneven.pop(key, None)

    # -- snapshots -----------------------------------------------------------------
    @property
    def _marks(self) -> tuple[int, dict[Any, int]]:
        return self.mark, dict(self.uneven)

    def checkpoint(self) -> Any:
        return super().checkpoint(), self._marks

    def restore(self, stored: Any) -> None:
        kept, marks = stored
        super().restore(kept)
        self.mark, self.uneven = marks

    def changed(self, noted: Any) -> Any:
        return super().changed(noted), self._marks

    def restore_changes(self, changes: Any) -> None:
        of_table, marks = changes
        super().restore_changes(of_table)
        self.mark, self.uneven = marks

    # -- to other replicas -----------------------------------------------------------
    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        given = super().give(groups, key_groups)
        uneven = list(self.uneven)
        leaves = chosen(groups, key_groups)[groups_of_keys(uneven, key_groups)].tolist() if uneven else []
        left = {key: self.uneven.pop(key) for key, goes in zip(uneven, leaves, strict=True) if goes}
        return None if given is None else (given, self.mark, left)

    def take(self, given: Any) -> None:
        kept, mark, uneven = given
        if not self.kept and mark > self.mark:
            self.mark = mark
        for key in uneven if mark == self.mark else self.keys_given(kept):
            at = uneven.get(key, mark)
            if at != self.mark:
                self.uneven[key] = at
        super().take(kept)

    # -- as a table ------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        found = super().entries()[""]
        marks = [self.uneven.get(key, self.mark) for key in found.keys]
        return {"": Entries(found.keys, {**found.columns, SHOWN: marks})}

    def put_entries(self, name: str, entries: Entries) -> None:
        columns = dict(entries.columns)
        marks = columns.pop(SHOWN)
        super().put_entries(name, Entries(entries.keys, columns))
        self.mark = max(marks, default=-1)
        self.uneven = {key: at for key, at in zip(entries.keys, marks, strict=True) if at != self.mark}


class TellUpdates(Element):
    """That there are updates in a time."""

    def gatherer(self, bytes_max: int = GATHERED_BYTES_MAX) -> Gatherer:
        return _TimesTold()

    def apply(self, batch: Any) -> Any:
        return [0] if batch_rows(batch) else []


class _TimesTold(Gatherer):
    """Gather each time once."""

    def __init__(self) -> None:
        self._times: dict[Timestamp, None] = {}

    @property
    def holding(self) -> bool:
        return bool(self._times)

    def add(self, time: Timestamp, batch: Any) -> list[Any]:
        if batch_rows(batch):
            self._times[time] = None
        return []

    def flush(self) -> list[tuple[Timestamp, Any]]:
        told, self._times = self._times, {}
        return [(time, [0]) for time in told]


__all__ = ["TableAtEnd", "TableChanges", "TableEvery", "TellUpdates"]
