"""Frames that nobody on the way can read, change, repeat, leave out or put in another order: AES-128-GCM with a key for each direction.

A frame on such a connection has its header in the clear, then the encrypted payload and a tag of 16 bytes, which covers the header, too.
The nonce is the number of the frame in its direction: it is not sent, so a frame that was left out, repeated or moved has a wrong tag. Keys
come from the job's secret and the handshake, in which both sides give new random bytes: none is used for two connections.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rayad.actors.plane.frames import HEADER_BYTES, TAG_BYTES, Buffer
from rayad.progress import ProtocolError

KEY_BYTES = 16
_nonce = struct.Struct("<Q4x").pack


class Sealer:
    """What is sent in one direction of a connection, in the order in which it is sent. ``allocate`` gives the memory of large frames."""

    __slots__ = ("_allocate", "_count", "_encrypt", "_encrypt_into")

    def __init__(self, key: bytes, allocate: Callable[[int], memoryview]) -> None:
        aead = AESGCM(key)
        self._encrypt, self._encrypt_into = aead.encrypt, aead.encrypt_into
        self._allocate = allocate
        self._count = 0

    def small(self, frame: bytes) -> bytes:
        """The next frame, header and payload, as it goes over the connection."""
        header, nonce = frame[:HEADER_BYTES], _nonce(self._count)
        self._count += 1
        return header + self._encrypt(nonce, frame[HEADER_BYTES:], header)

    def large(self, header: bytes, parts: Sequence[Buffer]) -> memoryview:
        """Encrypt a frame whose payload comes in parts."""
        plain = parts[0] if len(parts) == 1 else b"".join(parts)
        nonce = _nonce(self._count)
        self._count += 1
        sealed = self._allocate(HEADER_BYTES + len(plain) + TAG_BYTES)
        sealed[:HEADER_BYTES] = header
        self._encrypt_into(nonce, plain, header, sealed[HEADER_BYTES:])
        return sealed


class Opener:
    """What arrives in one direction of a connection. ``peer``: whom errors name; ``allocate`` gives the memory of large payloads."""

    __slots__ = ("_allocate", "_count", "_decrypt", "_decrypt_into", "_peer")

    def __init__(self, key: bytes, peer: str, allocate: Callable[[int], memoryview]) -> None:
        aead = AESGCM(key)
        self._decrypt, self._decrypt_into = aead.decrypt, aead.decrypt_into
        self._allocate = allocate
        self._peer = peer
        self._count = 0

    def small(self, header: bytes, sealed: memoryview) -> bytes:
        """The payload of the next frame. Raises ProtocolError when it is not what its sender sent at this place."""
        try:
            payload = self._decrypt(_nonce(self._count), sealed, header)
        except InvalidTag:
            raise self._wrong() from None
        self._count += 1
        return payload

    def large(self, header: bytes, sealed: memoryview) -> memoryview:
        """Decrypt a frame into memory of its own: for frames too large for the receive buffer."""
        payload = self._allocate(len(sealed) - TAG_BYTES)
        try:
            self._decrypt_into(_nonce(self._count), sealed, header, payload)
        except InvalidTag:
            raise self._wrong() from None
        self._count += 1
        return payload

    def _wrong(self) -> ProtocolError:
        return ProtocolError(
            f"frame {self._count} from {self._peer!r} on this connection was changed, repeated or left out on its way: its tag is wrong. "
            "Somebody is between the two nodes, or the network is broken; the connection is given up"
        )


__all__ = ["KEY_BYTES", "Opener", "Sealer"]
