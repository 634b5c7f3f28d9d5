"""The records of both sides of a join in columns: of each side a schema, and sorted runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from rayad.dataflow.operators.joins.pairs import NotColumnar, common_schema
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.operators.state.two_forms import ColumnForm
from rayad.dataflow.records.batches import keyed_columns
from rayad.dataflow.records.key_hashing import DEFAULT_KEY_GROUPS

Side = TypeVar("Side", bound=Runs)


class BothSides(ColumnForm, Generic[Side]):
    """Two :class:`Runs`, left and right, each made when the schema of its records is known."""

    has_moments = True
    """Whether moments are behind the keys."""

    def __init__(self) -> None:
        self.schemas: list[pa.Schema | None] = [None, None]
        self.sides: list[Side | None] = [None, None]

    @abstractmethod
    def made(self, side: int, schema: pa.Schema) -> Side:
        """A side in which nothing is yet."""

    @property
    def rows(self) -> int:
        """Records kept."""
        return sum(runs.count for runs in self.sides if runs is not None)

    @property
    def is_used(self) -> bool:
        return self.rows > 0

    def keys(self, side: int) -> int:
        """Columns of keys."""
        return keyed_columns(self.schemas[side]) or 0

    def side(self, side: int) -> Side:
        """A side whose schema is known."""
        runs = self.sides[side]
        assert runs is not None
        return runs

    def check(self, side: int, batches: Sequence[pa.RecordBatch]) -> None:
        """Raises NotColumnar, with nothing changed, unless these go together with each other and with what is kept."""
        self._learn(side, common_schema(side, batches, self.schemas, moments=self.has_moments))

    def learn_both(self, schemas: Sequence[pa.Schema | None]) -> None:
        """What records look like, for sides of which that is not known."""
        for side, schema in enumerate(schemas):
            if schema is not None:
                self._learn(side, schema)

    def _learn(self, side: int, schema: pa.Schema) -> None:
        if self.sides[side] is None:
            self.schemas[side] = schema
            runs = self.sides[side] = self.made(side, schema)
            for other in self._there():
                runs.place_by(other.key_groups)

    # -- beyond memory ---------------------------------------------------------------
    def runs(self) -> Iterable[Runs]:
        """Those of both sides."""
        return self._there()

    @property
    def noted_bytes(self) -> int:
        return sum(runs.noted_bytes for runs in self._there())

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        """The schema and the runs of each side."""
        return list(self.schemas), [runs and runs.checkpoint() for runs in self.sides]

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave."""
        schemas, sides = state
        self.learn_both(schemas)
        self._put(Runs.restore.__name__, sides)
        others = [runs.key_groups for runs in self._there() if runs.key_groups != DEFAULT_KEY_GROUPS]
        for runs in self._there() if others else ():  # a side of which nothing is in a file does not know
            runs.place_by(others[0])

    def take_changes(self) -> Callable[[], Any] | None:
        """The records that have come since the last call; None when these are most of them, or not known."""
        changed = [runs and runs.take_changes() for runs in self.sides]
        if any(runs is not None and some is None for runs, some in zip(self.sides, changed, strict=True)):
            return None
        return lambda: [some and some() for some in changed]

    def restore_changes(self, changes: Any) -> None:
        """Take back what the function of :meth:`take_changes` gave."""
        self._put(Runs.restore_changes.__name__, changes)

    def forget_changes(self) -> None:
        """The next of :meth:`take_changes` gives None."""
        for runs in self._there():
            runs.forget_changes()

    # -- to other replicas -----------------------------------------------------------
    def index(self, key_groups: int) -> Iterator[None]:
        """Find out the key-group of each record, some at a time."""
        for runs in self._there():
            runs.place_by(key_groups)
        for runs in self._there():
            yield from runs.index(key_groups)

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        """What these groups have of both sides."""
        given = [runs and runs.give(groups, key_groups) for runs in self.sides]
        return (list(self.schemas), given) if any(given) else None

    def fits(self, given: Any) -> bool:
        """Whether the records of a sibling go together with those here."""
        self.gave()
        try:
            for side, schema in enumerate(given[0]):
                if schema is not None:
                    self.check(side, [pa.RecordBatch.from_pylist([], schema=schema)])
        except NotColumnar:
            return False
        return True

    def take(self, given: Any) -> None:
        """Keep what :meth:`give` gave."""
        self._put(Runs.take.__name__, given[1])

    def gave(self) -> None:
        """The change of layout is over."""
        for runs in self._there():
            runs.gave()

    def _put(self, method: str, parts: Sequence[Any]) -> None:
        """Call a method of each side with its part, of the right one first: left records ask that one what it knows."""
        for side in (1, 0):
            if parts[side] is not None:
                getattr(self.side(side), method)(parts[side])

    def _there(self) -> list[Side]:
        return [runs for runs in self.sides if runs is not None]


__all__ = ["BothSides"]
