"""`evaluate --directions`: a model of several languages scored pair by pair."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from samples import write_lines
from transformer.bundle import Bundle, save_bundle
from transformer.bundle.languages import pair_entries
from transformer.cli.app import make_app
from transformer.errors import ConfigError, DataError
from transformer.models import family
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:the model did not learn")

LINES = {"en": ["one two", "two", "one"], "de": ["eins zwei", "zwei", "eins"], "fr": ["un deux", "deux", "un"]}
LEARNED = (("en", "de"), ("de", "en"), ("en", "fr"))


def call(*arguments: object) -> None:
    make_app([str(arguments[0])])([str(argument) for argument in arguments], standalone_mode=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a random model of three languages, and a test set in each of them."""
    folder = tmp_path_factory.mktemp("several")
    for language, lines in LINES.items():
        write_lines(folder / f"test.{language}", lines)
    tokenizers = TokenizerPair.joint(train_tokenizer(LINES["en"] * 3, TokenizerConfig(vocab_size=265)))
    tokenizers = tokenizers.with_tags(["de", "en", "fr"])
    kind, size = family("transformer"), tokenizers.source.vocab_size
    sizes = {"src_vocab_size": size, "tgt_vocab_size": size, "src_seq_len": 24, "tgt_seq_len": 24, "N": 1}
    config = kind.config.model_validate({**sizes, "d_model": 16, "d_ff": 16, "h": 2})
    torch.manual_seed(1)
    save_bundle(folder / "model", Bundle(config, kind.build(config).eval(), tokenizers, pair_entries(LEARNED)))
    return folder


def templates(folder: Path) -> list[object]:
    return ["--source", folder / "test.{source}", "--reference", folder / "test.{target}", "--bootstrap", 0]


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """Returns what `evaluate --json` prints."""
    capsys.readouterr()
    call("evaluate", *arguments, "--json", "--quiet")
    return json.loads(capsys.readouterr().out)


def scores(evaluation: Any) -> dict[str, float]:
    return {name: score["score"] for name, score in evaluation["systems"][0]["scores"].items()}


def test_each_pair_has_the_scores_of_an_evaluation_of_its_own(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches sides or languages that are exchanged, a mean over lines, and a zero-shot pair that is not marked."""
    output = tmp_path / "{source}-{target}"
    results = evaluated(capsys, folder / "model", *templates(folder), "--directions", "all", "--output", output)
    pairs = ["en-de", "de-en", "en-fr", "de-fr"]
    assert list(results["directions"]) == pairs
    assert [results["directions"][name]["zero_shot"] for name in pairs] == [False, False, False, True]
    by_pair = {}
    for name in pairs:
        source, target = name.split("-")
        files = ["--source", folder / f"test.{source}", "--reference", folder / f"test.{target}", "--bootstrap", 0]
        languages = ["--source-language", source, "--target-language", target, "--output", tmp_path / "alone"]
        alone = evaluated(capsys, folder / "model", *files, *languages)
        by_pair[name] = scores(alone)
        assert scores(results["directions"][name]) == by_pair[name]
        assert (tmp_path / name).read_bytes() == (tmp_path / "alone").read_bytes()
    (learned,), (zero_shot,) = results["means"]["learned"], results["means"]["zero_shot"]
    assert learned == {
        metric: pytest.approx(sum(by_pair[name][metric] for name in pairs[:3]) / 3) for metric in ("BLEU", "chrF")
    }
    assert zero_shot == by_pair["de-fr"]


def test_shards_add_up(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches two pairs whose results share a folder, and scores of one part."""
    arguments = [folder / "model", *templates(folder), "--directions", "en-de,de-fr"]
    whole = evaluated(capsys, *arguments)
    sharded = evaluated(capsys, *arguments, "--shards", 2, "--output", tmp_path / "{source}-{target}")
    assert sharded["means"] == whole["means"]
    assert {path.name for path in tmp_path.iterdir()} == {"en-de", "de-fr"}


def test_the_table_names_pairs_and_means(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches scores without the name of their pair."""
    call("evaluate", folder / "model", *templates(folder), "--directions", "de-fr,en-de,de-en", "--quiet")
    lines = capsys.readouterr().out.splitlines()
    titles = [line for line in lines if line and not line.startswith(("BLEU", "chrF", "3 lines", "mean", "1 empty"))]
    assert [title for title in titles if "-" in title and "lines" not in title and "empty" not in title] == [
        "de-fr (zero-shot)", "en-de", "de-en",
    ]  # fmt: skip
    assert sum(line.startswith("mean of 2 pairs: BLEU ") for line in lines) == 1
    assert sum(line.startswith("mean of 1 zero-shot pair: BLEU ") for line in lines) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--directions en", "'en' is not a pair of languages"),
        ("--directions en-de,en-en", "'en-en' is not a pair of languages"),
        ("--directions en-de --target-language de", "--target-language does not go with --directions"),
        ("--directions en-de --details", "--details does not go with --directions"),
        ("--directions en-it", "test.it"),
        ("--directions en-de,en-fr --source {folder}/test.en", "would be the file of all pairs; write {source}"),
        ("--directions en-de,de-en --output out-{source}", "would be written for all pairs"),
        ("--directions en-de --shards 2 --output {folder}/out --join {folder}/joined", "--join does not go with"),
    ],
)
def test_wrong_options_are_one_error(folder: Path, options: str, message: str) -> None:
    """Catches pairs that overwrite each other, options without effect, and files that are missed after an hour."""
    arguments = options.replace("{folder}", str(folder)).split()
    with pytest.raises((ConfigError, DataError)) as error:
        call("evaluate", folder / "model", *templates(folder), *arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_of_one_direction_names_no_pairs(tiny_run: Path, folder: Path) -> None:
    """Catches a traceback where no pairs are recorded."""
    with pytest.raises(ConfigError, match="--directions learned needs a model of several languages"):
        call("evaluate", tiny_run, *templates(folder), "--directions", "learned")
