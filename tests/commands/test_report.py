"""``rayad report``: one file about a finished job, from its journal."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from click.testing import CliRunner

from rayad.actors.status.journal import JobEvent
from rayad.actors.status.report import as_report
from rayad.cli import main

EVENTS = [
    JobEvent(100.0, "running", "4 actors run", {"actors": 4}),
    JobEvent(110.0, "snapshot", "snapshot 1: 2000 bytes in 0.50 s", {"total_bytes": 2000, "took_s": 0.5}),
    JobEvent(120.0, "failure", "'<b>'[1]: ValueError: 1 < 2", {"number": 1}),
    JobEvent(121.0, "snapshot", "snapshot 2: 4000 bytes in 0.25 s", {"total_bytes": 4000, "took_s": 0.25}),
    JobEvent(130.0, "end", "complete", {"state": "complete"}),
]


def test_the_report_is_one_file_that_shows_every_event_and_needs_no_network(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "words"
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_text("".join(f"{event.as_line()}\n" for event in EVENTS) + '{"at_s": 1')
    out = tmp_path / "out.html"
    run = CliRunner().invoke(main, ["report", str(folder), "--output", str(out)])
    assert (run.exit_code, run.output) == (0, f"{out}: 5 events\n")
    page = out.read_text(encoding="utf-8")
    assert page == as_report("words", EVENTS)
    text = unescape(re.sub(r"<[^>]*>", "", page))
    assert all(event.what in text for event in EVENTS)
    assert "1970-01-01 00:01:40 to 1970-01-01 00:02:10 UTC, 30.0 s: complete. 1 x running, 1 x failure, 2 x snapshot, 1 x end." in text
    assert not re.search(r"<script|https?:|src=|href=|url\(|@import", page)
    assert [float(height) for height in re.findall(r'height="([\d.]+)" fill="#79b"', page)] == [40.0, 80.0, 80.0, 40.0]


def test_a_folder_without_a_journal_is_refused_with_what_to_give(tmp_path: Path) -> None:
    run = CliRunner().invoke(main, ["report", f"{tmp_path}/none"])
    assert run.exit_code == 1
    assert run.output == f"Error: there is no journal in '{tmp_path}/none': give the <storage_path>/<job name> of a job\n"
