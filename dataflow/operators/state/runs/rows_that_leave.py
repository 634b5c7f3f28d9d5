"""Rows that leave their run one by one: what is looked up goes up into memory, and its row is marked.

So the rows of a run never change, a mark is all that a look-up writes, and what is left of a run moves and is stored like that of any
other (docs/design/state.md, 6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.runs.bits import Bits
from rayad.dataflow.operators.state.runs.order import Positions
from rayad.dataflow.operators.state.runs.rows_below import RowsBelow
from rayad.dataflow.operators.state.runs.run import Run

HERE = "here"
"""Under this name is beside rows which of them are still here: :class:`Bits`; nothing, where all are."""


class RowsThatLeave(RowsBelow):
    """Rows of which no two are alike. Beside each is whether it is still here."""

    derived = frozenset((HERE,))
    changing = frozenset((HERE,))

    def left_of(self, run: Run, rows: Positions) -> npt.NDArray[np.bool_] | None:
        bits = run.beside.get(HERE)
        return None if bits is None else bits.at(rows)

    def stay(self, run: Run, rows: slice = slice(None)) -> Any | None:
        bits = run.beside.get(HERE)
        return None if bits is None else bits[rows].mask()

    def live(self, run: Run) -> Run:
        return run if HERE not in run.beside else replace(super().live(run), beside={})

    def take_away(self, run: Run, rows: Positions) -> None:
        """These rows are gone."""
        bits = run.beside.get(HERE)
        if bits is None:
            bits = run.beside[HERE] = Bits.ones(len(run))
        bits.clear(rows)

    def hold_bits(self) -> None:
        """Bits that were changed go to a file, one for all runs, where they are more than a piece of a merge may be."""
        if self.memory is None:
            return
        changed = [bits for run in self.all() if (bits := run.beside.get(HERE)) is not None and bits.in_memory]
        if sum(bits.packed.nbytes for bits in changed) <= self.memory.piece_bytes:
            return
        mapped = self.memory.mapped(np.concatenate([bits.packed for bits in changed]))
        ends = np.cumsum([len(bits.packed) for bits in changed])
        for bits, end in zip(changed, ends.tolist(), strict=True):
            bits.packed, bits.in_memory = mapped[end - len(bits.packed) : end], False

    def rows_out(self, asked: pa.RecordBatch) -> tuple[Positions, pa.RecordBatch | None]:
        """Take out the like of rows that differ: positions among those, and what was here; None: nothing."""
        found = self.met(asked)
        for run, rows in found.of_runs:
            if len(rows):
                self.take_away(run, rows)
        self.hold_bits()
        return found.mine, found.rows

    # -- snapshots -----------------------------------------------------------------
    def marks(self, run: Run) -> Any:
        """A bit for each row: whether it is still here."""
        bits = run.beside.get(HERE)
        return None if bits is None else np.packbits(bits.mask())

    def marked(self, run: Run, marks: Any) -> None:
        run.beside[HERE] = Bits(np.array(marks), len(run))

    def take_changes(self) -> Callable[[], Any] | None:
        """What is here is never part of an increment."""
        return None


__all__ = ["HERE", "RowsThatLeave"]
