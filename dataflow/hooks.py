"""Runtimes and connectors that the pure part calls without importing them.

``rayad/__init__.py`` fills these in, lazily, so that building and planning a dataflow needs neither Ray nor Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayad.progress import InternalError

_hooks: dict[str, Callable[..., Any]] = {}


def register(name: str, function: Callable[..., Any]) -> None:
    """Provide a runtime (``submit``) or a connector (``spark_source`` ...)."""
    _hooks[name] = function


def call(name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Call what was registered under ``name``."""
    if name not in _hooks:
        raise InternalError(f"nothing is registered for {name!r}: import rayad (not rayad.dataflow alone) before you use it")
    return _hooks[name](*args, **kwargs)
