"""The small examples and the notebook on real Ray, as programs of their own that join the session's cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import ray

from tests.examples.notebook import run_notebook, stored_outputs, without_figures
from tests.examples.running import run_example
from tests.examples.test_notebook import GROUPS
from tests.examples.test_scripts import LIVE, ROADS
from tests.thorough import amount

pytestmark = [pytest.mark.cluster]


@pytest.fixture
def address(ray_cluster: None) -> str:
    """The address of the session's Ray."""
    found: str = ray.get_runtime_context().gcs_address
    return found


def test_wordcount_on_ray_prints_what_it_prints_alone(address: str, tmp_path: Path) -> None:
    alone = run_example("wordcount.py", "--local", cwd=tmp_path)
    on_ray = run_example("wordcount.py", cwd=tmp_path, RAY_ADDRESS=address)
    words = [re.findall(r"│ (\S+) +│ +([\d,]+) │", printed) for printed in (alone, on_ray)]
    assert len(words[0]) == 10
    assert words[0] == words[1]
    assert re.search(r"words/s by \d+ Ray actors, up in [\d.]+ s", on_ray.replace("\n", " "))


def test_live_input_and_probe_on_ray(address: str, tmp_path: Path) -> None:
    assert run_example("live_probe.py", "--ray", cwd=tmp_path, RAY_ADDRESS=address).splitlines() == LIVE


def test_a_collection_that_changes_on_ray(address: str, tmp_path: Path) -> None:
    assert run_example("live_collection.py", "--ray", cwd=tmp_path, RAY_ADDRESS=address).splitlines() == ROADS


def test_a_session_answers_what_is_answered_in_one_process(address: str, tmp_path: Path) -> None:
    alone = run_example("session.py", "--local", cwd=tmp_path)
    on_ray = run_example("session.py", cwd=tmp_path, RAY_ADDRESS=address)
    answers = [re.findall(r"^(\w+: .*) \(([\d.]+) s\)$", printed, re.MULTILINE) for printed in (alone, on_ray)]
    assert len(answers[0]) == 3
    assert [answer for answer, _ in answers[0]] == [answer for answer, _ in answers[1]]


def test_ray_serve_answers_from_a_job_of_which_a_replica_is_killed(address: str, tmp_path: Path) -> None:
    printed = run_example("serving.py", cwd=tmp_path, RAY_ADDRESS=address, of_others="Serve")
    answers = [line for line in printed.splitlines() if " by epoch " in line or " is not known at epoch " in line]
    assert [line.replace(" is ", " ").split(" by ")[0] for line in answers if line.startswith(("210", "900"))] == [
        "210 unusual for ann: 2 payments of 21",
        "210 unusual for ann: 3 payments of 20",
        "210 unusual for ann: 4 payments of 20",
        "900 usual for eve: 1 payments of 900",
    ]
    assert [line.rpartition(" ")[2] for line in answers] == [str(epoch) for epoch in range(3) for _ in range(4)]


@pytest.mark.thorough
def test_exactly_once_counts_right_whatever_is_killed(address: str, tmp_path: Path) -> None:
    kills, epochs = amount(1, 2), amount(100, 200)
    printed = run_example("exactly_once.py", "--kills", str(kills), "--epochs", str(epochs), cwd=tmp_path, RAY_ADDRESS=address)
    shown = dict(re.findall(r"│ (\S.*\S) +│ +([\d,]+) │", printed))
    assert shown["failures survived"] == str(kills)
    assert shown["figures committed"] == f"{7 * epochs:,}"
    assert (shown["figures lost"], shown["figures twice, or wrong"]) == ("0", "0")


def says_all_is_well(printed: str, kills: int) -> None:
    assert printed.count("killing a replica of ") == kills
    assert f"the job survived {kills} failure" in printed
    assert re.search(r"^networks: \d+ rows, each once$", printed, re.MULTILINE)
    assert re.search(r"^[\d,]+ flights of 3 days: all as plain Python computes it$", printed, re.MULTILINE)


@pytest.mark.soak
def test_files_that_appear_go_through_windows_and_a_loop_though_a_replica_dies(address: str, tmp_path: Path) -> None:
    arguments = ["--no-spark", "--days", "3", "--folder", str(tmp_path)]
    says_all_is_well(run_example("spark_streams.py", *arguments, cwd=tmp_path, RAY_ADDRESS=address), kills=1)


def test_the_notebook_of_a_live_graph_survives_a_kill_and_scales(address: str) -> None:
    assert run_notebook(name="live_graph.ipynb", RAY_ADDRESS=address) == stored_outputs(name="live_graph.ipynb")


def says_groups(on_ray: str) -> None:
    assert [line for line in on_ray.splitlines() if line.startswith("epoch")] == GROUPS
    assert re.search(r"^\d+ actors$", on_ray, re.MULTILINE)


def test_the_notebook_with_ray(address: str) -> None:
    """What its last cell does with Spark: ``test_examples_spark.py``."""
    printed = run_notebook("ray", RAY_ADDRESS=address)
    assert printed == stored_outputs("ray")
    says_groups(printed[-1])


@pytest.mark.soak
@pytest.mark.spark
def test_the_whole_notebook_with_ray_and_spark(address: str) -> None:
    printed = run_notebook("ray", "spark", RAY_ADDRESS=address)
    assert printed == stored_outputs("ray", "spark")
    *_, on_ray, from_spark = printed
    says_groups(on_ray)
    means = {shop: sum(i for i in range(1000) if i % 7 == shop) / len(range(shop, 1000, 7)) for shop in range(7)}
    shown = [line for line in from_spark.splitlines() if line.startswith("day")]
    assert shown == [f"day 2: shop {shop} sells at {mean:.2f}" for shop, mean in means.items()]


@pytest.mark.soak
@pytest.mark.spark
def test_the_notebook_of_spark_streams_ends_with_what_plain_python_computes(address: str) -> None:
    """All of ``spark_streams.py`` with Spark: a query in, windows and a loop, a replica that dies, queries that read the output."""
    printed = run_notebook("ray", "spark", name="spark_streams.ipynb", RAY_ADDRESS=address)
    assert without_figures(printed) == without_figures(stored_outputs("ray", "spark", name="spark_streams.ipynb"))
    _, saved, killed, read, told = printed
    assert saved == "in a snapshot: day 0\n"
    says_all_is_well(killed + read + told, kills=1)
