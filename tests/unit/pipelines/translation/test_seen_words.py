"""Words and units of a line that the model sees, and the places of tags and links that depend on them."""

import pytest
import torch

from transformer.bundle import Bundle
from transformer.models import family
from transformer.pipelines.auto import make_translator
from transformer.pipelines.translation.alignment_output import word_alignment
from transformer.pipelines.translation.inline_tags import UNIT
from transformer.pipelines.translation.seen_words import seen_units, seen_words
from transformer.pipelines.translation.terminology import Terminology
from transformer.text.normalization import normalize_spaces
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair


@pytest.mark.parametrize(
    ("text", "words", "units"),
    [
        ("a man sells.", [0, 1, 2], [0, 1, 2, 3]),
        ("a \u200b sells", [0, 2], [0, 2]),
        ("\u2060 a  \u200e\u200e  b", [1, 3], [1, 4]),
        ("wo\u00adman cafe\u0301s end", [0, 1, 2], [0, 3, 6]),
        ("a\u200b, b", [0, 1], [0, 2, 3]),
        ("\u200b", [], []),
        ("", [], []),
    ],
)
def test_what_is_invisible_is_no_word(text: str, words: list[int], units: list[int]) -> None:
    """Catches a word that is counted as its neighbour because the model does not see one before it."""
    assert seen_words(text, normalize_spaces) == words
    assert seen_units(text, normalize_spaces) == units
    spelled = UNIT.findall(text)
    assert [spelled[unit][0] for unit in units] == [unit[0] for unit in UNIT.findall(normalize_spaces(text))]
    assert seen_words(text, str) == [*range(len(text.split()))]


def test_a_word_that_a_normalization_divides_counts_for_each_part() -> None:
    """Catches a shift after a word of which the model sees two."""

    def divide(text: str) -> str:
        return "▁" + text.replace("½", "1 2").replace(" ", "▁")

    assert seen_words("a ½ b", divide) == [0, 1, 1, 2]
    assert seen_units("a ½ b", divide) == [0, 1, 1, 2]


def test_long_text_takes_linear_time() -> None:
    """Catches a normalization of all of the line for each of its words."""
    n_characters = 0

    def counted(text: str) -> str:
        nonlocal n_characters
        n_characters += len(text)
        return normalize_spaces(text)

    text = "a\u00ad" * 5000 + " b" * 5000
    assert seen_units(text, counted)[-1] == 14_999
    assert n_characters < 400 * len(text)


def diagonal(source: list[int], target: list[int]) -> torch.Tensor:
    """Returns attention that passes over the source at a constant pace."""
    sources = torch.linspace(0, len(source) - 2, len(target)).round().long()
    return torch.nn.functional.one_hot(sources, len(source))[None, None].float()


@pytest.mark.parametrize("gap", [" ", " \u200b ", " \u00ad\u200b  \u2060 "])
def test_tags_and_links_refer_to_the_words_that_were_written(gap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a tag around the next word, and links that are shifted, after a word that the model does not see."""
    config = TokenizerConfig(vocab_size=300, normalize=True)
    lines = ["one two three four"] * 9
    pair = TokenizerPair.train(lambda: lines, lambda: lines, config)
    kind = family("transformer")
    sizes = {"src_vocab_size": pair.source.vocab_size, "tgt_vocab_size": pair.target.vocab_size}
    model_config = kind.config.model_validate({**kind.presets()["tiny"], **sizes})
    torch.manual_seed(5)
    bundle = Bundle(model_config, kind.build(model_config), pair)
    translator = make_translator(bundle, terminology=Terminology(protected=["tags"]))
    monkeypatch.setattr(translator.aligner, "attention", diagonal)
    monkeypatch.setattr(translator.aligner, "knowing", lambda *_: translator.aligner)
    line, expected_line = f"one{gap}<b>two</b> <i>three</i> four", "one <b>two</b> <i>three</i> four"
    actual, expected = translator.translations([line, expected_line], prefixes=lines[:2])
    assert actual.text == expected.text
    assert "<b></b>" not in actual.text
    links = word_alignment(translator, expected)
    assert len({source for source, _ in links}) == 4
    n_gap = len(gap.split())
    assert word_alignment(translator, actual) == [(s + n_gap * (s > 0), t) for s, t in links]
