"""The programs of the local runtime's tests, on Ray: the same code, the same results."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rayad as rd
from tests.cluster.recovering import by_value
from tests.programs.catalog import MODULES, PROGRAMS
from tests.programs.program import Program
from tests.thorough import IN_SOAK


@pytest.fixture(scope="module", autouse=True)
def _send_programs_by_value(ray_cluster: None) -> Iterator[None]:
    """Workers cannot import the tests; the programs travel with the jobs."""
    with by_value(*MODULES):
        yield


@pytest.fixture(scope="module")
def warm(ray_cluster: None) -> Iterator[None]:
    """In ``make test`` one program runs in the processes of the one before; in ``make soak`` each has its own."""
    if IN_SOAK:
        yield
        return
    with rd.session(workers=2):
        yield


IN_EVERY_RUN = {
    "word-count",
    "diamond",
    "join",
    "window-join-sliding-6-columns",
    "vertex-two-inputs",
    "vertex-capabilities",
    "loop-components",
    "loop-nested-3-keyed",
    "sinks",
    "live-loop",
    "live-unfed",
    "ordered-columns",
    "projected-columns",
}
"""One program for each kind of error that only processes and links can make; the results of operators are tested on the local runtime.
The others: ``make soak``."""


@pytest.mark.parametrize(
    "program", [pytest.param(p, id=p.name, marks=[] if p.name in IN_EVERY_RUN else [pytest.mark.soak]) for p in PROGRAMS]
)
@pytest.mark.usefixtures("workers", "warm")
def test_results_on_ray_are_those_of_the_model(program: Program) -> None:
    program.run(runtime="ray", parallelism=2)


def test_those_of_every_run_are_there() -> None:
    assert {program.name for program in PROGRAMS} >= IN_EVERY_RUN
