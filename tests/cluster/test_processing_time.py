"""Windows and timers by the clock, on real Ray, while the input is silent, and while processes die."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from tests.cluster.recovering import kill, surviving, until, wait_for_snapshots

SECOND = dt.timedelta(seconds=1)


class Silence(rd.Process):
    """Tells when a key has been silent for a second."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        if context.state is not None:
            context.clear_timer(context.state)
        context.state = context.time + SECOND
        context.set_timer(context.state)

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.emit(context.time)
        context.state = None


@pytest.mark.cluster
@pytest.mark.usefixtures("ray_cluster", "workers")
def test_timers_and_windows_fire_in_silence_and_count_once_when_processes_are_killed(tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.mkdir()
    flow = rd.Dataflow("silence")
    stamped = flow.input("clicks", epoch_s=0.05).with_processing_time()
    stamped.collect("rows")
    stamped.key_by("user").window(rd.windows.tumbling(SECOND)).count().collect("counts")
    silent = stamped.key_by("user").process(Silence).inspect(lambda one: (told / f"{one[0]}-{one[1].timestamp()}").touch())
    silent.collect("silent")
    job = flow.submit(surviving(tmp_path / "store", failures=5), runtime="ray", parallelism=2)
    clicks = job.input("clicks")
    for turn, victim in enumerate((None, "VertexActor", "Coordinator")):
        clicks.send([{"user": f"{turn}-{number % 3}"} for number in range(9)])
        if victim is not None:
            wait_for_snapshots(tmp_path / "store", "silence", 1)
            kill(victim)
        until(lambda turn=turn: len({each.name[:3] for each in told.glob(f"{turn}-*")}) == 3, f"timers of turn {turn}, in silence")
    assert not clicks.closed
    clicks.close()
    result = job.wait()
    rows = [row for _, row in result["rows"]]
    assert Counter(row["user"] for row in rows) == {f"{turn}-{number}": 3 for turn in range(3) for number in range(3)}
    expected = Counter((row["user"], row["processed_at"].replace(microsecond=0)) for row in rows)
    assert {(user, window.start): count for _, (user, window, count) in result["counts"]} == expected
    assert sorted(record for _, record in result["silent"]) == sorted({(row["user"], row["processed_at"] + SECOND) for row in rows})
