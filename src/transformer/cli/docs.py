"""`transformer docs`: opens the documentation, which needs no network."""

import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer

from transformer.cli.progress import spinner
from transformer.cli.verbosity import say, takes_verbosity
from transformer.errors import ConfigError

EPILOG = 'Example: transformer docs "beam search"'
PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = ("tutorials", "how-to", "explanation", "reference")
"""Folders of pages for users, among the sources of the site."""


@takes_verbosity
def docs(
    query: Annotated[str | None, typer.Argument(help="words to search for; the first page if not given")] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="print the address and do not open a browser")] = False,
) -> None:
    """Open the documentation in a browser: tutorials, how-to guides, explanations and the reference.

    It is read from files of this installation. In a checkout it is built first where it is missing; without the
    packages for that, a page of its sources is opened.
    """
    site, sources = find_site(PACKAGE), PACKAGE.parents[1] / "docs"
    if site is not None:
        address = site.joinpath("search.html" if query else "index.html").as_uri()
        if query:
            address += "?" + urlencode({"q": query})
    else:
        address = find_page(sources, query or "").as_uri()
        say("make docs builds the site; this is a page of its sources:")
    typer.echo(address)
    if not no_open and not webbrowser.open(address):
        say("no browser was found; open the address above in one")


def find_site(package: Path) -> Path | None:
    """Returns the folder of the built documentation: within the package, or in the checkout that it belongs to.

    Args:
        package: Folder of the package `transformer`.

    Returns:
        None if there are only the sources, without the packages that build it.

    Raises:
        ConfigError: The sources are missing too, or building fails.
    """
    sources = package.parents[1] / "docs"
    for folder in (package / "site", sources / "_build" / "html"):
        if (folder / "index.html").is_file():
            return folder
    if not (sources / "conf.py").is_file():
        raise ConfigError(
            f"documentation={package / 'site'} does not exist; read docs/ in the sources, or run make docs"
        )
    if find_spec("sphinx") is None or find_spec("furo") is None:
        return None
    with spinner("building the documentation, about a minute"):
        return build_site(sources)


def find_page(sources: Path, query: str) -> Path:
    """Returns the page of the sources with most of the words, and among those the one in which they are most frequent.

    Args:
        sources: The folder `docs` of the project.
        query: Words to search for; the first page without any.
    """
    words = query.lower().split()

    def relevance(page: Path) -> tuple[int, float]:
        text = page.read_text(encoding="utf-8").lower()
        counts = [text.count(word) for word in words]
        return sum(map(bool, counts)), sum(counts) / len(text)

    pages = sorted(page for folder in FOLDERS for page in (sources / folder).glob("*.md"))
    return max(pages, key=relevance) if words else sources / "index.md"


def build_site(sources: Path) -> Path:
    """Builds the site with Sphinx and returns its folder.

    Args:
        sources: The folder `docs` of the project.
    """
    import subprocess

    site = sources / "_build" / "html"
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-d",
        str(sources / "_build" / "doctrees"),
        str(sources),
        str(site),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"documentation={sources} cannot be built: {last}; run make docs to see all messages")
    return site
