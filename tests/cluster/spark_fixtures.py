"""One Ray and one Spark for all Spark tests. ``from tests.cluster.spark_fixtures import spark`` makes the fixture known to a module.

Each importing module gets a fixture of its own, but there is one session: spark_session() gives the running one when asked again with
the same arguments.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from rayad.integrations import spark_session, stop_spark

TIMES_S: dict[str, float] = {}
"""How long each phase took; the last test prints it."""


def ensure_ray(request: pytest.FixtureRequest) -> bool:
    """The session's ``ray_cluster`` where there is one, else a Ray of our own; whether we started it."""
    import ray

    try:
        request.getfixturevalue("ray_cluster")
    except pytest.FixtureLookupError:
        if not ray.is_initialized():
            started = time.perf_counter()
            ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
            TIMES_S["ray start"] = time.perf_counter() - started
            return True
    return False


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A Spark session on Ray: one executor of one CPU."""
    import ray

    ours = ensure_ray(request)
    started = time.perf_counter()
    session = spark_session("rayad-tests", configs={"spark.sql.session.timeZone": "America/New_York", "spark.ui.enabled": "false"})
    TIMES_S.setdefault("spark start", time.perf_counter() - started)
    yield session
    started = time.perf_counter()
    stop_spark(session)
    TIMES_S.setdefault("spark stop", time.perf_counter() - started)
    if ours:
        ray.shutdown()
