"""What encrypted frames cost between machines: the benchmark ``sealing``, by a driver on the first of two machines.

``python -m tests.machines.sealing [--repetitions N]``: prints its table. The machines are network namespaces of this host, so they share
its processors: the network is as fast as the kernel, and the share of the seal is still the greatest that it can have.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib

import click

from benchmarks import sealing
from tests.machines.machines import Machines


def table(repetitions: int) -> str:
    """Run in the driver."""
    return sealing.run(dataclasses.replace(sealing.FULL, repetitions=repetitions)).markdown()


def main() -> None:
    """Make the machines, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=sealing.FULL.repetitions)
    options = parser.parse_args()
    machines = Machines(2)
    try:
        click.echo(machines.call(importlib.import_module("tests.machines.sealing").table, options.repetitions))  # not of __main__
    finally:
        machines.close()


if __name__ == "__main__":
    main()
