"""What the process of a replica uses of these modules, in one import: its actor's class is loaded without them."""

import pyarrow as pa

from rayad.actors.host.isolated import isolated
from rayad.actors.host.worker_host import on_sockets
from rayad.actors.lead.failure import failure_of
from rayad.actors.process.allocator import have_freed_memory, keep_freed_memory
from rayad.actors.replica.report import Pulse, told
from rayad.progress import ProtocolError


def load_for_columns() -> None:
    """Arrow imports pandas, if that is installed, when it first makes an array: half a second of the first batch, else."""
    pa.array([])


__all__ = [
    "ProtocolError",
    "Pulse",
    "failure_of",
    "have_freed_memory",
    "isolated",
    "keep_freed_memory",
    "load_for_columns",
    "on_sockets",
    "told",
]
