"""What a vertex of ours is in the graph: a factory that can be pickled, pairs exchanged by key, and what its results are called."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rayad.dataflow.compiling.state_identity import describe
from rayad.dataflow.logical_graph import LogicalGraph, Node, NodeKind, Partition, PartitionKind
from rayad.dataflow.operators.aggregates.aggregators import Aggregator, Several
from rayad.dataflow.operators.as_columns import Labels
from rayad.dataflow.operators.bad_records import Good, Tried
from rayad.dataflow.operators.keys.keyed import PAIRS
from rayad.dataflow.operators.projections import Widen
from rayad.dataflow.operators.results import WithoutKey
from rayad.dataflow.operators.windows.best import EachRecord
from rayad.dataflow.records.selectors import KeySelector, ValueSelector

BY_PAIR = Partition(PartitionKind.KEYS, PAIRS)
"""The exchange of pairs that the elements of ``operators.keyed`` make."""


class Make:
    """A picklable vertex factory: a class and its arguments."""

    def __init__(self, cls: Any, *args: Any, **kwargs: Any) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs
        self.reads: dict[str, Any] = {}
        self.labels = Labels()
        self.outputs = 1
        self.shows: pa.Schema | None = None
        """The columns of its table, those whose types are known when the program is written; they are there though nothing else is."""
        self.__name__ = cls.__name__

    def reading(self, **selectors: Any) -> Make:
        """Note where its keys, values and times come from: columns are part of the state's identity. Gives itself again."""
        self.reads = {name: describe(selector) for name, selector in selectors.items()}
        self.labels = self._labels(**selectors)
        return self

    def _labels(self, key: KeySelector, value: ValueSelector | None = None, right_key: KeySelector | None = None, **_: Any) -> Labels:
        """What its results are called: the key as its columns; a value of an aggregation as ``sum(v)`` where a column is named, else
        ``sum``; a column that is passed on as it was."""
        aggregator = next((given for given in self.args if isinstance(given, Aggregator)), None)
        if aggregator is None:
            as_it_came, called = getattr(self.cls, "gives_records", False), "value"
        else:
            as_it_came, called = aggregator.gives_records, "value" if isinstance(aggregator, Several) else aggregator.name
            value = getattr(aggregator, "value", value) if as_it_came else value  # a value of its own, out of the record
        if value is not None and value.column is not None and (aggregator is not None or as_it_came):
            called = value.column if aggregator is None else f"{called}({value.column})"
        record = as_it_came and (value is None or value.is_record)
        return Labels(key.columns, called, record, () if right_key is None else right_key.columns)

    def __call__(self) -> Any:
        return self.cls(*self.args, **self.kwargs)


LABELS_OF = "labels of"
"""Option of a node whose results are called as those of another one, by its number."""
_PASSING = frozenset((NodeKind.UNION, NodeKind.EXCHANGE, NodeKind.INGRESS, NodeKind.EGRESS))


def labels_of(graph: LogicalGraph, start: int) -> Labels:
    """What the results of node ``start`` are called; where several operators made them, and call them differently, as where none did."""
    found, seen, waiting = set[Labels](), {start}, [start]
    while waiting:
        node = graph.nodes[waiting.pop()]
        before = {edge.source for edge in node.inputs}
        if LABELS_OF in node.options:
            before = {node.options[LABELS_OF]}
        elif isinstance(node.op, Make):
            found.add(node.op.labels)
            continue
        elif not _passes(node):
            return Labels()
        seen_before, seen = seen, seen | before
        waiting.extend(before - seen_before)
    return found.pop() if len(found) == 1 else Labels()


def _passes(node: Node) -> bool:
    if node.kind is not NodeKind.STATELESS:
        return node.kind in _PASSING
    step = node.op.element if isinstance(node.op, Tried) else node.op
    return bool(step.passes_on or isinstance(step, (EachRecord, Good, Widen, WithoutKey)))
