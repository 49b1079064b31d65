"""BPE dropout against the tokenizers library and against the exact distribution of the paper's algorithm."""

from collections import Counter
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from samples import ROOT
from transformer.tokenizers.bpe_dropout import BpeDropout, word_keys
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.config import TokenizerConfig

TEXTS = [
    *(ROOT / "docs" / "explanation" / "tokenization.md").read_text(encoding="utf-8").splitlines(),
    "Grüße  an Москва – 12,3 %!!  ", "", "naïve 日本語 👍🏽 e\u0301", "aaaaaaaaaaaaaaaaaaaaaaa", "\t x\t\t", "\u200b",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> BytePairTokenizer:
    return BytePairTokenizer.train(TEXTS, TokenizerConfig(vocab_size=800, normalize=True))


def segment(
    tokenizer: BytePairTokenizer, rate: float, texts: list[str], seed: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns tokens, tokens of each word, and the number of words of each text."""
    ids, lengths, starts = tokenizer.encode_words(texts)
    counts = np.diff(np.flatnonzero(starts), append=len(ids))
    keys = word_keys([seed], np.arange(len(counts)))
    words = np.add.reduceat(starts, (np.cumsum(lengths) - lengths)[lengths > 0]) if len(ids) else np.zeros(0, int)
    return *BpeDropout(tokenizer, rate).segment(ids.astype(np.int64), counts, keys), words


def test_without_dropout_the_library_segments_alike(tokenizer: BytePairTokenizer) -> None:
    """Catches merges across words, in another order than the library's, or of another occurrence of a pair."""
    expected = tokenizer.encode_flat(TEXTS)[0]
    assert len({*expected.tolist()}) > 500
    assert segment(tokenizer, 0.0, TEXTS)[0].tolist() == expected.tolist()


def test_at_a_rate_of_one_bytes_are_left(tokenizer: BytePairTokenizer) -> None:
    """Catches a last merge that is always applied."""
    tokens, _, _ = segment(tokenizer, 1.0, TEXTS)
    assert len(tokens) == sum(len(tokenizer.prepare(text).encode()) for text in TEXTS)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
def test_the_text_stays(tokenizer: BytePairTokenizer, rate: float) -> None:
    """Catches tokens that are lost, doubled, or assigned to another word."""
    tokens, counts, words = segment(tokenizer, rate, TEXTS)
    ends = np.cumsum(counts)[np.cumsum(words) - 1]
    rows = [row.tolist() for row in np.split(tokens, ends[:-1])]
    shown = [text for text in TEXTS if tokenizer.prepare(text).strip("\u200b") not in ("", " ")]
    assert [tokenizer.decode(row) for row in rows if tokenizer.decode(row)] == [
        text for text in map(tokenizer.normalize, shown) if text
    ]
    assert len(tokens) > len(tokenizer.encode_flat(TEXTS)[0])


def exact_distribution(
    tokenizer: BytePairTokenizer, word: tuple[int, ...], rate: float
) -> dict[tuple[int, ...], float]:
    """Returns the probability of each segmentation by Algorithm 1 of the paper, without drawing.

    Of n possible merges, sorted by priority, merge number i is applied if those before it are dropped and it is not.
    """
    ranks = {(left, right): (rank, merged) for rank, (left, right, merged) in enumerate(tokenizer.merges())}
    final: Counter[tuple[int, ...]] = Counter()
    states = Counter({word: 1.0})
    while states:
        following: Counter[tuple[int, ...]] = Counter()
        for state, probability in states.items():
            pairs = [(ranks[pair], place) for place, pair in enumerate(pairwise(state)) if pair in ranks]
            for dropped, ((_, merged), place) in enumerate(sorted(pairs)):
                after = (*state[:place], merged, *state[place + 2 :])
                following[after] += probability * rate**dropped * (1 - rate)
            final[state] += probability * rate ** len(pairs)
        states = following
    return final


@pytest.mark.parametrize(("word", "rate"), [(" tokens", 0.1), (" segmentation", 0.5), (" aaaaaa", 0.3)])
def test_segmentations_have_the_probabilities_of_the_paper(
    tokenizer: BytePairTokenizer, word: str, rate: float
) -> None:
    """Catches merges that are dropped for good, once for all occurrences, or with another probability."""
    draws = 20_000
    spelled = [tokenizer.spell()[token][0] for token in range(4, 260)]
    assert len({*spelled}) == 256
    start = tuple(byte for token in tokenizer.encode_running([word])[0] for byte in tokenizer.spell()[token])
    expected = exact_distribution(tokenizer, start, rate)
    assert len(expected) > 3
    assert sum(expected.values()) == pytest.approx(1)
    keys = word_keys([7], np.arange(draws))
    tokens, counts = BpeDropout(tokenizer, rate).segment(
        np.tile(start, draws), np.full(draws, len(start)), keys
    )  # fmt: skip
    drawn = Counter(tuple(row.tolist()) for row in np.split(tokens, np.cumsum(counts)[:-1]))
    assert drawn.keys() <= expected.keys()
    for segmentation, probability in expected.items():
        deviation = sqrt(draws * probability * (1 - probability))
        assert abs(drawn[segmentation] - draws * probability) < 4.5 * deviation + 3, segmentation


def test_a_word_depends_on_its_key_alone(tokenizer: BytePairTokenizer) -> None:
    """Catches random numbers that depend on the words before, or on how the word was segmented."""
    ids, _, starts = tokenizer.encode_words(TEXTS)
    counts = np.diff(np.flatnonzero(starts), append=len(ids))
    keys = word_keys([1, 2], np.arange(len(counts)))
    dropout = BpeDropout(tokenizer, 0.3)
    tokens, lengths = dropout.segment(ids.astype(np.int64), counts, keys)
    places, first = np.split(np.arange(len(tokens)), np.cumsum(lengths)[:-1]), np.cumsum(counts) - counts
    for word in range(0, len(counts), 37):
        alone, _ = dropout.segment(
            ids[first[word] : first[word] + counts[word]].astype(np.int64), counts[[word]], keys[[word]]
        )
        assert alone.tolist() == tokens[places[word]].tolist()
    again, _ = dropout.segment(tokens, lengths, keys)
    assert again.tolist() == tokens.tolist()
    other, _ = dropout.segment(ids.astype(np.int64), counts, word_keys([1, 3], np.arange(len(counts))))
    assert other.tolist() != tokens.tolist()


def test_keys_are_reproducible_and_differ() -> None:
    """Catches keys that change between versions, and numbers that can be exchanged without effect."""
    assert word_keys([1, 2], np.array([3])).tolist() == word_keys([1], np.array([2]), np.array([3])).tolist()
    keys = {int(word_keys([a, b], np.array([c]))[0]) for a in range(9) for b in range(9) for c in range(9)}
    assert len(keys) == 9**3
    assert word_keys([-1], np.array([0])).tolist() == word_keys([2**64 - 1], np.array([0])).tolist()


def test_random_bits_are_those_of_splitmix64() -> None:
    """Catches a generator other than the published one: the first outputs of SplitMix64 for the seed 0."""
    assert word_keys([0], np.array([], np.int64)).tolist() == []
    assert int(word_keys([0])[0]) == 0xE220A8397B1DCDAF
