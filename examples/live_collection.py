"""A collection that changes while it is read: who can reach whom on a map of roads, as roads open and close.

    python examples/live_collection.py                # in this process
    python examples/live_collection.py --ray          # on Ray

Roads are inserted and removed, one epoch for each day. From them follow the towns that can be reached from a first one, by a loop to a
fixed point, and how many towns of each region these are. What is printed are changes: where a road closes, what followed from it goes, also
towns that seem to hold each other up because roads go round in a circle.
"""

from __future__ import annotations

import sys

import rayad as rd

Road = tuple[str, str]
REGIONS = {"Aston": "north", "Bray": "north", "Corby": "south", "Derby": "south", "Esher": "south"}
DAYS: list[tuple[list[Road], list[Road]]] = [
    ([("Aston", "Bray"), ("Bray", "Corby"), ("Corby", "Derby"), ("Derby", "Corby")], []),
    ([("Derby", "Esher")], []),
    ([], [("Bray", "Corby")]),
    ([("Aston", "Esher")], []),
]
"""By day: roads that open, and roads that close."""


def flow() -> rd.Dataflow:
    """Roads in, changes of two tables out."""
    dataflow = rd.Dataflow("roads")
    roads = dataflow.collection("roads").arrange_by(lambda road: road[0], name="roads by start")
    first = dataflow.from_items(["Aston"]).as_collection()

    def further(towns: rd.Collection) -> rd.Collection:
        ends = towns.key_by(lambda town: town).join(roads).map(lambda met: met[1][1][1])
        return ends.concat(first).distinct()

    reached = first.iterate(further)
    reached.collect("reached")
    reached.key_by(REGIONS.__getitem__).count().changes().probe("done").collect("by region")
    return dataflow


def main() -> None:
    """Open and close roads, and print what has changed each day."""
    job = flow().submit(parallelism=2, runtime="ray" if "--ray" in sys.argv[1:] else "local")
    roads, done = job.collection("roads"), job.probe("done")
    for day, (opened, closed) in enumerate(DAYS):
        roads.insert(opened)
        roads.remove(closed)
        roads.advance_to(day + 1)
        assert done.wait(day, timeout_s=60)
    roads.close()
    result = job.wait(timeout_s=60)
    for day in range(len(DAYS)):
        towns = sorted(change for at, change in result["reached"] if at.epoch == day)
        counts = sorted(change for at, change in result["by region"] if at.epoch == day)
        print(f"day {day}: towns", *(f"{weight:+d} {town}" for town, weight in towns))
        print(f"day {day}: counts", *(f"{weight:+d} ({region} {count})" for (region, count), weight in counts))


if __name__ == "__main__":
    main()
