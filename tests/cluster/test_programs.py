"""The programs that run on the local runtime, on Ray: the same code, the same results."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.recovering import by_value
from tests.programs.catalog import MODULES, PROGRAMS
from tests.programs.program import Program


@pytest.fixture(scope="module", autouse=True)
def _send_programs_by_value(ray_cluster: None) -> Iterator[None]:
    """Workers cannot import the tests; the programs travel with the jobs."""
    with by_value(*MODULES):
        yield


REPLICAS_MAX = 7
"""Larger programs take one process per replica and many seconds of start: they run with ``make soak``."""
ALSO = {"join", "loop-components", "tumbling-columns"}
WINDOW_JOINS = {"window-join-sliding-6-columns", "window-join-tumbling-0-rows"}
"""Of eight."""


def _size(program: Program) -> list[pytest.MarkDecorator]:
    small = program.name in ALSO or program.flow().plan(program.parallelism or 2).replicas <= REPLICAS_MAX
    is_one_of_many = program.name.startswith("window-join") and program.name not in WINDOW_JOINS
    return [] if small and not is_one_of_many else [pytest.mark.soak]


@pytest.mark.parametrize("program", [pytest.param(p, id=p.name, marks=_size(p)) for p in PROGRAMS])
def test_results_on_ray_are_those_of_the_model(program: Program) -> None:
    program.run(runtime="ray", parallelism=2)
