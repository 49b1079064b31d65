"""Translators of several languages: which languages are chosen, and what the model reads then."""

import warnings
from collections.abc import Callable

import pytest
import torch

from transformer.bundle import Bundle
from transformer.bundle.languages import pair_entries, recorded_languages, recorded_pairs
from transformer.errors import ConfigError
from transformer.models import family
from transformer.pipelines.auto import make_translator
from transformer.pipelines.translation.scoring import score_pairs
from transformer.pipelines.translation.translator import Translator
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

LEARNED = (("en", "de"), ("de", "en"), ("en", "fr"), ("fr", "en"))
LINES = ["one two three", "Zwei Hunde.", ">>fr<< one two"]
MISSING = r"the model translates to several languages; choose one with target_language .* de, en, fr"


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    """Returns a random model of three languages, whose tags matter for what it writes."""
    tokenizers = TokenizerPair.joint(train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=270)))
    tokenizers = tokenizers.with_tags(["de", "en", "fr"])
    kind, size = family("transformer"), tokenizers.source.vocab_size
    sizes = {"src_vocab_size": size, "tgt_vocab_size": size, "src_seq_len": 48, "tgt_seq_len": 48, "N": 1}
    config = kind.config.model_validate({**kind.presets()["tiny"], **sizes, "d_model": 16, "d_ff": 16, "h": 2})
    torch.manual_seed(1)
    return Bundle(config, kind.build(config), tokenizers, pair_entries(LEARNED))


@pytest.fixture(scope="module")
def translator_of(bundle: Bundle) -> Callable[..., Translator]:
    return lambda **options: make_translator(bundle, workers=1, **options)


def test_a_bundle_records_its_pairs(bundle: Bundle) -> None:
    """Catches one direction taken for that of the model, and damaged records that end in a traceback."""
    assert recorded_pairs(bundle) == LEARNED
    assert recorded_languages(bundle) == (None, None)
    for damaged in ("en", [["en"]], [["en", 3]], [[["en"], "de"]], {"en": "de"}, None):
        broken = Bundle(bundle.config, bundle.model, bundle.text, {"languages": {"pairs": damaged}})
        assert recorded_pairs(broken) == ()


def test_the_languages_of_a_call_are_those_of_a_translator(translator_of: Callable[..., Translator]) -> None:
    """Catches a tag that a call loses, one of an earlier call, and a text that imitates a tag."""
    several = translator_of()
    read = {}
    for language in ("de", "fr", "de"):
        alone = translator_of(target_language=language)
        expected = alone.translations(LINES)
        translations = several.translations(LINES, target_language=language)
        assert [line.sources for line in translations] == [line.sources for line in expected]
        assert [line.text for line in translations] == [line.text for line in expected]
        with pytest.warns(UserWarning, match="did not end"):
            assert several(LINES, target_language=language) == [line.text for line in expected]
        tag = alone.tokenizers.source.leading
        read[language] = [tokens for line in expected for tokens in line.sources]
        assert all(tuple(tokens[:1]) == tag for tokens in read[language])
    assert read["de"] != read["fr"]
    assert several.config.target_language == ""


def test_scores_are_those_of_the_target_language(translator_of: Callable[..., Translator]) -> None:
    """Catches scores of a source without its tag, which the model never saw."""
    pair = [("one two", "two one")]
    german, french = (score_pairs(translator_of(target_language=tag), pair)[0].score for tag in ("de", "fr"))
    assert german != french
    with pytest.raises(ConfigError, match=MISSING):
        score_pairs(translator_of(), pair)


def test_the_target_language_must_be_known(translator_of: Callable[..., Translator]) -> None:
    """Catches a translation into whatever language the model likes."""
    several = translator_of()
    with pytest.raises(ConfigError, match=MISSING):
        several("one")
    with pytest.raises(ConfigError, match=r"target_language='es' is not a language .* choose de, en, fr"):
        several("one", target_language="es")
    with pytest.raises(ConfigError, match=r"target_language='es' is not a language .* choose de, en, fr"):
        translator_of(target_language="es")
    assert translator_of(target_language="de-AT").config.target_language == "de"


def test_the_source_language_is_the_only_one_that_was_learned(translator_of: Callable[..., Translator]) -> None:
    """Catches numbers and sentences of an unknown language where one alone is possible."""
    assert translator_of(target_language="de").config.source_language == "en"
    to_english = translator_of(target_language="en").config
    assert (to_english.source_language, to_english.source_languages) == ("", ("en", "de", "fr"))


def test_a_pair_that_was_not_learned_is_told(translator_of: Callable[..., Translator]) -> None:
    """Catches a zero-shot translation without a word about it, and a warning for a pair that was learned."""
    with pytest.warns(UserWarning, match="did not learn French to German from any pair.*; translate through English"):
        translator_of(source_language="fr", target_language="de")
    with pytest.warns(UserWarning, match="did not learn Spanish to German from any pair.*; do not rely on"):
        translator_of(source_language="es", target_language="de")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator_of(source_language="de", target_language="en")
