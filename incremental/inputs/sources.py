"""Where collections begin: changes that somebody sends, and records that replace those before them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.dicts import DictAtEpochs
from rayad.dataflow.operators.state.tables import Entries
from rayad.incremental.columns.beginning import PresentColumns
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.incremental.reads import InRows, Shown
from rayad.incremental.records import absent
from rayad.incremental.traces import add
from rayad.progress import DataflowError, Timestamp, show


class Counts:
    """How often records are there, in rows; each has None as its value. See ``reads.InRows``.

    Args:
        counts: by record.
    """

    def __init__(self, counts: KeyedDict) -> None:
        self._counts = counts

    def keys(self) -> Iterable[Any]:
        """All records."""
        return self._counts.kept

    def there(self, key: Any) -> dict[Any, int]:
        """How often a record is there."""
        count = self._counts.kept.get(key, 0)
        return {None: count} if count else {}

    def changed(self, there: dict[Any, int] | None, value: Any, weight: int, vector: Any) -> dict[Any, int]:
        """One more change of it."""
        count = (there or {}).get(None, 0) + weight
        return {None: count} if count else {}


class Present(MomentVertex):
    """Lets changes pass that leave of each record as many as there are, or none. Records come as keys."""

    why_unreadable = ""

    def __init__(self) -> None:
        super().__init__(PresentColumns())
        self.there = KeyedDict()
        """How often each record is there."""

    def rows_are_kept(self) -> bool:
        return bool(self.there.kept)

    def keep_rows(self, name: str, before: dict[Any, Any], now: dict[Any, Any], time: Timestamp | None) -> None:
        with self.there.changing(list(before)) as counts:
            counts.update({record: values[None][()] for record, values in before.items()})

    def keeps(self) -> str:
        """See there."""
        return "how often each record is there"

    def shown(self) -> Shown | None:
        """See there."""
        return Shown(None, has_one_row=True)

    def results_of(self, key: Any, there: Sequence[Any]) -> Iterable[tuple[Any, int]]:
        """See there."""
        return (there[0] or {}).items()

    def inputs_in_rows(self) -> Sequence[InRows]:
        """See there."""
        return [Counts(self.there)]

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Raises DataflowError for a record that is removed and is not there."""
        out = [(record, weight) for (record, _), weight in arrived[0].items()]
        with self.there.changing([record for record, _ in out]) as counts:
            for record, weight in out:
                add(counts, record, weight)
                if counts.get(record, 0) < 0:
                    raise absent(record, weight, counts[record] - weight, time.epoch)
        self.send_changes(time, out)


class Newest(KeyedDict):
    """The newest record of each key. Those that are gone are kept, and no table of a running job shows them.

    Args:
        is_gone: whether a record says that its key is gone.
    """

    def __init__(self, is_gone: Callable[[Any], bool]) -> None:
        super().__init__()
        self._is_gone = is_gone

    def at_epochs(self, epochs: Epochs) -> AtEpochs:
        return NewestAtEpochs(self, epochs, self._is_gone)


class NewestAtEpochs(DictAtEpochs):
    """The newest records that are not gone.

    Args:
        table: of these.
        is_gone: as there.
    """

    def __init__(self, table: KeyedDict, epochs: Epochs, is_gone: Callable[[Any], bool]) -> None:
        super().__init__(table, epochs)
        self._is_gone = is_gone

    def rows_of(self, kept: Mapping[Any, Any]) -> Entries:
        """See there."""
        return super().rows_of({key: record for key, record in kept.items() if record is not None and not self._is_gone(record)})


class Upsert(MomentVertex):
    """The newest record of each key replaces the one before it.

    Args:
        order: gives what is compared; None: there may be one record of a key in an epoch.
        deleted: whether a record says that its key is gone.
    """

    why_unreadable = ""

    def __init__(self, order: Callable[[Any], Any] | None, deleted: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self.newest = Newest(self._is_gone)
        """By key, also of one that is gone where a later record may be older."""
        self._order = order
        self._deleted = deleted

    def keeps(self) -> str:
        """See there."""
        return "the newest record of each key"

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Raises DataflowError for two records of a key in one epoch that have no order."""
        records: dict[Any, list[Any]] = {}
        for key, record in arrived[0]:
            records.setdefault(key, []).append(record)
        out: list[tuple[Any, int]] = []
        with self.newest.changing(list(records)) as kept:
            for key, some in records.items():
                if self._order is None and len(some) > 1:
                    raise DataflowError(
                        f"{len(some)} records of key {show(key, 60)} came in epoch {time.epoch}, {show(some[0], 60)} and "
                        f"{show(some[1], 60)} among them: which is the newest? Give as_collection(order=...)"
                    )
                before = kept.get(key)
                newest = some[0] if self._order is None else max([*some, *([] if before is None else [before])], key=self._order)
                if newest == before:
                    continue
                out += [
                    (record, weight) for record, weight in ((before, -1), (newest, 1)) if record is not None and not self._is_gone(record)
                ]
                if self._order is None and self._is_gone(newest):
                    kept.pop(key, None)
                else:
                    kept[key] = newest
        self.send_changes(time, out)

    def _is_gone(self, record: Any) -> bool:
        return self._deleted is not None and bool(self._deleted(record))


__all__ = ["Present", "Upsert"]
