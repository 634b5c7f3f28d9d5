"""Which nodes new processes of a job go to, and which they keep away from."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from rayad.actors.lead.nodes.known import FORGIVEN_S, KnownNodes
from rayad.actors.lead.nodes.node import Node
from rayad.dataflow.resources import holds

A, B, C = (Node(name, f"10.0.0.{i}", {"CPU": 4.0}) for i, name in enumerate("abc", 1))
OF_VERTICES = {"v1": {"CPU": 1.0}, "v2": {"CPU": 1.0, "GPU": 1.0}, "v3": dict[str, float]()}
NEEDS = {f"{vertex}.{replica}": needs for vertex, needs in OF_VERTICES.items() for replica in range(4)}


def chosen(newcomers: list[str], there: dict[str, str], nodes: list[Node], needs: dict[str, dict[str, float]] = NEEDS) -> dict[str, str]:
    return KnownNodes().choose(newcomers, there, nodes, needs, 0.0)


def test_a_machine_that_has_joined_gets_replicas() -> None:
    there = {"v1.0": "a", "v1.1": "b", "v3.0": "a", "v3.1": "b"}
    assert chosen(["v1.2", "v1.3"], there, [A, B, C]) == {"v1.2": "c", "v1.3": "c"}, "two each"
    assert chosen(["v1.2"], there, [A, B]) == {"v1.2": "a"}
    assert chosen(["v1.2", "v1.3", "v3.2"], {}, [A, B, C]) == {"v1.2": "a", "v1.3": "b", "v3.2": "c"}


def test_of_two_nodes_with_as_many_of_the_vertex_the_one_with_fewer_of_the_job() -> None:
    assert chosen(["v1.2"], {"v1.0": "a", "v1.1": "b", "v3.0": "a"}, [A, B]) == {"v1.2": "b"}


def test_of_two_nodes_with_as_many_of_the_job_the_one_that_is_freer() -> None:
    busy = dataclasses.replace(A, free={"CPU": 1.0})
    assert chosen(["v1.0"], {}, [busy, B]) == {"v1.0": "b"}


def test_a_node_with_room_now_comes_before_one_with_fewer_of_the_vertex() -> None:
    full = dataclasses.replace(A, free={"CPU": 0.5})
    assert chosen(["v1.2"], {"v1.0": "b", "v1.1": "b"}, [full, B]) == {"v1.2": "b"}
    assert chosen(["v1.2"], {"v1.0": "a"}, [full]) == {"v1.2": "a"}, "it waits where it could be"


def test_only_nodes_that_have_what_it_asks_for() -> None:
    gpus = Node("g", "10.0.0.9", {"CPU": 2.0, "GPU": 1.0})
    assert chosen(["v2.1", "v1.1"], {"v2.0": "g"}, [A, gpus]) == {"v2.1": "g", "v1.1": "a"}
    assert chosen(["v2.1", "v1.1"], {}, [A]) == {"v1.1": "a"}, "no node can hold the first: Ray says so"
    assert chosen(["v3.1"], {}, []) == {}


def test_two_nodes_at_one_address_are_two() -> None:
    twin = Node("twin", A.address, A.resources)
    assert chosen(["v1.1", "v1.2"], {"v1.0": "a"}, [A, twin]) == {"v1.1": "twin", "v1.2": "a"}


def test_workers_are_spread() -> None:
    needs = {f"w{number}": {"CPU": 1.0} for number in range(4)}
    assert chosen(["w2", "w3"], {"w0": "a", "w1": "b", "v1.0": "a"}, [A, B, C], needs) == {"w2": "c", "w3": "b"}


def test_a_silent_node_gets_nothing_until_it_answers() -> None:
    """Regression: Ray took a minute to notice that a machine was stopped, and it got the actor again: 64 s without progress."""
    known = KnownNodes()
    assert known.on_given_up("b", [8.5, 6.0], 8.0, 100.0), "nobody there has answered for long"
    assert known.avoided([A, B], 110.0) == {"b": "nobody of this job on node 10.0.0.2 answered 10 s ago"}
    assert known.choose(["v1.0", "v1.1"], {}, [A, B], NEEDS, 110.0) == {"v1.0": "a", "v1.1": "a"}
    assert known.choose(["v1.0"], {}, [B], NEEDS, 110.0) == {}, "rather nowhere than there"
    known.on_answer("b")
    assert known.choose(["v1.0", "v1.1"], {}, [A, B], NEEDS, 111.0) == {"v1.0": "a", "v1.1": "b"}


def test_a_process_that_is_stopped_beside_one_that_answers_does_not_make_its_node_silent() -> None:
    known = KnownNodes()
    assert not known.on_given_up("b", [8.5, 2.0], 8.0, 100.0)
    assert known.avoided([A, B], 100.0) == {}


def test_a_node_that_is_alive_for_ray_long_after_it_was_silent_is_forgiven() -> None:
    known = KnownNodes()
    assert known.on_given_up("b", [8.5], 8.0, 0.0)
    assert list(known.avoided([A, B], FORGIVEN_S - 1)) == ["b"]
    assert known.avoided([A, B], FORGIVEN_S) == {}


def test_a_machine_that_was_switched_on_again_is_another_node() -> None:
    known = KnownNodes()
    assert known.on_given_up("b", [8.5], 8.0, 0.0)
    again = Node("b2", B.address, B.resources)
    assert known.choose(["v1.0"], {"v1.1": "a"}, [A, again], NEEDS, 5.0) == {"v1.0": "b2"}


def test_a_node_that_drains_gets_nothing() -> None:
    known = KnownNodes()
    leaving, some_time = dataclasses.replace(A, leaves_in_s=30.4), dataclasses.replace(B, leaves_in_s=float("inf"))
    assert known.choose(["v1.0"], {}, [leaving, some_time, C], NEEDS, 0.0) == {"v1.0": "c"}
    assert known.told([leaving, some_time, C], 0.0) == "node 10.0.0.1 drains and goes in 30 s; node 10.0.0.2 drains"


def test_who_has_no_room_is_known() -> None:
    nodes = [dataclasses.replace(A, free={"CPU": 1.5}), dataclasses.replace(B, leaves_in_s=9.0), dataclasses.replace(C, free={"CPU": 1.0})]
    needs = {f"w{number}": {"CPU": 1.0} for number in range(4)}
    assert KnownNodes().without_room(["w3", "w1", "w2"], nodes, needs, 0.0) == ["w3"], "two nodes have room for one each"
    assert KnownNodes().without_room(["w0", "w1"], nodes, needs, 0.0) == []


@given(
    cpus=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    silent=st.sets(st.integers(0, 4)),
    drains=st.sets(st.integers(0, 4)),
    count=st.integers(1, 8),
    each=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
)
def test_laws_of_the_choice(cpus: list[int], silent: set[int], drains: set[int], count: int, each: float) -> None:
    known = KnownNodes()
    nodes = [Node(str(i), f"10.0.0.{i}", {"CPU": float(cpu)}, leaves_in_s=5.0 if i in drains else None) for i, cpu in enumerate(cpus)]
    for i in silent:
        known.on_given_up(str(i), [9.0], 8.0, 0.0)
    needs = {f"w{i}": {"CPU": each} if each else {} for i in range(count)}
    found = known.choose(list(needs), {}, nodes, needs, 1.0)
    able = {node.id for node in nodes if int(node.id) not in silent | drains and holds(node.resources, {"CPU": each})}
    assert set(found.values()) <= able, "never on a node that is avoided"
    assert set(found) == (set(needs) if able else set()), "all or none, since all ask for the same"
    placed = [list(found.values()).count(node) for node in able]
    if able and (not each or all(known_room >= count * each for known_room in (cpus[int(node)] for node in able))):
        assert max(placed) - min(placed) <= 1, "spread evenly where there is room"
