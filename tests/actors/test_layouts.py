"""How a change of layout is planned: its steps, their size, and how a manifest remembers a layout."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.lead import layouts
from rayad.actors.lead.layouts import FIRST_STEP_GROUPS, RescaleRefused, groups_of_next_step
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Layout, Plan
from rayad.progress import DataflowError
from tests.programs.totals import first

KEY_GROUPS = 24


def flow() -> rd.Dataflow:
    """Two keyed vertices, a stateless stage, a broadcast one; the source and the stateless stage stand side by side at first."""
    made = rd.Dataflow("layouts")
    numbers = made.from_items([(1, 2), (3, 4)], parts=2, name="numbers")
    spread = numbers.rebalance().map(lambda pair: pair, name="less")
    sums = spread.key_by(first).sum(lambda pair: pair[1], name="sums")
    sums.key_by(first).count(name="counts").collect("out")
    numbers.broadcast().map(lambda pair: pair, name="all").collect("all")
    return made


def plan(parallelism: int = 2) -> Plan:
    return flow().plan(parallelism, key_groups=KEY_GROUPS)


def ids(of: Plan) -> dict[str, int]:
    return {stage.name: stage.id for stage in of.stages}


def movable(of: Plan) -> list[int]:
    return [stage.id for stage in of.stages if not layouts.may_move(stage, of, None)]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A plan after some changes of layout, the last perhaps half done."""
    out = plan(draw(st.integers(1, 4)))
    for _ in range(draw(st.integers(0, 3))):
        wanted = {stage: draw(st.integers(1, 6)) for stage in movable(out) if draw(st.booleans())}
        out = out.laid_out(layouts.target(out, wanted))
    return out


# -- steps ------------------------------------------------------------------------------------------------------------------


@given(plans(), st.data(), st.integers(1, 30))
def test_steps_end_at_the_target_and_move_so_many_groups(before: Plan, data: st.DataObject, groups: int) -> None:
    wanted = {stage: data.draw(st.integers(1, 6)) for stage in movable(before)}
    wanted = {stage: count for stage, count in wanted.items() if count != before.stage(stage).parallelism}
    if not wanted:
        return
    now = before.laid_out(layouts.prepared(before, wanted))
    goal = layouts.target(now, wanted)
    assert all(now.stage(stage).parallelism == max(count, before.stage(stage).parallelism) for stage, count in wanted.items())
    assert all(now.owners(stage) == before.owners(before.stage(stage.id)) for stage in now.stages if layouts.is_keyed(now, stage.id))
    for stage, count in wanted.items():
        if layouts.is_keyed(before, stage):
            assert set(goal.owners[stage]) == set(range(count)), "who retires owns nothing"
    most = max((sum(a != b for a, b in zip(now.owners(now.stage(s)), owners, strict=True)) for s, owners in goal.owners.items()), default=0)
    steps = 0
    while now.layout != goal:
        after = now.laid_out(layouts.next_layout(now, goal, groups))
        for stage in wanted:
            moved = sum(a != b for a, b in zip(now.owners(now.stage(stage)), after.owners(after.stage(stage)), strict=True))
            assert moved <= groups or not layouts.is_keyed(now, stage)
        now, steps = after, steps + 1
        assert steps <= most + 1, "it does not end"
    assert steps == -(-most // groups) or (not most and steps == 1), "without key-groups one step is enough"
    assert all(now.stage(stage).parallelism == count for stage, count in wanted.items())


@given(st.floats(0.0, 0.2), st.floats(0.0, 0.02), st.integers(1, 30))
def test_steps_grow_until_their_groups_cost_what_a_pause_may(fixed_s: float, each_s: float, turns: int) -> None:
    costs = [(FIRST_STEP_GROUPS, fixed_s + each_s * FIRST_STEP_GROUPS)]
    for _ in range(turns):
        groups = groups_of_next_step(costs)
        assert 1 <= groups <= 4 * costs[-1][0]
        costs.append((groups, fixed_s + each_s * groups))
    if each_s > 1e-6 and turns > 8:
        worth_s = max(0.015, fixed_s)
        share_s = each_s * costs[-1][0]
        assert share_s <= 1.05 * worth_s + each_s or costs[-1][0] <= 2 * FIRST_STEP_GROUPS
        assert share_s >= 0.9 * worth_s - each_s


def test_a_step_that_cost_nothing_is_followed_by_a_larger_one() -> None:
    assert groups_of_next_step([(4, 0.0)]) == 8
    assert groups_of_next_step([(4, 0.0), (8, 0.0)]) == 32
    assert groups_of_next_step([(8, 1.0), (8, 1.0)]) == 32, "two of one size do not tell what a group costs"
    assert groups_of_next_step([(4, 0.5), (8, 1.0)]) == 1, "each group costs more than a pause may"


# -- in manifests -----------------------------------------------------------------------------------------------------------


@given(plans(), st.integers(1, 4))
def test_a_manifest_gives_the_layout_back(changed: Plan, parallelism: int) -> None:
    """Whatever parallelism the run that reads it was started with; through JSON, as in the file. Sources are as they are asked for: their
    parts move."""
    notes = json.loads(json.dumps(layouts.layout_notes(changed, {"sums": 2})))
    asked = plan(parallelism)
    again = layouts.restored(asked, {"layout": notes}, {})
    for stage in again.stages:
        assert stage.parallelism == (asked if stage.kind is NodeKind.SOURCE else changed).stage(stage.id).parallelism
    for stage in changed.stages:
        if layouts.is_keyed(changed, stage.id):
            assert again.owners(again.stage(stage.id)) == changed.owners(stage)
    assert again.layout.rebalanced >= changed.layout.rebalanced
    for edge in again.edges:
        if edge.routing.value == "forward":
            assert again.stage(edge.source).parallelism == again.stage(edge.target).parallelism
    assert notes["asked"] == {"sums": 2}


def test_without_notes_it_is_the_layout_that_was_asked_for() -> None:
    assert layouts.layout_of(None, plan()) is None
    assert layouts.layout_of({}, plan()) is None
    asked = {**layouts.asked_of(plan()), "sums": 3}
    assert layouts.asked_of(layouts.restored(plan(), {}, asked)) == asked


def test_a_snapshot_of_other_vertices_is_refused_by_name() -> None:
    notes = layouts.layout_notes(plan(), {})
    notes["replicas"]["gone"] = 2
    with pytest.raises(DataflowError, match="'gone'"):
        layouts.layout_of(notes, plan())


def test_names_are_those_of_all_replicas() -> None:
    now = plan(2)
    changed = now.laid_out(Layout({**now.layout.replicas, ids(now)["sums"]: 3}))
    assert [name for name in layouts.names_of(changed) if name[0] == "sums"] == [("sums", 0), ("sums", 1), ("sums", 2)]


# -- what cannot be ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"sums": 0}, "at least 1"),
        ({"sums": True}, "at least 1"),
        ({"sums": 2.0}, "at least 1"),
        ({"nobody": 2}, r"no stage of that name; those that can be rescaled: .*'sums'"),
        ({"numbers": 3}, "reads input"),
        ({"sums": KEY_GROUPS + 1}, "24 key-groups"),
        ({"broadcast": 3}, "broadcast input"),
        ({}, "give a vertex' name"),
    ],
)
def test_what_cannot_be_is_refused(wanted: dict[str, int], why: str) -> None:
    with pytest.raises(RescaleRefused, match=why):
        layouts.wanted_replicas(plan(), wanted)


def test_replicas_that_exist_already_are_not_wanted() -> None:
    now = plan(2)
    assert layouts.wanted_replicas(now, {"sums": 2}) == {}
    assert layouts.wanted_replicas(now, {"sums": 3, "counts": 2}) == {ids(now)["sums"]: 3}
