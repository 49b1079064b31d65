"""The commands that describe an installation: recipes, models, doctor, --version and completion."""

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from commands import Commands
from samples import ROOT
from transformer.bundle.installed import installed_models
from transformer.cli.kernel_note import missing_kernels_note
from transformer.data.config import DataConfig
from transformer.training.config import TrainingConfig

PACKAGE = "transformer_model_xx_yy"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages with one model, which must not be imported to be listed."""
    package = tmp_path / PACKAGE
    (package / "bundle").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    recipe = {"data": {"license": "CC0-1.0", "attribution": "The People"}}
    (package / "bundle" / "provenance.json").write_text(
        json.dumps({"recipe": recipe, "languages": {"source": "xx", "target": "yy"}})
    )
    information = tmp_path / f"{PACKAGE}-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: transformer-model-xx-yy\nVersion: 1.2\nLicense-Expression: CC-BY-4.0\n"
    )
    (information / "entry_points.txt").write_text(f"[transformer.models]\nxx-yy = {PACKAGE}\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_models_are_found_by_name_and_not_imported(site: Path) -> None:
    """Catches a lookup that runs the code of a package, or takes a wrong folder."""
    model = installed_models()["xx-yy"]
    assert model.folder == site / PACKAGE / "bundle"
    assert (model.distribution, model.license) == ("transformer-model-xx-yy 1.2", "CC-BY-4.0")


def run(site: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([str(site), str(ROOT / "src")])
    return subprocess.run(
        [sys.executable, "-m", "transformer", *arguments], env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_models_states_license_and_attribution(site: Path) -> None:
    """Catches an attribution, which the license of the texts requires, that is lost on the way."""
    facts = json.loads(run(site, "models", "--json").stdout)["xx-yy"]
    assert facts["languages"] == "xx to yy"
    assert facts["data"] == "The People; CC0-1.0"
    assert facts["license"] == "CC-BY-4.0"


def test_damaged_models_do_not_hide_the_others(site: Path) -> None:
    """Catches one package that was removed by hand, or lost its files, and ends every command that looks up a name."""
    (site / PACKAGE / "bundle" / "provenance.json").write_bytes(b"\xff{")
    assert "damaged" in json.loads(run(site, "models", "--json").stdout)["xx-yy"]["problem"]
    (site / f"{PACKAGE}-1.2.dist-info" / "entry_points.txt").write_text("[transformer.models]\nxx-yy = gone.inner\n")
    assert "xx-yy" not in json.loads(run(site, "models", "--json").stdout)


def test_files_are_not_printed_as_recipes(commands: Commands, tmp_path: Path) -> None:
    """Catches `recipes FILE` that prints any file, or fails on one that is not text."""
    (tmp_path / "noise").write_bytes(b"\xff\x00")
    result = commands("recipes", "noise", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "a recipe is called noise" in result.stderr
    (tmp_path / "empty").touch()
    assert "empty is not a recipe (TOML)" in commands("train", "empty", cwd=tmp_path).stderr


def test_missing_model_is_refused_with_the_way_to_get_it(commands: Commands, tmp_path: Path) -> None:
    """Catches a stack trace, or advice to download what is in the checkout."""
    result = commands("translate", "qq-en", cwd=tmp_path, stdin="Hello.\n")
    assert result.returncode == 2
    assert "qq-en does not exist; give a bundle or a run folder" in result.stderr


def test_recipes_are_listed_and_printed(commands: Commands, tmp_path: Path) -> None:
    """Catches a recipe that is not shipped, or that is changed on the way."""
    names = {path.stem for path in (ROOT / "recipes").glob("*.toml")}
    listed = json.loads(commands("recipes", "--json").stdout)
    assert set(listed) == names
    assert all(listed.values())
    assert commands("recipes", "multi30k-en-de").stdout == (ROOT / "recipes/multi30k-en-de.toml").read_text()
    keys = commands("recipes", "--keys").stdout
    assert all(f"data.{name} " in keys for name in DataConfig.model_fields if name != "task")
    assert all(f"training.{name} " in keys for name in TrainingConfig.model_fields)


def test_recipe_is_trained_by_name(commands: Commands, tmp_path: Path) -> None:
    """Catches a name that is looked up in the working directory alone, and `recipes/NAME.toml`, which worked before."""
    for name in ("multi30k-en-de", "recipes/multi30k-en-de.toml"):
        result = commands("train", name, cwd=tmp_path, environment={**os.environ, "TRANSFORMER_DATA": "/missing"})
        assert result.returncode == 2
        assert "/missing/multi30k/" in result.stderr
    result = commands("train", "multi30k-de-en", cwd=tmp_path)
    assert result.returncode == 2
    assert "did you mean multi30k-en-de?" in result.stderr


def test_own_file_precedes_a_recipe_of_the_same_name(commands: Commands, tmp_path: Path) -> None:
    """Catches a shipped recipe that hides a file of the user."""
    (tmp_path / "multi30k-en-de").write_text('[data]\nsource = "/mine.en"\ntarget = "/mine.de"\n')
    assert "/mine.en" in commands("train", "multi30k-en-de", "--run", "r", cwd=tmp_path).stderr


def test_version_is_that_of_the_package(commands: Commands) -> None:
    """Catches a version that is written in two places."""
    import transformer

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert commands("--version").stdout == f"transformer {version('transformer')}\n"
    assert transformer.__version__ == version("transformer")
    assert project["version"] == version("transformer")


def test_doctor_names_what_a_report_of_a_bug_needs(commands: Commands) -> None:
    """Catches a report without the version of PyTorch or the kernels."""
    facts = json.loads(commands("doctor", "--json").stdout)
    assert facts["versions"]["torch"] == version("torch")
    assert {"processor", "cores", "threads"} <= facts["machine"].keys()
    assert "in use" in facts["kernels"]
    assert "versions\n" in commands("doctor").stdout


def test_commands_are_completed(site: Path) -> None:
    """Catches a completion that knows only one command, since a run imports only its own."""
    result = run(site, _TRANSFORMER_COMPLETE="complete_bash", COMP_WORDS="transformer tra", COMP_CWORD="1")
    assert result.stdout.split() == ["train", "translate"]


@pytest.mark.parametrize(("reason", "variable"), [("not compiled", None), (None, None), ("off", "off")])
def test_note_on_missing_kernels(reason: str | None, variable: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a slow installation that is silent, and a note on kernels that were switched off on purpose."""
    monkeypatch.setattr(sys.modules["transformer.kernels.library"], "unavailable_reason", lambda: reason)
    monkeypatch.delenv("TRANSFORMER_KERNELS", raising=False)
    if variable:
        monkeypatch.setenv("TRANSFORMER_KERNELS", variable)
    note = missing_kernels_note()
    assert (note is not None) == (reason == "not compiled")
    assert note is None or "not compiled" in note
