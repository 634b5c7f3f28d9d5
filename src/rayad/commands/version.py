"""``rayad version``."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version

import click


@click.command()
def version() -> None:
    """Print the versions of rayad, Ray and Python."""
    python = ".".join(map(str, sys.version_info[:3]))
    click.echo(f"rayad {installed_version('rayad')} (ray {installed_version('ray')}, python {python})")
