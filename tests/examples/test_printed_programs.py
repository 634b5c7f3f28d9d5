"""Programs that README and docs print as commands and that need no cluster run as they are printed. Others: tests/cluster/test_commands.py,
test_examples_scripts.py; that all commands exist and take what they are given: tests/test_house_rules_claims.py."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.examples.running import environment
from tests.patience import PATIENCE_S
from tests.test_house_rules_documents import PAGES, code_in

ALONE = re.compile(r"^(?:\.venv/bin/)?python (examples/\S+\.py [^\n#`]*--local[^\n#`]*|-m benchmarks --list)", re.MULTILINE)
FOUND = sorted({line.strip() for page in PAGES for line in ALONE.findall(code_in(page.read_text(encoding="utf-8")))})


def test_there_are_some() -> None:
    assert len(FOUND) >= 3


@pytest.mark.soak
@pytest.mark.parametrize("line", FOUND)
def test_a_printed_program_runs(line: str, tmp_path: Path) -> None:
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in shlex.split(line)]
    where = ROOT if words[0] == "-m" else tmp_path
    done = subprocess.run(
        [sys.executable, *words], cwd=where, env=environment(), capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.strip()
