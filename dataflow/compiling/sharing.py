"""Which functions get records that have a second holder; and whether one has changed such a record in place.

A record travels by reference wherever it can. The rule for users is short: a function must not change what it is given. Where a change
would certainly be wrong, the local runtime checks: behind ``from_items`` and ``from_epochs`` (the user's own list has the records), behind
an operator that keeps state (which may keep what it emitted), and where a stream has several consumers. Columns cannot be changed and are
not checked; nor are immutable records (numbers, texts, tuples of such). docs/decisions/032-records-are-not-changed-in-place.md.
"""

from __future__ import annotations

import datetime as dt
import decimal
import operator
import pickle
import uuid
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rayad.dataflow.items import ItemsSource
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.operators.bad_records import function_of
from rayad.dataflow.operators.map_batches import MapBatches
from rayad.dataflow.operators.stateless import Filter, FlatMap, Inspect, Map
from rayad.dataflow.plan import ApplyStep, EdgeStep, Plan, ShiftStep, Stage
from rayad.progress import DataflowError, Timestamp, show

ATOMS = frozenset({
    type(None), bool, int, float, complex, str, bytes, dt.date, dt.datetime, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID, Timestamp,
})  # fmt: skip
WHOLE_ROWS = 10_000
"""So many records of each function are checked, then those of one batch in ``ONE_IN``."""
ONE_IN = 16


@dataclass(frozen=True, slots=True)
class Shared:
    """The second holder of the records that a step gets, in words; and whether it has the list of them, too."""

    holder: str
    lists: bool = False


def shared_steps(plan: Plan) -> dict[int, dict[int, Shared]]:
    """By stage: the steps with a user's function whose input may have a second holder."""
    stages = {stage.id: stage for stage in plan.stages}
    given: dict[int, Shared] = {}  # by stage: what its outputs carry
    found: dict[int, dict[int, Shared]] = {stage.id: {} for stage in plan.stages}
    pending = list(stages)
    for stage in plan.stages:
        if (own := _kept_by(stage)) is not None:
            given[stage.id] = own
    while pending:
        stage = stages[pending.pop()]
        for edge, shared in _walk(stage, given.get(stage.id), found[stage.id]):
            target = stages[plan.edges[edge].target]
            if target.kind is NodeKind.EXCHANGE and target.id not in given:
                given[target.id] = shared
                pending.append(target.id)
    return found


def _kept_by(stage: Stage) -> Shared | None:
    if stage.kind is NodeKind.SOURCE and isinstance(stage.op, ItemsSource):
        return Shared("the list that was given to the source")
    if stage.kind is NodeKind.VERTEX and getattr(stage.op, "__module__", "").startswith("rayad.dataflow."):
        return Shared(f"the state of {stage.name!r}")
    return None


def _walk(stage: Stage, own: Shared | None, found: dict[int, Shared]) -> list[tuple[int, Shared]]:
    """Note the steps of a stage whose input is shared; gives the edges on which shared records leave."""
    leaving: list[tuple[int, Shared]] = []
    for numbers in stage.outputs:
        pending = [(number, shared) for number, shared in _each(numbers, own)]
        while pending:
            number, shared = pending.pop()
            step = stage.steps[number]
            if isinstance(step, EdgeStep):
                leaving += [(step.edge, shared)] if shared is not None else []
            elif isinstance(step, ShiftStep):
                pending.extend(_each(step.children, shared))
            elif isinstance(step, ApplyStep):
                element = function_of(step.element)
                if shared is not None and isinstance(element, (Map, FlatMap, Filter, Inspect, MapBatches)):
                    found[number] = shared
                pending.extend(_each(step.children, shared if element.passes_on else None))
    return leaving


def _each(numbers: tuple[int, ...], shared: Shared | None) -> list[tuple[int, Shared | None]]:
    branches = Shared("another consumer of the same stream", lists=True) if len(numbers) > 1 else shared
    return [(number, branches) for number in numbers]


class RecordWatch:
    """Compares the batches of one step before and after the user's function."""

    def __init__(self, shared: Shared, element: Any) -> None:
        self._shared = shared
        self._element = function_of(element)
        self._lists = shared.lists and isinstance(self._element, MapBatches)
        self._rows = 0
        self._batches = 0

    def before(self, batch: Any) -> Any:
        """What :meth:`after` compares with; None where nothing can change, or this batch is not checked."""
        if type(batch) is not list:
            return None
        self._batches += 1
        self._rows += len(batch)
        if self._rows > WHOLE_ROWS and self._batches % ONE_IN:
            return None
        frozen = _frozen(batch)
        return (batch[:] if self._lists else None, frozen) if frozen is not None or self._lists else None

    def after(self, batch: list[Any], before: Any) -> None:
        """Raise DataflowError where a record, or the list, has changed."""
        listed, frozen = before
        if listed is not None and (len(listed) != len(batch) or any(map(operator.is_not, listed, batch))):
            raise self._error(f"changed the list that it was given: {show(listed)} became {show(batch)}")
        if frozen is None or frozen == _frozen(batch):
            return
        for old, new in zip(pickle.loads(frozen), batch, strict=False):
            if not _equal(old, new):
                raise self._error(f"changed a record in place: {show(old)} became {show(new)}")

    def _error(self, what: str) -> DataflowError:
        function = self._element.function
        called = getattr(function, "__qualname__", type(function).__name__)
        return DataflowError(
            f"the function {called} {what}. It is held by {self._shared.holder}, too, which sees the change or not as batches travel: "
            "leave it as it is and return a new one, such as {**record, 'x': 1} or copy.deepcopy(record)"
        )


def _frozen(rows: list[Any]) -> bytes | None:
    """The pickled records; None where none of them can change, or they cannot be pickled."""
    level: list[Any] = rows
    while True:
        kinds = set(map(type, level))
        if kinds <= ATOMS:
            return None
        if not kinds <= ATOMS | {tuple, frozenset}:
            break
        level = list(chain.from_iterable(value for value in level if type(value) in (tuple, frozenset)))
    try:
        return pickle.dumps(rows, 5)
    except Exception:  # then it cannot be told
        return None


def _equal(old: Any, new: Any) -> bool:
    """Whether a record is what it was: a cached property is no change."""
    try:
        return bool(old == new) or pickle.dumps(old, 5) == pickle.dumps(new, 5)
    except Exception:  # arrays are not simply equal
        return pickle.dumps(old, 5) == pickle.dumps(new, 5)
