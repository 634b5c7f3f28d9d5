"""The page of a job on Ray: what a browser gets, across the death of the coordinator, and that it ends with the job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import ray

import rayad as rd
from rayad.actors.cluster import names
from rayad.actors.job import JobState
from tests.cluster.conftest import job_processes
from tests.cluster.test_attach import counting
from tests.cluster.until import until
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster]
Check = Callable[[], None]


def frames(url: str) -> Any:
    """The frames of a page, one after the other, until the server ends them."""
    path, _, query = url.partition("?")
    with urlopen(f"{path}events?{query}", timeout=PATIENCE_S) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def told(frame: dict[str, Any]) -> str:
    """What has happened, in words."""
    return "; ".join(line["what"] for line in frame["events"]["lines"])


def pages() -> int:
    return len(job_processes(kind="JobPage"))


def test_the_page_follows_a_job_through_a_recovery_and_ends_with_it(nothing_left: Check, tmp_path: Path) -> None:
    config = rd.RunConfig(storage_path=str(tmp_path), failures=rd.FailureConfig(max_failures=2))
    job = counting("seen").submit(parallelism=2, run=config)
    try:
        with pytest.raises(rd.ConfigError, match=r"page\(port\) is 70000"):
            job.page(port=70000)
        with pytest.raises(rd.RayadError, match=r"page\(host='192\.0\.2\.1', port=0\) of job 'seen' cannot be served: OSError: "):
            job.page(host="192.0.2.1")
        url = job.page()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        assert rd.attach("seen").page() == url, "one page for this process"
        shown = frames(url)
        words = job.input("words")
        words.send(["a", "b"])
        words.advance_to(1)
        seen = next(frame for frame in shown if frame["vertices"] and frame["vertices"][1]["cells"][9] == "(1)")
        assert [vertex["name"] for vertex in seen["vertices"]] == ["words", "counts"]
        assert job.savepoint()
        next(frame for frame in shown if frame["events"] and "savepoint" in told(frame))
        (coordinator,) = names.find("seen").values()
        ray.kill(coordinator.actor)
        del coordinator
        words.send(["c"])
        words.advance_to(2)
        next(frame for frame in shown if frame["state"] == "running" and frame["vertices"][1]["cells"][9] == "(2)")
        result = job.stop(timeout_s=PATIENCE_S)
        assert len(result["counts"]) == 3
        *_, last = shown
        assert (last["state"], last["is_over"]) == ("complete", True)
        assert "complete" in told(last)
        until(lambda: not pages(), "the actor has ended by itself")
        with pytest.raises(rd.DataflowError, match=r"page\(\): job 'seen' is complete"):
            job.page()
    finally:
        job.cancel()
    assert job.state is JobState.COMPLETE
