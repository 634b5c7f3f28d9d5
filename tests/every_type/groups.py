"""What the records of a key, or of a window, come to, in plain Python."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
from collections.abc import Callable
from typing import Any

Record = dict[str, Any]


class Refused(TypeError):
    """Plain Python has no answer: the operator must refuse."""


def known(records: list[Record], name: str) -> list[Any]:
    return [record[name] for record in records if record[name] is not None]


def total(name: str) -> Callable[[list[Record]], Any]:
    """The exact sum of the values that are not null, None if there are none; of numbers and durations only."""

    def result(records: list[Record]) -> Any:
        values = known(records, name)
        if any(not isinstance(value, (int, float, decimal.Decimal, dt.timedelta)) for value in values):
            raise Refused("a sum takes numbers and durations")
        if not values:
            return None
        with decimal.localcontext(prec=200):
            return sum(values[1:], start=int(values[0]) if isinstance(values[0], bool) else values[0])

    return result


def average(name: str) -> Callable[[list[Record]], Any]:
    def result(records: list[Record]) -> Any:
        values = known(records, name)
        if values and all(isinstance(value, dt.timedelta) for value in values):
            return sum(values[1:], start=values[0]) / len(values)
        if any(not isinstance(value, (int, float, decimal.Decimal)) for value in values):
            raise Refused("a mean takes numbers and durations")
        return fractions.Fraction(sum(map(fractions.Fraction, values)), len(values)) if values else None

    return result


def extreme(name: str, pick: Any) -> Callable[[list[Record]], Any]:
    return lambda records: pick(values) if (values := known(records, name)) else None


def truth(name: str, pick: Callable[[list[bool]], bool]) -> Callable[[list[Record]], Any]:
    """Of bools alone."""

    def result(records: list[Record]) -> Any:
        values = known(records, name)
        if any(not isinstance(value, bool) for value in values):
            raise Refused("bools only")
        return pick(values) if values else None

    return result


def different(name: str) -> Callable[[list[Record]], Any]:
    def result(records: list[Record]) -> Any:
        seen: list[Any] = []
        for value in known(records, name):
            if value not in seen:
                seen.append(value)
        return len(seen)

    return result


def in_time(name: str, at: int) -> Callable[[list[Record]], Any]:
    """The first or the last value that is not null, by ``t``, of which no two are equal."""
    return lambda records: values[at] if (values := known(sorted(records, key=lambda record: record["t"]), name)) else None


def moment_in_utc(value: Any) -> Any:
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is not None else value


def shown(value: Any) -> str:
    """What a value is told by, a moment whatever its zone."""
    return repr(moment_in_utc(value))


def in_one_order(pair: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
    """A list whose order is that of arrival, so that it can be compared."""
    return pair[0], sorted(pair[1], key=shown)


def largest(name: str, k: int) -> Callable[[list[Record]], Any]:
    return lambda records: sorted(known(records, name), reverse=True)[:k]


def least_by_repr(left: Any, right: Any) -> Any:
    """Associative and commutative on values of every type."""
    return min(left, right, key=shown)


def least_so_far(state: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """The same as a fold, which must tell a null from no value."""
    return (least_by_repr(state[0], value),) if state else (value,)


def number(records: list[Record]) -> int:
    return len(records)


def reduced(name: str) -> Callable[[list[Record]], Any]:
    def result(records: list[Record]) -> Any:
        out = records[0][name]
        for record in records[1:]:
            out = least_by_repr(out, record[name])
        return out

    return result
