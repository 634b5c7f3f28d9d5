"""``--secret-file`` of ``rayad run`` and ``resume``: snapshots are signed with it, as those who read them expect."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rayad.cli import main
from rayad.snapshots.store import SnapshotStore

PROGRAM = """
import rayad as rd

flow = rd.Dataflow("words")
flow.from_epochs([["to", "be"], ["or"], ["not"]]).key_by(lambda word: word).count(name="counts").collect("counts")
"""
KEY = b"a key with a newline at its end\n"


@pytest.fixture
def program(tmp_path: Path, locally: None) -> str:
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "program.py").write_text(PROGRAM)
    return f"{tmp_path / 'program.py'}:flow"


def rayad(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize("command", ["run", "resume"])
def test_snapshots_of_a_run_are_signed_with_all_bytes_of_the_file(program: str, tmp_path: Path, command: str) -> None:
    ran = rayad(command, program, "--storage", tmp_path / "jobs", "--secret-file", tmp_path / "key")
    assert ran.exit_code == 0, ran.output
    folder = tmp_path / "jobs" / "words" / "snapshots"
    assert SnapshotStore(str(folder), secret=KEY).latest()[0] is not None
    with_key = rayad("snapshots", folder, "--verify", "--secret-file", tmp_path / "key")
    assert with_key.exit_code == 0, with_key.output
    without = rayad("snapshots", folder)
    assert without.exit_code == 1
    assert "on the command line by --secret-file" in without.output
    again = rayad("resume", program, "--storage", tmp_path / "jobs", "--secret-file", tmp_path / "key")
    assert again.exit_code == 0, again.output


def test_a_file_that_is_too_short_or_not_there_is_refused(program: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"hunter2")
    short = rayad("run", program, "--storage", tmp_path / "jobs", "--secret-file", tmp_path / "key")
    assert short.exit_code == 1
    assert "SnapshotConfig.secret is of type bytes and 7 bytes long: it must be bytes, at least 16 of them" in short.output
    assert "hunter2" not in short.output
    assert rayad("run", program, "--secret-file", tmp_path / "gone").exit_code == 2
