"""One Ray and one Spark for all Spark tests. A module gets the fixture by ``from tests.cluster.spark_fixtures import spark``.

Each importing module has a fixture of its own, but there is one session: spark_session() with the same arguments gives the running one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from rayad.integrations import spark_session, stop_spark

TIMES_S: dict[str, float] = {}
"""The duration of each phase; the last test prints them."""


def ensure_ray(request: pytest.FixtureRequest) -> bool:
    """Use the session's ``ray_cluster`` if there is one, else start a Ray; gives whether it was started here."""
    import ray

    try:
        request.getfixturevalue("ray_cluster")
    except pytest.FixtureLookupError:
        if not ray.is_initialized():
            started = time.perf_counter()
            ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
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
