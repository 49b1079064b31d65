"""Tags of target languages, which are tokens that no text is encoded to."""

import json

import numpy as np
import pytest

from transformer.errors import ConfigError, DataError
from transformer.tokenizers.bpe_dropout import BpeDropout, word_keys
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.character import CharacterTokenizer
from transformer.tokenizers.config import NormalizationConfig, TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

LINES = ["the cat >>de<<", "a dog >>fr<<"] * 20
KINDS = [TokenizerConfig(vocab_size=300), TokenizerConfig(kind="characters")]


@pytest.mark.parametrize("settings", KINDS, ids=["bpe", "characters"])
def test_a_tag_stands_before_every_text_and_in_none(settings: TokenizerConfig) -> None:
    """Catches a tag that a text can imitate, ids of text that move, and a tag that is decoded."""
    plain = train_tokenizer(LINES, settings)
    tagged = plain.with_tags(["de", "fr"])
    german = tagged.to_language("de")
    size = plain.vocab_size
    assert (tagged.vocab_size, tagged.special_tokens.tags) == (size + 2, (size, size + 1))
    for text in ("the cat", ">>de<< cat", "", ">>fr<<"):
        assert tagged.encode(text) == plain.encode(text)
        assert german.encode(text) == [size, *plain.encode(text)]
        assert german.decode(german.encode(text)) == text
        ids, lengths = german.encode_flat([text, "a"])
        assert ids.tolist() == [*german.encode(text), *german.encode("a")]
        assert lengths.tolist() == [len(german.encode(text)), len(german.encode("a"))]
    assert tagged.pieces([size, size + 1]) == [">>de<<", ">>fr<<"]
    assert {size, size + 1} <= {*tagged.special_tokens.suppressed_ids(allow_unknown=True)}
    assert len(tagged.fallback_bytes()) == len(tagged.is_fallback()) == size + 2


def test_bpe_dropout_keeps_the_tag() -> None:
    """Catches a tag that is taken apart or lost where words are segmented anew in each epoch."""
    german = train_tokenizer(LINES, KINDS[0]).with_tags(["de", "fr"]).to_language("de")
    assert isinstance(german, BytePairTokenizer)
    ids, lengths, starts = german.encode_words(["the cat", "", "a dog"])
    flat, flat_lengths = german.encode_flat(["the cat", "", "a dog"])
    assert ids.tolist() == flat.tolist()
    assert lengths.tolist() == flat_lengths.tolist()
    firsts = [0, lengths[0], lengths[0] + lengths[1]]
    assert starts[firsts].all()
    assert starts[[1, firsts[2] + 1]].all()
    words = np.split(ids.astype(np.int64), np.flatnonzero(starts)[1:])
    counts = np.array([len(word) for word in words])
    tokens, _ = BpeDropout(german, 0.9).segment(ids.astype(np.int64), counts, word_keys([1], np.arange(len(words))))
    tag = german.leading[0]
    assert tokens.tolist().count(tag) == 3
    assert german.decode([token for token in tokens.tolist() if token != tag]) == "the cat a dog"


@pytest.mark.parametrize("settings", KINDS, ids=["bpe", "characters"])
def test_stored_tags_are_read_again(settings: TokenizerConfig) -> None:
    """Catches tags that are lost with the model, and a file without tags that differs from those of before."""
    plain = TokenizerPair.joint(train_tokenizer(LINES, settings))
    tagged = plain.with_tags(["de", "fr"])
    read = TokenizerPair.from_files(tagged.to_files())
    assert read.is_joint
    assert read.target_languages == ("de", "fr")
    assert read.to_language("fr").source.encode("cat") == tagged.to_language("fr").source.encode("cat")
    assert "tags" not in json.loads(plain.source.to_json())
    for tags in ("de", ["de", "de"], ["de", 3], ["no language"]):
        files = {"tokenizer.json": json.dumps({**json.loads(tagged.source.to_json()), "tags": tags})}
        with pytest.raises(DataError, match="its tags"):
            TokenizerPair.from_files(files)


def test_new_tags_follow_those_before() -> None:
    """Catches a language that is added to a trained model and moves the tags that it knows."""
    first = train_tokenizer(LINES, KINDS[0]).with_tags(["de", "fr"])
    second = first.with_tags(["fr", "it", "it"])
    assert second.tags == ("de", "fr", "it")
    assert second.to_language("fr").leading == first.to_language("fr").leading
    assert second.with_tags(["it"]) is second


def test_a_variant_of_a_language_takes_its_tag() -> None:
    """Catches `de-AT` without a tag, and a language without a tag that gets one."""
    tagged = train_tokenizer(LINES, KINDS[0]).with_tags(["de", "zh-Hant"])
    assert tagged.to_language("de-AT").leading == tagged.to_language("de").leading
    assert tagged.to_language("zh-TW").leading == tagged.to_language("zh-Hant").leading
    assert tagged.to_language("fr") is tagged
    assert tagged.to_language("") is tagged


class FixedTokenizer(CharacterTokenizer):
    """A tokenizer whose vocabulary is fixed."""

    has_tags_last = False


def test_a_kind_without_tags_says_so() -> None:
    """Catches tags that a published tokenizer cannot have."""
    fixed = FixedTokenizer(["a"], NormalizationConfig())
    assert fixed.with_tags([]) is fixed
    with pytest.raises(ConfigError, match="takes no tags of languages"):
        fixed.with_tags(["de"])
