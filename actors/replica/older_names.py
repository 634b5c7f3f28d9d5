"""The names that classes had when older snapshots were written: state is pickled, and names its classes by module.

When a class that may be in a vertex' state moves or gets another name, it gets a line here.
"""

from __future__ import annotations

from collections.abc import Iterator

MOVED = {
    "dataflow.calling": ("dataflow.records.calling",),
    "dataflow.columnar": ("dataflow.records.batches",),
    "dataflow.elements": ("dataflow.operators.stateless",),
    "dataflow.event_times": ("dataflow.records.event_times",),
    "dataflow.exact": ("dataflow.records.exact",),
    "dataflow.graph": ("dataflow.logical_graph", "dataflow.records.selectors"),
    "dataflow.operators.aggregates": ("dataflow.operators.aggregates.aggregators",),
    "dataflow.operators.column_best": ("dataflow.operators.windows.best",),
    "dataflow.operators.column_epochs": ("dataflow.operators.totals.epochs",),
    "dataflow.operators.column_join": ("dataflow.operators.joins.columns", "dataflow.operators.keys.key_first"),
    "dataflow.operators.column_keys": ("dataflow.operators.keys.column_keys",),
    "dataflow.operators.column_match": ("dataflow.operators.joins.matching",),
    "dataflow.operators.column_packing": ("dataflow.operators.keys.packing",),
    "dataflow.operators.column_panes": ("dataflow.operators.windows.pane_runs",),
    "dataflow.operators.column_results": ("dataflow.operators.results",),
    "dataflow.operators.column_schemas": ("dataflow.operators.keys.schemas",),
    "dataflow.operators.column_sessions": ("dataflow.operators.windows.sessions",),
    "dataflow.operators.column_state": ("dataflow.operators.windows.columns",),
    "dataflow.operators.column_totals": ("dataflow.operators.totals.columns",),
    "dataflow.operators.column_windows": ("dataflow.operators.windows.panes",),
    "dataflow.operators.combining": ("dataflow.operators.aggregates.combiner",),
    "dataflow.operators.contents": ("dataflow.operators.state.contents",),
    "dataflow.operators.dense_groups": ("dataflow.operators.keys.dense_groups",),
    "dataflow.operators.event_windows": ("dataflow.operators.windows.firing",),
    "dataflow.operators.key_groups": ("dataflow.operators.state.group_index",),
    "dataflow.operators.key_index": ("dataflow.operators.state.key_index",),
    "dataflow.operators.keyed": ("dataflow.operators.keys.keyed", "dataflow.records.selectors"),
    "dataflow.operators.late_records": ("dataflow.operators.windows.late_records",),
    "dataflow.operators.ordering": ("dataflow.operators.order.ordered",),
    "dataflow.operators.reorder_store": ("dataflow.operators.order.reorder_store",),
    "dataflow.operators.slot_groups": ("dataflow.operators.state.slot_groups",),
    "dataflow.operators.stateful": ("dataflow.operators.distinct", "dataflow.operators.stateful_map", "dataflow.operators.joins.join"),
    "dataflow.operators.stored_columns": ("dataflow.operators.state.stored_columns",),
    "dataflow.operators.stored_rows": ("dataflow.operators.state.stored_rows",),
    "dataflow.operators.sums": ("dataflow.operators.aggregates.sums",),
    "dataflow.operators.totals": ("dataflow.operators.totals.totals",),
    "dataflow.operators.touched_keys": ("dataflow.operators.state.touched_keys",),
    "dataflow.operators.watermarks": ("dataflow.operators.windows.watermarks",),
    "dataflow.operators.window_join": ("dataflow.operators.joins.windowed",),
    "dataflow.operators.windowing": ("dataflow.operators.windows.assigning",),
    "integrations.raydp_session": ("integrations.spark.session",),
    "integrations.spark": ("integrations.spark.frames",),
    "integrations.spark_blocks": ("integrations.spark.blocks",),
    "progress.chain": ("progress.counted.chain",),
    "progress.change_batch": ("progress.counted.change_batch",),
    "progress.least_index": ("progress.counted.least_index",),
    "progress.staircase": ("progress.counted.staircase",),
}
"""Modules until 2026-11-22, without ``rayad.``, and where their classes are now."""


def places(module: str, name: str) -> Iterator[tuple[str, str]]:
    """Where a class of a snapshot may be, most likely first; until 2026-11-22 classes that change began with ``Mutable``."""
    for called in (name, name.removeprefix("Mutable")):
        for place in (*(f"rayad.{moved}" for moved in MOVED.get(module.removeprefix("rayad."), ())), module):
            yield place, called
