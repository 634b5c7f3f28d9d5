"""The command line, ``rayad``: one command for each thing that is asked or done; their files are in ``rayad.commands``."""

from __future__ import annotations

import sys
from typing import Any

import click

from rayad.actors.status.terminal import show_exception
from rayad.commands.demo import demo
from rayad.commands.doctor import doctor
from rayad.commands.interval import interval
from rayad.commands.logs import logs
from rayad.commands.looking import explain, jobs, status
from rayad.commands.page import page
from rayad.commands.plan import plan
from rayad.commands.plot import plot
from rayad.commands.report import report
from rayad.commands.run import resume, run
from rayad.commands.snapshots import snapshots
from rayad.commands.state import sql, state
from rayad.commands.steering import cancel, rescale, savepoint, stop
from rayad.commands.top import top
from rayad.commands.version import version
from rayad.progress import presentable

OF_JOBS = (run, resume, jobs, status, top, page, explain, logs, sql, savepoint, rescale, stop, cancel)
OF_PROGRAMS_AND_STORES = (demo, doctor, plan, interval, snapshots, report, state, plot, version)

EXIT_CODES = (
    "Exit codes: 0 done; 1 refused or failed; 2 wrong arguments; 3 no job of that name; 4 no cluster; 5 a time-out came first, and what "
    "was asked for goes on; 130 Ctrl-C; 143 SIGTERM."
)


class Commands(click.Group):
    """All commands. What they raise is shown without secrets, and with control characters made visible, as what they print."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command of this process."""
        sys.excepthook = show_exception
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = presentable(error.message)  # type: ignore[misc]  # click promises not to change it itself
            raise


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
def main() -> None:
    """Timely dataflow on Ray."""


for _command in (*OF_JOBS, *OF_PROGRAMS_AND_STORES):
    main.add_command(_command)
