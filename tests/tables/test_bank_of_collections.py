"""Collections of a running job are read at one epoch: money that comes and goes between accounts is never missed, nor counted twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rayad.dataflow.operators.state.tables import values_of
from rayad.incremental.reads import CollectionAtEpochs
from tests.tables.bank import ACCOUNTS, OF_COLLECTIONS, TOTAL, Bank, of_collections
from tests.thorough import amount

SEEDS = amount(each_run=8, soak=1000)


def balances_of(values: dict[Any, Any]) -> dict[int, int]:
    """Of the values of accounts: numbers, or lists of the one record (account, balance)."""
    out = {}
    for account, value in values.items():
        if isinstance(value, list):
            ((who, balance),) = value
            assert who == account
            value = balance
        out[account] = value
    return out


def check(bank: Bank, epoch: int, found: dict[int, int]) -> None:
    """What has been read is what there was when the epoch was over."""
    assert found == (bank.model[epoch] if epoch >= 0 else {})
    assert sum(found.values()) == (TOTAL if epoch >= 0 else 0)


def scanned(table: Any) -> dict[int, int]:
    """Of a whole table."""
    values = values_of(table["value"].combine_chunks(), table.schema.field("value")) if table.num_rows else []
    rows = [(key, [value] if isinstance(value, tuple) else value) for key, value in zip(table["key"].to_pylist(), values, strict=True)]
    assert len(dict(rows)) == len(rows)
    return balances_of(dict(rows))


def run(seed: int, folder: Path | None, epochs: int = 12, reads: int = 1 << 30, calm: bool = False) -> Counter[str]:
    """Read tables of a bank that is disturbed, each alone and all together; gives what has happened."""
    bank = Bank(seed, folder, epochs=epochs, make=of_collections, names=OF_COLLECTIONS)
    if calm:
        bank.calm, bank.steady = 0.9, 400
    handles = [*(bank.tables(name) for name in OF_COLLECTIONS), bank.tables(*OF_COLLECTIONS)]
    last, seen = [-1] * len(handles), Counter[str]()
    for epoch in bank.run():
        for _ in range(40 if calm else 1):
            which = bank.chance.randrange(len(handles))
            fresh = not calm and bank.chance.random() < 0.2
            if bank.chance.random() < 0.5:
                tables = handles[which].scan(fresh=fresh)
                (at,) = {int(table.schema.metadata[b"rayad.epoch"]) for table in tables.values()}
                found = list(map(scanned, tables.values()))
            else:
                values = handles[which].get_many(range(ACCOUNTS + 1), fresh=fresh)
                (at,) = {value.epoch for some in values.values() for value in some.values()}
                found = [balances_of({key: v.value for key, v in some.items() if v.value is not None}) for some in values.values()]
            assert at >= (epoch if fresh else last[which])
            for some in found:
                check(bank, at, some)
            seen["new epochs"] += at > last[which]
            seen["reads"] += 1
            last[which] = at
        if seen["reads"] >= reads:
            break
    bank.job.cancel()
    return seen + Counter(crashes=bank.crashes, changes=bank.changes)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_read_is_of_one_epoch(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path if seed % 2 else None)


def test_banks_are_disturbed_and_read_at_many_epochs(tmp_path: Path) -> None:
    seen = Counter[str]()
    for seed in range(8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        seen += run(seed, folder if seed % 2 else None)
    assert min(seen[what] for what in ("crashes", "changes", "new epochs")) >= 5, seen


@pytest.mark.parametrize("reads", [1_000, pytest.param(20_000, marks=pytest.mark.soak)])
def test_the_total_is_constant_however_often_it_is_read(reads: int, tmp_path: Path) -> None:
    seen = run(1, tmp_path, 1 << 20, reads, calm=True)
    assert seen["crashes"] >= 1 + reads // 10_000, seen
    assert min(seen["changes"], seen["new epochs"]) >= reads // 1_000, seen


def test_reads_of_the_bank_find_changes_that_are_not_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CollectionAtEpochs, "note", lambda self, epoch, changes: None)
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            run(seed, folder if seed % 2 else None)
        except (AssertionError, TimeoutError):
            return
    pytest.fail("20 runs have not found it")
