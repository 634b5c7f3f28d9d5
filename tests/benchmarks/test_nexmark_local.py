"""The Nexmark queries in the local runtime give what plain Python makes of the same events. Nothing here asserts on time."""

from __future__ import annotations

import doctest
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import nexmark, nexmark_data, nexmark_queries
from benchmarks.nexmark_data import Events

SPEC = Events(events=30_000, epochs=4, events_per_second=500)


def test_doctests_hold() -> None:
    assert doctest.testmod(nexmark_queries).failed == 0


@cache
def events() -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {kind: [] for kind in nexmark_data.KINDS}
    for parts in nexmark_data.batches(SPEC):
        for kind, batch in parts.items():
            at = {name: batch.column(name).cast("int64") for name in ("date_time", "expires") if name in batch.schema.names}
            plain = batch
            for name, column in at.items():
                plain = plain.set_column(plain.schema.get_field_index(name), name, column)
            out[kind] += plain.to_pylist()
    return out


def windows_of(bid: dict[str, Any], size: int, slide: int) -> Iterator[int]:
    start = bid["date_time"] // slide * slide
    while start > bid["date_time"] - size:
        yield start
        start -= slide


def query1() -> list[Any]:
    rows = [(b["auction"], b["bidder"], b["price"] * 908 // 1000) for b in events()["bids"]]
    return [len(rows), *(sum(column) for column in zip(*rows, strict=True))]


def query2() -> list[Any]:
    rows = [(b["auction"], b["price"]) for b in events()["bids"] if b["auction"] % 123 == 0]
    return [len(rows), *(sum(column) for column in zip(*rows, strict=True))]


def query3() -> set[Any]:
    people = {p["id"]: p for p in events()["persons"] if p["state"] in ("OR", "ID", "CA")}
    some = [(a, people[a["seller"]]) for a in events()["auctions"] if a["category"] == 10 and a["seller"] in people]
    return {(a["seller"], a["id"], p["name"], p["city"], p["state"]) for a, p in some}


def query4() -> list[Any]:
    auctions = {a["id"]: a for a in events()["auctions"]}
    best: dict[int, int] = {}
    for bid in events()["bids"]:
        auction = auctions.get(bid["auction"])
        if auction is not None and auction["date_time"] <= bid["date_time"] < auction["expires"]:
            best[bid["auction"]] = max(best.get(bid["auction"], 0), bid["price"])
    prices = defaultdict(list)
    for number, price in best.items():
        prices[auctions[number]["category"]].append(price)
    return [len(prices), sorted([category, round(sum(some) / len(some), 3)] for category, some in prices.items())]


def query5() -> set[Any]:
    counts = Counter((start, bid["auction"]) for bid in events()["bids"] for start in windows_of(bid, 10_000, 2_000))
    most: dict[int, int] = {}
    for (start, _), count in counts.items():
        most[start] = max(count, most.get(start, 0))
    return {(start, auction, count) for (start, auction), count in counts.items() if count == most[start]}


def query7() -> set[Any]:
    best: dict[int, int] = {}
    for bid in events()["bids"]:
        start = bid["date_time"] // 10_000 * 10_000
        best[start] = max(bid["price"], best.get(start, 0))
    of = [(bid["date_time"] // 10_000 * 10_000, bid) for bid in events()["bids"]]
    return {(start, bid["auction"], bid["bidder"], bid["price"]) for start, bid in of if bid["price"] == best[start]}


def query8() -> set[Any]:
    sellers = {(a["date_time"] // 10_000, a["seller"]) for a in events()["auctions"]}
    new = [p for p in events()["persons"] if (p["date_time"] // 10_000, p["id"]) in sellers]
    return {(p["date_time"] // 10_000 * 10_000, p["id"], p["name"]) for p in new}


PLAIN = {1: query1, 2: query2, 3: query3, 4: query4, 5: query5, 7: query7, 8: query8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nexmark_data.folder_of(SPEC, tmp_path_factory.mktemp("nexmark"))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("query", nexmark_queries.QUERIES)
def test_a_query_gives_what_plain_python_gives(query: int, replicas: int, folder: Path) -> None:
    expected: Any = PLAIN[query]()
    if isinstance(expected, set):
        assert len(expected) > 3
        expected = nexmark_queries.rows_digest([list(column) for column in zip(*expected, strict=True)], len(expected))
    assert nexmark.one(query, str(folder), replicas, runtime="local", seed=replicas)["digest"] == expected
    if query in nexmark.BY_RECORD_QUERIES:
        for rows in (False, True):
            done = nexmark.one(query, str(folder), replicas, rows=rows, as_rows=True, runtime="local", seed=replicas)
            assert done["digest"] == expected


def test_events_are_seeded_in_order_and_in_the_usual_proportions(folder: Path) -> None:
    counts = {kind: len(rows) for kind, rows in events().items()}
    assert counts == {"persons": 600, "auctions": 1_800, "bids": 27_600}
    again = [batch for parts in nexmark_data.batches(SPEC) for batch in parts.values()]
    first = [batch for parts in nexmark_data.batches(SPEC) for batch in parts.values()]
    assert all(a.equals(b) for a, b in zip(first, again, strict=True))
    for rows in events().values():
        times = [row["date_time"] for row in rows]
        assert times == sorted(times)
    bids, auctions = events()["bids"], {a["id"]: a for a in events()["auctions"]}
    assert all(bid["auction"] in auctions and auctions[bid["auction"]]["date_time"] <= bid["date_time"] for bid in bids)
    people = {p["id"]: p for p in events()["persons"]}
    assert all(a["seller"] in people and people[a["seller"]]["date_time"] <= a["date_time"] for a in auctions.values())


def test_disorder_is_bounded() -> None:
    late = Events(events=5_000, epochs=2, disorder_ms=700)
    orderly = Events(events=5_000, epochs=2)
    for kind in nexmark_data.KINDS:
        times, due = (
            np.concatenate([parts[kind].column("date_time").cast("int64").to_numpy() for parts in nexmark_data.batches(spec)])
            for spec in (late, orderly)
        )
        assert 0 <= (due - times).min() <= (due - times).max() <= 700
    assert (np.diff(times) < 0).any()
