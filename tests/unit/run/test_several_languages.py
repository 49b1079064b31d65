"""Runs of a model of several languages: scores by direction, what the run records, and a language that is added."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from samples import digit_pairs, tiny_recipe, write_lines
from transformer.bundle import load_bundle
from transformer.bundle.languages import recorded_pairs
from transformer.errors import ConfigError
from transformer.pipelines.auto import load_translator
from transformer.reporting.record import read_metrics
from transformer.run.new_tokens import add_rows
from transformer.run.recipe import parse_recipe
from transformer.run.tasks.translation import mean_scores
from transformer.run.train import RunResult, train
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

CHINESE = str.maketrans("0123456789", "零一二三四五六七八九", " ")


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, str]:
    """Number words, and the digits in Chinese without spaces."""
    pairs = digit_pairs(120)
    lines = {"en": [en for en, _ in pairs], "zh": [digits.translate(CHINESE) for _, digits in pairs]}
    lines["de"] = [digits for _, digits in pairs]
    return {language: str(write_lines(tmp_path / f"text.{language}", text)) for language, text in lines.items()}


def run(
    folder: Path,
    texts: dict[str, str],
    directions: list[str],
    tokenizer: dict[str, Any] | None = None,
    **training: object,
) -> RunResult:
    recipe: dict[str, Any] = tiny_recipe((Path("s"), Path("t")), **{"save_every": 2, "validate_every": 2, **training})
    tables = [direction.split("-") for direction in directions]
    recipe["data"] = {
        "pairs": [
            {"source_language": a, "target_language": b, "source": texts[a], "target": texts[b]} for a, b in tables
        ],
        "validation_pairs": 12,
    }
    if "start_from" in training:
        recipe = {name: recipe[name] for name in ("data", "training")}
    recipe["tokenizer"] = {**recipe.get("tokenizer", {}), **(tokenizer or {})}
    return train(parse_recipe(recipe), folder, quiet=True)


def test_the_mean_over_directions_decides() -> None:
    """Catches a mean over sentences, by which the largest direction decides, and a perplexity that is no longer one."""
    scores = {
        ("en", "de"): {"loss": 2.0, "perplexity": math.e, "bleu": 30.0},
        ("en", "fr"): {"loss": 4.0, "perplexity": math.e**3, "bleu": 10.0},
    }
    means = mean_scores(scores)
    assert (means["loss"], means["bleu"], means["perplexity"]) == (3.0, 20.0, pytest.approx(math.e**2))
    assert (means["en-de/bleu"], means["en-fr/loss"]) == (30.0, 4.0)
    assert mean_scores({("", ""): scores["en", "de"]}) == scores["en", "de"]


def test_new_rows_are_the_mean_of_the_tags() -> None:
    """Catches rows of a new language that are random or zero, and rows of other tokens that move."""
    plain = TokenizerPair.joint(train_tokenizer(["ab"], TokenizerConfig(kind="bytes")))
    tagged, grown = plain.with_tags(["de", "fr"]), plain.with_tags(["de", "fr", "it", "es"])
    n_text = plain.source.vocab_size
    table = torch.arange(2.0 * n_text + 4).reshape(-1, 2)
    stored = {"src_embed.embedding.weight": table, "encoder.layers.0.weight": table}
    wanted = {"src_embed.embedding.weight": torch.zeros(n_text + 4, 2), "encoder.layers.0.weight": torch.zeros(9, 2)}
    assert add_rows(stored, wanted, tagged, grown) == 2
    rows = stored["src_embed.embedding.weight"]
    assert torch.equal(rows, torch.cat([table, table[-2:].mean(0).expand(2, 2)]))
    assert stored["encoder.layers.0.weight"] is table
    untagged = {"src_embed.embedding.weight": table[:-2]}
    assert add_rows(untagged, {"src_embed.embedding.weight": torch.zeros(n_text + 2, 2)}, plain, tagged) == 2
    assert torch.equal(untagged["src_embed.embedding.weight"][n_text:], table[:-2].mean(0).expand(2, 2))


@pytest.mark.slow
def test_a_run_scores_and_records_each_direction(texts: dict[str, str], tmp_path: Path) -> None:
    """Catches Chinese that is scored by 13a beside German, a report without the directions, and tags that are lost."""
    result = run(tmp_path / "run", texts, ["en-de", "en-zh", "zh-en"], max_steps=2)
    row = next(row for row in read_metrics(result.folder) if row["kind"] == "validation")
    for metric in ("bleu", "chrf", "perplexity"):
        assert all(f"{direction}/{metric}" in row for direction in ("en-de", "en-zh", "zh-en"))
    bundle = load_bundle(result.model)
    assert recorded_pairs(bundle) == (("en", "de"), ("en", "zh"), ("zh", "en"))
    assert bundle.tokenizers.target_languages == ("de", "zh", "en")
    page = (result.folder / "report.html").read_text(encoding="utf-8")
    assert "By direction" in page
    assert "zh-en" in page
    translator = load_translator(result.model, workers=1)
    assert len(translator.translations(["one"], target_language="zh")) == 1


@pytest.mark.slow
def test_a_language_is_added_to_a_trained_model(texts: dict[str, str], tmp_path: Path) -> None:
    """Catches a model that must begin anew for a language more, and pairs that it forgets to have learned."""
    first = run(tmp_path / "first", texts, ["en-zh", "zh-en"], max_steps=2)
    keys = {"start_from": str(first.folder), "warmup_steps": 1}
    second = run(tmp_path / "second", texts, ["en-zh", "en-de"], max_steps=2, **keys)
    before, after = load_bundle(first.model), load_bundle(second.model)
    assert after.tokenizers.target_languages == ("zh", "en", "de")
    assert recorded_pairs(after) == (("en", "zh"), ("zh", "en"), ("en", "de"))
    assert after.tokenizers.source.vocab_size == before.tokenizers.source.vocab_size + 1
    assert run(tmp_path / "second", texts, ["en-zh", "en-de"], max_steps=4, **keys).progress.step == 4


@pytest.mark.slow
def test_a_resumed_run_is_the_same_as_one_in_one_go(texts: dict[str, str], tmp_path: Path) -> None:
    """Catches directions that a resumed run draws in another order."""
    keys = {"decay_steps": 4, "warmup_steps": 1}
    directions = ["en-de", "en-zh", "zh-en"]
    whole = run(tmp_path / "whole", texts, directions, max_steps=4, **keys)
    run(tmp_path / "parts", texts, directions, max_steps=2, **keys)
    parts = run(tmp_path / "parts", texts, directions, max_steps=4, **keys)
    models = [load_bundle(result.folder / "checkpoints/step-00000004/model") for result in (whole, parts)]
    states = [model.model.state_dict() for model in models]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.slow
@pytest.mark.parametrize("freeze", [["encoder", "embeddings"], ["known_tokens", "decoder.layers.0"]])
def test_a_language_is_added_while_the_rest_is_frozen(freeze: list[str], texts: dict[str, str], tmp_path: Path) -> None:
    """Catches frozen parameters and rows that move, by weight decay or after a resume, and new ones that do not."""
    first = run(tmp_path / "first", texts, ["en-de", "de-en"], max_steps=2)
    before = load_bundle(first.model)
    keys = {
        "start_from": str(first.folder), "warmup_steps": 1, "freeze": freeze, "weight_decay": 0.1, "decay_steps": 9,
        "ema_decay": 0.5, "keep_last": 9,
    }  # fmt: skip
    call = {"texts": texts, "directions": ["en-de", "en-zh"], "tokenizer": {"added_pieces": 25}, **keys}
    whole = run(tmp_path / "whole", max_steps=4, **call)
    run(tmp_path / "parts", max_steps=2, **call)
    parts = run(tmp_path / "parts", max_steps=4, **call)
    bundles = [load_bundle(result.folder / "checkpoints/step-00000004/model") for result in (whole, parts)]
    states = [bundle.model.state_dict() for bundle in bundles]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    n_text = before.tokenizers.source.vocab_size - 2
    old, new = before.model.state_dict(), states[0]
    table = "src_embed.embedding.weight"
    assert len(old[table]) + 10 < len(new[table]) <= len(old[table]) + 25 + 1
    assert torch.equal(new[table][:n_text], old[table][:n_text])
    assert torch.equal(new[table][-3:-1], old[table][-2:])
    initial = load_bundle(whole.folder / "checkpoints/step-00000000/model").model.state_dict()
    assert torch.equal(new[table], initial[table]) == ("embeddings" in freeze)
    layers = freeze[0] if freeze[0] == "encoder" else freeze[1]
    frozen = [name for name in old if name.startswith(f"{layers}.")]
    assert frozen
    assert all(torch.equal(new[name], old[name]) for name in frozen)
    trained_layer = "decoder.layers.1.feed_forward_block.linear_1.weight"
    assert not torch.equal(new[trained_layer], old[trained_layer])
    trained = bundles[0].provenance["trained_parameters"]
    assert 0 < trained < sum(parameter.numel() for parameter in bundles[0].model.parameters())
    assert "trained parameters" in (whole.folder / "report.html").read_text(encoding="utf-8")


def test_rows_of_known_tokens_need_new_ones(texts: dict[str, str], tmp_path: Path) -> None:
    """Catches a run that trains nothing of what was asked, and keys that have no effect without a model before."""
    for keys, tokenizer, message in (
        ({"freeze": "known_tokens"}, {}, "training.freeze='known_tokens' needs a model to start from"),
        ({"freeze": ["encodr"]}, {}, "training.freeze='encodr' matches no parameter; write encoder"),
        ({}, {"added_pieces": 4}, "tokenizer.added_pieces extends the tokenizer of a trained model; give --from MODEL"),
    ):
        with pytest.raises(ConfigError) as error:
            run(tmp_path / "run", texts, ["en-de"], max_steps=1, tokenizer=tokenizer, **keys)
        assert message in str(error.value)
