"""``job.table("counts")``: what a keyed operator of a running job has now, by key or as an Arrow table."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from rayad.actors.replica.reads.questions import Answer
from rayad.actors.tables.reading import Question, Reading, Wanted
from rayad.dataflow.config import check_timeout
from rayad.dataflow.epochs import last_together
from rayad.dataflow.operators.state.tables import TIME, Entries, table_of
from rayad.dataflow.operators.state.versions import LAST
from rayad.dataflow.plan import Plan
from rayad.dataflow.records.values import Row
from rayad.dataflow.records.wrong_calls import explains_calls
from rayad.progress import DataflowError, arguments, show

TIMEOUT_S = 30.0
"""How long a read takes at most, if nothing else is said."""
TELL_S = 0.5
"""So much of it is left to find out why it is over; of shorter times a quarter."""
EPOCH_KEY = b"rayad.epoch"
"""Under this name the metadata of a scanned table has its epoch."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a key had.

    Args:
        value: None: the key is not there. Where the table has several columns besides the key, a dict of them; where a key has several
            rows, a list.
        epoch: it is what the key had when this epoch was complete everywhere; -1 before the first one is.
    """

    value: Any
    epoch: int


class Readable(ABC):
    """A running job, as its tables see it."""

    name: str
    plan: Plan

    @abstractmethod
    def owners(self, left_s: float) -> Mapping[int, tuple[int, ...]]:
        """By stage: the replica that owns each key-group, as far as is known here. Raises TimeoutError after ``left_s``."""

    @abstractmethod
    def carry(self, questions: Sequence[Question], left_s: float) -> Sequence[Answer | None]:
        """Ask replicas, for at most ``left_s``; None: it is not there, or does not answer. Raises what ended the job."""

    @abstractmethod
    def committed(self, left_s: float) -> Mapping[int, int] | None:
        """By stage the last epoch that a snapshot holds, as far as can be told within ``left_s``; None: the job takes no snapshots."""

    @abstractmethod
    def begun(self, left_s: float) -> int:
        """The last epoch of which any input has given something; -1: none has. Raises TimeoutError after ``left_s``."""

    def unanswered(self) -> str:
        """What those do who have not answered in time when they were asked last, in words; "" where all have."""
        return ""

    @abstractmethod
    def now_s(self) -> float:
        """A clock, in seconds."""

    @abstractmethod
    def pause(self, left_s: float) -> bool:
        """Let a moment pass, at most ``left_s``. False: nothing has moved since the last call, and nothing will before somebody does
        something else."""

    @abstractmethod
    def holding_back(self, epoch: int, left_s: float) -> str:
        """What keeps an epoch from being complete: the inputs that are open in it, or before, in words; found out within ``left_s``."""


class Seen:
    """The newest epoch that has been given: nobody who shares it is given an older one."""

    def __init__(self) -> None:
        self.epoch = -1
        self._lock = threading.Lock()

    def note(self, epoch: int) -> None:
        """This one has been given."""
        with self._lock:
            self.epoch = max(self.epoch, epoch)


class Tables:
    """Tables of one job that are read together, at one epoch: ``job.tables("accounts", "limits")``.

    What one call gives is of one epoch, which is complete at every operator that is read: all effects of it and of those before, and
    nothing of later ones. From one call to the next it never goes back, also when the job recovers or changes its layout.

    Args:
        job: see :class:`Readable`.
        wanted: the tables, by the names of their vertices.
        committed: whether only what a completed snapshot holds is given.
        seen: what others have been given who never go back together with these; None: nobody.
    """

    def __init__(self, job: Readable, wanted: Mapping[str, Wanted], *, committed: bool = False, seen: Seen | None = None) -> None:
        self._job = job
        self._committed = arguments.flag(committed, "committed")
        self._wanted = dict(wanted)
        self._reader = uuid.uuid4().hex
        self._seen = seen if seen is not None else Seen()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self._wanted))} of job {self._job.name!r}>"

    def get(self, key: Any, *, fresh: bool = False, timeout_s: float = TIMEOUT_S) -> dict[str, Value]:
        """What a key has in each table, by the name of the table; see :meth:`Table.get`."""
        found = self.get_many([key], fresh=fresh, timeout_s=timeout_s)
        return {name: value for name, values in found.items() for value in values.values()}

    def get_many(self, keys: Iterable[Any], *, fresh: bool = False, timeout_s: float = TIMEOUT_S) -> dict[str, dict[Any, Value]]:
        """What these keys have in each table, by the name of the table, then by key."""
        if not isinstance(keys, Iterable) or isinstance(keys, str | bytes):
            raise DataflowError(
                f"get_many() was given {show(keys, 60)}: it takes several keys, get_many([key, ...]); for one there is get()"
            )
        wanted = list(dict.fromkeys(_hashable(key) for key in keys))
        if not wanted:
            return {name: {} for name in self._wanted}
        found, epoch = self._read(dict.fromkeys(self._wanted, tuple(wanted)), fresh, timeout_s)
        return {name: _by_key(wanted, *rows, epoch) for name, rows in found.items()}

    def scan(self, *, fresh: bool = False, timeout_s: float = TIMEOUT_S) -> dict[str, pa.Table]:
        """Each table as a whole, by its name; see :meth:`Table.scan`."""
        return self.of_keys({}, {}, fresh=fresh, timeout_s=timeout_s)

    def of_keys(
        self, keys: Mapping[str, tuple[Any, ...]], shown: Mapping[str, pa.Schema], *, fresh: bool = False, timeout_s: float = TIMEOUT_S
    ) -> dict[str, pa.Table]:
        """As :meth:`scan`, but of some tables only the rows of these keys; columns are of the types that were ``shown`` before, where these
        hold the values."""
        found, epoch = self._read(keys, fresh, timeout_s)
        known = {name: shown.get(name, self.shown_before(name)) for name in found}
        return {name: _with_epoch(entries, epoch, known[name]) for name, (entries, _) in found.items()}

    def shown_before(self, name: str) -> pa.Schema | None:
        """What is known of the columns of a table before it is read."""
        wanted = self._wanted[name]
        (stage,) = (stage for stage in self._job.plan.stages if stage.id == wanted.stage)
        shows: pa.Schema | None = getattr(stage.op, "shows", None) if wanted.state is None else None
        return shows

    def _read(
        self, keys: Mapping[str, tuple[Any, ...]], fresh: bool, timeout_s: float
    ) -> tuple[dict[str, tuple[Entries | None, bool]], int]:
        job, is_fresh = self._job, arguments.flag(fresh, "fresh")
        timeout_s = check_timeout(timeout_s, "timeout_s") or TIMEOUT_S
        deadline_s = job.now_s() + timeout_s
        until_s = deadline_s - min(TELL_S, timeout_s / 4)  # then there is time to find out why

        def left_s() -> float:
            return max(0.0, until_s - job.now_s())

        least = self._seen.epoch
        if is_fresh:
            least = max(least, last_together(job.begun(left_s()), job.plan.epochs_together))
        tables = [replace(wanted, keys=keys.get(name)) for name, wanted in self._wanted.items()]
        reading = Reading(self._reader, tables, key_groups=job.plan.key_groups, owners=job.owners(left_s()), least=least)
        while True:
            if self._committed and reading.epoch is None:
                reading.most = self._held(left_s())
            questions = reading.begin_round()
            was_there = True
            for question, answer in zip(questions, job.carry(questions, left_s()), strict=True):
                reading.take(question, answer)
                was_there &= answer is not None
            if reading.next():
                if reading.is_over:
                    break
                continue
            is_late = left_s() <= 0
            if not is_late and not was_there:
                reading.lay_out(job.owners(left_s()))
            if is_late or not (job.pause(left_s()) or reading.has_learned):
                raise self._late(reading, least, fresh=fresh, waited_s=timeout_s if is_late else None, left_s=deadline_s - job.now_s())
        assert reading.epoch is not None
        self._seen.note(reading.epoch)
        told = max(reading.end, -1) if reading.epoch == LAST else reading.epoch
        return dict(zip(self._wanted, reading.found(), strict=True)), told

    def _held(self, left_s: float) -> int:
        """The last epoch that a snapshot holds of all of the tables."""
        committed = self._job.committed(left_s)
        if committed is None:
            raise DataflowError(
                f"table {', '.join(map(repr, self._wanted))} of job {self._job.name!r}: committed=True gives what a completed snapshot "
                "holds, and the job takes none: give it RunConfig(storage_path=...)"
            )
        return min(committed.get(table.stage, -1) for table in self._wanted.values())

    def _late(self, reading: Reading, least: int, *, fresh: bool, waited_s: float | None, left_s: float) -> TimeoutError:
        names = ", ".join(map(repr, self._wanted))
        when = "nothing moves any more" if waited_s is None else f"{waited_s:g} s are over"
        begin = f"table {names} of job {self._job.name!r}: {when}, and "
        unanswered = self._job.unanswered()
        if unanswered:
            return TimeoutError(f"{begin}not all of its replicas have answered: {unanswered}. Read again, or see job.explain_stuck()")
        if reading.epoch is not None or reading.passed >= reading.need:
            return TimeoutError(
                f"{begin}not all of its replicas have answered for one epoch: a change of layout, a recovery or a long activation is under "
                "way. Read again, or see job.explain_stuck()"
            )
        if reading.need > least:
            why = "what was before it was not kept, because nobody had read the table"
        else:
            why = "everything that had begun at the call is to be complete (fresh=True)" if fresh else "an earlier answer was of that epoch"
        need = "the last epoch" if reading.need == LAST else f"epoch {reading.need}"
        complete = f"Complete is epoch {reading.passed}" if reading.passed >= 0 else "No epoch is complete yet"
        if reading.most is not None and reading.most < reading.need:
            newest = "None holds anything of it" if reading.most < 0 else f"The newest one holds epoch {reading.most} of it"
            return TimeoutError(f"{begin}{need} is in no completed snapshot: {why}. {newest}; job.savepoint() takes one")
        held = self._job.holding_back(reading.need, max(0.0, left_s))
        return TimeoutError(f"{begin}{need} is not complete there: {why}. {complete}. {held}")


class Table:
    """The state of a keyed operator of a running job: ``job.table("counts")``.

    Reading begins with the first call: from then on replicas keep former values of the keys that change, back to the epoch that all have
    passed, so that an answer is of one epoch though replicas run ahead of each other. A handle never goes back to an earlier epoch.

    Args:
        job, name, wanted, committed: see :class:`Tables`.
    """

    def __init__(self, job: Readable, name: str, wanted: Wanted, *, committed: bool = False) -> None:
        self.name = name
        self._tables = Tables(job, {name: wanted}, committed=committed)

    def __init_subclass__(cls) -> None:
        explains_calls(cls)

    def __repr__(self) -> str:
        return repr(self._tables).replace("Tables", "Table", 1)

    def get(self, key: Any, *, fresh: bool = False, timeout_s: float = TIMEOUT_S) -> Value:
        """What a key has: its ``.value``, None where it is not there, and the ``.epoch`` that this is of.

        Args:
            key: as ``key_by`` gave it; of several columns a tuple; of what keeps whole records of a collection the record.
            fresh: wait until every epoch that has begun at any input by now is complete in the answer. Otherwise it is of the newest epoch
                that all replicas have passed.
            timeout_s: how long it may take, in seconds.

        Raises DataflowError that names the operator where its state cannot be read, or the job is over; TimeoutError that names the input
        that is open.
        """
        (value,) = self.get_many([key], fresh=fresh, timeout_s=timeout_s).values()
        return value

    def get_many(self, keys: Iterable[Any], *, fresh: bool = False, timeout_s: float = TIMEOUT_S) -> dict[Any, Value]:
        """What these keys have, by key, all at one epoch; arguments and errors as of :meth:`get`."""
        return self._tables.get_many(keys, fresh=fresh, timeout_s=timeout_s)[self.name]

    def scan(self, *, fresh: bool = False, timeout_s: float = TIMEOUT_S) -> pa.Table:
        """All of it, at one epoch, as a table with the columns that :func:`rayad.read_state` gives; in no particular order.

        ``int(table.schema.metadata[b"rayad.epoch"])`` is its epoch. Arguments and errors as of :meth:`get`.
        """
        return self._tables.scan(fresh=fresh, timeout_s=timeout_s)[self.name]


def told_open(inputs: Mapping[str, int], epoch: int) -> str:
    """What keeps an epoch from being complete: the live inputs (their epochs by name) that are open in it, or before."""
    late = {name: at for name, at in inputs.items() if at <= epoch}
    if late:
        then = "close() it" if epoch == LAST else f"advance_to({epoch + 1}) or close() it"
        return "; ".join(f"Input {name!r} is open in epoch {at}: {then}" for name, at in late.items())
    return "No live input is open in it: job.explain_stuck() tells what is under way"


def _hashable(key: Any) -> Any:
    key = Row(key) if type(key) is dict else key  # a record of a collection
    try:
        hash(key)
    except TypeError as error:
        raise DataflowError(f"a key is not hashable: {show(key)} of type {type(key).__name__}; keys of several parts are tuples") from error
    return key


def _by_key(wanted: Sequence[Any], entries: Entries | None, has_one: bool, epoch: int) -> dict[Any, Value]:
    rows: dict[Any, list[Any]] = {}
    if entries is not None:
        columns = [[at.epoch for at in some] if name == TIME else some for name, some in entries.columns.items()]
        names = ["epoch" if name == TIME else name for name in entries.columns]
        for at, key in enumerate(entries.keys):
            value = columns[0][at] if len(columns) == 1 else {name: column[at] for name, column in zip(names, columns, strict=True)}
            rows.setdefault(key, []).append(value)
    return {key: Value((rows[key][0] if has_one else rows[key]) if key in rows else None, epoch) for key in wanted}


def _with_epoch(entries: Entries | None, epoch: int, known: pa.Schema | None) -> pa.Table:
    table = table_of(entries if entries is not None else Entries([], {}), known)
    return table.replace_schema_metadata({**(table.schema.metadata or {}), EPOCH_KEY: str(epoch).encode()})


__all__ = ["EPOCH_KEY", "TIMEOUT_S", "Readable", "Seen", "Table", "Tables", "Value", "told_open"]
