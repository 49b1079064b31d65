"""Exercises of the explanations, and their answers."""

import re
from pathlib import Path

import pages
import pytest

from samples import ROOT

FOLDER = ROOT / "docs" / "explanation"
NOT_TEACHING = {"bibliography", "glossary", "headings", "index"}
TEACHING = [path for path in sorted(FOLDER.glob("*.md")) if path.stem not in NOT_TEACHING]
EXERCISE = re.compile(r"^\*\*Exercise \d+\.\*\* .+?(?=^\*\*Exercise|^## |\Z)", re.M | re.S)
ANSWER = re.compile(r"^(```+)\{dropdown\} Answer\n(?P<text>.+?)^\1$", re.M | re.S)


@pytest.mark.parametrize("path", TEACHING, ids=lambda path: path.stem)
def test_page_has_two_exercises_with_answers(path: Path) -> None:
    """Catches a page without exercises, and an exercise whose answer is missing or shown at once."""
    exercises = EXERCISE.findall(path.read_text(encoding="utf-8"))
    assert len(exercises) >= 2
    for exercise in exercises:
        assert len(ANSWER.findall(exercise)) == 1, exercise


def test_code_of_answers_is_found() -> None:
    """Catches code within an answer that is not run."""
    page = "````{dropdown} Answer\nThe sum:\n\n```pycon\n>>> 1 + 1\n2\n```\n````\n"
    (block,) = pages.blocks(page, "pycon")
    assert block.text == page[block.start : block.end] == ">>> 1 + 1\n2\n"
