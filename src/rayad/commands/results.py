"""How the results of a job are printed: for each sink how many, and the first few."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from itertools import islice
from typing import Any

from rayad.actors.job import JobState
from rayad.actors.status.terminal import echo
from rayad.commands import on_cluster

ROWS_SHOWN = 10
WIDTH = 120


def show_results(name: str, state: JobState, results: Mapping[str, Any], *, as_json: bool, rows: int = ROWS_SHOWN) -> None:
    """What each sink gives; as JSON its size alone."""
    if as_json:
        on_cluster.print_json({"name": name, "state": state, "results": {key: _size(value) for key, value in results.items()}})
        return
    echo(f"job {name!r} is {state.value}")
    for key, value in results.items():
        size = _size(value)
        echo(f"{key}: {size:,} records" if size is not None else f"{key}: {_line(value)}", is_data=True)
        if isinstance(value, list | tuple):
            for record in islice(value, rows):
                echo(f"  {_line(record)}", is_data=True)
            if len(value) > rows:
                echo(f"  ... {len(value) - rows:,} more")


def _size(value: Any) -> int | None:
    if hasattr(value, "num_rows"):
        return int(value.num_rows)
    return len(value) if isinstance(value, Sized) and not isinstance(value, str) else None


def _line(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
