"""Frames of the Mandelbrot set, row by row: a load that rises and falls with every frame.

    python examples/mpr/mandelbrot.py                              # on Ray, two replicas
    python examples/mpr/mandelbrot.py --frames 8 --size 1000 --out frames/
    python examples/mpr/mandelbrot.py --runtime pool
    python examples/mpr/mandelbrot.py --frames 4 --waiting-ms 120 --policy mpr --goal 60 --replicas 10 --plot mandelbrot.png   # figure 7.1

Points of a row at the top or bottom escape at once; many in the middle take every iteration. Each frame zooms in. With --out each becomes a
PGM picture.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
from command_line import COMMON, execute
from kernels import Row, View, mandelbrot_row
from outputs import Frames, md5_of_array
from versions import Application, dataflow

import rayad as rd


def rows(frames: int, size: int) -> Any:
    """Every row of every frame."""
    return product(range(frames), range(size))


def share_of_iterations(result: tuple[Row, Any], iterations: int) -> float:
    """The mean number of iterations of a row's points, as a share of the maximum."""
    return float(result[1].mean()) / iterations


def application(frames: int = 3, size: int = 300, iterations: int = 500) -> Application:
    """The application: ``frames`` frames of ``size x size`` points."""
    view = View(size, iterations)
    load = partial(share_of_iterations, iterations=iterations)
    return Application(
        "mandelbrot", partial(rows, frames, size), partial(mandelbrot_row, view), load, partial(Frames, view, frames), md5_of_array
    )


def flow() -> rd.Dataflow:
    """For ``rayad plan examples/mpr/mandelbrot.py:flow``."""
    return dataflow(application())


def write_pictures(frames: Any, iterations: int, folder: Path) -> None:
    """Write each frame as a PGM file: points of the set are black, the others brighter the later they escape."""
    folder.mkdir(parents=True, exist_ok=True)
    bright = (255 * np.sqrt(frames / iterations)).astype(np.uint8)
    bright[frames == iterations] = 0
    for number, picture in enumerate(bright):
        height, width = picture.shape
        (folder / f"mandelbrot-{number:03}.pgm").write_bytes(b"P5 %d %d 255\n" % (width, height) + picture.tobytes())


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--frames", default=3, show_default=True, type=click.IntRange(min=1), help="How many frames.")
@click.option("--size", default=300, show_default=True, type=click.IntRange(min=1), help="Rows and columns of a frame.")
@click.option("--iterations", default=500, show_default=True, type=click.IntRange(1, 65535), help="Most iterations of a point.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the pictures.")
@COMMON
def main(frames: int, size: int, iterations: int, out: Path | None, **common: object) -> None:
    """Compute frames of the Mandelbrot set and compare them with those that one process computes."""
    computed = execute(application(frames, size, iterations), **common)
    inside = float((computed == iterations).mean())
    print(f"{frames} frames of {size} x {size}, {inside:.1%} of the points do not escape in {iterations} iterations")
    if out is not None:
        write_pictures(computed, iterations, out)
        print(f"{frames} pictures in {out}")


if __name__ == "__main__":
    main()
