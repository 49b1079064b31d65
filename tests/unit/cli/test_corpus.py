"""Arguments that name what to train on."""

import json
import os
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from commands import run
from transformer.cli.corpus import corpus_of
from transformer.data.augment.config import DEFAULT_RATES
from transformer.data.config import DataConfig
from transformer.data.task_configs import TextConfig
from transformer.errors import ConfigError
from transformer.recipes import CORPUS_FILE, missing_corpus, recipe_names, recipe_path
from transformer.run.recipe import parse_recipe
from transformer.run.resume import continue_recipe
from transformer.run.run_folder import default_folder

SAME = {
    "texts": (["a.en", "a.de"], {}),
    "options": ([], {"source": "a.en", "target": "a.de"}),
    "keys": ([], {"overrides": ["data.source=a.en", "data.target=a.de"]}),
    "recipe": (["recipe.toml"], {}),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lines = [f"one two {number}" for number in range(40)]
    (tmp_path / "a.en").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "a.de").write_text("".join(f"{line.upper()}\n" for line in lines))
    (tmp_path / "a.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in lines))
    (tmp_path / "recipe.toml").write_text('[data]\nsource = "a.en"\ntarget = "a.de"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", SAME)
def test_all_forms_name_the_same_corpus(form: str, folder: Path) -> None:
    """Catches swapped sides, and a form that one command accepts and another does not."""
    arguments, options = SAME[form]
    assert corpus_of(arguments, **options).load().data.text_files == [("a.en", "a.de")]  # type: ignore[attr-defined]


def test_missing_corpus_of_a_recipe_says_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches `No such file` for whoever tries a recipe of README, and a hint at a file that an option replaced."""
    monkeypatch.setenv("TRANSFORMER_DATA", "data")
    for recipe, file in (
        ("multi30k-en-de", "multi30k/train.en"),
        ("shakespeare-characters", "text/tinyshakespeare.txt"),
    ):
        with pytest.raises(
            ConfigError, match=f"^data/{file} does not exist; get the corpus from .* TRANSFORMER_DATA to"
        ):
            corpus_of([recipe]).load()
    for recipe in recipe_names():
        assert missing_corpus(recipe_path(recipe), ()) is None
        for variable, default, file in CORPUS_FILE.findall(recipe_path(recipe).read_text()):
            assert f"set {variable} to" in str(
                missing_corpus(recipe_path(recipe), {f"{os.environ.get(variable, default)}/{file}"})
            )
    sides = [f"data.{key}=a.{language}" for key, language in (("source", "en"), ("target", "de"))]
    sides += [f"data.validation_{key}=a.{language}" for key, language in (("source", "en"), ("target", "de"))]
    assert corpus_of(["multi30k-en-de"], overrides=[*sides, "data.test_source=a.en"]).load().data.source == "a.en"  # type: ignore[attr-defined]


def test_a_table_needs_no_option(folder: Path) -> None:
    """Catches a table that is read as a recipe."""
    assert corpus_of(["a.tsv"]).load().data.pair_files == ["a.tsv"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["a", "b", "c"], {}, "c: more arguments than a source and a target text"),
        (["a", "b"], {"target": "c"}, "b and --target c both name the target"),
        ([], {"source": "a"}, "nothing to train on; give a recipe, or two texts"),
        (["a.en"], {}, "a.en is not a recipe .TOML.; if it is a text, give its translation too"),
    ],
)
def test_what_names_no_corpus_is_refused(
    arguments: list[str], options: dict[str, str], message: str, folder: Path
) -> None:
    """Catches an argument that is silently dropped, and a text that is reported as a damaged recipe."""
    with pytest.raises(ConfigError, match=message):
        corpus_of(arguments, **options).load()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["corpus.en", "corpus.de"], "corpus"),
        (["x/corpus.en-de.en.gz", "y/corpus.en-de.de.zst"], "corpus.en-de"),
        (["en.txt", "de.txt"], "en-de"),
        (["x/pairs.tsv.gz"], "pairs"),
    ],
)
def test_the_run_is_called_after_its_texts(arguments: list[str], name: str) -> None:
    """Catches two corpora whose runs have the same folder because only one side counts."""
    assert default_folder(None, corpus_of(arguments).load().data) == Path("runs") / name


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        (["a.en", "a.de"], {}, DEFAULT_RATES.rates),
        (["a.tsv"], {}, DEFAULT_RATES.rates),
        ([], {"source": "a.en", "target": "a.de"}, DEFAULT_RATES.rates),
        (["a.en", "a.de"], {"overrides": ["data.augment=none"]}, None),
        (["a.en", "a.de"], {"overrides": ["data.augment.typos=0.2"]}, {"typos": 0.2}),
        (["recipe.toml"], {}, None),
        (["recipe.toml"], {"overrides": ["data.augment=default"]}, DEFAULT_RATES.rates),
        ([], {"pairs": "b.trees"}, None),
        ([], {"text": "a.en"}, None),
    ],
)
def test_texts_without_a_recipe_are_augmented(
    arguments: list[str], options: dict[str, object], expected: dict[str, float] | None, folder: Path
) -> None:
    """Catches recipes whose results change, spoiled trees, and rates that cannot be turned off."""
    augment = getattr(corpus_of(arguments, **options).load().data, "augment", None)  # type: ignore[arg-type]
    assert (augment.rates if augment else None) == expected


def test_trees_cannot_be_augmented(folder: Path) -> None:
    """Catches rates that spoil the brackets of trees, in a table of several directions as well."""
    with pytest.raises(ConfigError, match=r"brackets of trees forbid; leave data\.augment out"):
        corpus_of([], pairs="b.trees", overrides=["data.augment=default"]).load()
    assert corpus_of([], pairs="b.trees", overrides=["data.augment=none"]).load()
    table = {"source_language": "en", "target_language": "de", "file": "b.mrg.gz"}
    with pytest.raises(ValidationError, match="brackets of trees forbid"):
        DataConfig.model_validate({"pairs": [table], "augment": {"typos": 0.1}})


def test_a_run_keeps_the_augmentation_that_it_began_with(folder: Path) -> None:
    """Catches runs of earlier versions that the same command no longer resumes, and rates that change on the way."""
    unasked = corpus_of(["a.en", "a.de"]).load()
    for asked in (["data.augment=none"], ["data.augment.typos=0.2"], ["data.augment=default"]):
        begun = corpus_of(["a.en", "a.de"], overrides=asked).load()
        stored = parse_recipe(tomllib.loads(begun.to_toml()))
        assert continue_recipe(unasked, stored).data == stored.data
        assert continue_recipe(begun, unasked).data == begun.data


def test_the_run_is_called_after_its_recipe() -> None:
    """Catches recipes of one corpus that share a folder."""
    assert default_folder(Path("x/small.toml"), TextConfig(task="language-model", text="a.txt")) == Path("runs/small")
    assert default_folder(None, TextConfig(task="language-model", text="x/a.txt")) == Path("runs/a")


def test_check_takes_what_train_takes(folder: Path) -> None:
    """Catches a check of other lines than those that are trained on."""
    forms = (
        ["a.en", "a.de"], ["recipe.toml"], ["--source", "a.en", "--target", "a.de"], ["a.tsv"], ["--pairs", "a.tsv"]
    )  # fmt: skip
    results = [run("check", *arguments, "--format", "json", cwd=folder) for arguments in forms]
    reports = [json.loads(result.stdout) for result in results]
    assert [[file["lines"] for file in report["files"]] for report in reports] == [[40, 40]] * 5
    assert reports[0] == reports[1] == reports[2]
    assert "line n of the report is pair n of a.tsv" in results[3].stderr
    refused = run("check", "--text", "a.en", cwd=folder)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "has no sentence pairs to check" in refused.stderr


def test_train_writes_to_runs_by_default(folder: Path) -> None:
    """Catches a missing default, an argument that training ignores, and a run that cannot continue by its command."""
    short = ["--set", "training.max_steps=1", "--set", "model.d_model=32", "--set", "data.validation_pairs=2"]
    result = run("train", "a.en", "a.de", *short, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert (folder / "runs" / "a" / "recipe.toml").is_file()
    assert "next: transformer translate runs/a --input FILE" in result.stdout
    assert "changed copies" in result.stderr
    again = run("train", "a.en", "a.de", *short, cwd=folder)
    assert again.returncode == 0, again.stderr
