"""Programs that a page prints, each with the output that stands below it."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from tests.checkout import ROOT

PROGRAM = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A program of a page; ``printed`` is the output that the page shows, None if it shows none."""

    page: str
    code: str
    printed: str | None

    @property
    def name(self) -> str:
        """That of its dataflow."""
        found = re.search(r'rd\.Dataflow\("([^"]+)"\)', self.code)
        return found[1] if found else self.code[:40]

    def run(self) -> str:
        """Run it in this process and in the current folder, with no names but its own; gives what it prints."""
        out = StringIO()
        with redirect_stdout(out):
            exec(compile(self.code, f"<{self.page}: {self.name}>", "exec"), {"__name__": "__main__"})
        return out.getvalue()


def snippets_of(page: str) -> list[Snippet]:
    """All programs of a page, by its path from the root."""
    text = (ROOT / Path(page)).read_text(encoding="utf-8")
    return [Snippet(page, code, printed or None) for code, printed in PROGRAM.findall(text)]
