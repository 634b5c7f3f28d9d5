"""The program of ``rayad demo``: flights that are made here, windows over them, a loop, and what plain Python says of the same."""

from __future__ import annotations

import random
import time as clock
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rayad.dataflow import Dataflow, Source, SourceBatch, SourcePart, windows
from rayad.graphs import connected_components

AIRPORTS = ("ATL", "BOS", "DCA", "DEN", "DFW", "EWR", "IAH", "JFK", "LAX", "LGA", "MIA", "ORD", "PHL", "SAN", "SEA", "SFO")
REGIONS = 4
"""On the first day airports of a region have flights to each other only; later routes join regions."""
FLIGHTS_A_DAY = 120
HOUR_MIN = 60
DAY_MIN = 24 * HOUR_MIN


@dataclass(frozen=True, slots=True)
class Flight:
    """One departure: minutes since the first day began, and minutes late."""

    at_min: int
    origin: str
    dest: str
    late_min: int


def flights_of(day: int) -> list[Flight]:
    """The flights of a day: the same whenever they are asked for, as from a log."""
    chance = random.Random(day)
    found = []
    for _ in range(FLIGHTS_A_DAY):
        origin = chance.randrange(len(AIRPORTS))
        neighbours = [other for other in range(len(AIRPORTS)) if other != origin and (other - origin) % REGIONS == 0]
        dest = chance.choice(neighbours)
        if chance.random() < 0.0001 * day:
            dest = (origin + 1) % len(AIRPORTS)
        at_min = day * DAY_MIN + chance.randrange(5 * HOUR_MIN, 23 * HOUR_MIN)
        found.append(Flight(at_min, AIRPORTS[origin], AIRPORTS[dest], round(chance.expovariate(1 / 12)) - 5))
    return sorted(found, key=lambda flight: flight.at_min)


class Flights(Source):
    """A day is an epoch. ``pause_s``: between two days, so that one may watch."""

    def __init__(self, days: int, pause_s: float) -> None:
        self.days, self.pause_s = days, pause_s

    def list_parts(self) -> list[int]:
        """One."""
        return [0]

    def build_part(self, part: int, resume: Any | None) -> SourcePart:
        """From the first day, or the one where a snapshot was."""
        return _Days(self.days, self.pause_s, resume or 0)


class _Days(SourcePart):
    def __init__(self, days: int, pause_s: float, day: int) -> None:
        self.days, self.pause_s, self.day = days, pause_s, day

    def next_batch(self) -> SourceBatch | None:
        if self.day >= self.days:
            return None
        if self.pause_s:
            clock.sleep(self.pause_s)
        self.day += 1
        return SourceBatch(self.day - 1, flights_of(self.day - 1))

    def offset(self) -> int:
        return self.day


def flights_flow(days: int, pause_s: float = 0.0) -> Dataflow:
    """The dataflow: ``hours``, departures and delay of each airport and hour; ``networks``, which airports can be reached from which."""
    flow = Dataflow("demo")
    flights = flow.source(Flights(days, pause_s), name="flights")
    timed = flights.assign_timestamps(lambda flight: flight.at_min, max_delay=DAY_MIN)
    by_hour = timed.key_by(lambda flight: flight.origin).window(windows.tumbling(HOUR_MIN))
    hours = by_hour.aggregate({"departures": "count", "late_min": ("sum", lambda flight: flight.late_min)}, name="hours")
    hours.map(lambda found: (found[0], found[1].start, found[2]["departures"], found[2]["late_min"]), name="plain").collect("hours")
    routes = flights.map(lambda flight: (flight.origin, flight.dest), name="routes")
    connected_components(routes, name="networks").collect("networks")
    return flow


Hours = dict[tuple[str, int], tuple[int, int]]
"""By airport and the minute at which an hour begins: departures, and minutes late in all."""


def hours_found(result: Any) -> Hours:
    """What the dataflow gave. Raises ValueError when it gave the same hour twice."""
    rows = [row for _, row in result["hours"]]
    found = {(airport, start): (departures, late_min) for airport, start, departures, late_min in rows}
    if len(found) != len(rows):
        raise ValueError(f"{len(rows) - len(found)} hours came twice")
    return found


def networks_found(result: Any) -> dict[int, dict[str, str]]:
    """After each day on which something changed: the network of each airport."""
    by_day: dict[int, dict[str, str]] = {}
    now: dict[str, str] = {}
    for time, (airport, network) in sorted(result["networks"], key=lambda record: record[0].epoch):
        now[airport] = network
        by_day[time.epoch] = dict(now)
    return by_day


def hours_expected(days: int) -> Hours:
    """What the result ``hours`` should be, computed in plain Python."""
    departures: Counter[tuple[str, int]] = Counter()
    late_min: Counter[tuple[str, int]] = Counter()
    for flight in every_flight(days):
        key = flight.origin, flight.at_min // HOUR_MIN * HOUR_MIN
        departures[key] += 1
        late_min[key] += flight.late_min
    return {key: (count, late_min[key]) for key, count in departures.items()}


def networks_expected(days: int) -> dict[str, str]:
    """In plain Python, after the last day: each airport's network, named by the first of its airports."""
    of = {name: {name} for name in {end for flight in every_flight(days) for end in (flight.origin, flight.dest)}}
    for flight in every_flight(days):
        if of[flight.origin] is not of[flight.dest]:
            of[flight.origin] |= of[flight.dest]
            for name in of[flight.dest]:
                of[name] = of[flight.origin]
    return {name: min(together) for name, together in of.items()}


def every_flight(days: int) -> Iterator[Flight]:
    """Day after day."""
    return (flight for day in range(days) for flight in flights_of(day))


def count_networks(networks: Iterable[str]) -> int:
    """How many there are."""
    return len(set(networks))
