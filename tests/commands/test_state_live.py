"""``rayad state --live`` and ``rayad sql``: the state of a job that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result

import rayad as rd
from rayad.cli import main
from rayad.commands import on_cluster


@pytest.fixture
def _job(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = rd.Dataflow("shop")
    flow.input("words").key_by(lambda word: word).count(name="count").collect("counts")
    job = flow.submit(runtime="local")
    job.input("words").send(["tea", "milk", "tea"])
    job.input("words").advance_to(1)
    monkeypatch.setattr(on_cluster, "attach", lambda name, address: {"shop": job}[name])


def call(*arguments: str, command: str = "state") -> Result:
    return CliRunner().invoke(main, [command, *arguments])


@pytest.mark.usefixtures("_job")
def test_the_state_of_a_job_that_runs_is_printed_with_its_epoch(tmp_path: Path) -> None:
    shown = call("shop", "count", "--live", "--fresh")
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[-1] == "2 of 2 rows, of epoch 0"
    rows = [json.loads(line) for line in call("shop", "count", "--live", "--json").output.splitlines()]
    assert sorted((row["key"], row["count"]) for row in rows) == [("milk", 1), ("tea", 2)]
    written = call("shop", "count", "--live", "--out", str(tmp_path / "count.parquet"))
    assert written.output.startswith("2 rows in ")
    assert pyarrow.parquet.read_table(tmp_path / "count.parquet").num_rows == 2


@pytest.mark.usefixtures("_job")
def test_what_cannot_be_read_is_told() -> None:
    refused = call("shop", "sums", "--live")
    assert refused.exit_code == on_cluster.Exit.FAILED
    assert "has no operator with state 'sums': it has ['count']" in refused.output


@pytest.mark.usefixtures("_job")
def test_a_query_over_the_state_is_printed_with_its_epoch(tmp_path: Path) -> None:
    shown = call("shop", "select sum(count) as words, count(*) as different from count", "--fresh", command="sql")
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[-1] == "1 of 1 rows, of epoch 0"
    query = "select key from count where count > 1"
    assert call("shop", query, "--json", command="sql").output == '{"key": "tea"}\n'
    assert call("shop", query, "--out", str(tmp_path / "some.csv"), command="sql").output.startswith("1 rows in ")
    refused = call("shop", "select sum(n) from count", command="sql")
    assert refused.exit_code == on_cluster.Exit.FAILED
    assert "No field named n. The columns there are: " in refused.output


@pytest.mark.parametrize("arguments", [("shop", "--live"), ("shop", "count", "--live", "--trust"), ("shop", "count", "--fresh")])
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...]) -> None:
    assert call(*arguments).exit_code == on_cluster.Exit.USAGE
