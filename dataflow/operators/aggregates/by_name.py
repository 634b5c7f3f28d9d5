"""The aggregations that a user may name by a word."""

from __future__ import annotations

from typing import Any

from rayad.dataflow.operators.aggregates.aggregators import Aggregator, Count, ExactMean, ExactSum, Max, Mean, Min, Sum
from rayad.dataflow.operators.aggregates.collected import CollectList, CountDistinct
from rayad.dataflow.operators.aggregates.first_last import First, Last
from rayad.dataflow.operators.aggregates.sketches import ApproxCountDistinct
from rayad.dataflow.operators.aggregates.truth import AllTrue, AnyTrue
from rayad.dataflow.operators.aggregates.variance import Deviation, Variance
from rayad.dataflow.records.calling import require_methods
from rayad.progress import DataflowError, show

BY_NAME: dict[str, type[Aggregator]] = {
    "count": Count,
    "sum": Sum,
    "min": Min,
    "max": Max,
    "mean": Mean,
    "var": Variance,
    "std": Deviation,
    "any": AnyTrue,
    "all": AllTrue,
    "first": First,
    "last": Last,
    "count_distinct": CountDistinct,
    "collect_list": CollectList,
    "approx_count_distinct": ApproxCountDistinct,
    "exact_sum": ExactSum,
    "exact_mean": ExactMean,
}


def by_name(name: Any) -> Aggregator:
    """The built-in aggregation of that name, or ``name`` itself if it is an Aggregator."""
    if isinstance(name, Aggregator):
        require_methods(name, Aggregator, ("create", "add", "merge", "result", "emitted"))
        return name
    if not isinstance(name, str) or name not in BY_NAME:
        raise DataflowError(f"there is no aggregation {show(name, 60)}: use one of {sorted(BY_NAME)} or an instance of rd.Aggregator")
    return BY_NAME[name]()
