"""The release of a bundled model, tried with a tiny one."""

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import release
from corpora.pairs import TextPair
from release import CorpusRow, Release, card_corpora, data_table, promote_recipes, source_packages, training
from samples import ROOT, digit_pairs, write_lines
from transformer.bundle import Bundle, load_bundle, save_bundle
from transformer.errors import ConfigError, DataError

LICENSE = "GPL-3.0-or-later AND MPL-2.0 AND CC-BY-SA-3.0 AND GFDL-1.2-no-invariants-or-later"
MACHINE = {"cores": 2, "processor": "Processor"}
SCORES = {"sentences": 2, "BLEU": 40.04, "interval": 1.26, "chrF": 59.96}


@pytest.fixture
def ratings() -> dict[str, int]:
    """Returns the ratings of the everyday sentences."""
    return {"good": 61, "usable": 20, "wrong": 19, "": 0}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratings: dict[str, int]) -> Path:
    """Returns a project with templates, corpora, a package to replace, and programs whose results are there."""
    models, corpora, data = tmp_path / "models", tmp_path / "models" / "corpus", tmp_path / "data"
    shutil.copytree(ROOT / "models" / "templates", models / "templates")
    for stem, seed in ((corpora / "software-valid", 1), (data / "tatoeba-en-de" / "valid", 2)):
        stem.parent.mkdir(parents=True, exist_ok=True)
        pairs = [TextPair(*pair) for pair in digit_pairs(60, seed)]
        write_lines(Path(f"{stem}.en"), [pair.english for pair in pairs])
        write_lines(Path(f"{stem}.de"), [pair.german for pair in pairs])
    (corpora / "sources.tsv").write_text("trans-de-en\tGPL-2+\t\nabook\tGPL-2+\t178\naptitude-common\tGPL-2+\t7\n")
    package = models / "en-de"
    (package / "transformer_model_en_de" / "bundle").mkdir(parents=True)
    (package / "transformer_model_en_de" / "bundle" / "old").touch()
    (package / "pyproject.toml").write_text('[project]\nversion = "1.1.0"\n')
    (package / "short.toml").touch()
    (package / "next.toml").write_text(
        "# Run models/en-de/next.toml\n# It is the recipe of the next version; more.\nmax_steps = 8000\n"
    )
    results = {
        "domains": {"machine": MACHINE, "signatures": {"BLEU": "b", "chrF": "c"}, "scores": {"Tatoeba": SCORES}},
        "odd_lines": {"examples": [["a", "b", ["too long"]]]},
        "number_sentences": {"en-de": {"counts": {"right": 483, "noted": 17}}},
    }
    for name, value in {"ROOT": tmp_path, "MODELS": models, "CORPORA": corpora, "DATA": data}.items():
        monkeypatch.setattr(release, name, value)

    def run(command: list[str], **options: object) -> None:
        if "--output" in command:
            output = Path(command[command.index("--output") + 1])
            assert not output.exists()
            output.write_text(json.dumps(results[Path(command[1]).stem]))

    monkeypatch.setattr(release.subprocess, "run", run)
    monkeypatch.setattr(release, "SOURCES", {**release.SOURCES, "corpus": ("digits", "MIT")})
    everyday = {"ratings": lambda path: {"2.0": {"all": ratings}}, "TABLES": tmp_path}
    monkeypatch.setattr(release.runpy, "run_path", lambda path: everyday)
    return tmp_path


@pytest.fixture
def model(tiny_run: Path, tmp_path: Path) -> Path:
    """Returns the folder of a tiny model that records a license."""
    bundle = load_bundle(tiny_run)
    provenance: dict[str, Any] = {**bundle.provenance}
    provenance["recipe"]["data"]["license"] = LICENSE
    provenance["data"]["files"] = [{"name": "corpus.en", "kept": 1300, "read": 1234, "weight": 0.5}]
    save_bundle(tmp_path / "model", Bundle(bundle.config, bundle.model, bundle.text, provenance))
    return tmp_path / "model"


@pytest.mark.slow
def test_a_release_writes_a_whole_package(
    project: Path, model: Path, ratings: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches parts of the old version that stay, a license that is not the recorded one, and open placeholders."""
    command = ["release.py", "en-de", "--results", str(project)]
    whole = [*command, "--run", str(model), "--version", "2.0.0", "--tolerance", "100"]
    monkeypatch.setattr(sys, "argv", whole)
    release.main()
    package = project / "models" / "en-de"
    bundle = load_bundle(package / "transformer_model_en_de" / "bundle", dequantize=True)
    assert bundle.precision == "int8"
    assert {f"{name} {kind}" for name in ("int8", "bf16", "float32") for kind in ("greedy", "beam")} == {
        *bundle.calibration
    }
    assert not (package / "transformer_model_en_de" / "bundle" / "old").exists()
    facts = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (facts["version"], facts["license"]) == ("2.0.0", LICENSE)
    assert sorted(path.name for path in (package / "licenses").iterdir()) == [
        "GFDL-1.2.txt",
        "GPL-3.txt",
        "MPL-2.0.txt",
    ]
    assert (package / "SOURCES.tsv").read_text(encoding="utf-8").splitlines()[1:] == [
        "trans-de-en\tGPL-2+\t",
        "abook\tGPL-2+\t178",
    ]
    card = (package / "README.md").read_text(encoding="utf-8")
    for part in ("| 40.0 ± 1.3 | 60.0 |", "61 were\n  good, 20 usable and 19 wrong", "483 are right", "0 wrong",
                 "| digits | 1,234 | 0.5 | MIT |", "2 packages of Debian", LICENSE):  # fmt: skip
        assert part in card
    assert "$" not in card + (package / "LICENSE").read_text(encoding="utf-8")
    ratings[""] = 1
    monkeypatch.setattr(sys, "argv", command)
    release.main()
    assert "and ? were\n  good, ? usable and ? wrong" in (package / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_large_model_replaces_nothing(project: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a package that is above the limit, or lost its model when the new one was refused."""
    monkeypatch.setattr(release, "MAX_BYTES", 1000)
    with pytest.raises(ConfigError, match="train a smaller one"):
        release.build_bundle(Release("en-de", "2.0.0", project), model, 100)
    assert (project / "models" / "en-de" / "transformer_model_en_de" / "bundle" / "old").exists()


def test_the_next_recipe_becomes_the_recipe(project: Path) -> None:
    """Catches recipes of two versions side by side, and a recipe that names a file that is gone."""
    folder = project / "models" / "en-de"
    promote_recipes(folder, 6000)
    assert (folder / "recipe.toml").read_text(encoding="utf-8") == "# Run models/en-de/recipe.toml\nmax_steps = 6000\n"
    assert not (folder / "next.toml").exists()
    assert not (folder / "short.toml").exists()
    promote_recipes(folder, 6000)
    assert (folder / "recipe.toml").exists()


def test_a_second_training_is_released_too(project: Path) -> None:
    """Catches the length of the second training in the recipe of the first, and a card that leaves one out."""
    folder = project / "models" / "en-de"
    (folder / "next-second.toml").write_text("# From next.toml: models/en-de/next-second.toml\nmax_steps = 4000\n")
    promote_recipes(folder, 3000)
    assert (folder / "recipe.toml").read_text(encoding="utf-8") == "# Run models/en-de/recipe.toml\nmax_steps = 8000\n"
    assert (folder / "second.toml").read_text(encoding="utf-8") == (
        "# From recipe.toml: models/en-de/second.toml\nmax_steps = 3000\n"
    )
    assert {path.name for path in folder.glob("*.toml")} == {"pyproject.toml", "recipe.toml", "second.toml"}
    last = {"step": 3000, "seconds": 1800, "recipe": {"training": {"batch_tokens": 4096}}}
    described = training(Release("en-de", "2.0.0", project), {**last, "start": {"step": 8000, "seconds": 7200}})
    assert "recipe.toml` for 8,000 steps, in 2.0 hours, then" in described
    assert "second.toml` for 3,000 steps, in 0.5 hours, with at most 4,096 tokens" in described


def test_the_card_names_the_corpora_of_all_trainings(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a card that leaves out what only an earlier training or a later stage read."""
    folder = project / "models" / "en-de"
    (folder / "recipe.toml").write_text("""[data]
source = ["data/train.en", "models/corpus/dictionary.en"]
stages = [{ name = "a", weights = [2, 0.5] }, { name = "b", weights = [4, 0] }]
""")
    (folder / "second.toml").write_text(
        '[data]\nsource = ["data/train.en", "models/corpus/phrases.en"]\nweights = [1, 500]\n'
    )
    monkeypatch.setattr(release, "CORPORA", project)
    (project / "dictionary.en").write_text("house\ntree\n")
    files = [
        {"name": "data/train.en", "read": 9, "weight": 1},
        {"name": "models/corpus/phrases.en", "read": 7, "weight": 500},
    ]
    rows = [
        (row.name, row.pairs, row.weights)
        for row in card_corpora(Release("en-de", "2.0.0", project), {"data": {"files": files}})
    ]
    assert rows == [("train.en", 9, [2, 4, 1]), ("dictionary.en", 2, [0.5, 0, 0]), ("phrases.en", 7, [0.0, 0.0, 500])]


def test_what_is_missing_is_named(project: Path) -> None:
    """Catches a corpus without a license in the card, and a traceback where the corpora were not made."""
    with pytest.raises(DataError, match=r"web\.en is not described; add it to SOURCES"):
        data_table([CorpusRow("web.en", 1, [1.0])])
    (project / "models" / "corpus" / "sources.tsv").unlink()
    with pytest.raises(DataError, match=r"run python models/build_corpora\.py"):
        source_packages()
