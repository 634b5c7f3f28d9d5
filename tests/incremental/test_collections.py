"""Collections give after each epoch what is computed from all records that are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from tests.incremental.disturbed import run_disturbed
from tests.incremental.programs import PROGRAMS, Kept, Shape, history
from tests.thorough import amount, examples

EACH = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


@EACH
@pytest.mark.parametrize("seed", range(amount(each_run=4, soak=200)))
def test_tables_are_right_after_each_epoch(program: Kept, seed: int) -> None:
    changes = history(program.shape, seed)
    result = program.flow(changes).run(runtime="local", seed=seed, parallelism=1 + seed % 3)
    program.verify(changes, result["out"])


@EACH
@pytest.mark.parametrize("seed", range(amount(each_run=4, soak=200)))
def test_neither_failures_nor_changes_of_layout_between_moments_change_tables(program: Kept, seed: int, tmp_path: Path) -> None:
    job = run_disturbed(program, history(program.shape, seed), seed, tmp_path)
    if program.name == "components":
        assert job.runtime.recoveries
        assert job.snapshots is not None
        assert job.snapshots.taken


def test_what_goes_round_is_consolidated_only_where_nothing_on_the_way_adds_it_up() -> None:
    found = {}
    for program in PROGRAMS:
        nodes = program.flow([[]]).graph.nodes
        found[program.name] = sum(node.name.startswith("consolidate") and node.scope > 0 for node in nodes)
    assert {"reach": 0, "both ways": 0, "components": 0, "walks": 1, "even": 1}.items() <= found.items()


# -- random programs ------------------------------------------------------------------------------------------
Program = tuple[Any, ...]
"""An operator and its parts; leaves are the input and the variable of the innermost loop."""
Table = Counter[Any]
NODES = 4


def merged(edge: tuple[int, int]) -> tuple[int, int]:
    """A function that gives one record for several."""
    return edge[1], (edge[0] + edge[1]) % NODES


def is_ascending(edge: tuple[int, int]) -> bool:
    return edge[0] < edge[1]


def composed(met: Any) -> tuple[int, int]:
    """Of two edges end to start."""
    return met[1][0][0], met[1][1][1]


def built(program: Program, edges: rd.Collection, inner: rd.Collection) -> rd.Collection:
    """The program on collections."""
    what, *rest = program
    if what in ("edges", "inner"):
        return edges if what == "edges" else inner
    if what == "iterate":
        start, body, rounds = rest
        return built(start, edges, inner).iterate(lambda variable: built(body, edges, variable), max_rounds=rounds)
    one, *others = (built(part, edges, inner) for part in rest)
    made: dict[str, Callable[[], rd.Collection]] = {
        "map": lambda: one.map(merged),
        "filter": lambda: one.filter(is_ascending),
        "distinct": lambda: one.distinct(),
        "count": lambda: one.key_by(lambda e: e[0]).count().map(lambda pair: (pair[0], pair[1] % NODES)),
        "max": lambda: one.key_by(lambda e: e[0]).max(lambda e: e[1]),
        "concat": lambda: one.concat(*others).distinct(),
        "except": lambda: one.except_(*others),
        "intersect": lambda: one.intersect(*others),
        "compose": lambda: one.key_by(lambda e: e[1]).join(others[0].key_by(lambda e: e[0])).map(composed).distinct(),
        "semi": lambda: one.key_by(lambda e: e[1]).join(others[0].arrange_by(lambda e: e[0]), "semi").map(lambda pair: pair[1]),
        "anti": lambda: one.key_by(lambda e: e[1]).join(others[0].key_by(lambda e: e[0]), "anti").map(lambda pair: pair[1]),
    }
    return made[what]()


def computed(program: Program, edges: Table, inner: Table) -> Table:
    """The same from scratch."""
    what, *rest = program
    if what in ("edges", "inner"):
        return edges if what == "edges" else inner
    if what == "iterate":
        start, body, rounds = rest
        variable = computed(start, edges, inner)
        for _ in range(rounds):
            variable = computed(body, edges, variable)
        return variable
    one, *others = (computed(part, edges, inner) for part in rest)
    other: Table = others[0] if others else Counter()
    sources = {a for a, _ in other}
    out: Table = Counter()
    if what == "map":
        for edge, weight in one.items():
            out[merged(edge)] += weight
    elif what == "count":
        for a in {a for a, _ in one}:
            out[a, sum(weight for (b, _), weight in one.items() if b == a) % NODES] += 1
    elif what == "max":
        out.update({(a, max(b for c, b in one if c == a)) for a, _ in one})
    elif what in ("filter", "semi", "anti"):
        kept = {"filter": is_ascending, "semi": lambda e: e[1] in sources, "anti": lambda e: e[1] not in sources}[what]
        out.update({edge: weight for edge, weight in one.items() if kept(edge)})
    else:
        both: dict[str, Callable[[], set[Any]]] = {
            "distinct": lambda: set(one),
            "concat": lambda: set(one) | set(other),
            "except": lambda: set(one) - set(other),
            "intersect": lambda: set(one) & set(other),
            "compose": lambda: {(a, d) for a, b in one for c, d in other if b == c},
        }
        out.update(both[what]())
    return out


def programs() -> st.SearchStrategy[Program]:
    """Of up to a dozen operators; loops in loops are likely."""
    leaves = st.sampled_from([("edges",), ("inner",)])

    def larger(parts: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
        one = st.tuples(st.sampled_from(["map", "filter", "distinct", "count", "max"]), parts)
        two = st.tuples(st.sampled_from(["concat", "except", "intersect", "compose", "semi", "anti"]), parts, parts)
        return one | two | st.tuples(st.just("iterate"), parts, parts, st.integers(1, 5))

    return st.recursive(leaves, larger, max_leaves=7)


@examples(each_run=24, soak=10_000)
@given(program=programs(), seed=st.integers(0, 1 << 20), epochs=st.integers(1, 6))
def test_random_programs_give_what_is_computed_from_scratch(program: Program, seed: int, epochs: int) -> None:
    """Loops in loops over insertions and removals, with kills, restores and changes of layout between any two moments."""

    def table(there: Counter[Any]) -> dict[Any, int]:
        return {record: weight for record, weight in computed(program, there, there).items() if weight}

    kept = Kept("random", lambda edges: built(program, edges, edges), table, Shape(NODES, 5, epochs))
    with TemporaryDirectory() as folder:
        run_disturbed(kept, history(kept.shape, seed), seed, Path(folder), steps=4000)
