"""State in columns whose parts are made when the schema of what comes is known: both sides of a join, open windows, totals."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from rayad.dataflow.operators.state.keyed_state import StateOfParts
from rayad.dataflow.operators.state.two_forms import ColumnForm
from rayad.dataflow.records.batches import keyed_columns

Part = TypeVar("Part", bound=Any)


class PartsBySchema(StateOfParts, ColumnForm, Generic[Part]):
    """One part or several, each a :class:`KeyedState` that tells its ``count`` and is made when the schema of its rows is known.

    What is stored, and what moves, is the schemas and what each part has to say. The last part is put back first: those before it ask
    it what it knows.

    Args:
        parts: how many.
    """

    def __init__(self, parts: int = 1) -> None:
        self.schemas: list[pa.Schema | None] = [None] * parts
        self.parts: list[Part | None] = [None] * parts

    @abstractmethod
    def made(self, at: int, schema: pa.Schema) -> Part:
        """A part in which nothing is yet."""

    def learn(self, at: int, schema: pa.Schema) -> None:
        """Rows of a part look like this: it is made, where it is not there."""
        if self.parts[at] is None:
            self.schemas[at], self.parts[at] = schema, self.made(at, schema)

    def learn_all(self, schemas: Sequence[pa.Schema | None]) -> None:
        """What rows of each part look like, where that is known."""
        for at, schema in enumerate(schemas):
            if schema is not None:
                self.learn(at, schema)

    def goes_with(self, at: int, schema: pa.Schema) -> bool:
        """Whether rows that look like this go together with those of a part."""
        known = self.schemas[at]
        return known is None or (bool(known.equals(schema)) and keyed_columns(known) == keyed_columns(schema))

    @property
    def there(self) -> list[Part]:
        return [part for part in self.parts if part is not None]

    @property
    def rows(self) -> int:
        """Rows kept."""
        return sum(part.count for part in self.there)

    @property
    def is_used(self) -> bool:
        return self.rows > 0

    # -- snapshots -------------------------------------------------------------------
    def checkpoint(self) -> Any:
        return list(self.schemas), self._each(lambda part: part.checkpoint())

    def restore(self, stored: Any) -> None:
        schemas, parts = stored if isinstance(stored[0], list) else ([stored[0]], [stored[1]])  # one part stored no lists once
        self.learn_all(schemas)
        self._put(lambda part, some: part.restore(some), parts)

    def take_changes(self) -> Callable[[], Any] | None:
        changed = self._each(lambda part: part.take_changes())
        if any(part is not None and some is None for part, some in zip(self.parts, changed, strict=True)):
            return None
        return lambda: [some and some() for some in changed]

    def restore_changes(self, changes: Any) -> None:
        self._put(lambda part, some: part.restore_changes(some), changes if isinstance(changes, list) else [changes])

    # -- to other replicas -----------------------------------------------------------
    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        given = self._each(lambda part: part.give(groups, key_groups)) if self.is_used else []
        return (list(self.schemas), given) if any(map(_has_some, given)) else None

    def fits(self, given: Any) -> bool:
        return all(schema is None or self.goes_with(at, schema) for at, schema in enumerate(given[0]))

    def take(self, given: Any) -> None:
        self.learn_all(given[0])
        self._put(lambda part, some: part.take(some), given[1])

    def _each(self, ask: Callable[[Part], Any]) -> list[Any]:
        return [None if part is None else ask(part) for part in self.parts]

    def _put(self, put: Callable[[Part, Any], None], parts: Sequence[Any]) -> None:
        for part, some in reversed(list(zip(self.parts, parts, strict=True))):
            if some is not None:
                assert part is not None
                put(part, some)


def _has_some(given: Any) -> bool:
    return given is not None and len(given) > 0


__all__ = ["PartsBySchema"]
