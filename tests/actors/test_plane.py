"""The data plane carries frames: each once, in order, without blocking the sender."""

from __future__ import annotations

import os
import random
import threading
from dataclasses import replace

import pytest

from rayad.actors.plane import event_loop
from rayad.actors.plane.plane import Frame, Plane
from rayad.actors.plane.poller import PortablePoller
from rayad.progress import ConfigError, ProtocolError
from tests.actors.planes import join, joined, new_plane, pump

both_transports = pytest.mark.parametrize("transport", ["unix", "tcp"])


@both_transports
def test_frames_go_both_ways_on_one_connection(transport: str) -> None:
    with joined(transport) as (a, b):
        a.send("b", 7, 3, b"hello")
        b.send("a", 8, 3, [b"to ", bytearray(b"you"), memoryview(b" too")])
        got = pump([a, b], lambda got: bool(got["a"] and got["b"]))
        assert got["b"] == [Frame("a", 7, 3, 0, b"hello", 1)]
        assert got["a"] == [Frame("b", 8, 3, 0, b"to you too", 1)]
        assert a.statistics().peers[0].transport == transport
        assert b.statistics().peers[0].transport == transport


@both_transports
@pytest.mark.parametrize("poller", ["epoll", "portable"])
def test_any_mixture_of_sizes_arrives_once_and_in_order(transport: str, poller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if poller == "portable":
        monkeypatch.setattr(event_loop, "new_poller", PortablePoller)
    rng = random.Random(5)
    sizes = [rng.choice([0, 1, 30, 4000, 5000, 16_360, 70_000, 900_000]) for _ in range(200)]
    data = rng.randbytes(900_000)
    with joined(transport) as (a, b):
        for n, size in enumerate(sizes):
            half = size // 2
            a.send("b", 1, n % 3, [memoryview(data)[:half], memoryview(data)[half:size]])
            b.send("a", 2, n % 2, data[:size])
        assert a.queued_bytes("b") > 0, "more than any socket buffer takes: send has not blocked"
        got = pump([a, b], lambda got: len(got["a"]) == len(got["b"]) == len(sizes))
        for frames, peer, channels in ((got["b"], "a", 3), (got["a"], "b", 2)):
            assert [bytes(frame.payload) == data[:size] for frame, size in zip(frames, sizes, strict=True)] == [True] * len(sizes)
            assert [(frame.peer, frame.channel, frame.sequence) for frame in frames] == [
                (peer, n % channels, n // channels) for n in range(len(sizes))
            ]
        assert a.queued_bytes("b") == b.queued_bytes("a") == 0
        sent, received = a.statistics().peers[0], b.statistics().peers[0]
        assert (sent.frames_out, sent.bytes_out) == (received.frames_in, received.bytes_in) == (200, sum(sizes) + 200 * 24)


def test_a_large_payload_is_a_writable_view_of_its_own_buffer_and_a_small_one_is_bytes() -> None:
    with joined() as (a, b):
        a.send("b", 1, 0, bytes(500_000))
        a.send("b", 1, 0, b"small")
        large, small = pump([a, b], lambda got: len(got["b"]) == 2)["b"]
        assert isinstance(large.payload, memoryview)
        assert large.payload.nbytes == 500_000
        assert type(small.payload) is bytes


def test_many_frames_come_with_one_poll() -> None:
    with joined() as (a, b):
        for n in range(100):
            a.send("b", 1, 0, b"%d" % n)
        assert [int(frame.payload) for frame in b.poll(1.0)] == list(range(100))
        assert b.poll(0) == []


@both_transports
def test_corked_frames_go_out_together_at_uncork_or_poll(transport: str) -> None:
    with joined(transport) as (a, b):
        a.cork()
        for n in range(1000):
            a.send("b", 1, 0, b"%d" % n)
        assert a.queued_bytes("b") > 1000 * 24
        assert b.poll(0.01) == []
        a.uncork()
        a.cork()
        a.send("b", 1, 0, b"1000")
        got = pump([a, b], lambda got: len(got["b"]) == 1001)
        assert [int(frame.payload) for frame in got["b"]] == list(range(1001))


def test_blocking_connect_serves_the_other_side_of_a_simultaneous_connect() -> None:
    with new_plane("a") as a, new_plane("b") as b:
        address_a, address_b = a.listen(), b.listen()
        thread = threading.Thread(target=lambda: b.connect("a", address_a))
        thread.start()
        a.connect("b", address_b)
        while thread.is_alive():
            assert a.poll(0.001) == []
        thread.join()
        pump([a, b], lambda _: a.connected("b") and b.connected("a"))
        for n in range(50):
            a.send("b", 1, 0, b"%d" % n)
            b.send("a", 1, 0, b"%d" % n)
        got = pump([a, b], lambda got: len(got["a"]) == len(got["b"]) == 50)
        assert [int(frame.payload) for frame in got["a"]] == [int(frame.payload) for frame in got["b"]] == list(range(50))
        a.close(linger_s=0)
        assert pump([b], lambda _: not b.connected("a")) == {"b": []}
        assert b.take_lost() == ["a"], "told once, though there were two connections"


def test_wakeup_from_another_thread_ends_a_blocked_poll() -> None:
    with new_plane("a") as a:
        thread = threading.Thread(target=a.wakeup)
        thread.start()
        assert a.poll(None) == []
        thread.join()
        a.wakeup()
        assert a.poll(None) == [], "a wakeup before the poll counts, too"
        assert a.poll(0) == []
    a.wakeup()


def test_spinning_gives_the_same_frames() -> None:
    with joined(spin_s=0.001) as (a, b):
        a.send("b", 1, 0, b"x")
        assert [frame.payload for frame in b.poll(None)] == [b"x"]
        assert b.poll(0.0001) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "0"])
def test_every_interface_is_refused(host: str) -> None:
    with new_plane("a") as a, pytest.raises(ConfigError, match="would listen on every interface"):
        a.listen(host)


def test_a_host_that_is_not_ours_is_refused() -> None:
    with new_plane("a") as a:
        with pytest.raises(ConfigError, match=r"cannot bind to 192\.0\.2\.1 .* is it an address of this node\?"):
            a.listen("192.0.2.1")
        a.listen()
        with pytest.raises(ConfigError, match="listens already"):
            a.listen()


def test_a_frame_to_an_unknown_peer_is_an_error_that_names_the_peers() -> None:
    with joined() as (a, _):
        with pytest.raises(ProtocolError) as caught:
            a.send("c", 1, 0, b"")
        assert str(caught.value) == "plane 'a' cannot send to 'c': connected are ['b']; call connect first"
        with pytest.raises(ProtocolError, match="kind must be in"):
            a.send("b", 256, 0, b"")
        with pytest.raises(ConfigError, match="cannot connect to itself"):
            a.connect("a", a.listen())


def open_descriptors() -> set[str]:
    return {f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}" for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}


@pytest.mark.parametrize("unix", ["abstract", "path", "off"])
def test_close_leaves_nothing_behind(unix: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = open_descriptors()
    a, b = new_plane("a"), new_plane("b")
    address = b.listen(unix=unix)
    if unix == "path":
        assert os.stat(os.path.dirname(address.unix)).st_mode & 0o777 == 0o700
    else:
        assert address.unix.startswith("\0") == (unix == "abstract")
    join(a, b, address)
    assert a.statistics().peers[0].transport == ("tcp" if unix == "off" else "unix")
    a.close()
    b.close()
    b.close()
    assert open_descriptors() == before
    assert os.listdir(str(tmp_path)) == []
    with pytest.raises(ProtocolError, match="closed"):
        b.poll(0)


@both_transports
def test_close_sends_what_is_queued(transport: str) -> None:
    payload = os.urandom(20_000_000)
    received: list[bytes] = []
    with new_plane("b") as b:
        address = b.listen()

        def receive() -> None:
            while not b.take_lost():
                received.extend(bytes(frame.payload) for frame in b.poll(1.0))
                for _ in range(3):
                    if b.connected("a"):
                        b.send("a", 9, 0, b"unread: a close that resets the connection would destroy what is on its way")

        thread = threading.Thread(target=receive)
        thread.start()
        a = new_plane("a")
        a.connect("b", address if transport == "unix" else address.without_unix())
        a.send("b", 1, 0, payload)
        a.close(linger_s=20.0)
        thread.join()
    assert received == [payload]


def test_close_gives_up_after_its_time() -> None:
    with joined(reconnect_s=0.01) as (a, b):
        a.send("b", 1, 0, bytes(20_000_000))
        a.close(linger_s=0.01)
        pump([b], lambda _: not b.connected("a"))
        assert b.take_lost() == ["a"]
        assert "inside a frame" in b.why_lost("a")


def test_addresses_pickle_and_tell_the_node() -> None:
    import pickle

    with new_plane("a") as a, new_plane("b") as b:
        first, second = a.listen(), b.listen("localhost")
        assert pickle.loads(pickle.dumps(first)) == first
        assert first.node == second.node != ""
        assert first.without_unix() == replace(first, unix="")


def test_loopback_of_another_node_is_refused_before_something_else_answers_there() -> None:
    with new_plane("a") as a, new_plane("b") as b:
        elsewhere = replace(b.listen(unix="off"), node="another node")
        with pytest.raises(ConfigError) as caught:
            a.connect("b", elsewhere)
        assert str(caught.value) == (
            "a process on another node listens at 127.0.0.1, which is loopback and means another place here: leave RunConfig(host=...) "
            "out, so that each node uses its own address, and let Ray know that address (ray start --node-ip-address=...)"
        )


def test_a_unix_socket_that_does_not_exist_is_replaced_by_tcp() -> None:
    """Machines that were cloned while they ran have one boot id, and each its first network namespace."""
    with new_plane("a") as a, new_plane("b") as b:
        cloned = replace(b.listen(unix="off"), unix="\0rayad-of-another-kernel")
        join(a, b, cloned)
        assert a.statistics().peers[0].transport == "tcp"


def test_plane_is_a_context_manager() -> None:
    with new_plane("a") as a:
        assert isinstance(a, Plane)
    with new_plane("b") as b, pytest.raises(ProtocolError, match="plane 'a' is closed; it cannot connect to 'b'"):
        a.connect("b", b.listen())
