"""Values as they travel between processes of Ray.

A small one goes in the call. From Ray's store each process that takes it needs several messages more, to who put it there and to its node:
of a warm job that took 57 ms, whose plan is small, they were 4. To find out that a value is not small takes less than a millisecond.
"""

from __future__ import annotations

import io
from typing import Any

import ray
from ray import cloudpickle
from ray.actor import ActorHandle

from rayad.actors.cluster import ray_calls

CALL_BYTES_MAX = 64 << 10
"""Ray sends an argument of up to 100 KiB with the call."""
_COUNTED = (ray.ObjectRef, ray.ObjectRefGenerator, ActorHandle)
Parcel = list[Any]
"""A pickle, or a reference to the value: in a list, so that who is called reads it, and tells where it cannot be read."""


class _Packer(cloudpickle.Pickler):
    """Notes whether an object is a reference into Ray's store."""

    has_references = False

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ray.ObjectRef):
            self.has_references = True
        return super().reducer_override(obj)


class _DoesNotFit(Exception):
    """The value has to go through Ray's store."""


class _Room(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > CALL_BYTES_MAX:
            raise _DoesNotFit
        return super().write(data)


class _SmallPacker(cloudpickle.Pickler):
    """Gives up at what Ray counts the users of: it does not see those in a pickle."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _COUNTED):
            raise _DoesNotFit
        return super().reducer_override(obj)


def pack(what: Any) -> tuple[bytes, bool]:
    """The pickle of what must outlive this process, and whether there are references in it to what dies with who made it."""
    buffer = io.BytesIO()
    packer = _Packer(buffer)
    packer.dump(what)
    return buffer.getvalue(), packer.has_references


def parcel(what: Any) -> Parcel:
    """A value for one or several calls. Raises what ``ray.put`` does."""
    room = _Room()
    try:
        _SmallPacker(room).dump(what)
    except Exception:  # too large, or it cannot be pickled: then Ray tells why
        return [ray_calls.put(what)]
    return [room.getvalue()]


def opened(given: Parcel, within_s: float) -> Any:
    """The value. Raises what ``ray.get`` does, and what unpickling it raises."""
    (inner,) = given
    return cloudpickle.loads(inner) if isinstance(inner, bytes) else ray.get(inner, timeout=within_s)


__all__ = ["Parcel", "opened", "pack", "parcel"]
