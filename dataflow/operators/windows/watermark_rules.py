"""How the watermark of a stream follows from its event times (docs/decisions/006-event-time.md): what senders tell of the event times of a
batch, and what a vertex makes of that when a time is complete.

Without a bound on how far ahead an event time may be, a batch tells its largest one. With one (``max_ahead``) it tells its *stretches*:
``(first, last)`` of event times of which no two neighbours are further apart than that. Stretches of batches that come together are
joined to those of all their event times, in any order, so what a time has brought does not depend on batches or replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from rayad.dataflow.records.event_times import compared, exact_moment, later, watermark_of

Stretch: TypeAlias = tuple[Any, Any]
"""The first and the last of some event times."""

WHOLE = ()
"""The part of a stream without parts, and of one that has brought nothing yet. Others are ``(part,)``."""


class Mark(NamedTuple):
    """What is known of a part.

    Args:
        watermark: None: it has none yet.
        epoch: the last in which it brought something.
        largest: with a bound ahead, the largest event time that is believed.
        doubted: the stretch beyond the bound that the next epoch confirms or not.
    """

    watermark: Any
    epoch: int
    largest: Any = None
    doubted: Stretch | None = None


@dataclass(frozen=True, slots=True)
class WatermarkRule:
    """How the watermark of one stream follows from its event times.

    Args:
        max_delay: how late its records may come; None: not at all.
        per_part: whether each part has a watermark of its own, of which the least counts; event times then come with their part.
        idle_epochs: a part, or the stream, that has brought nothing in the last so many epochs does not count; None: all do, for ever.
        max_ahead: how far beyond the largest event time so far one may be and still move the watermark; None: any.

    >>> rule = WatermarkRule(2, per_part=True, idle_epochs=3)
    >>> marks = rule.after({}, {("a",): 10, ("b",): 7}, epoch=1)
    >>> rule.watermark(marks, 1)
    (True, 5)
    >>> marks = rule.after(marks, {("a",): 20}, epoch=5)
    >>> rule.watermark(marks, 5)
    (True, 18)

    With a bound ahead, an event time beyond it is doubted, and believed when the next epoch that brings something brings nothing from
    before it that is in time. So a wrong date moves nothing, and a stream that truly jumps goes on one epoch later.

    >>> rule = WatermarkRule(None, max_ahead=5)
    >>> marks = {}
    >>> for epoch, seen in enumerate([[(1, 2)], [(3, 4), (90, 90)], [(6, 6)], [(70, 70)], [(72, 73)]]):
    ...     marks = rule.after(marks, {(): seen}, epoch)
    ...     print(rule.watermark(marks, epoch)[1], end=" ")
    None 4 6 6 73
    """

    max_delay: Any = None
    per_part: bool = False
    idle_epochs: int | None = None
    max_ahead: Any = None

    @property
    def told(self) -> Any:
        """What a vertex is told: the delay alone, or with more than that the rule."""
        return self if self != WatermarkRule(self.max_delay) else self.max_delay

    @classmethod
    def of(cls, told: Any) -> WatermarkRule:
        """From what :attr:`told` gave."""
        return told if isinstance(told, WatermarkRule) else cls(told)

    # -- what batches tell ---------------------------------------------------------------------
    def seen(self, before: Any, told: Any) -> Any:
        """What is known of the event times of a part at a time, with what one more batch tells. ``before``: None of none."""
        if self.max_ahead is None:
            return later(last_of(before), last_of(told))
        return joined([*_stretches(before), *_stretches(told)], self.max_ahead)

    # -- when a time is complete ---------------------------------------------------------------
    def after(self, marks: Mapping[Any, Mark], seen: Mapping[Any, Any], epoch: int) -> dict[Any, Mark]:
        """The marks of the parts when ``epoch`` has brought these event times, by part, as :meth:`seen` gave them."""
        found = dict(marks)
        for part, of_part in seen.items():
            before = found.get(part)
            if before is None or before.epoch < epoch:  # else state has come from a replica that had handled this epoch
                found[part] = self._moved(before or Mark(None, epoch), of_part, epoch)
        if not found and self.idle_epochs is not None:
            found[WHOLE] = Mark(None, epoch)  # it has brought nothing from now on
        found = {part: mark for part, mark in found.items() if (part != WHOLE) is self.per_part} or found
        return self._awake(found, epoch) or found  # a part that was idle begins anew

    def watermark(self, marks: Mapping[Any, Mark], epoch: int) -> tuple[bool, Any]:
        """Whether the stream counts after ``epoch``, and its watermark; None: it has none yet, and holds back all others."""
        awake = self._awake(marks, epoch)
        known = [mark.watermark for mark in awake.values()]
        return bool(awake or not marks), None if not known or None in known else compared(*known)[0]

    def _awake(self, marks: Mapping[Any, Mark], epoch: int) -> dict[Any, Mark]:
        most = self.idle_epochs
        return {part: mark for part, mark in marks.items() if most is None or epoch - mark.epoch <= most}

    def _moved(self, mark: Mark, seen: Any, epoch: int) -> Mark:
        if self.max_ahead is None:
            return Mark(later(mark.watermark, watermark_of(last_of(seen), self.max_delay)), epoch)
        largest, doubted = self._believed(mark, _stretches(seen))
        moved = mark.watermark if largest is None else later(mark.watermark, watermark_of(largest, self.max_delay))
        return Mark(moved, epoch, largest, doubted)

    def _believed(self, mark: Mark, seen: list[Stretch]) -> tuple[Any, Stretch | None]:
        """The largest event time that is believed when an epoch has brought these, and the stretch that is doubted then."""
        largest = mark.watermark if mark.largest is None else mark.largest
        in_time = [stretch for stretch in seen if mark.watermark is None or compared(mark.watermark, stretch[1])[0] != stretch[1]]
        if not in_time:
            return largest, mark.doubted  # what is late says nothing of where the stream is
        if mark.doubted is not None and not in_time[0][0] < mark.doubted[0]:
            largest = later(largest, mark.doubted[1])
        for n, (first, last) in enumerate(in_time):
            if largest is None or not _within(largest, first, self.max_ahead):
                return largest, (first, last) if n == 0 else None
            largest = later(largest, last)
        return largest, None


def joined(stretches: Iterable[Stretch], max_ahead: Any) -> list[Stretch]:
    """Stretches in order, those no further apart than ``max_ahead`` as one.

    >>> joined([(7, 7), (1, 2), (10, 30), (4, 5)], 2)
    [(1, 7), (10, 30)]

    Raises DataflowError for moments that do not compare.
    """
    out: list[Stretch] = []
    for first, last in compared(*stretches):
        if out and _within(out[-1][1], first, max_ahead):
            out[-1] = out[-1][0], later(out[-1][1], last)
        else:
            out.append((first, last))
    return out


def _within(earlier: Any, moment: Any, length: Any) -> bool:
    return bool(exact_moment(moment) - exact_moment(earlier) <= exact_moment(length))


def last_of(seen: Any) -> Any:
    """The largest of what :meth:`WatermarkRule.seen` gave, or a batch tells; of stretches, too, which another rule may have left behind."""
    if isinstance(seen, list):
        return seen[-1][1] if seen else None
    return seen[1] if isinstance(seen, tuple) else seen


def _stretches(seen: Any) -> list[Stretch]:
    if isinstance(seen, list):
        return seen
    if seen is None:
        return []
    return [seen if isinstance(seen, tuple) else (seen, seen)]


__all__ = ["WHOLE", "Mark", "Stretch", "WatermarkRule", "joined", "last_of"]
