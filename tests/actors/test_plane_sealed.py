"""Somebody between two nodes: whatever a relay does to frames, nothing of it is taken for a frame, and nothing can be read."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from dataclasses import replace

import pytest

from rayad.actors.plane.event_loop import allocate
from rayad.actors.plane.frames import HEADER, HEADER_BYTES, TAG_BYTES, Frame, FrameParser
from rayad.actors.plane.plane import Address, ConnectFailed, Plane
from rayad.actors.plane.seal import KEY_BYTES, Opener, Sealer
from rayad.progress import ProtocolError
from tests.actors.planes import join, joined, new_plane, pump, served

KEY = bytes(range(KEY_BYTES))


@pytest.mark.parametrize("seals", [(True, False), (False, True)])
def test_planes_that_disagree_about_encryption_say_so_and_do_not_connect(seals: tuple[bool, bool]) -> None:
    with new_plane("a", seals=seals[0]) as a, new_plane("b", seals=seals[1]) as b:
        address = b.listen()
        sealed, clear = ("a", "b") if seals[0] else ("b", "a")
        said = f"'b' refused the connection: {sealed!r} encrypts its frames and {clear!r} does not: RunConfig"
        with served(b), pytest.raises(ConnectFailed, match=said):
            a.connect("b", address.without_unix())
        assert not b.connected("a")
        join(a, b, address)  # a Unix socket needs no seal


class Relay:
    """Stands between two planes. ``change`` gets what the first has sent and gives what the second is given."""

    def __init__(self, target: Address) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._target = target
        self._ends: list[socket.socket] = []
        self.change: Callable[[bytes], bytes] = lambda data: data
        self.seen = b""

    @property
    def address(self) -> Address:
        return replace(self._target.without_unix(), port=self._listener.getsockname()[1])

    def turn(self) -> None:
        """Carry on what is there."""
        if not self._ends:
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return
            self._ends = [client, socket.create_connection((self._target.host, self._target.port))]
            for end in self._ends:
                end.setblocking(False)
        for source, sink, is_first in ((*self._ends, True), (*reversed(self._ends), False)):
            try:
                data = source.recv(1 << 20)
            except (BlockingIOError, ConnectionResetError):
                continue
            if is_first:
                self.seen += data
                data = self.change(data)
            sink.setblocking(True)
            if data:
                sink.sendall(data)
            sink.setblocking(False)

    def close(self) -> None:
        for sock in (self._listener, *self._ends):
            sock.close()


def through_relay(change: Callable[[bytes], bytes], send: Callable[[Plane], None], wanted: int) -> list[Frame]:
    """The frames that arrive of those that a plane sends through a relay that changes them. Raises what the receiver raises."""
    with new_plane("a", reconnect_s=0.0) as a, new_plane("b", reconnect_s=0.0) as b:
        relay = Relay(b.listen())
        try:
            a.start_connect("b", relay.address)

            def turn(_: object) -> bool:
                relay.turn()
                return a.connected("b") and b.connected("a")

            pump([a, b], turn)
            relay.change, relay.seen = change, b""
            send(a)
            got: list[Frame] = []
            for _ in range(2000):
                relay.turn()
                a.poll(0)
                got += b.poll(0.0005)
                if len(got) >= wanted or not b.connected("a"):
                    break
            return got
        finally:
            relay.close()
            for plane in (a, b):
                plane.close(linger_s=0)


def flipped(at: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return flip


FRAME = HEADER_BYTES + 5 + TAG_BYTES


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(flipped(HEADER_BYTES + 2), id="a byte of the payload is changed"),
        pytest.param(flipped(8), id="the channel is changed"),
        pytest.param(flipped(FRAME - 1), id="the tag is changed"),
        pytest.param(lambda data: data[:FRAME] * 2 + data[FRAME:], id="a frame is repeated"),
        pytest.param(lambda data: data[FRAME:], id="a frame is left out"),
        pytest.param(lambda data: data[FRAME : 2 * FRAME] + data[:FRAME] + data[2 * FRAME :], id="two change places"),
        pytest.param(lambda data: HEADER.pack(HEADER_BYTES + 5, 1, 0, 1, 0) + b"EVIL!" + data[HEADER_BYTES + 5 :], id="one is another's"),
    ],
)
def test_what_a_relay_does_to_a_frame_is_noticed(change: Callable[[bytes], bytes]) -> None:
    """Regression: frames had no tag, and a relay replaced one, whose code ran."""

    def send(plane: Plane) -> None:
        plane.cork()
        for number in range(3):
            plane.send("b", 1, number, b"ab%dcd" % number)
        plane.uncork()

    assert [frame.payload for frame in through_relay(lambda data: data, send, 3)] == [b"ab0cd", b"ab1cd", b"ab2cd"]
    with pytest.raises(ProtocolError, match="from 'a' on this connection was changed, repeated or left out on its way"):
        through_relay(change, send, 3)


def test_a_large_frame_that_is_changed_is_noticed() -> None:
    def send(plane: Plane) -> None:
        plane.send("b", 1, 0, random.Random(1).randbytes(100_000))

    seen = 0

    def change(data: bytes) -> bytes:
        nonlocal seen
        seen, begin = seen + len(data), seen
        return flipped(60_000 - begin)(data) if begin <= 60_000 < seen else data

    with pytest.raises(ProtocolError, match="its tag is wrong"):
        through_relay(change, send, 1)


def test_what_goes_between_nodes_cannot_be_read_and_what_stays_on_one_is_not_sealed() -> None:
    seen: list[bytes] = []

    def look(data: bytes) -> bytes:
        seen.append(data)
        return data

    def send(plane: Plane) -> None:
        plane.send("b", 1, 0, b"the secret of the record" * 3)
        plane.send("b", 1, 0, b"the secret of the record" * 3000)

    assert len(through_relay(look, send, 2)) == 2
    assert b"secret" not in b"".join(seen)
    with joined("unix") as (a, _):
        assert all(link.sealer is None for link in a._links.values())


def test_a_key_is_good_for_one_direction_of_one_connection() -> None:
    keys = set()
    for _ in range(3):
        with joined("tcp") as (a, b):
            for plane in (a, b):
                (link,) = plane._links.values()
                assert link.sealer is not None
                keys.add(bytes(link.sealer.small(HEADER.pack(HEADER_BYTES, 1, 0, 1, 0))))
    assert len(keys) == 6


@pytest.mark.parametrize("pieces", [1, 7, 100, 5_000, 10**9])
def test_sealed_frames_do_not_depend_on_how_the_stream_is_cut(pieces: int) -> None:
    rng = random.Random(pieces)
    payloads = [rng.randbytes(rng.choice([0, 1, 100, 16_000, 16_384, 65_536, 300_000])) for _ in range(30 if pieces > 7 else 4)]
    sealer = Sealer(KEY, allocate)
    headers = [HEADER.pack(len(data) + HEADER_BYTES, 1, 0, 1, at) for at, data in enumerate(payloads)]
    sealed = [
        (sealer.large(header, [data[:9], data[9:]]) if len(data) > 100 else sealer.small(header + data))
        for header, data in zip(headers, payloads, strict=True)
    ]
    stream = b"".join(sealed)
    parser = FrameParser("a", opener=Opener(KEY, "a", allocate))
    frames = [frame for at in range(0, len(stream), pieces) for frame in parser.feed(stream[at : at + pieces])]
    assert [bytes(frame.payload) for frame in frames] == payloads
    assert [frame.sequence for frame in frames] == list(range(len(payloads)))
    assert parser.buffered_bytes == 0
