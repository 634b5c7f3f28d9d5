"""Epochs that collections take together: ``Dataflow(epochs_together=n)``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from tests.incremental.disturbed import Together, run_disturbed
from tests.incremental.field_programs import in_form
from tests.incremental.programs import PROGRAMS, Kept, history
from tests.thorough import by_turns

NEW = ["words.together"]
"""The vertex that is in a program where epochs are taken together."""


def changes_of(collection: rd.Collection) -> list[tuple[int, Any]]:
    """What a collection gives, by epoch."""
    collection.changes().collect("out")
    return sorted((time.epoch, change) for time, change in collection.stream.flow.run(runtime="local")["out"])


SOME: list[Kept] = [*PROGRAMS, *in_form("both")]


@by_turns(3)
@pytest.mark.parametrize("seed", range(len(SOME)), ids=[f"{program.name} {type(program).__name__}" for program in SOME])
def test_they_have_the_table_of_one_epoch(seed: int, tmp_path: Path) -> None:
    program = SOME[seed]
    changes = history(program.shape, seed)
    run_disturbed(Together(program, 2 + seed % 4), changes, seed, tmp_path)


def test_what_comes_and_goes_in_them_has_never_been_there() -> None:
    flow = rd.Dataflow("together", epochs_together=4)
    kept = rd.Collection(flow.from_epochs([[("a", 1)], [("b", 1)], [("a", -1)], [], [("b", -1), ("c", 1)]]))
    assert changes_of(kept.distinct()) == [(3, ("b", 1)), (7, ("b", -1)), (7, ("c", 1))]


def test_what_is_not_there_is_removed_in_none_of_them() -> None:
    flow = rd.Dataflow("together", epochs_together=4)
    kept = rd.Collection(flow.from_epochs([[("a", 1)], [("a", -1)], [("a", -1)]]))
    with pytest.raises(rd.DataflowError, match=r"'a' was removed 1 times in epoch 3, and was there 0 times"):
        changes_of(kept)


def test_the_newest_of_several_epochs_is_the_one_of_the_last() -> None:
    """Two upserts of a key in one epoch need an order; in several they have one."""
    flow = rd.Dataflow("together", epochs_together=3)
    rows = flow.from_epochs([[{"id": 1, "n": 5}], [{"id": 1, "n": 2}], [], [{"id": 1, "n": 4}]])
    given = changes_of(rows.as_collection(key="id").map(lambda row: row["n"]))
    assert given == [(2, (2, 1)), (5, (2, -1)), (5, (4, 1))]


def test_running_totals_are_taken_as_they_are_in_the_end() -> None:
    flow = rd.Dataflow("together", epochs_together=2)
    totals = flow.from_epochs([["a"], ["a", "b"], ["a"]]).key_by(str).count()
    totals.collect("totals")
    totals.as_collection().changes().collect("out")
    result = flow.run(runtime="local")
    assert sorted((time.epoch, change) for time, change in result["out"]) == [
        (1, (("a", 2), 1)), (1, (("b", 1), 1)), (3, (("a", 2), -1)), (3, (("a", 3), 1))
    ]  # fmt: skip
    assert [time.epoch for time, (word, _) in result["totals"] if word == "a"] == [0, 1, 2], "a stream keeps its epochs"


def test_epochs_go_by_their_numbers_at_all_inputs() -> None:
    """Epochs 5 and 7 are not one, and 8 and 9 are, whatever came between."""
    flow = rd.Dataflow("together", epochs_together=4)
    left, right = flow.collection("left"), flow.collection("right")
    left.keyed().join(right.keyed()).changes().collect("out")
    job = flow.submit(runtime="local")
    for name, some in (("left", {5: ("a", 1), 9: ("b", 2)}), ("right", {7: ("a", 3), 8: ("b", 4)})):
        for epoch, record in some.items():
            job.collection(name).advance_to(epoch)
            job.collection(name).insert([record])
        job.collection(name).close()
    assert sorted((time.epoch, record) for time, (record, _) in job.wait()["out"]) == [(7, ("a", (1, 3))), (11, ("b", (2, 4)))]


def test_columns_stay_columns() -> None:
    flow = rd.Dataflow("together", epochs_together=8)
    rows = pa.table({"epoch": [0, 1, 2, 9], "k": ["a", "b", "a", "a"], "n": [1, 2, 3, 4]})
    sums = flow.from_arrow(rows, epoch="epoch").as_collection().key_by("k").sum("n")
    sums.changes().map_batches(lambda batch: [type(batch).__name__]).collect("types")
    flow.run(runtime="local")
    counted = rd.Dataflow("together", epochs_together=8)
    given = changes_of(counted.from_arrow(rows, epoch="epoch").as_collection().key_by("k").sum("n"))
    assert given == [(7, (("a", 4), 1)), (7, (("b", 2), 1)), (15, (("a", 4), -1)), (15, (("a", 8), 1))]


def live(together: int) -> tuple[Any, Any]:
    """A running count of a live collection."""
    flow = rd.Dataflow("together", epochs_together=together)
    flow.collection("words").key_by(str).count(name="counts").changes().collect("out")
    job = flow.submit(runtime="local")
    return job, job.collection("words")


def test_a_fresh_read_is_of_the_last_of_them() -> None:
    job, words = live(4)
    table = job.table("counts")
    words.insert(["a"])
    words.advance_to(4)
    assert (table.get("a", fresh=True).value, table.get("a").epoch) == (1, 3)
    words.insert(["a"])
    words.advance_to(6)
    assert table.get("a").value == 1
    with pytest.raises(TimeoutError, match=r"epoch 7 is not complete there: everything that had begun at the call.*words"):
        table.get("a", fresh=True)
    words.advance_to(8)
    assert table.get("a", fresh=True).value == 2
    words.close()
    job.wait()


@pytest.mark.parametrize(("together", "ahead"), [(2, 1), (16, 2), (64, 64), (300, 64), (500, 1)])
def test_a_source_goes_on_within_them_however_few_it_may_be_ahead(together: int, ahead: int) -> None:
    flow = rd.Dataflow("together", epochs_together=together)
    flow.from_epochs([[(epoch % 7, epoch)] for epoch in range(400)], parts=2).as_collection().keyed().count().collect("out")
    tables = dict(rd.Collection.tables(flow.run(rd.RunConfig(epochs_ahead=ahead), runtime="local", parallelism=2)["out"]))
    assert list(tables) == [first + together - 1 for first in range(0, 400, together)]
    assert sum(count for _, count in tables[max(tables)]) == 400


@pytest.mark.parametrize(("before", "after", "renamed"), [(4, 3, {}), (2, 16, {}), (1, 4, {"new": NEW}), (4, 1, {"gone": NEW})])
def test_a_job_may_resume_with_another_number(before: int, after: int, renamed: dict[str, Any], tmp_path: Path) -> None:
    def job_of(together: int, resume: str | None = None, **renamed: Any) -> Any:
        flow = rd.Dataflow("together", epochs_together=together)
        flow.collection("words").key_by(str).count(name="counts").changes().probe("seen").collect("out")
        snapshots = rd.SnapshotConfig(interval_s=None)
        run = rd.RunConfig(storage_path=str(tmp_path), snapshots=snapshots, resume=resume)
        return flow.submit(run, runtime="local", **renamed)

    job = job_of(before)
    words = job.collection("words")
    for epoch in range(6):
        words.insert(["a", f"w{epoch}"])
        words.advance_to(epoch + 1)
    job.probe("seen").wait(5)
    job.savepoint()
    job.cancel()
    job = job_of(after, "latest", **renamed)
    words = job.collection("words")
    words.insert(["a"])
    words.close()
    table: Counter[Any] = Counter()
    for _, (record, weight) in job.wait()["out"]:
        table[record] += weight
    assert +table == {("a", 7): 1, **{(f"w{epoch}", 1): 1 for epoch in range(6)}}
    assert not -table


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True, 10**30])
def test_a_number_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(rd.DataflowError, match=r"Dataflow\(epochs_together\) is .*: it must be an int from 1 to 4611686018427387904"):
        rd.Dataflow("together", epochs_together=wrong)
