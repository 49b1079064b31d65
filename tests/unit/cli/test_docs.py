"""`transformer docs`."""

import webbrowser
from pathlib import Path

import pytest

from transformer.cli import docs
from transformer.errors import ConfigError


def site(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "index.html").write_text("<title>documentation</title>")
    return folder


def test_site_of_package_comes_before_that_of_checkout(tmp_path: Path) -> None:
    """Catches an installed program that shows the pages of another version."""
    package = tmp_path / "src" / "transformer"
    built = site(tmp_path / "docs" / "_build" / "html")
    assert docs.find_site(package) == built
    installed = site(package / "site")
    assert docs.find_site(package) == installed


def test_missing_site_names_the_way_out(tmp_path: Path) -> None:
    """Catches a browser that opens a page that does not exist."""
    with pytest.raises(ConfigError, match="make docs"):
        docs.find_site(tmp_path / "src" / "transformer")


def test_sources_are_opened_where_the_site_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches an error after `make install`, which does not install what builds the site, and words that are lost."""
    sources = tmp_path / "docs"
    for name, text in {
        "index": "# Start",
        "how-to/serve": "a server with a beam",
        "explanation/search": "beam, beams",
    }.items():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / f"{name}.md").write_text(text)
    (sources / "conf.py").touch()
    opened: list[str] = []
    monkeypatch.setattr(docs, "PACKAGE", tmp_path / "src" / "transformer")
    monkeypatch.setattr(docs, "find_spec", lambda name: None)
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    for query in (None, "beam", "Beam server"):
        docs.docs(query=query)
    assert opened == [(sources / f"{name}.md").as_uri() for name in ("index", "explanation/search", "how-to/serve")]
    shown = capsys.readouterr()
    assert (shown.out.split(), "make docs" in shown.err) == (opened, True)


def test_site_that_cannot_be_built_shows_the_last_message(tmp_path: Path) -> None:
    """Catches a failed build that passes for a site, or ends in a traceback."""
    pytest.importorskip("sphinx")
    (tmp_path / "conf.py").write_text("raise ValueError('no such theme')")
    with pytest.raises(ConfigError, match="cannot be built"):
        docs.build_site(tmp_path)


def test_words_open_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches words that are lost, or not encoded in the address."""
    built = site(tmp_path / "site")
    opened: list[str] = []
    monkeypatch.setattr(docs, "find_site", lambda package: built)
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    docs.docs(query="beam & search")
    assert opened == [f"{built.as_uri()}/search.html?q=beam+%26+search"]
    assert capsys.readouterr().out.strip() == opened[0]


def test_no_browser_is_opened_if_not_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a script or a machine without a screen on which a browser is started."""
    built = site(tmp_path / "site")
    monkeypatch.setattr(docs, "find_site", lambda package: built)
    monkeypatch.setattr(webbrowser, "open", lambda address: pytest.fail(f"opened {address}"))
    docs.docs(no_open=True)
