"""What a vertex of ours is in the graph: a factory that can be pickled, and pairs exchanged by key."""

from __future__ import annotations

from typing import Any

from rayad.dataflow.compiling.state_identity import describe
from rayad.dataflow.logical_graph import Partition, PartitionKind
from rayad.dataflow.operators.keys.keyed import PAIRS

BY_PAIR = Partition(PartitionKind.KEYS, PAIRS)
"""The exchange of pairs that the elements of ``operators.keyed`` make."""


class Make:
    """A picklable vertex factory: a class and its arguments."""

    def __init__(self, cls: Any, *args: Any, **kwargs: Any) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs
        self.reads: dict[str, Any] = {}
        self.__name__ = cls.__name__

    def reading(self, **selectors: Any) -> Make:
        """Note where its keys, values and times come from: columns are part of the state's identity. Gives itself again."""
        self.reads = {name: describe(selector) for name, selector in selectors.items()}
        return self

    def __call__(self) -> Any:
        return self.cls(*self.args, **self.kwargs)
