"""Tables over the workers that run on Ray, in threads with real sockets: who asks does so as the driver does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import rayad as rd
from rayad.actors.coordinator.readable import Layout
from rayad.actors.driver.tables import RayTables
from rayad.actors.plane.replica_id import replicas_of
from rayad.actors.tables.reading import Wanted
from rayad.actors.tables.table import Table, Tables, Value
from rayad.actors.tables.where import Where
from rayad.dataflow.logical_graph import NodeKind
from rayad.progress import DataflowError
from tests.actors.hosts import SECRET, Hosts, start_hosts
from tests.patience import PATIENCE_S

ACCOUNTS = 12
EPOCHS = 200


class Gated(rd.Source):
    """Money that moves between accounts, an epoch each time that the test opens the gate, or as fast as it can."""

    blocks = False

    def __init__(self, gate: threading.Semaphore) -> None:
        self.gate = gate

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: int | None) -> rd.SourcePart:
        return _Part(self.gate)


class _Part(rd.SourcePart):
    def __init__(self, gate: threading.Semaphore) -> None:
        self.gate, self.at = gate, 0

    def next_batch(self) -> Any:
        if self.at == EPOCHS or not self.gate.acquire(blocking=False):
            return rd.SourceBatch(self.at, []) if self.at < EPOCHS else None
        self.at += 1
        return rd.SourceBatch(self.at - 1, moves(self.at - 1))

    def epoch_floor(self) -> int:
        return self.at

    def offset(self) -> int:
        return self.at


def moves(epoch: int) -> list[tuple[int, int]]:
    if epoch == 0:
        return [(account, 100) for account in range(ACCOUNTS)]
    if epoch >= EPOCHS:
        return []  # the source has come to its end there
    left, right = epoch % ACCOUNTS, (5 * epoch + 1) % ACCOUNTS
    return [(left, -epoch), (right, epoch)]


def balances(epoch: int) -> dict[int, int]:
    """What there is when an epoch is over."""
    out: dict[int, int] = {}
    for each in range(epoch + 1):
        for account, amount in moves(each):
            out[account] = out.get(account, 0) + amount
    return out


class HostCalls:
    """Calls of processes that are threads of this one; each in a thread, as Ray's are."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.are_answered = True

    def ask(self, calls: Sequence[tuple[Any, str, tuple[Any, ...]]], timeout_s: float) -> list[Any]:
        self.methods += [method for _, method, _ in calls]
        answers: list[Any] = [None] * len(calls)
        if not self.are_answered:
            return answers

        def one(at: int) -> None:
            host, method, arguments = calls[at]
            answers[at] = getattr(host, method)(*arguments)

        threads = [threading.Thread(target=one, args=(at,)) for at in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        return answers


def readable(hosts: Hosts, ended: Callable[[], str | None] = lambda: None, calls: HostCalls | None = None) -> RayTables:
    plan = hosts.plan
    owners = {stage.id: plan.owners(stage) for stage in plan.stages if stage.kind is NodeKind.VERTEX}
    starts = tuple(replicas_of([stage for stage in plan.stages if stage.kind is NodeKind.SOURCE]))
    titles = {name: hosts.places.title(name, plan) for name in hosts.hosts}
    where = {name: Where(name, address, 1, "test", SECRET, seals=False) for name, address in hosts.addresses.items()}
    layout = Layout(owners, hosts.places, hosts.hosts, where, starts, titles)
    calls = calls or HostCalls()
    return RayTables("bank", plan, lambda left_s: layout, lambda left_s: None, ended, lambda: ended() is not None, lambda: -1, calls)


@contextmanager
def bank(placement: str) -> Iterator[tuple[Hosts, threading.Semaphore]]:
    gate = threading.Semaphore(0)
    flow = rd.Dataflow("bank")
    source = flow.source(Gated(gate), name="moves")
    source.key_by(lambda pair: pair[0]).sum(lambda pair: pair[1], name="balances").collect("balances")
    source.key_by(lambda pair: pair[0]).fold(list, lambda kept, pair: [*kept[-3:], pair[1]], name="last").collect("last")
    hosts = start_hosts(flow, 3, placement)
    try:
        yield hosts, gate
    finally:
        gate.release(EPOCHS)
        hosts.join(PATIENCE_S)


@pytest.mark.parametrize("placement", ["workers", "vertices"])
def test_the_total_is_constant_in_every_scan_while_updates_come_in(placement: str) -> None:
    with bank(placement) as (hosts, gate):
        job = readable(hosts)
        wanted = {name: Wanted(hosts.stage(name), None) for name in ("balances", "last")}
        one, both = Table(job, "balances", wanted["balances"]), Tables(job, wanted)
        gate.release(20)
        newest = {"one": -1, "both": -1}  # what reads several operators may be behind what reads one of them
        left, seen = EPOCHS - 21, [-1]  # the last one is kept back: a source that has ended ends the processes that are read
        while seen[-1] < EPOCHS - 20:
            more = min(7, left)
            left -= more
            if more:
                gate.release(more)
            which = "one" if len(seen) % 2 else "both"
            table = one.scan(timeout_s=PATIENCE_S) if which == "one" else both.scan(timeout_s=PATIENCE_S)["balances"]
            epoch = int(table.schema.metadata[b"rayad.epoch"])
            found = dict(zip(table["key"].to_pylist(), table["sum"].to_pylist(), strict=True)) if table.num_rows else {}
            assert found == (balances(epoch) if epoch >= 0 else {})
            assert epoch >= newest[which]
            newest[which] = epoch
            seen.append(max(epoch, seen[-1]))
        assert len(set(seen)) > 3


def test_a_fresh_value_has_all_that_a_source_has_given() -> None:
    with bank("workers") as (hosts, gate):
        table = Table(readable(hosts), "balances", Wanted(hosts.stage("balances"), None))
        gate.release(1)
        found = table.get(3, fresh=True, timeout_s=PATIENCE_S)
        while found == Value(None, -1):  # the source has not given it yet
            found = table.get(3, fresh=True, timeout_s=PATIENCE_S)
        assert found == Value(100, 0)


def test_a_call_asks_for_what_has_begun_only_where_a_source_waits_in_its_loop() -> None:
    waits, goes_on = threading.Event(), threading.Event()

    class Waiting(_Part):
        def next_batch(self) -> Any:
            if self.at == 2 and not goes_on.is_set():
                waits.set()
                assert goes_on.wait(PATIENCE_S)
            return super().next_batch()

    class Source(Gated):
        def build_part(self, part: int, resume: int | None) -> rd.SourcePart:
            return Waiting(self.gate)

    flow, gate, calls = rd.Dataflow("bank"), threading.Semaphore(2), HostCalls()
    flow.source(Source(gate), name="moves").key_by(lambda pair: pair[0]).sum(lambda pair: pair[1], name="balances").collect("out")
    hosts = start_hosts(flow, 1, "vertices")
    try:
        job = readable(hosts, calls=calls)
        assert waits.wait(PATIENCE_S)
        assert (job.begun(PATIENCE_S), calls.methods) == (1, ["begun"])
        calls.are_answered = False
        with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s to which epochs have begun, from 'moves'\[0\]\. Read"):
            job.begun(0.2)
        calls.are_answered = True
        goes_on.set()
        while calls.methods:  # a machine that has other things to do may be late, too
            calls.methods.clear()
            assert job.begun(PATIENCE_S) == 1
        assert Table(job, "balances", Wanted(hosts.stage("balances"), None)).get(3, fresh=True, timeout_s=PATIENCE_S) == Value(100, 1)
    finally:
        goes_on.set()
        gate.release(EPOCHS)
        hosts.join(PATIENCE_S)


def test_a_refusal_names_the_operator() -> None:
    with bank("workers") as (hosts, _):
        table = Table(readable(hosts), "balances", Wanted(hosts.stage("balances"), "totals of all"))
        with pytest.raises(DataflowError, match=r"vertex 'balances' \(.*\) has no state 'totals of all' that stays: it has \['totals'\]"):
            table.get(1, timeout_s=PATIENCE_S)


def test_a_read_names_the_activation_that_it_waits_for() -> None:
    ends, gate = threading.Event(), threading.Semaphore(2)

    def slow(kept: int, pair: tuple[int, int]) -> int:
        assert ends.wait(PATIENCE_S)
        return kept + pair[1]

    flow = rd.Dataflow("bank")
    flow.source(Gated(gate), name="moves").key_by(lambda pair: pair[0]).fold(int, slow, name="slow").collect("out")
    hosts = start_hosts(flow, 1, "vertices")
    try:
        table = Table(readable(hosts), "slow", Wanted(hosts.stage("slow"), None))
        while hosts.host("slow").core.doing is None:
            pass
        for timeout_s in (1.0, 0.3):
            began_s = time.monotonic()
            with pytest.raises(TimeoutError, match=r"not all of its replicas have answered: 'slow'\[0\] is busy with on_notify") as raised:
                table.get(3, timeout_s=timeout_s)
            assert f"{timeout_s:g} s are over" in str(raised.value)
            assert time.monotonic() - began_s < timeout_s + 2.0  # less than ANSWER_S beyond it
        ends.set()
        assert table.get(3, fresh=True, timeout_s=PATIENCE_S).value is not None
    finally:
        ends.set()
        gate.release(EPOCHS)
        hosts.join(PATIENCE_S)


def test_a_job_that_is_known_to_be_over_is_not_read_though_its_processes_still_answer() -> None:
    with bank("workers") as (hosts, gate):
        told: list[str] = []
        table = Table(readable(hosts, lambda: told[0] if told else None), "balances", Wanted(hosts.stage("balances"), None))
        gate.release(2)
        table.get(3, timeout_s=PATIENCE_S)
        told.append("cancelled")
        with pytest.raises(DataflowError, match="job 'bank' is cancelled, and its replicas are gone"):
            table.get(3, timeout_s=PATIENCE_S)
