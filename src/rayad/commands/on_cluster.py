"""What the commands on a cluster share: its address, the handle of a job, exit codes, errors as messages, values as JSON and as a table."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from typing import Any

import click
from rich.table import Table

from rayad.actors.job import JobState
from rayad.actors.status.terminal import as_written, console, echo_json
from rayad.progress import RayadError, Timestamp


class Exit(IntEnum):
    """How a command ends; docs/commands.md lists these for scripts."""

    DONE = 0
    FAILED = 1
    """What was asked for did not happen, or the job failed; the message says why."""
    USAGE = 2
    """The command line is wrong (click's own)."""
    NO_JOB = 3
    NO_CLUSTER = 4
    NOT_YET = 5
    """A time-out came first: what was asked for goes on."""
    INTERRUPTED = 130
    """Ctrl-C, as shells count it."""
    TERMINATED = 143
    """SIGTERM, as shells count it."""


class Told(click.ClickException):
    """Ends the command with a message and an exit code."""

    exit_code: int  # type: ignore[misc]  # click's is the class'

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.exit_code = code


class ClusterCommand(click.Command):
    """A command that ends with a message and an exit code, not a traceback, when the cluster or the job does not do what it asks."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except (RayadError, TimeoutError) as error:
            raise Told("\n".join([str(error), *getattr(error, "__notes__", ())]), _code_of(error)) from error
        except KeyboardInterrupt:
            raise Told("interrupted; a job that runs goes on", Exit.INTERRUPTED) from None
        except Exception as error:
            if not _is_of_ray(error):
                raise
            told = str(error).strip().splitlines()[-1]
            raise Told(f"Ray: {type(error).__name__}: {told}; rayad doctor --address auto may tell why", Exit.FAILED) from error


def _code_of(error: Exception) -> Exit:
    from rayad.actors.cluster.joining import NoCluster
    from rayad.actors.driver.attached_job import NoSuchJob

    if isinstance(error, NoSuchJob):
        return Exit.NO_JOB
    if isinstance(error, NoCluster):
        return Exit.NO_CLUSTER
    return Exit.NOT_YET if isinstance(error, TimeoutError) else Exit.FAILED


def _is_of_ray(error: Exception) -> bool:
    exceptions = sys.modules.get("ray.exceptions")
    return exceptions is not None and isinstance(error, exceptions.RayError)


ADDRESS = click.option("--address", metavar="HOST:PORT", help="Of the cluster; by default RAY_ADDRESS, or the cluster of this machine.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
NAME = click.argument("name")


def attach(name: str, address: str | None) -> Any:
    """The handle of a job that runs. Raises NoSuchJob, NoCluster."""
    from rayad.actors.driver.attached_job import attach
    from rayad.actors.driver.termination import OF_THIS_PROCESS

    job = attach(name, address=address)
    OF_THIS_PROCESS.install()
    return job


def states_of_jobs(address: str | None) -> dict[str, JobState | None]:
    """The jobs by name; None: who can tell does not answer. Raises NoCluster."""
    from rayad.actors.driver.attached_job import jobs

    return jobs(address=address)


def plain(value: Any) -> Any:
    """As JSON has it: dataclasses become objects, timestamps and what JSON does not know become text.

    >>> plain({"at": (Timestamp(3, (1,)),), "of": Exit.NO_JOB})
    {'at': ['(3, <1>)'], 'of': 3}
    """
    if isinstance(value, Timestamp):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def print_json(value: Any) -> None:
    """The value and nothing else."""
    echo_json(plain(value), indent=1)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """The rows below the header; numbers to the right."""
    table = Table()
    for index, name in enumerate(header):
        numbers = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(as_written(name), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else as_written(str(value)) for value in row))
    console(highlight=False).print(table)


__all__ = [
    "ADDRESS",
    "JSON",
    "NAME",
    "ClusterCommand",
    "Exit",
    "Told",
    "attach",
    "states_of_jobs",
    "plain",
    "print_json",
    "print_table",
]
