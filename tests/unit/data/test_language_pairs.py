"""The tables `[[data.pairs]]`: their keys, how directions are sampled, and what becomes of their pairs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samples import write_lines
from transformer.data.config import DataConfig
from transformer.data.language_pairs import sampling_weights
from transformer.data.prepare import Corpus, CorpusBuilder
from transformer.errors import ConfigError
from transformer.run.recipe import parse_recipe
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair

DIRECTIONS = (("en", "de"), ("de", "en"), ("en", "fr"))


def table(source: str, target: str, /, **keys: object) -> dict[str, Any]:
    return {"source_language": source, "target_language": target, **keys}


def files(folder: Path, lines: dict[str, list[str]]) -> dict[str, str]:
    return {language: str(write_lines(folder / f"text.{language}", text)) for language, text in lines.items()}


def prepared(folder: Path, paths: dict[str, str], **settings: object) -> tuple[TokenizerPair, Corpus]:
    """Returns the corpus of three directions, with validation files unless `settings` say otherwise."""
    pairs = [table(a, b, source=paths[a], target=paths[b]) for a, b in DIRECTIONS]
    config = DataConfig.model_validate({"pairs": pairs, "max_length_ratio": 99, **settings})
    builder = CorpusBuilder(config, 1, folder / "tokens")
    tokenizers = builder.train_tokenizers(TokenizerConfig(vocab_size=270)).with_tags(config.target_languages)
    return tokenizers, builder.prepare(tokenizers, (60, 60))


def test_each_source_begins_with_the_tag_of_its_target(tmp_path: Path) -> None:
    """Catches a direction without a tag, with that of its source, and a tag on the target side."""
    words = [f"word {number}" for number in range(40)]
    paths = files(tmp_path, {language: [f"{language} {word}" for word in words] for language in ("en", "de", "fr")})
    tokenizers, corpus = prepared(tmp_path, paths)
    tags = tokenizers.source.special_tokens.tags
    assert tokenizers.source.tags == ("de", "en", "fr")
    for dataset in (corpus.train, corpus.validation):
        batch = dataset.fetch(np.arange(len(dataset.lengths)))
        for source, target in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
            language = tokenizers.target.decode(target)[:2]
            assert tokenizers.source.tags[tags.index(source[0])] == language
            assert not {*tags} & {*source[1:], *target}


def test_no_text_of_the_validation_is_trained_on_in_any_direction(tmp_path: Path) -> None:
    """Catches a reverse direction that has the held-out pair as a training pair."""
    words = [f"word {number}" for number in range(60)]
    paths = files(tmp_path, {language: [f"{language} {word}" for word in words] for language in ("en", "de", "fr")})
    tokenizers, corpus = prepared(tmp_path, paths, validation_pairs=6)
    held_out = {text for pair in corpus.validation_text for text in pair}
    batch = corpus.train.fetch(np.arange(len(corpus.train.lengths)))
    trained = {tokenizers.source.decode(row) for row in batch.src.tolist()}
    trained |= {tokenizers.target.decode(row) for row in batch.tgt.tolist()}
    assert list(corpus.validation_groups) == list(DIRECTIONS)
    assert min(corpus.validation_groups.values()) > 0
    assert not held_out & trained
    report = corpus.report
    assert report.read == report.kept + report.held_out + report.dropped.total() == 180


def test_the_same_pair_in_two_directions_is_no_duplicate(tmp_path: Path) -> None:
    """Catches names, which are alike in all languages, that are learned in the first direction alone."""
    paths = files(tmp_path, {key: [f"Name {number}" for number in range(30)] for key in ("en", "de", "fr")})
    validation = {"validation_source": paths["en"], "validation_target": paths["de"]}
    pairs = [table(a, b, source=paths[a], target=paths[b], **validation) for a, b in DIRECTIONS]
    _, corpus = prepared(tmp_path, paths, pairs=pairs)
    assert (corpus.report.kept, corpus.report.dropped["duplicate"]) == (90, 0)
    assert corpus.validation_groups == dict.fromkeys(DIRECTIONS, 30)


def test_directions_are_sampled_by_their_size_to_the_power_of_the_temperature() -> None:
    """Catches another exponent, files of one direction that count alone, and an epoch of another length."""
    sizes, groups = [900.0, 700.0, 100.0], ["a", "a", "b"]
    weights = sampling_weights(sizes, groups, 2.0)
    drawn = [size * weight for size, weight in zip(sizes, weights, strict=True)]
    assert sum(drawn) == pytest.approx(1700)
    assert (drawn[0] + drawn[1]) / drawn[2] == pytest.approx(4.0)  # the root of 1600 / 100
    assert drawn[0] / drawn[1] == pytest.approx(9 / 7)
    assert sampling_weights(sizes, groups, 1.0) == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"pairs": [table("en", "xx-!", source="a", target="b")]},
         "data.pairs, table 1: data.target_language='xx-!' is not a language tag (BCP 47); write e.g. en, de or "
         "zh-Hant"),
        ({"pairs": [table("en", "de", source="a", target="b"), {"source": "a"}]},
         "data.pairs, table 2: source_language is missing; target_language is missing"),
        ({"pairs": [table("en", "de", source="a")]},
         "data.target is missing; give both sides, or a file of both as data.pairs"),
        ({"pairs": [table("en", "de", source="a", target="b", wieght=2)]},
         "data.pairs, table 1: wieght is not a key of a recipe; `transformer recipes --keys` lists them"),
        ({"pairs": [table("en", "en", source="a", target="b")]},
         "data.pairs, table 1: data.pairs has a table from en to itself; give two languages, e.g. en and de"),
        ({"pairs": [table("en", "de", source="a", target="b")], "source": "c"},
         "data.source does not go with [[data.pairs]]; write it in the tables"),
        ({"pairs": [table("en", "de", source="a", target="b")], "stages": [{"name": "x", "weights": [1]}]},
         "data.stages does not go with [[data.pairs]]; leave out one of them"),
        ({"pairs": "a.tsv", "temperature": 5},
         "data.temperature weighs the directions of [[data.pairs]] tables; leave it out"),
        ({"pairs": [table("en", "de", source="a", target="b", validation_source="v", validation_target="w"),
                    table("en", "fr", source="a", target="c")]},
         "data.pairs: en-fr have no validation files, but other directions have; give them to all, or to none, so that "
         "pairs are held out"),
    ],
)  # fmt: skip
def test_wrong_tables_are_described_in_a_line(data: dict[str, Any], message: str) -> None:
    """Catches a message in pydantic's words, without the number of the table, and keys that contradict each other."""
    with pytest.raises(ConfigError) as error:
        parse_recipe({"data": data})
    assert str(error.value) == f"the recipe: {message}"


def test_a_recipe_with_tables_is_recorded_as_it_was(tmp_path: Path) -> None:
    """Catches tables that the recorded recipe writes as JSON, which is not TOML, so that no run resumes."""
    from transformer.run.recipe import load_recipe

    pairs = [table("en", "de", source="a", target="b", weight=2.5), table("de", "en", file="c.tsv", columns=[2, 1])]
    recipe = parse_recipe({"data": {"pairs": pairs, "temperature": 5}})
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.to_toml(), encoding="utf-8")
    assert load_recipe(path) == recipe
    assert recipe.data == load_recipe(path).data


def test_variables_are_expanded_in_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a path with a variable that is taken as it is because it stands in a table."""
    from transformer.run.recipe import load_recipe

    monkeypatch.setenv("CORPUS", "/corpus")
    keys = ('source_language="en"', 'target_language="de"', 'source="${CORPUS}/a"', 'target="${CORPUS}/b"')
    path = write_lines(tmp_path / "recipe.toml", ["[[data.pairs]]", *keys])
    data = load_recipe(path).data
    assert isinstance(data, DataConfig)
    assert data.of_direction(data.language_pairs[0]).text_files == [("/corpus/a", "/corpus/b")]
