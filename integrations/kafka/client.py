"""What source and sink share: the client library, its settings, its errors, which partitions a topic has."""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Mapping
from typing import Any

from rayad.progress import ConfigError, DataflowError, arguments, show

ANSWER_S = 30.0
"""How long a broker may take for an answer that it can give at once."""
LOOK_S = 1.0
"""How often, while there is no answer yet, the client's errors are looked at."""
FINAL = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "INVALID_TOPIC_EXCEPTION",
        "INVALID_TRANSACTION_TIMEOUT",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
        "UNSUPPORTED_SASL_MECHANISM",
        "UNSUPPORTED_VERSION",
        "_AUTHENTICATION",
        "_INVALID_ARG",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        "_UNSUPPORTED_FEATURE",
    }
)
"""Errors after which trying again does not help, by librdkafka's names."""
FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
"""What a producer is told whose transactional id another one has taken."""
_PURGED = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
"""Messages of a transaction that is aborted: what happened, not why."""
_log = logging.getLogger("rayad.kafka")


def client_library(where: str) -> Any:
    """``confluent_kafka``. Raises ConfigError where it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise ConfigError(f"{where} needs the package confluent-kafka: pip install 'rayad[kafka]' ({error})") from error
    return confluent_kafka


def checked_settings(servers: Any, options: Any, owned: tuple[str, ...], where: str) -> dict[str, Any]:
    """Settings of librdkafka: where the brokers are, and what the user added. Raises ConfigError for those that are ours (``owned``)."""
    arguments.text(servers, f"{where}: servers", error=ConfigError)
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"{where}: options={show(options, 60)}: give a dict of librdkafka's settings: {{'security.protocol': 'ssl'}}")
    given = dict(options or {})
    taken = [name for name in given if name in ("bootstrap.servers", "error_cb", "logger", *owned)]
    if taken:
        raise ConfigError(f"{where}: options sets {taken}, which {where} sets itself: exactly-once rests on them; leave them out")
    return {"bootstrap.servers": servers, **given}


class Heard:
    """The errors that a client reports apart from its answers, such as no broker or refused credentials; the client's ``error_cb``."""

    def __init__(self) -> None:
        self._errors: dict[str, Any] = {}

    def __call__(self, error: Any) -> None:
        self._errors.pop(error.name(), None)
        self._errors[error.name()] = error

    def undelivered(self, error: Any, message: Any) -> None:
        """A producer's ``on_delivery``: why a message did not reach its partition. The transaction's own error does not say it."""
        if error is not None and error.name() not in _PURGED:
            self(error)

    def take(self) -> list[Any]:
        """The errors since the last call, the newest of each kind."""
        errors, self._errors = list(self._errors.values()), {}
        return errors

    def raise_final(self, what: str) -> None:
        """Raise DataflowError if one of the errors since the last call is such that trying again does not help; the others are kept."""
        final = [error for error in self._errors.values() if error.fatal() or is_final(error)]
        if final:
            raise DataflowError(f"{what}: {'; '.join(map(told, final))}")

    def told(self) -> str:
        """The errors since the last call, as text for the end of a message."""
        errors = self.take()
        return f" (the client says: {'; '.join(map(told, errors))})" if errors else ""


def settings_of(settings: Mapping[str, Any], heard: Heard) -> dict[str, Any]:
    """Settings of one client; its log goes to the logger ``rayad.kafka``, its errors to ``heard``."""
    return {**settings, "logger": _log, "error_cb": heard}


def partitions(admin: Any, heard: Heard, topic: str, where: str) -> list[int]:
    """The numbers of a topic's partitions. Raises DataflowError where there is no such topic, or nobody answers."""
    library = client_library(where)
    deadline_s = clock.monotonic() + ANSWER_S
    while True:
        try:
            found = admin.list_topics(topic, timeout=min(LOOK_S, ANSWER_S)).topics.get(topic)
            break
        except library.KafkaException as error:
            admin.poll(0.0)  # lets the client report its errors
            heard.raise_final(f"{where}: the brokers of topic {topic!r} refuse this client, see options")
            if clock.monotonic() > deadline_s:
                what = f"{where}: no answer about topic {topic!r} within {ANSWER_S:g} s"
                raise DataflowError(f"{what}: {told(error)}{heard.told()}") from error
    if found is None or found.error is not None or not found.partitions:
        why = f": {found.error.str()}" if found is not None and found.error is not None else ""
        raise DataflowError(f"{where}: there is no topic {topic!r}, or you may not see it{why}; create it, or check the name")
    return sorted(found.partitions)


def edges(admin: Any, topic: str, numbers: list[int], *, latest: bool) -> dict[int, Any]:
    """A future for each partition: its first offset, or the next one that a reader in read-committed mode will get."""
    library = client_library("kafka")
    admin_of = library.admin
    spec = admin_of.OffsetSpec.latest() if latest else admin_of.OffsetSpec.earliest()
    asked = {library.TopicPartition(topic, number): spec for number in numbers}
    committed = library.IsolationLevel.READ_COMMITTED
    answers = admin.list_offsets(asked, isolation_level=committed, request_timeout=ANSWER_S)
    return {place.partition: answer for place, answer in answers.items()}


def is_final(error: Any) -> bool:
    """Whether trying again does not help. ``error``: a KafkaException or KafkaError."""
    inner = inner_of(error)
    return hasattr(inner, "name") and inner.name() in FINAL


def is_fenced(error: Any) -> bool:
    """Whether another producer has taken the transactional id. ``error``: a KafkaException or KafkaError."""
    inner = inner_of(error)
    return hasattr(inner, "name") and inner.name() in FENCED


def inner_of(error: Any) -> Any:
    """The KafkaError of a KafkaException."""
    return error.args[0] if getattr(error, "args", None) else error


def told(error: Any) -> str:
    """The text of a KafkaException or KafkaError."""
    inner = inner_of(error)
    return f"{inner.name()}: {inner.str()}" if hasattr(inner, "name") else str(inner)
