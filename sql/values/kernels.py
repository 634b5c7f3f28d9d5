"""Functions of values by name, so that what is sent to replicas are names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rayad.sql.values.arithmetic import BINARY, UNARY
from rayad.sql.values.buckets import ROWS
from rayad.sql.values.functions import FUNCTIONS
from rayad.sql.values.unscaled import UNSCALED

TABLES: dict[str, dict[str, Callable[..., Any]]] = {
    "operator": BINARY,
    "test": UNARY,
    "function": FUNCTIONS,
    "rows": ROWS,
    "decimal": UNSCALED,
}
"""Functions by table and name."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of arrays and scalars.

    Args:
        table: which of :data:`TABLES`.
        name: in it.
    """

    table: str
    name: str

    def __call__(self, *arguments: Any) -> Any:
        return TABLES[self.table][self.name](*arguments)


__all__ = ["TABLES", "Kernel"]
