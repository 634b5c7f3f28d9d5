"""`KeyedStream.process`: a user's process for each key, on one stream or two."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rayad.dataflow.compiling.state_identity import of_class
from rayad.dataflow.logical_graph import LogicalEdge, NodeKind
from rayad.dataflow.operators.process import KeyedProcess, Process
from rayad.dataflow.operators.windows.late_records import PlaceRows
from rayad.dataflow.records.calling import require_methods
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.streams import updates
from rayad.dataflow.streams.in_time.timed_edges import largest_of, placed, require_event_time, sides_of
from rayad.dataflow.streams.keyed_steps import require_no_ttl, require_records
from rayad.dataflow.streams.making import BY_PAIR, Make
from rayad.dataflow.streams.steps import materialised
from rayad.dataflow.streams.stream import Stream, own_stream
from rayad.progress import DataflowError, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.keyed_stream import KeyedStream


def keyed_process(left: KeyedStream, process: Any, other: Any, name: str | None, parallelism: int | None) -> Stream:
    """See :meth:`KeyedStream.process`. A call that is refused changes nothing."""
    what, flow = f"process at {users_line()}", left.flow
    if isinstance(process, Process) or not callable(process) or (isinstance(process, type) and not issubclass(process, Process)):
        raise DataflowError(
            f"{what} was given {show(process, 60)}: give a subclass of rd.Process, or a function that makes one, so that each replica has "
            "its own"
        )
    if isinstance(process, type):
        require_methods(process, Process, ("on_record", "on_other", "on_timer"))
        if other is not None and getattr(process, "on_other", None) is Process.on_other:
            raise DataflowError(f"{what}: {process.__name__} is given another stream but has no on_other(self, key, record, context)")
    inputs = [left] if other is None else [left, other]
    for side in inputs:
        if not isinstance(side, type(left)):
            raise DataflowError(f"{what} was given other={show(side)}: the other stream must be keyed with key_by, too")
        own_stream(flow, side.stream, "process")
        require_no_ttl(side, "process", "a process forgets a key where it sets context.state to None, say in on_timer; leave ttl() out")
        require_records(side, "process")
        require_event_time(side.stream, "process", "leave the loop before")
    flow.graph.require_free(name)
    base = name or getattr(process, "__name__", "process").strip("<>")
    edges: list[LogicalEdge] = []
    largest: list[LogicalEdge] = []
    sides: list[Any] = []
    for side in inputs:
        start = materialised(side.stream)
        found = sides_of(start)
        edges.append(LogicalEdge(placed(start, f"{base}.prepare", partial(PlaceRows, side.key, windows=None)), 0, BY_PAIR))
        largest += largest_of(flow, found, base)
        sides += found
    make = Make(KeyedProcess, process, tuple(one.rule.told for one in sides), len(inputs))
    keys = {"key": left.key} if other is None else {"key": left.key, "right_key": other.key}
    make.reading(**keys, time=[one.selector for one in sides])
    if isinstance(process, type):
        make.reads["of"] = of_class(process)
    node = flow.graph.add(NodeKind.VERTEX, 0, name=name, base=base, op=make, inputs=edges + largest, parallelism=parallelism)
    node.options[updates.TAKES] = ("process", False)
    return Stream(flow, node.id)
