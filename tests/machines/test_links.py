"""The machines themselves: they work as described, and nothing of them remains, however the run that made them ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.machines import links, sockets

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


@pytest.fixture
def network() -> Iterator[links.Network]:
    """Three machines of this process."""
    prefix = f"ry{os.getpid():x}"
    if any(name.startswith(prefix) for name in links.namespaces()):
        pytest.skip("this process has machines")
    made = links.Network(prefix)
    try:
        for machine in (1, 2, 3):
            made.add(machine)
        yield made
    finally:
        links.remove(prefix)


class Echo:
    """A process on a machine that sends a datagram to a machine for each line that it is told, and prints those that it gets."""

    SCRIPT = """
import socket, sys, threading
wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
wire.bind((sys.argv[1], 7))
print("ready", flush=True)
def listen():
    while True:
        print(wire.recv(100).decode(), flush=True)
threading.Thread(target=listen, daemon=True).start()
for line in sys.stdin:
    text, address = line.split()
    wire.sendto(text.encode(), (address, 7))
"""

    def __init__(self, network: links.Network, machine: int) -> None:
        self.network, self.machine = network, machine
        place = ["ip", "netns", "exec", network.name(machine), sys.executable, "-u", "-c", self.SCRIPT, network.address(machine)]
        self.process = subprocess.Popen(place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.heard() == "ready"

    def tell(self, text: str, machine: int) -> None:
        assert self.process.stdin is not None
        print(text, self.network.address(machine), file=self.process.stdin, flush=True)

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def test_what_one_machine_sends_to_another_is_lost_and_counted_and_nothing_else_is(network: links.Network) -> None:
    one, two, three = (Echo(network, machine) for machine in (1, 2, 3))
    try:
        one.tell("before", 2)
        assert two.heard() == "before"
        network.lose(1, 2)
        one.tell("lost", 2)
        one.tell("to-the-third", 3)
        assert three.heard() == "to-the-third"
        two.tell("the-other-way", 1)
        three.tell("of-the-third", 2)
        assert one.heard() == "the-other-way"
        assert two.heard() == "of-the-third", "not what the first one sent"
        assert network.lost(1, 2) == 1
        network.find(1, 2)
        one.tell("after", 2)
        assert two.heard() == "after"
        network.lose(1, 2)
        assert network.lost(1, 2) == 0, "counted from its own beginning"
    finally:
        for end in (one, two, three):
            end.process.kill()
            end.process.communicate()


SERVE = """
import socket, sys
place = socket.create_server((sys.argv[1], 7))
print("ready", flush=True)
ends = [place.accept()[0] for _ in range(2)]
print("accepted", flush=True)
"""
CALL = """
import socket, sys
ends = [socket.create_connection((sys.argv[1], 7)) for _ in range(2)]
print("ready", flush=True)
"""
TELL = """
input()
for end in ends:
    end.settimeout(0.2)
    try:
        print(end.recv(1))
    except OSError as error:
        print(type(error).__name__, flush=True)
input()
"""


def test_one_of_two_connections_of_a_process_on_a_machine_is_reset_at_both_ends(network: links.Network) -> None:
    ends = []
    try:
        for machine, script in ((1, SERVE), (2, CALL)):
            place = ["ip", "netns", "exec", network.name(machine), sys.executable, "-u", "-c", script + TELL, network.address(1)]
            ends.append(subprocess.Popen(place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            assert ends[-1].stdout is not None
            assert ends[-1].stdout.readline() == "ready\n"
        server, client = ends
        assert server.stdout is not None
        assert server.stdout.readline() == "accepted\n", "until then the kernel has one that nobody holds"
        both = sorted(sockets.between(client.pid, server.pid), key=lambda one: one.fd)
        assert [(one.here[0], one.there) for one in both] == [(network.address(2), (network.address(1), 7))] * 2
        assert sockets.between(server.pid, client.pid) != []
        assert sockets.reset(client.pid, both[0])
        assert not sockets.reset(client.pid, both[0]), "it is not there any more"
        assert sockets.between(client.pid, server.pid) == both[1:]
        for end in ends:
            assert end.stdin is not None
            assert end.stdout is not None
            print(file=end.stdin, flush=True)
            assert [end.stdout.readline() for _ in range(2)] == ["ConnectionResetError\n", "TimeoutError\n"]
    finally:
        for end in ends:
            end.kill()
            end.communicate()


def test_machines_share_no_loopback_and_no_abstract_socket_and_can_be_cut_off(network: links.Network) -> None:
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
