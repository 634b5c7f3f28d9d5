"""The identity of a vertex's state: its operator and the parameters that shape it, as plain data. Kept with snapshots, and compared
when a job resumes: the state of one operator must never be read as that of another.

Rayad's own operators are described by their class, its ``state_version``, and the arguments that they were made with; a class names those
that play no part in the state as ``may_change``. A user's vertex, aggregator, source or sink is its class and ``state_version`` alone.
What cannot be known, and what can change without harm, is None and fits everything: functions (a lambda has no name that stays), factories,
initial values. How two identities are compared: :mod:`rayad.snapshots.identity`. Source: Flink compares the serializers of each state when
a job resumes, Spark the stateful operators and their schemas.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import inspect
import numbers
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Stage
from rayad.dataflow.records.selectors import KeySelector, ValueSelector

Identity = Any
"""Plain JSON. ``{"is": class name, "version": int, "with": {argument: ...}}`` of an operator; None: not known."""
_PLAIN = (bool, str, type(None))


def state_of(stage: Stage) -> Identity:
    """The identity of the state of a stage in snapshots; None for stages without state, and where it is unknown."""
    if stage.kind is NodeKind.SOURCE:
        return of_class(type(stage.op))
    if stage.kind is not NodeKind.VERTEX:
        return None
    return made_by(stage.op)


def made_by(factory: Any) -> Identity:
    """The identity of a factory's vertices: a class, or one with arguments; None for any other function."""
    if isinstance(factory, type):
        return of_class(factory)
    if isinstance(factory, functools.partial):
        return made_by(factory.func)
    cls = getattr(factory, "cls", None)  # keyed_stream.Make and its like
    if not isinstance(cls, type):
        return None
    if not _is_ours(cls):
        return of_class(cls)
    arguments = _arguments(cls, factory.args, factory.kwargs)
    return of_class(cls, {**arguments, **getattr(factory, "reads", {})})


def describe(value: Any) -> Identity:
    """A parameter as plain data; None when it is a function, or anything else that has no lasting description.

    >>> from rayad.dataflow.operators.aggregates.aggregators import Count
    >>> from rayad.dataflow.operators.aggregates.top_k import TopK
    >>> describe(Count()), describe(TopK(3, by=len))
    ({'is': 'Count', 'version': 1}, {'is': 'TopK', 'version': 1, 'with': {'k': 3}})
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, numbers.Real):  # numpy's numbers, too
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, (dt.timedelta, dt.date, Decimal)):
        return str(value)
    if isinstance(value, KeySelector):
        return list(value.columns) or None
    if isinstance(value, ValueSelector):
        return value.column
    if isinstance(value, Mapping):
        return [[describe(key), describe(item)] for key, item in value.items()]  # pairs: JSON keeps no order of a dict
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    cls = type(value)
    if callable(value) and not hasattr(cls, "state_version"):
        return None
    if not _is_ours(cls):
        return of_class(cls) if hasattr(cls, "state_version") else None
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init and field.name != "name"}
    else:
        fields = {name: getattr(value, name) for name in _parameters(cls) if hasattr(value, name)}
    return of_class(cls, {name: describe(item) for name, item in fields.items() if name not in _may_change(cls)})


def _is_ours(cls: type) -> bool:
    return cls.__module__.split(".", 1)[0] == "rayad"


def of_class(cls: type, arguments: Mapping[str, Identity] | None = None) -> dict[str, Any]:
    """The identity of a class whose instances were made with these arguments."""
    out: dict[str, Any] = {"is": cls.__name__, "version": getattr(cls, "state_version", 1)}
    known = {name: item for name, item in (arguments or {}).items() if item is not None}
    return {**out, "with": known} if known else out


def _may_change(cls: type) -> frozenset[str]:
    return getattr(cls, "may_change", frozenset())


def _parameters(cls: type) -> list[str]:
    return list(inspect.signature(cls).parameters)


def _arguments(cls: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Identity]:
    bound = inspect.signature(cls).bind(*args, **kwargs)
    bound.apply_defaults()
    return {name: describe(value) for name, value in bound.arguments.items() if name not in _may_change(cls)}


__all__ = ["Identity", "describe", "made_by", "of_class", "state_of"]
