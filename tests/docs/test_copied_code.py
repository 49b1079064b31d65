"""Code that the copy button of the documentation copies."""

import re
import runpy
from pathlib import Path
from textwrap import dedent

import pytest

from samples import ROOT

FENCE = re.compile(r"```pycon\n(.*?)```", re.DOTALL)
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "```pycon" in page.read_text(encoding="utf-8")]


@pytest.fixture(scope="module")
def prompt() -> re.Pattern[str]:
    pytest.importorskip("sphinx", reason="needs sphinx")
    settings = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    assert settings["copybutton_prompt_is_regexp"]
    assert settings["copybutton_only_copy_prompt_lines"]
    return re.compile(f"^({settings['copybutton_prompt_text']})(.*)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_copied_blocks_are_python(page: Path, prompt: re.Pattern[str]) -> None:
    """Catches prompts and outputs in what is copied, which Python refuses."""
    for block in FENCE.findall(page.read_text(encoding="utf-8")):
        lines = [command[2] for line in dedent(block).splitlines() if (command := prompt.match(line))]
        assert lines
        compile("\n".join(lines) + "\n", str(page), "exec")
