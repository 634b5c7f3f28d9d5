"""Iceberg tables as sinks: one that appends, and one that is kept as a collection is.

``catalog.py``: catalogs and their errors; ``types.py``: Iceberg's types; ``partitions.py``: what a partition spec makes of records;
``changes.py``: which files have the rows that changes replace.
"""

from rayad.integrations.iceberg.sink import IcebergSink
from rayad.integrations.iceberg.table import IcebergTable

__all__ = ["IcebergSink", "IcebergTable"]
