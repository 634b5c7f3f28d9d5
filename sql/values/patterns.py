"""LIKE, ILIKE, SIMILAR TO and regular expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Value = Any
"""An array or a scalar."""


def _regex_of(pattern: str, escape: str, *, ignore_case: bool) -> str:
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape and at + 1 < len(pattern):
            at += 1
            out.append(re.escape(pattern[at]))
        else:
            out.append({"%": ".*", "_": "."}.get(char) or re.escape(char))
        at += 1
    return f"{'(?is)' if ignore_case else '(?s)'}^{''.join(out)}$"


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a text matches a pattern of LIKE.

    Args:
        escape: what makes the character behind it stand for itself.
        ignore_case: for ILIKE.
        negated: for NOT LIKE.
    """

    escape: str
    ignore_case: bool
    negated: bool

    def __call__(self, text: Value, pattern: Value) -> Value:
        found = _matches(text, pattern, lambda one: _regex_of(one, self.escape, ignore_case=self.ignore_case))
        return pc.invert(found) if self.negated else found


def matches_regex(text: Value, pattern: Value) -> Value:
    """Whether a regular expression is found in a text."""
    return _matches(text, pattern, lambda one: one)


def _matches(text: Value, pattern: Value, regex_of: Any) -> Value:
    if isinstance(pattern, pa.Scalar):
        one = pattern.as_py()
        if one is None:
            return pa.scalar(None, pa.bool_()) if isinstance(text, pa.Scalar) else pa.nulls(len(text), pa.bool_())
        return pc.match_substring_regex(text, pattern=regex_of(one))
    texts = pa.repeat(text, len(pattern)) if isinstance(text, pa.Scalar) else text
    out = pa.nulls(len(pattern), pa.bool_())
    for one in pc.unique(pattern).to_pylist():  # each pattern is one call of the kernel
        if one is not None:
            out = pc.if_else(pc.fill_null(pc.equal(pattern, one), False), pc.match_substring_regex(texts, pattern=regex_of(one)), out)
    return out


__all__ = ["Like", "matches_regex"]
