"""Byte-level BPE beside the tokenizers library: words that are looked up, and bytes that become text."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transformer.tokenizers import byte_pair
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS

LINES = ["the cat sat on the mat .", "a  b   c    d", "Straße,  naïve \u00a0\u00a0x", "\t\t a\n b\n\n", "猫 は 猫"] * 9
TOKENIZER = BytePairTokenizer.train(LINES, TokenizerConfig(vocab_size=330))
LIBRARY = TOKENIZER._merges


def encoded_whole(texts: list[str]) -> list[list[int]]:
    """Returns the ids of whole texts, by the library."""
    encodings = LIBRARY.encode_batch([f" {text}" if text else "" for text in texts], add_special_tokens=False)
    return [[token + N_SPECIAL_TOKENS for token in encoding.ids] for encoding in encodings]


@given(st.lists(st.text("thecas a.\u0301é猫1 \t\n\xa0\x1f\u3000", max_size=24), max_size=4))
@example(["", " ", "  ", "a  b", "a \t b", "a\tb ", " a", "a ", "\x1c", "a\u3000 b"])
@example(["the cat", "the cat", "mat . the"])
@example(["the cat " + "x" * 65 + " sat"])
@settings(max_examples=60, deadline=None)
def test_words_have_the_tokens_that_they_have_in_their_text(texts: list[str]) -> None:
    """Catches a word that is split otherwise where it is looked up: beside a tab, or two spaces."""
    assert TOKENIZER.encode_batch(texts) == encoded_whole(texts)


@given(st.lists(st.integers(0, TOKENIZER.vocab_size + 1), max_size=12))
@settings(max_examples=60, deadline=None)
def test_tokens_become_the_text_of_the_library(ids: list[int]) -> None:
    """Catches parts of characters that become other text than U+FFFD, and special or unknown tokens that are shown."""
    text = LIBRARY.decode([i - N_SPECIAL_TOKENS for i in ids if i >= N_SPECIAL_TOKENS], skip_special_tokens=False)
    assert TOKENIZER.decode_running(ids) == text


def test_few_words_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches memory that grows with the text: with every new word, or with words without an end."""
    monkeypatch.setattr(byte_pair, "MAX_CACHED_WORDS", 5)
    tokenizer = BytePairTokenizer(LIBRARY, TOKENIZER.normalization)
    sizes = [
        len(tokenizer.encode_batch([f"a{number} b{number}"])) and len(tokenizer._cached_words) for number in range(9)
    ]
    assert max(sizes) <= 5 + 2
    long = "y" * (byte_pair.MAX_CACHED_CHARACTERS + 1)
    assert tokenizer.encode(f"the {long}") == encoded_whole([f"the {long}"])[0]
    assert long not in tokenizer._cached_words
