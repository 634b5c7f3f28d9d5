"""Rows: Python values by key, in one dict or in several that have names, such as windows and sides.

What is stored, what is given to a sibling and what it takes have one shape, so a form says what it keeps (``named``), how that is shaped,
and how more is put in; how it is stored, restored, indexed, given and taken is written here once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from rayad.dataflow.operators.state.group_index import GroupIndices
from rayad.dataflow.operators.state.two_forms import RowForm

Named = Mapping[Any, Any]
"""By name a dict by key, or a set of ``(key, something)`` pairs: of what is kept itself, of what is given any iterable of pairs."""


class RowsByKey(RowForm):
    """State in dicts by key, or in a set of pairs.

    Laws: ``shaped(unshaped(x)) == x`` of what is stored; what :meth:`put_in` is given of a name is in the dict of that name afterwards.
    """

    def __init__(self) -> None:
        self._indices = GroupIndices()

    @abstractmethod
    def named(self) -> Named:
        """What is kept, by name."""

    def shaped(self, named: Named) -> Any:
        """What is kept as it is stored and given; of a name that is not there nothing is. By default there is one, ""."""
        return named[""]

    def unshaped(self, stored: Any) -> Named:
        """The inverse of :meth:`shaped`."""
        return {"": stored}

    @abstractmethod
    def put_in(self, name: Any, some: Any) -> None:
        """Rows have come from a snapshot or a sibling."""

    def left(self, given: Named) -> None:
        """These rows have left."""

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        return self.shaped(self.named())

    # -- to other replicas -----------------------------------------------------------
    def index(self, key_groups: int) -> Iterator[None]:
        return self._indices.slices(self.named().values(), key_groups)

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        out = {name: self._indices.taken_out(kept, groups, key_groups) for name, kept in self.named().items()}
        given = {name: some for name, some in out.items() if some}
        self.left(given)
        return self.shaped(given) if given else None

    def take(self, given: Any) -> None:
        named = self.named()
        for name, some in self.unshaped(given).items():
            if name in named:
                self._indices.removed(named[name], some)
            self.put_in(name, some)

    def gave(self) -> None:
        self._indices.forget()


__all__ = ["Named", "RowsByKey"]
