"""``python -m tests.page.pictures``: the pictures of docs/page.md: a real browser looks at a job on Ray, of which a process was killed.

``--out FOLDER`` puts them elsewhere; ``--all`` takes one of each width and colour, to look at, and not those of the docs.
"""

from __future__ import annotations

import argparse
import re
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import ray

import rayad as rd
from tests.checkout import ROOT
from tests.cluster.until import until
from tests.page.browser import WIDTHS, browser, looking
from tests.page.shop import shop

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = ROOT / "docs/images/page"
FOR_DOCS = {"wide": (1280, False, 1330), "wide-dark": (1280, True, 1330), "phone": (420, False, 900), "phone-dark": (420, True, 900)}
BYTES_MAX = 150_000
COLOURS = 256
WARM_S = 20.0
SECRET = b"a secret of 32 bytes for pictures"


def main() -> None:
    """Start the job, wait until there is something to see, take the pictures, cancel the job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DOCS)
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    ray.init("local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder, browser() as opened:
        run = rd.RunConfig(
            storage_path=folder,
            snapshots=rd.SnapshotConfig(interval_s=3.0, secret=SECRET),
            failures=rd.FailureConfig(max_failures=3),
        )
        job = shop().submit(parallelism=1, run=run)
        try:
            url = job.page(steps=True, state=True)
            until(lambda: bool(job.pids().get("revenue by product")), "the replicas tell their processes")
            time.sleep(WARM_S)
            psutil.Process(job.pids()["revenue by product"][0]).send_signal(signal.SIGKILL)
            time.sleep(WARM_S)
            wanted = FOR_DOCS
            if given.all:
                wanted = {f"{width}{'-dark' * dark}": (width, dark, 0) for width in WIDTHS for dark in (False, True)}
            for name, (width, dark, height) in wanted.items():
                take(opened, url, given.out / f"{name}.png", width, dark, height)
        finally:
            job.cancel()


def take(opened: Browser, url: str, path: Path, width: int, dark: bool, height: int) -> None:
    """One picture; of the whole page where no height is given. In few colours: those of the style sheet, and the most frequent."""
    from PIL import Image

    with looking(opened, url, width, dark=dark, height=height or 900) as (page, wrong):
        page.wait_for_selector(".uplot canvas")
        page.screenshot(path=str(path), full_page=not height)
    assert not wrong, wrong
    with Image.open(path) as picture:
        whole = picture.convert("RGB")
    counted = sorted(whole.getcolors(whole.width * whole.height) or [], reverse=True)
    palette = Image.new("P", (1, 1))
    named = re.findall(r"#([0-9a-f]{6})\b", (ROOT / "actors/page/parts/page.css").read_text(encoding="utf-8"))
    colours = dict.fromkeys([*(tuple(bytes.fromhex(one)) for one in named), *(colour for _, colour in counted)])
    palette.putpalette([part for colour in list(colours)[:COLOURS] for part in colour])
    whole.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)
    assert height == 0 or path.stat().st_size < BYTES_MAX, f"{path} has {path.stat().st_size} bytes"


if __name__ == "__main__":
    main()
