"""The trained models of this project: packages in the folder `models`."""

import json
import re
import tomllib
from pathlib import Path

import pytest

import transformer
from samples import ROOT
from transformer.bundle import load_bundle
from transformer.bundle.hub_cache import find_model
from transformer.bundle.installed import PROJECT_MODELS
from transformer.errors import BundleError

PACKAGES = sorted(path.parent for path in (ROOT / "models").glob("*/pyproject.toml"))
QUESTIONS = {
    "de-en": ("Wo ist der Bahnhof?", "Where is the station?"),
    "en-de": ("Where is the station?", "Wo ist der Bahnhof?"),
}
"""The sentence that README and other pages show, and its translation there."""
GREETINGS = {
    "de-en": ["Nein.", "Auf Wiedersehen!", "Guten Morgen."],
    "en-de": ["Hello.", "Yes.", "Goodbye!", "How are you?"],
}
INTRODUCTIONS = {
    "de-en": ("Ich heiße Anna.", "My name is Anna."),
    "en-de": ("My name is Anna.", "Mein Name ist Anna."),
}
ODD = ["", "Tom", "12.5.2024", "https://example.com/q?x=1&y=2", "anna@example.com", "😀", "...", "a", "NASA", "Haus"]


def bundle(package: Path) -> Path:
    """Returns the model folder of a package."""
    return package / f"transformer_model_{package.name.replace('-', '_')}" / "bundle"


def phrases(package: Path, text: str) -> set[str]:
    """Returns the translations of a phrase that the model was trained on, without final punctuation."""
    lines = (ROOT / "models" / "phrases.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t")[:: 1 if package.name == "en-de" else -1] for line in lines if not line.startswith("#")]
    return {target.rstrip(".!?") for source, target in pairs if source.rstrip(".!?") == text.rstrip(".!?")}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_package_is_small_verified_and_names_its_source(package: Path) -> None:
    """Catches a damaged or a large model, one without license and attribution, and paths of the machine it is from."""
    folder = bundle(package)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 20e6
    load_bundle(folder, dequantize=True)
    text = (folder / "provenance.json").read_text(encoding="utf-8")
    data = json.loads(text)["recipe"]["data"]
    assert "tatoeba" in data["attribution"].lower()
    assert not re.search(r'"(/|~|[A-Z]:\\)[^"]+/', text)
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["transformer.models"] == {package.name: folder.parent.name}
    assert package.name in PROJECT_MODELS
    assert project["license"].removeprefix("LicenseRef-") == data["license"].removeprefix("LicenseRef-")
    assert all([*package.glob(pattern)] for pattern in project["license-files"])
    assert not re.search(r"\$| \? ", (package / "README.md").read_text(encoding="utf-8"))  # no open figure


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_model_translates_and_keeps_odd_lines(package: Path) -> None:
    """Catches weights that do not fit the vocabulary, loops on words and names, and numbers that change."""
    translator = transformer.load(bundle(package))
    question, answer = QUESTIONS[package.name]
    assert translator(question) == answer
    introduction, answer = INTRODUCTIONS[package.name]
    assert translator(introduction) == answer
    for source, text in zip(GREETINGS[package.name], translator(GREETINGS[package.name]), strict=True):
        assert text.rstrip(".!?") in phrases(package, source)
    for source, result in zip(ODD, translator.translations(ODD), strict=True):
        n = len(translator.tokenizers.source.encode(source))
        assert len(translator.tokenizers.target.encode(result.text)) <= 2 * n + 3, source
        assert re.findall(r"\d+|\S+@\S+|https?://\S+", result.text) == re.findall(r"\d+|\S+@\S+|https?://\S+", source)


def test_missing_model_of_the_project_names_the_way_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a newcomer who is sent to a model hub, or to sources that a wheel does not have."""
    monkeypatch.setattr("transformer.bundle.hub_cache.installed_models", dict)
    with pytest.raises(BundleError, match=rf"run make install, or pip install {ROOT}/models/en-de"):
        find_model(Path("en-de"))
    monkeypatch.setattr("transformer.bundle.installed.SOURCES", tmp_path)
    with pytest.raises(BundleError, match=r"pip install transformer_model_en_de-\*.whl, .* transformer demo"):
        find_model(Path("en-de"))
