"""The programs that run on the local runtime, on Ray: the same code, the same results."""

from __future__ import annotations

from collections.abc import Iterator

import cloudpickle
import pytest

from tests.programs.catalog import MODULES, PROGRAMS
from tests.programs.program import Program


@pytest.fixture(scope="module", autouse=True)
def _send_programs_by_value(ray_cluster: None) -> Iterator[None]:
    """Workers cannot import the tests; the programs travel with the jobs."""
    for module in MODULES:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in MODULES:
        cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_results_on_ray_are_those_of_the_model(program: Program) -> None:
    program.run(runtime="ray", parallelism=2)
