"""A bank in which money moves between accounts: two updates of one epoch each, so the total is what it was at the end of every epoch, and
at no other moment. While it runs it is read, its layout changes, and it is lost and resumes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.local.tables import LocalTables
from rayad.actors.tables.reading import Wanted
from rayad.actors.tables.table import Table, Tables
from rayad.dataflow.config import RunConfig, SnapshotConfig

ACCOUNTS = 24
START = 100
TOTAL = ACCOUNTS * START


def program() -> rd.Dataflow:
    """Operators with the same balances, of which one is downstream of another: replicas of the first run ahead."""
    flow = rd.Dataflow("bank")
    moves = flow.input("moves")
    totals = moves.key_by(lambda pair: pair[0]).sum(lambda pair: pair[1], name="balances")
    totals.as_records().key_by(lambda pair: pair[0] % 7).fold(dict, _latest, name="by branch").collect("branches")
    moves.key_by(lambda pair: pair[0]).fold(lambda: [0], _add, name="copies").collect("copies")
    moves.map_batches(_in_columns).key_by("account").sum("amount", name="columns").collect("columns")
    return flow


def of_collections() -> rd.Dataflow:
    """The same balances by collections, in rows and in columns, and what one of them gives, kept by account."""
    flow = rd.Dataflow("bank")
    moves = flow.input("moves")
    sums = moves.as_collection().key_by(lambda pair: pair[0]).sum(lambda pair: pair[1], name="sums")
    sums.arrange_by(lambda pair: pair[0], name="arranged")
    columns = moves.map_batches(_in_columns).as_collection().key_by("account").sum("amount", name="columns")
    columns.changes().collect("columns")
    return flow


OPERATORS = ("balances", "copies", "by branch", "columns")
"""Of :func:`program`."""
OF_COLLECTIONS = ("sums", "arranged", "columns")
"""Of :func:`of_collections`."""


def _in_columns(moves: list[tuple[int, int]]) -> pa.RecordBatch:
    return pa.record_batch({"account": [account for account, _ in moves], "amount": [amount for _, amount in moves]})


def _latest(branch: dict[int, int], pair: tuple[int, int]) -> dict[int, int]:
    branch[pair[0]] = pair[1]
    return branch


def _add(state: list[int], pair: tuple[int, int]) -> list[int]:
    state[0] += pair[1]
    return state


class Bank:
    """A bank that is disturbed while it is read; all follows from the seed.

    Args:
        make, names: the program, and the operators whose layout changes.
    """

    def __init__(
        self,
        seed: int,
        folder: Path | None,
        *,
        epochs: int = 12,
        make: Callable[[], rd.Dataflow] = program,
        names: Sequence[str] = OPERATORS,
    ) -> None:
        self._names = names
        self.chance = random.Random(f"bank {seed}")
        self.model: list[dict[int, int]] = []
        self.epochs = epochs
        run = RunConfig(key_groups=16, batch_rows=2)
        if folder is not None:
            run = RunConfig(storage_path=str(folder), snapshots=SnapshotConfig(interval_s=0.05), key_groups=16, batch_rows=2)
        ticks = iter(range(1 << 40))
        options: dict[str, Any] = {"runtime": "local", "parallelism": self.chance.choice([2, 3]), "seed": seed}
        self.job: LocalJob = make().submit(run, clock=lambda: next(ticks) / 1000, **options)
        self.input = self.job.input("moves")
        self.crashes = self.changes = 0
        self.keeps = folder is not None
        self.calm = 0.0
        """How often nothing happens between two questions."""
        self.steady = 0
        """So many disturbances come after a loss before the next one: a long life has to be able to catch up."""
        self._since_loss = 0

    def feed(self, epoch: int) -> None:
        """One epoch: the first fills all accounts."""
        if epoch == 0:
            moves = [(account, START) for account in range(ACCOUNTS)]
        else:
            moves = []
            for _ in range(self.chance.randrange(1, 9)):
                left, right = self.chance.sample(range(ACCOUNTS), 2)
                amount = self.chance.randrange(1, 50)
                moves += [(left, -amount), (right, amount)]
        self.chance.shuffle(moves)
        balances = dict(self.model[-1]) if self.model else {}
        for account, amount in moves:
            balances[account] = balances.get(account, 0) + amount
        self.model.append(balances)
        for at in range(0, len(moves), 3):
            self.input.send(moves[at : at + 3])
        self.input.advance_to(epoch + 1)

    def disturb(self) -> None:
        """Some events of the job; now and then a loss, or a change of layout that begins."""
        job, chance = self.job, self.chance
        for _ in range(chance.choice([0, 1, 1, 2, 5, 20])):
            job.step()
        drawn = chance.random()
        self._since_loss += 1
        if drawn < 0.02 and self.keeps and job.snapshots is not None and self._since_loss > self.steady:
            job.crash()
            self.crashes += 1
            self._since_loss = 0
        elif drawn < 0.1 and (job.rescaling is None or job.rescaling.is_done):
            name = chance.choice(self._names)
            self.changes += job.start_rescale({name: chance.randrange(1, 5)}, groups=chance.choice([1, 3, None])) is not None

    def run(self) -> Iterator[int]:
        """Feed epoch after epoch; between two of them, it is time to read."""
        for epoch in range(self.epochs):
            self.feed(epoch)
            for _ in range(self.chance.randrange(4)):
                self.disturb()
                yield epoch

    def table(self, name: str) -> Table:
        """A table that is disturbed between any two questions of a read."""
        return Table(self._readable(), name, self._wanted(name))

    def tables(self, *names: str, committed: bool = False) -> Tables:
        """The same, of several."""
        return Tables(self._readable(), {name: self._wanted(name) for name in names}, committed=committed)

    def _readable(self) -> LocalTables:
        readable = LocalTables(self.job)
        readable.between = self._between
        return readable

    def _between(self) -> None:
        if self.chance.random() >= self.calm:
            self.disturb()

    def _wanted(self, name: str) -> Wanted:
        return Wanted(next(stage.id for stage in self.job.plan.stages if stage.name == name), None)
