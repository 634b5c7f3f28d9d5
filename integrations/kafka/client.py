"""What source and sink share: the client library, its settings, its errors, which partitions a topic has."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rayad.progress import ConfigError, DataflowError, arguments, show

ANSWER_S = 30.0
"""So long a broker may take for an answer to a question that has no wait in it."""
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
    taken = [name for name in given if name in ("bootstrap.servers", *owned)]
    if taken:
        raise ConfigError(f"{where}: options sets {taken}, which {where} sets itself: exactly-once rests on them; leave them out")
    return {"bootstrap.servers": servers, **given}


def quiet(settings: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Settings under which the client's own messages go to the logger ``rayad.kafka``."""
    return {**settings, **{name.replace("_", "."): value for name, value in more.items()}, "logger": _log}


def partitions(admin: Any, topic: str, where: str, timeout_s: float = ANSWER_S) -> list[int]:
    """The numbers of a topic's partitions. Raises DataflowError where there is no such topic, or nobody answers."""
    library = client_library(where)
    try:
        found = admin.list_topics(topic, timeout=timeout_s).topics.get(topic)
    except library.KafkaException as error:
        raise DataflowError(f"{where}: no broker told about topic {topic!r} within {timeout_s:g} s: {told(error)}") from error
    if found is None or found.error is not None or not found.partitions:
        why = f": {found.error.str()}" if found is not None and found.error is not None else ""
        raise DataflowError(f"{where}: there is no topic {topic!r}{why}; create it, or check the name")
    return sorted(found.partitions)


def told(error: Any) -> str:
    """A KafkaException or KafkaError as people read it."""
    inner = error.args[0] if getattr(error, "args", None) else error
    return f"{inner.name()}: {inner.str()}" if hasattr(inner, "name") else str(inner)
