"""The parts of a replica's core, each alone."""

from __future__ import annotations

import pytest

import rayad as rd
from rayad.actors.plane.replica_id import ReplicaId, replicas_of
from rayad.actors.replica.input.live_input import LiveInput
from rayad.actors.replica.input.pace import Pace
from rayad.actors.replica.progress_changes import ProgressChanges
from rayad.actors.replica.vertex.callbacks import Callbacks
from rayad.actors.replica.vertex.end_hold import EndHold
from rayad.dataflow.plan import Plan
from rayad.dataflow.vertex import EndVertex
from rayad.progress import InternalError, View

T = rd.Timestamp


def plan() -> Plan:
    flow = rd.Dataflow("parts")
    flow.input("in").key_by(lambda n: n).count().collect("out")
    return flow.plan(2)


def counting() -> tuple[ProgressChanges, int]:
    """The changes of the live input, and where it counts its epochs."""
    made = plan()
    return ProgressChanges(made, made.stages[0]), made.stages[0].notify_location


def test_changes_that_cancel_out_are_not_reported() -> None:
    changes, at = counting()
    changes.at_vertex(T(1), 1)
    changes.at_vertex(T(2), 1)
    changes.at_vertex(T(1), -1)
    assert len(changes) == 1
    assert changes.take() == [(at, T(2), 1)]
    assert changes.take() == []


def test_a_live_input_that_closes_reports_once_where_it_ended() -> None:
    changes, at = counting()
    live = LiveInput(changes, Pace(None))
    live.begin()
    live.advance(3)
    assert live.send() == T(3)
    live.close()
    live.close()
    assert (live.epoch, live.before, live.sends, live.furthest) == (None, None, 1, 3)
    assert changes.take() == [(at, T(0), -1), (at, T(3), 0)]


def test_a_live_input_that_is_cut_may_lack_records_of_its_last_epoch() -> None:
    changes, _ = counting()
    live = LiveInput(changes, Pace(None))
    live.begin()
    live.advance(3)
    live.close(is_cut=True)
    assert live.before == 3


class Ends(EndVertex):
    """Keeps what is called."""

    def __init__(self) -> None:
        self.called: list[tuple[str, rd.Timestamp]] = []

    def on_advance(self, time: rd.Timestamp) -> None:
        self.called.append(("on_advance", time))

    def on_end(self, time: rd.Timestamp) -> None:
        self.called.append(("on_end", time))


def test_the_right_to_send_at_the_end_follows_the_frontier_and_goes_when_nothing_waits() -> None:
    made = plan()
    stage = made.stages[1]
    changes, vertex = ProgressChanges(made, stage), Ends()
    hold, callbacks = EndHold(changes), Callbacks(stage, 0, lambda: 0.0)
    hold.begin(T(0))
    hold.follow(vertex, View((T(2),), ()), callbacks, is_waiting=True)
    hold.consumed(T(4))
    hold.follow(vertex, View((), ()), callbacks, is_waiting=True)
    assert (hold.time, hold.has_spoken) == (T(2), False)
    hold.follow(vertex, View((), ()), callbacks, is_waiting=False)
    assert vertex.called == [("on_advance", T(0)), ("on_advance", T(2)), ("on_end", T(4))]
    assert (hold.time, hold.has_spoken, changes.take()) == (None, True, [])


def test_a_frontier_that_ends_at_once_passes_the_time_at_which_the_right_was() -> None:
    made = plan()
    stage = made.stages[1]
    changes, vertex = ProgressChanges(made, stage), Ends()
    hold, callbacks = EndHold(changes), Callbacks(stage, 0, lambda: 0.0)
    hold.begin(T(0))
    hold.follow(vertex, View((), (), end=T(5)), callbacks, is_waiting=False)
    assert vertex.called == [("on_advance", T(0)), ("on_end", T(5))], "else epochs 0 to 4 would be complete without a word"


def test_replicas_have_one_name_on_the_plane() -> None:
    made = plan()
    names = [at.plane_name for at in replicas_of(made.stages)]
    assert [ReplicaId.from_plane_name(name) for name in names] == list(replicas_of(made.stages))


@pytest.mark.parametrize("name", ["progress", "v3", "3.1", "v3.x", ""])
def test_a_name_that_is_no_replicas_is_refused(name: str) -> None:
    with pytest.raises(InternalError) as caught:
        ReplicaId.from_plane_name(name)
    assert str(caught.value) == f"{name!r} is not the plane name of a replica: that is 'v', the stage's id, a dot, the replica's number"
