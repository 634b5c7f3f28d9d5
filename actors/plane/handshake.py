"""Authentication of the two ends of a connection: a mutual challenge and response on the job's secret.  Pure: bytes in, bytes out.

Every message is a u16 length and a body::

    client: magic, nonce_c, instance_c, incarnation_c, received_c, flags_c, client name, server name
    server: nonce_s, instance_s, incarnation_s, 0, flags_s
    client: HMAC-SHA256(secret, "rayad connect", transcript)
    server: verdict, received_s, HMAC-SHA256(secret, "rayad verdict", verdict, received_s, transcript)

``received``: how many frames of the other side have arrived, so that it sends the rest again; ``flags``: ``RESUMES``, the connection
replaces one that was lost; ``SEALS``, this side encrypts its frames, of which the server refuses a client that differs. The server sends
its own ``received``, and gives up the old connection, only when the client has proved itself.

The transcript holds the job, both names, instances, incarnations, nonces and what the client has received, each with its length.  So a
proof is good for one connection of one job between two named planes, and one side's proof is never the other's (no reflection).  The
client proves first: to an unproven client a server sends nothing that depends on the secret, nor the job's name.  The verdict is covered
by the server's proof, so a refusal that a client reports is really the server's.

Of the secret and the transcript both sides make the keys of the frames that follow, one for each direction (`keys`).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from enum import Enum

from rayad.progress import ConfigError, ProtocolError

MAGIC = b"RAYAD\x04\r\n"
NONCE_BYTES = 32
INSTANCE_BYTES = 16
NAME_BYTES_MAX = 512
MESSAGE_BYTES_MAX = 2048
SECRET_BYTES_MIN = 16

_LENGTH = struct.Struct("<H")
RESUMES, SEALS = 1, 2
_IDENTITY = struct.Struct(f"<{NONCE_BYTES}s{INSTANCE_BYTES}sIQB")
_RECEIVED = struct.Struct("<Q")


class Phase(Enum):
    """What a handshake waits for."""

    HELLO = "the client's hello"
    CHALLENGE = "the server's challenge"
    PROOF = "the client's proof"
    VERDICT = "the server's verdict"
    DONE = "nothing: both sides have proved that they know the secret"


class Handshake:
    """One side of one connection's authentication.

    `start()` gives the first bytes to send.  `receive(data)` takes what came and gives the bytes to answer with.  When `done`,
    `peer`, `peer_incarnation` and `peer_instance` are proven and `rest` holds bytes that came after the handshake. ProtocolError: the
    connection must be closed.  A server calls `judge(peer, incarnation, instance, resumes)` for a proven client, which gives "" or why
    it is refused; then `admit(peer, instance, resumes)`, which gives how many frames of this client have arrived.  `peer_received`: how
    many of ours the peer says have arrived there.
    """

    def __init__(
        self,
        *,
        secret: bytes,
        job: str,
        name: str,
        incarnation: int,
        instance: bytes,
        nonce: bytes,
        server: str | None = None,
        judge: Callable[[str, int, bytes, bool], str] | None = None,
        admit: Callable[[str, bytes, bool], int] | None = None,
        received: int = 0,
        resumes: bool = False,
        seals: bool = False,
    ) -> None:
        if len(secret) < SECRET_BYTES_MIN:
            raise ConfigError(f"the job's secret has {len(secret)} bytes, at least {SECRET_BYTES_MIN} are needed: secrets.token_bytes(32)")
        check_name(name)
        self._secret = secret
        self._job = job.encode()
        self._name = name
        self._mine = _IDENTITY.pack(nonce, instance, incarnation, received, RESUMES * resumes | SEALS * seals)
        self._seals = seals
        self._judge = judge or (lambda peer, incarnation, instance, resumes: "")
        self._admit = admit or (lambda peer, instance, resumes: 0)
        self._is_client = server is not None
        self._theirs = b""
        self._data = bytearray()
        self.phase = Phase.CHALLENGE if self._is_client else Phase.HELLO
        self.peer = server or ""
        self.peer_incarnation = -1
        self.peer_instance = b""
        self.peer_received = 0
        self.peer_resumes = self._peer_seals = False
        self.rest = b""

    @property
    def done(self) -> bool:
        return self.phase is Phase.DONE

    def keys(self, count: int) -> tuple[bytes, bytes]:
        """The keys of what this side sends and of what it receives on this connection, ``count`` bytes each; only when done."""
        assert self.done, "keys need the nonces of both sides"
        of_client, of_server = (self._proof(label, b"")[:count] for label in (b"rayad client's frames", b"rayad server's frames"))
        return (of_client, of_server) if self._is_client else (of_server, of_client)

    def start(self) -> bytes:
        """Give what to send first: a client's hello, nothing for a server."""
        if not self._is_client:
            return b""
        check_name(self.peer)
        return _message(MAGIC + self._mine + _field(self._name.encode()) + _field(self.peer.encode()))

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the peer and give the bytes to send back."""
        self._data += data
        answers = b""
        while not self.done:
            if len(self._data) < _LENGTH.size:
                return answers
            (length,) = _LENGTH.unpack_from(self._data)
            if length > MESSAGE_BYTES_MAX:
                raise ProtocolError(f"waiting for {self.phase.value}: a message of {length} bytes, at most {MESSAGE_BYTES_MAX} are allowed")
            end = _LENGTH.size + length
            if len(self._data) < end:
                return answers
            body = bytes(self._data[_LENGTH.size : end])
            del self._data[:end]
            answers += self._on_message(body)
        self.rest = bytes(self._data)
        self._data.clear()
        return answers

    def _on_message(self, body: bytes) -> bytes:
        match self.phase:
            case Phase.HELLO:
                return self._on_hello(body)
            case Phase.CHALLENGE:
                if len(body) != _IDENTITY.size:
                    raise ProtocolError(
                        f"{self.peer!r} sent a challenge of {len(body)} bytes instead of {_IDENTITY.size}: it is not a Rayad plane"
                    )
                self._learn(body)
                self.phase = Phase.VERDICT
                return _message(self._proof(b"rayad connect", b""))
            case Phase.PROOF:
                return self._on_proof(body)
            case Phase.VERDICT:
                self._on_verdict(body)
                return b""
            case Phase.DONE:
                raise ProtocolError("a handshake message after the handshake")

    def _on_hello(self, body: bytes) -> bytes:
        head = len(MAGIC) + _IDENTITY.size
        if body[: len(MAGIC)] != MAGIC or len(body) < head:
            raise ProtocolError("the hello is not one of this Rayad version")
        self._learn(body[len(MAGIC) : head])
        peer, at = _take_field(body, head)
        server, at = _take_field(body, at)
        if at != len(body) or server != self._name.encode():
            raise ProtocolError(f"the hello asks for plane {server.decode(errors='replace')!r}; this is {self._name!r}")
        self.peer = _decode_name(peer)
        check_name(self.peer)
        self.phase = Phase.PROOF
        return _message(self._mine)

    def _on_proof(self, body: bytes) -> bytes:
        if not hmac.compare_digest(body, self._proof(b"rayad connect", b"")):
            raise ProtocolError(f"a client that calls itself {self.peer!r} has another secret or is of another job: its proof is wrong")
        verdict = (self._differs() or self._judge(self.peer, self.peer_incarnation, self.peer_instance, self.peer_resumes)).encode()[:1024]
        received = 0 if verdict else self._admit(self.peer, self.peer_instance, self.peer_resumes)
        self.phase = Phase.DONE
        told = _field(verdict) + _RECEIVED.pack(received)
        answer = _message(told + self._proof(b"rayad verdict", told))
        if verdict:
            raise Refused(verdict.decode(errors="replace"), answer)
        return answer

    def _on_verdict(self, body: bytes) -> None:
        verdict, at = _take_field(body, 0)
        end = at + _RECEIVED.size
        if not hmac.compare_digest(body[end:], self._proof(b"rayad verdict", body[:end])):
            raise ProtocolError(f"the proof of {self.peer!r} is wrong: the process there has another secret or is of another job")
        if verdict:
            raise Rejected(f"{self.peer!r} refused the connection: {verdict.decode(errors='replace')}")
        (self.peer_received,) = _RECEIVED.unpack_from(body, at)
        self.phase = Phase.DONE

    def _learn(self, identity: bytes) -> None:
        self._theirs = identity
        _, self.peer_instance, self.peer_incarnation, received, flags = _IDENTITY.unpack(identity)
        self.peer_resumes, self._peer_seals = bool(flags & RESUMES), bool(flags & SEALS)
        if not self._is_client:
            self.peer_received = received

    def _differs(self) -> str:
        """Why the two sides could not read each other's frames; empty: they can."""
        if self._seals == self._peer_seals:
            return ""
        sealed, clear = (self._name, self.peer) if self._seals else (self.peer, self._name)
        return f"{sealed!r} encrypts its frames and {clear!r} does not: RunConfig(encrypt=...) must be the same in all processes of a job"

    def _proof(self, label: bytes, verdict: bytes) -> bytes:
        me, peer = self._name.encode(), self.peer.encode()
        if self._is_client:
            fields = (label, verdict, self._job, me, peer, self._mine, self._theirs)
        else:
            fields = (label, verdict, self._job, peer, me, self._theirs, self._mine)
        return hmac.new(self._secret, b"".join(map(_field, fields)), hashlib.sha256).digest()


class Rejected(ProtocolError):
    """The server has proved itself, and refuses this client."""


class Refused(ProtocolError):
    """A proven client that may not connect; `answer` tells it why and must be sent before the connection is closed."""

    def __init__(self, reason: str, answer: bytes = b"") -> None:
        super().__init__(reason)
        self.answer = answer


def check_name(name: str) -> None:
    """Raise ConfigError unless `name` can name a plane."""
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise ConfigError(f"the plane name {name[:80]!r} has {len(name.encode())} bytes of UTF-8: 1 to {NAME_BYTES_MAX} are allowed")


def _decode_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"the hello carries a name that is not UTF-8: {name[:80]!r}") from None


def _message(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _field(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


def _take_field(body: bytes, at: int) -> tuple[bytes, int]:
    start = at + _LENGTH.size
    if start > len(body):
        raise ProtocolError("a handshake message ends inside a length")
    end = start + _LENGTH.unpack_from(body, at)[0]
    if end > len(body):
        raise ProtocolError("a handshake message ends inside a field")
    return body[start:end], end
