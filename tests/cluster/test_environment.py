"""The environment of a job: no cluster, the wrong kind of address, an address where nothing answers. Each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.patience import PATIENCE_S

SCRIPT = """
import rayad as rd
flow = rd.Dataflow("x")
flow.from_items([1, 2]).map(lambda x: x + 1).collect("out")
try:
    print([record for _, record in flow.run()["out"]])
except rd.RayadError as error:
    print(f"{type(error).__name__}: {error}")
"""


def run(**env: str) -> tuple[str, float]:
    began_s = time.monotonic()
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return done.stdout.strip(), time.monotonic() - began_s


def test_without_a_cluster_one_is_started() -> None:
    told, _ = run(RAY_ADDRESS="")
    assert told == "[2, 3]"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ray://127.0.0.1:10001", "ConfigError: RAY_ADDRESS names a Ray Client server (ray://): use the cluster's own address"),
        ("127.0.0.1:1", "ConfigError: RAY_ADDRESS is '127.0.0.1:1', but nothing answers there"),
    ],
)
def test_a_useless_address_is_refused_in_seconds(address: str, told: str) -> None:
    said, took_s = run(RAY_ADDRESS=address)
    assert said.startswith(told)
    assert took_s < 15
