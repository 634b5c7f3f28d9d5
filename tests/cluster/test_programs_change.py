"""A user's job on real Ray that changes between its runs: what stays carries on exactly, what is new begins, what is gone is dropped."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from tests.cluster.recovering import by_value, kill, surviving
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("workers")]
Check = Callable[[], None]
WORDS = [[f"w{(7 * epoch + 3 * i) % 11}" for i in range(9)] for epoch in range(50)]


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(sys.modules[__name__]):
        yield


def less(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
    down = inner.map(lambda pair: (pair[0], pair[1] - 1))
    return down.filter(lambda pair: pair[1] > 0), down.filter(lambda pair: pair[1] == 0)


def shop(folder: Path, *, counts: str = "counts", files: bool = True, lengths: bool = False, loop: bool = False) -> rd.Dataflow:
    """Counts of words, which are collected and written to files; counts of lengths; words that go round a loop."""
    flow = rd.Dataflow("shop")
    words = flow.input("words")
    counted = words.key_by(lambda word: word).count(name=counts).probe("seen")
    counted.collect("out")
    if files:
        counted.map(lambda pair: {"word": pair[0], "n": pair[1]}).write_parquet(str(folder / "files"), name="files")
    if lengths:
        words.key_by(len).count(name="lengths").collect("lengths")
    if loop:
        words.map(lambda word: (word, len(word))).iterate(less, name="loop").collect("looped")
    return flow


def lived(job: Any, upto: int, *, kills: bool = False) -> None:
    """Feed the job the epochs up to this one, wait for them, and end it with a savepoint."""
    words = job.input("words")
    begun = words.epoch
    for epoch in range(begun, upto):
        words.send(WORDS[epoch])
        words.advance_to(epoch + 1)
        if kills and epoch == (begun + upto) // 2:
            job.savepoint()
            kill("VertexActor")
    try:
        assert job.probe("seen").wait(upto - 1, timeout_s=PATIENCE_S)
        saved(job)
    finally:
        job.cancel()


def saved(job: Any) -> None:
    """A savepoint. Epochs may be complete at the probe before a death elsewhere is noticed: then the job says to ask again."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            job.savepoint()
            return
        except rd.SnapshotError as error:
            if "ask again" not in str(error) or time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


def totals(epochs: list[list[str]], key: Callable[[str], Any] = str) -> list[tuple[Any, int]]:
    """What running counts give: each key of an epoch once, with its count so far."""
    counts: Counter[Any] = Counter()
    out = []
    for epoch in epochs:
        counts.update(map(key, epoch))
        out += [(each, counts[each]) for each in sorted({key(word) for word in epoch})]
    return sorted(out)


def test_a_job_that_changes_five_times_gives_what_one_program_would(nothing_left: Check, tmp_path: Path) -> None:
    run = surviving(tmp_path, resume="latest", failures=4)
    lived(shop(tmp_path).submit(run, parallelism=2), 10)
    with pytest.raises(rd.SnapshotError, match=r"To keep the rest of its state: resume='latest', new=\['lengths'\]\. Run the dataflow"):
        shop(tmp_path, lengths=True).submit(run, parallelism=2).wait(timeout_s=PATIENCE_S)
    for upto in (15, 20):  # started again with the same call: the change is made once
        lived(shop(tmp_path, lengths=True).submit(run, parallelism=2, new=["lengths"]), upto, kills=True)
    with pytest.raises(rd.SnapshotError, match=r"To keep the rest of its state: resume=\d+, map_state={'counts': 'by word'}\. Run"):
        shop(tmp_path, counts="by word", lengths=True).submit(run, parallelism=1).wait(timeout_s=PATIENCE_S)
    number = rd.list_state(str(tmp_path / "shop")).number
    assert number is not None
    renamed = shop(tmp_path, counts="by word", lengths=True)
    lived(renamed.submit(surviving(tmp_path, resume=number, failures=4), parallelism=1, map_state={"counts": "by word"}), 30)
    with pytest.raises(rd.SnapshotError, match=r"resume='latest', new=\['union', 'looped'\], gone=\['files'\]\. Run"):
        shop(tmp_path, counts="by word", lengths=True, files=False, loop=True).submit(run, parallelism=2).wait(timeout_s=PATIENCE_S)
    looped = shop(tmp_path, counts="by word", lengths=True, files=False, loop=True)
    lived(looped.submit(run, parallelism=2, new=["union", "looped"], gone=["files"]), 40, kills=True)
    last = shop(tmp_path, counts="by word", files=False, loop=True).submit(run, parallelism=2, gone=["lengths"])
    words = last.input("words")
    for epoch in range(40, 50):
        words.send(WORDS[epoch])
        words.advance_to(epoch + 1)
    words.close()
    result = last.wait(timeout_s=PATIENCE_S)
    assert sorted(record for _, record in result["out"]) == totals(WORDS)
    assert Counter(record for _, record in result["looped"]) == Counter((word, 0) for epoch in WORDS[30:] for word in epoch)
    assert "lengths" not in result
    written = rd.read_committed(str(tmp_path / "files")).to_table().to_pylist()
    assert sorted((row["word"], row["n"]) for row in written) == totals(WORDS[:30])
