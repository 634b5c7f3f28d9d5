"""A lost connection between two live processes is replaced, and no frame is lost; a busy peer does not count as dead, a dead one does."""

from __future__ import annotations

import random
import socket
import time

import pytest

from rayad.actors.plane import event_loop
from rayad.actors.plane.event_loop import ACKNOWLEDGE_FRAMES
from rayad.actors.plane.plane import Plane
from rayad.progress import ProtocolError
from tests.actors.planes import join, joined, new_plane, pump

both_transports = pytest.mark.parametrize("transport", ["unix", "tcp"])


def break_off(plane: Plane, peer: str) -> None:
    """Close the connection's socket without the planes' knowledge."""
    link = plane._peers[peer].link
    assert link is not None
    link.sock.shutdown(socket.SHUT_RDWR)


@both_transports
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_closed_connection_is_replaced_and_every_frame_comes_once_and_in_order(transport: str, side: str) -> None:
    rng = random.Random(side)
    sizes = [rng.choice([0, 1, 300, 5000, 70_000, 400_000]) for _ in range(120)]
    data = rng.randbytes(400_000)
    with joined(transport) as (a, b):
        got: dict[str, list[bytes]] = {"a": [], "b": []}
        for n, size in enumerate(sizes):
            for sender, peer in ((a, "b"), (b, "a")):
                sender.send(peer, 1, n % 3, data[:size])
            if n % 20 == 7:
                plane, other = (a, "b") if side == "a" else (b, "a")
                if plane._peers[other].link is not None:
                    break_off(plane, other)
            for plane in (a, b):
                got[plane.name] += [bytes(frame.payload) for frame in plane.poll(0)]
        late = pump([a, b], lambda late: all(len(got[name]) + len(late[name]) == len(sizes) for name in got))
        for name in got:
            assert [len(one) for one in got[name]] + [len(frame.payload) for frame in late[name]] == sizes
        assert a.statistics().peers[0].resumed >= 2
        assert a.statistics().peers[0].frames_in == b.statistics().peers[0].frames_in == len(sizes), "none is counted twice"
        assert a.take_lost() == b.take_lost() == []


@both_transports
def test_frames_sent_while_there_is_no_connection_arrive(transport: str) -> None:
    with joined(transport) as (a, b):
        assert a.broken() == {}
        break_off(a, "b")
        a.poll(0.01)
        assert a.connected("b"), "it will be there again"
        assert list(a.broken()) == ["b"]
        a.send("b", 1, 0, b"meanwhile")
        assert a.queued_bytes("b") == 24 + len("meanwhile")
        assert [frame.payload for frame in pump([a, b], lambda got: bool(got["b"]))["b"]] == [b"meanwhile"]


def test_after_a_simultaneous_connect_one_side_connects_again() -> None:
    with new_plane("a") as a, new_plane("b") as b:
        address_a, address_b = a.listen(), b.listen()
        a.start_connect("b", address_b)
        b.start_connect("a", address_a)
        pump([a, b], lambda _: a.connected("b") and b.connected("a") and not a._pending and not b._pending)
        for _ in range(3):
            for n in range(10):
                a.send("b", 1, 0, b"%d" % n)
                b.send("a", 1, 0, b"%d" % n)
            break_off(a, "b")
            got = pump([a, b], lambda got: len(got["a"]) == len(got["b"]) == 10)
            assert [int(frame.payload) for frame in got["a"]] == [int(frame.payload) for frame in got["b"]] == list(range(10))


def test_frames_are_kept_only_until_they_have_arrived() -> None:
    with joined() as (a, b):
        for _ in range(20):
            for n in range(ACKNOWLEDGE_FRAMES):
                a.send("b", 1, 0, b"%d" % n)
            b.poll(1.0)
            a.poll(0)
        assert a.statistics().peers[0].unacknowledged < ACKNOWLEDGE_FRAMES
        a.send("b", 1, 0, bytes(3_000_000))
        pump([a, b], lambda got: bool(got["b"]) and not a._peers["b"].kept)


def test_acknowledging_frames_that_were_not_sent_breaks_the_protocol() -> None:
    with joined() as (a, b):
        state = b._peers["a"]
        state.received = 7
        b._acknowledge(state)
        with pytest.raises(ProtocolError, match="'b' says that 7 frames have arrived; 0 were sent"):
            a.poll(1.0)
        assert a.take_lost() == ["b"]


def test_a_dead_process_is_lost_at_once_for_the_side_that_connected() -> None:
    with new_plane("a") as a:
        b = new_plane("b")
        join(a, b, b.listen())
        break_off(a, "b")  # as when the process is killed: no goodbye
        b._listeners.close()  # type: ignore[union-attr]
        pump([a], lambda _: a.take_lost() == ["b"], timeout_s=5.0)
        assert a.why_lost("b").startswith("the peer closed the connection; ")
        assert "Connection refused" in a.why_lost("b")
        assert not a.has_left("b")
        b.close(linger_s=0)


def test_a_peer_that_does_not_come_back_is_given_up_in_time_and_may_not_come_later() -> None:
    with joined(reconnect_s=0.05) as (a, b):
        a._peers["b"].address = None
        a._reconnect_s = 30.0
        break_off(b, "a")
        pump([b], lambda _: not b.connected("a"))
        assert b.take_lost() == ["a"]
        assert b.why_lost("a") == "the peer closed the connection, and within 0.05 s there was no other one"
        assert b._listeners is not None
        a._peers["b"].address = b._listeners.address
        pump([a, b], lambda _: a.take_lost() == ["b"])
        assert "'b' refused the connection: the connection with 'a' was lost and given up" in a.why_lost("b")


def test_a_closed_plane_has_left_and_is_not_waited_for() -> None:
    with joined() as (a, b):
        b.close(linger_s=0)
        pump([a], lambda _: not a.connected("b"), timeout_s=5.0)
        assert a.take_lost() == ["b"]
        assert a.has_left("b")


def test_a_receiver_that_is_busy_for_longer_than_a_dead_one_is_waited_for_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: TCP_USER_TIMEOUT of 30 s ended such connections, although the receiver's kernel answers that its buffer is full."""
    monkeypatch.setattr(event_loop, "SILENT_S", 1.5)
    monkeypatch.setattr(event_loop, "LOOK_S", 0.01)
    with joined("tcp") as (a, b):
        link = a._peers["b"].link
        assert link is not None
        assert link.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
        payload = bytes(40_000_000)
        a.send("b", 1, 0, payload)
        stop_s = time.monotonic() + 2.5
        while time.monotonic() < stop_s:
            a.poll(0.05)
        assert a.queued_bytes("b") > 0
        assert a.take_lost() == []
        assert [frame.payload.nbytes for frame in pump([a, b], lambda got: bool(got["b"]))["b"]] == [len(payload)]  # type: ignore[union-attr]
        assert a.statistics().peers[0].resumed == 0
