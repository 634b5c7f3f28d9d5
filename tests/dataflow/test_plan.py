"""The plan: which operators are fused into which stage, how many replicas there are, where batches are counted; and how it is shown."""

from __future__ import annotations

import pickle
import re
from typing import Any

import cloudpickle
import pytest

import rayad as rd
from rayad.actors.lead.layouts import wanted_replicas
from rayad.dataflow.logical_graph import NodeKind, PartitionKind
from rayad.dataflow.plan import ApplyStep, EdgeStep, Plan, ShiftStep, SinkStep, Stage
from rayad.progress.graph_validation import validate_graph
from tests.programs.catalog import PROGRAMS
from tests.programs.program import Program


def steps(plan: Plan, stage: Stage, port: int = 0) -> list[Any]:
    """The tree behind an output as nested lists of names."""

    def shown(number: int) -> Any:
        step = stage.steps[number]
        if isinstance(step, EdgeStep):
            return f"-> {plan.edges[step.edge].name.split('->')[1]}"
        if isinstance(step, SinkStep):
            return "=> sink"
        name = step.name if isinstance(step, ApplyStep) else step.kind
        return [name, *(shown(child) for child in step.children)]

    return [shown(number) for number in stage.outputs[port]]


def named(plan: Plan, name: str) -> Stage:
    return next(stage for stage in plan.stages if stage.name == name)


def identity(n: Any) -> Any:
    return n


def test_a_stateless_chain_runs_in_its_source() -> None:
    flow = rd.Dataflow()
    flow.from_items([1], name="s").map(identity, name="a").filter(identity, name="b").collect("out")
    plan = flow.plan()
    assert [stage.name for stage in plan.stages] == ["s"]
    assert steps(plan, plan.stages[0]) == [["a", ["b", "=> sink"]]]
    assert plan.edges == ()


def test_what_is_behind_a_union_runs_in_both_heads() -> None:
    flow = rd.Dataflow()
    left, right = flow.from_items([1], name="left"), flow.from_items([2], name="right")
    left.map(identity, name="a").union(right).map(identity, name="shared").key_by(identity).vertex(rd.Vertex, name="v")
    plan = flow.plan()
    assert steps(plan, named(plan, "left")) == [["a", ["shared", "-> v"]]]
    assert steps(plan, named(plan, "right")) == [["shared", "-> v"]]
    assert [(edge.name, edge.port) for edge in plan.edges] == [("left->v", 0), ("right->v", 0)]


def loop_plan(parallelism: Any = 2) -> Plan:
    flow = rd.Dataflow()
    source = flow.from_items([1], name="s", parts=4)

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        worked = inner.key_by(identity).vertex(rd.Vertex, name="v")
        return worked.map(identity, name="again"), worked.filter(identity, name="out")

    source.iterate(body, max_rounds=5, name="it").key_by(identity).vertex(rd.Vertex, name="w")
    return flow.plan(parallelism)


def test_ingress_feedback_and_egress_are_fused() -> None:
    plan = loop_plan()
    assert [stage.name for stage in plan.stages] == ["s", "v", "w"]
    assert steps(plan, named(plan, "s")) == [["enter", "-> v"]]
    assert steps(plan, named(plan, "v")) == [["again", ["feedback", "-> v"]], ["out", ["leave", "-> w"]]]
    stage = plan.stages[1]
    feedback = stage.steps[stage.steps[stage.outputs[0][0]].children[0]]  # type: ignore[union-attr]
    assert isinstance(feedback, ShiftStep)
    assert feedback.max_rounds == 5


def test_edges_know_where_they_are_counted_and_which_are_feedback() -> None:
    plan = loop_plan()
    describe = plan.progress.describe_location
    assert [(e.name, e.is_feedback, describe(e.count_location), e.count_depth) for e in plan.edges] == [
        ("s->v", False, "entry 0 of scope 'it' (1)", 0),  # the parent counts what enters until it is consumed inside
        ("v->v", True, f"input 0 of 'v' (node {named(plan, 'v').id})", 1),
        ("v->w", False, f"input 0 of 'w' (node {named(plan, 'w').id})", 0),
    ]
    assert [stage.depth for stage in plan.stages] == [0, 1, 0]


def test_an_edge_into_two_loops_at_once_is_counted_at_the_outer_one() -> None:
    flow = rd.Dataflow()
    outer = flow.loop("outer")
    entered = outer.enter(flow.from_items([1], name="s"))
    back = outer.feedback()
    inner = flow.loop("inner", inside=outer)
    again = inner.feedback()
    v = flow.vertex(rd.Vertex, inputs=[inner.enter(entered.union(back)).union(again).key_by(identity)], name="v")
    again.connect(v)
    left = inner.leave(v)
    back.connect(left)
    outer.leave(left).collect("out")
    plan = flow.plan()
    describe = plan.progress.describe_location
    v_id = named(plan, "v").id
    assert [(e.name, e.is_feedback, describe(e.count_location), e.count_depth) for e in plan.edges] == [
        ("s->v", False, "entry 0 of scope 'outer' (1)", 0),
        ("v->v", True, f"input 0 of 'v' (node {v_id})", 2),
        ("v->v", True, "entry 0 of scope 'inner' (2)", 1),
    ]


def test_a_cycle_without_a_head_gets_its_union_as_one() -> None:
    flow = rd.Dataflow()
    flow.from_items([1], name="s").iterate(lambda i: (i.filter(identity, name="f"), i), name="it")
    plan = flow.plan(3)
    assert [(stage.name, stage.kind, stage.parallelism, stage.inputs) for stage in plan.stages] == [
        ("s", NodeKind.SOURCE, 1, 0),
        ("union", NodeKind.EXCHANGE, 3, 1),
    ]
    assert steps(plan, named(plan, "union")) == [["f", ["feedback", "-> union"]], ["leave"]]


def test_a_loop_of_a_feedback_alone_has_a_head() -> None:
    flow = rd.Dataflow()
    loop = flow.loop("it")
    back = loop.feedback(2)
    back.connect(loop.enter(flow.from_items([1], name="s")))
    loop.leave(back).collect("out")
    assert flow.run(runtime="local")["out"] == [(rd.Timestamp(0), 1)]


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        (1, {"s": 1, "keyed": 1, "plain": 1, "one": 1, "wide": 4, "spread": 1, "behind": 4}),
        (3, {"s": 2, "keyed": 3, "plain": 2, "one": 1, "wide": 4, "spread": 3, "behind": 4}),
        ({"keyed": 5, "s": 2}, {"s": 2, "keyed": 5, "plain": 2, "one": 1, "wide": 4, "spread": 1, "behind": 4}),
        ({"keyed": (2, 8), "one": 2}, {"s": 1, "keyed": 2, "plain": 1, "one": 2, "wide": 4, "spread": 1, "behind": 4}),
    ],
    ids=["one", "three", "by name", "ranges"],
)
def test_parallelism(parallelism: Any, expected: dict[str, int]) -> None:
    """Sources have at most as many replicas as parts, keyed and rebalanced vertices as many as asked for, others as many as their input."""
    flow = rd.Dataflow()
    s = flow.from_items([1], name="s", parts=2)
    s.key_by(identity).vertex(rd.Vertex, name="keyed")
    s.vertex(rd.Vertex, name="plain")
    s.single().vertex(rd.Vertex, name="one")
    s.vertex(rd.Vertex, name="wide", parallelism=4).map(identity).vertex(rd.Vertex, name="behind")
    s.rebalance().vertex(rd.Vertex, name="spread")
    plan = flow.plan(parallelism)
    assert {stage.name: stage.parallelism for stage in plan.stages} == expected
    assert plan.replicas == sum(expected.values())
    kinds = {edge.name: edge.partition for edge in plan.edges}
    # A forward edge keeps records in their replica; between different numbers of replicas it becomes a rebalance.
    assert kinds["s->plain"] is PartitionKind.FORWARD
    assert kinds["wide->behind"] is PartitionKind.FORWARD
    assert kinds["s->wide"] is PartitionKind.REBALANCE


def test_a_rebalance_names_the_vertex_whose_replicas_do_the_work() -> None:
    flow = rd.Dataflow()
    numbers = flow.from_items(range(9), name="numbers", batch_rows=1)
    numbers.rebalance(name="work").map(identity, name="step").ordered(name="in order").collect("out")
    plan = flow.plan({"work": 3})
    assert [(stage.name, stage.parallelism) for stage in plan.stages] == [("numbers", 1), ("work", 3), ("work.number", 1), ("in order", 1)]
    assert flow.run(runtime="local", parallelism={"work": 3})["out"] == [(rd.Timestamp(0), n) for n in range(9)]
    assert numbers.rebalance(name="unused").vertex(rd.Vertex, name="own").name == "own"
    with pytest.raises(rd.DataflowError, match="the name 'work' is used twice"):
        numbers.rebalance(name="work")
    with pytest.raises(rd.DataflowError, match="is not a name"):
        numbers.rebalance(name="a/b")


def test_a_default_parallelism_holds_for_vertices_that_are_not_named() -> None:
    flow = rd.Dataflow()
    keyed = flow.from_items([1], parts=9, name="s").key_by(identity)
    keyed.count(name="a")
    keyed.count(name="b")
    plan = flow.plan(scaling=rd.ScalingConfig(parallelism={"a": 2}, default=4))
    assert {stage.name: stage.parallelism for stage in plan.stages} == {"s": 4, "a": 2, "b": 4}


def test_a_source_without_parts_has_one_replica() -> None:
    flow = rd.Dataflow()

    class None_(rd.Source):
        def list_parts(self) -> Any:
            return []

        def build_part(self, part: Any, resume: Any | None) -> Any:
            raise AssertionError

    flow.source(None_(), name="s").collect("out")
    assert flow.plan(5).replicas == 1
    assert flow.run(runtime="local")["out"] == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_equal_programs_have_equal_plans_and_plans_can_be_pickled(program: Program) -> None:
    one, two = program.flow(), program.flow()
    assert one.explain(2) == two.explain(2)
    assert one.to_mermaid(2) == two.to_mermaid(2)
    plan = one.plan(2)
    assert [edge.id for edge in plan.edges] == list(range(len(plan.edges)))
    copy = pickle.loads(cloudpickle.dumps(plan))
    assert [stage.name for stage in copy.stages] == [stage.name for stage in plan.stages]
    assert copy.progress == plan.progress
    validate_graph(copy.progress)


# -- how it is shown ----------------------------------------------------------------------------------------------------------


def golden() -> rd.Dataflow:
    flow = rd.Dataflow("golden")
    a, b = flow.from_epochs([[1]], name="a", parts=2), flow.input("b")
    both = a.map(abs, name="left").union(b.filter(bool, name="right"), name="both")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        return inner.map(abs, name="again"), inner.key_by(identity).min(name="least")

    looped = both.flat_map(lambda n: [n], name="shared").iterate(body, name="it")
    looped.broadcast().map(identity, name="copy").collect("copies")
    looped.key_by(["x", "y"]).vertex(rd.Vertex, name="total").probe("seen").collect("out")
    return flow


def test_explain() -> None:
    text = re.sub(r"test_plan\.py:\d+", "LINE", golden().explain({"least": 2}))
    assert (
        text
        == """\
golden: 19 operators in 6 stages, 7 vertex actors, 256 key-groups
stage 'a' x1 (source, LINE)
  output 0: left, shared, enter -> union
stage 'b' x1 (input, LINE)
  output 0: right, shared, enter -> union
stage 'union' x1 (exchange, LINE) in loop 'it'
  output 0: again, feedback -> union; least.prepare -> least
stage 'least' x2 (vertex, LINE) in loop 'it'
  output 0: leave (-> broadcast; -> total)
stage 'broadcast' x1 (exchange, LINE)
  output 0: copy => copies
stage 'total' x1 (vertex, LINE)
  output 0: => out
edge 0: a->union port 0, forward; counted at entry 0 of scope 'it' (1)
edge 1: b->union port 0, forward; counted at entry 0 of scope 'it' (1)
edge 2: union->union port 0, forward (feedback: no credits, spills); counted at input 0 of 'union' (node 8)
edge 3: union->least port 0, keys of key; counted at input 0 of 'least' (node 11)
edge 4: least->broadcast port 0, broadcast; counted at input 0 of 'broadcast' (node 13)
edge 5: least->total port 0, keys of x,y; counted at input 0 of 'total' (node 16)"""
    )


def test_mermaid() -> None:
    assert (
        golden().to_mermaid({"least": 2})
        == """\
flowchart LR
  n0(["a x1"])
  n1(["b x1"])
  n2("left")
  n3("right")
  n4("both")
  n5("shared")
  n13["broadcast x1"]
  n14("copy")
  n15[/"copies"/]
  n16["total x1"]
  n17{{"seen"}}
  n18[/"out"/]
  subgraph s1["loop it"]
    n6("it.enter")
    n7("it.feedback")
    n8("union x1")
    n9("again")
    n10("least.prepare")
    n11["least x2"]
    n12("it.leave")
  end
  n0 --> n2
  n1 --> n3
  n2 --> n4
  n3 --> n4
  n4 --> n5
  n5 --> n6
  n9 -.-> n7
  n6 --> n8
  n7 --> n8
  n8 --> n9
  n8 --> n10
  n10 -->|"keys(key)"| n11
  n11 --> n12
  n12 -->|"broadcast"| n13
  n13 --> n14
  n14 --> n15
  n12 -->|"keys(x,y)"| n16
  n16 --> n17
  n16 --> n18
  style n0 stroke-width:3px
  style n1 stroke-width:3px
  style n8 stroke-width:3px
  style n11 stroke-width:3px
  style n13 stroke-width:3px
  style n16 stroke-width:3px
"""
    )


TEXT = r'"(?:[^"#&<>`\\\n]|#\d+;)*"'
SHAPE = rf"(?:\(\[{TEXT}\]\)|\({TEXT}\)|\[{TEXT}\]|\[/{TEXT}/\]|\{{\{{{TEXT}\}}\}})"
LINE = re.compile(
    rf"flowchart LR| *n\d+{SHAPE}| *subgraph s\d+\[{TEXT}\]| *end| *n\d+ (?:-->|-\.->)(?:\|{TEXT}\|)? n\d+| *style n\d+ stroke-width:3px"
)
ODD = ["end", "subgraph", "a - b", "style n0", "x.y", "0", "graph TD"]


def test_mermaid_is_valid_for_odd_names() -> None:
    """Labels are quoted. Quotes in them, and characters with a meaning in HTML or Markdown, are written as entities."""
    flow = rd.Dataflow("end")
    stream = flow.from_items([1], name="end")
    for i, name in enumerate(ODD[1:]):
        stream = stream.iterate(lambda inner: (inner, inner), name=name) if i % 2 else stream.map(identity, name=name)
    for column in ['a"b', "<b>", "`x`", "a|b", "a]b", "line\nbreak", "#35;", "\\"]:
        stream.key_by(column).vertex(rd.Vertex)
    stream.key_by(lambda n: n).vertex(rd.Vertex)
    text = flow.to_mermaid()
    assert [line for line in text.splitlines() if not LINE.fullmatch(line)] == []
    assert text.count("subgraph s") == text.count("\n  end") == 3
    assert '|"keys(#60;lambda#62;)"|' in text
    assert '|"keys(a#34;b)"|' in text
    assert '|"keys(line break)"|' in text


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_mermaid_of_every_program_is_valid(program: Program) -> None:
    text = program.flow().to_mermaid(2)
    assert [line for line in text.splitlines() if not LINE.fullmatch(line)] == []


def test_exchanges_and_loops_are_called_as_the_user_named_them() -> None:
    """Issue 28: ``name="slow"`` was shown as "rebalance", a loop as "union"."""

    def once(inner: rd.Stream[Any]) -> tuple[rd.Stream[Any], rd.Stream[Any]]:
        return inner.filter(bool).rebalance().map(identity), inner

    flow = rd.Dataflow("titles")
    numbers = flow.from_items([1])
    numbers.rebalance().map(identity, name="slow").collect("a")
    numbers.rebalance(name="spread").map(identity, name="quick").collect("b")
    numbers.rebalance().collect("c")
    numbers.iterate(once, max_rounds=2, name="rounds").collect("d")
    numbers.iterate(once, max_rounds=2).collect("e")
    plan = flow.plan()
    called = {stage.name: plan.called(stage.id) for stage in plan.stages if stage.kind is NodeKind.EXCHANGE}
    assert {name: called[name] for name in ("rebalance", "spread", "rebalance-2")} == {
        "rebalance": "slow",
        "spread": "spread",
        "rebalance-2": "rebalance-2",
    }
    assert plan.title(named(plan, "rebalance").id, 1) == "'slow'[1]"
    loops = {plan.called(edge.target) for edge in plan.edges if edge.is_feedback}
    assert loops == {"loop rounds", "loop"}


def test_a_vertex_is_rescaled_by_the_name_that_is_shown() -> None:
    flow = rd.Dataflow("titles")
    flow.from_items([1]).rebalance().map(identity, name="slow").collect("out")
    plan = flow.plan()
    assert wanted_replicas(plan, {"slow": 3}) == wanted_replicas(plan, {"rebalance": 3}) == {named(plan, "rebalance").id: 3}
