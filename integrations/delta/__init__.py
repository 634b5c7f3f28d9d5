"""Delta tables as sinks: one that appends, and one that is kept as a collection is."""

from rayad.integrations.delta.sink import DeltaSink
from rayad.integrations.delta.table import DeltaTable

__all__ = ["DeltaSink", "DeltaTable"]
