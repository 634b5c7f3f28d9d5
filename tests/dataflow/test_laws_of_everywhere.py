"""The laws of state that each replica has whole: what is given stays; who is told by several, twice, or in another order knows the same."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest

import rayad as rd
from rayad.actors.replica.parts.part_files import loaded
from rayad.dataflow.operators.joins.broadcast import SmallSide
from rayad.dataflow.operators.processing_time import Readings
from rayad.dataflow.operators.state.keyed_state import Everywhere, KeyedVertex
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.totals.tables import EpochsAsked
from rayad.dataflow.operators.windows.watermarks import Marks
from tests.dataflow.driven import pickled

GROUPS = frozenset({0})


class Asking(KeyedVertex):
    """Keeps the times that it has asked for."""

    def __init__(self) -> None:
        self.asked: set[rd.Timestamp] = set()

    def notify_at(self, time: rd.Timestamp, capability: rd.Timestamp | None = None) -> None:
        self.asked.add(time)


@dataclass(frozen=True, slots=True)
class Form:
    """One form: how it is made, and told of an epoch."""

    make: Callable[[Waiting], Any]
    tell: Callable[[Any, int], None]


def _moment(epoch: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=epoch)


def _add_to_small_side(side: SmallSide, epoch: int) -> None:
    side.waiting.add(rd.Timestamp(epoch))
    side.add([epoch], [(f"key {epoch}", epoch)], rd.Timestamp(epoch))


FORMS = [
    Form(lambda pending: Marks((0,), pending), lambda marks, epoch: marks.see(0, [epoch], rd.Timestamp(epoch))),
    Form(Readings, lambda readings, epoch: readings.tell(rd.Timestamp(epoch), [_moment(epoch)])),
    Form(EpochsAsked, lambda asked, epoch: asked.ask(epoch)),
    Form(SmallSide, _add_to_small_side),
]


def _made(form: Form, *epochs: int) -> tuple[Any, Asking]:
    vertex = Asking()
    state = form.make(Waiting(vertex, Batches()))
    for epoch in epochs:
        form.tell(state, epoch)
    return state, vertex


def _known(state: Any) -> str:
    """All of it, whatever the order in which it was told."""
    return repr(_in_order(state.checkpoint()))


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((repr(key), _in_order(one)) for key, one in value.items())
    return sorted((_in_order(one) for one in value), key=repr) if isinstance(value, list | tuple | set) else repr(value)


@pytest.mark.parametrize("form", FORMS, ids=["Marks", "Readings", "EpochsAsked", "SmallSide"])
def test_what_is_given_stays_and_is_known_once_in_whatever_order(form: Form) -> None:
    state, _ = _made(form, 1, 2, 3)
    known = _known(state)
    parts = [_made(form, 1, 2)[0], _made(form, 3)[0], _made(form, 2, 3)[0]]
    for order in permutations([*parts, parts[0]]):
        taker, vertex = _made(form)
        for giver in order:
            before = _known(giver)
            given = giver.give(GROUPS, 1)
            taker.take(loaded(pickled(given)))
            form.tell(taker, 3)  # what comes afterwards changes nothing at who gave it
            assert _known(giver) == before
        assert _known(taker) == known
        assert vertex.asked == {rd.Timestamp(epoch) for epoch in (1, 2, 3)}, "what waits elsewhere waits here"


def test_all_forms_are_tried() -> None:
    assert {type(_made(form)[0]) for form in FORMS} == set(Everywhere.__subclasses__())


@pytest.mark.parametrize("form", FORMS, ids=["Marks", "Readings", "EpochsAsked", "SmallSide"])
def test_what_was_given_is_a_copy(form: Form) -> None:
    state, _ = _made(form, 1)
    given = state.give(GROUPS, 1)
    before = pickled(given)
    form.tell(state, 2)
    assert pickled(given) == before
