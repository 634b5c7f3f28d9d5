"""The machines themselves: they work as described, and nothing of them remains, however the run that made them ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.machines import links

pytestmark = pytest.mark.cluster

OWNER = """
import os, sys, time
from tests.machines import guard, links
prefix = f"ry{os.getpid():x}"
if sys.argv[1] == "guarded":
    kept = guard.start(prefix, "/nonexistent/folder")
network = links.Network(prefix)
network.add(1)
network.add(2)
print(network.net, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    reason = links.why_not()
    if reason:
        pytest.skip(f"no machines can be made here: {reason}")


class Owner:
    """A process that has made two machines."""

    def __init__(self, how: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", OWNER, how], stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self.process.stdout is not None
        self.net = self.process.stdout.readline().strip()
        self.prefix = f"ry{self.process.pid:x}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def left(self) -> list[str]:
        return [name for name in (*links.namespaces(), *links.links()) if name.startswith(self.prefix)]


@pytest.fixture
def owner() -> Iterator[Callable[[str], Owner]]:
    made: list[Owner] = []

    def make(how: str) -> Owner:
        made.append(Owner(how))
        return made[-1]

    yield make
    for one in made:
        one.kill()
        links.remove(one.prefix)


def test_what_a_killed_run_has_made_is_removed_by_its_guard(owner: Callable[[str], Owner]) -> None:
    run = owner("guarded")
    assert len(run.left()) == 5, "two namespaces, two links, a bridge"
    run.kill()
    deadline_s = time.monotonic() + 30
    while run.left():
        assert time.monotonic() < deadline_s, run.left()
        time.sleep(0.05)


def test_what_a_killed_run_and_its_guard_have_left_is_removed_by_the_next_run(owner: Callable[[str], Owner]) -> None:
    living, dead = owner("alone"), owner("alone")
    assert living.net != dead.net, "two runs at once have subnets of their own"
    dead.kill()
    links.remove_stale()
    assert dead.left() == []
    assert len(living.left()) == 5


def test_machines_share_no_loopback_and_no_abstract_socket_and_can_be_cut_off() -> None:
    prefix = f"ry{os.getpid():x}"
    if any(name.startswith(prefix) for name in links.namespaces()):
        pytest.skip("this process has machines")
    network = links.Network(prefix)
    try:
        for machine in (1, 2):
            network.add(machine)
        script = "import socket, sys; s = socket.create_server((sys.argv[1], 7)); u = socket.socket(socket.AF_UNIX); "
        script += "u.bind('\\0x'); u.listen(); print('ready', flush=True); s.accept(); s.accept()"
        place = ["ip", "netns", "exec", network.name(1), sys.executable, "-c", script, network.address(1)]
        with subprocess.Popen(place, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"

            def reach(address: str) -> str:
                looking = "import socket, sys\ntry: socket.create_connection((sys.argv[1], 7), timeout=0.5); print('there')\n"
                looking += "except OSError as error: print(type(error).__name__)\n"
                looking += "try: socket.socket(socket.AF_UNIX).connect('\\0x'); print('shared')\nexcept OSError: print('apart')"
                return links.call("ip", "netns", "exec", network.name(2), sys.executable, "-c", looking, address)

            assert reach(network.address(1)) == "there\napart\n"
            assert reach("127.0.0.1") == "ConnectionRefusedError\napart\n"
            network.cut(1)
            assert reach(network.address(1)).split()[0] in ("TimeoutError", "OSError")
            network.mend(1)
            assert reach(network.address(1)).split()[0] == "there"
            server.kill()
    finally:
        links.remove(prefix)
