"""State in two forms at epochs: what each of them had.

Rows that came out of columns have no former values, so the epoch in which they did is the oldest one from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.tables import Entries


class Form(Protocol):
    """Rows, or columns."""

    @property
    def is_used(self) -> bool:
        """Whether there is anything."""

    def at_epochs(self, epochs: Epochs) -> AtEpochs | None:
        """Keep from now on what it was."""


class Both(Protocol):
    """State in two forms."""

    @property
    def rows(self) -> Form:
        """Its rows."""

    @property
    def columns(self) -> Form:
        """Its columns."""


class BothAtEpochs(AtEpochs):
    """Columns and rows, of which one has something now; the other may have had it.

    Args:
        state: both.
        rows: of its rows.
    """

    def __init__(self, state: Both, rows: AtEpochs, columns: AtEpochs, epochs: Epochs) -> None:
        self._state = state
        self._epochs = epochs
        self._rows, self._columns = rows, columns
        self.has_one_row = rows.has_one_row
        self.rows_tell_times = rows.rows_tell_times

    @property
    def since(self) -> int:
        return max(self._rows.since, self._columns.since)

    def columns_became_rows(self) -> None:
        """All that was in columns is in rows from now on; there are other columns, with nothing in them."""
        columns = self._state.columns.at_epochs(self._epochs)
        assert columns is not None
        self._columns = columns
        if not self.rows_tell_times:
            self._rows.begin_now()

    def begin_now(self) -> None:
        self._rows.begin_now()
        self._columns.begin_now()

    def forget(self, epoch: int) -> None:
        self._rows.forget(epoch)
        self._columns.forget(epoch)

    def of_keys(self, epoch: int, keys: Sequence[Any], part: str = "") -> Entries:
        rows = self._rows.of_keys(epoch, keys, part)
        if self.has_one_row and len(rows.keys) == len(keys):
            return rows  # a key is in one of them
        return _together(rows, self._columns.of_keys(epoch, keys, part))

    def of_all(self, epoch: int, part: str = "") -> Entries:
        return _together(self._rows.of_all(epoch, part), self._columns.of_all(epoch, part))

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        return self._rows.give(groups, key_groups), self._columns.give(groups, key_groups)

    def take(self, given: Any) -> None:
        rows, columns = given
        self._rows.take(rows)
        if self._state.rows.is_used:
            self._columns.begin_now()  # a sibling that has columns, and rows here
        else:
            self._columns.take(columns)


def _together(rows: Entries, columns: Entries) -> Entries:
    return rows if not columns.keys else columns if not rows.keys else Entries.together([rows, columns])


__all__ = ["BothAtEpochs"]
