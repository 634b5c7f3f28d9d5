"""librdkafka's mock cluster: brokers in this process that fail on demand; offsets that retention has deleted."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
_PRODUCER = 0


class MockCluster:
    """One broker."""

    def __init__(self, library: ctypes.CDLL, cluster: int) -> None:
        self._library, self._cluster = library, ctypes.c_void_p(cluster)
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        self.servers: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def topic(self, name: str, partitions: int = 1) -> str:
        """A new topic."""
        error = self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)
        assert not error, error
        return name

    def fail_topic(self, name: str, error: int) -> None:
        """From now on every request for the topic gets this error."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, name.encode(), error)

    def fail(self, request: int, *errors: int) -> None:
        """The next requests of a kind get these errors."""
        array = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(errors)), array)

    def go_away(self) -> None:
        """Refuse connections."""
        self._library.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def come_back(self) -> None:
        """Accept connections again."""
        self._library.rd_kafka_mock_broker_set_up(self._cluster, 1)


@contextmanager
def mock_cluster() -> Iterator[MockCluster]:
    """A cluster for the duration of the context."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    (path,) = folder.glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    told = ctypes.create_string_buffer(512)
    conf = library.rd_kafka_conf_new()
    handle = library.rd_kafka_new(_PRODUCER, ctypes.c_void_p(conf), told, ctypes.c_size_t(len(told)))
    assert handle, told.value
    cluster = library.rd_kafka_mock_cluster_new(ctypes.c_void_p(handle), 1)
    try:
        yield MockCluster(library, cluster)
    finally:
        library.rd_kafka_mock_cluster_destroy(ctypes.c_void_p(cluster))
        library.rd_kafka_destroy(ctypes.c_void_p(handle))
