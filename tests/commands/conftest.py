"""Commands in this process, whose programs run in the local runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rayad as rd


@pytest.fixture
def locally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``rayad run`` and the like run programs of ``tmp_path`` without Ray."""
    submit = rd.Dataflow.submit

    def submitted(self: rd.Dataflow, config: rd.RunConfig, **options: Any) -> Any:
        return submit(self, config, runtime="local", **options)

    monkeypatch.setattr(rd.Dataflow, "submit", submitted)
    monkeypatch.setattr("sys.argv", ["rayad"])
    monkeypatch.syspath_prepend(str(tmp_path))
