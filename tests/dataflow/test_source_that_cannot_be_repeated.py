"""A source like a socket: it cannot give the same records twice."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import rayad as rd


class LinesPart(rd.SourcePart):
    def __init__(self, end: socket.socket) -> None:
        self.file = end.makefile("r")

    def next_batch(self) -> rd.SourceBatch | None:
        line = self.file.readline()
        return rd.SourceBatch(0, [line.strip()]) if line else None

    def offset(self) -> Any:
        return None


class Lines(rd.Source):
    """Lines of a socket, to their end."""

    replays = False

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def list_parts(self) -> Sequence[Any]:
        return [0]

    def build_part(self, part: Any, resume: Any | None) -> rd.SourcePart:
        return LinesPart(self.end)


@pytest.fixture
def flow() -> rd.Dataflow:
    near, far = socket.socketpair()
    near.sendall(b"a\nb\n")
    near.close()
    flow = rd.Dataflow("lines")
    flow.source(Lines(far), name="socket").collect("out")
    return flow


def test_it_is_read_without_snapshots(flow: rd.Dataflow) -> None:
    assert [record for _, record in flow.run(runtime="local")["out"]] == ["a", "b"]


def test_it_is_refused_with_snapshots_before_anything_starts(flow: rd.Dataflow, tmp_path: Path) -> None:
    told = r"^'socket' \(.*\): Lines cannot be read again from an offset \(replays = False\), .* Send what it gives to a live input"
    for runtime in ("local", "ray"):
        with pytest.raises(rd.ConfigError, match=told):
            flow.submit(rd.RunConfig(storage_path=str(tmp_path / "none")), runtime=runtime)
    assert not (tmp_path / "none").exists()
