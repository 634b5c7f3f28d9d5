"""What travels to actors: small values in the call, others, and what Ray counts the users of, through its store."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray

import rayad as rd
from rayad.actors.cluster.parcels import CALL_BYTES_MAX, opened, parcel

pytestmark = pytest.mark.usefixtures("ray_cluster")


@ray.remote(num_cpus=0)
class _Reader:
    def read(self, given: list[Any]) -> Any:
        return opened(given, 30.0)

    def read_behind(self, given: list[Any]) -> Any:
        return ray.get(opened(given, 30.0)[0])


@pytest.fixture(scope="module")
def reader() -> Any:
    actor = _Reader.remote()
    yield actor
    ray.kill(actor)


@pytest.mark.parametrize(
    ("value", "is_inline"),
    [
        ({"a": [1, 2.5, None, "é"]}, True),
        (b"x" * (CALL_BYTES_MAX // 2), True),
        (b"x" * CALL_BYTES_MAX, False),
        (["y" * 100] * 200, True),
        ([str(n) * 20 for n in range(2_000)], False),
        (pa.table({"n": [1, 2, None]}), True),
        (rd.Timestamp(3, (1, 2)), True),
    ],
)
def test_a_value_arrives_as_it_was_sent(reader: Any, value: Any, is_inline: bool) -> None:
    sent = parcel(value)
    assert isinstance(sent[0], bytes) is is_inline
    assert ray.get(reader.read.remote(sent)) == value


def test_a_large_array_arrives(reader: Any) -> None:
    there = np.arange(1_000_000)
    sent = parcel({"rows": there})
    assert isinstance(sent[0], ray.ObjectRef)
    assert np.array_equal(ray.get(reader.read.remote(sent))["rows"], there)


def test_what_ray_counts_the_users_of_is_left_to_ray(reader: Any) -> None:
    """Pickled in a call, a reference would be held for ever, or not at all."""
    sent = parcel([ray.put("behind")])
    assert isinstance(sent[0], ray.ObjectRef)
    assert ray.get(reader.read_behind.remote(sent)) == "behind"
    assert isinstance(parcel({"who": reader})[0], ray.ObjectRef)


def test_what_cannot_be_pickled_is_refused_as_ray_refuses_it() -> None:
    with pytest.raises(TypeError, match="lock"):
        parcel({"lock": threading.Lock()})
