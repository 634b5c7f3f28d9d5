"""``rayad state``: the vertices of a snapshot, or the keyed state of one as a table, also of a job that runs. Starts nothing; a list
unpickles nothing. ``rayad sql``: a query over the keyed state of a job that runs."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from rich.table import Table

from rayad.actors.saved_state.reading import SnapshotState, list_state, read_state
from rayad.actors.status.terminal import as_written, console, echo, echo_json
from rayad.actors.tables.table import EPOCH_KEY
from rayad.commands import on_cluster
from rayad.commands.program_file import load_flow
from rayad.commands.secret_file import SECRET_FILE
from rayad.progress import RayadError

ROWS_SHOWN = 20


OUT = click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the table to this file: .parquet, .arrow or .csv.")
ROWS = click.option("--rows", default=ROWS_SHOWN, show_default=True, type=click.IntRange(min=0), help="How many rows are printed.")


@click.command(cls=on_cluster.ClusterCommand)
@click.argument("snapshot")
@click.argument("vertex", required=False)
@click.option("--state", help="Which of several: left or right of a join; pending: what waits for its time.")
@OUT
@ROWS
@click.option("--path", "paths", multiple=True, type=click.Path(exists=True, file_okay=False), help="A folder of the program's modules.")
@click.option("--flow", "program", metavar="FILE.py:FLOW", help="The program, if the snapshot does not record how a vertex is made.")
@SECRET_FILE
@click.option("--trust", is_flag=True, help="Read state that is not signed: it is unpickled, which runs the code of whoever wrote it.")
@click.option("--live", is_flag=True, help="SNAPSHOT is the name of a job that runs: read its VERTEX as it is now, at one epoch.")
@click.option("--fresh", is_flag=True, help="With --live: wait until all that has begun at any input by now is complete.")
@on_cluster.ADDRESS
@click.option("--json", "as_json", is_flag=True, help="Print JSON; for a vertex, one line for each row.")
def state(
    snapshot: str,
    vertex: str | None,
    state: str | None,
    out: Path | None,
    rows: int,
    paths: tuple[str, ...],
    program: str | None,
    secret: bytes | None,
    trust: bool,
    live: bool,
    fresh: bool,
    address: str | None,
    as_json: bool,
) -> None:
    """List the vertices of SNAPSHOT, or show the state of its VERTEX as a table.

    SNAPSHOT is a path that job.savepoint() gave, or the folder of a job, then its newest whole snapshot; a path or a URI. A list unpickles
    nothing. State is pickled: to read it runs the code of whoever wrote it, so it has to be signed (--secret-file) or trusted (--trust).

    With --live SNAPSHOT is the name of a job that runs on the cluster.
    """
    if live:
        if vertex is None or trust or secret is not None or program is not None:
            raise click.UsageError(
                "--live takes the name of a job and a vertex, and reads no files: without --trust, --secret-file and --flow"
            )
        _show(on_cluster.attach(snapshot, address).table(vertex, state=state).scan(fresh=fresh), out, rows, as_json=as_json)
        return
    if fresh or address is not None:
        raise click.UsageError("--fresh and --address go with --live: a snapshot is as it was when it was taken")
    sys.path[:0] = paths
    try:
        if vertex is None:
            _show_snapshot(list_state(snapshot, secret=secret), as_json=as_json)
            return
        flow = load_flow(program) if program is not None else None
        table = read_state(snapshot, vertex, state=state, flow=flow, secret=secret, trust=trust)
    except (RayadError, OSError) as error:
        raise click.ClickException(str(error)) from error
    _show(table, out, rows, as_json=as_json)


@click.command(cls=on_cluster.ClusterCommand)
@click.argument("job")
@click.argument("query")
@OUT
@ROWS
@click.option("--fresh", is_flag=True, help="Wait until all that has begun at any input by now is complete.")
@click.option("--committed", is_flag=True, help="Read only what the newest completed snapshot holds.")
@on_cluster.ADDRESS
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line for each row.")
def sql(job: str, query: str, out: Path | None, rows: int, fresh: bool, committed: bool, address: str | None, as_json: bool) -> None:
    """Run QUERY over what the keyed operators of JOB have now, all of one epoch.

    The tables of the query are operators, and live collections, by their names: rayad sql shop "select * from counts order by count desc".
    """
    _show(on_cluster.attach(job, address).sql(query, fresh=fresh, committed=committed), out, rows, as_json=as_json)


def _show(table: pa.Table, out: Path | None, rows: int, *, as_json: bool) -> None:
    if out is not None:
        write_table(table, out)
        echo(f"{table.num_rows} rows in {out}")
    elif as_json:
        for row in table.to_pylist():
            echo_json(row, default=str)
    else:
        _show_table(table, rows)


def write_table(table: pa.Table, file: Path) -> None:
    """Write a table in the format of the file's suffix. Raises ``click.UsageError`` for other suffixes."""
    kind = file.suffix
    if kind == ".parquet":
        pyarrow.parquet.write_table(table, file)
    elif kind in (".arrow", ".feather"):
        with pa.ipc.new_file(str(file), table.schema) as writer:
            writer.write_table(table)
    elif kind == ".csv":
        pyarrow.csv.write_csv(table, file)
    else:
        raise click.UsageError(f"--out {file}: the name determines the format, and must end in .parquet, .arrow or .csv")


def _show_snapshot(found: SnapshotState, *, as_json: bool) -> None:
    if as_json:
        echo_json(asdict(found), indent=1)
        return
    echo(f"snapshot {found.number} ({found.kind}) of job {found.job!r}, {found.key_groups} key-groups")
    table = Table("vertex", "kind", "replicas", "MB", "epoch", "keeps")
    for one in found.vertices:
        epoch = "" if one.epoch is None else str(one.epoch)
        table.add_row(*map(as_written, (one.vertex, one.kind, str(one.replicas), f"{one.size_bytes / 1e6:.3f}", epoch, one.operator)))
    console().print(table)


def _show_table(table: pa.Table, rows: int) -> None:
    shown = Table()
    for field in table.schema:
        shown.add_column(as_written(f"{field.name}\n{field.type}"))
    for row in table.slice(0, rows).to_pylist():
        shown.add_row(*(as_written(str(value)) for value in row.values()))
    console().print(shown)
    epoch = (table.schema.metadata or {}).get(EPOCH_KEY)
    echo(f"{min(rows, table.num_rows)} of {table.num_rows} rows" + (f", of epoch {epoch.decode()}" if epoch is not None else ""))
