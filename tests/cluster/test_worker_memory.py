"""Actors keep freed memory, and Arrow in them uses the C library; the driver and the user's own choice stay unchanged."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest
import ray

from tests.patience import PATIENCE_S

pytestmark = pytest.mark.cluster


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only set on Linux")
def test_arrow_uses_the_c_library_in_workers_only(ray_cluster: None) -> None:
    before = pa.default_memory_pool().backend_name

    # A new process: one that has run other tasks may have loaded Arrow already.
    @ray.remote(num_cpus=0, runtime_env={"env_vars": {"RAYAD_TEST_OF_MEMORY": "1"}})
    def backend() -> str:
        import rayad  # noqa: F401
        import pyarrow as arrow  # isort: skip

        return str(arrow.default_memory_pool().backend_name)

    assert ray.get(backend.remote(), timeout=PATIENCE_S) == "system"
    assert pa.default_memory_pool().backend_name == before
