"""Find the borders of the lane in a video of a road, frame by frame, in order. Needs OpenCV: pip install "rayad[video]".

    python examples/mpr/lanes.py                                   # a drive that it draws itself, on Ray, two replicas
    python examples/mpr/lanes.py drive.mp4 --out marked.mjpeg
    python examples/mpr/lanes.py --runtime pool
    python examples/mpr/lanes.py --frames 1500 --waiting-ms 100 --policy mpr --goal 50 --replicas 12 --plot lanes.png   # figure 7.2

The result is Motion JPEG, one JPEG picture after the other for the frames: ffplay, mpv and VLC show it, and OpenCV reads it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
from command_line import COMMON, execute
from kernels import draw_road, mark_lanes
from outputs import Pieces, md5_of_file
from versions import Application, dataflow

import rayad as rd

FRAMES_PER_S = 25


def frames(path: str) -> Iterator[Any]:
    """The frames of a video: arrays (height x width x 3, uint8, BGR)."""
    import cv2

    video = cv2.VideoCapture(path)
    try:
        if not video.isOpened():
            raise ValueError(f"OpenCV cannot read {path} as a video")
        while (read := video.read())[0]:
            yield read[1]
    finally:
        video.release()


def write_video(path: Path, count: int, width: int, height: int) -> Path:
    """The drive of :func:`kernels.draw_road` as a Motion JPEG video in an AVI file."""
    import cv2

    video = cv2.VideoWriter(str(path), cv2.CAP_OPENCV_MJPEG, cv2.VideoWriter.fourcc(*"MJPG"), FRAMES_PER_S, (width, height))
    if not video.isOpened():
        raise RuntimeError(f"OpenCV cannot write {path}")
    for number in range(count):
        video.write(draw_road(number, width, height))
    video.release()
    return path


def full_load(result: bytes) -> float:
    """Every frame waits equally long."""
    return 1.0


def application(path: Path, out: Path) -> Application:
    """Mark the lanes of the video ``path``, and write it to ``out``."""
    items, output = partial(frames, str(path.absolute())), partial(Pieces, str(out.absolute()))
    return Application("lanes", items, mark_lanes, full_load, output, md5_of_file, ordered=True)


def flow() -> rd.Dataflow:
    """For ``rayad plan examples/mpr/lanes.py:flow``."""
    return dataflow(application(Path("drive.avi"), Path("lanes.mjpeg")))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The marked video; a temporary one by default.")
@click.option("--frames", "count", default=250, show_default=True, type=click.IntRange(min=1), help="Frames of the drive without PATH.")
@click.option("--width", default=640, show_default=True, type=click.IntRange(min=64), help="Their width; the height is 9/16 of it.")
@COMMON
def main(path: Path | None, out: Path | None, count: int, width: int, **common: Any) -> None:
    """Mark the lane in the video PATH (by default a drive that is drawn here) and compare with what one process marks."""
    with tempfile.TemporaryDirectory(prefix="rayad-lanes-") as scratch:
        video = path if path is not None else write_video(Path(scratch) / "drive.avi", count, width, width * 9 // 16)
        marked = out if out is not None else Path(scratch) / "lanes.mjpeg"
        written = execute(application(video, marked), application(video, Path(scratch) / "alone.mjpeg"), **common)
        shown = sum(1 for _ in frames(written))
        print(f"{shown:,} frames, {Path(written).stat().st_size:,} bytes of Motion JPEG")


if __name__ == "__main__":
    main()
