"""``rayad version``."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version

import click

from rayad.actors.status.terminal import echo


@click.command()
def version() -> None:
    """Print the versions of rayad, Ray and Python."""
    python = ".".join(map(str, sys.version_info[:3]))
    echo(f"rayad {installed_version('rayad')} (ray {installed_version('ray')}, python {python})")
