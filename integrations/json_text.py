"""What Arrow's reader of JSON does not refuse itself (pyarrow 26): levels that end the process, and text that is not UTF-8.

It goes down the levels of a value only where it finds out types by itself, one call in another, and at some thousand of them the stack
is at its end: the process dies by SIGSEGV. So :func:`first_lines` looks at what it then gets. (Not in a stream of our own that it reads:
it reads ahead in threads, and one that calls Python while the interpreter ends aborts the process.) With a schema it takes any depth, and
refuses what does not fit. Strings it never looks at: :func:`wrong_bytes` finds the place of what Arrow's own check has found.
"""

from __future__ import annotations

import codecs
import re
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.integrations.text import READ_BYTES
from rayad.progress import DataflowError

LEVELS_MAX = 64
"""The most levels of a line that is read into columns, its own object included: Arrow carries no more between processes."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKETS = b"[]{}"
_NO_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))


def levels_of(line: bytes) -> int:
    """How deep the brackets outside of strings are nested.

    >>> levels_of(b'{"a": [1, {"b": "[[["}]}'), levels_of(b"1")
    (3, 0)
    """
    brackets = np.frombuffer(_STRING.sub(b"", line).translate(None, _NO_BRACKETS), np.uint8)
    return int(np.cumsum(np.where((brackets == ord("[")) | (brackets == ord("{")), 1, -1)).max(initial=0))


def first_lines(stream: Any, block_bytes: int, name: str) -> bytes:
    """The lines of a file's first block that is not blank, from which Arrow finds out the types.

    Raises DataflowError at a line of more than :data:`LEVELS_MAX` levels, pa.ArrowInvalid at one longer than two blocks.
    """
    number, text, whole, ahead, ends = 1, b"", b"", b"", False
    while not ends and not whole.strip():
        read: bytes = ahead + stream.read(block_bytes + 1 - len(ahead))
        data, ahead = read[:block_bytes], read[block_bytes:]
        ends = not ahead
        number, text = number + whole.count(b"\n"), text[len(whole) :] + data
        whole = text if ends else text[: text.rfind(b"\n") + 1]
        if not whole and len(text) >= 2 * block_bytes:
            raise pa.ArrowInvalid(f"line {number} is longer than two blocks of {block_bytes} bytes: give a larger block_bytes=")
    for line_number, line in enumerate(whole.split(b"\n"), number):
        if line.count(b"[") + line.count(b"{") > LEVELS_MAX and (levels := levels_of(line)) > LEVELS_MAX:
            raise DataflowError(
                f"{name}, line {line_number}: its value has {levels} levels of brackets, and Arrow carries at most {LEVELS_MAX} between "
                "processes: write the inner ones as text in a string, or read rows: flow.source(rayad.integrations.JsonRowsSource(path))"
            )
    return whole


def wrong_bytes(stream: Any) -> str | None:
    """Where a stream stops to be UTF-8, as ``line 3, byte 17 (0xff: invalid start byte)``; None: nowhere. Reads up to that place."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line, begin = 1, 0
    while True:
        data: bytes = stream.read(READ_BYTES)
        try:
            decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            kept = len(error.object) - len(data)  # of the piece before
            line += error.object.count(b"\n", 0, error.start)
            return f"line {line}, byte {begin - kept + error.start} (0x{error.object[error.start]:02x}: {error.reason})"
        line, begin = line + data.count(b"\n"), begin + len(data)
        if not data:
            return None


__all__ = ["LEVELS_MAX", "first_lines", "levels_of", "wrong_bytes"]
