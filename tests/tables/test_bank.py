"""What is read of a running job is of one epoch: money that moves between accounts is never missed, nor counted twice, whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rayad.actors.replica.reads.tables import ReplicaTables
from rayad.dataflow.operators.state.reads.slots import SlotVersions
from rayad.dataflow.operators.state.tables import values_of
from rayad.dataflow.operators.state.versions import Versions
from tests.tables.bank import ACCOUNTS, TOTAL, Bank
from tests.thorough import amount

SEEDS = amount(each_run=12, soak=1000)


def balances_of(table: Any) -> dict[int, int]:
    """Of a scan of any of the bank's tables."""
    if "sum" in table.column_names:
        return dict(zip(table["key"].to_pylist(), table["sum"].to_pylist(), strict=True))
    rows = list(zip(table["key"].to_pylist(), values_of(table["value"].combine_chunks(), table.schema.field("value")), strict=True))
    if all(isinstance(value, dict) for _, value in rows):
        return {account: balance for _, branch in rows for account, balance in branch.items()}
    return {key: value[0] for key, value in rows}


def check(bank: Bank, epoch: int, found: dict[int, int]) -> None:
    """What has been read is what there was when the epoch was over."""
    assert found == (bank.model[epoch] if epoch >= 0 else {})
    assert sum(found.values()) == (TOTAL if epoch >= 0 else 0)


def epoch_of(table: Any) -> int:
    return int(table.schema.metadata[b"rayad.epoch"])


def run(seed: int, folder: Path | None) -> Counter[str]:
    """Read tables of a bank that is disturbed; gives what has happened."""
    bank = Bank(seed, folder)
    one, other, both = bank.table("balances"), bank.table("copies"), bank.tables("balances", "copies", "by branch")
    columns = bank.table("columns")
    seen = Counter[str]()
    last = {"one": -1, "other": -1, "both": -1, "columns": -1}

    def later(name: str, epoch: int) -> int:
        assert epoch >= last[name], f"{name} has gone back from epoch {last[name]} to {epoch}"
        seen["new epochs"] += epoch > last[name]
        last[name] = epoch
        return epoch

    for epoch in bank.run():
        fresh = bank.chance.random() < 0.2
        kind = bank.chance.choice(["scan", "scan", "get", "both", "columns", "columns"])
        seen[kind] += 1
        if kind == "scan":
            table = one.scan(fresh=fresh)
            check(bank, later("one", epoch_of(table)), balances_of(table))
            assert not fresh or epoch_of(table) >= epoch
        elif kind == "get":
            keys = bank.chance.sample(range(ACCOUNTS + 3), 5)
            values = other.get_many(keys, fresh=fresh)
            (at,) = {value.epoch for value in values.values()}
            model = bank.model[at] if at >= 0 else {}
            assert {key: value.value and value.value[0] for key, value in values.items()} == {key: model.get(key) for key in keys}
            later("other", at)
            assert not fresh or at >= epoch
        elif kind == "columns":
            if bank.chance.random() < 0.5:
                table = columns.scan(fresh=fresh)
                at = epoch_of(table)
                check(bank, at, balances_of(table))
            else:
                values = columns.get_many(range(ACCOUNTS + 1), fresh=fresh)
                (at,) = {value.epoch for value in values.values()}
                check(bank, at, {key: value.value for key, value in values.items() if value.value is not None})
            later("columns", at)
            assert not fresh or at >= epoch
        else:
            found = both.scan(fresh=fresh)
            (at,) = {epoch_of(table) for table in found.values()}
            for table in found.values():
                check(bank, at, balances_of(table))
            later("both", at)
    bank.input.close()
    check(bank, bank.epochs - 1, balances_of(one.scan(fresh=True)))
    seen["crashes"] += bank.crashes
    seen["changes"] += bank.changes
    return seen


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_read_is_of_one_epoch(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path if seed % 2 else None)


def _owns_all_that_it_has_heard_of(self: ReplicaTables, groups: Iterable[int]) -> frozenset[int]:
    return frozenset(groups)


DEFECTS = {
    "a group is read from a former owner": (ReplicaTables, "owned", _owns_all_that_it_has_heard_of),
    "former values stay where they were": (Versions, "give", lambda self, groups, key_groups: ({}, self.since)),
    "an epoch is read before it is complete": (ReplicaTables, "passed", lambda self: max(-1, self.core.callbacks.applied or 0)),
    "changes are not noted": (Versions, "note", lambda self, key, kept: None),
    "changes of columns are not noted": (SlotVersions, "note", lambda self, slots, there, arrays: None),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_reads_of_the_bank_find_what_is_planted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, what, planted = DEFECTS[name]
    monkeypatch.setattr(where, what, planted)
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            run(seed, folder if seed % 2 else None)
        except (AssertionError, TimeoutError):
            return
    pytest.fail(f"20 runs have not found it: {name}")


def test_banks_are_disturbed_and_read_at_many_epochs(tmp_path: Path) -> None:
    seen = Counter[str]()
    for seed in range(amount(each_run=5, soak=8)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        seen += run(seed, folder if seed % 2 else None)
    assert min(seen[what] for what in ("crashes", "changes", "scan", "get", "both", "columns")) >= 3, seen
    assert seen["new epochs"] >= 12, seen


def read_often(seed: int, folder: Path, reads: int) -> Counter[str]:
    """One long life of a bank, read so often, in tables of all forms: each time what every account has, and so the total."""
    bank = Bank(seed, folder, epochs=1 << 20)
    bank.calm, bank.steady = 0.9, 400
    names = ["balances", "copies", "columns"]
    handles = [bank.tables(name) for name in names] + [bank.tables(*names)]
    last, seen = [-1] * len(handles), Counter[str]()
    for _ in bank.run():
        for _ in range(40):
            which = bank.chance.randrange(len(handles))
            if bank.chance.random() < 0.5:
                found = handles[which].scan()
                epochs, tables = {epoch_of(table) for table in found.values()}, [balances_of(table) for table in found.values()]
            else:
                values = handles[which].get_many(range(ACCOUNTS))
                epochs = {value.epoch for some in values.values() for value in some.values()}
                kept = [{key: value.value for key, value in some.items() if value.value is not None} for some in values.values()]
                tables = [{key: value[0] if isinstance(value, list) else value for key, value in some.items()} for some in kept]
            (epoch,) = epochs
            assert epoch >= last[which]
            seen["new epochs"] += epoch > last[which]
            last[which] = epoch
            for table in tables:
                check(bank, epoch, table)
            seen["reads"] += 1
        if seen["reads"] >= reads:
            break
    bank.job.cancel()
    return seen + Counter(crashes=bank.crashes, changes=bank.changes)


@pytest.mark.parametrize("reads", [1_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_the_total_is_constant_however_often_it_is_read(reads: int, tmp_path: Path) -> None:
    seen = read_often(1, tmp_path, reads)
    assert seen["crashes"] >= 1 + reads // 10_000, seen
    assert min(seen["changes"], seen["new epochs"]) >= reads // 1_000, seen
