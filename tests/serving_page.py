"""The web page of the server in a browser."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from serving_app import TEST_SECONDS


@contextmanager
def opened(browser: Any, address: str, width: int = 1280, source: str = "en", **options: Any) -> Iterator[Any]:
    """Opens the page; an error of a script and a request to another origin fail the test."""
    context = browser.new_context(viewport={"width": width, "height": 844}, **options)
    languages = json.dumps({"from": source, "to": "de"})
    context.add_init_script(f"localStorage['transformer.languages'] ??= '{languages}'")
    context.set_default_timeout(1000 * TEST_SECONDS)
    page, complaints = context.new_page(), []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if "Refused" in message.text else None)
    page.on("request", lambda sent: complaints.append(sent.url) if not sent.url.startswith(address) else None)
    page.goto(f"{address}/")
    yield page
    context.close()
    assert complaints == []
