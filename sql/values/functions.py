"""The functions of SQL that take the values of one row: by DataFusion's name, what computes them for a batch."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayad.sql.values import moments
from rayad.sql.values.arithmetic import remainder
from rayad.sql.values.casts import cast
from rayad.sql.values.patterns import matches_regex

Value = Any
"""An array or a scalar."""


def _each(function: Callable[..., Any], kind: pa.DataType) -> Callable[..., Value]:
    """A function of Python's, called for each row in which no argument is null: for what Arrow has no kernel for."""

    def called(*arguments: Value) -> Value:
        rows = next((len(one) for one in arguments if not isinstance(one, pa.Scalar)), None)
        columns = [[one.as_py()] * (rows or 1) if isinstance(one, pa.Scalar) else one.to_pylist() for one in arguments]
        made = pa.array([None if None in row else function(*row) for row in zip(*columns, strict=True)], kind)
        return made[0] if rows is None else made

    return called


def _constant(value: Value) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else None


def substring(text: Value, start: Value, length: Value | None = None) -> Value:
    """From a place, counted from 1, so many characters; places before the first count, and are empty."""
    first, count = _constant(start), (None if length is None else _constant(length))
    if first is None or (length is not None and count is None):
        return _each(_substring, pa.string())(text, start, *(() if length is None else (length,)))
    if count is not None and count < 0:
        raise pa.ArrowInvalid(f"substr was given the length {count}: it must be at least 0")
    stop = None if count is None else max(first - 1 + count, 0)
    return pc.utf8_slice_codeunits(text, start=max(first - 1, 0), stop=stop)


def _substring(text: str, start: int, length: int | None = None) -> str:
    stop = None if length is None else max(start - 1 + length, 0)
    return text[max(start - 1, 0) : stop]


def _trim(kernel: Callable[..., Value], blank: Callable[..., Value]) -> Callable[..., Value]:
    def trimmed(text: Value, characters: Value | None = None) -> Value:
        given = " " if characters is None else _constant(characters)
        if given is None:
            return blank(text, characters)
        return kernel(text, characters=given)

    return trimmed


def rounded(value: Value, digits: Value | None = None) -> Value:
    """To so many digits, half away from zero."""
    count = 0 if digits is None else _constant(digits)
    if count is None:
        return _each(_rounded, value.type)(value, digits)
    if pa.types.is_integer(value.type) and count >= 0:
        return value
    return pc.round(value, ndigits=count, round_mode="half_towards_infinity")


def _rounded(value: Any, digits: int) -> Any:
    at = decimal.Decimal(1).scaleb(-digits)
    made = decimal.Decimal(repr(value) if isinstance(value, float) else value).quantize(at, rounding=decimal.ROUND_HALF_UP)
    return type(value)(made)


def truncated(value: Value, digits: Value | None = None) -> Value:
    """Without the digits behind so many."""
    count = 0 if digits is None else _constant(digits) or 0
    return pc.round(value, ndigits=count, round_mode="towards_zero")


def nullif(one: Value, other: Value) -> Value:
    """Null where both are equal."""
    return pc.if_else(pc.fill_null(pc.equal(one, other), False), pa.scalar(None, one.type), one)


def concat(*texts: Value) -> Value:
    """One text behind the other; null is nothing."""
    return pc.binary_join_element_wise(*(cast(text, pa.string()) for text in texts), "", null_handling="skip")


def concat_ws(separator: Value, *texts: Value) -> Value:
    """The same with a separator between those that are not null."""
    return pc.binary_join_element_wise(*(cast(text, pa.string()) for text in texts), separator, null_handling="skip")


def position(text: Value, part: Value) -> Value:
    """Where a part begins, from 1; 0 where it is not found."""
    return _each(lambda one, other: one.find(other) + 1, pa.int64())(text, part)


def replaced(text: Value, old: Value, new: Value) -> Value:
    """With another part for each that is found."""
    before, after = _constant(old), _constant(new)
    if before is None or after is None or not before:
        return _each(lambda one, a, b: one.replace(a, b) if a else one, pa.string())(text, old, new)
    return pc.replace_substring(text, pattern=before, replacement=after)


def power(one: Value, other: Value) -> Value:
    """``one`` to the power of ``other``."""
    return pc.power(cast(one, pa.float64()), cast(other, pa.float64()))


def _floats(kernel: Callable[..., Value]) -> Callable[..., Value]:
    def called(*values: Value) -> Value:
        return kernel(*(cast(value, pa.float64()) for value in values))

    return called


def _log(*values: Value) -> Value:
    base, of = (pa.scalar(10.0), values[0]) if len(values) == 1 else values
    return pc.logb_checked(cast(of, pa.float64()), cast(base, pa.float64()))


def _coalesce(*values: Value) -> Value:
    return pc.coalesce(*values)


def _left(text: str, count: int) -> str:
    return text[:count]


def _right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else text[-count:] if count < 0 else ""


def _pad(text: str, length: int, fill: str, *, is_left: bool) -> str:
    missing = max(length - len(text), 0)
    padding = (fill * missing)[:missing] if fill else ""
    return (padding + text if is_left else text + padding)[:length]


def _split(text: str, separator: str, number: int) -> str:
    parts = text.split(separator) if separator else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _extreme(choose: Callable[..., Value]) -> Callable[..., Value]:
    def called(*values: Value) -> Value:
        return choose(*values, skip_nulls=True)

    return called


def _date_of(year: int, month: int, day: int) -> Any:
    import datetime as dt

    return dt.date(year, month, day)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "abs": pc.abs_checked,
    "acos": _floats(pc.acos_checked),
    "ascii": _each(lambda text: ord(text[0]) if text else 0, pa.int32()),
    "asin": _floats(pc.asin_checked),
    "atan": _floats(pc.atan),
    "atan2": _floats(pc.atan2),
    "btrim": _trim(pc.utf8_trim, _each(lambda text, some: text.strip(some), pa.string())),
    "cbrt": _each(lambda value: float(value) ** (1 / 3) if value >= 0 else -((-float(value)) ** (1 / 3)), pa.float64()),
    "ceil": pc.ceil,
    "character_length": pc.utf8_length,
    "chr": _each(chr, pa.string()),
    "coalesce": _coalesce,
    "concat": concat,
    "concat_ws": concat_ws,
    "contains": _each(lambda text, part: part in text, pa.bool_()),
    "cos": _floats(pc.cos_checked),
    "date_bin": moments.binned,
    "date_part": moments.part_of,
    "date_trunc": moments.truncated,
    "ends_with": _each(lambda text, part: text.endswith(part), pa.bool_()),
    "exp": _floats(pc.exp),
    "floor": pc.floor,
    "get_field": lambda record, name: pc.struct_field(record, name.as_py()),
    "greatest": _extreme(pc.max_element_wise),
    "initcap": _each(lambda text: text.title(), pa.string()),
    "least": _extreme(pc.min_element_wise),
    "left": _each(_left, pa.string()),
    "ln": _floats(pc.ln_checked),
    "log": _log,
    "log10": _floats(pc.log10_checked),
    "log2": _floats(pc.log2_checked),
    "lower": pc.utf8_lower,
    "lpad": _each(lambda text, length, fill=" ": _pad(text, length, fill, is_left=True), pa.string()),
    "ltrim": _trim(pc.utf8_ltrim, _each(lambda text, some: text.lstrip(some), pa.string())),
    "make_date": _each(_date_of, pa.date32()),
    "mod": remainder,
    "nullif": nullif,
    "nvl": _coalesce,
    "octet_length": pc.binary_length,
    "power": power,
    "regexp_like": matches_regex,
    "repeat": _each(lambda text, times: text * times, pa.string()),
    "replace": replaced,
    "reverse": pc.utf8_reverse,
    "right": _each(_right, pa.string()),
    "round": rounded,
    "rpad": _each(lambda text, length, fill=" ": _pad(text, length, fill, is_left=False), pa.string()),
    "rtrim": _trim(pc.utf8_rtrim, _each(lambda text, some: text.rstrip(some), pa.string())),
    "signum": pc.sign,
    "sin": _floats(pc.sin_checked),
    "split_part": _each(_split, pa.string()),
    "sqrt": _floats(pc.sqrt_checked),
    "starts_with": _each(lambda text, part: text.startswith(part), pa.bool_()),
    "strpos": position,
    "substr": substring,
    "tan": _floats(pc.tan_checked),
    "to_date": lambda text: cast(text, pa.date32()),
    "trunc": truncated,
    "upper": pc.utf8_upper,
}
"""By DataFusion's name."""

__all__ = ["FUNCTIONS"]
