"""Windows of collections that end: what is kept of them goes, what was given stays, and what comes for them later is counted."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.status.table import as_lines
from rayad.incremental.event_time.ending import EndingReduce
from rayad.incremental.event_time.telling import REFUSED, WINDOWS
from tests.incremental.disturbed import run_disturbed
from tests.incremental.event_time.from_scratch import of_windows
from tests.incremental.programs import History, Kept, Shape
from tests.thorough import amount

Sale = tuple[str, int, int]
"""Shop, when, how much."""
SIZE, LATENESS = 10, 15


def history(seed: int, epochs: int = 12) -> History:
    """Sales whose time goes on, and corrections, of which some come late; what is removed was inserted in the same window's time."""
    chance, there, out = random.Random(seed), list[Sale](), list[list[tuple[Any, int]]]()
    for epoch in range(epochs):
        changes: list[tuple[Any, int]] = []
        for _ in range(3):
            sale = chance.choice("ab"), max(0, epoch * 7 + chance.randint(-30, 5)), chance.randrange(5)
            there.append(sale)
            changes.append((sale, 1))
        if there and chance.random() < 0.7:
            changes.append((there.pop(chance.randrange(len(there))), -1))
        out.append(changes)
    return out


def expected(changes: History) -> tuple[dict[Any, int], int, int]:
    """From scratch: the table of sums at the end, how many windows are forgotten, how many changes refused."""
    found = of_windows([[((0, *sale), weight) for sale, weight in some] for some in changes], rd.windows.tumbling(SIZE), LATENESS)
    table = {(key, sum(sale[3] * weight for sale, weight in of.items())): 1 for key, of in found.tables[-1].items()}
    return table, len(found.forgotten), found.refused


def build(sales: rd.Collection) -> rd.Collection:
    by_window = sales.key_by(lambda sale: sale[0]).window(rd.windows.tumbling(SIZE), lambda sale: sale[1], lateness=LATENESS)
    return by_window.sum(lambda sale: sale[2], name="sums")


class Ended(Kept):
    """The table at the end alone is compared: by then each epoch's has been."""

    def verify(self, changes: History, collected: Any) -> None:
        table: Counter[Any] = Counter()
        for _, (record, weight) in collected:
            table[record] += weight
        assert {record: weight for record, weight in table.items() if weight} == expected(changes)[0]


PROGRAM = Ended("lateness", build, lambda there: {}, Shape(0, 0, 0))


@pytest.mark.parametrize("seed", range(amount(each_run=5, soak=300)))
def test_windows_that_are_over_stay_whatever_comes_and_whatever_happens(seed: int, tmp_path: Path) -> None:
    changes = history(seed)
    job = run_disturbed(PROGRAM, changes, seed, tmp_path)
    figures = Counter[str]()
    for core in job.cores.values():
        if isinstance(core.vertex, EndingReduce):
            figures.update(core.vertex.figures())
    table, forgotten, refused = expected(changes)
    assert (figures[WINDOWS], figures[REFUSED]) == (forgotten, refused)
    assert figures["keys of input"] == len(table) - forgotten


def test_the_histories_have_late_corrections() -> None:
    found = [expected(history(seed)) for seed in range(8)]
    assert sum(refused for _, _, refused in found) > 8
    assert sum(forgotten for _, forgotten, _ in found) > 20


@pytest.mark.parametrize("operator", ["count", "mean", "min", "reduce", "rank"])
def test_aggregates_forget_and_say_so(operator: str) -> None:
    flow = rd.Dataflow("aggregates")
    day, hour = dt.datetime(2024, 1, 1), dt.timedelta(hours=1)
    sales = flow.collection("sales")
    windows = sales.key_by(lambda sale: "all").window(rd.windows.sliding(2 * hour, hour), lambda sale: sale[0], lateness=hour)
    how: dict[str, Any] = {
        "count": lambda: windows.count(name="it"),
        "mean": lambda: windows.mean(lambda sale: sale[1], name="it"),
        "min": lambda: windows.min(name="it"),
        "reduce": lambda: windows.reduce(lambda key, values: [len(values)], name="it"),
        "rank": lambda: windows.rank(lambda sale: sale[1], name="it"),
    }
    how[operator]().changes().probe("seen").collect("out")
    assert ", of windows until 1:00:00 after their end" in flow.explain()
    job = flow.submit(runtime="local", parallelism=2)
    given = job.collection("sales")
    for epoch in range(50):
        given.insert([(day + epoch * hour, 1)])
        given.advance_to(epoch + 1)
        assert job.probe("seen").wait(epoch)
    given.remove([(day, 1)])
    given.advance_to(51)
    assert job.probe("seen").wait(50)
    assert isinstance(job, LocalJob)
    status = job.status()
    vertex = next(vertex for vertex in status.vertices if vertex.name == "it")
    assert (vertex.figures["keys of input"], vertex.pruned, vertex.refused) == (3, 48, 2)
    assert "'it': 48 windows are over and forgotten, 2 changes that came for them were not applied" in as_lines(status)
    given.close()
    last = max(time.epoch for time, _ in job.wait()["out"])
    assert last == 49


def test_what_cannot_forget_is_refused() -> None:
    flow = rd.Dataflow("refused")
    sales = flow.collection("sales").key_by(lambda sale: sale[0])
    ended = sales.window(rd.windows.tumbling(10), lambda sale: sale[1], lateness=0)
    with pytest.raises(rd.DataflowError, match=r"join\(\) of windows with lateness=0: only aggregates forget; aggregate first"):
        ended.join(sales)
    with pytest.raises(rd.DataflowError, match=r"arrange\(\) of windows with lateness=0"):
        ended.arrange()
    with pytest.raises(rd.DataflowError, match=r"concat\(\) of windows with lateness=0"):
        sales.concat(ended)
    for wrong in (-1, "1h", True, float("nan")):
        with pytest.raises(rd.DataflowError, match=r"give a number or timedelta of at least 0, or None"):
            sales.window(rd.windows.tumbling(10), lambda sale: sale[1], lateness=wrong)
    inside = flow.collection("others")
    with pytest.raises(rd.DataflowError, match="in a loop nothing is forgotten"):
        inside.iterate(lambda c: c.key_by(len).window(rd.windows.tumbling(1), len, lateness=1).count())


def _negated(records: rd.Collection) -> rd.Collection:
    return records.concat(records.filter(lambda record: record[2] == "never").negate())


def _iterated(records: rd.Collection) -> rd.Collection:
    """What fades is there in the first round alone."""
    fading = {"never": ["fading"], "fading": [], "now": ["now"]}
    return records.iterate(lambda inner: inner.flat_map(lambda record: [(*record[:2], then) for then in fading[record[2]]]))


@pytest.mark.parametrize("made", [_negated, _iterated])
@pytest.mark.parametrize("form", ["tumbling", "session", "asof", "interval"])
def test_the_event_time_of_what_comes_and_goes_within_one_epoch_does_not_count(made: Any, form: str) -> None:
    flow = rd.Dataflow("never")
    history = [[(("a", 10, "now"), 1)], [(("a", 1000, "never"), 1)], [(("a", 11, "now"), 1)], [(("a", 12, "now"), 1)]]
    keyed = made(rd.Collection(flow.from_epochs(history))).key_by(lambda record: record[0])
    how: dict[str, Any] = {
        "tumbling": lambda: keyed.window(rd.windows.tumbling(2), _at, lateness=3).count(),
        "session": lambda: keyed.window(rd.windows.session(1), _at, lateness=3).count(),
        "asof": lambda: keyed.join_asof(keyed, _at, lateness=3),
        "interval": lambda: keyed.join_interval(keyed, rd.windows.between(0, 0), _at, lateness=3),
    }
    how[form]().collect("out")
    given = {time.epoch for time, _ in flow.run(runtime="local")["out"]}
    assert given == {0, 2, 3}, "the changes of the last two epochs are on time"


def _at(sale: Any) -> Any:
    return sale[1]
