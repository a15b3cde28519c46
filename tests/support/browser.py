"""A headless Chromium for tests of pages, and what a page did in it."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars"
    " --disable-background-networking --disable-component-update --disable-sync"
)
_INSTALL = "`apt-get install chromium chromium-driver` and `pip install selenium` make it run"


class Page:
    """One page in one window."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, file: Path) -> None:
        self.driver.get(file.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def visible(self, selector: str) -> list[Any]:
        return [one for one in self.all(selector) if one.is_displayed()]

    def click(self, selector: str) -> None:
        one = self.find(selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", one)
        one.click()

    def emulate(self, *, media: str = "", scheme: str = "light") -> None:
        """Media is `print` or a screen."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": media, "features": features}
        )

    def resize(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def until(self, holds: Callable[[], bool], seconds: float = 10.0) -> None:
        """Waits for what happens a moment later. Raises AssertionError if it does not."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.02)

    def print_to_pdf(self) -> bytes:
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", {})["data"])

    def errors(self) -> list[str]:
        """What the console has had to say since it was asked last, but for information."""
        log = self.driver.get_log("browser")
        return [entry["message"] for entry in log if entry["level"] in ("SEVERE", "WARNING")]

    def requested(self) -> list[str]:
        """Addresses that were asked for since last time."""
        messages = (json.loads(e["message"])["message"] for e in self.driver.get_log("performance"))
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A window with an empty profile in this folder. Skips the test where there is no browser."""
    webdriver = pytest.importorskip("selenium.webdriver", reason=f"no selenium: {_INSTALL}")
    from selenium.webdriver.chrome.service import Service

    driver, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or browser is None:
        pytest.skip(f"no Chromium with its driver: {_INSTALL}")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*_FLAGS.split(), f"--user-data-dir={folder}", "--window-size=1200,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = webdriver.Chrome(options, Service(driver))
    try:
        yield Page(window)
    finally:
        window.quit()
