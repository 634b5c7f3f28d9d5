"""Which nodes new replicas of a running job go to."""

from __future__ import annotations

from rayad.actors.coordinator.placement import Node, places

A, B, C = (Node(name, f"10.0.0.{i}", {"CPU": 4.0}) for i, name in enumerate("abc", 1))
OF_VERTICES = {"v1": {"CPU": 1.0}, "v2": {"CPU": 1.0, "GPU": 1.0}, "v3": dict[str, float]()}
NEEDS = {f"{vertex}.{replica}": needs for vertex, needs in OF_VERTICES.items() for replica in range(4)}


def test_a_machine_that_has_joined_gets_replicas() -> None:
    there = {"v1.0": A.address, "v1.1": B.address, "v3.0": A.address, "v3.1": B.address}
    assert places(["v1.2", "v1.3"], there, [A, B, C], NEEDS) == {"v1.2": "c", "v1.3": "c"}, "two each"
    assert places(["v1.2"], there, [A, B], NEEDS) == {"v1.2": "a"}
    assert places(["v1.2", "v1.3", "v3.2"], {}, [A, B, C], NEEDS) == {"v1.2": "a", "v1.3": "b", "v3.2": "c"}


def test_of_two_nodes_with_as_many_of_the_vertex_the_one_with_fewer_of_the_job() -> None:
    assert places(["v1.2"], {"v1.0": A.address, "v1.1": B.address, "v3.0": A.address}, [A, B], NEEDS) == {"v1.2": "b"}


def test_only_nodes_that_have_what_it_asks_for() -> None:
    gpus = Node("g", "10.0.0.9", {"CPU": 2.0, "GPU": 1.0})
    assert places(["v2.1", "v1.1"], {"v2.0": gpus.address}, [A, gpus], NEEDS) == {"v2.1": "g", "v1.1": "a"}
    assert places(["v2.1", "v1.1"], {}, [A], NEEDS) == {"v1.1": "a"}, "no node can hold the first: Ray says so"
    assert places(["v3.1"], {}, [], NEEDS) == {}


def test_two_nodes_at_one_address_take_turns() -> None:
    twin = Node("twin", A.address, A.resources)
    assert places(["v1.1", "v1.2"], {"v1.0": A.address}, [A, twin], NEEDS) == {"v1.1": "a", "v1.2": "twin"}


def test_workers_are_spread() -> None:
    needs = {f"w{number}": {"CPU": 1.0} for number in range(4)}
    assert places(["w2", "w3"], {"w0": A.address, "w1": B.address, "v1.0": A.address}, [A, B, C], needs) == {"w2": "c", "w3": "b"}
