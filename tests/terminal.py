"""A program on a terminal: its screen, read back from what it writes to a pseudo-terminal, and Ctrl-C as it is typed."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time as clock
from collections.abc import Callable, Sequence
from types import TracebackType

import pyte

from tests.patience import PATIENCE_S

CTRL_C = b"\x03"


class Terminal:
    """Runs a program on a terminal of its own, where it leads the foreground process group.

    ``pid`` is its process; ``seen`` are the different screens so far, each as its lines without those that are empty.
    """

    def __init__(self, command: Sequence[str], *, env: dict[str, str], cwd: str, columns: int = 120, rows: int = 30) -> None:
        self.seen: list[list[str]] = []
        self.status: int | None = None
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.pid, self._fd = pty.fork()
        if not self.pid:
            try:
                os.chdir(cwd)
                os.execvpe(command[0], command, {**env, "TERM": "xterm-256color", "COLUMNS": str(columns)})
            finally:
                os._exit(127)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def screen(self) -> list[str]:
        """The lines that are on it now."""
        return [line.rstrip() for line in self._screen.display if line.strip()]

    def until(self, is_there: Callable[[list[str]], bool]) -> list[str]:
        """Read until the screen is such; gives it. Fails if the program ends, or nothing like it comes."""
        ends_s = clock.monotonic() + PATIENCE_S
        while not is_there(self.screen):
            assert clock.monotonic() < ends_s, f"not on the screen in time: {self.screen}"
            assert self._read(), f"the program has ended: {self.screen}"
        return self.screen

    def end(self) -> list[str]:
        """Read until the program ends; gives the last screen, and sets ``status``, that of shells: 128 + n for signal n."""
        ends_s = clock.monotonic() + PATIENCE_S
        while self._read():
            assert clock.monotonic() < ends_s, f"it does not end: {self.screen}"
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.status = code if code >= 0 else 128 - code
        return self.screen

    def look(self) -> bool:
        """Read what is there; false when the program has ended."""
        return self._read()

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self._fd, keys)

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # Linux's end of a terminal that nobody has open
            return False
        self._stream.feed(data)
        if not self.seen or self.seen[-1] != self.screen:
            self.seen.append(self.screen)
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.status is None:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self._fd)


__all__ = ["CTRL_C", "Terminal"]
