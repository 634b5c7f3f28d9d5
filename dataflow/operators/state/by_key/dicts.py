"""Dicts by key: those whose keys come and go, and those that only grow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from operator import itemgetter
from typing import Any, ClassVar

from rayad.dataflow.operators.state.by_key.beyond_memory import NotedRowsBeyondMemory, RowsBeyondMemory
from rayad.dataflow.operators.state.by_key.changing import Changing
from rayad.dataflow.operators.state.by_key.rows import Named
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.dicts import DictAtEpochs
from rayad.dataflow.operators.state.runs.above_runs import Beyond
from rayad.dataflow.operators.state.runs.dict_above_runs import AboveRuns
from rayad.dataflow.operators.state.runs.values_below import keys_of
from rayad.dataflow.operators.state.stored_rows import FEW_ROWS, StoredRows, plain_and_few
from rayad.dataflow.operators.state.tables import Entries, Opening, Whole, dict_of_entries, entries_of_dict
from rayad.dataflow.operators.state.touched_keys import TouchedKeys, now_and_gone
from rayad.dataflow.operators.state.versions import Tracked, Versions


class DictByKey(RowsBeyondMemory):
    """A dict by key, what is known of the groups of its keys while a change of layout is under way, and former values while others read."""

    keeps_versions: ClassVar[bool] = True
    """Whether what it keeps is all in the dict, so that others can read it at an epoch."""
    has_one_row: ClassVar[bool] = True
    """Whether a key has one row in the table."""
    versions: Versions | None = None
    """What changed keys had before; None: nobody has read yet (``live.py``)."""

    def __init__(self, opening: Opening | None = None) -> None:
        super().__init__()
        self._kept: dict[Any, Any] = {}
        """What is in memory: all, but beyond a bound on it."""
        self._opening: Opening = Whole() if opening is None else opening

    @abstractmethod
    def note(self, items: Collection[Any], kept: int) -> None:
        """Note keys: the items of a collection, which must stay as it is, and how many keys there are now. For the form's own methods."""

    @property
    def kept(self) -> Mapping[Any, Any]:
        """To be read. What does not fit in memory is looked up key by key: :meth:`kept_of` looks up many at once."""
        return self._everything()

    def kept_of(self, keys: Collection[Any]) -> Mapping[Any, Any]:
        """To be read, for these keys above all."""
        self.fetch(keys)
        return self._everything()

    def fetch(self, keys: Iterable[Any]) -> None:
        if self._below.runs is not None:
            self._up(self._below.up(keys, self._kept))

    def to_add_to(self, items: int) -> MutableMapping[Any, Any]:
        """The dict, to which so many items are about to be added by a form that notes them itself."""
        self._size.changed(items)
        return self._everything()

    def _everything(self) -> MutableMapping[Any, Any]:
        runs = self._below.runs
        return self._kept if runs is None else AboveRuns(self._kept, runs, self._below.absent, self.fetch)

    def keys_of(self, items: Collection[Any]) -> Iterable[Any]:
        """The keys of what is noted."""
        return items

    def changing(self, keys: Collection[Any]) -> Changing[MutableMapping[Any, Any]]:
        """The dict, for the values of these keys to be put, changed or removed. ``keys`` may be filled meanwhile; then it must stay as it
        is. Those that are there at once are looked up at once, where most of the dict is on disk.

        >>> totals = KeyedDict()
        >>> with totals.changing(["a"]) as kept:
        ...     kept["a"] = 1
        >>> totals.kept
        {'a': 1}
        """
        kept: MutableMapping[Any, Any] = self._kept
        if self._below.runs is not None:
            self.fetch(self.keys_of(keys))
            kept = self._everything()
        given = kept if self.versions is None else Tracked(kept, self.versions)
        return Changing(given, lambda: self._note_changed(keys))

    def _note_changed(self, keys: Collection[Any]) -> None:
        self._size.changed(len(keys))
        self.note(keys, len(self._kept))

    def before_change(self, keys: Iterable[Any]) -> None:
        """These are about to be changed, other than within :meth:`changing`: by the form's own methods, or in place by user code."""
        if self.versions is not None:
            keys = list(keys)
            kept = self.kept_of(keys)
            for key in keys:
                self.versions.note(key, kept)

    def at_epochs(self, epochs: Epochs) -> AtEpochs | None:
        return DictAtEpochs(self, epochs) if self.keeps_versions else None

    # -- beyond memory ---------------------------------------------------------------
    def in_memory(self) -> Mapping[Any, Any]:
        return self._kept

    def by_key(self) -> dict[Any, Any]:
        return self._kept

    def all_gone_down(self) -> None:
        self._kept = {}

    def go_up(self, came: Mapping[Any, Any]) -> None:
        self._kept.update(came)

    # -- to other replicas -------------------------------------------------------------
    def keys_given(self, given: Any) -> Iterable[Any]:
        """The keys of what :meth:`give` gave."""
        if not isinstance(given, Beyond):
            return given  # type: ignore[no-any-return]
        return [*(given.rows or ()), *keys_of(given.runs)]

    # -- as a table --------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        return self.entries_of(self.kept)

    def entries_of(self, kept: Mapping[Any, Any]) -> dict[str, Entries]:
        """What :meth:`entries` gives where this is kept."""
        return entries_of_dict(kept, self._opening)

    def put_entries(self, name: str, entries: Entries) -> None:
        self._kept.update(dict_of_entries(entries, self._opening))

    def taken_out(self) -> Iterator[list[tuple[Any, Any]]]:
        """All of it, some after others, which is gone then: what is sent at the end must not be sent again by a replica to which a key
        moves after that."""
        for _ in self.last_parts():
            rows = list(self._kept.items())
            self.before_change(self._kept)
            self.all_gone_down()
            if rows:
                yield rows

    @property
    def is_used(self) -> bool:
        return bool(self.kept)

    def named(self) -> Named:
        return {"": self._kept}

    def put_in(self, name: str, some: Any) -> None:
        self._kept.update(some)


class KeyedDict(NotedRowsBeyondMemory, DictByKey):
    """A value by key; keys come and go.

    Args:
        of_pairs: whether what is noted are pairs, of which the first is the key, and not keys.
        opening: as of :class:`GrowingDict`.

    >>> totals = KeyedDict()
    >>> totals.take_changes() is None
    True
    >>> with totals.changing(["a", "b"]) as kept:
    ...     kept.update(a=1, b=2)
    >>> changes = totals.take_changes()()
    >>> again = KeyedDict()
    >>> again.restore_changes(changes); again.kept == totals.kept
    True
    """

    def __init__(self, *, of_pairs: bool = False, opening: Opening | None = None) -> None:
        super().__init__(opening)
        self._key = itemgetter(0) if of_pairs else None
        self._noted: TouchedKeys = TouchedKeys(self._key)

    def keys_of(self, items: Collection[Any]) -> Iterable[Any]:
        return items if self._key is None else map(self._key, items)

    def note(self, items: Collection[Any], kept: int) -> None:
        self._noted.note(items, kept)
        # any of them may have gone and come again, and so stand elsewhere in the dict
        self._indices.removed(self._kept, self.keys_of(items))

    @property
    def inline(self) -> bool:
        """However many keys have come, numbers of few keys are pickled faster than a process is forked."""
        return plain_and_few(self._kept, FEW_ROWS)

    def changed(self, noted: Callable[[], Iterable[Any]]) -> Any:
        return now_and_gone(noted(), self._kept)

    def restore_changes(self, changes: Any) -> None:
        now, gone = changes
        self._kept.update(now)
        for key in gone:
            self._kept.pop(key, None)

    def that_drops(self) -> KeyedDict:
        return self

    def drop(self, keys: list[Any]) -> None:
        self.fetch(keys)
        self.before_change(keys)
        for key in keys:
            self._kept.pop(key, None)
        self.note(keys if self._key is None else [(key, None) for key in keys], len(self._kept))


class GrowingDict(DictByKey):
    """A value by key, of keys that stay: keys are stored once, when they are new, and numbers by position (``stored_rows``).

    Args:
        beside: how many rows are stored beside it.
        opening: how a value becomes columns of a table; by default it is one.
    """

    def __init__(self, beside: Callable[[], int] = int, *, opening: Opening | None = None) -> None:
        super().__init__(opening)
        self._beside = beside
        self._stored = StoredRows()

    def note(self, items: Collection[Any], kept: int) -> None:
        self._stored.note(items, kept)

    @property
    def inline(self) -> bool:
        """Numbers are pickled faster than a process is forked and its pages are copied. With runs nobody has looked whether they are."""
        return self._below.runs is None and self._stored.inline

    def rows_stored(self) -> Any:
        return self._stored.checkpoint(self._kept)

    def restore_rows(self, stored: Any) -> None:
        self._kept = self._stored.restore(stored)

    def take_changes(self) -> Callable[[], Any] | None:
        """What is in runs is never part of an increment."""
        return self._stored.take(self._kept, self._beside()) if self._below.runs is None else None

    def restore_changes(self, changes: Any) -> None:
        self._stored.restore_changes(self._kept, changes)

    def forget_changes(self) -> None:
        self._stored.forget()

    def that_drops(self) -> KeyedDict:
        return KeyedDict(opening=self._opening)


__all__ = ["DictByKey", "GrowingDict", "KeyedDict"]
