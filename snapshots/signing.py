"""Signatures of what a job keeps in files: each says what kind of text it is of, of which job, and where that lies.

A signature is an HMAC-SHA-256 whose key is derived from the job's secret for one kind, one job and one place::

    key       = HMAC-SHA-256(secret, field("rayad signature 2") field(kind) field(job) field(place))
    signature = HMAC-SHA-256(key, text)
    field(x)  = the length of x in 8 bytes, then x

So a text that was signed as one thing never passes as another: a manifest not under another number nor in the store of another job, a
keeper's record not as its outcome nor beside another job. Places are names below the folder of the job or of its snapshots, so a folder may
be moved as a whole. Without a secret there is a checksum (SHA-256) in the place of the signature.

Parts of snapshots are not signed one by one. A manifest names each by its path, length and SHA-256, and the manifest is signed: so a part
is bound to all that the manifest is bound to.

Rule 1, of versions before this one, was HMAC-SHA-256(secret, text). It is recognised, so that errors can tell, and not accepted
(docs/decisions/076-signatures-say-what-they-sign.md).
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
from collections.abc import Iterable
from typing import Any

RULE = 2
SIGNATURE_BYTES = 32
_MARK = b"RAYADSG2"
"""Before a signature that stands before its text; before a checksum nothing does."""
_NAME = b"rayad signature 2"
_OLD_HINT = (
    "was signed by an earlier version of Rayad, whose signatures say neither of which job nor of what they are; it is not used any more. "
    "Read the state with that version (rd.read_state), and begin with it here (rd.write_state)"
)
_UNSIGNED_HINT = "is not signed, and a secret was given: what anybody may have written is not used"
_SIGNED_HINT = (
    "is signed: give the secret with which that was done, by SnapshotConfig(secret=...), in rd.read_state and rd.list_state by secret=, "
    "on the command line by --secret-file"
)
_DAMAGED_HINT = "is not what was written: its checksum is another one, or it was signed by an earlier version of Rayad"
_WRONG_HINT = (
    "is not what was written there for this job: it was changed, comes from another place or job, or was signed with another secret"
)


class Kind(enum.StrEnum):
    """What a signed text is."""

    MANIFEST = "manifest"
    RECORD = "keeper's record"
    OUTCOME = "keeper's outcome"
    FRAME = "frame of a live input"
    FRAMES_FOUND = "frames that a keeper has found"


class Signer:
    """Signs texts and checks signatures.

    Args:
        secret: of the job; None: signatures are checksums, which show damage and nothing else.
    """

    def __init__(self, secret: bytes | None) -> None:
        self._secret = secret

    @property
    def signs(self) -> bool:
        """Whether there is a secret."""
        return self._secret is not None

    def sign(self, kind: Kind, job: str, place: str, text: Iterable[bytes]) -> bytes:
        """The signature of a text, or its checksum.

        >>> signer = Signer(b"s" * 16)
        >>> signature = signer.sign(Kind.RECORD, "shop", "record-1", [b"text"])
        >>> signature == signer.sign(Kind.OUTCOME, "shop", "record-1", [b"text"])
        False
        """
        if self._secret is None:
            return _sum(hashlib.sha256(), text)
        context = _field(_NAME) + b"".join(_field(each.encode("utf-8", "surrogatepass")) for each in (kind.value, job, place))
        return _sum(hmac.new(hmac.digest(self._secret, context, "sha256"), digestmod=hashlib.sha256), text)

    def is_of(self, signature: bytes, kind: Kind, job: str, place: str, text: Iterable[bytes]) -> bool:
        """Whether :meth:`sign` gave this for the same arguments."""
        return hmac.compare_digest(self.sign(kind, job, place, text), signature)

    def why_not(self, signature: bytes, text: Iterable[bytes], *, is_signed: bool) -> str:
        """What is wrong with a text that has another signature, to be put behind its name.

        Args:
            is_signed: whether it says of itself that this is a signature, not a checksum.
        """
        if is_signed:
            return _WRONG_HINT if self.signs else _SIGNED_HINT
        if self._secret is None:
            return _DAMAGED_HINT
        is_old = hmac.compare_digest(_sum(hmac.new(self._secret, digestmod=hashlib.sha256), text), signature)
        return _OLD_HINT if is_old else _UNSIGNED_HINT

    # -- a signature before its text -----------------------------------------------------------------
    def head(self, kind: Kind, job: str, place: str, text: Iterable[bytes]) -> bytes:
        """What a file begins with that has its signature before its text."""
        return (_MARK if self.signs else b"") + self.sign(kind, job, place, text)

    def opened(self, kind: Kind, job: str, place: str, data: bytes) -> bytes:
        """The text of a file that begins with :meth:`head`. Raises ValueError that says what is wrong, to be put behind the file's name."""
        is_signed = data.startswith(_MARK)
        begin = len(_MARK) if is_signed else 0
        signature, text = data[begin : begin + SIGNATURE_BYTES], data[begin + SIGNATURE_BYTES :]
        if is_signed != self.signs or not self.is_of(signature, kind, job, place, [text]):
            raise ValueError(self.why_not(signature, [text], is_signed=is_signed))
        return text


def _field(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _sum(digest: Any, text: Iterable[bytes]) -> bytes:
    for piece in text:
        digest.update(piece)
    return bytes(digest.digest())


__all__ = ["RULE", "Kind", "Signer"]
