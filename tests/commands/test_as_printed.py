"""Each ``rayad`` command with arguments that a document prints works as printed, on README's first program and the stores that it left.

Commands on a cluster get a fake job handle here; tests/cluster/test_commands.py runs them on a real cluster.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import rayad as rd
from rayad.actors.cluster import log_files
from rayad.actors.job import JobState
from rayad.cli import OF_JOBS, main
from rayad.dataflow.streams.flow import Dataflow
from tests.actors.test_scaling_plot import journal
from tests.checkout import ROOT
from tests.commands.fake_handle import Handle, attached
from tests.examples.snippets import snippets_of
from tests.test_house_rules_documents import PAGES, code_in

ALONE = {"demo", "doctor", "jobs", "version"}
"""Commands that need no argument. Another command without arguments in a text is only mentioned there, not printed to be run."""


def printed() -> list[str]:
    """The commands printed on all pages, without those that have placeholders."""
    found = set()
    for page in PAGES:
        for words in re.findall(r"(?:^|/|-- )rayad ([a-z]+[^\n#]*)", code_in(page.read_text(encoding="utf-8")), flags=re.MULTILINE):
            if words.startswith(("demo --ray", "doctor --address")):
                continue  # on a Ray: tests/cluster/test_commands.py
            if (" " in words.strip() or words.strip() in ALONE) and not re.search(r"[A-Z]{3,}|\.\.\.|<", words):
                found.add(words.strip())
    return sorted(found)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with README's first program, a job's store, a journal of an autoscaler, and the examples."""
    folder = tmp_path_factory.mktemp("printed")
    program = snippets_of("README.md")[0].code
    (folder / "program.py").write_text(program)
    names: dict[str, object] = {"__name__": "program"}
    exec(program, names)
    flow = names["flow"]
    assert isinstance(flow, Dataflow)
    for name in ("wordcount", "shop"):
        job = flow.submit(rd.RunConfig(storage_path=str(folder / "jobs"), name=name), runtime="local")
        job.savepoint()
        job.wait()
    (folder / "examples").symlink_to(ROOT / "examples")
    journal(folder)
    shutil.copy(folder / "scaling.jsonl", folder / "jobs" / "wordcount")
    return folder


@pytest.mark.parametrize("words", printed())
def test_a_command_works_as_it_is_printed(words: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    handle = Handle()
    attached(monkeypatch, handle)
    monkeypatch.setattr(log_files, "processes_of", lambda name: [])
    if words.startswith(("run", "resume")):
        monkeypatch.setattr(Dataflow, "submit", lambda flow, *args, **options: handle)
    if words.startswith("logs"):
        handle.state = JobState.COMPLETE
    shown = CliRunner().invoke(main, shlex.split(words))
    assert shown.exit_code == 0, f"rayad {words} ended with {shown.exit_code}:\n{shown.output}"


def test_documents_print_every_command_on_jobs() -> None:
    shown = {words.split()[0] for words in printed()}
    assert {command.name for command in OF_JOBS} <= shown


def test_the_page_of_commands_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `rayad ([a-z]+)", page, flags=re.MULTILINE)) == set(main.commands)
