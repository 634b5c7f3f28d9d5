"""The autoscaler's files: its journal as JSON lines, and MPR's folder for a controller in any language (Löff, PUCRS 2023, 5.5)."""

from __future__ import annotations

import json
import math
import os
import time as clock
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rayad.autoscale import Decision, DecisionJournal, DecisionOutcome, Hold, JobSample, Record, ScalingState
from rayad.autoscale.decisions import decision_for
from rayad.autoscale.mpr import layout_of_parameters, statistics_entry
from rayad.progress import ConfigError, show
from rayad.snapshots.port import make_private_folder, open_private

JOURNAL_BYTES_MAX = 64 << 20
"""A journal file that is larger is renamed (``.1``) and another one begun; the last of them is kept."""
ENTRIES_MOST = 1000
"""So many windows are kept in a ``stats_<vertex>.json``: a controller reads it every few windows."""
PARAMETERS = "parameters.json"


class JournalFile:
    """Measurements and decisions as JSON lines, each with its ``kind``: ``begin``, ``sample``, ``decision``.

    A decision is written when it is made, when its outcome is known, and at the end with what it got: the last line with its number is
    valid. Holds are written without the measurements that they rest on.
    """

    def __init__(self, path: str | os.PathLike[str], job: str, bytes_max: int = JOURNAL_BYTES_MAX) -> None:
        self.path = Path(path)
        self._bytes_max = bytes_max
        make_private_folder(os.fspath(self.path.parent.absolute()))
        self._job = job
        self._begin()

    def on_sample(self, sample: JobSample, layout: Mapping[str, int]) -> None:
        """Write what was measured since the sample before."""
        vertices = {}
        for name, vertex in sample.vertices.items():
            figures = vertex.as_json()
            del figures["replicas"]
            vertices[name] = {**figures, "parallelism": layout.get(name, vertex.parallelism)}
        self._write({"kind": "sample", "since_s": sample.since_s, "until_s": sample.until_s, "vertices": vertices})

    def on_record(self, record: Record) -> None:
        """Write a decision, or its outcome."""
        value = record.as_json()
        if record.outcome is DecisionOutcome.HELD:
            value = {**value, "saw": {}, "expected": {}}
        self._write({"kind": "decision", **value})

    def _begin(self) -> None:
        self._write({"kind": "begin", "job": self._job, "at_s": clock.time()})

    def _write(self, value: dict[str, Any]) -> None:
        line = json.dumps(_plain(value), allow_nan=False) + "\n"
        if value["kind"] != "begin" and self.path.exists() and self.path.stat().st_size + len(line) > self._bytes_max:
            os.replace(self.path, f"{self.path}.1")
            self._begin()
        with open_private(os.fspath(self.path), os.O_APPEND) as file:
            file.write(line.encode())


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The lines of the last run in a journal file, ``begin`` first; without a last line that was cut off. Raises ConfigError for others."""
    found: list[dict[str, Any]] = []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"the journal {os.fspath(path)!r} cannot be read: {error.strerror or error}") from None
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
            kind = value["kind"]
        except (ValueError, TypeError, KeyError):
            if number == len(lines):
                break
            raise ConfigError(f"line {number} of {os.fspath(path)!r} is {show(line, 60)}: it is no journal of an autoscaler") from None
        if kind == "begin":
            found = []
        found.append(value)
    return found


def journal_of(lines: Iterable[Mapping[str, Any]]) -> DecisionJournal:
    """The journal in these lines, from which an autoscaler can resume."""
    records = {line["number"]: dict(line) for line in lines if line["kind"] == "decision"}
    return DecisionJournal.from_json([records[number] for number in sorted(records)])


class ControllerFolder:
    """MPR's interface: ``stats_<vertex>.json`` is written each round; ``parameters.json``, written by a controller, is carried out.

    What a controller reads is always complete: files are renamed into place. What it writes need not be: a file that cannot be read is read
    again. ``parameters.json`` is acted on when it differs from the last one carried out, so that a user's own rescale is not undone.
    """

    def __init__(self, folder: str | os.PathLike[str], layout: Mapping[str, int]) -> None:
        self.folder = Path(folder)
        self._entries: dict[str, deque[tuple[str, Any]]] = {}
        self._done: dict[str, Any] | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / PARAMETERS).exists():
                self._write(PARAMETERS, dict(layout))
                self._done = dict(layout)
        except OSError as error:
            raise ConfigError(f"ScalingConfig.mpr_folder {os.fspath(folder)!r} cannot be written: {error.strerror or error}") from None

    def on_sample(self, sample: JobSample, layout: Mapping[str, int]) -> None:
        """Add a window to each vertex's file."""
        for name, vertex in sample.vertices.items():
            entries = self._entries.setdefault(name, deque(maxlen=ENTRIES_MOST))
            at_ms = round(sample.until_s * 1000)
            if entries:
                at_ms = max(at_ms, int(entries[-1][0]) + 1)
            entries.extend(statistics_entry(vertex, at_ms).items())
            self._write(f"stats_{name}.json", {name: dict(entries)})

    def on_record(self, record: Record) -> None:
        """Do nothing: decisions are the controller's own."""

    def __call__(self, samples: JobSample, state: ScalingState, now_s: float) -> Decision:
        """The policy: what ``parameters.json`` asks for, if it is new. Raises ConfigError where it is not valid."""
        try:
            parameters = json.loads((self.folder / PARAMETERS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return Hold(reason=f"{PARAMETERS} cannot be read now: {error}")
        if not isinstance(parameters, dict):
            raise ConfigError(f"{PARAMETERS} is {show(parameters, 60)}: it must be an object from vertex name to replicas")
        if parameters == self._done:
            return Hold(reason=f"{PARAMETERS} is as it was")
        target = layout_of_parameters(parameters, state.graph, state.layout)
        if not target:
            self._done = parameters
        return decision_for(state.layout, target, Hold(reason=f"{PARAMETERS} says {parameters}", wanted=target))

    def _write(self, name: str, value: Any) -> None:
        path = self.folder / name
        path.with_suffix(".tmp").write_text(json.dumps(value, indent=2), encoding="utf-8")
        os.replace(path.with_suffix(".tmp"), path)


def _plain(value: Any) -> Any:
    """A value that JSON can express: infinite and undefined numbers become None."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
