"""Counters and readings: activities add up, windows are differences, nothing is lost when replicas come and go."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.autoscale import BACKPRESSURED, BUSY, IDLE, ReplicaCounters, ReplicaReading, sample_between
from rayad.autoscale.statistics import LatencyHistogram, quantile_s
from rayad.progress import ProtocolError

TURNS = st.lists(st.tuples(st.sampled_from([BUSY, IDLE, BACKPRESSURED]), st.floats(-0.5, 10.0)), max_size=30)


@given(TURNS, st.floats(0.0, 5.0))
def test_activities_add_up_to_the_time_for_any_turns(turns: list[tuple[int, float]], rest_s: float) -> None:
    """Also where the clock stands still or goes back."""
    counters = ReplicaCounters("v", 0, now_s=100.0)
    now_s = 100.0
    for activity, after_s in turns:
        now_s += after_s
        counters.turn_to(activity, now_s)
        counters.check_invariants()
    reading = counters.reading(now_s + rest_s)
    assert reading.busy_s + reading.idle_s + reading.backpressured_s == pytest.approx(reading.now_s - 100.0)
    sample = sample_between([], [reading])
    if sample is None:
        assert reading.now_s == 100.0
    else:
        (replica,) = sample.vertices["v"].replicas
        assert replica.busy_share + replica.idle_share + replica.backpressured_share == pytest.approx(1.0)
        assert min(replica.busy_share, replica.idle_share, replica.backpressured_share) >= 0.0


@given(st.lists(st.floats(0.0, 1000.0), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_quantiles_are_at_most_a_quarter_too_high(latencies_s: list[float], share: float) -> None:
    histogram = LatencyHistogram()
    for latency_s in latencies_s:
        histogram.add(latency_s)
    exact = sorted(latencies_s)[max(0, -int(-share * len(latencies_s) // 1) - 1)]
    found = quantile_s(histogram.counts, share)
    assert found is not None
    assert exact <= found * (1 + 1e-9)
    assert found <= 1.25 * max(exact, 4e-6) + 2e-6


def test_latencies_beyond_all_buckets_are_kept_in_the_last() -> None:
    histogram = LatencyHistogram()
    histogram.add(1e12)
    histogram.add(-1.0, times=3)
    assert (histogram.counts[-1], histogram.counts[0]) == (1, 3)


def reading(vertex: str, replica: int, now_s: float, items: int, *, started_s: float = 0.0, busy_s: float = 0.0) -> ReplicaReading:
    return ReplicaReading(
        vertex, replica, started_s, now_s, busy_s, now_s - started_s - busy_s, 0.0, {1: (items, 8 * items)}, {2: (2 * items, 0)}
    )  # fmt: skip


def test_a_window_is_the_difference_of_two_readings() -> None:
    sample = sample_between([reading("v", 0, 10.0, 100, busy_s=2.0)], [reading("v", 0, 14.0, 400, busy_s=5.0)])
    assert sample is not None
    vertex = sample.vertices["v"]
    assert (sample.since_s, sample.until_s, vertex.items_in, vertex.items_out) == (10.0, 14.0, 300, 600)
    assert (vertex.observed_rate, vertex.true_rate, vertex.true_output_rate, vertex.busy_share) == (75.0, 100.0, 200.0, 0.75)
    assert (sample.sent("v", 2), sample.received("v", 1), sample.received("v", 9)) == (600, 300, 0)


def test_replicas_that_are_added_removed_and_restarted() -> None:
    before = [reading("v", 0, 10.0, 100), reading("v", 1, 10.0, 900), reading("v", 2, 10.0, 900)]
    after = [reading("v", 0, 20.0, 150), reading("v", 1, 20.0, 30, started_s=15.0), reading("v", 3, 20.0, 7, started_s=19.0)]
    sample = sample_between(before, after)
    assert sample is not None
    found = {r.replica: (r.since_s, r.items_in) for r in sample.vertices["v"].replicas}
    assert found == {0: (10.0, 50), 1: (15.0, 30), 3: (19.0, 7)}  # 1 died and was replaced, 2 is gone, 3 is new


def test_no_window_without_time() -> None:
    assert sample_between([], []) is None
    same = reading("v", 0, 10.0, 100)
    assert sample_between([same], [same]) is None


def test_a_counter_that_goes_down_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"counters of 'v'\[0\] went down between 10.0 s and 20.0 s, and it did not start anew"):
        sample_between([reading("v", 0, 10.0, 100)], [reading("v", 0, 20.0, 99)])


def test_a_lost_reading_loses_nothing() -> None:
    first, second, third = reading("v", 0, 10.0, 100), reading("v", 0, 20.0, 150), reading("v", 0, 30.0, 270)
    whole = sample_between([first], [third])
    parts = [sample_between([first], [second]), sample_between([second], [third])]
    assert whole is not None
    assert whole.vertices["v"].items_in == sum(part.vertices["v"].items_in for part in parts if part is not None)


@given(st.dictionaries(st.integers(0, 99), st.tuples(st.integers(0, 10**12), st.integers(0, 10**15))), st.none() | st.integers(0, 10**9))
def test_readings_survive_json(by_edge: dict[int, tuple[int, int]], backlog: int | None) -> None:
    one = ReplicaReading("v", 3, 1.5, 2.5, 0.5, 0.25, 0.25, by_edge, by_edge, (1, 2), (3, 4), 5, 6, backlog, None, 7, {8: 9})
    assert ReplicaReading.from_json(json.loads(json.dumps(one.as_json()))) == one


def test_readings_of_another_shape_are_refused() -> None:
    with pytest.raises(
        ProtocolError, match=r"a reading has the fields \['vertex', 'weight'\]: it may have .* and needs vertex, replica, started_s, now_s"
    ):
        ReplicaReading.from_json({"vertex": "v", "weight": 1})


def test_samples_are_json_with_the_figures_that_people_look_for() -> None:
    counters = ReplicaCounters("v", 0, inputs=[1], outputs=[2], now_s=0.0)
    counters.turn_to(BUSY, 0.0)
    counters.received_items[1] += 10
    counters.received_bytes[1] += 80
    counters.written_items += 4
    counters.latency.add(0.001)
    sample = sample_between([], [counters.reading(2.0, queue_items=3, backlog_items=5, frontier_lag_s=1.5, state_bytes=64)])
    assert sample is not None
    found = json.loads(json.dumps(sample.as_json()))["vertices"]["v"]
    wanted = {"items_in": 10, "bytes_in": 80, "items_out": 4, "true_rate": 5.0, "busy_share": 1.0, "queue_items": 3, "backlog_items": 5}
    wanted |= {"frontier_lag_s": 1.5, "state_bytes": 64, "latency_p50_s": 0.001024}
    assert {name: found[name] for name in wanted} == wanted
    assert found["replicas"][0]["true_rate"] == 5.0


def test_pooling_does_not_believe_a_replica_that_did_next_to_nothing() -> None:
    """One replica needed a tenth of a millisecond for its one item: ten thousand a second by itself, and no reason to hope for that."""
    much = reading("v", 0, 1.0, 500, busy_s=0.5)
    little = reading("v", 1, 1.0, 1, busy_s=0.0001)
    sample = sample_between([], [much, little])
    assert sample is not None
    vertex = sample.vertices["v"]
    assert vertex.replicas[1].true_rate == pytest.approx(10_000.0)
    assert vertex.true_rate_per_replica == pytest.approx(1001.8, rel=1e-3)
    assert vertex.imbalance == pytest.approx(2.0, rel=1e-3)


def test_a_source_that_is_back_pressured_would_read_more() -> None:
    held = ReplicaReading("s", 0, 0.0, 10.0, 2.0, 0.0, 8.0, read=(1000, 0))
    free = ReplicaReading("s", 0, 0.0, 10.0, 2.0, 8.0, 0.0, read=(1000, 0))
    rates = []
    for one in (held, free):
        sample = sample_between([], [one])
        assert sample is not None
        rates.append(sample.vertices["s"].unhindered_rate)
    assert rates == [500.0, 100.0]


def test_invariants_name_what_is_broken() -> None:
    counters = ReplicaCounters("v", 1, inputs=[1], now_s=0.0)
    counters.received_items[1] = -1
    with pytest.raises(ProtocolError, match=r"'v'\[1\] has a negative count"):
        counters.check_invariants()
    counters.seconds[BUSY] = 5.0
    with pytest.raises(ProtocolError, match=r"do not add up to 0.0 s"):
        counters.check_invariants()
