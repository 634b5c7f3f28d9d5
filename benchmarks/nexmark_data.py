"""Events of an online auction as the Nexmark benchmark has them: persons, auctions and bids, 1 : 3 : 46, seeded and made with numpy.

After the generator that Apache Beam and Flink share (NEXMark, Tucker et al. 2002): of 50 events in a row the first is a person, three
are auctions, the rest are bids. Half of the bids are for the *hot* auction (the last whose number is a multiple of 100), the others for
one of the last 100; three in four auctions are of a hot seller. Prices are ``10 ** uniform(0, 6) * 100``. Ids begin at 1,000 and grow with
time. Columns that only fill bytes (extra, description, credit card, channel, url) are left out.

Events are ``1 / events_per_second`` apart. With ``disorder_ms`` each time is earlier by at most that; the order of rows stays. Files are
Parquet, ``<kind>/epoch=<n>/part.parquet``: an epoch is a range of consecutive events, the same for all three kinds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import inputs

PER_GROUP, PERSONS, AUCTIONS = 50, 1, 3
FIRST_ID = 1_000
CATEGORIES = range(10, 15)
IN_FLIGHT, ACTIVE_PEOPLE = 100, 1_000
HOT_SHARE_BIDS, HOT_SHARE_SELLERS, HOT_SHARE_BIDDERS, HOT_STEP = 0.5, 0.75, 0.75, 100
BEGIN_MS = 1_436_918_400_000
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
KINDS = ("persons", "auctions", "bids")


@dataclass(frozen=True, slots=True)
class Events:
    """How many events of what kind.

    Args:
        epochs: into how many ranges they are cut.
    """

    events: int = 1_000_000
    epochs: int = 20
    events_per_second: int = 10_000
    disorder_ms: int = 0
    seed: int = 3


def batches(spec: Events) -> Iterator[dict[str, pa.RecordBatch]]:
    """An epoch after the other: a batch of each kind."""
    rng = np.random.default_rng(spec.seed)
    for epoch in range(spec.epochs):
        numbers = np.arange(spec.events * epoch // spec.epochs, spec.events * (epoch + 1) // spec.epochs, dtype=np.int64)
        times = BEGIN_MS + numbers * 1_000 // spec.events_per_second
        if spec.disorder_ms:
            times -= rng.integers(0, spec.disorder_ms + 1, len(numbers))
        place = numbers % PER_GROUP
        kinds = {
            "persons": place < PERSONS,
            "auctions": (place >= PERSONS) & (place < PERSONS + AUCTIONS),
            "bids": place >= PERSONS + AUCTIONS,
        }
        make = {"persons": _persons, "auctions": _auctions, "bids": _bids}
        yield {kind: make[kind](numbers[mask], times[mask], spec, rng) for kind, mask in kinds.items()}


def _persons(numbers: Any, times: Any, spec: Events, rng: np.random.Generator) -> pa.RecordBatch:
    ids = FIRST_ID + numbers // PER_GROUP
    first, last = (_drawn(names, len(ids), rng) for names in (FIRST_NAMES, LAST_NAMES))
    return pa.record_batch(
        {
            "id": ids,
            "name": pc.binary_join_element_wise(first, last, " "),
            "email_address": pc.binary_join_element_wise(first, pa.array(ids).cast(pa.string()), "@example.com", ""),
            "city": _drawn(CITIES, len(ids), rng),
            "state": _drawn(STATES, len(ids), rng),
            "date_time": _moments(times),
        }
    )


def _auctions(numbers: Any, times: Any, spec: Events, rng: np.random.Generator) -> pa.RecordBatch:
    ids = _last_auction(numbers)
    count = len(ids)
    person = numbers // PER_GROUP
    hot = person // HOT_STEP * HOT_STEP
    cold = person - rng.integers(0, np.minimum(person, ACTIVE_PEOPLE) + 1)
    # The mean life of an auction: the time in which IN_FLIGHT auctions are made.
    horizon_ms = IN_FLIGHT * PER_GROUP // AUCTIONS * 1_000 // spec.events_per_second
    price = _prices(count, rng)
    return pa.record_batch(
        {
            "id": ids,
            "item_name": pc.binary_join_element_wise("item", pa.array(ids % 9_973).cast(pa.string()), " "),
            "initial_bid": price,
            "reserve": price + _prices(count, rng),
            "date_time": _moments(times),
            "expires": _moments(times + 1 + rng.integers(0, max(2 * horizon_ms, 1), count)),
            "seller": FIRST_ID + np.where(rng.random(count) < HOT_SHARE_SELLERS, hot, cold),
            "category": rng.integers(CATEGORIES.start, CATEGORIES.stop, count),
        }
    )


def _bids(numbers: Any, times: Any, spec: Events, rng: np.random.Generator) -> pa.RecordBatch:
    count = len(numbers)
    auction, person = _last_auction(numbers) - FIRST_ID, numbers // PER_GROUP
    cold_auction = auction - rng.integers(0, np.minimum(auction, IN_FLIGHT) + 1)
    hot_bidder = np.minimum(person // HOT_STEP * HOT_STEP + 1, person)
    cold_bidder = person - rng.integers(0, np.minimum(person, ACTIVE_PEOPLE) + 1)
    return pa.record_batch(
        {
            "auction": FIRST_ID + np.where(rng.random(count) < HOT_SHARE_BIDS, auction // HOT_STEP * HOT_STEP, cold_auction),
            "bidder": FIRST_ID + np.where(rng.random(count) < HOT_SHARE_BIDDERS, hot_bidder, cold_bidder),
            "price": _prices(count, rng),
            "date_time": _moments(times),
        }
    )


def _last_auction(numbers: Any) -> Any:
    """The id of the latest auction at each event."""
    return FIRST_ID + numbers // PER_GROUP * AUCTIONS + np.clip(numbers % PER_GROUP - PERSONS, 0, AUCTIONS - 1)


def _prices(count: int, rng: np.random.Generator) -> Any:
    return np.round(10 ** (rng.random(count) * 6) * 100).astype(np.int64)


def _drawn(names: tuple[str, ...], count: int, rng: np.random.Generator) -> pa.Array:
    return pa.array(names).take(pa.array(rng.integers(0, len(names), count)))


def _moments(times_ms: Any) -> pa.Array:
    return pa.array(times_ms, pa.int64()).cast(pa.timestamp("ms"))


def folder_of(spec: Events, root: Path = inputs.FOLDER) -> Path:
    """The folder of the files, which are made when first needed. Its digest is the number of rows of each kind."""

    def make(path: Path) -> Any:
        rows = dict.fromkeys(KINDS, 0)
        for epoch, parts in enumerate(batches(spec)):
            for kind, batch in parts.items():
                home = path / kind / f"epoch={epoch}"
                home.mkdir(parents=True)
                pq.write_table(pa.Table.from_batches([batch]), home / "part.parquet", row_group_size=1 << 17)
                rows[kind] += batch.num_rows
        return rows

    rate, late = spec.events_per_second, spec.disorder_ms
    return inputs.made(f"nexmark-{spec.events}-in-{spec.epochs}-rate-{rate}-late-{late}-seed-{spec.seed}", make, root)
