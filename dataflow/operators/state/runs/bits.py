"""A bit for each row of a run, which may be changed: whether the row is still here."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rayad.dataflow.operators.state.runs.order import Positions


class Bits:
    """Bits of rows, eight of them in a byte as ``np.packbits`` has them.

    Args:
        packed: the bytes, shape (at least (first + rows) / 8,).
        rows: how many bits.
        first: where the bit of row 0 is.

    >>> bits = Bits.ones(10)
    >>> bits.clear(np.array([3, 9, 3])); bits.at(np.array([2, 3, 9])).tolist(), bits[8:10].mask().tolist()
    ([True, False, False], [True, False])
    """

    __slots__ = ("first", "in_memory", "packed", "rows")

    def __init__(self, packed: npt.NDArray[np.uint8], rows: int, first: int = 0) -> None:
        self.packed = packed
        self.rows = rows
        self.first = first
        self.in_memory = True
        """Whether some of it may be in memory of the process' own: it was changed since it was mapped."""

    @staticmethod
    def ones(rows: int) -> Bits:
        """All of them set."""
        return Bits(np.full((rows + 7) // 8, 255, np.uint8), rows)

    def __len__(self) -> int:
        return self.rows

    def at(self, rows: Positions) -> npt.NDArray[np.bool_]:
        """Those of these rows."""
        places = rows + self.first
        mask: npt.NDArray[np.bool_] = (self.packed[places >> 3] << (places & 7).astype(np.uint8)) & 0x80 != 0
        return mask

    def __getitem__(self, which: slice | Positions) -> Bits:
        """Of a range of rows the bits, which are the same ones; of positions a copy."""
        if not isinstance(which, slice):
            return Bits(np.packbits(self.at(which)), len(which))
        low, high, _ = which.indices(self.rows)
        begin, shift = divmod(self.first + low, 8)
        out = Bits(self.packed[begin : (self.first + high + 7) // 8], high - low, shift)
        out.in_memory = self.in_memory
        return out

    def mask(self) -> npt.NDArray[np.bool_]:
        """All of them, shape (rows,)."""
        mask: npt.NDArray[np.bool_] = np.unpackbits(self.packed, count=self.first + self.rows)[self.first :].view(np.bool_)
        return mask

    def clear(self, rows: Positions) -> None:
        """Those of these rows are 0 from now on."""
        at = rows + self.first
        np.bitwise_and.at(self.packed, at >> 3, ~(np.uint8(0x80) >> (at & 7).astype(np.uint8)))
        self.in_memory = True

    def copy(self) -> Bits:
        """The same, to be changed alone."""
        return Bits(self.packed.copy(), self.rows, self.first)


__all__ = ["Bits"]
