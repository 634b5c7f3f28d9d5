"""A curve in the terminal, in braille: each character is two dots wide and four high, so 64 by 12 characters show 128 by 48 dots.

It has about fifty lines and no dependency. The library for this is plotext, whose version 6 has a new interface and compiled wheels for
some platforms only: too much for one curve (docs/design/interval.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

_BLANK = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character, by row and column of its dots (Unicode, block 2800)."""


def plot_lines(
    xs: Sequence[float], ys: Sequence[float], *, marks: Sequence[tuple[float, str]] = (), width: int = 64, height: int = 12
) -> list[str]:
    """Draw ``ys`` over ``xs`` as lines of text; x is logarithmic, y begins at 0.

    Args:
        xs, ys: points of the curve, x ascending and above 0; neighbours are joined.
        marks: ``(x, label)`` below the axis; one that would cover an earlier one is left out.
        width, height: of the plot without its axes, in characters.

    >>> print("\\n".join(plot_lines([1, 10, 100], [0.2, 1.0, 0.2], marks=[(10, "10 s")], width=16, height=4)))
    1.000 ┤⠀⠀⠀⠀⠀⠀⡠⠔⠣⢄⠀⠀⠀⠀⠀⠀
          │⠀⠀⠀⢀⠔⠉⠀⠀⠀⠀⠉⠢⡀⠀⠀⠀
          │⢀⠤⠊⠁⠀⠀⠀⠀⠀⠀⠀⠀⠈⠑⠤⡀
    0.000 ┤⠁⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠈
          └────────┬───────
                 10 s
    """
    if len(xs) < 2 or len(xs) != len(ys):
        raise ValueError(f"{len(xs)} and {len(ys)} points: give at least two, and a y for each x")
    first, last, top = math.log(xs[0]), math.log(xs[-1]), max(ys) or 1.0
    columns, rows = 2 * width - 1, 4 * height - 1

    def place(x: float) -> float:
        """The position of x between the first and the last, 0 to 1."""
        return (math.log(x) - first) / (last - first)

    cells = [[_BLANK] * width for _ in range(height)]
    dots = [(place(x) * columns, (1.0 - y / top) * rows) for x, y in zip(xs, ys, strict=True)]
    for (x0, y0), (x1, y1) in pairwise(dots):
        steps = max(1, math.ceil(max(abs(x1 - x0), abs(y1 - y0))))
        for step in range(steps + 1):
            column, row = round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps)
            cells[row // 4][column // 2] |= _DOTS[row % 4][column % 2]

    axis, labels = ["─"] * width, [" "] * (width + 8)
    for x, label in marks:
        at = round(place(x) * (width - 1))
        begin = max(0, min(at - len(label) // 2, len(labels) - len(label)))
        around = labels[max(0, begin - 1) : begin + len(label) + 1]
        if 0 <= at < width and not "".join(around).strip():
            axis[at] = "┬"
            labels[begin : begin + len(label)] = label
    lines = []
    for number, row_of_cells in enumerate(cells):
        value = top if number == 0 else 0.0 if number == height - 1 else None
        scale = f"{'':5} │" if value is None else f"{value:5.3f} ┤"
        lines.append(scale + "".join(map(chr, row_of_cells)))
    return [*lines, f"{'':6}└{''.join(axis)}", f"{'':7}{''.join(labels)}".rstrip()]


__all__ = ["plot_lines"]
