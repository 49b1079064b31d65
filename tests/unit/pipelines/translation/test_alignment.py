"""Word alignment and attention matrices."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from transformer.decoding import Search
from transformer.pipelines.auto import load
from transformer.pipelines.translation.alignment import Aligner, WordStart, link_words, token_word_ids, word_weights
from transformer.pipelines.translation.alignment_output import AttentionFile, attention_weights, word_alignment
from transformer.pipelines.translation.attention_maps import cross_attention


def test_links_by_hand() -> None:
    """Catches swapped rows and columns, weights of a word's tokens that are not added up, and EOS taken for a word."""
    weights = torch.tensor([
        [0.1, 0.3, 0.3, 0.3],  # word 0: source word 1 has two tokens and 0.6
        [0.5, 0.1, 0.2, 0.2],  # word 1, first token
        [0.4, 0.2, 0.2, 0.2],  # word 1, second token
        [0.1, 0.1, 0.1, 0.7],  # word 2 attends to EOS
    ])  # fmt: skip
    assert link_words(word_weights(weights, [0, 1, 1, -1], [0, 1, 1, 2])) == [(1, 0), (0, 1)]


class FixedAligner(Aligner):
    """An aligner of segments with these weights between words; the last column is that of EOS."""

    def __init__(self, *weights: list[list[float]]) -> None:
        self.weights = [torch.tensor(rows) for rows in weights]

    def _word_weights(
        self, segments: Sequence[tuple[Sequence[int], Sequence[int]]], starts: WordStart
    ) -> Iterator[torch.Tensor]:
        return iter(self.weights)


def test_a_source_word_has_a_reader_though_no_word_comes_from_it() -> None:
    """Catches a search over the wrong side, EOS taken for a word, and words of a later segment counted from 0."""
    aligner = FixedAligner([[0.6, 0.1, 0.3], [0.3, 0.2, 0.5]], [[0.1, 0.9]])
    assert aligner.origins([], [0, 1, 2], 3) == [0, None, None]
    assert aligner.readers([], [0, 1, 2], 3) == {0: 0, 1: 1, 2: 2}
    assert aligner.readers([], [0, 0, 1], 3) == {0: 0, 1: 2}


@pytest.mark.parametrize("line", ["a man sleeps .", "a  man   sleeps .", "  two dogs run .", "one\ttwo  ", "a", "  "])
def test_words_are_counted_as_they_are_split(tiny_run: Path, line: str) -> None:
    """Catches a word for each of several consecutive spaces, and indices beyond the last word."""
    tokenizer = load(tiny_run).tokenizers.source
    ids = tokenizer.encode(line)
    word_ids = token_word_ids(tokenizer.pieces([*ids, 2]))
    words = line.split()
    assert word_ids[-1] == -1
    assert set(word_ids[:-1]) - {-1} == set(range(len(words)))
    for number, word in enumerate(words):
        word_tokens = [token for token, word_id in zip(ids, word_ids, strict=False) if word_id == number]
        assert tokenizer.decode(word_tokens).strip() == word


def test_a_translation_of_all_positions_is_aligned(tiny_run: Path) -> None:
    """Catches one position too many for the model."""
    translator = load(tiny_run, search=Search(min_tokens=95, retry_degenerate=False))
    (translation,) = translator.translations(["one two three"])
    assert len(translation.alternatives[0].tokens[0]) == 95
    assert attention_weights(translator, translation)[0].size(2) == len(translation.alternatives[0].tokens[0])


def test_weights_are_those_of_the_picture(tiny_run: Path) -> None:
    """Catches attention of a target other than the translation; rows must sum to 1."""
    translator = load(tiny_run)
    n_compared = n_links = 0
    for line in ("one two three", "seven", "nine one", "two two", "zero"):
        (translation,) = translator.translations([line])
        (weights,) = attention_weights(translator, translation)
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        expected = cross_attention(translator, line, translation.text)
        if expected.written[:-1] == list(translation.alternatives[0].pieces):  # text that reads back as the same tokens
            torch.testing.assert_close(weights, expected.weights[:, :, :-1])
            n_compared += 1
        links = word_alignment(translator, translation)
        assert all(source < len(line.split()) and target < len(translation.text.split()) for source, target in links)
        n_links += len(links)
    assert n_compared
    assert n_links


def test_a_file_of_attention_is_read_by_numpy(tiny_run: Path, tmp_path: Path) -> None:
    """Catches an archive that numpy cannot open, lines that are mixed up, and an empty line that fails."""
    translator = load(tiny_run)
    translations = translator.translations(["one two", "", "three"])
    with (tmp_path / "attention.npz").open("wb") as stream, AttentionFile(stream) as archive:
        for number, translation in enumerate(translations, start=1):
            archive.add(number, translator, translation)
    arrays = np.load(tmp_path / "attention.npz", allow_pickle=False)
    assert set(arrays) == {f"{line}.1{side}" for line in (1, 3) for side in ("", ".source", ".target")}
    layers, heads, target, source = arrays["3.1"].shape
    assert (layers, heads) == (2, 2)
    assert (target, source) == (len(arrays["3.1.target"]), len(arrays["3.1.source"]))
    assert arrays["3.1"].astype(float).sum(-1) == pytest.approx(np.ones((layers, heads, target)), abs=0.01)
