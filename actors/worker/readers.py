"""Those who read the state of replicas here: each question is a frame, answered by one, between two activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rayad.actors.plane.batch_codec import batch_time, decode_batch, encode_batch, payload_bytes
from rayad.actors.plane.frames import PAYLOAD_BYTES_MAX, Frame
from rayad.actors.plane.protocol import Kind
from rayad.actors.replica.reads.questions import Refused, packed_answers, unpacked_questions
from rayad.progress import Timestamp, say

if TYPE_CHECKING:
    from rayad.actors.plane.replica_id import ReplicaId
    from rayad.actors.replica.reads.questions import Answer, Ask
    from rayad.actors.worker.replica_host import ReplicaHost
    from rayad.actors.worker.surroundings import Link


class Readers:
    """What they have asked since the last turn.

    Args:
        link: of the worker.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._asked: list[Frame] = []

    def take(self, frame: Frame) -> None:
        """A question has come."""
        self._asked.append(frame)

    def answer(self, hosts: Mapping[int, ReplicaHost]) -> None:
        """Answer all, by these replicas."""
        if not self._asked:
            return
        asked, self._asked = self._asked, []
        self._link.calm()  # else a few readers would keep the loop spinning
        for frame in asked:
            if not self._link.connected(frame.peer):
                continue  # it does not wait any more
            self._link.send(frame.peer, Kind.ANSWER, 0, _packed(batch_time(frame.payload), _answers(hosts, frame.payload)))


def _answers(hosts: Mapping[int, ReplicaHost], payload: Any) -> list[Answer | None]:
    """To each question; one refusal where the questions cannot be read here. No key of a reader, whose class may be unknown here or whose
    methods may raise, does any harm to the job."""
    try:
        questions = unpacked_questions(decode_batch(payload)[1])
    except Exception as error:
        return [Refused(f"the question cannot be read where the state is: {type(error).__name__}: {say(error)}")]
    return [_guarded(hosts, *question) for question in questions]


def _guarded(hosts: Mapping[int, ReplicaHost], at: ReplicaId, ask: Ask) -> Answer | None:
    try:
        return _answer(hosts, at, ask)
    except Exception as error:
        return Refused(f"the question cannot be answered: {type(error).__name__}: {say(error)}")


def _answer(hosts: Mapping[int, ReplicaHost], at: ReplicaId, ask: Ask) -> Answer | None:
    """None: that replica is not here, or does not run."""
    host = hosts.get(at.stage)
    return host.answer(ask) if host is not None and host.place.at == at and host.is_going else None


def _packed(number: Timestamp, answers: list[Any]) -> list[bytes | memoryview]:
    try:
        parts = encode_batch(number, packed_answers(answers))
        size = payload_bytes(parts)
        if size <= PAYLOAD_BYTES_MAX:
            return parts
        most = f"at most {PAYLOAD_BYTES_MAX} are sent at once"
        why = f"the answer has {size} bytes, {most}: read keys with get_many(...), or a snapshot with rd.read_state(...)"
    except Exception as error:
        why = f"the answer cannot be sent: {say(error)}"
    return encode_batch(number, packed_answers([Refused(why)] * len(answers)))


__all__ = ["Readers"]
