"""The examples in one process: what they print, and that ``rayad plan`` can show them."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from examples import clicks
from rayad.cli import main as rayad
from tests.examples.running import EXAMPLES, environment, run_example
from tests.programs.windowed import sessions


def test_wordcount_agrees_with_a_plain_count(tmp_path: Path) -> None:
    text = (EXAMPLES.parent / "LICENSE").read_text(encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "licence.txt").write_text(text, encoding="utf-8")
    (tmp_path / "more.txt").write_text("It's the end.\nThe END", encoding="utf-8")
    printed = run_example("wordcount.py", "folder", "more.txt", "--times", "2", "--local", "--top", "4", cwd=tmp_path)
    expected = Counter(re.findall(r"[a-z]+(?:'[a-z]+)?", f"{text}\nit's the end the end".lower()))
    expected += expected
    shown = re.findall(r"│ (\S+) +│ +([\d,]+) │", printed)
    assert shown == [(word, f"{times:,}") for word, times in sorted(expected.items(), key=lambda item: (-item[1], item[0]))[:4]]
    assert f"{expected.total():,} words, {len(expected):,} distinct" in printed


def test_wordcount_has_a_text_of_its_own(tmp_path: Path) -> None:
    printed = run_example("wordcount.py", "--local", cwd=tmp_path)
    assert printed.startswith("counting words of python-language-reference.txt: 0.")
    assert re.search(r"│ the +│ [\d,]+ │", printed)


def test_distinct_count_sends_early_and_late(tmp_path: Path) -> None:
    assert run_example("distinct_count.py", cwd=tmp_path).splitlines() == [
        "epoch 0: to be or not to be",
        "  distinct: be not or to",
        "  counts:   be=2 not=1 or=1 to=2",
        "epoch 1: that is the question",
        "  distinct: is question that the",
        "  counts:   is=1 question=1 that=1 the=1",
        "epoch 2: to be is to do",
        "  distinct: be do is to",
        "  counts:   be=1 do=1 is=1 to=2",
    ]


def test_a_loop_and_a_loop_in_a_loop_agree(tmp_path: Path) -> None:
    def steps(number: int) -> int:
        count = 0
        while number != 1:
            number, count = (number // 2 if number % 2 == 0 else 3 * number + 1), count + 1
        return count

    longest = sorted(range(1, 300), key=lambda n: (-steps(n), n))[:3]
    found = ", ".join(f"{n} ({steps(n)} steps)" for n in longest)
    assert run_example("collatz_loop.py", "300", cwd=tmp_path).splitlines() == [
        f"one-loop: of the numbers below 300 these take longest to come down to 1: {found}",
        f"nested: of the numbers below 300 these take longest to come down to 1: {found}",
    ]


LIVE = [
    "epoch 0: sent 3 orders, complete: False",
    "epoch 0: complete: True",
    "epoch 1: sent 1 orders, complete: False",
    "epoch 1: complete: True",
    "epoch 2: sent 3 orders, complete: False",
    "epoch 2: complete: True",
    "epoch 0: apples 5",
    "epoch 0: pears 1",
    "epoch 1: plums 7",
    "epoch 2: apples 6",
    "epoch 2: pears 5",
    "epoch 2: plums 8",
]


def test_a_probe_tells_when_totals_are_final(tmp_path: Path) -> None:
    assert run_example("live_probe.py", cwd=tmp_path).splitlines() == LIVE


ROADS = [
    "day 0: towns +1 Aston +1 Bray +1 Corby +1 Derby",
    "day 0: counts +1 (north 2) +1 (south 2)",
    "day 1: towns +1 Esher",
    "day 1: counts -1 (south 2) +1 (south 3)",
    "day 2: towns -1 Corby -1 Derby -1 Esher",
    "day 2: counts -1 (south 3)",
    "day 3: towns +1 Esher",
    "day 3: counts +1 (south 1)",
]


def test_a_collection_follows_roads_that_open_and_close(tmp_path: Path) -> None:
    assert run_example("live_collection.py", cwd=tmp_path).splitlines() == ROADS


SALES = [
    "day 0: by region +1 ('south', 15, 1)",
    "day 0: by region +1 ('north', 50, 2)",
    "day 1: by region -1 ('south', 15, 1)",
    "day 1: by region -1 ('north', 50, 2)",
    "day 1: by region +1 ('north', 30, 1)",
    "day 1: by region +1 ('south', 55, 2)",
    "day 2: by region -1 ('south', 55, 2)",
    "day 2: by region +1 ('south', 19, 2)",
    "day 0: best +1 ('rice', 20)",
    "day 0: best +1 ('tea', 45)",
    "day 1: best -1 ('rice', 20)",
    "day 1: best +1 ('salt', 40)",
    "day 2: best -1 ('salt', 40)",
    "day 2: best +1 ('salt', 4)",
]


def test_sql_follows_orders_that_come_and_go(tmp_path: Path) -> None:
    assert sorted(run_example("sql_on_changes.py", cwd=tmp_path).splitlines()) == sorted(SALES)


def test_clicks_become_sessions_and_what_goes_wrong_is_set_aside(tmp_path: Path) -> None:
    """Against plain Python, which goes through the minutes of arrival."""
    broken = unknown = 0
    epochs: list[list[Any]] = []
    for lines in clicks.arrivals(300):
        epochs.append([])
        for line in lines:
            try:
                one = json.loads(line)
            except ValueError:
                broken += 1
                continue
            if one["user"] % 13 == 12:
                unknown += 1
            else:
                epochs[-1].append((one["user"], one["minute"], None))
    found, left_out = sessions(epochs, clicks.GAP_MIN, len, clicks.MAX_DELAY_MIN)
    count, late = len(found), len(left_out)
    assert late > 0
    printed = run_example("clicks.py", cwd=tmp_path).splitlines()
    assert printed[0].startswith(f"{count} sessions, by country: ")
    assert printed[2:] == [
        f"set aside: {broken} broken lines, {unknown} clicks of users that the service does not know",
        f"too late for their session, set aside as well: {late} clicks",
    ]


def test_a_model_scores_batches_as_numpy_does_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    scoring = importlib.import_module("scoring")
    scoring.learn(scoring.read_with_arrow(scoring.LEARNED_DAYS).filter(scoring.ARRIVED), tmp_path / "model.npy")
    flights = scoring.read_with_arrow(45).filter(scoring.ARRIVED & (pc.field("day") >= scoring.LEARNED_DAYS))
    model = scoring.Delay(str(tmp_path / "model.npy"))
    whole = model({name: flights[name].to_numpy() for name in flights.column_names})
    assert 0 < whole["error"].mean() < np.abs(flights["arr_delay"].to_numpy()).mean(), "the model has learned something"
    result = scoring.flow(45, str(tmp_path / "model.npy")).run(parallelism=2, runtime="local")
    found = {carrier: [0, 0.0] for carrier in set(whole["carrier"])}
    for _, (carrier, _, week) in result["weeks"]:
        found[carrier][0] += week["flights"]
        found[carrier][1] += week["flights"] * week["error"]
    for carrier, (count, total) in found.items():
        errors = whole["error"][whole["carrier"] == carrier]
        assert (count, total) == (len(errors), pytest.approx(errors.sum()))
    printed = run_example("scoring.py", "--days", "45", cwd=tmp_path).splitlines()
    assert printed[0] == f"{flights.num_rows:,} flights scored, by a model of the 31 days before"
    assert len(printed) == 2 + len(found)


@pytest.mark.parametrize("name", ["wordcount", "flights", "distinct_count", "collatz_loop", "live_probe", "clicks", "scoring", "session"])
def test_the_plan_of_each_example_can_be_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    shown = CliRunner().invoke(rayad, ["plan", f"{EXAMPLES / name}.py:flow"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "stages" in shown.output


def test_flights_refuses_to_replace_what_it_did_not_write(tmp_path: Path) -> None:
    (tmp_path / "mine" / "carriers").mkdir(parents=True)
    (tmp_path / "mine" / "carriers" / "precious.txt").write_text("mine")
    command = [sys.executable, str(EXAMPLES / "flights.py"), "--local", "--days", "1", "--out", "mine"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "has files that are not results of this program: give another --out" in done.stderr
    assert (tmp_path / "mine" / "carriers" / "precious.txt").read_text() == "mine"


def test_flights_replaces_results_of_an_earlier_run(tmp_path: Path) -> None:
    def run(days: str) -> set[str]:
        run_example("flights.py", "--days", days, "--local", cwd=tmp_path)
        return {path.name for path in tmp_path.glob("out/flights/carriers/*.parquet")}

    before, after = run("1"), run("2")
    assert before
    assert after
    assert not before & after
    assert set(pq.read_table(tmp_path / "out" / "flights" / "carriers").column("day").to_pylist()) == {0, 1}
