"""The command line: ``rayad plan program.py:flow`` shows what a program would run, without running it; ``rayad interval`` computes,
``rayad snapshots`` looks into a store, ``rayad state`` reads the state of a snapshot, ``rayad plot`` draws how a job was scaled.

Jobs are started by running the program itself (``python program.py``) or with ``ray job submit``: a second way to start
them would be a second set of rules for paths and environments, so there is none.
"""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version

import click

from rayad.interval_command import interval
from rayad.plot_command import plot
from rayad.program_file import load_flow
from rayad.snapshots_command import snapshots
from rayad.state_command import state


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Timely dataflow on Ray."""


main.add_command(interval)
main.add_command(plot)
main.add_command(snapshots)
main.add_command(state)


@main.command()
def version() -> None:
    """Print the versions of rayad, Ray and Python."""
    python = ".".join(map(str, sys.version_info[:3]))
    click.echo(f"rayad {installed_version('rayad')} (ray {installed_version('ray')}, python {python})")


@main.command()
@click.argument("target", metavar="FILE.py:FLOW")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart instead of text.")
def plan(target: str, mermaid: bool) -> None:
    """Print the plan of the dataflow FLOW in FILE.py: its stages, edges and scopes.

    FLOW is a Dataflow at the top level of the file, or a function without arguments that returns one. The file is
    executed, but not as __main__: what stands under `if __name__ == "__main__":` does not run.
    """
    flow = load_flow(target)
    click.echo(flow.to_mermaid() if mermaid else flow.explain())
