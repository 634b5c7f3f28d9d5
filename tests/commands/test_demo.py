"""``rayad demo``: it prints each step, and says if its results are wrong. On Ray: tests/cluster/test_commands.py."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rayad import demo_flights
from rayad.cli import main


def test_the_demo_recovers_from_a_kill_and_its_results_are_right() -> None:
    shown = CliRunner().invoke(main, ["demo", "--days", "40"])
    assert shown.exit_code == 0, shown.output
    assert "40 days, 4,800 flights, in this process" in shown.output
    assert "all is lost" in shown.output
    assert "16 airports are as plain Python has them, after a failure" in shown.output.splitlines()[-1]


def test_the_demo_says_when_a_window_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    real = demo_flights.hours_expected

    def one_flight_more(days: int) -> demo_flights.Hours:
        hours = real(days)
        key = next(iter(hours))
        return {**hours, key: (hours[key][0] + 1, hours[key][1])}

    monkeypatch.setattr(demo_flights, "hours_expected", one_flight_more)
    shown = CliRunner().invoke(main, ["demo", "--days", "20"])
    assert (shown.exit_code, shown.output.splitlines()[-1]) == (1, "Error: the results differ from those of plain Python")
