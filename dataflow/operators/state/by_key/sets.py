"""Sets by key: one that only grows, and ordered ones whose keys come and go. What does not fit in memory is in sorted runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from rayad.dataflow.operators.state.beyond_memory import NotedBeyondMemory
from rayad.dataflow.operators.state.by_key.beyond_memory import RowsAboveRuns
from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.by_key.rows import Named
from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.seen import PairsAtEpochs
from rayad.dataflow.operators.state.runs.above_runs import RunsBelow
from rayad.dataflow.operators.state.runs.pairs_below import PairsBelow
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.operators.state.touched_keys import Additions


class GrowingSet(NotedBeyondMemory[RunsBelow[PairsBelow]], RowsAboveRuns[RunsBelow[PairsBelow]]):
    """``(key, something)`` pairs that stay. Beyond a bound on memory they are in runs, where they are looked up and stay.

    >>> seen = GrowingSet()
    >>> seen.add([("a", 1)]); seen.take_changes() is None, seen.give(frozenset({0}), 1), list(seen.kept)
    (True, [('a', 1)], [])
    """

    def __init__(self) -> None:
        super().__init__(RunsBelow(PairsBelow))
        self._kept: set[Any] = set()
        """What is in memory."""
        self._noted: Additions = Additions()
        self.came: PairsAtEpochs | None = None
        """Told of the pairs that come; None: nobody has read yet."""

    def at_epochs(self, epochs: Epochs) -> AtEpochs:
        return PairsAtEpochs(self, epochs)

    @property
    def kept(self) -> Collection[Any]:
        """All pairs, to be read."""
        return self._kept if self._below.runs is None else [*self._kept, *self.pairs_below()]

    def in_memory(self) -> Collection[Any]:
        """Those in memory, to be read."""
        return self._kept

    def pairs_below(self, keys: Iterable[Any] | None = None) -> Iterator[Any]:
        """The pairs that are not in memory, perhaps only those of these keys and of some others."""
        return iter(()) if self._below.runs is None else self._below.runs.pairs_here(keys)

    @property
    def is_used(self) -> bool:
        return bool(self._kept) or self.is_beyond_memory

    def not_in_memory(self, pairs: Iterable[Any]) -> list[Any]:
        """Those of these pairs that :meth:`new` may give: to be asked first, since files are slower."""
        kept = self._kept
        return [pair for pair in pairs if pair not in kept]

    def new(self, pairs: Iterable[Any]) -> list[Any]:
        """Those of these pairs, which differ, that are not here."""
        fresh = self.not_in_memory(pairs)
        if self._below.runs is None or not fresh:
            return fresh
        known = self._below.runs.known(fresh).tolist()
        return [pair for pair, is_known in zip(fresh, known, strict=True) if not is_known]

    def that_drops(self) -> KeyedSets:
        return KeyedSets()

    def add(self, pairs: list[Any]) -> None:
        """Keep these, which are new."""
        self._kept.update(pairs)
        self._size.changed(len(pairs))
        self._noted.note(pairs, len(pairs), len(self._kept))
        self._indices.added(self._kept, pairs)
        if self.came is not None:
            self.came.add(pairs)

    def named(self) -> Named:
        return {"": self._kept}

    def put_in(self, name: str, some: Any) -> None:
        self.add(list(some))

    def put_below(self) -> None:
        """Raises NotColumns where a pair has no hash that is the same everywhere."""
        self._below.made().put_pairs(self._kept)
        self._kept = set()
        self._indices.forget()
        self.forget_changes()
        if self.came is not None:
            self.came.begin_anew()

    def changed(self, noted: list[list[Any]]) -> Any:
        return [pair for pairs in noted for pair in pairs]

    # -- as a table --------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        pairs = originals(self.kept)
        return {"": Entries([key for key, _ in pairs], {"value": [value for _, value in pairs]})}

    def put_entries(self, name: str, entries: Entries) -> None:
        self._kept.update(comparable(list(zip(entries.keys, entries.columns["value"], strict=True))))


class KeyedSets(KeyedDict):
    """Ordered sets by key, ``{key: {element: None, ...}}``, whose keys come and go. They move to other replicas as pairs.

    >>> seen = KeyedSets()
    >>> seen.add([("a", 1), ("a", 2), ("b", 1)]); seen.drop(["a"])
    >>> seen.new([("a", 1), ("b", 1)])
    [('a', 1)]
    """

    has_one_row = False

    def not_in_memory(self, pairs: Iterable[Any]) -> list[Any]:
        """Those of these pairs that :meth:`new` may give."""
        kept, nothing = self._kept, ()
        return [pair for pair in pairs if pair[1] not in kept.get(pair[0], nothing)]

    def new(self, pairs: Iterable[Any]) -> list[Any]:
        """Those of these pairs that are not here."""
        pairs = list(pairs)
        self.fetch(key for key, _ in pairs)
        return self.not_in_memory(pairs)

    def add(self, pairs: list[Any]) -> None:
        """Keep these, which are new."""
        self.fetch(key for key, _ in pairs)
        self.before_change(key for key, _ in pairs)
        self.put_in("", _by_key(pairs))
        self._size.changed(len(pairs))
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


__all__ = ["GrowingSet", "KeyedSets"]
