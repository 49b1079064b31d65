"""Pages of the inspector, opened in Chromium."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
NEEDS_BROWSER = [
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="needs playwright"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"needs {CHROMIUM}"),
]


def open_page(
    browser: Any, html: str, folder: Path, width: int = 1280, address: str = "", **options: Any
) -> Iterator[Any]:
    (folder / "page.html").write_text(html, encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if not request.url.startswith("file:") else None)
    page.goto((folder / "page.html").as_uri() + (f"#{address}" if address else ""))
    page.wait_for_selector("body[data-shown]")
    yield page
    context.close()
    assert complaints == []


def go(page: Any, address: str) -> None:
    page.evaluate("address => { location.hash = address; }", address)
    page.wait_for_selector(f"body[data-shown='#{address}']")
