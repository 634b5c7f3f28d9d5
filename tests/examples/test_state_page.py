"""The Python of docs/state.md, block by block in one process; its comments are asserts."""

from __future__ import annotations

import re
from pathlib import Path

from tests.checkout import ROOT


def test_the_page_on_state_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "state.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    names = {"folder": tmp_path, "__name__": "state_page"}
    for block in blocks:
        exec(compile(block, "docs/state.md", "exec"), names)
