"""The built documentation in a browser; `make docs` builds it."""

import re
from typing import Any

import pytest

from opened import NEEDS_BROWSER
from samples import ROOT

SITE = ROOT / "docs" / "_build" / "html"
SHOWN = [
    "index", "tutorials/first-translator", "how-to/translate", "explanation/attention", "explanation/shape-walk",
    "explanation/glossary", "explanation/interpretability", "reference/_generated/commands/translate",
    "reference/python", "development/architecture",
]  # fmt: skip
pytestmark = [
    *NEEDS_BROWSER,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built; run make docs"),
]


@pytest.mark.parametrize("name", SHOWN)
def test_page_is_accessible_and_fits_the_screen(browser: Any, name: str) -> None:
    """Catches text without contrast, drawings without names, tables wider than a phone, and requests to other hosts."""
    from axe_playwright_python.sync_playwright import Axe

    for width, theme in ((1280, "light"), (1280, "dark"), (390, "light")):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        requests: list[str] = []
        page.on("request", lambda request, requests=requests: requests.append(request.url))
        page.goto((SITE / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (width, theme)
        violations = Axe().run(page).response["violations"]
        serious = [
            (finding["id"], finding["nodes"][0]["html"][:200], finding["nodes"][0].get("failureSummary", "")[:200])
            for finding in violations
            if finding["impact"] in ("serious", "critical")
        ]
        assert serious == [], (width, theme)
        assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
        page.close()


def test_the_theme_of_the_site_reaches_the_inspector(browser: Any) -> None:
    """Catches a dark inspector in a light page, where the reader has chosen another theme than the system's."""
    page = browser.new_page(color_scheme="dark")
    page.goto((SITE / "tutorials" / "forward-and-backward.html").as_uri())
    page.locator(".inspector iframe").first.scroll_into_view_if_needed()
    frame = page.frame_locator(".inspector iframe").first.locator("html")
    frame.and_(page.frame_locator(".inspector iframe").first.locator("[data-theme=dark]")).wait_for()
    page.evaluate("document.body.dataset.theme = 'light'")
    frame.and_(page.frame_locator(".inspector iframe").first.locator("[data-theme=light]")).wait_for()
    page.close()


def test_search_finds_what_engineers_ask_for(browser: Any) -> None:
    """Catches a search that needs a server, or in which decisions come before the page of a task."""
    for words, wanted in (
        ("compare significance", "how-to/evaluate-and-compare"),
        ("resume machine", "how-to/resume"),
        ("glossary", "how-to/glossary-and-tags"),
        ("placeholders HTML tags", "how-to/glossary-and-tags"),
        ("quantize int8", "how-to/speed"),
        ("import Marian model", "how-to/import-and-export"),
        ("back-translation monolingual", "how-to/own-data"),
        ("which hyperparameters did the paper use for big", "explanation/hyperparameters"),  # no page has all words
    ):
        page = browser.new_page()
        page.goto(f"{(SITE / 'search.html').as_uri()}?q={words}")
        page.wait_for_selector("#search-results li a")
        page.wait_for_function("() => document.querySelector('#search-results p')?.textContent.match(/found|finished/)")
        links = page.eval_on_selector_all("#search-results li a", "links => links.map(link => link.href)")
        assert any(wanted in link for link in links[:3]), (words, links[:3])
        assert not any("/decisions/" in link for link in links), words
        page.close()


def test_pages_are_small() -> None:
    """Catches a page that takes long on a slow network; pages of the inspector are embedded as files of their own."""
    large = {
        path.relative_to(SITE): path.stat().st_size
        for path in SITE.rglob("*.html")
        if path.stat().st_size > 320_000 and "_static" not in path.parts and "_modules" not in path.parts
    }
    assert large == {}


def test_pages_ask_nothing_of_the_network() -> None:
    """Catches scripts, styles, fonts and pictures of other hosts; links to read are no requests."""
    loads = re.compile(
        r'<(?:script|img|iframe|source)[^>]+src="(?:https?:)?//|<link[^>]+href="(?:https?:)?//[^"]+\.css'
    )
    assert [path for path in SITE.rglob("*.html") if loads.search(path.read_text(encoding="utf-8"))] == []
