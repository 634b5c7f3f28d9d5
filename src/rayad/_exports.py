"""Names that a package gives out, each imported when it is first used.

A process imports what it runs: a replica needs half of our modules, and each actor of a job starts that much sooner (``python -m
benchmarks imports``). Type checkers read the imports under ``TYPE_CHECKING`` of the same file; tests/test_house_rules.py compares both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def on_demand(
    package: str,
    where: Mapping[str, Iterable[str]],
    missing: Callable[[str], AttributeError] | None = None,
    modules: Iterable[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package (PEP 562); the latter lists its ``__all__``.

    Args:
        package: its ``__name__``.
        where: the names by the module that defines them.
        missing: makes the error for a name that is not there; None: Python's own.
        modules: modules of the package that are names of it, too.
    """
    found = {name: module for module, names in where.items() for name in names}
    inside = frozenset(modules)

    def load(name: str) -> Any:
        if name in inside:
            return import_module(f"{package}.{name}")
        if name not in found and missing is not None:
            raise missing(name)
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        value = getattr(import_module(found[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        here = vars(sys.modules[package])
        return sorted({*here["__all__"], *(name for name in here if name.startswith("__"))})

    return load, listed
