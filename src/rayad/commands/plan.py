"""``rayad plan``: what a program would run, without running it."""

from __future__ import annotations

import click

from rayad.actors.status.terminal import echo
from rayad.commands.program_file import load_flow


@click.command()
@click.argument("target", metavar="FILE.py:FLOW")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart instead of text.")
def plan(target: str, mermaid: bool) -> None:
    """Print the plan of the dataflow FLOW in FILE.py: its stages, edges and scopes.

    FLOW is a Dataflow at the top level of the file, or a function without arguments that returns one. The file is
    executed, but not as __main__: what stands under `if __name__ == "__main__":` does not run.
    """
    flow = load_flow(target)
    echo(flow.to_mermaid() if mermaid else flow.explain())
