"""``(key, something)`` pairs that stay and do not fit in memory, in sorted runs: each is pickled by itself.

A key may have many pairs, so a pair is looked for by its own hash, within the key-group of its key. One that is found stays where it is.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.state.contents import Contents, comparable, originals
from rayad.dataflow.operators.state.runs.order import Places, places_in_groups, slices_of_groups
from rayad.dataflow.operators.state.runs.rows_below import RowsBelow
from rayad.dataflow.operators.state.runs.values_below import DECODED_ROWS, pickled, unpicklable
from rayad.dataflow.operators.state.slots.slot_groups import NotColumns
from rayad.dataflow.records.key_hashing import hash_keys, key_group
from rayad.progress import DataflowError

HASH, CODE, PAIR = "hash", "code", "pair"


class PairsBelow(RowsBelow):
    """A row for each pair: the hash of its key, its own, and the pair."""

    def __init__(self) -> None:
        super().__init__(1)

    def places(self, rows: pa.RecordBatch) -> Places:
        groups = rows.column(HASH).to_numpy() % np.uint64(self.key_groups)
        return places_in_groups(groups.astype(np.int64), rows.column(CODE).to_numpy(), self.key_groups)

    def are_alike(self, asked: pa.RecordBatch, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Pairs that are equal may be pickled in several ways: see :meth:`ValuesBelow.are_alike`."""
        mine, theirs = asked.column(PAIR), rows.column(PAIR)
        alike: npt.NDArray[np.bool_] = np.array(pc.equal(mine, theirs).to_numpy(zero_copy_only=False))
        for at in np.flatnonzero(~alike).tolist():
            alike[at] = _pair(mine[at].as_py()) == _pair(theirs[at].as_py())
        return alike

    def put_pairs(self, pairs: Collection[Any]) -> None:
        """Keep these, which are not here. Raises NotColumns, with nothing kept, where one has no hash that is the same everywhere."""
        pairs = list(pairs)
        codes = _codes(pairs)
        if None in codes:
            raise NotColumns
        self.put(_rows_of(pairs, codes))

    def known(self, pairs: Sequence[Any]) -> npt.NDArray[np.bool_]:
        """Which of these pairs, which differ, are here, shape (pairs,)."""
        known = np.zeros(len(pairs), np.bool_)
        codes = _codes(pairs)
        asked = [at for at, code in enumerate(codes) if code is not None]  # one without is not here
        if asked:
            found = self.met(_rows_of([pairs[at] for at in asked], [codes[at] for at in asked])).mine
            known[np.array(asked)[found]] = True
        return known

    def pairs_here(self, keys: Iterable[Any] | None = None) -> Iterator[Any]:
        """The pairs; perhaps only those of these keys and of some others."""
        groups = range(self.key_groups) if keys is None else {key_group(key, self.key_groups) for key in keys}
        for run in self.each_live():
            for low, high in slices_of_groups(run.place, groups, self.key_groups):
                for at in range(low, high, DECODED_ROWS):
                    data = run.rows.column(PAIR).slice(at, min(DECODED_ROWS, high - at))
                    yield from map(_pair, data.to_pylist())


def _pair(data: bytes) -> Any:
    return comparable([pickle.loads(data)])[0]


def _codes(pairs: Sequence[Any]) -> list[int | None]:
    """A hash of each pair, the same everywhere and for pairs that are equal; None of one that has none."""
    hashed = [(key, value.form if isinstance(value, Contents) else value) for key, value in pairs]
    try:
        return hash_keys(hashed).tolist()  # type: ignore[no-any-return]
    except DataflowError:
        return [_codes([pair])[0] for pair in pairs] if len(pairs) > 1 else [None]


def _rows_of(pairs: Sequence[Any], codes: Sequence[int | None]) -> pa.RecordBatch:
    plain = originals(pairs)
    try:
        data = pickled(plain)
    except Exception as error:
        raise unpicklable(plain, error) from error
    return pa.record_batch({HASH: hash_keys([key for key, _ in pairs]), CODE: pa.array(codes, pa.uint64()), PAIR: data})


__all__ = ["PairsBelow"]
