"""Rayad's side of the benchmarks that have peers, in the local runtime, on small files. Nothing here asserts on time."""

from __future__ import annotations

import doctest
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from benchmarks import asof, broadcast_join, inputs, keyed_sum, ten_operators, wordcount
from benchmarks.clock import timed
from rayad.actors.job import JobStatistics

LOCAL: dict[str, Any] = {"runtime": "local"}


def test_doctests_of_the_inputs_hold() -> None:
    assert doctest.testmod(inputs).failed == 0


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return inputs.text_folder(300, 10, 50, 1.2, 3, folder=tmp_path)


def test_text_files_hold_what_their_digest_says(texts: Path) -> None:
    assert [path.name for path in sorted(texts.glob("*.txt"))] == ["part-0.txt", "part-1.txt", "part-2.txt"]
    lines = [line.split() for path in texts.glob("*.txt") for line in path.read_text(encoding="utf-8").splitlines()]
    assert {len(line) for line in lines} == {10}
    assert len(lines) == 300
    assert inputs.count_digest(Counter(word for line in lines for word in line).items()) == inputs.digest_of(texts)


def test_inputs_are_made_once_and_the_same_again(texts: Path, tmp_path: Path) -> None:
    first = (texts / "part-0.txt").read_bytes()
    (texts / "mark").touch()
    assert inputs.text_folder(300, 10, 50, 1.2, 3, folder=tmp_path) == texts
    assert (texts / "mark").exists()
    again = inputs.text_folder(300, 10, 50, 1.2, 3, folder=tmp_path / "again")
    assert (again / "part-0.txt").read_bytes() == first


def test_inputs_that_cannot_be_made_leave_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        inputs.made("some", fail, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", wordcount.PROGRAMS)
@pytest.mark.parametrize("replicas", [1, 2])
def test_every_program_counts_every_word(name: str, replicas: int, texts: Path) -> None:
    assert wordcount.one(name, str(texts), replicas, **LOCAL)["digest"] == inputs.digest_of(texts)


def test_wordcount_has_an_aim_only_for_what_it_measures(texts: Path) -> None:
    names = [system.name for system in wordcount.systems(wordcount.QUICK, texts, None)]
    assert len(set(names)) == len(names)
    assert {name for over, under, _ in wordcount.AIMS for name in (over, under)} == set(names)
    assert [system.name for system in wordcount.systems(wordcount.QUICK, texts, ())] == list(wordcount.PROGRAMS)


def test_rows_and_their_csv_copy_are_the_same_and_hold_what_their_digest_says(tmp_path: Path) -> None:
    rows = inputs.keyed_folder(1_000, 30, 2, folder=tmp_path)
    csv = inputs.keyed_folder(1_000, 30, 2, csv=True, folder=tmp_path)
    table = pq.read_table(rows)
    for number in range(2):
        assert pacsv.read_csv(csv / f"part-{number}.csv").equals(pq.read_table(rows / f"part-{number}.parquet"))
    sums = table.group_by("key").aggregate([("value", "sum")])
    wanted = inputs.sum_digest(sums.column("key").to_numpy(), sums.column("value_sum").to_numpy())
    assert inputs.digest_of(rows) == inputs.digest_of(csv) == wanted


def test_the_digest_in_plain_python_is_that_of_numpy() -> None:
    pairs = [(5, 2**40), (2**40, 7), (0, 0)]
    mixed = [(key * inputs.MIX[0]) ^ (total * inputs.MIX[1]) for key, total in pairs]  # as scripts of peers without numpy do
    keys, totals = np.array(pairs).T
    assert inputs.sum_digest(keys, totals) == [3, sum(mixed) & (2**63 - 1)]


def test_keys_far_apart_are_as_many_and_have_the_same_totals(tmp_path: Path) -> None:
    near, far = (pq.read_table(inputs.keyed_folder(1_000, 30, 2, spread=spread, folder=tmp_path)) for spread in (False, True))
    assert near.column("value") == far.column("value")
    pairs = set(zip(near.column("key").to_pylist(), far.column("key").to_pylist(), strict=True))
    assert len(pairs) == len({key for key, _ in pairs}) == len({key for _, key in pairs}) == 30
    assert min(np.diff(sorted(key for _, key in pairs))) > 2**40


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_the_keyed_sum_is_right(replicas: int, spread: bool, tmp_path: Path) -> None:
    folder = inputs.keyed_folder(5_000, 300, 3, spread=spread, folder=tmp_path)
    assert keyed_sum.one(keyed_sum.COLUMNS, str(folder), replicas, **LOCAL)["digest"] == inputs.digest_of(folder)


@pytest.mark.parametrize("name", keyed_sum.PROGRAMS)
def test_every_program_of_the_keyed_sum_gives_the_same_as_a_dict(name: str, tmp_path: Path) -> None:
    folder = inputs.keyed_folder(5_000, 300, 3, csv=name == keyed_sum.CSV, folder=tmp_path)
    assert keyed_sum.one(name, str(folder), 2, as_dict=True, **LOCAL)["digest"] == inputs.digest_of(folder)


@pytest.mark.parametrize("name", ten_operators.PROGRAMS)
def test_ten_operators_give_the_same_as_numpy(name: str, tmp_path: Path) -> None:
    folder = inputs.keyed_folder(5_000, 3_000, 3, folder=tmp_path)
    wanted = ten_operators.wanted_ranked if name == ten_operators.RANKED else ten_operators.wanted
    assert ten_operators.one(name, str(folder), 2, **LOCAL)["digest"] == wanted(folder)


def test_the_clock_leaves_out_the_start_of_actors_and_nothing_else() -> None:
    class Given:
        statistics = JobStatistics(start_s=-100.0, run_s=7.0)

    class Flow:
        def run(self, **options: object) -> Given:
            return Given()

    done = timed(Flow, lambda result: result.statistics.run_s, runtime="local")  # type: ignore[arg-type]
    assert done.value == 7.0
    assert 100.0 <= done.seconds < 110.0


def test_keyed_sum_has_an_aim_only_for_what_it_measures() -> None:
    sizes = keyed_sum.QUICK
    groups = [keyed_sum.columnar(sizes, *keys) for keys in keyed_sum.large(sizes)]
    groups += [keyed_sum.by_row(sizes, keys) for keys in sizes.small_keys]
    names = [system.name for group in groups for system in group]
    assert len(set(names)) == len(names)
    assert {name for over, under, _ in keyed_sum.aims(sizes) for name in (over, under)} == set(names)


@pytest.mark.parametrize("direction", asof.DIRECTIONS)
def test_as_of_joins_find_what_pandas_finds(direction: str) -> None:
    tables = asof.tables(2_000, 20)
    wanted = asof.by_pandas(*tables, direction)
    assert [asof.by_rayad(*tables, direction, 4, in_rows) for in_rows in (False, True)] == [wanted, wanted]


@pytest.mark.parametrize("skewed", [False, True])
def test_a_small_side_gives_the_same_pairs_with_broadcast(skewed: bool) -> None:
    plain, broadcast = (broadcast_join.one(5_000, 50, 512, skewed, how, 2, **LOCAL)["digest"] for how in (False, True))
    assert plain == broadcast
    assert plain[0] == 5_000
