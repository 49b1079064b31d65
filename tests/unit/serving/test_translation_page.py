"""The web page in Chromium, in front of the application with a fake engine, which translates into capital letters."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opened import NEEDS_BROWSER
from serving_app import TEST_SECONDS, fake_services, running_app
from serving_fakes import FakeEngine, translation
from serving_page import opened
from transformer.serving.keys import add_key
from transformer.serving.routes.page import page_files
from transformer.serving.settings import Limits

axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
pytestmark = NEEDS_BROWSER

TEXT = "The weather is lovely today. Shall we go for a walk?\n\nWe could meet at the river."
ATTACK = """<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 1"> &amp; <b>Bold words</b>."""
MARKED = "#{} .marked-word"


@pytest.fixture(scope="module")
def address(engine: FakeEngine) -> Iterator[str]:
    with running_app(fake_services(engine)) as address:
        yield address


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    with opened(browser, address) as page:
        page.wait_for_selector("#from option[value='de']", state="attached")
        yield page


def wait_for_output(page: Any, text: str) -> None:
    page.wait_for_function("text => document.getElementById('output').textContent === text", arg=text)


def wait_for_message(page: Any, text: str) -> None:
    page.wait_for_function(
        "text => document.getElementById('message-text').textContent.includes(text)"
        " && !document.getElementById('message').hidden",
        arg=text,
    )


def translate(page: Any, text: str) -> None:
    page.fill("#source", text)
    wait_for_output(page, text.upper())


def focused(page: Any) -> str:
    return page.evaluate("document.activeElement.id || document.activeElement.className")


def answer_with(page: Any, answer: dict[str, Any]) -> None:
    """Lets the page receive an answer that the fake engine would not give."""
    body = json.dumps(answer)
    page.route("**/translate", lambda route: route.fulfill(body=body, content_type="application/json"))


def get(url: str, **headers: str) -> Any:
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TEST_SECONDS)


def test_files_have_types_validators_and_a_strict_policy(address: str) -> None:
    """Catches scripts that a browser refuses for their type, stale files after an upgrade, and inline code."""
    names = {"index.html": "text/html", "app.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg"}
    for name, media_type in names.items():
        answer = get(f"{address}/page/{name}" if name != "index.html" else f"{address}/")
        assert answer.headers["Content-Type"].startswith(media_type)
        assert answer.headers["Cache-Control"] == "no-cache"
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        with pytest.raises(urllib.error.HTTPError, match="304"):
            get(answer.url, **{"If-None-Match": f'"other", W/{answer.headers["ETag"]}'})
    for name in ("../page.py", "..%2Fsettings.py", "none.js"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{address}/page/{name}")


def test_files_name_no_other_origin() -> None:
    """Catches a font, script or style of another server."""
    for name, file in page_files().items():
        content = file.content.decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"^\s*//", "", content, flags=re.MULTILINE), name


def test_text_is_translated_as_typed_with_its_language_detected(browser: Any, address: str) -> None:
    """Catches a page that waits for a button, and one that does not show which language was detected."""
    with opened(browser, address, source="auto") as page:
        page.type("#source", TEXT)
        wait_for_output(page, TEXT.upper())
        assert page.evaluate("document.querySelector('#from option').label") == "English (detected)"
        assert page.get_attribute("#output", "lang") == "de"
        assert page.inner_text("#count") == f"{len(TEXT)} / 200,000 characters"
        assert page.inner_text("#models") == "Translated by en-de"
        page.click("#swap")
        wait_for_output(page, TEXT.lower())
        assert (page.input_value("#from"), page.input_value("#to")) == ("de", "en")


@pytest.mark.parametrize("source", ["en", "auto"])
def test_other_direction_is_offered_for_a_text_in_the_language_of_the_translation(
    browser: Any, address: str, source: str
) -> None:
    """Catches German that is translated to German without a word, and an offer for a text in the right language."""
    german = "Das Wetter ist heute schön. Wollen wir spazieren gehen?"
    with opened(browser, address, source=source) as page:
        offer = page.locator("#offer")
        with page.expect_response("**/detect" if source == "en" else "**/translate"):
            page.fill("#source", TEXT)
        wait_for_output(page, TEXT.upper())
        assert offer.is_hidden()
        page.fill("#source", german)
        offer.wait_for(state="visible")
        assert page.inner_text("#offer-text") == "The text seems to be in German."
        page.click("#offer-action")
        wait_for_output(page, german.lower())
        assert (page.input_value("#from"), page.input_value("#to"), focused(page)) == ("de", "en", "source")
        assert offer.is_hidden()


def test_stale_answer_is_aborted_and_never_shown(page: Any) -> None:
    """Catches an answer to an earlier text that arrives late and replaces the present one."""
    failures: list[str] = []
    page.on("requestfailed", lambda sent: failures.append(sent.post_data_json["q"]))
    page.route("**/translate", lambda route: None if "first" in route.request.post_data else route.continue_())
    with page.expect_request("**/translate"):
        page.fill("#source", "the first text")
    with page.expect_event("requestfailed"):
        page.fill("#source", "the second text")
    wait_for_output(page, "THE SECOND TEXT")
    assert failures == ["the first text"]


def test_other_translation_of_a_sentence_replaces_it(page: Any) -> None:
    """Catches a choice that changes another sentence, or that the next translation of the same text forgets."""
    translate(page, TEXT)
    page.click("#output .sentence >> nth=1")
    page.click("#alternatives button >> nth=2")
    expected = TEXT.upper().replace("A WALK?", "A WALK? (3)")
    wait_for_output(page, expected)
    assert page.locator("#alternatives").is_hidden()
    page.type("#source", " Good.")
    wait_for_output(page, f"{expected} GOOD.")
    page.click("#output .sentence >> nth=1")
    page.wait_for_selector("#alternatives [aria-current]")
    assert page.inner_text("#alternatives [aria-current]") == "SHALL WE GO FOR A WALK? (3)"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("One. Two!", "Eins. Zwei!", [["One.", "Eins."], ["Two!", "Zwei!"]]),
        ("One. Two.\n\nThree.", "Eins und zwei.\n\nDrei.", [["One. Two.", "Eins und zwei."], ["Three.", "Drei."]]),
        ("Dr. Smith came. He left.", "Dr. Schmidt kam. Er ging.",
         [["Dr. Smith came.", "Dr. Schmidt kam."], ["He left.", "Er ging."]]),
        ("你好。再见。", "Hello. Bye.", [["你好。", "Hello."], ["再见。", "Bye."]]),
        ("One.\nTwo. Three.", "Eins und zwei.", [["One.\nTwo. Three.", "Eins und zwei."]]),
        ("One.", "", []),
    ],
)  # fmt: skip
def test_sentences_correspond(page: Any, source: str, target: str, expected: list[list[str]]) -> None:
    """Catches pairs of sentences that are not translations of each other where the numbers of sentences differ."""
    pairs = page.evaluate(
        """async ([source, target]) => {
          const { sentencePairs } = await import("./page/text.js");
          return sentencePairs(source, target, "en", "de").map((pair) =>
            [source.slice(pair.source.start, pair.source.end), target.slice(pair.target.start, pair.target.end)]);
        }""",
        [source, target],
    )
    assert pairs == expected


def test_corresponding_words_are_marked_on_both_sides(page: Any) -> None:
    """Catches marks on the wrong word when the order of words differs, and marks that stay."""
    details = {"alignment": [[0, 2], [1, 0], [1, 1]], "flags": [], "models": ["m"]}
    answer_with(page, {"translatedText": "ZWEI WÖRTER HIER", "details": details})
    page.fill("#source", "here two-words")
    wait_for_output(page, "ZWEI WÖRTER HIER")
    page.hover("#output [data-word='2']")
    assert page.locator(MARKED.format("mirror")).all_inner_texts() == ["here"]
    word = page.locator("#mirror [data-word='1']").bounding_box()
    page.mouse.move(word["x"] + word["width"] / 2, word["y"] + word["height"] / 2)
    page.wait_for_function("() => document.querySelectorAll('#output .marked-word').length === 2")
    assert page.locator(MARKED.format("output")).all_inner_texts() == ["ZWEI", "WÖRTER"]
    page.mouse.move(5, 5)
    page.wait_for_function("() => !document.querySelector('.marked-word')")
    page.focus("#source")
    page.keyboard.press("Control+Home")
    assert page.locator(MARKED.format("output")).all_inner_texts() == ["HIER"]


def test_text_and_translation_lie_exactly_under_the_words(page: Any) -> None:
    """Catches marks that are not behind their words because a text breaks its lines elsewhere."""
    page.fill("#source", "A long line of words " * 40)
    page.wait_for_selector("#mirror .sentence")
    sizes = page.evaluate("['source', 'mirror'].map(id => { const e = document.getElementById(id);"
                          "return [e.clientWidth, e.scrollHeight, getComputedStyle(e).font]; })")  # fmt: skip
    assert sizes[0] == sizes[1]


def test_quality_notes_are_shown_and_withdrawn(page: Any) -> None:
    """Catches notes that are hidden, or that stay beside another text."""
    details = {"alignment": [], "flags": ["the translation lacks a number: <b>7</b>"], "models": ["m"]}
    answer_with(page, {"translatedText": "X", "details": details})
    page.fill("#source", "x 7")
    page.wait_for_selector("#notes li")
    assert page.locator("#notes li").all_inner_texts() == ["The translation lacks a number: <b>7</b>"]
    page.fill("#source", "")
    assert page.locator("#notes").is_hidden()
    assert page.text_content("#output") == ""


def test_unsure_sentences_are_underlined_and_explained(page: Any) -> None:
    """Catches a mark on a sure sentence, and an explanation that pointer or keyboard alone shows, or that stays."""
    page.fill("#source", "A dog.\nAn unclear word.")
    page.wait_for_selector("#output .unsure")
    assert page.locator("#output .unsure").all_inner_texts() == ["AN UNCLEAR WORD."]
    assert "underline" in page.evaluate("getComputedStyle(document.querySelector('.unsure')).textDecorationLine")
    note = page.locator("#unsure-note")
    assert note.is_hidden()
    page.hover("#output .unsure")
    note.wait_for(state="visible")
    page.mouse.move(5, 5)
    note.wait_for(state="hidden")
    page.focus("#output .sentence >> nth=0")
    assert note.is_hidden()
    page.keyboard.press("ArrowDown")
    note.wait_for(state="visible")
    assert page.get_attribute("#output .unsure", "aria-describedby") == "unsure-note"
    page.keyboard.press("Enter")
    page.wait_for_selector("#alternatives li")
    assert note.is_hidden()


def test_html_in_texts_is_text(page: Any) -> None:
    """Catches a page that puts a text, its translation or its history into the document as HTML."""
    count = "document.querySelectorAll('script, img, b').length"
    before = page.evaluate(count)
    page.fill("#source", ATTACK)
    wait_for_output(page, translation("en-de", ATTACK, {})["text"])
    page.click("#output .sentence >> nth=0")
    page.wait_for_selector("#alternatives button")
    page.keyboard.press("Escape")
    page.click("#copy")
    page.evaluate("entry => localStorage.setItem('transformer.history', JSON.stringify([entry, 3, null]))",
                  {"text": ATTACK, "translation": ATTACK, "from": "en", "to": ATTACK})  # fmt: skip
    page.click("#open-history")
    assert page.text_content("#history-list .entry-translation") == ATTACK
    page.click("#history-list .entry")
    wait_for_output(page, translation("en-de", ATTACK, {})["text"])
    assert page.evaluate(count) == before
    assert page.evaluate("window.hacked") is None


def test_history_stays_in_the_browser_until_cleared(page: Any) -> None:
    """Catches an entry for each typed letter, and a history that cannot be restored, cleared or switched off."""
    translate(page, "A first")
    page.click("#copy")
    page.type("#source", " text")
    wait_for_output(page, "A FIRST TEXT")
    page.click("#copy")
    translate(page, "Another text")
    page.click("#clear")
    page.click("#open-history")
    assert page.locator(".entry-text").all_inner_texts() == ["Another text", "A first text"]
    page.click(".entry >> nth=1")
    wait_for_output(page, "A FIRST TEXT")
    page.click("#open-history")
    page.click(".remove >> nth=0")
    assert page.locator(".entry-text").all_inner_texts() == ["A first text"]
    page.click("#history-clear")
    page.uncheck("#history-on")
    page.keyboard.press("Escape")
    translate(page, "A secret text")
    page.click("#copy")
    assert page.evaluate("localStorage.getItem('transformer.history')") is None


def test_page_waits_as_long_as_a_full_server_asks(page: Any, engine: FakeEngine) -> None:
    """Catches a page that gives up, or that shows the old translation as if it were of the present text."""
    translate(page, "Some text")
    engine.is_full = True
    try:
        page.fill("#source", "More text")
        wait_for_message(page, "There are too many requests. Trying again in")
        assert page.locator("#result.stale").count() == 1
        contrast = axe_playwright.Axe().run(page, options={"runOnly": ["color-contrast"]}).response["violations"]
        assert contrast == [], "of the old translation"
        assert page.is_disabled("#copy")
    finally:
        engine.is_full = False
    wait_for_output(page, "MORE TEXT")
    assert page.locator("#message").is_hidden()


def test_page_asks_again_when_the_server_cannot_be_reached(browser: Any, address: str) -> None:
    """Catches a page that stays without languages when the server starts later, even while one types."""
    with opened(browser, address) as page:
        page.route("**/languages", lambda route: route.abort())
        page.reload()
        wait_for_message(page, "The server cannot be reached.")
        page.fill("#source", "Some text")
        page.unroute("**/languages")
        wait_for_output(page, "SOME TEXT")


def test_text_beyond_the_limit_is_not_sent(browser: Any) -> None:
    """Catches a limit that counts UTF-16 units, and a request that the server would refuse."""
    with running_app(fake_services(limits=Limits(characters=5))) as address, opened(browser, address) as page:
        translate(page, "😀😀😀😀😀")
        page.fill("#source", "😀😀😀😀😀😀")
        wait_for_message(page, "The text is longer than this server allows.")
        assert page.inner_text("#count") == "6 / 5 characters"


def test_key_is_asked_for_kept_and_sent(browser: Any, tmp_path: Path) -> None:
    """Catches a page that cannot be used where a key is needed, and a key that a reload forgets."""
    keys = tmp_path / "keys.toml"
    key = add_key(keys, "page")
    with running_app(fake_services(keys=keys)) as address, opened(browser, address) as page:
        wait_for_message(page, "This server needs an API key.")
        for value, message in (("wrong", "The server does not accept the API key."), (key, "")):
            page.click("#open-key")
            page.fill("#key-value", value)
            page.keyboard.press("Enter")
            page.fill("#source", f"Text with key {len(value)}")
            if message:
                wait_for_message(page, message)
        wait_for_output(page, f"TEXT WITH KEY {len(key)}")
        page.reload()
        page.wait_for_selector("#to option", state="attached")
        translate(page, "After a reload")


def test_page_works_with_the_keyboard_alone(page: Any) -> None:
    """Catches parts that only a mouse reaches, and a focus that is lost or invisible."""
    page.keyboard.type(TEXT)
    page.keyboard.press("Control+Enter")
    page.wait_for_function("() => document.activeElement.classList.contains('sentence')")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(MARKED.format("mirror")).all_inner_texts() == ["weather"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.closest('#alternatives')")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    wait_for_output(page, TEXT.upper().replace("WALK?", "WALK? (2)"))
    assert "sentence" in focused(page)
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.closest('#alternatives')")
    page.keyboard.press("Escape")
    assert "sentence" in focused(page)
    page.keyboard.press("Alt+Shift+KeyS")
    page.wait_for_function("() => document.getElementById('from').value === 'de'")
    page.keyboard.press("Alt+Shift+KeyX")
    assert (focused(page), page.input_value("#source")) == ("source", "")
    page.keyboard.press("Alt+Shift+KeyH")
    page.wait_for_selector("#history[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#history", state="hidden")


def test_each_tab_stop_shows_its_focus(page: Any) -> None:
    """Catches a style that removes the outline of a control."""
    translate(page, TEXT)
    page.focus(".skip")
    stops = []
    while not stops or (focused(page) not in stops and focused(page)):
        stops.append(focused(page))
        shown = page.evaluate(
            """() => {
              const style = getComputedStyle(document.activeElement);
              const bar = getComputedStyle(document.activeElement.closest(".pane") ?? document.body, "::after");
              return style.outlineStyle !== "none" || bar.borderTopStyle === "solid";
            }"""
        )
        assert shown, stops[-1]
        page.keyboard.press("Tab")
    assert {"open-history", "open-keyboard", "dark", "from", "swap", "to", "source", "clear", "copy"} <= set(stops)


def test_copy_writes_the_translation(browser: Any, address: str) -> None:
    """Catches a button that copies the best translation although another one was chosen."""
    with opened(browser, address, permissions=["clipboard-read", "clipboard-write"]) as page:
        translate(page, "A text.")
        page.click("#output .sentence")
        page.click("#alternatives button >> nth=1")
        page.click("#copy")
        page.wait_for_function("() => document.getElementById('copy-label').textContent === 'Copied'")
        assert page.evaluate("navigator.clipboard.readText()") == "A TEXT. (2)"


def test_right_to_left_text_runs_right_to_left(page: Any) -> None:
    """Catches Arabic or Hebrew that begins at the left."""
    translate(page, "שלום עולם")
    for name in ("source", "mirror", "output"):
        assert page.evaluate(f"document.getElementById('{name}').matches(':dir(rtl)')"), name


def test_theme_follows_the_system_until_switched(browser: Any, address: str) -> None:
    """Catches a switch that a reload forgets, and one that no longer follows the system after switching twice."""
    back = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, address, color_scheme="light") as page:
        light = page.evaluate(back)
        page.click("#dark")
        dark = page.evaluate(back)
        page.reload()
        assert page.evaluate(back) == dark != light
        page.click("#dark")
        assert page.evaluate(back) == light
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(back) == dark


def test_page_works_under_the_path_of_a_proxy(browser: Any) -> None:
    """Catches an absolute address, which would miss the path."""
    path = "/tools/translate"
    with running_app(fake_services(root_path=path)) as address, opened(browser, f"{address}{path}") as page:
        translate(page, "Some text")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_and_nothing_scrolls_sideways(browser: Any, address: str, width: int, scheme: str) -> None:
    """Catches controls without names, too little contrast, and a page wider than a phone."""
    axe, violations = axe_playwright.Axe(), {}
    with opened(browser, address, width=width, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce") as page:

        def check(state: str) -> None:
            results = axe.run(page, options={"resultTypes": ["violations"]})
            for one in results.response["violations"]:
                violations[state, one["id"], one["impact"]] = [node["html"][:100] for node in one["nodes"]][:3]
            assert page.evaluate("document.documentElement.scrollWidth") <= width, state

        page.wait_for_selector("#to option", state="attached")
        check("empty")
        translate(page, f"{TEXT} {'unbreakable' * 20}")
        check("translated")
        page.click("#output .sentence >> nth=0")
        page.wait_for_selector("#alternatives button")
        check("alternatives")
        page.keyboard.press("Escape")
        page.click("#copy")
        for name in ("history", "keyboard"):
            page.click(f"#open-{name}")
            check(name)
            page.keyboard.press("Escape")
        page.fill("#source", "Das Wetter ist heute schön. Wollen wir spazieren gehen?")
        page.wait_for_selector("#offer")
        check("offer")
        answer_with(page, {"translatedText": "X", "details": {"flags": ["a note"], "models": ["m"], "alignment": []}})
        page.fill("#source", "noted")
        page.wait_for_selector("#notes li")
        check("notes")
        page.unroute("**/translate")
        page.route("**/translate", lambda route: route.abort())
        page.fill("#source", "unreachable")
        wait_for_message(page, "cannot be reached")
        check("message")
    assert violations == {}
