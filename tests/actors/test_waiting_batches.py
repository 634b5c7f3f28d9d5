"""Batches that wait for their time: a bound on memory whatever waits, the same batches in the same order as without one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.plane.batch_codec import batch_bytes, decode_batch
from rayad.actors.plane.spilling_queue import SpillFile
from rayad.actors.replica.waiting_batches import Parked
from rayad.progress import View
from tests.actors.hosts import start_hosts

T = rd.Timestamp


def parked_within(memory_bytes_max: int) -> Parked:
    return Parked(memory_bytes_max, SpillFile)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "take", "drop", "all"]), st.integers(0, 4), st.integers(0, 2), st.integers(0, 30)),
    max_size=60,
)


@given(ACTIONS, st.integers(0, 600))
def test_it_gives_what_a_dict_of_lists_gives(actions: list[tuple[str, int, int, int]], most: int) -> None:
    parked, model = parked_within(most), defaultdict[T, list[tuple[int, Any]]](list)
    for action, epoch, edge, size in actions:
        time = T(epoch)
        if action == "add":
            parked.add(time, edge, ["x" * size] * size)
            model[time].append((edge, ["x" * size] * size))
        elif action == "take" and time in model:
            assert list(parked.take(time)) == model.pop(time)
        elif action == "drop":
            gone = [each for each, entries in model.items() for entry in entries if entry[0] == edge]
            assert sorted(parked.drop({edge})) == sorted(gone)
            model = defaultdict(list, {each: kept for each, old in model.items() if (kept := [one for one in old if one[0] != edge])})
        elif action == "all":
            assert list(parked.take_all()) == [(each, *entry) for each, entries in model.items() for entry in entries]
            model.clear()
        parked.check_invariants()
        assert parked.times() == sorted(model)
        assert len(parked) == sum(map(len, model.values()))
        frozen = [(number, *decode_batch(data)) for number, data in parked.frozen()]
        assert frozen == [(entry[0], each, entry[1]) for each, entries in model.items() for entry in entries]
    parked.close()


def test_columns_and_rows_come_back_from_disk_as_they_were() -> None:
    parked = parked_within(0)
    columns = pa.record_batch({"a": [1, 2], "b": ["x", None]})
    for batch in (columns, [1, ("two", None)], columns):
        parked.add(T(1), 0, batch)
    assert parked.spilled_batches == 2  # the first is in memory, however large
    assert [batch for _, batch in parked.take(T(1))] == [columns, [1, ("two", None)], columns]
    parked.close()


def test_parked_batches_are_bounded_over_many_epochs() -> None:
    """Regression: batches parked before in-order vertices gave their credit back at once, and all stayed in memory."""
    batch = [("key", "x" * 1000)] * 10
    most = 20 * batch_bytes(batch)
    parked = parked_within(most)
    for epoch in range(1, 2000):
        parked.add(T(epoch), 0, batch)
        assert parked.memory_bytes <= most
    assert parked.spilled_batches == 1999 - 20
    assert [time for time in parked.times() for _ in parked.take(time)] == [T(epoch) for epoch in range(1, 2000)]
    assert (len(parked), parked.memory_bytes) == (0, 0)
    parked.close()


def test_the_file_is_truncated_when_it_is_empty(tmp_path: Path) -> None:
    file = SpillFile(str(tmp_path))
    for _ in range(3):
        places = [file.write(bytes([number]) * 5000) for number in range(4)]
        assert [at for at, _ in places] == [0, 5000, 10000, 15000]
        for number in (2, 0, 3, 1):
            assert file.read(places[number]) == bytes([number]) * 5000
            file.free(places[number])
    assert list(tmp_path.iterdir()) == []  # it has no name
    file.close()
    file.close()


def test_early_epochs_go_through_the_disk_and_come_in_order_over_sockets() -> None:
    """A replica that must wait for epoch 0 of one input takes any number of epochs of the other."""
    flow = rd.Dataflow("early")
    late = flow.input("late")
    early = flow.from_epochs([[("k", "x" * 500)] * 20 for _ in range(200)], name="early")
    both = late.union(early)
    both.key_by(lambda record: record[0]).stateful_map(lambda n, record: ((n or 0) + 1, (n or 0) + 1), name="ordered").collect("out")
    hosts = start_hosts(flow, spill_memory_bytes=20_000)
    ordered = hosts.host("ordered")
    while len(ordered.core.parked) < 190:
        hosts.look("ordered")
    assert ordered.core.parked.memory_bytes_peak <= 20_000
    assert ordered.core.parked.spilled_batches > 100
    assert ordered.core.view != View((), ())
    hosts.process("late").ask(hosts.host("late").core.input_close)
    hosts.join()
    assert [record for _, record in hosts.result("out")] == [("k", n) for n in range(1, 4001)]
