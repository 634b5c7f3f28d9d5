"""Which seed catches which planted defect. The table is a file, which ``python -m tests.simulation.find_seeds --stale`` rewrites."""

from __future__ import annotations

import json
from pathlib import Path

TABLE = Path(__file__).with_name("caught_by.json")


def all_caught() -> dict[str, dict[str, int]]:
    """By group, as :mod:`find_seeds` calls them, and defect: a seed that catches it."""
    found: dict[str, dict[str, int]] = json.loads(TABLE.read_text())
    return found


def caught_by(group: str) -> dict[str, int]:
    """The defects of one group, each with its seed."""
    return all_caught()[group]


def write(table: dict[str, dict[str, int]]) -> None:
    """Replace the file."""
    TABLE.write_text(json.dumps(table, indent=2) + "\n")


__all__ = ["all_caught", "caught_by", "write"]
