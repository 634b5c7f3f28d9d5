"""When a coordinator that takes the place of another one may begin."""

from __future__ import annotations

import pytest

import rayad as rd
from rayad.actors.lead.taking_over import HEARD_S, Left, TakingOver, lease_s, look_every_s, taking_over_s

LIVES = Left("job:j:1", "10.0.0.1", is_dead=False)
ENDING = Left("job:j:1", "10.0.0.1")
CUT_OFF = Left("job:j:2", "10.0.0.2", is_lost=True)
NOT_TOLD = "the end of the coordinator before it, job:j:1 on node 10.0.0.1, of which its node has not told"
UNKNOWN = "word from Ray whether the coordinator before it has ended"
GONE = "the end of job:j:2 on node 10.0.0.2, whose node is gone or cut off"


def taking(delay_s: float = 0.0) -> TakingOver:
    return TakingOver(delay_s=delay_s, patience_s=8.0, now_s=100.0)


@pytest.mark.parametrize("left", [LIVES, ENDING])
def test_the_end_of_the_one_before_is_waited_for(left: Left) -> None:
    one = taking()
    assert one.look([left], 100.0) == NOT_TOLD
    assert one.look([left, CUT_OFF], 107.9) == NOT_TOLD
    assert (one.look([], 107.9), one.unconfirmed) == ("", "")


def test_an_end_that_does_not_become_known_in_time_is_left_to_the_lease() -> None:
    one = taking()
    assert one.look(None, 107.9) == UNKNOWN
    assert (one.look(None, 108.0), one.unconfirmed) == ("", UNKNOWN)
    assert (one.look([ENDING, CUT_OFF], 108.0), one.unconfirmed) == ("", f"{NOT_TOLD} and {GONE}")
    assert (one.look([], 108.0), one.unconfirmed) == ("", "")


def test_of_a_node_that_is_gone_nothing_will_be_heard() -> None:
    one = taking()
    assert (one.look([CUT_OFF], 100.0), one.unconfirmed) == ("", GONE)


def test_the_delay_after_failures_in_a_row_comes_on_top_of_nothing() -> None:
    one = taking(delay_s=10.0)
    assert one.look([ENDING], 100.0) == NOT_TOLD
    assert one.look([CUT_OFF], 104.0) == "its restart in 6.0 s, after failures in a row"
    assert (one.look([CUT_OFF], 110.0), one.unconfirmed) == ("", GONE)
    assert (one.look([], 110.0), one.unconfirmed) == ("", "")


def test_a_lease_is_longer_than_a_deposed_coordinator_takes_to_end() -> None:
    for patience_s in (0.5, 8.0, 60.0):
        assert lease_s(patience_s) > 2 * look_every_s(patience_s) + HEARD_S
    patient = rd.FailureConfig(heartbeat_timeout_s=8.0, delay_max_s=3.0)
    assert taking_over_s(rd.RunConfig(storage_path="/jobs", failures=patient)) == 3.0 + 8.0 + lease_s(8.0)
    assert taking_over_s(rd.RunConfig(failures=patient)) == 0.0, "it has no successor"
    assert (look_every_s(8.0), lease_s(8.0), lease_s(60.0)) == (2.0, 11.0, 20.0)
