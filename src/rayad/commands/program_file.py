"""A dataflow in a user's file: ``FILE.py:FLOW``, executed, but not as ``__main__``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import click

# Not "__main__": `if __name__ == "__main__": flow.run()` at the end of a program must not start it.
_RUN_NAME = "__rayad_plan__"


@runtime_checkable
class Plannable(Protocol):
    """What ``rayad plan`` can show; :class:`rayad.Dataflow` is one."""

    def explain(self) -> str:
        """Describe the stages, edges and scopes as text."""

    def to_mermaid(self) -> str:
        """Draw the same as a Mermaid flowchart."""


def load_flow(target: str, *, keep_path: bool = False) -> Plannable:
    """Execute the file of ``FILE.py:FLOW`` and return its dataflow.

    Meanwhile the file's folder is first on ``sys.path``, as with ``python FILE.py``; with ``keep_path`` it stays there. Errors of the
    file itself are not caught: its author needs their traceback. Raises ``click.UsageError`` when there is no such file or dataflow
    in it.
    """
    file_name, separator, flow_name = target.rpartition(":")
    if not separator or not file_name or not flow_name:
        raise click.UsageError(f"{target!r} names no dataflow; write FILE.py:FLOW, for example program.py:flow")
    path = Path(file_name)
    if not path.is_file():
        raise click.UsageError(f"there is no file {file_name!r} (asked for by {target!r})")
    names = _execute(path, keep_path=keep_path)
    if flow_name not in names:
        raise click.UsageError(f"{file_name!r} has no {flow_name!r} at its top level; {_candidates(names)}")
    value = names[flow_name]
    if callable(value) and not isinstance(value, Plannable):
        value = value()
    if isinstance(value, type) or not isinstance(value, Plannable):
        kind = f"{target!r} is a {type(value).__name__}"
        raise click.UsageError(f"{kind}, not a Dataflow or a function that returns one; {_candidates(names)}")
    return value


def _execute(path: Path, *, keep_path: bool) -> dict[str, Any]:
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=_RUN_NAME)
    finally:
        if not keep_path:
            sys.path.remove(folder)


def _candidates(names: dict[str, Any]) -> str:
    flows = sorted(name for name, value in names.items() if isinstance(value, Plannable) and not isinstance(value, type))
    return f"the dataflows there are: {', '.join(flows)}" if flows else "there is no dataflow at its top level"
