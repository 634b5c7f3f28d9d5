"""The memory of a process over time: resident anonymous memory, and what it has mapped of files of state."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import click

EVERY_S = 2.0


class Watched:
    """Prints memory over time, until it is closed."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.peak_mib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        told_s = -EVERY_S
        while not self._over.wait(0.1):
            now_s = time.monotonic() - self.began_s
            anonymous_mib = anonymous()
            self.peak_mib = max(self.peak_mib, anonymous_mib)
            if now_s - told_s >= EVERY_S:
                told_s = now_s
                click.echo(f"{now_s:8.1f} s {anonymous_mib:10.0f} MiB anonymous {mapped():10.0f} MiB of files mapped")


def anonymous() -> float:
    """Resident anonymous memory of this process, in MiB."""
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/smaps_rollup has no line 'Anonymous:'")


def mapped() -> float:
    """What this process has mapped of files of state, in MiB."""
    total = 0
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if "(deleted)" in line:
            low, high = (int(edge, 16) for edge in line.split()[0].split("-"))
            total += high - low
    return total / (1 << 20)


__all__ = ["Watched", "anonymous", "mapped"]
