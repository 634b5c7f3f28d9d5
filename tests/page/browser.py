"""A real browser for tests: Chromium or Chrome of this machine, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTHS = (420, 800, 1280, 1600)


def found() -> str | None:
    """The browser of this machine; None: there is none. ``RAYAD_BROWSER`` names another one."""
    return os.environ.get("RAYAD_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window. Skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'rayad[dev]'")
    path = found()
    if path is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(NAMES)} is on the PATH, and RAYAD_BROWSER names none")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def looking(opened: Browser, url: str, width: int, *, dark: bool = False, height: int = 900) -> Iterator[tuple[Page, list[str]]]:
    """A page of a width, once its first frame is there, and what goes wrong in it: errors of scripts and of the console."""
    context = opened.new_context(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(url)
    page.wait_for_selector("#graph svg")
    try:
        yield page, wrong
    finally:
        context.close()


__all__ = ["WIDTHS", "browser", "found", "looking"]
