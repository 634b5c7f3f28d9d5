"""What a barrier says, and the channels that it travels on. Source: Carbone et al., 2015, 4.2."""

from __future__ import annotations

import marshal
from typing import NamedTuple


class Barrier(NamedTuple):
    """One attempt at a snapshot, on its way along every channel.

    Args:
        number: of the attempt; attempts of a run only grow, those given up leave gaps.
        slot: the number that the snapshot will have in the store when it is published.
        base: the attempt that was published last, 0 for none: an increment may build on it and on nothing else.
        unaligned: whether it overtakes what is on the way.
        final: the job is complete: nothing is in flight, and sources will not be read again.
    """

    number: int
    slot: int
    base: int = 0
    unaligned: bool = False
    final: bool = False

    def pack(self) -> bytes:
        """As bytes.

        >>> Barrier.unpack(Barrier(7, 3, base=5).pack())
        Barrier(number=7, slot=3, base=5, unaligned=False, final=False)
        """
        return marshal.dumps(tuple(self))

    def turned_unaligned(self) -> Barrier:
        """This attempt's barrier, which from here on overtakes the batches on its way."""
        return self._replace(unaligned=True)

    @staticmethod
    def unpack(payload: bytes | memoryview) -> Barrier:
        """The inverse of :meth:`pack`."""
        return Barrier(*marshal.loads(payload))


__all__ = ["Barrier"]
