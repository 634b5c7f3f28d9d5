"""Actors keep freed memory, and Arrow in them uses the C library; the driver, and what the user chose, stay as they are."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest
import ray

pytestmark = pytest.mark.cluster


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only set on Linux")
def test_arrow_uses_the_c_library_in_workers_only(ray_cluster: None) -> None:
    before = pa.default_memory_pool().backend_name

    @ray.remote(num_cpus=0)
    def backend() -> str:
        import rayad  # noqa: F401
        import pyarrow as arrow  # isort: skip

        return str(arrow.default_memory_pool().backend_name)

    assert ray.get(backend.remote()) == "system"
    assert pa.default_memory_pool().backend_name == before
