"""The MPR applications on real Ray, as programs of their own: the dataflow and both pools agree with the sequential version."""

from __future__ import annotations

import bz2
import re
from pathlib import Path

import pytest
import ray

from tests.examples.mpr import module
from tests.examples.running import run_example

pytestmark = [pytest.mark.cluster]
SMALL = {
    "mandelbrot": ["--frames", "1", "--size", "60", "--iterations", "80"],
    "primes": ["--limit", "2000"],
    "lanes": ["--frames", "20", "--width", "160"],
    "bzip2_file": ["--megabytes", "4"],
}


@pytest.fixture
def address(ray_cluster: None) -> str:
    """The address of the session's Ray."""
    found: str = ray.get_runtime_context().gcs_address
    return found


IN_EVERY_RUN = {"primes"}
"""As dataflows; the others in ``make soak``. In every run: lanes and bzip2 with other arguments, below; all of them in one process."""


@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        *(pytest.param(name, "ray", marks=[] if name in IN_EVERY_RUN else [pytest.mark.soak]) for name in SMALL),
        pytest.param("primes", "pool", marks=pytest.mark.soak),
        ("lanes", "actorpool"),
    ],
)
def test_an_application_on_ray_gives_the_bytes_of_the_sequential_version(name: str, runtime: str, address: str, tmp_path: Path) -> None:
    arguments = ["--runtime", runtime, "--replicas", "3", *SMALL[name]]
    printed = run_example(f"mpr/{name}.py", *arguments, cwd=tmp_path, RAY_ADDRESS=address)
    assert f", {runtime}, 3 replicas: " in printed
    assert "as the sequential version's; it took " in printed


@pytest.mark.soak
def test_a_file_compressed_on_ray_is_restored(address: str, tmp_path: Path) -> None:
    text = module("bzip2_file").write_text(tmp_path / "text", 3.0)
    run_example("mpr/bzip2_file.py", "text", "--out", "text.bz2", "--waiting-ms", "20", cwd=tmp_path, RAY_ADDRESS=address)
    assert bz2.decompress((tmp_path / "text.bz2").read_bytes()) == text.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text", "text.bz2"]


@pytest.mark.soak
def test_replicas_come_and_go_and_the_frames_stay_in_order(address: str, tmp_path: Path) -> None:
    arguments = ["--frames", "300", "--width", "96", "--waiting-ms", "60", "--replicas", "1", "--rescale", "1:4", "--rescale", "1:2"]
    printed = run_example("mpr/lanes.py", *arguments, cwd=tmp_path, timeout_s=200, RAY_ADDRESS=address)
    assert re.findall(r"^(\d) replicas after ", printed, re.MULTILINE) == ["4", "2"]
    assert "lanes, ray, 1 to 4 replicas: 300 items in " in printed
    assert "as the sequential version's" in printed


@pytest.mark.soak
@pytest.mark.parametrize(("policy", "rate"), [("mpr", []), ("ds2", ["--rate", "40"])])
def test_a_policy_adds_replicas_and_a_picture_shows_it(policy: str, rate: list[str], address: str, tmp_path: Path) -> None:
    """A replica does 16 frames a second: one would take 25 seconds for 400 frames, and is far from 40 a second."""
    arguments = ["--frames", "400", "--width", "96", "--waiting-ms", "60", "--replicas", "8", "--interval-s", "0.5", *rate]
    picture = ["--policy", policy, "--goal", "40", "--plot", "lanes.png"]
    printed = run_example("mpr/lanes.py", *arguments, *picture, cwd=tmp_path, timeout_s=200, RAY_ADDRESS=address)
    counts = re.search(r"^replicas over time: ([\d, ]+); ", printed, re.MULTILINE)
    assert counts is not None
    assert counts[1].startswith("1, ")
    assert "lanes, ray, 1 to 8 replicas: 400 items in " in printed
    assert "as the sequential version's" in printed
    assert (tmp_path / "lanes.png").read_bytes().startswith(b"\x89PNG")
