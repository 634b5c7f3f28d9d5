"""Jobs on machines with addresses of their own, whose links are cut, and which die."""

from __future__ import annotations

import collections

import pytest

from tests.machines import jobs
from tests.machines.machines import Machines

pytestmark = pytest.mark.cluster


def test_each_actor_listens_on_its_own_nodes_address_and_replicas_are_spread(machines: Machines) -> None:
    machines.call(jobs.submit_counting, "spread", 100)
    hosts = machines.call(jobs.hosts, "spread")
    assert collections.Counter(hosts.values()) == {machines.network.address(1): 2, machines.network.address(2): 2}, hosts
    assert machines.call(jobs.finish, "spread", 60) == jobs.counted(100)
