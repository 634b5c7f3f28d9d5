"""A job with something to see: two sources, a union, a loop, keyed state, and a step that is slower than what comes.

The functions stand at the top of a module, so that a snapshot has how its vertices are made.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import rayad as rd
from rayad.dataflow.source import Source, SourceBatch, SourcePart

PRODUCTS = ("apples", "bread", "cheese", "dates", "eggs", "figs", "grapes")
Order = tuple[str, int]


class Paced(Source):
    """``epochs`` epochs of ``records`` orders, no more than one every ``every_s``."""

    def __init__(self, epochs: int, records: int, every_s: float) -> None:
        self.epochs, self.records, self.every_s = epochs, records, every_s

    def list_parts(self) -> Sequence[int]:
        return [0]

    def build_part(self, part: int, resume: Any) -> SourcePart:
        return PacedPart(self, resume or 0)


class PacedPart(SourcePart):
    """The epochs that are left."""

    def __init__(self, source: Paced, epoch: int) -> None:
        self._source, self._epoch, self._due_s = source, epoch, time.monotonic()

    def next_batch(self) -> SourceBatch | None:
        if self._epoch >= self._source.epochs:
            return None
        if time.monotonic() < self._due_s:
            return SourceBatch(self._epoch, [])
        self._due_s += self._source.every_s
        epoch, self._epoch = self._epoch, self._epoch + 1
        start = epoch * self._source.records
        return SourceBatch(epoch, [(PRODUCTS[n % len(PRODUCTS)], n % 97 + 1) for n in range(start, start + self._source.records)])

    def epoch_floor(self) -> int:
        return self._epoch

    def offset(self) -> int:
        return self._epoch


def product(order: Order) -> str:
    """Its key."""
    return order[0]


def price(order: Order) -> int:
    """What is summed."""
    return order[1]


def walk(order: Order) -> tuple[int, int, int]:
    """Where a walk begins."""
    return (order[1], order[1], 0)


def move(at: tuple[int, int, int]) -> tuple[int, int, int]:
    """One step of a walk: half of an even number, three times an odd one and one more."""
    start, number, steps = at
    return (start, number // 2 if number % 2 == 0 else 3 * number + 1, steps + 1)


def rounds(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
    """Until each walk is at 1."""
    return inner.filter(lambda at: at[1] != 1).map(move, name="move"), inner.filter(lambda at: at[1] == 1)


def slowly(row: Any) -> Any:
    """As a service would answer."""
    time.sleep(0.004)
    return row


def shop(epochs: int = 600, records: int = 400, every_s: float = 0.25) -> rd.Dataflow:
    """Revenue and stock by product, and how often each changes; long walks, sent slowly."""
    flow = rd.Dataflow("shop")
    orders = flow.source(Paced(epochs, records, every_s), name="orders")
    stock = flow.source(Paced(epochs, 7, every_s), name="stock")
    paid = orders.filter(lambda order: order[1] > 3, name="paid orders")
    revenue = paid.key_by(product).sum(price, name="revenue by product")
    stocked = stock.key_by(product).count(name="stock by product")
    changes = revenue.as_records().union(stocked.as_records(), name="both")
    changes.key_by(lambda pair: pair[0]).count(name="changes by product").collect("report")
    walks = paid.map(walk, name="to walks").iterate(rounds, name="walks")
    lengths = walks.key_by(lambda at: at[2] % 30).count(name="walks by length")
    lengths.as_records().rebalance().map(slowly, name="send to the service").collect("sent")
    return flow
