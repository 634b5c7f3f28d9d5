"""Comparing what the states of a vertex are, in a snapshot and in the dataflow that resumes from it.

An identity is plain JSON, made by ``dataflow.state_identity``: ``{"is": class name, "version": int, "with": {argument: ...}}``; None where
nothing is known, which fits everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Identity = Any


def fits(before: Identity, now: Identity) -> bool:
    """Whether state of one identity may be read as that of another. What is not known, or was not noted, fits.

    >>> count, largest = {"is": "Count", "version": 1}, {"is": "Max", "version": 1}
    >>> fits(count, count), fits(count, largest), fits(count, None), fits(["a"], ["a", "b"])
    (True, False, True, False)
    """
    if before is None or now is None:
        return True
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return all(fits(before[name], now[name]) for name in before if name in now)
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(fits, before, now))
    return bool(before == now)


def spell(identity: Identity) -> str:
    """An identity in words.

    >>> spell({"is": "Totals", "version": 1, "with": {"aggregator": {"is": "Count", "version": 2}, "key": ["a"]}})
    "Totals(aggregator=Count version 2, key=['a'])"
    """
    if isinstance(identity, Mapping) and "is" in identity:
        inside = ", ".join(f"{name}={spell(item)}" for name, item in identity.get("with", {}).items() if item is not None)
        version = identity.get("version", 1)
        return str(identity["is"]) + (f"({inside})" if inside else "") + (f" version {version}" if version != 1 else "")
    if isinstance(identity, list):
        return "[" + ", ".join(map(spell, identity)) + "]"
    return repr(identity)


__all__ = ["Identity", "fits", "spell"]
