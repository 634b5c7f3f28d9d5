"""Queues and tables that could grow without a bound while an actor is busy, counted over many epochs."""

from __future__ import annotations

from typing import Any

import pytest

import rayad as rd
from rayad.actors.host.progress_host import progress_on_sockets
from rayad.actors.plane.protocol import PROGRESS, Kind, pack_view, unpack_view
from rayad.actors.process.mailbox import Mailbox, NoAnswer
from rayad.actors.store.input_log import InputLog
from rayad.progress import ProtocolError, View
from tests.actors.planes import SECRET, join, new_plane, pump

T = rd.Timestamp


def test_only_the_newest_view_waits_for_a_busy_replica() -> None:
    """Regression: the progress actor queued every frontier for a replica that was in one long activation."""
    flow = rd.Dataflow("views")
    flow.from_items([1]).key_by(lambda n: n).count(name="counts").collect("out")
    plan = flow.plan(1)
    node = next(stage.id for stage in plan.stages if stage.name == "counts")
    host = progress_on_sockets(plan, job="job", secret=SECRET, incarnation=1)
    with new_plane(f"v{node}.0") as replica:
        address = host.listen("127.0.0.1")
        join(replica, host.plane, address)
        most = sent = 0
        view = b""
        for epoch in range(20_000):  # it does not read: some megabytes
            view = pack_view(View(tuple(T(epoch, (lane,)) for lane in range(50)), ()))
            host.progress.show(replica.name, node, view)
            most = max(most, host.plane.queued_bytes(replica.name))
            sent += (replica.name, node) not in host.progress.late
        assert most < 2 * len(view)
        assert sent < 10_000

        def shown(got: dict[str, list[Any]]) -> bool:
            host.progress.show_late()
            return bool(got[replica.name]) and bytes(got[replica.name][-1].payload) == view

        frames = pump([replica, host.plane], shown)[replica.name]
        assert [frame.kind for frame in frames] == [Kind.VIEW] * (sent + 1)
        epochs = [unpack_view(frame.payload).input_frontier[0].epoch for frame in frames]
        assert epochs == sorted(set(epochs))
        assert epochs[-1] == 19_999
        assert host.progress.late == {}
        host.plane.close(linger_s=0)
    assert host.plane.name == PROGRESS


def test_watchers_whose_wait_has_ended_are_forgotten() -> None:
    """Regression: each wait for a probe that timed out left a watcher, which the loop checked for ever."""
    mailbox = Mailbox()
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        return False

    for _ in range(1000):
        assert not mailbox.watch(look, 0.0)
    mailbox.serve()
    assert (len(mailbox._watchers), len(mailbox._given_up), looks) == (0, 0, 0)


def test_a_watcher_whose_check_fails_gets_the_error_and_the_loop_continues() -> None:
    mailbox = Mailbox()
    mailbox.open(mailbox.serve)
    with pytest.raises(ZeroDivisionError):
        mailbox.watch(lambda: bool(1 // 0), 5.0)


def test_a_call_whose_caller_has_given_up_is_not_answered() -> None:
    mailbox = Mailbox()
    done: list[int] = []
    with pytest.raises(NoAnswer, match=r"did not answer a control call within 0.0 s: it is busy in user code or was stopped"):
        mailbox.ask(lambda: done.append(1), timeout_s=0.0)
    mailbox.post(lambda: done.append(2))
    mailbox.serve()
    assert done == [2]
    assert issubclass(NoAnswer, ProtocolError)


def test_the_log_of_an_input_knows_its_bytes() -> None:
    log = InputLog()
    for number in range(1000):
        log.append(("frame", number), 100)
        log.next()
        if number % 10 == 9:
            log.trim(number - 4)
            assert log.bytes == 500
    log.trim(1000)
    assert log.bytes == 0


def test_a_local_job_without_snapshots_keeps_nothing_of_its_inputs() -> None:
    flow = rd.Dataflow("unlogged")
    flow.input("in").key_by(lambda n: n % 2).count().probe("seen").collect("out")
    job: Any = flow.submit(runtime="local")
    sending = job.input("in")
    for epoch in range(500):
        sending.send([epoch])
        sending.advance_to(epoch + 1)
        assert job.probe("seen").wait(epoch)
        assert len(next(iter(job.runtime.processes.logs.values()))) == 0
    sending.close()
    job.wait()
