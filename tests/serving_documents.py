"""Documents that tests send to the server as clients of LibreTranslate and DeepL do."""

import time
from collections.abc import Callable
from typing import Any

import requests

from serving_app import TEST_SECONDS

PO = b"""msgid ""
msgstr ""
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"

#: a.c:1
#, c-format
msgid "Open %s now"
msgstr ""

msgid "Close"
msgstr "Zu"
"""
TRANSLATED = PO.replace(b"#, c-format", b"#, fuzzy, c-format").replace(
    b'now"\nmsgstr ""', b'now"\nmsgstr "OPEN %s NOW"'
)
FORM = {"source": "en", "target": "de"}


def send(address: str, content: bytes = PO, name: str = "app.po", **fields: Any) -> requests.Response:
    """Sends a file as LibreTranslate's clients do."""
    files = {"file": (name, content)}
    return requests.post(f"{address}/translate_file", data=FORM | fields, files=files, timeout=TEST_SECONDS)


def begin(address: str, content: bytes = PO, name: str = "app.po", **fields: Any) -> dict[str, str]:
    """Sends a document as DeepL's clients do, and returns its handle."""
    form = {"source_lang": "EN", "target_lang": "DE", **fields}
    answer = requests.post(f"{address}/v2/document", data=form, files={"file": (name, content)}, timeout=TEST_SECONDS)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ask(address: str, handle: dict[str, str], path: str = "") -> requests.Response:
    url = f"{address}/v2/document/{handle['document_id']}{path}"
    return requests.post(url, json={"document_key": handle["document_key"]}, timeout=TEST_SECONDS)


def wait_for_state(address: str, handle: dict[str, str], *states: str) -> dict[str, Any]:
    end = time.monotonic() + TEST_SECONDS
    while time.monotonic() < end:
        answer = ask(address, handle).json()
        if answer["status"] in states:
            return answer
        time.sleep(0.02)
    raise TimeoutError(answer)


def po_of(n: int, text: str = "Line number {}") -> bytes:
    return PO + b"".join(b'\nmsgid "%b"\nmsgstr ""\n' % text.format(number).encode() for number in range(n))


def wait_until(condition: Callable[[], object]) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + TEST_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)
