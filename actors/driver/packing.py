"""Packing what must outlive this process: does it refer to objects in Ray's store, which die with the process that made them?"""

from __future__ import annotations

import io
from typing import Any

import ray
from ray import cloudpickle


class _Packer(cloudpickle.Pickler):
    """Notes whether an object is such a reference."""

    has_references = False

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ray.ObjectRef):
            self.has_references = True
        return super().reducer_override(obj)


def pack(what: Any) -> tuple[bytes, bool]:
    """The pickle, and whether there are references in it."""
    buffer = io.BytesIO()
    packer = _Packer(buffer)
    packer.dump(what)
    return buffer.getvalue(), packer.has_references


__all__ = ["pack"]
