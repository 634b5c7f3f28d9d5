"""What a job's handle has to read its state while it runs: one table, several at one epoch, or a query over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa

from rayad.actors.tables.reading import Wanted
from rayad.actors.tables.table import EPOCH_KEY, TIMEOUT_S, Readable, Seen, Table, Tables
from rayad.dataflow import hooks
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.operators.state.tables import CHECKED, without_pickled
from rayad.dataflow.plan import Plan
from rayad.progress import DataflowError, arguments, show


class ReadsTables(ABC):
    """A job whose keyed operators can be read."""

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """What runs."""

    @cached_property
    def _queried(self) -> dict[bool, Seen]:
        """What queries have been given, by whether they read only what is committed."""
        return {}

    @cached_property
    def _shown(self) -> dict[str, pa.Schema]:
        """The columns that tables of queries had when they were read last as a whole."""
        return {}

    @abstractmethod
    def _readable(self) -> Readable: ...

    def table(self, name: str, *, state: str | None = None, committed: bool = False) -> Table:
        """Read the state of a keyed operator while the job runs: ``job.table("counts").get("tea").value``.

        Args:
            name: of the operator, or of a live collection.
            state: which of its states, if it has several (:func:`rayad.list_state`, docs/state.md).
            committed: give only what a completed snapshot holds, which no failure undoes; it is as old as the snapshot. Otherwise a
                recovery may come to other values of the same epoch, where sources or functions are not deterministic.

        Raises DataflowError if there is no operator of that name. What cannot be read so is refused by the first read.
        """
        return Table(self._readable(), name, Wanted(self._operator(name), state), committed=committed)

    def tables(self, *names: str, committed: bool = False) -> Tables:
        """Read the states of several keyed operators together, each time at one epoch: ``job.tables("a", "b").scan()["a"]``.

        Args:
            names: of the operators; of one with several states ``"operator.state"``.
            committed: as of :meth:`table`.

        Raises DataflowError as :meth:`table` does, or if none is named.
        """
        if not names:
            raise DataflowError("tables(): name the operators to read, job.tables('a', 'b')")
        return self._tables(names, committed, Seen())

    def _tables(self, names: Sequence[str], committed: bool, seen: Seen) -> Tables:
        wanted = {name: self._wanted(name) for name in names}
        return Tables(self._readable(), wanted, committed=committed, seen=seen)

    def sql(self, query: str, *, fresh: bool = False, committed: bool = False, timeout_s: float = TIMEOUT_S) -> pa.Table:
        """The result of a query over what keyed operators have now, all of one epoch: ``job.sql("select max(count) from counts")``.

        The tables of the query are operators and live collections, by their names; one of several states is ``"operator.state"``. What
        their columns are says docs/state.md. They are read, and DataFusion runs the query in this process (``pip install 'rayad[sql]'``).
        Of a table whose key the query compares with literals (``where key = 'tea'``, ``where customer in (7, 9)``) only these rows are
        read; a table whose columns are not known beforehand is read whole by the first query. For a result that follows each change there
        is :meth:`rayad.Dataflow.sql`.

        Args:
            query: in SQL; names are lower-case unless they are in double quotes.
            fresh, timeout_s: as of :meth:`rayad.actors.tables.table.Table.get`.
            committed: as of :meth:`table`.

        Returns the rows as an Arrow table; ``int(found.schema.metadata[b"rayad.epoch"])`` is their epoch, which is never earlier than that
        of a query before through this handle (of those that are ``committed``, of one that was). Raises as :meth:`table` and its
        reads do, and DataflowError that says why a query cannot be run.
        """
        query = arguments.text(query, "job.sql: query")
        names = hooks.call("tables_of_query", query)
        seen = self._queried.setdefault(arguments.flag(committed, "committed"), Seen())
        read = self._tables(names, committed, seen) if names else None
        shown = {name: schema for name in names if read and (schema := self._shown.get(name, read.shown_before(name))) is not None}
        keys = hooks.call("keys_of_query", query, shown) if len(shown) == len(names) else {}
        tables = read.of_keys(keys, shown, fresh=fresh, timeout_s=timeout_s) if read else {}
        self._shown.update((name, without_pickled(table.schema)) for name, table in tables.items() if name not in keys)
        found: pa.Table = hooks.call("run_query", query, tables)
        epochs = [table.schema.metadata[EPOCH_KEY] for table in tables.values()]
        return found.replace_schema_metadata({EPOCH_KEY: epochs[0]} if epochs else None)

    def _wanted(self, name: str) -> Wanted:
        """A table by the name of its operator, which the name of a state may follow."""
        among = self._stages
        parts = name.split(".") if isinstance(name, str) and name not in among else []
        for at in range(len(parts) - 1, 0, -1):
            operator = ".".join(parts[:at])
            if operator in among:
                return Wanted(among[operator], ".".join(parts[at:]))
        return Wanted(self._operator(name), None)

    def _operator(self, name: str) -> int:
        found = self._stages.get(name) if isinstance(name, str) else None
        if found is None:
            known = sorted(name for name in self._stages if not name.endswith(CHECKED))
            raise DataflowError(f"dataflow {self.plan.name!r} has no operator with state {show(name)}: it has {known}")
        return found

    @property
    def _stages(self) -> dict[str, int]:
        """The stages of operators, and of live collections, by name."""
        among = {stage.name: stage.id for stage in self.plan.stages if stage.kind is NodeKind.VERTEX}
        return {**{name.removesuffix(CHECKED): stage for name, stage in among.items()}, **among}


__all__ = ["ReadsTables"]
