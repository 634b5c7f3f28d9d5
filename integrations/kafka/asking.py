"""Questions to the brokers about a topic: its id, its partitions, their first and next offsets. One client for all lanes of a process."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from rayad.integrations.kafka.client import ANSWER_S, Heard, client_library, edges, is_final, partitions, settings_of, told
from rayad.progress import DataflowError

_log = logging.getLogger("rayad.kafka")
LOOKS_S = 1.0
"""Seconds between two questions while no broker can be reached."""


class Topic(Protocol):
    """Which topic, and how it is reached."""

    where: str
    topic: str
    settings: dict[str, Any]
    discover_s: float
    wait_s: float


class Asking:
    """Which partitions the topic has, and whether a broker answers."""

    def __init__(self, source: Topic) -> None:
        self.lanes = 0
        self._away_since_s: float | None = None
        self.known: tuple[str | None, list[int]] | None = None
        """The topic's id, where the broker has one, and its partitions, by the last answer."""
        self.answered = 0
        """How many answers there have been."""
        self._source = source
        self._heard = Heard()
        self._library = client_library(source.where)
        self._admin: Any = self._library.admin.AdminClient(settings_of(source.settings, self._heard))
        self._answer: Any = None
        self._asked_s = 0.0

    @property
    def is_away(self) -> bool:
        """Whether no broker can be reached."""
        return self._away_since_s is not None

    def lose(self, now_s: float) -> None:
        """A client says that no broker can be reached."""
        if self._away_since_s is None:
            self._away_since_s = now_s
            wait_s = self._source.wait_s
            _log.warning("from_kafka: no broker of topic %r can be reached; waiting for up to %g s", self._source.topic, wait_s)

    def partitions_now(self) -> list[int]:
        """Wait for the answer."""
        return partitions(self._admin, self._heard, self._source.topic, self._source.where)

    def edges(self, numbers: list[int], *, latest: bool) -> dict[int, Any]:
        """Futures of the first, or of the next offset of partitions."""
        return edges(self._admin, self._source.topic, numbers, latest=latest)

    def edges_now(self, numbers: list[int], *, latest: bool) -> dict[int, int]:
        """Offsets at the ends of partitions, by partition; waits for the broker's answers."""
        try:
            return {number: answer.result(ANSWER_S).offset for number, answer in self.edges(numbers, latest=latest).items()}
        except self._library.KafkaException as error:
            what = f"from_kafka: no broker answered where topic {self._source.topic!r} {'ends' if latest else 'begins'}"
            raise DataflowError(f"{what}: {told(error)}{self._heard.told()}") from error

    def look(self, now_s: float) -> None:
        """Ask when it is time, and take an answer that has arrived. Raises DataflowError when no broker has been there for ``wait_s``."""
        self._look(now_s)
        if self._away_since_s is not None and now_s - self._away_since_s > self._source.wait_s:
            raise DataflowError(
                f"from_kafka: no broker of topic {self._source.topic!r} could be reached for {self._source.wait_s:g} s (wait_s)"
                f"{self._heard.told()}; the snapshots hold how far it was read: resume when a broker is there again"
            )

    def _look(self, now_s: float) -> None:
        """A thread of the client waits for the answer, so reading continues meanwhile."""
        answer = self._answer
        if answer is not None:
            if not answer.done():
                return
            self._answer = None
            if answer.exception() is None:
                found = answer.result(0)
                self.known = (_identity(found.topic_id), sorted(one.id for one in found.partitions))
                self.answered += 1
                if self._away_since_s is not None:
                    _log.warning("from_kafka: topic %r can be read again, after %.0f s", self._source.topic, now_s - self._away_since_s)
                    self._away_since_s = None
            elif is_final(answer.exception()):
                raise DataflowError(f"from_kafka: topic {self._source.topic!r} cannot be read any more: {told(answer.exception())}")
        elif now_s - self._asked_s >= (LOOKS_S if self.is_away else self._source.discover_s):
            self._asked_s = now_s
            topics = self._library.TopicCollection([self._source.topic])
            self._answer = self._admin.describe_topics(topics, request_timeout=ANSWER_S)[self._source.topic]


def _identity(topic_id: Any) -> str | None:
    """The topic's id in base64; None from a broker without ids of topics, which gives all bits 0."""
    told_as = str(topic_id) if topic_id is not None else ""
    return told_as if told_as.strip("A=") else None
