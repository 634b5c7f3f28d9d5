"""The journal of decisions: what each saw, expected and got. The one place where they are kept, and the only memory that policies have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rayad.autoscale.decisions import (
    Decision,
    DecisionOutcome,
    Expected,
    Hold,
    Record,
    ReplicaCounts,
    Rescale,
    ScaleDown,
    ScaleUp,
    Seen,
)
from rayad.autoscale.samples import JobSample
from rayad.progress import ConfigError, InternalError

_KINDS: Mapping[str, type[Decision]] = {kind.__name__: kind for kind in (Hold, ScaleUp, ScaleDown, Rescale)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One vertex after one change: expected and measured rates, items a second.

    ``accuracy`` is the capacity measured over the capacity expected: below 1, capacity grew less than in proportion to replicas.
    """

    vertex: str
    expected_rate: float
    got_rate: float
    expected_capacity: float
    got_capacity: float | None

    @property
    def accuracy(self) -> float | None:
        """Measured capacity over expected capacity; None if nothing was measured."""
        if self.got_capacity is None or self.expected_capacity <= 0.0:
            return None
        return self.got_capacity / self.expected_capacity


def seen_of(samples: JobSample) -> dict[str, Seen]:
    """The figures of a sample that the journal keeps."""
    return {
        name: Seen(
            v.parallelism, v.observed_rate, v.true_rate, v.busy_share, v.backpressured_share, v.queue_items, v.latency_s(0.99)
        )
        for name, v in samples.vertices.items()
    }  # fmt: skip


class DecisionJournal:
    """The latest decisions, oldest first.

    Args:
        changes_keep: how many decisions that changed something, or tried to, are kept.
        holds_keep: how many holds are kept; most rounds add one.
        records: the records of an earlier journal; numbers continue after the last of them.

    Law: at most one record waits for its outcome, and it is the last that is not a hold.
    """

    def __init__(self, *, changes_keep: int = 256, holds_keep: int = 64, records: Iterable[Record] = ()) -> None:
        if changes_keep < 1 or holds_keep < 1:
            raise ConfigError(f"a journal keeps {changes_keep} changes and {holds_keep} holds: both must be at least 1")
        self._keep = (changes_keep, holds_keep)
        self._records: list[Record] = list(records)
        self._next = self._records[-1].number + 1 if self._records else 0

    @property
    def records(self) -> tuple[Record, ...]:
        """What is kept, oldest first."""
        return tuple(self._records)

    @property
    def waiting(self) -> Record | None:
        """The decision that was asked for and has no answer yet."""
        return next((r for r in reversed(self._records) if r.outcome is DecisionOutcome.ASKED), None)

    def add(self, samples: JobSample | None, layout: ReplicaCounts, decision: Decision, now_s: float) -> Record:
        """Add a decision; one with changes waits for its outcome."""
        if decision.changes and self.waiting is not None:
            raise InternalError(f"decision {self.waiting.number} has no outcome yet, and another one is added: {decision.reason}")
        outcome = DecisionOutcome.ASKED if decision.changes else DecisionOutcome.HELD
        saw = seen_of(samples) if samples is not None else {}
        record = Record(self._next, now_s, dict(layout), saw, decision, outcome)
        self._next += 1
        self._records.append(record)
        self._trim()
        return record

    def on_applied(self, now_s: float, answer: str = "") -> None:
        """The waiting decision took effect."""
        self._answer(DecisionOutcome.APPLIED, now_s, answer)

    def on_refused(self, answer: str) -> None:
        """The waiting decision was given up; the old layout stays."""
        self._answer(DecisionOutcome.REFUSED, None, answer)

    def on_samples(self, samples: JobSample) -> None:
        """Keep the effect of the last change, from a sample of the new layout alone. Later samples replace it: rates settle by then."""
        for i in reversed(range(len(self._records))):
            record = self._records[i]
            if record.outcome is DecisionOutcome.ASKED:
                return
            if record.outcome is DecisionOutcome.APPLIED and record.changed_s is not None:
                if samples.since_s >= record.changed_s:
                    self._records[i] = replace(record, got=seen_of(samples))
                return

    def compare(self, number: int) -> tuple[Comparison, ...]:
        """Expected and measured rates of each vertex after one applied decision; empty until a sample has come after the change."""
        record = next((r for r in self._records if r.number == number), None)
        if record is None:
            raise ConfigError(f"decision {number} is not in the journal, which has {[r.number for r in self._records]}")
        return tuple(
            Comparison(name, e.rate, record.got[name].observed_rate, e.capacity, record.got[name].true_rate)
            for name, e in record.decision.expected.items()
            if name in record.got
        )

    def as_json(self) -> list[dict[str, Any]]:
        """Plain dicts and numbers; :meth:`from_json` is its inverse."""
        return [record.as_json() for record in self._records]

    @classmethod
    def from_json(cls, values: list[dict[str, Any]], *, changes_keep: int = 256, holds_keep: int = 64) -> DecisionJournal:
        """A journal that continues one that was stored; a decision without an outcome counts as refused."""
        journal = cls(changes_keep=changes_keep, holds_keep=holds_keep, records=map(_record_from, values))
        if journal.waiting is not None:
            journal.on_refused("the autoscaler ended before it was answered")
        return journal

    def check_invariants(self) -> None:
        """Numbers rise; at most one record waits, and it is the last that is not a hold. Raises InternalError."""
        numbers = [r.number for r in self._records]
        changes = [r for r in self._records if r.outcome is not DecisionOutcome.HELD]
        if numbers != sorted(set(numbers)) or any(r.outcome is DecisionOutcome.ASKED for r in changes[:-1]):
            raise InternalError(f"the journal is out of order: {[(r.number, r.outcome.value) for r in self._records]}")

    def _answer(self, outcome: DecisionOutcome, changed_s: float | None, answer: str) -> None:
        waiting = self.waiting
        if waiting is None:
            raise InternalError(f"an outcome ({outcome.value}) came, but no decision is waiting for one")
        self._records[self._records.index(waiting)] = replace(waiting, outcome=outcome, changed_s=changed_s, answer=answer)

    def _trim(self) -> None:
        for is_hold, keep in ((False, self._keep[0]), (True, self._keep[1])):
            places = [i for i, r in enumerate(self._records) if (r.outcome is DecisionOutcome.HELD) is is_hold]
            for i in reversed(places[: max(0, len(places) - keep)]):
                del self._records[i]


def _record_from(value: Mapping[str, Any]) -> Record:
    kind = _KINDS.get(value["decision"])
    if kind is None:
        raise ConfigError(f"the journal names a decision {value['decision']!r}: there are {sorted(_KINDS)}")
    common: dict[str, Any] = {
        "reason": value["reason"],
        "figures": dict(value["figures"]),
        "wanted": dict(value["wanted"]),
        "expected": {name: Expected(e["rate"], e["capacity"]) for name, e in value["expected"].items()},
        "correction": value["correction"],
    }
    if kind is not Hold:
        common["replicas"] = dict(value["changes"])
    saw, got = ({name: Seen(**seen) for name, seen in value[what].items()} for what in ("saw", "got"))
    return Record(
        value["number"], value["decided_s"], value["layout"], saw, kind(**common), DecisionOutcome(value["outcome"]), value["changed_s"],
        value["answer"], got,
    )  # fmt: skip
