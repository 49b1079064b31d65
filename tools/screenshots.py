"""Makes the screenshots of the documentation again, in Chromium and LibreOffice.

Usage: python tools/screenshots.py RUN, where RUN is the folder `run` that `transformer demo` has written.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps
from playwright.sync_api import Error, sync_playwright

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
SIZE = {"width": 1120, "height": 700}
COLOURS = 96
"""Colours of a picture, so that it is small."""
COMMAND = [sys.executable, "-m", "transformer"]
PORT = 18573
TEXT = "Where is the station?"
NOTICE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>The museum</title>
<style>body { font: 17px/1.5 sans-serif; margin: 24px } td, th { border: 1px solid #999; padding: 2px 10px }</style>
<h1>The museum</h1>
<p>The museum is <b>open every day</b>. The old town is <i>very beautiful</i>.</p>
<table><tr><th>Day</th><th>Opens</th></tr><tr><td>Monday</td><td>9:30</td></tr><tr><td>Sunday</td><td>11:00</td></tr>
</table>
<p>The <a href="tickets.html">tickets</a> are cheap.</p>
<ul><li>Dogs are not allowed.</li><li>Please do not touch the pictures.</li></ul>
"""
"""A page with a table, a list, a link and words in bold and italics."""


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


def pair(before: Path, after: Path, name: str) -> None:
    """Writes two pictures beside each other, each without its white margins."""
    pictures = [Image.open(path).convert("RGB") for path in (before, after)]
    boxes = [ImageOps.invert(picture).getbbox() or (0, 0, *picture.size) for picture in pictures]
    width, height = (max(box[side + 2] for box in boxes) + 24 for side in (0, 1))
    both = Image.new("RGB", (2 * width + 12, height), "#bbb")
    for index, picture in enumerate(pictures):
        both.paste(
            ImageOps.pad(picture.crop((0, 0, width, height)), (width, height), color="white"), (index * (width + 12), 0)
        )
    path = FIGURES / f"{name}.png"
    both.quantize(COLOURS).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


def documents(page: Any) -> None:
    """Shows a web page and a document of Word before and after their translation."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "museum.html")
        source.write_text(NOTICE)
        office(source, "docx:MS Word 2007 XML")
        for kind in ("html", "docx"):
            files = [Path(folder, f"museum.{kind}"), Path(folder, f"museum.de.{kind}")]
            subprocess.run([*COMMAND, "translate", "en-de", "--input", files[0], "--output", files[1]], check=True)
            for path in files:
                if kind == "docx":
                    office(path, "png")
                else:
                    page.set_viewport_size({"width": 520, "height": 460})
                    page.goto(path.as_uri())
                    page.screenshot(path=path.with_suffix(".png"))
            pair(files[0].with_suffix(".png"), files[1].with_suffix(".png"), f"document-{kind}")


def office(path: Path, target: str) -> None:
    """Converts a document with LibreOffice, beside it."""
    command = ["soffice", "--headless", "--convert-to", target, "--outdir", path.parent, path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    inspector(page)
    server(page)
    documents(page)
    report(page, Path(sys.argv[1]))
    browser.close()
