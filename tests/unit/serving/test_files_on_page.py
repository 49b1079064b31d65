"""Files on the web page, in Chromium, in front of the application with a fake engine that writes capital letters."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opened import NEEDS_BROWSER
from serving_app import fake_services, running_app
from serving_fakes import FakeEngine
from serving_page import opened
from transformer.serving.keys import add_key
from transformer.serving.settings import Limits

axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
pytestmark = NEEDS_BROWSER

PO = b'msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "Open %s"\nmsgstr ""\n\nmsgid "Close"\nmsgstr "Zu"\n'
TRANSLATED = PO.replace(b'msgid "Open %s"\nmsgstr ""', b'#, fuzzy\nmsgid "Open %s"\nmsgstr "OPEN %s"')
DROP = """([name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name));
    const send = (type) => document.getElementById("source").dispatchEvent(
        new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: data }));
    window.dropWasTaken = !send("dragenter") || document.getElementById("drop").hidden === false;
    send("dragover");
    send("drop");
}"""


@pytest.fixture(scope="module")
def address(engine: FakeEngine) -> Iterator[str]:
    with running_app(fake_services(engine, limits=Limits(document_bytes=5000))) as address:
        yield address


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    with opened(browser, address) as page:
        page.wait_for_selector("#choose-file", state="visible")
        yield page


def choose(page: Any, name: str, content: bytes) -> None:
    page.set_input_files("#file-input", {"name": name, "mimeType": "text/plain", "buffer": content})


def wait_for_state(page: Any, text: str) -> None:
    page.wait_for_function("text => document.getElementById('file-state').textContent.includes(text)", arg=text)


def test_chosen_file_is_translated_and_downloaded(page: Any, tmp_path: Path) -> None:
    """Catches a file that is not sent, or comes back under another name or with other bytes."""
    choose(page, "app.po", PO)
    wait_for_state(page, "1 segment translated, 1 kept.")
    with page.expect_download() as download:
        page.click("#file-download")
    assert download.value.suggested_filename == "app_de.po"
    download.value.save_as(tmp_path / "out.po")
    assert (tmp_path / "out.po").read_bytes() == TRANSLATED
    assert page.locator("#file-progress").is_hidden()
    page.click("#file-close")
    assert page.locator("#file").is_hidden()
    assert page.evaluate("document.activeElement.id") == "choose-file"


def test_keyboard_opens_the_choice_of_files(page: Any) -> None:
    """Catches files that only a pointer can choose."""
    file = {"name": "app.po", "mimeType": "text/plain", "buffer": PO}
    page.on("filechooser", lambda chooser: chooser.set_files(file))
    page.wait_for_timeout(200)  # the browser is told in the background that it must not show its own dialog
    page.focus("#source")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "choose-file"
    page.keyboard.press("Enter")
    wait_for_state(page, "1 segment translated")


def test_dropped_file_is_translated(page: Any) -> None:
    """Catches a drop that shows the file instead of the page, or fills the text with its path."""
    page.evaluate(DROP, ["app.po", PO.decode()])
    wait_for_state(page, "1 segment translated")
    assert page.evaluate("window.dropWasTaken")
    assert page.locator("#drop").is_hidden()
    assert page.input_value("#source") == ""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.exe", b"MZ", "Files of this format are not translated"),
        ("a.po", b'msgid "x', "A.po"),
        ("large.po", b"#" * 5001, "The file has more than 5,000 bytes."),
    ],
)
def test_refused_file_says_why(page: Any, name: str, content: bytes, message: str) -> None:
    """Catches a wrong file without a word, and progress that never ends."""
    choose(page, name, content)
    wait_for_state(page, message)
    assert page.locator("#file-progress").is_hidden()
    assert page.locator("#file-download").is_hidden()


def test_progress_is_shown_and_cancel_reaches_the_server(page: Any, engine: FakeEngine) -> None:
    """Catches a long file without progress, and one that is translated after it was cancelled."""
    content = PO + b"".join(b'\nmsgid "Line %d"\nmsgstr ""\n' % number for number in range(150))
    before = engine.n_cancelled
    engine.gate.clear()
    choose(page, "long.po", content)
    wait_for_state(page, "0 of 151 lines")
    with page.expect_response(lambda answer: answer.request.method == "DELETE") as answer:
        page.click("#file-close")
    assert answer.value.status == 204
    page.wait_for_timeout(100)
    assert engine.n_cancelled > before
    engine.gate.set()


def test_summary_names_what_is_unsure_or_untranslated(page: Any) -> None:
    """Catches a bad translation that nobody is told of, and text of a file that becomes HTML."""
    counts = {"lines": 3, "lines_done": 3, "translated": 2, "unsure": 1, "untranslated": 1, "kept": 0}
    problems = [
        {"place": "a.po:12", "reason": "left untranslated: the translation lacks <b>%s</b>"},
        {"place": "a.po:20", "reason": "unsure (confidence 0.31)"},
    ]
    details = {"name": "a_de.po", **counts, "reasons": {"lacks": 1, "unsure": 1}, "problems": problems}
    answer = json.dumps({"document_id": "x", "status": "done", "details": details})

    def reply(route: Any) -> None:
        is_state = "/document/" in route.request.url and not route.request.url.endswith("/result")
        route.fulfill(body=answer, content_type="application/json") if is_state else route.continue_()

    page.route("**/v2/document/**", reply)
    choose(page, "a.po", PO)
    wait_for_state(page, "2 segments translated (1 unsure), 1 left untranslated.")
    assert page.locator("#file-notes li").all_inner_texts() == [
        "Line 12: left untranslated: the translation lacks <b>%s</b>",
        "Line 20: unsure (confidence 0.31)",
    ]


def test_key_is_asked_for(browser: Any, tmp_path: Path) -> None:
    """Catches a file that is refused for its key without a way to give one."""
    key = add_key(tmp_path / "keys", "mine")
    with running_app(fake_services(FakeEngine(), keys=tmp_path / "keys")) as address, opened(browser, address) as page:
        page.wait_for_selector("#choose-file", state="visible")
        choose(page, "app.po", PO)
        wait_for_state(page, "This server needs an API key.")
        page.evaluate("key => localStorage.setItem('transformer.key', JSON.stringify(key))", key)
        choose(page, "app.po", PO)
        wait_for_state(page, "1 segment translated")


def test_no_files_are_offered_where_the_server_translates_none(browser: Any) -> None:
    """Catches a button that leads to an error."""
    services = fake_services(FakeEngine(), limits=Limits(documents=0))
    with running_app(services) as address, opened(browser, address) as page:
        page.wait_for_selector("#from option[value='de']", state="attached")
        assert page.locator("#choose-file").is_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_about_a_file(browser: Any, address: str, width: int, scheme: str) -> None:
    """Catches names, contrast and roles of the file that are missing, and a page that scrolls sideways."""
    axe = axe_playwright.Axe()
    with opened(browser, address, width=width, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce") as page:
        page.wait_for_selector("#choose-file", state="visible")
        for name, content, text in ((f"{'long-name-' * 12}.po", PO, "1 segment"), ("a.exe", b"MZ", "not translated")):
            choose(page, name, content)
            wait_for_state(page, text)
            violations = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
            assert [violation["id"] for violation in violations] == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
