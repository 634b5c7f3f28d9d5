"""The page in a real browser, of a real job of the local runtime: nothing goes wrong, nothing overflows, the pointer shows values."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rayad as rd
from rayad.progress import DataflowError
from tests.page.browser import WIDTHS, browser, looking
from tests.page.shop import shop
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SECRET = b"a secret of 32 bytes for the page"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def url(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of a job that runs for as long as the tests look at it: in a thread of its own, in which it moves."""
    served: Future[str] = Future()
    may_end = threading.Event()
    snapshots = rd.SnapshotConfig(interval_s=0.5, secret=SECRET)
    run = rd.RunConfig(storage_path=str(tmp_path_factory.mktemp("jobs")), snapshots=snapshots)

    def runs() -> None:
        job = shop(epochs=1_000_000).submit(runtime="local", run=run)
        served.set_result(job.page(state=True))
        while not may_end.is_set():
            with pytest.raises(TimeoutError):
                job.wait(timeout_s=0.2)
        job.cancel()

    thread = threading.Thread(target=runs)
    thread.start()
    yield served.result(timeout=PATIENCE_S)
    may_end.set()
    thread.join(timeout=PATIENCE_S)
    assert not thread.is_alive()


OVERFLOWING = """() => {
  const scrolls = one => one.closest(".wide, #events, dialog, .tip")
  const ends = one => one.getBoundingClientRect().right
  const outside = [...document.querySelectorAll("body *")].filter(one => !scrolls(one) && ends(one) > innerWidth + 0.5)
  return [document.documentElement.scrollWidth - innerWidth, outside.map(one => one.outerHTML.slice(0, 80))]
}"""
GRAPH = """() => {
  const [box, svg] = [document.querySelector("#graph"), document.querySelector("#graph svg")]
  return [svg.getBoundingClientRect().width, box.clientWidth, box.scrollWidth]
}"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_goes_wrong_and_nothing_overflows(chromium: Browser, url: str, width: int, dark: bool) -> None:
    with looking(chromium, url, width, dark=dark) as (page, wrong):
        page.wait_for_selector(".uplot canvas")
        assert page.evaluate(OVERFLOWING) == [0, []]
        drawn, room, scrolled = page.evaluate(GRAPH)
        assert drawn <= room or scrolled >= drawn, "the graph fits, or scrolls inside its box"
        if width == min(WIDTHS):
            assert drawn <= room, "a phone shows the whole graph"
        page.get_by_role("button", name="linear").click()
        page.locator("#vertices .open").first.click()
        assert page.locator("#vertices tr.about").count() == 1
        assert page.evaluate(OVERFLOWING) == [0, []]
        assert wrong == []


def test_the_users_names_stand_in_the_graph_and_figures_have_units(chromium: Browser, url: str) -> None:
    with looking(chromium, url, 1280) as (page, wrong):
        titles = page.locator("#graph text.name").all_text_contents()
        assert {"orders", "stock", "revenue by product", "walks by length", "loop walks", "send to the service"} <= set(titles)
        page.wait_for_function("""() => /k?\\/s$/.test(document.querySelector(".figure strong").textContent)""")
        names = page.locator("#headline b").all_text_contents()
        assert names == ["Records a second", "Newest result", "State kept", "Newest snapshot", "Failures survived", "Running for"]
        assert page.locator("#graph path.loop").count() == 1
        assert wrong == []


def test_the_pointer_shows_time_and_all_values_and_goes_through_every_chart(chromium: Browser, url: str) -> None:
    with looking(chromium, url, 1280) as (page, wrong):
        page.wait_for_function("() => document.querySelectorAll('.uplot').length >= 4")
        over = page.locator(".uplot .u-over").first
        over.hover(position={"x": 100, "y": 50})
        tip = page.locator(".tip:not([hidden])")
        tip.wait_for()
        assert tip.count() == 1, "beside the pointer, and nowhere else"
        told = tip.inner_text()
        assert re.match(r"\d\d:\d\d:\d\d, [\d.]+ (s|min) ago", told)
        vertices = page.locator("#names button").count()
        assert len(tip.locator("div").all()) == vertices == 8
        assert re.search(r"orders\s+[\d.]+ ?k?/s", told)
        crosshairs = page.locator(".uplot .u-cursor-x:not(.u-off)").count()
        assert crosshairs >= 4
        assert wrong == []


def test_a_line_far_above_others_makes_the_scale_logarithmic_and_a_click_makes_it_another(chromium: Browser, url: str) -> None:
    with looking(chromium, url, 1280) as (page, wrong):
        rates = page.locator(".chart h3").first
        page.wait_for_function("() => document.querySelector('.chart h3')?.textContent === 'Records a second, logarithmic'")
        for scale, title in (("linear", "Records a second"), ("each its own", "Records a second, each by its own highest")):
            page.get_by_role("button", name=scale).click()
            assert rates.text_content() == title
        page.locator("#names button").first.click()
        assert page.locator("#names button[aria-pressed='false']").count() == 1
        assert wrong == []


def test_snapshots_are_folded_into_one_line_that_opens(chromium: Browser, url: str) -> None:
    with looking(chromium, url, 1600) as (page, wrong):
        page.wait_for_function(
            "() => /snapshots, .* at the median; the newest: snapshot/.test(document.querySelector('#events').textContent)"
        )
        page.locator("#events summary").first.click()
        assert page.locator("#events details[open] p").count() >= 2
        page.get_by_role("button", name="failures").click()
        assert page.locator("#events .event:visible").count() == 0
        assert wrong == []


def test_a_look_at_state_shows_keys_and_values(chromium: Browser, url: str) -> None:
    with looking(chromium, url, 1280) as (page, wrong):
        page.wait_for_function("() => document.querySelector('#events').textContent.includes('snapshot')")
        page.locator("#vertices .open", has_text="revenue by product").click()
        page.get_by_role("button", name="first keys of its state").click()
        page.locator("dialog td", has_text="apples").first.wait_for()
        told = page.locator("dialog").inner_text()
        assert re.search(r"snapshot \d+ \(snapshot\), replica 0 of 1", told)
        assert "7 entries" in told
        page.get_by_role("button", name="Close").click()
        assert wrong == []


def test_the_page_of_a_local_job_ends_with_it_and_takes_no_steps(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # another test's page among them
    flow = rd.Dataflow("small")
    flow.from_items(range(100), name="numbers").key_by(lambda n: n % 3).count(name="rests").collect("counts")
    job = flow.submit(runtime="local")
    with pytest.raises(rd.ConfigError, match=r"page\(steps=True\): job 'small' is of the local runtime, and moves in your own thread"):
        job.page(steps=True)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", job.page())
    assert job.page() == job.page()
    assert len(job.wait()["counts"]) == 3
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "rayad-page"]
    with pytest.raises(DataflowError, match=r"page\(\): job 'small' is complete"):
        job.page()
