"""Planes for tests: several in one thread, each polled in turn, so that nothing waits and nothing sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rayad.actors.plane.plane import Address, Frame, Plane

SECRET = b"0123456789abcdef0123456789abcdef"


def new_plane(name: str, **changes: Any) -> Plane:
    settings: dict[str, Any] = {"name": name, "job": "job", "incarnation": 1, "secret": SECRET}
    return Plane(**settings | changes)


def pump(planes: list[Plane], until: Callable[[dict[str, list[Frame]]], bool], timeout_s: float = 20.0) -> dict[str, list[Frame]]:
    """Poll the planes in turn until the frames that they gave satisfy `until`."""
    got: dict[str, list[Frame]] = {plane.name: [] for plane in planes}
    stop_s = time.monotonic() + timeout_s
    while not until(got):
        assert time.monotonic() < stop_s, f"nothing more came after { {name: len(frames) for name, frames in got.items()} }"
        for plane in planes:
            got[plane.name] += plane.poll(0.0005)
    return got


def join(a: Plane, b: Plane, address: Address) -> None:
    """Connect `a` to `b`, which listens at `address`."""
    a.start_connect(b.name, address)
    pump([a, b], lambda _: a.connected(b.name) and b.connected(a.name))


@contextmanager
def joined(transport: str = "unix", **changes: Any) -> Iterator[tuple[Plane, Plane]]:
    """Give two connected planes, a and b; `a` has connected."""
    with new_plane("a", **changes) as a, new_plane("b", **changes) as b:
        address = b.listen()
        join(a, b, address if transport == "unix" else address.without_unix())
        yield a, b
        for plane in (a, b):
            plane.close(linger_s=0)


@contextmanager
def served(plane: Plane) -> Iterator[None]:
    """Poll a plane in a thread."""
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            plane.poll(None)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        plane.wakeup()
        thread.join()
