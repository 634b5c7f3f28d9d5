"""Records of collections are values: they are compared, hashed, and not changed in place."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NoReturn

from rayad.progress import DataflowError, show


class Row(dict[str, Any]):
    """A dict that is a record of a collection: equal to any dict with the same fields, and hashable.

    >>> Row(a=1) == {"a": 1}, {Row(a=1, b=2): "there"}[Row(b=2, a=1)], {**Row(a=1), "b": 2}
    (True, 'there', {'a': 1, 'b': 2})
    """

    __slots__ = ("_hash",)

    def __hash__(self) -> int:  # type: ignore[override]
        try:
            return self._hash
        except AttributeError:
            self._hash: int = hash(frozenset(self.items()))
            return self._hash

    def __rayad_hash__(self) -> Any:
        """The same in every process."""
        return tuple(sorted(self.items(), key=lambda item: item[0]))

    def __reduce__(self) -> tuple[Any, ...]:
        return Row, (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise DataflowError(
            f"a record of a collection is a value and is not changed: make another one, {{**record, ...}}, of {show(dict(self))}"
        )

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refuse


def as_record(record: Any) -> Any:
    """A record as a value. Raises DataflowError where it has no hash, or NaN in it: no removal would find what was inserted.

    >>> as_record(("a", {"n": 1}))
    ('a', {'n': 1})
    """
    try:
        hash(record)
    except TypeError:
        record = _with_rows(record)
    if _has_nan(record):
        raise DataflowError(
            f"{show(record, 80)} cannot be a record of a collection: NaN equals nothing, so that its removal would not find it; give None "
            "instead"
        )
    return record


def _has_nan(value: Any) -> bool:
    kind = type(value)
    if kind is tuple:
        return any(map(_has_nan, value))
    if kind is Row:
        return any(map(_has_nan, value.values()))
    return isinstance(value, (float, Decimal)) and value != value


def _with_rows(record: Any) -> Any:
    made: Any = record
    if type(record) is dict:
        made = Row({name: as_record(value) for name, value in record.items()})
    elif type(record) is tuple:
        made = tuple(map(as_record, record))
    try:
        hash(made)
    except TypeError:
        raise DataflowError(
            f"{show(record, 80)} cannot be a record of a collection, nor a part of one: it is not hashable; give strings, numbers, tuples, "
            "and dicts of these, not lists or sets"
        ) from None
    return made


__all__ = ["Row", "as_record"]
