"""Runs the commands and the Python that README and the pages of the documentation show, and compares the outputs."""

import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest

from samples import ROOT

SHOWN = [
    path
    for folder in ("tutorials", "how-to", "explanation", "reference")
    for path in sorted((ROOT / "docs" / folder).glob("*.md"))
]
NAMES = [str(path.relative_to(ROOT / "docs").with_suffix("")) for path in SHOWN]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Starts the program once for all pages."""
    with pages.shell(tmp_path_factory.mktemp("shell")) as environment:
        yield environment


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    """Returns a folder with the files and the run that pages mention."""
    folder = tmp_path_factory.mktemp("prepared")
    pages.sandbox(folder)
    training = "transformer train corpus.en corpus.de --set model.d_model=64 --quiet"
    subprocess.run(["bash", "-c", training], cwd=folder, env=environment, check=True)
    return folder


@pytest.mark.parametrize("path", SHOWN, ids=NAMES)
def test_page_shows_what_its_code_prints(
    path: Path, prepared: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Catches a page whose commands or Python fail or print something else."""
    text = path.read_text(encoding="utf-8")
    if not pages.blocks(text, "pycon", "console"):
        pytest.skip("the page shows no code that is run")
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder)
    for _, examples in pages.run_page(text, folder, environment):
        for example in examples:
            assert example.holds, f"{example.source}\nshown:\n{example.shown}\nprinted:\n{example.printed}"


@pytest.mark.parametrize("path", SHOWN, ids=NAMES)
def test_options_of_page_exist(path: Path) -> None:
    """Catches a command that is only shown and names a command or an option that the program does not have."""
    known = pages.options_of_program()
    scripts = pages.blocks(path.read_text(encoding="utf-8"), "sh", "console")
    assert [word for script in scripts for word in pages.unknown_words(script.text, known)] == []


def known_keys() -> set[str]:
    """Returns the keys that a recipe may have, of all tasks and families."""
    from transformer.cli.train import recipe_sections
    from transformer.models import family, family_names

    keys = {key for _, rows in recipe_sections() for key, _, _ in rows}
    keys |= {f"model.{key}" for name in family_names() for key in family(name).config.model_fields}
    return keys


@pytest.mark.parametrize("path", SHOWN, ids=NAMES)
def test_keys_of_page_exist(path: Path) -> None:
    """Catches a recipe on a page with a key that no recipe may have."""
    known = known_keys()
    for block in pages.blocks(path.read_text(encoding="utf-8"), "toml"):
        for section, table in tomllib.loads(block.text).items():
            if section in ("data", "tokenizer", "model", "training"):
                assert {f"{section}.{key}" for key in table} <= known
