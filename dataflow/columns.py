"""Functions of whole columnar batches, for ``Stream.map_batches``: no Python object per row.

>>> import pyarrow as pa
>>> lines = pa.record_batch({"text": ["to be", "or not  to be"], "line": [1, 2]})
>>> split_words("text")(lines).to_pydict()
{'word': ['to', 'be', 'or', 'not', 'to', 'be']}
>>> split_words("text", keep=["line"])(lines).to_pydict()
{'word': ['to', 'be', 'or', 'not', 'to', 'be'], 'line': [1, 1, 2, 2, 2, 2]}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.progress import DataflowError

_SEPARATORS_OF_STR_ONLY = bytes(range(0x1C, 0x20))  # str.split() splits there, the C library's isspace() does not


@dataclass(frozen=True, slots=True)
class _SplitWords:
    column: str
    into: str
    keep: tuple[str, ...]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not isinstance(batch, pa.RecordBatch):
            raise DataflowError(f"split_words({self.column!r}) was given a {type(batch).__name__}: it works on columnar batches")
        missing = [name for name in (self.column, *self.keep) if name not in batch.schema.names]
        if missing:
            raise DataflowError(f"split_words: there is no column {missing[0]!r}: the batch has {batch.schema.names}")
        texts = batch.column(self.column)
        if not pa.types.is_string(texts.type) and not pa.types.is_large_string(texts.type):
            raise DataflowError(f"split_words: column {self.column!r} is of type {texts.type}: it must hold strings")
        words = pc.ascii_split_whitespace(texts) if _is_plain_ascii(texts) else pc.utf8_split_whitespace(texts)
        flat = words.flatten()
        rows = None
        if self.keep:
            rows = pc.list_parent_indices(words)
        full = pc.not_equal(pc.binary_length(flat), 0)  # unlike str.split(), Arrow gives "" before leading and after trailing spaces
        if not pc.all(full).as_py():
            flat = flat.filter(full)
            rows = rows.filter(full) if rows is not None else None
        columns = [flat, *(batch.column(name).take(rows) for name in self.keep)]
        return pa.RecordBatch.from_arrays(columns, names=[self.into, *self.keep])


def split_words(column: str, into: str = "word", *, keep: Sequence[str] = ()) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Make a function for ``map_batches`` that gives one row for each word of a column of strings, split as by ``str.split()``; null has
    no words.

    Args:
        column: the strings.
        into: name of the column of words.
        keep: columns that are repeated for each word of their row.

    The function raises DataflowError, in the job, if a column is missing or holds no strings.
    """
    return _SplitWords(column, into, tuple(keep))


def _is_plain_ascii(texts: pa.Array) -> bool:
    """Whether ASCII's white space is all there is: then splitting is three times as fast."""
    buffers = texts.buffers()
    if buffers[2] is None:
        return True
    wide = np.dtype(np.int64 if pa.types.is_large_string(texts.type) else np.int32)
    offsets = np.frombuffer(buffers[1], dtype=wide)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(buffers[2], dtype=np.uint8)[offsets[0] : offsets[-1]] if len(offsets) else np.zeros(0, np.uint8)
    if not len(data):
        return True
    if int(data.max()) >= 0x80:
        return False
    odd = (data >= _SEPARATORS_OF_STR_ONLY[0]) & (data <= _SEPARATORS_OF_STR_ONLY[-1])
    return not bool(odd.any())


__all__ = ["split_words"]


__all__ = ["split_words"]


def __dir__() -> list[str]:
    return __all__
