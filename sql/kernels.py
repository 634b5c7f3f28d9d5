"""Functions of values by name, so that what is sent to replicas are names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rayad.sql.arithmetic import BINARY, UNARY
from rayad.sql.functions import FUNCTIONS
from rayad.sql.unscaled import UNSCALED

TABLES = {"operator": BINARY, "test": UNARY, "function": FUNCTIONS, "decimal": UNSCALED}


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
        return TABLES[self.table][self.name](*arguments)  # type: ignore[operator]


__all__ = ["TABLES", "Kernel"]
