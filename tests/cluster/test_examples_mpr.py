"""The MPR applications on real Ray, as programs of their own: the dataflow and both pools agree with the sequential version."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest
import ray

from tests.examples.mpr import module
from tests.examples.running import run_example

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SMALL = {
    "mandelbrot": ["--frames", "1", "--size", "60", "--iterations", "80"],
    "primes": ["--limit", "2000"],
    "lanes": ["--frames", "20", "--width", "160"],
    "bzip2_file": ["--megabytes", "4"],
}


@pytest.fixture
def address(ray_cluster: None) -> str:
    """Of the session's Ray."""
    found: str = ray.get_runtime_context().gcs_address
    return found


@pytest.mark.parametrize(
    ("name", "runtime"),
    [*((name, "ray") for name in SMALL), ("bzip2_file", "pool"), ("primes", "pool"), ("lanes", "actorpool"), ("mandelbrot", "actorpool")],
)
def test_an_application_on_ray_gives_the_bytes_of_the_sequential_version(name: str, runtime: str, address: str, tmp_path: Path) -> None:
    arguments = ["--runtime", runtime, "--replicas", "3", *SMALL[name]]
    printed = run_example(f"mpr/{name}.py", *arguments, cwd=tmp_path, RAY_ADDRESS=address)
    assert f", {runtime}, 3 replicas: " in printed
    assert "as the sequential version's; it took " in printed


def test_a_file_compressed_on_ray_is_restored(address: str, tmp_path: Path) -> None:
    text = module("bzip2_file").write_text(tmp_path / "text", 3.0)
    run_example("mpr/bzip2_file.py", "text", "--out", "text.bz2", "--waiting-ms", "20", cwd=tmp_path, RAY_ADDRESS=address)
    assert bz2.decompress((tmp_path / "text.bz2").read_bytes()) == text.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text", "text.bz2"]
