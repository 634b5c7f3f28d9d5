"""A proxy between clients and a broker: it hides partitions until they are added, cuts connections during a request, goes away for a while,
refuses passwords.

Tansu cannot add partitions to a topic. So a topic has all its partitions from the beginning, and this proxy removes the hidden ones from
the responses. Nor does Tansu say which transactions were aborted: readers in read-committed mode would see their records. But its log has
the control records that end transactions, and from these the proxy fills in the list that Apache Kafka sends (for transactions that one
response contains completely).

Kafka's protocol: https://kafka.apache.org/protocol (frames of a length and a body; requests begin with key, version, correlation id).
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Literal

FETCH, METADATA, INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT = 1, 3, 22, 26, 28
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
_WRONG_PASSWORD = 58
_FLEXIBLE = 9
"""From this version on responses about topics have compact arrays and tagged fields."""
_FLEXIBLE_FETCH = 12
_TRANSACTIONAL, _CONTROL = 16, 32


class Proxy:
    """Listens on a port of its own; ``upstream`` is the broker's."""

    def __init__(self, listener: socket.socket, upstream: int) -> None:
        self.visible: dict[str, int] = {}
        """How many partitions are shown, by topic."""
        self.asked: list[int] = []
        """The keys of all requests."""
        self._upstream = upstream
        self._listener = listener
        self._is_away = False
        self._cuts: list[tuple[int, Literal["before", "behind"]]] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, key: int, when: Literal["before", "behind"]) -> None:
        """Cut the connection at the next request of this key: before it reaches the broker, or after that, so that the answer is lost."""
        self._cuts.append((key, when))

    def go_away(self) -> None:
        """Close all connections, and refuse others."""
        self._is_away = True
        self._close_all()

    def come_back(self) -> None:
        """Serve again."""
        self._is_away = False

    def close(self) -> None:
        """Close the proxy for good."""
        self._listener.close()
        self._close_all()

    def _close_all(self) -> None:
        with self._lock:
            for one in self._open:
                _shut(one)
            self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_away:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._upstream))
            except OSError:
                client.close()
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            asked: dict[int, tuple[int, int]] = {}
            doomed: set[int] = set()
            for carry in (self._requests, self._responses):
                threading.Thread(target=carry, args=(client, server, asked, doomed), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, asked: dict[int, tuple[int, int]], doomed: set[int]) -> None:
        while (frame := _frame(client)) is not None:
            key, version, correlation = struct.unpack_from(">hhi", frame)
            self.asked.append(key)
            asked[correlation] = (key, version)
            cut = next((one for one in self._cuts if one[0] == key), None)
            if cut is not None:
                self._cuts.remove(cut)
                if cut[1] == "before":
                    break
                doomed.add(correlation)
            if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
                _send(client, struct.pack(">i", correlation) + _refusal(key))
                continue
            if not _send(server, frame):
                break
        _shut(client)
        _shut(server)

    def _responses(self, client: socket.socket, server: socket.socket, asked: dict[int, tuple[int, int]], doomed: set[int]) -> None:
        while (frame := _frame(server)) is not None:
            (correlation,) = struct.unpack_from(">i", frame)
            key, version = asked.pop(correlation, (-1, 0))
            if correlation in doomed:
                break
            if key == METADATA and self.visible:
                frame = shortened(frame, version, self.visible)
            elif key == FETCH:
                frame = with_aborted(frame, version)
            if not _send(client, frame):
                break
        _shut(client)
        _shut(server)


def _refusal(key: int) -> bytes:
    """The response to a request with a password: the mechanism is known, the password is wrong."""
    if key == SASL_HANDSHAKE:
        return struct.pack(">hih", 0, 1, 5) + b"PLAIN"
    told = b"wrong user or password"
    return struct.pack(">hh", _WRONG_PASSWORD, len(told)) + told + struct.pack(">iq", 0, 0)


def _frame(source: socket.socket) -> bytes | None:
    head = _exactly(source, 4)
    return _exactly(source, struct.unpack(">i", head)[0]) if head is not None else None


def _exactly(source: socket.socket, count: int) -> bytes | None:
    parts = []
    while count:
        try:
            part = source.recv(min(count, 1 << 20))
        except OSError:
            return None
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _send(target: socket.socket, frame: bytes) -> bool:
    try:
        target.sendall(struct.pack(">i", len(frame)) + frame)
    except OSError:
        return False
    return True


def _shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()


class _Cursor:
    """Reads the fields of a response, one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def number(self, size: int) -> int:
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "big")

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text(self) -> str:
        length = max(0, self.varint() - 1)
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def numbers(self) -> None:
        """A compact array of 32-bit integers."""
        count = max(0, self.varint() - 1)
        self.at += 4 * count

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            size = self.varint()
            self.at += size


def shortened(frame: bytes, version: int, visible: dict[str, int]) -> bytes:
    """A Metadata response without the partitions that are not visible."""
    assert version >= _FLEXIBLE, f"Metadata of version {version}: this proxy reads {_FLEXIBLE} and later"
    cursor = _Cursor(frame, 4)
    cursor.tags()
    cursor.number(4)
    for _ in range(cursor.varint() - 1):
        cursor.number(4)
        cursor.text()
        cursor.number(4)
        cursor.text()
        cursor.tags()
    cursor.text()
    cursor.number(4)
    out, copied = bytearray(), 0
    for _ in range(cursor.varint() - 1):
        cursor.number(2)
        name = cursor.text()
        if version >= 10:
            cursor.number(16)
        cursor.number(1)
        out += frame[copied : cursor.at]
        kept = []
        for _ in range(cursor.varint() - 1):
            begin = cursor.at
            cursor.number(2)
            index = cursor.number(4)
            cursor.number(8)
            for _ in range(3):
                cursor.numbers()
            cursor.tags()
            if index < visible.get(name, index + 1):
                kept.append(frame[begin : cursor.at])
        out += _varint(len(kept) + 1) + b"".join(kept)
        copied = cursor.at
        cursor.number(4)
        cursor.tags()
    return bytes(out + frame[copied:])


def with_aborted(frame: bytes, version: int) -> bytes:
    """A Fetch response that says which transactions were aborted."""
    assert version >= _FLEXIBLE_FETCH, f"Fetch of version {version}: this proxy reads {_FLEXIBLE_FETCH} and later"
    cursor = _Cursor(frame, 4)
    cursor.tags()
    cursor.at += 4 + 2 + 4
    out, copied = bytearray(), 0
    for _ in range(max(0, cursor.varint() - 1)):
        if version >= 13:
            cursor.at += 16
        else:
            cursor.text()
        for _ in range(max(0, cursor.varint() - 1)):
            cursor.at += 4 + 2 + 8 + 8 + 8
            out += frame[copied : cursor.at]
            for _ in range(max(0, cursor.varint() - 1)):
                cursor.at += 16
                cursor.tags()
            copied = cursor.at
            cursor.at += 4
            size = max(0, cursor.varint() - 1)
            aborted = aborted_in(frame[cursor.at : cursor.at + size])
            out += _varint(len(aborted) + 1) + b"".join(struct.pack(">qq", *one) + bytes(1) for one in aborted)
            cursor.at += size
            cursor.tags()
        cursor.tags()
    return bytes(out + frame[copied:])


def aborted_in(records: bytes) -> list[tuple[int, int]]:
    """Producer and first offset of the transactions that were aborted, from batches of records (format 2)."""
    at = 0
    open_: dict[int, int] = {}
    aborted = []
    while at + 61 <= len(records):
        offset, size = struct.unpack_from(">qi", records, at)
        (attributes,) = struct.unpack_from(">h", records, at + 21)
        (producer,) = struct.unpack_from(">q", records, at + 43)
        if attributes & _CONTROL:
            begun = open_.pop(producer, None)
            if begun is not None and _is_abort(records, at + 61):
                aborted.append((producer, begun))
        elif attributes & _TRANSACTIONAL:
            open_.setdefault(producer, offset)
        at += 12 + size
    return sorted(aborted, key=lambda one: one[1])


def _is_abort(records: bytes, at: int) -> bool:
    """Whether a control record is an abort. Its key is a version and a type (0: abort, 1: commit); before the key there are a length,
    attributes, deltas and the length of the key."""
    cursor = _Cursor(records, at)
    cursor.varint()
    cursor.number(1)
    for _ in range(3):
        cursor.varint()
    cursor.number(2)
    return cursor.number(2) == 0


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
