"""The modules of examples/mpr, which find each other in their own folder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from tests.examples.running import EXAMPLES

FOLDER = EXAMPLES / "mpr"
PROGRAMS = ("mandelbrot", "lanes", "primes", "bzip2_file")


def module(name: str) -> Any:
    """One of them."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return importlib.import_module(name)


def small(name: str, scratch: Path, out: str = "out") -> Any:
    """An application with an input that takes a fraction of a second."""
    program = module(name)
    if name == "mandelbrot":
        return program.application(2, 40, 60)
    if name == "primes":
        return program.application(5_000)
    path = scratch / "input"
    if not path.exists():
        if name == "lanes":
            program.write_video(scratch / "input.avi", 12, 160, 90).rename(path)
        else:
            program.write_text(path, 4.0)
    return program.application(path, scratch / out)
