"""One workload, several systems, in turn: Rayad's own programs and the peers of :mod:`benchmarks.peer_environments`.

All results must have the same digest, else nothing is measured. A peer that gives no figure is not run again: the table *No figure*
says which and why, and its series and ratios are left out. Ray starts its workers at nice 15, so a peer runs at nice 15 too. A peer
that consists of Ray workers starts at the benchmark's own level, and its workers get 15 from Ray (``on_ray=True``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.machine import WORKER_NICE, ray_address, settle
from benchmarks.measurement import Measurement, Ratio, Series, Table
from benchmarks.peer_environments import NoFigure, run_ours, run_peer

NO_FIGURE = "No figure"
WHOLE = "Whole processes, start and end included: seconds of one repetition (median), and their processor time where it can be told"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: ``seconds`` of the work by the clock of :mod:`benchmarks.clock`, the ``digest`` of the result; ``whole_s`` and ``cpu_s``
    include the start; None if not known."""

    seconds: float
    digest: Any
    whole_s: float | None = None
    cpu_s: float | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class System:
    """A compared system: the name of its series, and how to run it once."""

    name: str
    run: Callable[[], Outcome]
    nice: str = str(WORKER_NICE)
    repetitions: int | None = None
    """The most repetitions, for slow systems; None: as many as the others. A series with fewer has no ratios."""
    peer: str = ""
    """The peer's folder; empty for Rayad's own programs."""


@dataclass(slots=True)
class _Entry:
    system: System
    series: Series
    outcomes: list[Outcome] = field(default_factory=list)


def peer(
    name: str,
    folder: str,
    workload: str,
    arguments: dict[str, Any],
    *,
    timeout_s: float,
    on_ray: bool = False,
    repetitions: int | None = None,
) -> System:
    """A peer's script as a system; see :func:`benchmarks.peer_environments.run_peer`."""

    def run() -> Outcome:
        done = run_peer(folder, workload, arguments, timeout_s=timeout_s, nice=None if on_ray else WORKER_NICE)
        cpu_s = None if on_ray else done.cpu_s  # Ray's daemon does not count the workers that it has ended
        return Outcome(done.seconds, done.digest, done.wall_s, cpu_s, done.version)

    return System(name, run, f"{os.nice(0)}, workers {WORKER_NICE}" if on_ray else str(WORKER_NICE), repetitions, folder)


def ours(name: str, module: str, arguments: dict[str, Any], *, timeout_s: float) -> System:
    """Rayad's side, run like a peer: ``benchmarks.<module>.one(**arguments)`` in a process that joins this process' Ray."""

    def run() -> Outcome:
        done = run_ours(module, arguments, ray_address=ray_address(), timeout_s=timeout_s, nice=WORKER_NICE)
        return Outcome(done.seconds, done.digest, done.wall_s, None, done.version)

    return System(name, run)


def chosen(systems: Sequence[System], peers: Sequence[str] | None) -> list[System]:
    """Rayad's own, and the systems whose peer is among ``peers`` (None: all)."""
    return [system for system in systems if not system.peer or peers is None or system.peer in peers]


def compare(
    out: Measurement,
    systems: Sequence[System],
    *,
    repetitions: int,
    wanted: Any = None,
    what: str = "all gave the same result",
    unit: str = "s",
    value: Callable[[Outcome], float] = lambda outcome: outcome.seconds,
) -> dict[str, list[Outcome]]:
    """Run all, ``repetitions`` times, reversing the order each time; add a series for each system that gave figures, and tables of the
    rest.

    ``wanted`` is the digest of the right result; by default that of the first system to finish. Raises WrongResult when one differs.
    Gives the outcomes by name; :func:`ratios_of` makes the ratios of what was measured.
    """
    entries = [_Entry(system, Series(system.name, unit, system.nice)) for system in systems]
    failed: dict[str, str] = {}
    for repetition in range(repetitions):
        for entry in entries if repetition % 2 == 0 else reversed(entries):
            most = entry.system.repetitions
            if entry.system.name in failed or (most is not None and repetition >= most):
                continue
            settle()
            try:
                outcome = entry.system.run()
            except NoFigure as reason:
                failed[entry.system.name] = str(reason)
                continue
            wanted = outcome.digest if wanted is None else wanted
            out.check(what, _plain(outcome.digest), _plain(wanted))
            entry.series.add(value(outcome))
            entry.outcomes.append(outcome)
    measured = [entry for entry in entries if entry.system.name not in failed]
    out.series += [entry.series for entry in measured]
    _add_tables(out, measured, failed)
    return {entry.system.name: entry.outcomes for entry in measured}


def ratios_of(out: Measurement, aims: Iterable[tuple[str, str, str]]) -> list[Ratio]:
    """``(over, under, aim)`` as ratios, without those of which a series is missing or has fewer repetitions."""
    found = {series.name: len(series.repetitions) for series in out.series}
    return [Ratio(over, under, aim) for over, under, aim in aims if over in found and found[over] == found.get(under)]


def _plain(digest: Any) -> Any:
    return list(digest) if isinstance(digest, tuple) else digest


def _add_tables(out: Measurement, measured: list[_Entry], failed: dict[str, str]) -> None:
    whole = _table(out, WHOLE, "system", "with the start, s", "processor, s", "version")
    for entry in measured:
        first = entry.outcomes[0]
        whole.add(entry.system.name, _median(entry, "whole_s"), _median(entry, "cpu_s"), first.version or "-")
    if failed:
        table = _table(out, NO_FIGURE, "system", "why")
        for name, reason in failed.items():
            table.add(name, reason)


def _table(out: Measurement, title: str, *head: str) -> Table:
    """The table of that title: a benchmark may compare several times."""
    return next((table for table in out.tables if table.title == title), None) or out.new_table(title, *head)


def _median(entry: _Entry, name: str) -> float | str:
    values = sorted(value for outcome in entry.outcomes if (value := getattr(outcome, name)) is not None)
    return float(values[len(values) // 2]) if values else "-"
