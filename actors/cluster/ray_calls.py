"""``ray.get``, ``ray.wait`` and ``ray.kill`` of a driver, which never start a Ray.

Ray's own functions start a Ray, or join any that they find, when the process is connected to none. So a thread that called one after
``ray.shutdown()``, or while the process was ending, was connected to Ray again; to check for a connection first is a race.
"""

from __future__ import annotations

import inspect
from typing import Any

import ray
from ray.exceptions import RaySystemError

from rayad.progress import RayadError

_get, _wait, _kill = (inspect.unwrap(call) for call in (ray.get, ray.wait, ray.kill))
GONE = "Ray has been shut down in this process, and with it the actors of its jobs: nothing can be asked any more"


def get(refs: Any, timeout: float | None = None) -> Any:
    """As ``ray.get``. Raises RayadError when Ray has been shut down."""
    try:
        return _get(refs, timeout=timeout)
    except RaySystemError as error:
        raise RayadError(GONE) from error


def wait(refs: Any, num_returns: int = 1, timeout: float | None = None) -> Any:
    """As ``ray.wait``. Raises RayadError when Ray has been shut down."""
    try:
        return _wait(refs, num_returns=num_returns, timeout=timeout)
    except RaySystemError as error:
        raise RayadError(GONE) from error


def kill(actor: Any) -> None:
    """As ``ray.kill``; an actor of a Ray that has been shut down is gone already."""
    try:
        _kill(actor, no_restart=True)
    except RaySystemError:
        pass


__all__ = ["get", "kill", "wait"]
