"""Sets by key: one that only grows, and ordered ones whose keys come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.by_key.rows import Named, RowsByKey
from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.dataflow.operators.state.keyed_state import NotedState
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.seen import PairsAtEpochs
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.operators.state.touched_keys import Additions


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
        pairs = list(pairs)
        self._fetch(key for key, _ in pairs)
        kept, nothing = self._kept, ()
        return [pair for pair in pairs if pair[1] not in kept.get(pair[0], nothing)]

    def add(self, pairs: list[Any]) -> None:
        """Keep these, which are new."""
        self._fetch(key for key, _ in pairs)
        self.before_change(key for key, _ in pairs)
        self.put_in("", _by_key(pairs))
        self._below.size.changed(len(pairs))
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
