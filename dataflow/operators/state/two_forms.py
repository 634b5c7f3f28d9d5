"""State in two forms: columns as long as all batches are columns, rows from the first batch on that is not.

One of the two has something at any time. Both give the same results, so what comes from a sibling that still has the other form is put
into rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from rayad.dataflow.operators.state.keyed_state import KeyedState, StateOfParts
from rayad.dataflow.operators.state.reads.both_forms import BothAtEpochs
from rayad.dataflow.operators.state.slots.slot_groups import NotColumns
from rayad.dataflow.operators.state.tables import Entries

if TYPE_CHECKING:
    from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs


class RowForm(KeyedState):
    """State in rows."""

    @property
    @abstractmethod
    def is_used(self) -> bool:
        """Whether there is anything."""


class ColumnForm(KeyedState):
    """State in columns. :meth:`give` may raise NotColumns, with nothing given, where Arrow does not have the keys."""

    @property
    @abstractmethod
    def is_used(self) -> bool:
        """Whether there is anything."""

    can_drop: ClassVar[bool] = False
    """Whether it has :meth:`drop`; it becomes rows where a key ends, otherwise."""

    @abstractmethod
    def fits(self, given: Any) -> bool:
        """Whether what a sibling's :meth:`give` gave goes together with what is here: to be asked before :meth:`take`."""

    @abstractmethod
    def as_rows(self) -> Any:
        """All that is here as the ``give`` of the row form gives it. To be called once, at the end."""


Rows = TypeVar("Rows", bound=RowForm)
Columns = TypeVar("Columns", bound=ColumnForm)


class TwoForms(StateOfParts, Generic[Rows, Columns]):
    """State in columns or in rows.

    Args:
        rows: with nothing in it.
        make_columns: gives columns with nothing in them.
    """

    def __init__(self, rows: Rows, make_columns: Callable[[], Columns]) -> None:
        self.rows = rows
        self.columns = make_columns()
        self._make_columns = make_columns
        self._read: BothAtEpochs | None = None

    def to_rows(self) -> None:
        """Columns, if there are any, become rows."""
        if self.columns.is_used:
            columns, self.columns = self.columns, self._make_columns()
            self.rows.take(columns.as_rows())
            self.rows.forget_changes()
            if self._read is not None:
                self._read.columns_became_rows()

    @property
    def parts_read(self) -> tuple[str, ...]:
        return self.rows.parts_read

    @property
    def form_now(self) -> str:
        return self.columns.form_now if self.columns.is_used else self.rows.form_now

    def at_epochs(self, epochs: Epochs) -> AtEpochs | None:
        rows, columns = self.rows.at_epochs(epochs), self.columns.at_epochs(epochs)
        if rows is None or columns is None:
            return None
        self._read = BothAtEpochs(self, rows, columns, epochs)
        return self._read

    def that_drops(self) -> TwoForms[Any, Columns]:
        return TwoForms(self.rows.that_drops(), self._make_columns)

    def drop(self, keys: list[Any]) -> None:
        if self.columns.is_used and self.columns.can_drop:
            self.columns.drop(keys)
            return
        self.to_rows()
        self.rows.drop(keys)

    @property
    def there(self) -> tuple[KeyedState, ...]:
        return self.columns, self.rows

    @property
    def inline(self) -> bool | None:
        return self.columns.inline if self.columns.is_used else self.rows.inline

    def checkpoint(self) -> Any:
        return {"columns": self.columns.checkpoint()} if self.columns.is_used else {"rows": self.rows.checkpoint()}

    def restore(self, stored: Any) -> None:
        if "columns" in stored:
            self.columns.restore(stored["columns"])
        else:
            self.rows.restore(stored["rows"])

    def take_changes(self) -> Callable[[], Any] | None:
        """Of the form that has something: a snapshot after the other one is whole."""
        used, other, name = (self.columns, self.rows, "columns") if self.columns.is_used else (self.rows, self.columns, "rows")
        other.forget_changes()
        changed = used.take_changes()
        return None if changed is None else lambda: {name: changed()}

    def restore_changes(self, changes: Any) -> None:
        if "columns" in changes:
            self.columns.restore_changes(changes["columns"])
        else:
            self.rows.restore_changes(changes["rows"])

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        columns = None
        if self.columns.is_used:
            try:
                columns = self.columns.give(groups, key_groups)
            except NotColumns:
                self.to_rows()
        rows = self.rows.give(groups, key_groups)
        return None if rows is None and columns is None else (rows, columns)

    def take(self, given: Any) -> None:
        rows, columns = given
        parts = [] if rows is None else [rows]
        if columns is not None:
            if not self.rows.is_used and self.columns.fits(columns):
                self.columns.take(columns)
            else:
                theirs = self._make_columns()
                assert theirs.fits(columns)
                theirs.take(columns)
                parts.append(theirs.as_rows())
        if parts:
            self.to_rows()
        for part in parts:
            self.rows.take(part)

    def entries(self) -> dict[str, Entries]:
        """Of the rows, which columns become: a table does not tell in which form its state was."""
        self.to_rows()
        return self.rows.entries()

    def put_entries(self, name: str, entries: Entries) -> None:
        self.rows.put_entries(name, entries)


__all__ = ["ColumnForm", "RowForm", "TwoForms"]
