from collections.abc import Iterator
from typing import Any

import pytest

from opened import CHROMIUM


@pytest.fixture(scope="module")  # while it is open, no other test of its process can run an event loop
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()
