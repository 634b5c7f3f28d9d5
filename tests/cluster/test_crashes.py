"""Records whose call ends the replica's process, on real Ray: set aside where asked for, and else told; what else ends a process is not."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

import rayad as rd
from tests.cluster.recovering import Paced, by_value, kill, surviving, until, wait_for_snapshots
from tests.patience import PATIENCE_S
from tests.programs import model

pytestmark = pytest.mark.cluster
Check = Callable[[], None]
EXITS, FAULTS = 610, 1411
EPOCHS = [list(range(20 * epoch, 20 * (epoch + 1))) for epoch in range(120)]
AFTER = 2


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(model, sys.modules[__name__]):
        yield


def deadly(n: int) -> int:
    if n == EXITS:
        os._exit(3)
    if n == FAULTS:
        ctypes.string_at(0)
    return n


def program(name: str, done: Path | None = None, **options: object) -> rd.Dataflow:
    """Records through two replicas of a chain of functions, one of which ends its process at two records; counted by key behind it."""
    flow = rd.Dataflow(name)
    numbers = flow.source(Paced(EPOCHS, until=done), name="numbers").rebalance(name="work").map(lambda n: n, name="before")
    numbers = numbers.map(deadly, name="deadly", **options)  # type: ignore[arg-type]
    numbers.filter(lambda n: n % 3, name="behind").key_by(lambda n: n % 5).count(name="counts").collect("counts")
    if options:
        numbers.errors.collect("bad")
    return flow


@pytest.mark.parametrize("recovery", ["graph", pytest.param("upstream", marks=pytest.mark.soak)])
def test_records_that_end_their_process_are_set_aside_once_and_nothing_else_is(
    nothing_left: Check, tmp_path: Path, request: pytest.FixtureRequest, recovery: Literal["graph", "upstream"]
) -> None:
    if recovery == "graph":
        request.getfixturevalue("workers")  # upstream has no replica of every vertex in a process
    done = tmp_path / "done"
    flow = program("deadly", done, on_error="skip", after_crashes=AFTER, max_errors=2)
    run = surviving(tmp_path, failures=8)
    job = flow.submit(replace(run, failures=replace(run.failures, recovery=recovery)), parallelism=2)
    until(lambda: sum(aside.count for aside in job.status().set_aside) == 1, "the first record has been set aside")
    kill("VertexActor", -1)
    wait_for_snapshots(tmp_path, "deadly", 2)
    kill("VertexActor")
    wait_for_snapshots(tmp_path, "deadly", 1)
    if recovery == "graph":  # the other one refuses it
        job.rescale("work", 3, timeout_s=PATIENCE_S)
    done.touch()
    result = job.wait(timeout_s=PATIENCE_S)
    fine = [[n for n in epoch if n not in (EXITS, FAULTS) and n % 3] for epoch in EPOCHS]
    model.require_same(result["counts"], model.collected(model.epochs(fine), lambda n: n % 5, lambda n: n, len), "counts")
    told = {EXITS: "ended its process: exit status 3", FAULTS: "ended its process: SIGSEGV"}
    assert sorted((time.epoch, bad["record"], bad["error"]) for time, bad in result["bad"]) == [(n // 20, n, told[n]) for n in sorted(told)]
    assert {bad["operator"] for _, bad in result["bad"]} == {"deadly"}


@pytest.mark.parametrize(
    ("placed", "words"),
    [
        ("own_actors", ["'work'[", "a process of 'work' (", "It ended in 'deadly' (test_crashes.py:"]),
        ("workers", ["worker ", "a worker ended 3 times", "The functions that run in it: ", "'deadly' (test_crashes.py:"]),
    ],
)
def test_without_the_option_the_error_names_the_functions_and_the_option(
    nothing_left: Check, tmp_path: Path, request: pytest.FixtureRequest, placed: str, words: list[str]
) -> None:
    request.getfixturevalue(placed)
    job = program("unasked").submit(surviving(tmp_path, failures=2), parallelism=2)
    with pytest.raises(rd.RayadError) as caught:
        job.wait(timeout_s=PATIENCE_S)
    told = str(caught.value)
    for word in [*words, "ended 3 times in a row", "on_error='skip', after_crashes=2"]:
        assert word in told


def leaves(n: int) -> int:
    if n == EXITS:
        sys.exit(5)
    return n


@pytest.mark.parametrize(
    ("function", "told"), [(deadly, r"exit status 3 by os\._exit\(\) in deadly"), (leaves, r"exit status 5 by sys\.exit\(\) in leaves")]
)
def test_an_actor_that_ends_itself_is_told_with_its_exit_status_and_where(
    nothing_left: Check, function: Callable[[int], int], told: str
) -> None:
    """Ray tells neither of os._exit(): the error said "The actor died unexpectedly before finishing this task"."""
    flow = rd.Dataflow(f"told-{function.__name__}")
    flow.from_items(range(1000)).rebalance(name="work").map(function, name="ends").collect("out")
    job = flow.submit(rd.RunConfig(name=flow.name))
    with pytest.raises(rd.RayadError) as caught:
        job.wait(timeout_s=PATIENCE_S)
    who = r"('work'\[0\]|worker \d)"
    words = rf"the actor of {who} died: {told} \(.*test_crashes\.py:\d+\); functions in it: 'ends' \(test_crashes\.py:\d+\)"
    assert re.search(words, str(caught.value)), str(caught.value)
    assert [event.what for event in job.journal() if re.search(words, event.what)], job.journal()
