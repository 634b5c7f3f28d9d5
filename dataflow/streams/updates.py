"""Running totals are updates of a table, not records: in each epoch that touches a key it comes again with another value.

An operator with state that took them for records would count a key once for each of its values. So it is refused when the program is
written, wherever the same key may come twice: behind a running total (and behind the graph algorithms, whose results are updates too), as
far as stateless operators, unions, exchanges and boundaries of loops carry them. It is allowed where

- all input is in one epoch (``Source.one_epoch``), so that each key comes once;
- totals are windows of each epoch alone (``per_epoch``): these are records, and taking updates by epoch counts no key twice;
- both operators are in the body of one loop: there a round's results are what the next round works on (the smallest label so far);
- the program says ``as_records()``.

docs/decisions/030-running-totals-are-updates.md says why.
"""

from __future__ import annotations

from rayad.dataflow.logical_graph import LogicalGraph, Node, NodeKind
from rayad.dataflow.records.users_line import users_line
from rayad.progress import DataflowError

UPDATES_OF = "updates of"
"""Option of a node that gives updates: the node whose input decides whether there is more than one epoch."""
PASSES = "passes updates"
"""Option of a vertex that gives what it takes."""
RECORDS = "records"
"""Option of the node of ``as_records()``."""
KEYS_END = "keys end"
"""Option of a vertex whose keys end, of which it tells those that read its updates as a table."""
OF_USER = "of the user"
"""Option of a vertex that may send in epochs of its own choice."""
TAKES = "takes records"
"""Option of a vertex that is not to be given updates: ``(what it is called, whether it takes those of each time alone)``."""

_PASSING = frozenset((NodeKind.STATELESS, NodeKind.UNION, NodeKind.EXCHANGE, NodeKind.INGRESS, NodeKind.EGRESS, NodeKind.FEEDBACK))


def require_records(graph: LogicalGraph, start: int, scope: int, what: str, *, per_time: bool = False, where: str | None = None) -> None:
    """Raise DataflowError if an operator in ``scope`` must not take what node ``start`` gives. ``per_time``: it takes each time alone."""
    for maker in _makers(graph, start):
        made_in = graph.scope_of_output(maker)
        if made_in != 0 and made_in in _around(graph, scope):
            continue  # the rounds of one loop
        left_a_loop = made_in != 0
        if not left_a_loop and (per_time or is_one_epoch(graph, maker.options[UPDATES_OF])):
            continue
        again = "round of its loop" if left_a_loop else "epoch"
        instead = (
            "Let only what is final leave the loop (a filter) and say .as_records() behind it"
            if left_a_loop
            else "For figures of each epoch alone use .window(rd.windows.per_epoch()) behind key_by; .changes() gives what an update takes "
            "back, too; if each update is to be a record of its own, say .as_records() before it"
        )
        raise DataflowError(
            f"{what} at {where or users_line()} is given running totals: {maker.name!r} ({maker.where}) gives a key again, with its new "
            f"value, in each {again} that touches it, and {what} would take each of these as one more record. {instead}"
        )


def require_totals(graph: LogicalGraph, start: int, scope: int, what: str, called: str, instead: str) -> bool:
    """Raise DataflowError unless node ``start`` gives running totals, each key once in a time: what reads them as a table, update by
    update, needs their order. Gives whether their keys end; node ``start`` then tells which."""
    makers = _makers(graph, start)
    if not makers:
        raise DataflowError(
            f"{what} at {users_line()}: {called!r} gives no running totals; it is for what count, sum, aggregate, fold ... give, as "
            f"(key, value){instead}"
        )
    for maker in makers:
        if KEYS_END in maker.options and maker.id != start:
            raise DataflowError(
                f"{what} at {users_line()}: the keys of {maker.name!r} ({maker.where}) have a time-to-live, and {called!r} does not pass "
                f"on which of them have ended; call {what}() right behind {maker.name!r}, and {called!r} behind that"
            )
        made_in = graph.scope_of_output(maker)
        if made_in != 0 and made_in not in _around(graph, scope):
            raise DataflowError(
                f"{what} at {users_line()}: {maker.name!r} ({maker.where}) is within a loop, so a key may leave it several times in an "
                "epoch, in no order. Let only what is final leave the loop (a filter), and say .as_records() behind it"
            )
    return any(KEYS_END in maker.options for maker in makers)


def gives_several(graph: LogicalGraph, start: int) -> bool:
    """Whether node ``start`` may give a key again, with another value, in another epoch."""
    makers = _makers(graph, start)
    return any(graph.scope_of_output(maker) != 0 or not is_one_epoch(graph, maker.options[UPDATES_OF]) for maker in makers)


def _makers(graph: LogicalGraph, start: int) -> list[Node]:
    """The nodes whose updates reach the output of node ``start``."""
    out, seen, waiting = [], {start}, [start]
    while waiting:
        node = graph.nodes[waiting.pop()]
        if RECORDS in node.options:
            continue
        if UPDATES_OF in node.options:
            out.append(node)
        elif node.kind in _PASSING or PASSES in node.options:
            fresh = {edge.source for edge in node.inputs} - seen
            seen |= fresh
            waiting.extend(fresh)
    return out


def is_one_epoch(graph: LogicalGraph, start: int) -> bool:
    """Whether the program's structure alone says that all records of node ``start`` are in one epoch."""
    seen, waiting = {start}, [start]
    while waiting:
        node = graph.nodes[waiting.pop()]
        if node.kind is NodeKind.SOURCE:
            if not node.op.one_epoch:
                return False
            continue
        decides = node.options.get(UPDATES_OF)
        if node.kind is NodeKind.INPUT or (decides is None and OF_USER in node.options):
            return False
        fresh = ({edge.source for edge in node.inputs} if decides is None else {decides}) - seen
        seen |= fresh
        waiting.extend(fresh)
    return True


def _around(graph: LogicalGraph, scope: int) -> set[int]:
    """The scope and those that it lies in."""
    out = set()
    at: int | None = scope
    while at is not None:
        out.add(at)
        at = graph.scopes[at].parent
    return out


def require_records_behind(graph: LogicalGraph, feedback: Node) -> None:
    """Check operators that were written before the feedback was connected; if one refuses updates, the feedback is disconnected again."""
    try:
        for node in graph.nodes[feedback.id :]:
            if TAKES in node.options:
                what, per_time = node.options[TAKES]
                for edge in node.inputs:
                    require_records(graph, edge.source, node.scope, what, per_time=per_time, where=node.where)
    except DataflowError:
        feedback.inputs.clear()
        raise


def gives_updates(graph: LogicalGraph, node: int, of: int) -> None:
    """Say that ``node`` gives updates; whether in more than one epoch, the input that node ``of`` gives decides."""
    graph.nodes[node].options[UPDATES_OF] = of


__all__ = [
    "KEYS_END",
    "OF_USER",
    "PASSES",
    "RECORDS",
    "TAKES",
    "UPDATES_OF",
    "gives_updates",
    "is_one_epoch",
    "require_records",
    "require_totals",
    "require_records_behind",
]
