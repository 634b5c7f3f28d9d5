"""Several results of a key at once, in columns: a record with a field for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.incremental.columns.form import changes
from rayad.incremental.columns.grouped import Grouped, Records
from rayad.incremental.columns.kept import COUNT
from rayad.incremental.columns.linear import Counted, Linear, Numbers, Summed
from rayad.incremental.columns.ordered import Best, first_rows


class SummedTogether(Linear):
    """Counts, sums and means, of sums that are kept side by side; the numbers of each have its place before their names.

    Args:
        parts: each with its name.
    """

    def __init__(self, parts: Sequence[tuple[str, Counted | Summed]]) -> None:
        self.parts = tuple(parts)
        each = [_named(at, dict.fromkeys(part.numbers)) for at, (_, part) in enumerate(self.parts)]
        self.numbers = (COUNT, *(name for numbers in each for name in numbers))

    def vector(self, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """See there."""
        sums = [part.vector(_of(at, numbers))[1:] for at, (_, part) in enumerate(self.parts)]
        return (numbers[COUNT], *(number for some in sums for number in some))

    def numbers_of(self, batch: pa.RecordBatch) -> Numbers:
        out = super().numbers_of(batch)
        for at, (_, part) in enumerate(self.parts):
            out |= _named(at, part.numbers_of(batch))
        return out

    def present(self, numbers: Numbers) -> Any:
        return np.logical_or.reduce([part.present(_of(at, numbers)) for at, (_, part) in enumerate(self.parts)])

    def results(self, numbers: Numbers) -> pa.Array:
        return _records([(name, part.results(_of(at, numbers))) for at, (name, part) in enumerate(self.parts)])


class GroupedTogether(Grouped):
    """Results of the records of a key, sums and extremes among them.

    Args:
        parts: each with its name.
    """

    def __init__(self, parts: Sequence[tuple[str, Counted | Summed | Best]]) -> None:
        self.parts = tuple(parts)

    def results(self, there: Records) -> Records:
        begins = np.flatnonzero(first_rows(there.group))
        batch = changes(there.record, there.weights)
        columns = []
        for name, part in self.parts:
            if isinstance(part, Best):
                columns.append((name, part.results(there).record))
            else:
                numbers = part.numbers_of(batch)
                columns.append((name, part.results({of: np.add.reduceat(each, begins) for of, each in numbers.items()})))
        return Records(there.group[begins], _records(columns), np.ones(len(begins), np.int64))


def _named(at: int, numbers: Numbers) -> Numbers:
    return {f"{at} {name}": each for name, each in numbers.items() if name != COUNT}


def _of(at: int, numbers: Mapping[str, Any]) -> Numbers:
    """The numbers of one part by their own names."""
    before = f"{at} "
    return {COUNT: numbers[COUNT]} | {name.removeprefix(before): each for name, each in numbers.items() if name.startswith(before)}


def _records(columns: Sequence[tuple[str, pa.Array]]) -> pa.StructArray:
    return pa.StructArray.from_arrays([column for _, column in columns], names=[name for name, _ in columns])


__all__ = ["GroupedTogether", "SummedTogether"]
