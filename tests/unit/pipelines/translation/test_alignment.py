"""Word alignment and attention matrices."""

from pathlib import Path

import numpy as np
import pytest
import torch

from transformer.decoding import Search
from transformer.pipelines.auto import load
from transformer.pipelines.translation.alignment import align, token_word_ids
from transformer.pipelines.translation.alignment_output import AttentionFile, attention_weights, word_alignment
from transformer.pipelines.translation.attention_maps import cross_attention


def test_links_by_hand() -> None:
    """Catches rows and columns swapped, tokens of a word not added up, EOS taken for a word."""
    weights = torch.tensor([
        [0.1, 0.3, 0.3, 0.3],  # word 0: source word 1 has two tokens and 0.6
        [0.5, 0.1, 0.2, 0.2],  # word 1, first token
        [0.4, 0.2, 0.2, 0.2],  # word 1, second token
        [0.1, 0.1, 0.1, 0.7],  # word 2 looks at EOS
    ])  # fmt: skip
    assert align(weights, [0, 1, 1, -1], [0, 1, 1, 2]) == [(1, 0), (0, 1)]


@pytest.mark.parametrize("line", ["a man sleeps .", "a  man   sleeps .", "  two dogs run .", "one\ttwo  ", "a", "  "])
def test_words_are_counted_as_they_are_split(tiny_run: Path, line: str) -> None:
    """Catches a word for every space of a row, and numbers beyond the last word."""
    tokenizer = load(tiny_run).tokenizers.source
    ids = tokenizer.encode(line)
    owners = token_word_ids(tokenizer.pieces([*ids, 2]))
    words = line.split()
    assert owners[-1] == -1
    assert set(owners[:-1]) - {-1} == set(range(len(words)))
    for number, word in enumerate(words):
        own = [token for token, owner in zip(ids, owners, strict=False) if owner == number]
        assert tokenizer.decode(own).strip() == word


def test_a_translation_of_all_positions_is_aligned(tiny_run: Path) -> None:
    """Catches one position too many for the model."""
    translator = load(tiny_run, search=Search(min_tokens=95, retry_degenerate=False))
    (found,) = translator.translations(["one two three"])
    assert len(found.alternatives[0].tokens[0]) == 95
    assert attention_weights(translator, found)[0].size(2) == len(found.alternatives[0].tokens[0])


def test_weights_are_those_of_the_picture(tiny_run: Path) -> None:
    """Catches attention of another target than the one written; rows must sum to 1."""
    translator = load(tiny_run)
    compared = linked = 0
    for line in ("one two three", "seven", "nine one", "two two", "zero"):
        (found,) = translator.translations([line])
        (weights,) = attention_weights(translator, found)
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        expected = cross_attention(translator, line, found.text)
        if expected.target[:-1] == list(found.alternatives[0].pieces):  # text that reads back as the same tokens
            torch.testing.assert_close(weights, expected.weights[:, :, :-1])
            compared += 1
        links = word_alignment(translator, found)
        assert all(source < len(line.split()) and target < len(found.text.split()) for source, target in links)
        linked += len(links)
    assert compared
    assert linked


def test_a_file_of_attention_is_read_by_numpy(tiny_run: Path, tmp_path: Path) -> None:
    """Catches an archive that numpy cannot open, lines mixed up, an empty line that stops all."""
    translator = load(tiny_run)
    found = translator.translations(["one two", "", "three"])
    with (tmp_path / "attention.npz").open("wb") as written, AttentionFile(written) as file:
        for number, translation in enumerate(found, start=1):
            file.add(number, translator, translation)
    arrays = np.load(tmp_path / "attention.npz", allow_pickle=False)
    assert set(arrays) == {f"{line}.1{side}" for line in (1, 3) for side in ("", ".source", ".target")}
    layers, heads, target, source = arrays["3.1"].shape
    assert (layers, heads) == (2, 2)
    assert (target, source) == (len(arrays["3.1.target"]), len(arrays["3.1.source"]))
    assert arrays["3.1"].astype(float).sum(-1) == pytest.approx(np.ones((layers, heads, target)), abs=0.01)
