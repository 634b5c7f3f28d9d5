"""Stops a process inside one step of what it writes, at a line that the caller names: for a coordinator inside a commit or a publish.

A step is a line of Rayad's own code that runs inside one of :data:`ROOTS`, at whatever depth. A sink of the job's program calls
:func:`watch` in the coordinator; from then on the thread notes all steps that it comes through, and asks at the beginning of each root
whether it is to stop in this one. Which functions there are is not known here, so another way of committing is stopped in, too.

Files in a folder that both processes see::

    <root>.json        the steps so far: lines by function
    stop               a request: root, function, line, token
    stopped-<token>    the process has come there, and stops: its id
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import rayad

ROOTS = ("commit", "publish", "retain")
"""Functions of Rayad, by name: of a sink, and of the store of snapshots."""
OURS = os.path.dirname(rayad.__file__) + os.sep
_here = threading.local()


class Step(NamedTuple):
    """A line of a function, in a root."""

    root: str
    function: str
    line: int

    def __str__(self) -> str:
        return f"{self.root}, in {self.function} before line {self.line}"


class _Tracer:
    """What Python calls for each function of one thread, and for each line inside a root."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._root: FrameType | None = None
        self._seen = {root: dict[str, set[int]]() for root in ROOTS}
        self._grew = False
        self._asked: tuple[Step, str] | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(OURS):
            return None
        if self._root is None:
            if code.co_name not in ROOTS:
                return None
            self._root, self._grew, self._asked = frame, False, self._request(code.co_name)
        return self._line

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        root = self._root
        if root is None:
            return None  # a generator that outlives its root
        if event == "line":
            self._come_to(Step(root.f_code.co_name, _name(frame), frame.f_lineno))
        elif event == "return" and frame is root:
            self._root = None
            if self._grew:
                self._write(root.f_code.co_name)
        return self._line

    def _come_to(self, step: Step) -> None:
        lines = self._seen[step.root].setdefault(step.function, set())
        if step.line not in lines:
            lines.add(step.line)
            self._grew = True
        if self._asked is not None and self._asked[0] == step:
            token, self._asked = self._asked[1], None
            if not take_back(Path(self.folder)):
                return  # another process came there, or the request has been taken back
            _appear(Path(self.folder, f"stopped-{token}"), str(os.getpid()))
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # all threads stop, this one at once

    def _request(self, root: str) -> tuple[Step, str] | None:
        try:
            plain = json.loads(Path(self.folder, "stop").read_text())
        except (OSError, ValueError):
            return None
        return (Step(*plain["step"]), plain["token"]) if plain["step"][0] == root else None

    def _write(self, root: str) -> None:
        seen = {function: sorted(lines) for function, lines in self._seen[root].items()}
        try:
            _appear(Path(self.folder, f"{root}.json"), json.dumps(seen))
        except OSError:
            pass  # the folder is not there any more


def watch(folder: str) -> None:
    """In the coordinator: from the next call on, note and obey in this thread."""
    if getattr(_here, "tracer", None) is None or _here.tracer.folder != folder:
        os.makedirs(folder, exist_ok=True)
        _here.tracer = _Tracer(folder)
    sys.settrace(_here.tracer)


class Watched:
    """Mixed into a class of sinks that commit: whoever commits with it obeys :func:`ask_to_stop`."""

    steps = ""
    """The folder."""

    def commit(self, *args: Any, **options: Any) -> Any:
        """As of the sink."""
        watch(self.steps)
        return super().commit(*args, **options)  # type: ignore[misc]

    def roll_back(self, *args: Any, **options: Any) -> Any:
        """As of the sink."""
        watch(self.steps)
        return super().roll_back(*args, **options)  # type: ignore[misc]


# -- the other process ------------------------------------------------------------------------------------------------------------------
def draw(folder: Path, root: str, rng: random.Random) -> Step | None:
    """One of the steps that were seen in a root; None: it has not run yet. In a third of the cases between two calls of the root itself,
    in a third in another function of its file, else anywhere; each function is as likely as any other, so that a long loop over files does
    not hide what is done once."""
    try:
        seen = json.loads((folder / f"{root}.json").read_text())
    except (OSError, ValueError):
        return None
    itself = [function for function in seen if function.rpartition(".")[2] == root]
    beside = [function for function in seen if function.partition(":")[0] in {one.partition(":")[0] for one in itself}]
    function = rng.choice(sorted(rng.choice([itself, beside, list(seen)])))
    return Step(root, function, rng.choice(seen[function]))


def ask_to_stop(folder: Path, step: Step, token: str) -> None:
    """The next process that comes to a step is to stop there, in whichever call of its root that is."""
    _appear(folder / "stop", json.dumps({"step": step, "token": token}))


def take_back(folder: Path) -> bool:
    """No process is to stop any more; false: one has come there, or the request was taken back."""
    try:
        (folder / "stop").unlink()
    except FileNotFoundError:
        return False
    return True


def stopped(folder: Path, token: str) -> int | None:
    """The id of the process that has stopped at what :func:`ask_to_stop` asked for; None: none has."""
    try:
        return int((folder / f"stopped-{token}").read_text())
    except FileNotFoundError:
        return None


def _name(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename.removeprefix(OURS)}:{code.co_qualname if sys.version_info >= (3, 11) else code.co_name}"


def _appear(path: Path, text: str) -> None:
    """Make a file appear whole."""
    written = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    written.write_text(text)
    written.replace(path)
