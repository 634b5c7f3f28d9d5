"""The work on one item, in each of the four applications: the same code in every version.

Each kernel takes an item and gives a result; nothing here depends on how items travel. A kernel takes from a fraction of a microsecond (an
even number) over milliseconds (a row of a picture, a frame of a video) to a tenth of a second (a block of a file).
"""

from __future__ import annotations

import bz2
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Row = tuple[int, int]
"""A frame and a row of it."""
JPEG_QUALITY = 90
LANE_COLOUR = (0, 220, 0)


class View(NamedTuple):
    """The part of the complex plane that the frames show; each frame is ``zoom`` times nearer to the centre than the one before."""

    size: int = 600
    iterations: int = 500
    centre: tuple[float, float] = (-0.743643887037151, 0.131825904205330)
    width: float = 3.0
    zoom: float = 1.6


def mandelbrot_row(view: View, item: Row) -> tuple[Row, Any]:
    """The row, and for each of its ``view.size`` points the number of iterations until it escapes (uint16; ``view.iterations``: it does
    not).

    Points that have escaped are not iterated any more, so a row costs the sum of the iterations of its points.
    """
    frame, row = item
    width = view.width / view.zoom**frame
    steps = (np.arange(view.size) + 0.5) / view.size - 0.5
    cx = view.centre[0] + width * steps
    cy = view.centre[1] + width * ((row + 0.5) / view.size - 0.5)
    counts = np.full(view.size, view.iterations, np.uint16)
    place, x, y = np.arange(view.size), np.zeros(view.size), np.zeros(view.size)
    for count in range(view.iterations):
        xx, yy = x * x, y * y
        inside = xx + yy <= 4.0
        if not inside.all():
            counts[place[~inside]] = count
            place, cx, x, y, xx, yy = (values[inside] for values in (place, cx, x, y, xx, yy))
            if not len(place):
                break
        y = 2.0 * x * y + cy
        x = xx - yy + cx
    return item, counts


def prime_or_zero(number: int) -> int:
    """The number, if it is prime, else 0. By trial division: one for an even number, for a prime one for each odd number up to its root.

    >>> [prime_or_zero(n) for n in range(12)]
    [0, 0, 2, 3, 0, 5, 0, 7, 0, 0, 0, 11]
    """
    if number < 2 or (number % 2 == 0 and number != 2):
        return 0
    divisor = 3
    while divisor * divisor <= number:
        if number % divisor == 0:
            return 0
        divisor += 2
    return number


def compress_block(block: bytes) -> bytes:
    """The block as a whole bzip2 stream. Concatenated streams are a valid .bz2 file."""
    return bz2.compress(block, 9)


def mark_lanes(frame: Any) -> bytes:
    """The frame (height x width x 3, uint8, BGR) with the two borders of its lane drawn in, as a JPEG file."""
    import cv2

    cv2.setNumThreads(1)  # a replica has one core, so the sequential version gets one, too
    height, width = frame.shape[:2]
    edges = cv2.Canny(cv2.GaussianBlur(cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY), (5, 5), 0), 60, 160)
    road = np.array([[(0, height), (int(0.42 * width), int(0.6 * height)), (int(0.58 * width), int(0.6 * height)), (width, height)]])
    mask = cv2.fillPoly(np.zeros_like(edges), road, 255)
    found = cv2.HoughLinesP(cv2.bitwise_and(edges, mask), 1, np.pi / 180, 40, minLineLength=30, maxLineGap=120)
    marked = frame.copy()
    for line in lane_borders(found, height):
        cv2.line(marked, line[0], line[1], LANE_COLOUR, 6)
    done, data = cv2.imencode(".jpg", marked, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not done:
        raise RuntimeError(f"OpenCV could not encode a frame of {width} x {height}")
    return bytes(data)


def lane_borders(segments: Any, height: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The mean of the segments that lean to the right and of those that lean to the left, from the bottom to 0.62 of the height.

    ``segments``: from HoughLinesP, x1 y1 x2 y2 each, or None. Nearly horizontal ones are not borders of a lane.
    """
    if segments is None:
        return []
    x1, y1, x2, y2 = segments.reshape(-1, 4).astype(float).T
    steep = np.abs(y2 - y1) > 0.4 * np.abs(x2 - x1)
    x1, y1, x2, y2 = (values[steep] for values in (x1, y1, x2, y2))
    slope = (x2 - x1) / np.where(y2 == y1, 1.0, y2 - y1)  # pixels to the right for each pixel down
    borders = []
    for side in (slope < 0, slope > 0):
        if side.any():
            weight = np.hypot(x2 - x1, y2 - y1)[side]
            lean = np.average(slope[side], weights=weight)
            at_bottom = np.average(x1[side] + lean * (height - y1[side]), weights=weight)
            top = int(0.62 * height)
            borders.append(((round(at_bottom), height), (round(at_bottom - lean * (height - top)), top)))
    return borders


def draw_road(number: int, width: int, height: int) -> Any:
    """Frame ``number`` of a drive along a road (height x width x 3, uint8, BGR): borders, a dashed middle, a bend, other cars, grain."""
    import cv2

    cv2.setNumThreads(1)
    horizon = int(0.55 * height)
    frame = np.empty((height, width, 3), np.uint8)
    frame[:horizon] = (200, 160, 110)
    frame[horizon:] = (60, 110, 70)
    bend = 0.12 * width * np.sin(number / 40)
    sway = 0.03 * width * np.sin(number / 17)

    def place(side: float, depth: float) -> tuple[int, int]:
        """The point ``side`` road widths from the middle (-0.5 to 0.5), at ``depth`` from 0 (horizon) to 1 (bottom)."""
        x = 0.5 * width + sway * depth + bend * (1 - depth) ** 2 + side * (0.06 + 0.84 * depth) * width
        return round(x), round(horizon + depth * (height - horizon))

    depths = np.linspace(0, 1, 24)
    edge = [place(-0.55, d) for d in depths] + [place(0.55, d) for d in depths[::-1]]
    cv2.fillPoly(frame, [np.array(edge)], (75, 75, 75))
    for side in (-0.5, 0.5):
        points = np.array([place(side, d) for d in depths])
        cv2.polylines(frame, [points], False, (235, 235, 235), max(2, height // 120), cv2.LINE_AA)
    for dash in range(8):  # nearer ones are longer: equal steps on the road are equal steps of 1 / depth
        begin = ((dash + number / 6) % 8) / 8
        depth, end = begin**2, min(1.0, (begin + 0.05) ** 2)
        cv2.line(frame, place(0.0, depth), place(0.0, end), (220, 220, 220), max(1, int(depth * height / 60)), cv2.LINE_AA)
    for car in range(3):
        depth = ((car / 3 + number / 150) % 1.0) ** 2
        x, y = place((-0.25, 0.25, -0.25)[car], depth)
        half, tall = int(0.07 * depth * width), int(0.09 * depth * width)
        cv2.rectangle(frame, (x - half, y - tall), (x + half, y), ((40, 40, 170), (150, 60, 40), (40, 40, 40))[car], -1)
    grain = np.random.default_rng(number).integers(-12, 13, (height, width, 1), np.int16)
    return np.clip(frame + grain, 0, 255).astype(np.uint8)


pause = time.sleep


class Waiting(NamedTuple):
    """A kernel that also waits, as for a disk or another service: ``wait_s`` times the result's load, which is from 0 to 1."""

    kernel: Callable[[Any], Any]
    load: Callable[[Any], float]
    wait_s: float

    def __call__(self, item: Any) -> Any:
        result = self.kernel(item)
        pause(self.wait_s * self.load(result))
        return result
