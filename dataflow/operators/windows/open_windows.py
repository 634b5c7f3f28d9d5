"""Open windows in rows: an accumulator by key and window, and sessions by key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.state.by_key.beyond_memory import NotedRowsBeyondMemory, moments_of
from rayad.dataflow.operators.state.by_key.rows import Named
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.tables import WINDOW, Entries
from rayad.dataflow.operators.state.touched_keys import TouchedKeys
from rayad.dataflow.operators.windows.at_epochs import WindowsAtEpochs
from rayad.dataflow.operators.windows.ends import Ends
from rayad.dataflow.windows import Session, Window


def _key_alone(pair: Any) -> Any:
    return pair[0]


def _key_and_window(pair: Any) -> Any:
    return pair[0], pair[1][0]


class OpenWindows(NotedRowsBeyondMemory):
    """What windows that have not fired hold. Windows of one size keep a dict for each window; sessions one dict of all keys. Beyond memory
    a key has one row with all its windows, which comes up when the first of them ends."""

    def __init__(self, aggregator: Aggregator, windows: Any) -> None:
        super().__init__()
        self.aggregator = aggregator
        self.open: dict[Window, dict[Any, Any]] = {}
        self.sessions: dict[Any, list[list[Any]]] = {}
        self._of_sessions = isinstance(windows, Session)
        self._ends = Ends()  # of windows, or of keys the earliest end of their sessions
        self._count = 0  # accumulators of windows
        self._fired: Any = None  # the last watermark
        self._noted: TouchedKeys = TouchedKeys(_key_alone if self._of_sessions else _key_and_window)
        self.read: WindowsAtEpochs | None = None
        """Told what is about to be changed; None: nobody has read yet."""

    def at_epochs(self, epochs: Epochs) -> AtEpochs:
        return WindowsAtEpochs(self, epochs)

    @property
    def is_used(self) -> bool:
        return bool(self.open or self.sessions or self.is_beyond_memory)

    # -- records and time ------------------------------------------------------------
    def put(self, pairs: list[Any], mark: Any) -> None:
        """Take the ``(key, (window, accumulator))`` of one time in, but for what is late at a watermark: windows that have ended, and of
        sessions those that have when all of the time is in. ``pairs`` must stay as they are."""
        ended = set()
        self.fetch(key for key, _ in pairs)
        self._size.changed(len(pairs))
        if self.read is not None and self._of_sessions:
            self.read.note_sessions(key for key, _ in pairs)
        elif self.read is not None:
            self.read.note_windows((key, window) for key, (window, _) in pairs)
        for key, (window, accumulator) in pairs:
            if mark is None or window.end > mark:
                self.keep(key, window, accumulator)
            elif self._of_sessions:
                self.keep(key, window, accumulator)
                ended.add(key)
        for key in ended:
            self._keep_sessions(key, [session for session in self.sessions[key] if session[1] > mark])
        self._noted.note(pairs, len(self.sessions) or self._count)

    def keep(self, key: Any, window: Window, accumulator: Any) -> None:
        """Take one in, late or not."""
        if self._of_sessions:
            self._into_session(key, window, accumulator)
            return
        of_window = self._of_window(window)
        if key in of_window:
            of_window[key] = self.aggregator.merge(of_window[key], accumulator)
        else:
            of_window[key] = accumulator
            self._count += 1

    def _of_window(self, window: Window) -> dict[Any, Any]:
        of_window = self.open.get(window)
        if of_window is None:
            of_window = self.open[window] = {}
            self._ends.tell(window, window.end)
        return of_window

    def holds(self, key: Any, window: Window) -> bool:
        """Whether a window of the key is inside a session that is open."""
        self.fetch((key,))
        return any(start <= window.start and window.end <= end for start, end, _ in self.sessions.get(key, ()))

    def _into_session(self, key: Any, window: Window, accumulator: Any) -> None:
        kept = self.sessions.setdefault(key, [])
        start, end = window
        apart = []
        for session in kept:
            if session[1] >= start and session[0] <= end:
                start, end = min(start, session[0]), max(end, session[1])
                accumulator = self.aggregator.merge(session[2], accumulator)
            else:
                apart.append(session)
        apart.append([start, end, accumulator])
        self.sessions[key] = apart
        self._ends.tell(key, end)

    def _keep_sessions(self, key: Any, sessions: list[list[Any]]) -> None:
        if sessions:
            self.sessions[key] = sessions
            self._ends.tell(key, min(end for _, end, _ in sessions))
        elif self.sessions.pop(key, None) is not None:
            self._indices.removed(self.sessions, (key,))

    def due(self, mark: Any) -> Iterator[list[tuple[Any, Window, Any]]]:
        """Results of the windows that end at or before a watermark (None: all), which are forgotten: see :meth:`ended`."""
        result = self.aggregator.result
        for ended in self.ended(mark):
            yield [(key, window, result(accumulator)) for key, window, accumulator in ended]

    def ended(self, mark: Any) -> Iterator[list[tuple[Any, Window, Any]]]:
        """Remove the windows that end by ``mark`` and give their keys and accumulators: those of some keys after those of others, of these
        in the order of their ends."""
        self._fired = mark
        if mark is None:
            self._noted.forget()
        for _ in self.due_parts(lambda end: mark is None or end <= mark):
            found = self._ended(mark)
            if found:
                yield found

    def forget_until(self, mark: Any) -> None:
        """Forget the windows that end by ``mark`` (None: all)."""
        for _ in self.ended(mark):
            pass

    def _ended(self, mark: Any) -> list[tuple[Any, Window, Any]]:
        ended = self._ends.until(mark)
        if self._of_sessions:
            out = [each for key in ended if key in self.sessions for each in self._ended_sessions(key, mark)]
        else:
            done = sorted(window for window in ended if window in self.open)
            if self.read is not None:
                self.read.note_windows([(key, window) for window in done for key in self.open[window]])
            out = [(key, window, accumulator) for window in done for key, accumulator in self.open.pop(window).items()]
            self._count -= len(out)
        return out

    def _ended_sessions(self, key: Any, mark: Any) -> list[tuple[Any, Window, Any]]:
        finished = [s for s in self.sessions[key] if mark is None or s[1] <= mark]
        if finished and self.read is not None:
            self.read.note_sessions((key,))
        self._keep_sessions(key, [s for s in self.sessions[key] if s not in finished])
        return [(key, Window(s[0], s[1]), s[2]) for s in sorted(finished, key=lambda s: (s[0], s[1]))]

    # -- beyond memory ---------------------------------------------------------------
    def in_memory(self) -> Collection[Any]:
        return self.sessions if self._of_sessions else _Panes(self)

    def by_key(self) -> dict[Any, Any]:
        """The accumulators of each key by window, or its sessions."""
        if self._of_sessions:
            return self.sessions
        out: dict[Any, dict[Window, Any]] = {}
        for key, window, accumulator in _Panes(self):
            out.setdefault(key, {})[window] = accumulator
        return out

    def moments(self, kept: dict[Any, Any]) -> pa.Array:
        return moments_of(min(end for _, end, *_ in some) for some in kept.values())

    def all_gone_down(self) -> None:
        self.open, self.sessions, self._ends, self._count = {}, {}, Ends(), 0

    def go_up(self, came: Mapping[Any, Any]) -> None:
        if self._of_sessions:
            self.put_in(None, came)
            return
        for key, windows in came.items():
            for window, accumulator in windows.items():
                self._of_window(window)[key] = accumulator
            self._count += len(windows)

    # -- snapshots -----------------------------------------------------------------
    def changed(self, noted: Callable[[], set[Any]]) -> tuple[Any, ...]:
        """What touched keys hold now; which windows are open tells what is gone, of sessions the watermark does."""
        some: dict[Window, dict[Any, Any]] = {}
        if self._of_sessions:
            return [], some, {key: self.sessions.get(key, []) for key in noted()}, self._fired
        for key, window in noted():
            if key in self.open.get(window, ()):
                some.setdefault(window, {})[key] = self.open[window][key]
        return list(self.open), some, {}, self._fired

    def restore_changes(self, changes: Any) -> None:
        windows, some, sessions, fired = changes
        before, self.open = self.open, {}
        for window in windows:
            self._of_window(window).update(before.get(window, {}))
        for window, now in some.items():
            self.open[window].update(now)
        self._count = sum(map(len, self.open.values()))
        for key in [*self.sessions]:
            self._keep_sessions(key, [s for s in self.sessions[key] if fired is None or s[1] > fired])
        for key, kept in sessions.items():
            self._keep_sessions(key, kept)

    def named(self) -> Named:
        """By window, and sessions by None."""
        return {None: self.sessions, **self.open}

    def shaped(self, named: Named) -> Any:
        return {window: kept for window, kept in named.items() if window is not None}, named.get(None, {})

    def unshaped(self, stored: Any) -> Named:
        return {None: stored[1], **stored[0]}

    def put_in(self, name: Window | None, some: Any) -> None:
        if name is not None:
            self._of_window(name).update(some)
            self._count += len(some)
            return
        for key, sessions in some.items():
            self._keep_sessions(key, sessions)

    def left(self, given: Named) -> None:
        self.open = {window: kept for window, kept in self.open.items() if kept}
        self._count = sum(map(len, self.open.values()))

    # -- as a table ------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        """An accumulator for each key and window, or session."""
        rows = [*_Panes(self)]
        for key, sessions in self.sessions.items():
            rows += self.rows_of_sessions(key, sessions)
        return {"": self.entries_of(rows + self.rows_below())}

    def rows_below(self) -> list[tuple[Any, Window, Any]]:
        """Key, window and accumulator of what is in runs."""
        if self._of_sessions:
            return [row for key, sessions in self.below() for row in self.rows_of_sessions(key, sessions)]
        return [(key, window, accumulator) for key, windows in self.below() for window, accumulator in windows.items()]

    @staticmethod
    def rows_of_sessions(key: Any, sessions: list[list[Any]]) -> list[tuple[Any, Window, Any]]:
        """Sessions of a key as windows with their accumulators."""
        return [(key, Window(start, end), accumulator) for start, end, accumulator in sessions]

    def entries_of(self, rows: list[tuple[Any, Window, Any]]) -> Entries:
        """What :meth:`entries` gives of these keys, windows and accumulators."""
        columns = self.aggregator.opened([accumulator for _, _, accumulator in rows])
        named = dict(zip(self.aggregator.state_columns, columns, strict=True))
        return Entries([key for key, _, _ in rows], {WINDOW: [window for _, window, _ in rows], **named})

    def put_entries(self, name: str, entries: Entries) -> None:
        self.fetch(entries.keys)
        accumulators = self.aggregator.closed([entries.columns[name] for name in self.aggregator.state_columns])
        for key, window, accumulator in zip(entries.keys, entries.columns[WINDOW], accumulators, strict=True):
            self.keep(key, window, accumulator)


class _Panes(Collection[tuple[Any, Window, Any]]):
    """Key, window and accumulator of the windows that are in memory."""

    def __init__(self, windows: OpenWindows) -> None:
        self._open = windows.open

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def __iter__(self) -> Iterator[tuple[Any, Window, Any]]:
        return ((key, window, accumulator) for window, kept in self._open.items() for key, accumulator in kept.items())

    def __contains__(self, row: object) -> bool:
        return any(row == each for each in self)
