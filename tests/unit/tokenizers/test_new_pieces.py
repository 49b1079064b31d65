"""Subwords that a trained tokenizer learns from the text of a new language."""

from collections import Counter

import pytest

from transformer.errors import ConfigError, DataError
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.new_pieces import extend_tokenizer, learn_merges, row_origins
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

ENGLISH = ["the cat and the dog", "the dog and the cat sat"] * 5
POLISH = ["źdźbło trawy", "źdźbła traw", "źdźbło i trawa"] * 5


@pytest.fixture(scope="module")
def english() -> BytePairTokenizer:
    tokenizer = train_tokenizer(ENGLISH, TokenizerConfig(vocab_size=280)).with_tags(["de", "fr"])
    assert isinstance(tokenizer, BytePairTokenizer)
    return tokenizer


def naive_merges(words: dict[tuple[str, ...], int], n: int) -> list[tuple[str, str]]:
    """Counts all pairs anew before each merge (Sennrich et al. 2016)."""
    merges = []
    for _ in range(n):
        counts = Counter[tuple[str, str]]()
        for word, count in words.items():
            for index in range(len(word) - 1):
                counts[word[index], word[index + 1]] += count
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        merged: dict[tuple[str, ...], int] = {}
        for word, count in words.items():
            pieces, index = [], 0
            while index < len(word):
                is_pair = word[index : index + 2] == best
                pieces.append("".join(word[index : index + 1 + is_pair]))
                index += 1 + is_pair
            merged[tuple(pieces)] = merged.get(tuple(pieces), 0) + count
        words = merged
    return merges


def test_merges_are_those_of_counting_anew() -> None:
    """Catches counts that are not updated, pairs of one letter (aaa) counted wrongly, and ties in a random order."""
    words = {tuple(word): count for word, count in (
        ("banana", 5), ("bandana", 3), ("aaaa", 4), ("aaab", 2), ("an", 7), ("cab", 1),
    )}  # fmt: skip
    for n in (1, 3, 8, 99):
        assert learn_merges(words, n, {*"abcdn"}) == naive_merges(words, n)
    assert learn_merges(words, 99, {*"abcdn"}, min_frequency=99) == []


def test_new_pieces_follow_those_of_the_tokenizer(english: BytePairTokenizer) -> None:
    """Catches ids that move, tags in the middle of the vocabulary, and text that is lost or segmented otherwise."""
    extended = extend_tokenizer(english, POLISH, 12, 2)
    assert extended.vocab_size == english.vocab_size + 12
    assert extended.tags == english.tags
    assert extended.to_language("fr").leading == (extended.vocab_size - 1,)
    assert extended.special_tokens.tags == (extended.vocab_size - 2, extended.vocab_size - 1)
    for line in ENGLISH:
        assert extended.encode(line) == english.encode(line)
    for line in POLISH:
        before, after = english.encode(line), extended.encode(line)
        assert len(after) < 0.7 * len(before)
        assert extended.decode(after) == line
    reread = BytePairTokenizer.from_json(extended.to_json())
    assert reread.encode(POLISH[0]) == extended.encode(POLISH[0])
    assert extend_tokenizer(english, POLISH, 12, 2).to_json() == extended.to_json()
    assert extend_tokenizer(english, POLISH, 10**6, 2).vocab_size < english.vocab_size + 200


def test_embeddings_begin_as_the_mean_of_the_pieces_before(english: BytePairTokenizer) -> None:
    """Catches rows of a piece that was made of new pieces, rows of tags that stay behind, and rows that move."""
    extended = extend_tokenizer(english, POLISH, 12, 2)
    n_text = english.vocab_size - 2
    origins = row_origins(english, extended.with_tags(["it"]))
    assert len(origins) == extended.vocab_size + 1
    assert origins[:n_text] == [[token] for token in range(n_text)]
    assert origins[-3:] == [[n_text], [n_text + 1], [n_text, n_text + 1]]
    spelled_before, spelled_after = english.spell(), extended.spell()
    for token in range(n_text, n_text + 12):
        assert len(origins[token]) > 1
        assert [byte for part in origins[token] for byte in spelled_before[part]] == spelled_after[token]
    assert row_origins(english, english) == [[token] for token in range(english.vocab_size)]


def test_both_sides_are_extended(english: BytePairTokenizer) -> None:
    """Catches a side that is extended by the other's text, and a joint tokenizer that falls into two."""
    settings = TokenizerConfig(added_pieces=6)
    joint = TokenizerPair.joint(english).extended(lambda: POLISH, lambda: [], settings)
    assert joint.is_joint
    assert joint.source.vocab_size == english.vocab_size + 6
    target = train_tokenizer(ENGLISH, TokenizerConfig(vocab_size=270), is_target=True)
    apart = TokenizerPair(english, target).extended(lambda: [], lambda: POLISH, settings)
    assert (apart.source.vocab_size, apart.target.vocab_size) == (english.vocab_size, 276)
    assert apart.target.is_target


def test_what_cannot_be_extended_is_refused(english: BytePairTokenizer) -> None:
    """Catches a traceback for characters, and for a language without text."""
    characters = train_tokenizer(ENGLISH, TokenizerConfig(kind="characters"))
    with pytest.raises(ConfigError, match=r"tokenizer\.added_pieces extends byte pairs .* leave the key out"):
        extend_tokenizer(characters, POLISH, 5, 2)
    with pytest.raises(DataError, match="the text of the new language is empty"):
        extend_tokenizer(english, ["", ""], 5, 2)
