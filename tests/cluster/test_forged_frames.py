"""Somebody on the network between two replicas of a job on Ray: what they put into a connection runs nowhere, and the job recovers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import rayad as rd
from rayad.actors.plane.batch_codec import encode_batch
from rayad.actors.plane.frames import TAG_BYTES, pack_header
from rayad.actors.plane.protocol import Kind
from rayad.progress import Timestamp
from tests.cluster import connections
from tests.cluster.conftest import job_processes
from tests.cluster.recovering import surviving
from tests.patience import PATIENCE_S


class Hostile:
    """Makes a file where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def forged(marker: Path) -> bytes:
    """A frame that would be a batch of the first edge."""
    payload = b"".join(encode_batch(Timestamp(1), [("a", Hostile(marker))]))
    return pack_header(len(payload), Kind.DATA, 0, 0, 0) + payload + bytes(TAG_BYTES)


@pytest.mark.usefixtures("own_actors")
@pytest.mark.cluster
def test_a_forged_frame_runs_nowhere_is_named_and_the_job_recovers(nothing_left: Callable[[], None], tmp_path: Path) -> None:
    reason = connections.why_not()
    if reason:
        pytest.skip(f"connections of other processes cannot be reached here: {reason}")
    marker = tmp_path / "was here"
    flow = rd.Dataflow("forged")
    flow.input("words").key_by(lambda word: word).count(name="counts").probe("counted").collect("counts")
    job: Any = flow.submit(
        surviving(tmp_path / "store", encrypt=True, unix_sockets=False, survive_errors=True), runtime="ray", parallelism=2
    )
    try:
        words = job.input("words")
        words.send(["a", "b"])
        words.advance_to(1)
        assert job.probe("counted").wait(0, timeout_s=PATIENCE_S)
        job.savepoint()
        replicas = [process.pid for process in job_processes(kind="ray::VertexActor")]
        met = sum(connections.write_between(one, other, forged(marker)) for one, other in itertools.permutations(replicas, 2))
        assert met > 0, f"no connections between {[psutil.Process(pid).name() for pid in replicas]}"
        words.send(["a"])
        words.close()
        result = job.wait(timeout_s=PATIENCE_S)
        assert dict(record for _, record in sorted(result["counts"])) == {"a": 2, "b": 1}
        assert not marker.exists()
        told = [event.what for event in job.journal()]
        assert any("its tag is wrong. Somebody is between the two nodes" in text for text in told), told
        print(*told)
    finally:
        job.cancel()
