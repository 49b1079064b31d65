"""Makes the screenshots of the front page of the documentation again, in Chromium.

Usage: python tools/screenshots.py RUN, where RUN is the folder `run` that `transformer demo` has written.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Error, sync_playwright

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
SIZE = {"width": 1120, "height": 700}
COLOURS = 96
"""Colours of a picture, so that it is small."""
COMMAND = [sys.executable, "-m", "transformer"]
PORT = 18573
TEXT = "Where is the station?"


def save(page: Any, name: str) -> None:
    """Writes what a page shows."""
    path = FIGURES / f"{name}.png"
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


def inspector(page: Any) -> None:
    """Shows the softmax of a head of cross-attention."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        subprocess.run([*COMMAND, "inspect", "en-de", TEXT, "--output", path], check=True)
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-shown]")
        step = "inspector.facts.steps.findLast((one) => one.block.includes('cross') && one.title === 'Softmax').id"
        page.evaluate(f"location.hash = `forward/${{{step}}}`")
        page.wait_for_selector(".terms")
        page.evaluate("window.scrollTo(0, 420)")
        page.wait_for_timeout(300)
        save(page, "screenshot-inspector")


def server(page: Any) -> None:
    """Shows a translation on the page of the server."""
    with subprocess.Popen([*COMMAND, "serve", "en-de", "--port", str(PORT)]) as process:
        try:
            for _ in range(600):
                try:
                    page.goto(f"http://127.0.0.1:{PORT}/")
                    break
                except Error:  # it does not listen yet
                    page.wait_for_timeout(100)
            page.wait_for_selector("#from option[value='en']", state="attached")
            page.fill("#source", "Where is the station? My brother is waiting there.")
            page.locator("#output", has_text="Bahnhof").wait_for()
            page.wait_for_timeout(1000)
            save(page, "screenshot-server")
        finally:
            process.terminate()


def report(page: Any, run: Path) -> None:
    """Shows the report of a run."""
    page.goto((run / "report.html").resolve().as_uri())
    save(page, "screenshot-report")


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    inspector(page)
    server(page)
    report(page, Path(sys.argv[1]))
    browser.close()
