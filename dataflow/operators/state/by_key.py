"""Rows by key: dicts whose keys come and go, dicts and sets that only grow, lists of what has come for a key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from operator import itemgetter
from typing import Any, ClassVar, Generic, TypeVar

from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.dataflow.operators.state.keyed_state import NotedState
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.dicts import DictAtEpochs
from rayad.dataflow.operators.state.reads.lists import SIDES, ListsAtEpochs
from rayad.dataflow.operators.state.reads.seen import PairsAtEpochs
from rayad.dataflow.operators.state.rows import Named, RowsByKey
from rayad.dataflow.operators.state.stored_rows import FEW_ROWS, StoredRows, plain_and_few
from rayad.dataflow.operators.state.tables import TIME, Entries, Opening, Whole, dict_of_entries, entries_of_dict
from rayad.dataflow.operators.state.touched_keys import Additions, TouchedKeys, now_and_gone
from rayad.dataflow.operators.state.versions import Tracked, Versions

Kept = TypeVar("Kept")


class Changing(Generic[Kept]):
    """What a form gives to be changed within a ``with``. When that ends the keys are noted: they are part of the next increment."""

    __slots__ = ("_kept", "_note")

    def __init__(self, kept: Kept, note: Callable[[], None]) -> None:
        self._kept = kept
        self._note = note

    def __enter__(self) -> Kept:
        return self._kept

    def __exit__(self, *_: object) -> None:
        self._note()


class DictByKey(RowsByKey):
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
        self._opening: Opening = Whole() if opening is None else opening

    @abstractmethod
    def note(self, items: Collection[Any], kept: int) -> None:
        """Note keys: the items of a collection, which must stay as it is, and how many keys there are now. For the form's own methods."""

    @property
    def kept(self) -> Mapping[Any, Any]:
        """To be read."""
        return self._kept

    def changing(self, keys: Collection[Any]) -> Changing[MutableMapping[Any, Any]]:
        """The dict, for the values of these keys to be put, changed or removed. ``keys`` may be filled meanwhile; then it must stay as it
        is.

        >>> totals = KeyedDict()
        >>> with totals.changing(["a"]) as kept:
        ...     kept["a"] = 1
        >>> totals.kept
        {'a': 1}
        """
        kept = self._kept
        given: MutableMapping[Any, Any] = kept if self.versions is None else Tracked(kept, self.versions)
        return Changing(given, lambda: self.note(keys, len(kept)))

    def before_change(self, keys: Iterable[Any]) -> None:
        """These are about to be changed, other than within :meth:`changing`: by the form's own methods, or in place by user code."""
        if self.versions is not None:
            for key in keys:
                self.versions.note(key, self._kept)

    def at_epochs(self, epochs: Epochs) -> AtEpochs | None:
        return DictAtEpochs(self, epochs) if self.keeps_versions else None

    def entries(self) -> dict[str, Entries]:
        return self.entries_of(self._kept)

    def entries_of(self, kept: Mapping[Any, Any]) -> dict[str, Entries]:
        """What :meth:`entries` gives where this is kept."""
        return entries_of_dict(kept, self._opening)

    def put_entries(self, name: str, entries: Entries) -> None:
        self._kept.update(dict_of_entries(entries, self._opening))

    def taken_out(self) -> list[tuple[Any, Any]]:
        """All of it, which is gone then: what is sent at the end must not be sent again by a replica to which a key moves after that."""
        rows = list(self._kept.items())
        self.before_change(self._kept)
        self._kept = {}
        self.forget_changes()
        return rows

    @property
    def is_used(self) -> bool:
        return bool(self._kept)

    def named(self) -> Named:
        return {"": self._kept}

    def put_in(self, name: str, some: Any) -> None:
        self._kept.update(some)


class KeyedDict(NotedState, DictByKey):
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

    def note(self, items: Collection[Any], kept: int) -> None:
        self._noted.note(items, kept)
        # any of them may have gone and come again, and so stand elsewhere in the dict
        self._indices.removed(self._kept, items if self._key is None else map(self._key, items))

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
        """Numbers are pickled faster than a process is forked and its pages are copied."""
        return self._stored.inline

    def checkpoint(self) -> Any:
        return self._stored.checkpoint(self._kept)

    def restore(self, stored: Any) -> None:
        self._kept = self._stored.restore(stored)

    def take_changes(self) -> Callable[[], Any] | None:
        return self._stored.take(self._kept, self._beside())

    def restore_changes(self, changes: Any) -> None:
        self._stored.restore_changes(self._kept, changes)

    def forget_changes(self) -> None:
        self._stored.forget()

    def that_drops(self) -> KeyedDict:
        return KeyedDict(opening=self._opening)


class GrowingSet(NotedState, RowsByKey):
    """``(key, something)`` pairs that stay.

    >>> seen = GrowingSet()
    >>> seen.add([("a", 1)]); seen.take_changes() is None, seen.give(frozenset({0}), 1), seen.kept
    (True, [('a', 1)], set())
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[Any] = set()
        self._noted: Additions = Additions()
        self.came: Callable[[list[Any]], None] | None = None
        """Told of the pairs that come; None: nobody has read yet."""

    def at_epochs(self, epochs: Epochs) -> AtEpochs:
        return PairsAtEpochs(self, epochs)

    @property
    def is_used(self) -> bool:
        return bool(self.kept)

    def new(self, pairs: Iterable[Any]) -> list[Any]:
        """Those of these pairs that are not here."""
        kept = self.kept
        return [pair for pair in pairs if pair not in kept]

    def that_drops(self) -> KeyedSets:
        return KeyedSets()

    def add(self, pairs: list[Any]) -> None:
        """Keep these, which are new."""
        self.kept.update(pairs)
        self._noted.note(pairs, len(pairs), len(self.kept))
        self._indices.added(self.kept, pairs)
        if self.came is not None:
            self.came(pairs)

    def named(self) -> Named:
        return {"": self.kept}

    def put_in(self, name: str, some: Any) -> None:
        self.add(list(some))

    def changed(self, noted: list[list[Any]]) -> Any:
        return [pair for pairs in noted for pair in pairs]

    def entries(self) -> dict[str, Entries]:
        pairs = originals(self.kept)
        return {"": Entries([key for key, _ in pairs], {"value": [value for _, value in pairs]})}

    def put_entries(self, name: str, entries: Entries) -> None:
        self.kept.update(comparable(list(zip(entries.keys, entries.columns["value"], strict=True))))


class KeyedSets(KeyedDict):
    """Ordered sets by key, ``{key: {element: None, ...}}``, whose keys come and go. They move to other replicas as pairs.

    >>> seen = KeyedSets()
    >>> seen.add([("a", 1), ("a", 2), ("b", 1)]); seen.drop(["a"])
    >>> seen.new([("a", 1), ("b", 1)])
    [('a', 1)]
    """

    has_one_row = False

    def new(self, pairs: Iterable[Any]) -> list[Any]:
        """Those of these pairs that are not here."""
        kept, nothing = self._kept, ()
        return [pair for pair in pairs if pair[1] not in kept.get(pair[0], nothing)]

    def add(self, pairs: list[Any]) -> None:
        """Keep these, which are new."""
        self.before_change(key for key, _ in pairs)
        self.put_in("", _by_key(pairs))
        self.note([key for key, _ in pairs], len(self._kept))

    def unshaped(self, stored: Any) -> Named:
        """Also of pairs, as columns give them."""
        return {"": stored if isinstance(stored, dict) else _by_key(stored)}

    def put_in(self, name: str, some: Any) -> None:
        for key, values in some.items():
            self._kept.setdefault(key, {}).update(values)

    def entries_of(self, kept: Mapping[Any, Any]) -> dict[str, Entries]:
        pairs = originals((key, value) for key, some in kept.items() for value in some)
        return {"": Entries([key for key, _ in pairs], {"value": [value for _, value in pairs]})}

    def put_entries(self, name: str, entries: Entries) -> None:
        self.add(comparable(list(zip(entries.keys, entries.columns["value"], strict=True))))


def _by_key(pairs: Iterable[Any]) -> dict[Any, dict[Any, None]]:
    out: dict[Any, dict[Any, None]] = {}
    for key, value in pairs:
        out.setdefault(key, {})[value] = None
    return out


class KeyedLists(NotedState, RowsByKey):
    """What has come for each key, for several sides: ``{key: [(value, mark), ...]}`` of each.

    >>> sides = KeyedLists(2)
    >>> sides.add(1, [("a", 7)], "now"); sides.kept, sides.rows
    (({}, {'a': [(7, 'now')]}), 1)
    """

    def __init__(self, sides: int) -> None:
        super().__init__()
        self._kept: tuple[dict[Any, list[Any]], ...] = tuple({} for _ in range(sides))
        self.rows = 0
        self._noted: Additions = Additions()
        self.before_drop: Callable[[list[Any]], None] | None = None
        """Told of the keys that are about to be dropped; None: nobody has read yet."""

    @property
    def parts_read(self) -> tuple[str, ...]:
        return SIDES if len(self._kept) == len(SIDES) else ()

    def at_epochs(self, epochs: Epochs) -> AtEpochs | None:
        return ListsAtEpochs(self, epochs) if len(self._kept) == len(SIDES) else None

    @property
    def kept(self) -> tuple[Mapping[Any, list[Any]], ...]:
        """To be read, by side."""
        return self._kept

    @property
    def is_used(self) -> bool:
        return any(self._kept)

    def add(self, side: int, pairs: list[Any], mark: Any) -> None:
        """Keep ``(key, value)`` pairs of a side, each with ``mark``."""
        with self.adding(side, pairs, mark) as mine:
            for key, value in pairs:
                mine.setdefault(key, []).append((value, mark))

    def adding(self, side: int, pairs: list[Any], mark: Any) -> Changing[dict[Any, list[Any]]]:
        """A side, for these to be added by a loop of the operator's as :meth:`add` does it. ``pairs`` must stay as they are."""
        return Changing(self._kept[side], lambda: self._note(side, pairs, mark))

    def _note(self, side: int, pairs: list[Any], mark: Any) -> None:
        self.rows += len(pairs)
        self._noted.note((side, pairs, mark), len(pairs), self.rows)

    def that_drops(self) -> KeyedLists:
        return self

    def drop(self, keys: list[Any]) -> None:
        if self.before_drop is not None:
            self.before_drop(keys)
        for kept in self._kept:
            for key in keys:
                self.rows -= len(kept.pop(key, ()))
            self._indices.removed(kept, keys)
        self._noted.note((None, keys, None), len(keys), self.rows)

    def changed(self, noted: list[Any]) -> Any:
        return noted

    def restore_changes(self, changes: Any) -> None:
        for side, pairs, mark in changes:
            if side is None:
                self.drop(pairs)
            else:
                self.add(side, pairs, mark)

    def named(self) -> Named:
        return dict(enumerate(self._kept))

    def shaped(self, named: Named) -> Any:
        return tuple(named.get(side, {}) for side in range(len(self._kept)))

    def unshaped(self, stored: Any) -> Named:
        return dict(enumerate(stored))

    def put_in(self, name: int, some: Any) -> None:
        kept = self._kept[name]
        for key, values in some.items():
            if key in kept:
                kept[key].extend(values)
            else:
                kept[key] = values  # a new list for each would set off the garbage collector
        self.rows += values_of([some])

    def left(self, given: Named) -> None:
        self.rows -= values_of(given.values())

    def _names(self) -> list[str]:
        return list(SIDES) if len(self._kept) == len(SIDES) else [f"side{side}" for side in range(len(self._kept))]

    def entries(self) -> dict[str, Entries]:
        out = {}
        for name, side in zip(self._names(), self._kept, strict=True):
            rows = [(key, mark, value) for key, some in side.items() for value, mark in some]
            out[name] = Entries([key for key, _, _ in rows], {TIME: [mark for _, mark, _ in rows], "value": [row[2] for row in rows]})
        return out

    def put_entries(self, name: str, entries: Entries) -> None:
        side = self._kept[self._names().index(name)]
        for key, time, value in zip(entries.keys, entries.columns[TIME], entries.columns["value"], strict=True):
            side.setdefault(key, []).append((value, time))
        self.rows += len(entries.keys)


def values_of(sides: Iterable[dict[Any, list[Any]]]) -> int:
    """How many values dicts of lists have."""
    return sum(len(kept) for side in sides for kept in side.values())


__all__ = ["Changing", "DictByKey", "GrowingDict", "GrowingSet", "KeyedDict", "KeyedLists", "KeyedSets", "values_of"]
