"""A sample of SQLite's sqllogictest, while rows come and go; ``python -m tests.sql.logictest`` runs whole files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.sql.logictest import TOGETHER, Counts, File

FILES = sorted((ROOT / "tests" / "sql" / "logictest_sample").glob("*.test"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_sample(path: Path) -> None:
    file, counts = File(path.read_text(encoding="utf-8")), Counts()
    for start in range(0, len(file.queries), TOGETHER):
        file.run(file.queries[start : start + TOGETHER], counts)
    assert not counts.failed, counts.failed
    assert not counts.refused, counts.refused
    assert counts.passed >= 25


def test_there_is_a_sample() -> None:
    assert len(FILES) == 6
