"""What jobs of a session will probably use, loaded in its processes while they wait for the first one."""

from __future__ import annotations

from importlib import import_module

OFTEN = ("rayad.integrations.parquet", "rayad.dataflow.streams.keyed_joins")
"""Files of Parquet, and joins with the windows that they bring: sixty milliseconds of a processor. Not pandas, which Arrow imports at the
first array and a job of rows does not need."""


def load_ahead() -> None:
    """Load it. In the thread that takes jobs: two threads must not import one package side by side."""
    for name in OFTEN:
        import_module(name)


__all__ = ["load_ahead"]
