"""Where those who read state find a process of a job. Loaded also where there are no sockets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rayad.actors.plane.address import Address


@dataclass(frozen=True, slots=True)
class Where:
    """Where a process of a job listens, and as what.

    Args:
        process: its name on the plane.
        address: of its plane.
        incarnation: of its plane.
        job: as the plane knows it.
        secret: of the job.
        seals: whether the job encrypts its frames.
    """

    process: str
    address: Address
    incarnation: int
    job: str
    secret: bytes = field(repr=False)
    seals: bool


__all__ = ["Where"]
