"""What encrypted frames cost a job: barriers, rows and columns over TCP, with ``RunConfig(encrypt=True)`` and ``False`` in turns.

Two replicas on this machine, by TCP on the loopback address: the share of the seal is the greatest there, since no network between two
machines is as fast.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import rayad as rd
from benchmarks import barrier, columns, rows
from benchmarks.machine import WORKER_NICE, settle
from benchmarks.measurement import Measurement, Ratio

TITLE = "Encrypted frames"
NEEDS_RAY = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 7
    barriers: int = 6_000
    rows: rows.Sizes = rows.FULL
    columns: columns.Sizes = columns.FULL


FULL = Sizes()
QUICK = Sizes(repetitions=2, barriers=300, rows=rows.QUICK, columns=columns.QUICK)


def run(sizes: Sizes) -> Measurement:
    """All three, in turns."""
    out = Measurement("sealing", TITLE, asdict(sizes))
    units = {"barrier": "µs", "every row exchanged, as rows": "s", "every row exchanged, as columns": "s"}
    series = {
        (what, encrypt): out.new_series(f"{what}, {'encrypted' if encrypt else 'in the clear'}", unit, str(WORKER_NICE))
        for what, unit in units.items()
        for encrypt in (True, False)
    }
    wanted = columns.digest(columns.plain(sizes.columns, threads=True))
    for repetition in range(sizes.repetitions):
        for encrypt in (True, False) if repetition % 2 else (False, True):
            config = rd.RunConfig(encrypt=encrypt, unix_sockets=False)
            ours = {what: series[what, encrypt] for what in units}
            settle()
            done = barrier.run_once(sizes.barriers, 2, run=config)
            out.check("no replica passed a barrier before all had passed the one before it", done.is_global, True)
            ours["barrier"].add(*done.durations_us)
            settle()
            ours["every row exchanged, as rows"].add(rows.run_once(sizes.rows, combined=False, run=config)[1].run_s)
            settle()
            totals, told = columns.run_once(replace(sizes.columns, replicas=2), combined=False, run=config)
            out.check("the totals are pyarrow's", columns.digest(totals), wanted)
            ours["every row exchanged, as columns"].add(told.run_s)
    out.ratios = [Ratio(series[what, True].name, series[what, False].name) for what in units]
    return out
