"""The metric that selects the best checkpoint, the languages that a run records, and the tokenization of its BLEU."""

from pathlib import Path
from typing import Any

import pytest

from samples import digit_pairs, tiny_recipe, write_lines
from transformer.bundle import load_bundle
from transformer.bundle.languages import recorded_languages
from transformer.data.config import DataConfig
from transformer.data.languages import identify_languages
from transformer.run.recipe import parse_recipe
from transformer.run.train import RunResult, train

CHINESE = str.maketrans("0123456789", "零一二三四五六七八九", " ")


@pytest.fixture
def chinese_corpus(tmp_path: Path) -> tuple[Path, Path]:
    """Number words, and the digits in Chinese without spaces."""
    pairs = digit_pairs(120)
    sources = write_lines(tmp_path / "train.en", [source for source, _ in pairs])
    return sources, write_lines(tmp_path / "train.zh", [target.translate(CHINESE) for _, target in pairs])


def run(corpus: tuple[Path, Path], folder: Path, data: dict[str, Any] | None = None, **training: object) -> RunResult:
    recipe = tiny_recipe(corpus, **{"max_steps": 2, "validate_every": 1, "save_every": 2, **training})
    recipe["data"] |= data or {}
    return train(parse_recipe(recipe), folder, quiet=True)


@pytest.mark.slow
def test_a_run_records_languages_and_scores_chinese_by_characters(
    chinese_corpus: tuple[Path, Path], tmp_path: Path
) -> None:
    """Catches validation by 13a, which calls a whole Chinese line one word, and a bundle without its languages."""
    result = run(chinese_corpus, tmp_path / "run")
    bundle = load_bundle(result.model)
    assert recorded_languages(bundle) == ("en", "zh")
    assert bundle.provenance["languages"] == {"source": "en", "target": "zh"}
    assert "|tok:zh|" in bundle.provenance["validation"]["signatures"]["bleu"]
    assert bundle.provenance["recipe"]["training"]["best_metric"] == "chrf"
    scores = {step: values["chrf"] for step, values in result.progress.validations.items()}
    assert result.progress.best_score == max(scores.values())


@pytest.mark.slow
def test_a_resumed_run_keeps_its_metric_and_languages(chinese_corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Catches a run of an earlier version, of which the new default is another recipe, and a language that is lost."""
    languages = {"source_language": "fr", "target_language": "zh-Hant"}
    run(chinese_corpus, tmp_path / "run", languages, best_metric="bleu")
    resumed = run(chinese_corpus, tmp_path / "run", max_steps=3)
    provenance = load_bundle(resumed.folder / "checkpoints/step-00000003/model").provenance
    assert provenance["recipe"]["training"]["best_metric"] == "bleu"
    assert provenance["languages"] == {"source": "fr", "target": "zh-Hant"}
    changed = run(chinese_corpus, tmp_path / "run", {"target_language": "yue"}, max_steps=4)
    assert load_bundle(changed.folder / "checkpoints/step-00000004/model").provenance["languages"]["target"] == "yue"


@pytest.mark.parametrize(
    ("settings", "pretrained", "expected"),
    [
        ({"source": "a.en", "target": "a.de"}, (None, None), "en (name of its file), de (name of its file)"),
        ({"source": "a.en", "target": "a.de", "target_language": "deu-AT"}, (None, None),
         "en (name of its file), de-AT (data.target_language)"),
        ({"pairs": "m.tmx", "languages": ["en_US", "fr"]}, ("de", "de"), "en-US (data.languages), fr (data.languages)"),
        ({"pairs": "m.jsonl", "columns": ["translation.en", "text"]}, (None, "ru"),
         "en (name of its column), ru (as in the model that the run starts from)"),
        ({"source": "a.src", "target": "a.tgt"}, (None, None), "unknown (set data.source_language), th (detected)"),
    ],
)  # fmt: skip
def test_languages_are_identified_in_order(
    settings: dict[str, Any], pretrained: tuple[str | None, str | None], expected: str
) -> None:
    """Catches an option that a file name overrides, and a language that is guessed although it is named."""
    pairs = [("1 2 3", "ผู้หญิงอ่านจดหมายที่พี่ชายของเธอส่งไปบ้านเก่าริมแม่น้ำ")] * 20
    assert ", ".join(map(str, identify_languages(DataConfig(**settings), pairs, pretrained))) == expected


def test_a_language_must_be_a_tag() -> None:
    """Catches a name of a language, or a country code, that is recorded as if it were a tag."""
    with pytest.raises(ValueError, match=r"data.target_language='jp' is not a language tag \(BCP 47\); write e.g."):
        parse_recipe({"data": {"source": "a", "target": "b", "target_language": "jp"}})
