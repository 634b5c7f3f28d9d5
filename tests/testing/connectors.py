"""A source and a sink that keep their contracts, and variants with one defect each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import rayad as rd

TABLES: dict[int, dict[str, Any]] = {}
"""Stands for a database: by place, the rows of each snapshot, and the number up to which snapshots are void."""


class Numbers(rd.Source):
    """Two parts of six records; each batch has two records and an epoch of its own."""

    def list_parts(self) -> Sequence[int]:
        return [0, 1]

    def build_part(self, part: int, resume: Any) -> NumbersPart:
        return self.part_class(part, resume or 0)

    @property
    def part_class(self) -> type[NumbersPart]:
        return NumbersPart


class NumbersPart(rd.SourcePart):
    def __init__(self, part: int, at: int) -> None:
        self.part, self.at = part, at

    def next_batch(self) -> Any:
        if self.at >= 6:
            return None
        first, self.at = self.at, self.at + 2
        return rd.SourceBatch(first // 2, [10 * self.part + n for n in range(first, self.at)])

    def epoch_floor(self) -> int:
        return self.at // 2

    def offset(self) -> Any:
        return self.at


ALL = [10 * part + n for part in (0, 1) for n in range(6)]


class Endless(Numbers):
    """Gives its records, then empty batches for ever."""

    interleave = True

    @property
    def part_class(self) -> type[NumbersPart]:
        return EndlessPart


class EndlessPart(NumbersPart):
    def next_batch(self) -> Any:
        return super().next_batch() or []


# -- sources with a defect: what is overridden, and the law that it breaks ---------------------------------------------


class OffsetOfTheNext(NumbersPart):
    law = "a resumed part gives the same rest, cut in the same way"

    def offset(self) -> Any:
        return self.at + 2 if self.at else 0


class OffsetOfThePrevious(NumbersPart):
    law = "a resumed part gives the same rest, cut in the same way"

    def offset(self) -> Any:
        return max(0, self.at - 2)


class OffsetThatLivesOn(NumbersPart):
    law = "an offset does not change after it was given"

    def __init__(self, part: int, at: Any) -> None:
        super().__init__(part, at["at"] if at else 0)
        self.told = {"at": self.at}

    def offset(self) -> Any:
        self.told["at"] = self.at
        return self.told


class OffsetThatReads(NumbersPart):
    law = "offset() only looks"

    def offset(self) -> Any:
        self.at += 1
        return self.at


class CutOtherwise(NumbersPart):
    law = "a resumed part gives the same rest, cut in the same way"

    def __init__(self, part: int, at: int) -> None:
        super().__init__(part, at)
        self.size = 1 if at else 2

    def next_batch(self) -> Any:
        if self.at >= 6:
            return None
        first, self.at = self.at, self.at + self.size
        return rd.SourceBatch(first // 2, [10 * self.part + n for n in range(first, self.at)])


class EpochsGoBack(NumbersPart):
    law = "epochs do not go back within a part"

    def next_batch(self) -> Any:
        given = super().next_batch()
        return given and rd.SourceBatch(5 - given.epoch, given.batch)

    def epoch_floor(self) -> int:
        return 0


class FloorAboveTheData(NumbersPart):
    law = "no batch is below the epoch floor"

    def epoch_floor(self) -> int:
        return self.at // 2 + 1


class WaitsForData(EndlessPart):
    law = "next_batch does not wait"

    def next_batch(self) -> Any:
        given = super().next_batch()
        if given == []:
            threading.Event().wait(0.15)
        return given


class SharesItsPlace(NumbersPart):
    law = "readers do not share their place"
    places: ClassVar[dict[int, int]] = {}

    def __init__(self, part: int, at: int) -> None:
        self.part = part
        self.at = at

    @property
    def at(self) -> int:
        return self.places.get(self.part, 0)

    @at.setter
    def at(self, value: int) -> None:
        self.places[self.part] = value


class EndsTwice(NumbersPart):
    law = "a part that is resumed at its end gives nothing"

    def __init__(self, part: int, at: int) -> None:
        super().__init__(part, 0 if at >= 6 else at)


SOURCE_DEFECTS = [
    OffsetOfTheNext, OffsetOfThePrevious, OffsetThatLivesOn, OffsetThatReads, CutOtherwise, EpochsGoBack, FloorAboveTheData, WaitsForData,
    SharesItsPlace, EndsTwice,
]  # fmt: skip


class Defective(Numbers):
    """Numbers, read by parts of another class."""

    def __init__(self, parts: type[NumbersPart]) -> None:
        self.parts = parts

    @property
    def part_class(self) -> type[NumbersPart]:
        return self.parts


# -- sinks ----------------------------------------------------------------------------------------------------------


class TableWriter(rd.SinkWriter):
    def __init__(self, sink: Table) -> None:
        self.sink = sink
        self.rows: list[Any] = []

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        self.rows += batch

    def stage(self) -> Any:
        rows, self.rows = self.rows, []
        return rows


class Table(rd.Sink):
    """A table whose rows have the numbers of their snapshots."""

    commits = True
    writer: type[TableWriter] = TableWriter

    def __init__(self, place: int) -> None:
        self.place = place
        TABLES[place] = {"rows": {}, "void": []}

    @property
    def table(self) -> dict[str, Any]:
        return TABLES[self.place]

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return self.writer(self)

    def commit(self, snapshot: int, staged: Sequence[Any]) -> Any:
        if any(low <= snapshot <= high for low, high in self.table["void"]):
            raise rd.DataflowError(f"snapshot {snapshot} is void")
        self.table["rows"][snapshot] = [row for rows in staged for row in rows]
        return snapshot

    def roll_back(self, last: int, first_new: int) -> None:
        self.table["void"].append((last + 1, first_new - 1))
        self.table["rows"] = {number: rows for number, rows in self.table["rows"].items() if number <= last}

    def publish(self, staged: Sequence[Any]) -> Any:
        return self.commit(1, staged)


def rows_of(sink: rd.Sink) -> list[Any]:
    """What readers see."""
    assert isinstance(sink, Table)
    return [row for rows in sink.table["rows"].values() for row in rows]


class ShowsWhatIsStaged(Table):
    law = "what is staged shows with a commit and not before"

    class writer(TableWriter):
        def stage(self) -> Any:
            self.sink.table["rows"].setdefault(10**6, []).extend(self.rows)
            return super().stage()


class ShowsWhatIsWritten(Table):
    law = "what is written shows with a commit and not before"

    class writer(TableWriter):
        def write(self, time: rd.Timestamp, batch: Any) -> None:
            self.sink.table["rows"].setdefault(10**6, []).extend(batch)


class CommitAddsAgain(Table):
    law = "a commit shows what it is given, once"

    def commit(self, snapshot: int, staged: Sequence[Any]) -> Any:
        before = self.table["rows"].get(snapshot, [])
        super().commit(snapshot, [before, *staged])


class ForgetsTheSecondWriter(Table):
    law = "a commit shows what it is given, once"

    def commit(self, snapshot: int, staged: Sequence[Any]) -> Any:
        return super().commit(snapshot, staged[:1])


class RollsBackTooMuch(Table):
    law = "a job that resumes shows what its snapshot has"

    def roll_back(self, last: int, first_new: int) -> None:
        super().roll_back(last, first_new)
        self.table["rows"] = {}


class RollsBackNothing(Table):
    law = "a job that resumes shows what its snapshot has"

    def roll_back(self, last: int, first_new: int) -> None:
        self.table["void"].append((last + 1, first_new - 1))


class TakesVoidCommits(Table):
    law = "a void snapshot is not shown"

    def commit(self, snapshot: int, staged: Sequence[Any]) -> Any:
        self.table["rows"][snapshot] = [row for rows in staged for row in rows]


class AbortTakesWhatIsShown(Table):
    law = "what is shown stays when writers abort"

    class writer(TableWriter):
        def abort(self) -> None:
            self.sink.table["rows"].clear()


class StagesTheSameAgain(Table):
    law = "a commit shows what it is given, once"

    class writer(TableWriter):
        def stage(self) -> Any:
            return list(self.rows)


class PublishesTwice(Table):
    law = "what is published is shown, once"
    commits = False

    def publish(self, staged: Sequence[Any]) -> Any:
        self.table["rows"].setdefault(1, []).extend(row for rows in staged for row in rows)


SINK_DEFECTS = [
    ShowsWhatIsStaged, ShowsWhatIsWritten, CommitAddsAgain, ForgetsTheSecondWriter, RollsBackTooMuch, RollsBackNothing, TakesVoidCommits,
    AbortTakesWhatIsShown, StagesTheSameAgain, PublishesTwice,
]  # fmt: skip
