"""Open windows at epochs.

In rows changed windows keep what they had before, by key and window. In columns runs are never changed, so what they were before an epoch
is the list of them. Neither moves: where key-groups come, the epoch of now is the oldest that can be read. Windows wait for each other's
epochs anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.versions import ABSENT, Versions, copied

if TYPE_CHECKING:
    from rayad.dataflow.operators.state.tables import Entries
    from rayad.dataflow.windows import Window


class InRows(Protocol):
    """Open windows, or sessions, in rows."""

    read: WindowsAtEpochs | None
    """Told what is about to be changed."""

    @property
    def open(self) -> Mapping[Window, Mapping[Any, Any]]:
        """Accumulators by window, then by key."""

    @property
    def sessions(self) -> Mapping[Any, list[list[Any]]]:
        """The sessions of each key."""

    def fetch(self, keys: Iterable[Any]) -> None:
        """Let what these keys have be among those above; what does not fit in memory is not, else."""

    def rows_below(self) -> list[tuple[Any, Window, Any]]:
        """Key, window and accumulator of what is not."""

    def rows_of_sessions(self, key: Any, sessions: Any) -> list[tuple[Any, Window, Any]]:
        """Key, window and accumulator of each."""

    def entries_of(self, rows: list[tuple[Any, Window, Any]]) -> Entries:
        """These as a table."""


class InColumns(Protocol):
    """Open windows, or sessions, in columns."""

    read: ColumnsAtEpochs | None
    """Told that something is about to be changed."""

    def frozen(self) -> Self:
        """What is here now."""

    def open_now(self, keys: Sequence[Any] | None) -> InTable:
        """The windows of these keys (None: all) that are open."""


class InTable(Protocol):
    """What is a table."""

    def entries(self) -> dict[str, Entries]:
        """It."""


class StaysBehind(AtEpochs):
    """What is kept of former epochs does not move."""

    has_one_row = False

    def give(self, groups: frozenset[int], key_groups: int) -> None:
        """Nothing."""

    def take(self, given: None) -> None:
        self.begin_now()


class WindowsAtEpochs(StaysBehind):
    """Open windows, or sessions, in rows.

    Args:
        state: the windows; from now on it tells which are about to be changed.
    """

    def __init__(self, state: InRows, epochs: Epochs) -> None:
        self._state = state
        self._windows, self._sessions = (Versions(epochs.now, epochs.applied) for _ in range(2))
        self._open = _ByPair(state)
        self._of_key: dict[Any, dict[Window, None]] = {}  # the windows of which former values may be kept
        state.read = self

    @property
    def since(self) -> int:
        return self._windows.since

    def note_windows(self, pairs: Iterable[tuple[Any, Window]]) -> None:
        """These windows, by key, are about to be changed."""
        for pair in pairs:
            self._windows.note(pair, self._open)
            self._of_key.setdefault(pair[0], {})[pair[1]] = None

    def note_sessions(self, keys: Iterable[Any]) -> None:
        """The sessions of these keys are about to be changed."""
        for key in keys:
            self._sessions.note(key, self._state.sessions)

    def begin_now(self) -> None:
        self._windows.begin_now()
        self._sessions.begin_now()

    def forget(self, epoch: int) -> None:
        if epoch > self.since:
            self._windows.forget(epoch)
            self._sessions.forget(epoch)
            self._of_key = {}
            for key, window in self._windows.changed():
                self._of_key.setdefault(key, {})[window] = None

    def of_keys(self, epoch: int, keys: Sequence[Any], part: str = "") -> Entries:
        state = self._state
        state.fetch(keys)
        open_now = {key: [window for window, kept in state.open.items() if key in kept] for key in keys}
        pairs = [(key, window) for key in keys for window in {**dict.fromkeys(open_now[key]), **self._of_key.get(key, {})}]
        return self._entries(epoch, pairs, keys)

    def of_all(self, epoch: int, part: str = "") -> Entries:
        state, changed, keys = self._state, list(self._windows.changed()), list(self._sessions.changed())
        state.fetch([*(key for key, _ in changed), *keys])  # so that what is left below is as it was
        pairs = dict.fromkeys([*self._open, *changed])
        return self._entries(epoch, list(pairs), list(dict.fromkeys([*state.sessions, *keys])), state.rows_below())

    def _entries(
        self, epoch: int, pairs: Sequence[tuple[Any, Window]], keys: Sequence[Any], more: Sequence[tuple[Any, Window, Any]] = ()
    ) -> Entries:
        found = ((pair, self._windows.value(epoch, pair, self._open)) for pair in pairs)
        rows = [(*pair, copied(value)) for pair, value in found if value is not ABSENT]
        for key in keys:
            sessions = self._sessions.value(epoch, key, self._state.sessions)
            rows += self._state.rows_of_sessions(key, [] if sessions is ABSENT else copied(sessions))
        return self._state.entries_of([*rows, *more])


class _ByPair(Mapping[tuple[Any, "Window"], Any]):
    """Accumulators by key and window."""

    def __init__(self, state: InRows) -> None:
        self._state = state

    def __getitem__(self, pair: tuple[Any, Window]) -> Any:
        return self._state.open[pair[1]][pair[0]]

    def __contains__(self, pair: Any) -> bool:
        return pair[0] in self._state.open.get(pair[1], ())

    def get(self, pair: tuple[Any, Window], default: Any = None) -> Any:
        return self._state.open.get(pair[1], {}).get(pair[0], default)

    def __iter__(self) -> Iterator[tuple[Any, Window]]:
        return ((key, window) for window, kept in self._state.open.items() for key in kept)

    def __len__(self) -> int:
        return sum(map(len, self._state.open.values()))


class ColumnsAtEpochs(StaysBehind):
    """Open windows, or sessions, in columns.

    Args:
        state: the windows; from now on it tells when it is about to be changed.
    """

    def __init__(self, state: InColumns, epochs: Epochs) -> None:
        self._state = state
        self._epochs = epochs
        self._since = epochs.applied()
        self._before: list[tuple[int, InColumns]] = []  # what there was before an epoch, epochs ascending
        state.read = self

    @property
    def since(self) -> int:
        return self._since

    def before_change(self) -> None:
        """Something is about to be changed."""
        epoch = self._epochs.now()
        if not self._before or self._before[-1][0] < epoch:
            self._before.append((epoch, self._state.frozen()))

    def begin_now(self) -> None:
        self._since = max(self._since, self._epochs.now(), self._epochs.applied())
        self._before.clear()

    def forget(self, epoch: int) -> None:
        if epoch > self._since:
            self._since = epoch
            self._before = [(changed, before) for changed, before in self._before if changed > epoch]

    def of_keys(self, epoch: int, keys: Sequence[Any], part: str = "") -> Entries:
        return self._at(epoch).open_now(keys).entries()[""]

    def of_all(self, epoch: int, part: str = "") -> Entries:
        return self._at(epoch).open_now(None).entries()[""]

    def _at(self, epoch: int) -> InColumns:
        return next((before for changed, before in self._before if changed > epoch), self._state)


__all__ = ["ColumnsAtEpochs", "WindowsAtEpochs"]
