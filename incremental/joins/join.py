"""The join of two collections by key.

A change of one side meets all that the other side has accumulated, of each moment on its own: the pair changes at the first moment at which
both changes count. Source: McSherry et al., *Differential dataflow* (CIDR 2013), 3.3 (the join is bilinear).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar

from rayad.incremental.columns.joining import JoinColumns
from rayad.incremental.joins.kinds import KINDS, LEFT, RIGHT, Gives, How
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.incremental.moments import Counters, join
from rayad.incremental.reads import Shown
from rayad.incremental.traces import Kept, Trace, add
from rayad.progress import Timestamp


class Join(MomentVertex):
    """Gives what :data:`rayad.incremental.joins.kinds.KINDS` says of the records of two collections. A key that is null, or has null in it,
    meets nothing; only a side whose records come out alone has such keys.

    Args:
        how: which kind.
        has_columns: whether it may be in columns.
    """

    adds_up = False
    why_unreadable = ""
    more_inputs: ClassVar[int] = 0
    """Inputs behind those of the kind."""

    def __init__(self, how: How = "inner", *, has_columns: bool = True) -> None:
        self._kind = KINDS[how]
        self.inputs = len(self._kind.inputs) + self.more_inputs
        super().__init__(JoinColumns(self._kind) if has_columns else None)
        self.parts = tuple(Trace(self.epochs.is_over) for _ in self._kind.inputs)

    def kept(self) -> dict[str, Kept]:
        """See there."""
        return dict(zip(self._kind.inputs, self.parts, strict=True))

    def keeps(self) -> str:
        """See there."""
        records = [name for name in self._kind.inputs if not name.startswith("keys")]
        keys = [name for name in self._kind.inputs if name.startswith("keys")]
        said = "the records of both sides" if len(records) == 2 else f"the records of the {records[0]} side"
        return " and the ".join([said, *keys])

    def shown(self) -> Shown | None:
        """See there."""
        return Shown(inputs={name: number for number, name in enumerate(self._kind.inputs) if name in (LEFT, RIGHT)})

    def results_of(self, key: Any, there: Sequence[Any]) -> Iterable[tuple[Any, int]]:
        """See there."""
        out: dict[Any, int] = {}
        for port, gives in self._kind.alone:
            for value, weight in (there[port] or {}).items():
                add(out, made(gives, key, value, None), weight)
        for meeting in self._kind.meetings if _meets(key) else ():
            for value, weight in (there[meeting.records] or {}).items():
                for met, count in (there[meeting.other] or {}).items():
                    add(out, made(meeting.gives, key, value, met), weight * count * meeting.sign)
        return [(record[1], weight) for record, weight in out.items()]

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Each change of an input meets what the others have; those of the same moment meet once."""
        out: dict[Counters, dict[Any, int]] = {}
        here: dict[Any, int] = {}
        moment = time.counters
        for port in self._kind.order:
            mine, alone = self.parts[port], self._kind.alone_as(port)
            for (key, value), weight in arrived[port].items() if alone is not None else ():
                add(here, made(alone, key, value, None), weight)
            for meeting in self._kind.of(port):
                is_first, gives = port == meeting.records, meeting.gives
                other = self.parts[meeting.other if is_first else meeting.records]
                for (key, value), weight in arrived[port].items():
                    if not _meets(key):
                        continue
                    for met, at, count in other.changes(key):
                        then = moment if at == moment else join(moment, at)
                        if then not in out:
                            out[then] = {}
                        record = made(gives, key, value, met) if is_first else made(gives, key, met, value)
                        add(out[then], record, weight * count * meeting.sign)
            for (key, value), weight in arrived[port].items():
                mine.add(key, value, time, weight)
        for record, weight in here.items():
            add(out.setdefault(moment, {}), record, weight)
        for then in sorted(out):
            self.send_changes(Timestamp.of(time.epoch, then), list(out[then].items()))


def _meets(key: Any) -> bool:
    """Whether a key meets an equal one: not null, nor with null in it."""
    return not (key is None or (type(key) is tuple and None in key))


def made(gives: Gives | None, key: Any, record: Any, other: Any) -> Any:
    """What comes out of a record and another one, or nothing else."""
    if gives is Gives.PAIR:
        return key, (record, other)
    if gives is Gives.LEFT:
        return key, record
    return key, ((record, None) if gives is Gives.LEFT_ALONE else (None, record))


__all__ = ["Join", "made"]
