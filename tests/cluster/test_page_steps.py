"""Steps from the page of a job on Ray, in a real browser: savepoint, rescale, a look at state, an error, stop."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import rayad as rd
from rayad.actors.job import JobState
from rayad.actors.saved_state.looking import first_rows
from rayad.progress import SnapshotError
from rayad.snapshots.store import SnapshotStore
from tests.cluster.until import until
from tests.page.browser import browser, looking
from tests.page.shop import shop
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster]
PATIENCE_MS = 1000 * PATIENCE_S
SECRET = b"a secret of 32 bytes for the page"


def test_a_job_is_steered_from_its_page(nothing_left: Callable[[], None], tmp_path: Path) -> None:
    run = rd.RunConfig(storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s=None, secret=SECRET))
    job = shop(epochs=100_000, records=50).submit(parallelism=1, run=run)
    try:
        until(lambda: job.state is JobState.RUNNING, "the job runs")
        shown = job.page()
        steered = job.page(steps=True, state=True)
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", steered), "a token, although it is for this machine alone"
        assert "token" not in shown
        with browser() as opened:
            with looking(opened, shown, 800) as (page, wrong):
                assert page.locator("#steps").is_hidden()
                page.locator("#vertices .open").first.click()
                assert page.get_by_role("button", name="first keys of its state").count() == 0
                assert wrong == []
            with looking(opened, steered, 800) as (page, wrong):
                page.set_default_timeout(PATIENCE_MS)
                page.get_by_role("button", name="Savepoint").click()
                page.get_by_role("button", name="Do nothing").click()
                assert not [event for event in job.journal() if event.kind == "snapshot"], "not before somebody confirms"
                page.get_by_role("button", name="Savepoint").click()
                page.get_by_role("button", name="Take the savepoint").click()
                path = page.locator("dialog .answer.good").inner_text().removeprefix("The savepoint is at ")
                folder, _, number = path.rpartition("/")
                assert SnapshotStore(folder, secret=SECRET).load(int(number)).kind == "savepoint"
                page.get_by_role("button", name="Close").click()

                page.get_by_role("button", name="Rescale").click()
                page.locator("dialog select").select_option("walks by length")
                page.locator("dialog input").fill("2")
                page.locator("dialog").get_by_role("button", name="Rescale").click()
                told = page.locator("dialog .answer.good").inner_text()
                assert re.match(r"walks by length from 1 to 2 replicas, in .*key-groups with .* of state moved", told)
                assert job.status().layout["walks by length"] == 2
                page.get_by_role("button", name="Close").click()

                page.get_by_role("button", name="Rescale").click()
                page.locator("dialog select").select_option("orders")
                page.locator("dialog input").fill("7")
                page.locator("dialog").get_by_role("button", name="Rescale").click()
                assert page.locator("dialog .answer.bad").inner_text().startswith("RescaleRefused: ")
                page.get_by_role("button", name="Close").click()

                page.locator("#vertices .open", has_text="revenue by product").click()
                page.get_by_role("button", name="first keys of its state").click()
                page.locator("dialog td", has_text="apples").first.wait_for()
                page.get_by_role("button", name="Close").click()

                page.get_by_role("button", name="Stop").click()
                page.get_by_role("button", name="Stop the job").click()
                assert "ends when what is under way is finished" in page.locator("dialog .answer.good").inner_text()
                page.wait_for_function("() => document.querySelector('#state').textContent === 'complete'")
                assert page.locator("#steps").is_hidden()
                assert wrong == []
        assert len(job.wait(timeout_s=PATIENCE_S)["report"]) > 0, "the results are still the job's owner's to fetch"
    finally:
        job.cancel()


def test_unsigned_state_is_not_read_for_a_page(ray_cluster: None, tmp_path: Path) -> None:
    """Nothing of it is unpickled: the look ends at the manifest."""
    run = rd.RunConfig(storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s=None))
    flow = shop(epochs=20, every_s=0.01)
    flow.run(run, runtime="local")
    with pytest.raises(
        SnapshotError, match=r"the snapshots of job 'shop' are not signed\. State is pickled: .* rayad state .*/shop .* --trust"
    ):
        first_rows("shop", run, "revenue by product")
    with pytest.raises(rd.DataflowError, match="has no vertex 'nothing': it has "):
        first_rows("shop", run, "nothing")
    with pytest.raises(rd.ConfigError, match="job 'shop' keeps no snapshots"):
        first_rows("shop", rd.RunConfig(), "revenue by product")
