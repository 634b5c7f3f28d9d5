"""The command line, ``rayad``: one command for each thing that is asked or done; their files are in ``rayad.commands``."""

from __future__ import annotations

import click

from rayad.commands.interval import interval
from rayad.commands.plan import plan
from rayad.commands.plot import plot
from rayad.commands.snapshots import snapshots
from rayad.commands.state import state
from rayad.commands.version import version

COMMANDS = (interval, plan, plot, snapshots, state, version)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Timely dataflow on Ray."""


for _command in COMMANDS:
    main.add_command(_command)
