from pathlib import Path

import pytest

from commands import run


def test_inspect_writes_one_file_that_needs_nothing_else(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a page with links to other files or hosts, and one of another sentence."""
    page = tmp_path / "page.html"
    result = run("inspect", tiny_run, "one two three", "--target", "3 2 1", "--output", page)
    assert result.returncode == 0, result.stderr
    html = page.read_text(encoding="utf-8")
    assert "Forward Propagation" in html
    assert all(reference not in html for reference in (" src=", "<link", "@import", "url("))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "MODEL", "a \udcff b", "--output", "page.html"], "the text is not UTF-8"),
        (["inspect", "MODEL", "one", "--target", "\udcff", "--output", "page.html"], "the target is not UTF-8"),
        (["inspect", "MODEL", "   ", "--output", "page.html"], "the text is empty"),
        (["inspect", "MODEL", "one " * 90, "--output", "page.html"], "more than 64; shorten it"),
        (["inspect", "MODEL", "one", "--target", " ", "--output", "page.html"], "the target is empty"),
        (["plot", "attention"], "attention needs a model and a text"),
        (["plot", "attention", "MODEL", "one", "--output", "a.bmp"], "ends in neither .svg, .pdf nor .png"),
        (["plot", "positions", "--length", "1000000000"], "--length"),
        (["plot", "scaling", "none.json"], "none.json: No such file or directory"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(
    tiny_run: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    """Catches tracebacks, empty pages and pictures for what a model cannot read."""
    result = run(*(str(tiny_run) if part == "MODEL" else part for part in arguments), cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
