"""Frames are the same however the stream is cut; frames out of order are noticed."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.actors.plane.frames import (
    CHUNK_BYTES,
    HEADER,
    HEADER_BYTES,
    LARGE_PAYLOAD_BYTES,
    PAYLOAD_BYTES_MAX,
    Frame,
    FrameParser,
    ReceiveOrder,
    pack_header,
)
from rayad.progress import ProtocolError

payloads = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [LARGE_PAYLOAD_BYTES - HEADER_BYTES - 1, LARGE_PAYLOAD_BYTES, CHUNK_BYTES - 24, CHUNK_BYTES - 23, CHUNK_BYTES, 200_000]
    ).map(lambda size: bytes(range(251)) * (size // 251) + b"x" * (size % 251)),
)
frames_sent = st.lists(st.tuples(st.integers(1, 255), st.integers(0, 2**32 - 1), payloads), max_size=8)


def stream_of(sent: list[tuple[int, int, bytes]]) -> bytes:
    return b"".join(pack_header(len(payload), kind, channel, 3, n) + payload for n, (kind, channel, payload) in enumerate(sent))


def shape(frames: list[Frame]) -> list[tuple[int, int, int, bytes, int]]:
    return [(f.kind, f.channel, f.sequence, bytes(f.payload), f.incarnation) for f in frames]


@given(sent=frames_sent, data=st.data())
def test_frames_do_not_depend_on_how_the_stream_is_cut(sent: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    stream = stream_of(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    parser = FrameParser("p")
    got: list[Frame] = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += parser.feed(stream[start:stop])
    assert shape(got) == [(kind, channel, n, payload, 3) for n, (kind, channel, payload) in enumerate(sent)]
    assert parser.buffered_bytes == 0


def test_every_single_cut_and_byte_by_byte_give_the_same_frames() -> None:
    sent = [(1, 0, b""), (2, 7, b"a"), (3, 7, b"x" * 30), (255, 2**32 - 1, b"end")]
    stream = stream_of(sent)
    wanted = shape(FrameParser().feed(stream))
    assert [payload for *_, payload, _ in wanted] == [payload for _, _, payload in sent]
    for cut in range(len(stream) + 1):
        parser = FrameParser()
        assert shape(parser.feed(stream[:cut]) + parser.feed(stream[cut:])) == wanted
    parser = FrameParser()
    assert shape([frame for byte in stream for frame in parser.feed(bytes([byte]))]) == wanted


def test_a_large_payload_is_received_into_one_buffer_of_its_own() -> None:
    asked: list[int] = []

    def allocate(count: int) -> memoryview:
        asked.append(count)
        return memoryview(bytearray(count))

    payload = bytes(300_000)
    parser = FrameParser("p", allocate=allocate)
    frames: list[Frame] = []
    data = pack_header(len(payload), 1, 0, 0, 0) + payload
    sizes = []
    at = 0
    while at < len(data):
        view = parser.writable()
        count = min(len(view), len(data) - at)
        view[:count] = data[at : at + count]
        parser.received(count, frames)
        at += count
        sizes.append(count)
    assert asked == [300_000]
    assert sizes == [CHUNK_BYTES, len(data) - CHUNK_BYTES]  # one for the head, one straight into the buffer
    assert isinstance(frames[0].payload, memoryview)
    assert frames[0].payload == payload


def test_small_payloads_do_not_keep_the_chunk_alive() -> None:
    (frame,) = FrameParser().feed(pack_header(2, 1, 0, 0, 0) + b"ab")
    assert type(frame.payload) is bytes


@pytest.mark.parametrize("length", [0, HEADER_BYTES - 1, 5000])
def test_an_impossible_length_is_refused(length: int) -> None:
    parser = FrameParser("p", frame_bytes_max=4096)
    with pytest.raises(ProtocolError, match=f"a frame from 'p' says that it is {length} bytes long .* a frame has 24 to 4096 bytes"):
        parser.feed(HEADER.pack(length, 1, 2, 3, 4))


def test_a_header_refuses_what_does_not_fit() -> None:
    with pytest.raises(ProtocolError, match=r"kind must be in 1\.\.255"):
        pack_header(0, 256, 0, 0, 0)
    with pytest.raises(ProtocolError, match="send smaller batches"):
        pack_header(PAYLOAD_BYTES_MAX + 1, 1, 0, 0, 0)


def frame(channel: int, sequence: int, incarnation: int = 1) -> Frame:
    return Frame("p", 9, channel, sequence, b"", incarnation)


def test_sequences_are_checked_per_channel() -> None:
    order = ReceiveOrder("p", 1)
    assert all(map(order.accept, [frame(0, 0), frame(5, 0), frame(0, 1), frame(5, 1), frame(0, 2)]))


@pytest.mark.parametrize(("sequence", "what"), [(3, "a frame was lost"), (1, "a frame was repeated"), (0, "a frame was repeated")])
def test_gaps_and_repetitions_are_errors_with_values(sequence: int, what: str) -> None:
    order = ReceiveOrder("p", 1)
    assert order.accept(frame(4, 0))
    assert order.accept(frame(4, 1))
    with pytest.raises(ProtocolError) as caught:
        order.accept(frame(4, sequence))
    assert str(caught.value) == (
        f"a frame from 'p' (kind 9, channel 4, incarnation 1) carries sequence {sequence}, expected is 2: {what}; "
        "recover from the last snapshot"
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert order.accept(frame(4, 2)), "a refused frame changes nothing"


def test_older_incarnations_are_dropped_and_counted_and_newer_ones_refused() -> None:
    order = ReceiveOrder("p", 2)
    assert not order.accept(frame(0, 77, incarnation=1))
    assert order.stale_frames == 1
    assert order.accept(frame(0, 0, incarnation=2))
    with pytest.raises(ProtocolError, match=r"carries incarnation 3, expected is 2: .* call expect\('p', 3\) first"):
        order.accept(frame(0, 1, incarnation=3))
    order.restart(3)
    assert order.accept(frame(0, 0, incarnation=3))
    assert not order.accept(frame(0, 1, incarnation=2))
