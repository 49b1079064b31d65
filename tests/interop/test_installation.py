"""Installation as a stranger does it: from the public index, and from wheels in an empty environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import resolve_constraints
from samples import ROOT

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", resolve_constraints.VERSIONS)
def test_constraints_resolve_from_the_public_index(version: str) -> None:
    """Catches a pinned version that contradicts another one, so that the first command fails everywhere but here."""
    rows = list(resolve_constraints.resolve_all([version], list(resolve_constraints.REQUESTS)))
    assert [row["error"] for row in rows] == [None] * len(rows)
    assert {row["torch"] for row in rows} == {"2.13.0"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of wheels built from a clean copy of the project, with the documentation built before."""
    folder = tmp_path_factory.mktemp("build")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        (folder / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "project" / name, follow_symlinks=False)
    shutil.copytree(ROOT / "docs" / "_build" / "html", folder / "project" / "docs" / "_build" / "html")
    for source in (".", "models/en-de"):
        command = [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), source]
        subprocess.run(command, cwd=folder / "project", capture_output=True, check=True)
    return folder / "dist"


@pytest.fixture(scope="module")
def environment(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the programs of an empty environment in which only the program's wheel is installed."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    [wheel] = dist.glob("transformer-*.whl")
    constraints = str(ROOT / "constraints.txt")
    install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--constraint", constraints, str(wheel)]
    subprocess.run(install, check=True)
    return folder / "bin"


def run(environment: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    bare = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(environment / "transformer"), *arguments]
    return subprocess.run(command, cwd=environment.parent, env=bare, capture_output=True, text=True, check=False)


def test_documentation_of_a_wheel_is_small_and_whole(dist: Path) -> None:
    """Catches a wheel without its documentation, with sources, or too large to download."""
    [wheel] = dist.glob("transformer-*.whl")
    assert [*dist.glob("transformer-*.tar.gz")]
    with ZipFile(wheel) as archive:
        site = [entry for entry in archive.infolist() if entry.filename.startswith("transformer/site/")]
        names = set(archive.namelist())
    assert sum(entry.compress_size for entry in site) < 8e6
    assert {
        "transformer/site/index.html",
        "transformer/site/search.html",
        "transformer/demo/phrasebook.tsv.xz",
    } <= names
    assert not any(name.endswith((".cpp", ".h", ".doctree")) for name in names)


def test_wheel_without_models_says_what_works(environment: Path) -> None:
    """Catches a user of the wheel who is sent to sources that are not there, or asked for one package after another."""
    refused = run(environment, "translate", "en-de", "Where is the station?")
    assert refused.returncode == 2
    assert "pip install transformer_model_en_de-*.whl" in refused.stderr
    assert "transformer demo" in run(environment, "models").stdout
    served = run(environment, "serve", "en-de")
    assert served.stderr.strip().endswith("pip install 'transformer[serve]'")


def test_wheel_with_a_model_translates_and_shows_it(environment: Path, dist: Path) -> None:
    """Catches data that only a checkout finds: the site, the model, the templates of the inspector."""
    [model] = dist.glob("transformer_model_en_de-*.whl")
    subprocess.run([environment / "python", "-m", "pip", "install", "--quiet", "--no-deps", str(model)], check=True)
    assert run(environment, "translate", "en-de", "Where is the station?").stdout == "Wo ist der Bahnhof?\n"
    address = run(environment, "docs", "--no-open").stdout.strip()
    assert Path(address.removeprefix("file://")).is_file()
    assert address.endswith("/site-packages/transformer/site/index.html")
    page = environment.parent / "station.html"
    result = run(environment, "inspect", "en-de", "Where is the station?", "--output", str(page))
    assert result.returncode == 0, result.stderr
    assert "station" in page.read_text(encoding="utf-8")
    assert "multi30k-en-de" in run(environment, "recipes").stdout
