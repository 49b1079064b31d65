"""Runs the commands and the code of the README and the docs unchanged."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from samples import ROOT, digit_pairs, write_lines

SHORT = ["--set", "training.max_steps=20", "--set", "model.d_model=32"]
FENCE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(path: Path, language: str) -> list[str]:
    """Returns the code blocks of a page in one language."""
    return [text for name, text in FENCE.findall(path.read_text(encoding="utf-8")) if name == language]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the files that the README mentions and the training run that the docs use."""
    folder = tmp_path_factory.mktemp("reader")
    pairs = digit_pairs(200)
    for name, subset in (("corpus", pairs), ("test", pairs[:20]), ("new", pairs[:5])):
        write_lines(folder / f"{name}.en", [source for source, _ in subset])
        write_lines(folder / f"{name}.de", [target for _, target in subset])
    train = ["train", "--source", "corpus.en", "--target", "corpus.de", "--run", "runs/first"]
    result = run([sys.executable, "-m", "transformer", *train, *SHORT], folder)
    assert result.returncode == 0, result.stderr
    return folder


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder and captures its output."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_readme_commands_and_code(folder: Path) -> None:
    """Catches a README that shows commands, options or names that do not exist."""
    readme = ROOT / "README.md"
    lines = [line.split("  #")[0] for block in blocks(readme, "sh") for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("transformer ")]
    names = [command[1] for command in commands]
    assert names == ["translate", "inspect", "serve", "docs", "train", "translate", "evaluate"]
    for command in commands:
        if command[1] in ("docs", "serve"):  # `make docs` builds the site, and test_serve.py starts a server
            continue
        overrides = SHORT if command[1] == "train" else []  # as shown, except that training is shortened
        if "en-de" in command:
            command[command.index("en-de")] = str(ROOT / "models" / "en-de" / "transformer_model_en_de" / "bundle")
        result = run([sys.executable, "-m", *command, *overrides], folder)
        assert result.returncode == 0, result.stderr
    assert (folder / "new.de").read_text().count("\n") == 5
    assert (folder / "station.html").stat().st_size > 100_000
    for code in blocks(readme, "python"):
        result = run([sys.executable, "-c", code], folder)
        assert result.returncode == 0, result.stderr


def test_code_of_the_docs(folder: Path) -> None:
    """Catches Python in the docs that does not run."""
    recipe = f'[data]\nsource = "{folder}/corpus.en"\ntarget = "{folder}/corpus.de"\n[training]\nmax_steps = 3\n'
    (folder / "recipe.toml").write_text(recipe)
    for page in sorted((ROOT / "docs").glob("*.md")):
        for code in blocks(page, "python"):
            result = run([sys.executable, "-c", code], folder)
            assert result.returncode == 0, f"{page.name}: {result.stderr}"


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, in GitHub's form."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    """Catches links to files and headings that do not exist."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
    for page in pages:
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            if link.startswith("https://"):
                continue
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            assert target.exists(), f"{page.name}: {link}"
            assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


def test_every_direct_dependency_is_pinned() -> None:
    """Catches a dependency that is not pinned, so that its newest version would be installed."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]  # noqa: RUF017
    names = {re.split(r"[<>=\[;]", requirement)[0] for requirement in requirements}
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    # torch requires one version of triton exactly, which differs between its builds; a pin would contradict it.
    assert names - {"transformer", "triton"} <= pinned
    assert "triton" not in pinned
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().splitlines()
