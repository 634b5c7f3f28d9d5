"""What Ray's own printing lets through once Rayad has joined. The messages are Ray's, word for word."""

from __future__ import annotations

import re

import pytest
from ray._private.ray_logging import stderr_deduplicator, stdout_deduplicator

from rayad.actors.cluster.ray_messages import leave_out_chatter

DEATH = (
    "A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs for the "
    "dead worker. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."
)
REMARK = "[2026-11-23 13:08:11,505 I 13651 13769] gcs_client.cc:96: GcsClient has no Cluster ID set, and won't fetch from GCS."
WORKERS = "WARNING: 8 PYTHON worker processes have been started on node: 24e1 with address: 10.0.0.1, which is 4x the maximum"
MEMORY = "1 Workers (tasks / actors) killed due to memory pressure (OOM) on the node."


def printed(*lines: str) -> list[str]:
    batches = stdout_deduplicator.deduplicate({"lines": list(lines), "pid": "raylet", "is_err": False})
    return [line for batch in batches for line in batch["lines"]]


@pytest.fixture(autouse=True)
def ray_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    for printing in (stdout_deduplicator, stderr_deduplicator):
        monkeypatch.setattr(printing, "skip_re", None)
    monkeypatch.setattr(stdout_deduplicator, "recent", {})


def test_deaths_and_remarks_are_left_out_and_the_rest_is_printed() -> None:
    assert printed(DEATH, REMARK, WORKERS, MEMORY, f"user: {DEATH}") == [DEATH, REMARK, WORKERS, MEMORY, f"user: {DEATH}"]
    leave_out_chatter()
    stdout_deduplicator.recent.clear()
    assert printed(DEATH, REMARK, WORKERS, MEMORY, f"user: {DEATH}") == [MEMORY, f"user: {DEATH}"]
    assert stderr_deduplicator.skip_re is stdout_deduplicator.skip_re


def test_a_users_own_setting_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    own = re.compile("memory pressure")
    monkeypatch.setattr(stdout_deduplicator, "skip_re", own)
    leave_out_chatter()
    assert printed(DEATH, MEMORY) == [DEATH]
