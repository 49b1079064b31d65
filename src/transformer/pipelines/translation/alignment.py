"""Which source word each word of a translation comes from, as the model's attention tells it."""

import re
from collections.abc import Callable, Sequence
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.pipelines.translation.coverage import watched_weights, word_layer, written_from
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, SPECIAL_TOKEN_NAMES
from transformer.transformer import Transformer

SPACE: Final = "▁"
_BYTE: Final = re.compile(r"<([0-9A-F]{2})>")
Links = list[tuple[int, int]]
"""Pairs of a source word and a target word, from 0."""
Begins = Callable[[str, str], bool]
"""Whether a word begins with the second character, which follows the first."""


def begins_word(before: str, character: str) -> bool:
    """A word as `str.split` counts them."""
    return before.isspace() and not character.isspace()


def begins_unit(before: str, character: str) -> bool:
    """A unit of `text.tags`: letters and digits in a row, or another character that is no space."""
    is_letter = _is_letter(character)
    return not character.isspace() and not (is_letter and _is_letter(before))


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "_"


class Aligner:
    """Aligns translations with their sources by the attention of a model.

    Args:
        model: in evaluation mode.
        tokenizers: of both sides.
        device: of the model.
    """

    def __init__(self, model: Transformer, tokenizers: TokenizerPair, device: torch.device) -> None:
        self._model, self._tokenizers, self._device = model, tokenizers, device

    @torch.no_grad()
    def attention(self, source: Sequence[int], target: Sequence[int]) -> Float[Tensor, "N H T S"]:
        """The cross-attention of every layer and head.

        Args:
            source: with EOS.
            target: without EOS.
        """
        written = written_from(target[:-1], max(1, len(target)), self._tokenizers.target.special_tokens.bos)
        src, tgt = (torch.tensor([tokens], device=self._device) for tokens in (source, written))
        return torch.cat(watched_weights(self._model, src, tgt))[:, :, : len(target)].cpu()

    def links(
        self, pieces: Sequence[tuple[Sequence[int], Sequence[int]]], begins: Begins = begins_word
    ) -> tuple[Links, tuple[int, int]]:
        """For each target word the source word that it attends to most; none where that is EOS.

        Args:
            pieces: source, with EOS, and target, without, of each piece of a line.
            begins: what a word is.

        Returns:
            The links, counted over all pieces, and how many words there are on both sides.
        """
        links: Links = []
        words = (0, 0)
        for source, target in pieces:
            owners = (
                word_of_each(_printed(self._tokenizers.source, source), begins),
                word_of_each(_printed(self._tokenizers.target, target), begins),
            )
            own = align(word_layer(list(self.attention(source, target)[:, None]))[0], *owners)
            links += [(words[0] + s, words[1] + t) for s, t in own]
            words = words[0] + 1 + max(owners[0], default=-1), words[1] + 1 + max(owners[1], default=-1)
        return links, words

    def origins(
        self, pieces: Sequence[tuple[Sequence[int], Sequence[int]]], source_units: int, target_units: int
    ) -> list[int | None]:
        """For each unit of a translation the unit of its source that it attends to most; None where that is EOS.

        Args:
            pieces: as of `links`.
            source_units: of the source's text. Where its tokens print others (a tokenizer that changes the text, or
                says the language first), units are those at the same share of the length.
            target_units: of the translation's text.
        """
        links, (sources, targets) = self.links(pieces, begins_unit)
        origin = {target: scaled(source, sources, source_units) for source, target in links}
        return [origin.get(scaled(unit, target_units, targets)) for unit in range(target_units)]


def _printed(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """The printable tokens; those that end or begin a text by our names, whatever the vocabulary calls them."""
    special_tokens = tokenizer.special_tokens
    ours = {
        getattr(special_tokens, name): SPECIAL_TOKEN_NAMES[getattr(DEFAULT_SPECIAL_TOKENS, name)]
        for name in ("pad", "bos", "eos")
    }
    return [ours.get(token, piece) for token, piece in zip(tokens, tokenizer.pieces(tokens), strict=True)]


def scaled(number: int, count: int, wanted: int) -> int:
    """Where the unit of a number stands among as many as there should be."""
    return number if count == wanted else number * wanted // count


def align(weights: Float[Tensor, "T S"], source_words: Sequence[int], target_words: Sequence[int]) -> Links:
    """Links by attention, added up over the tokens of a word, given which word each token belongs to; -1 is none."""
    links: Links = []
    for word in range(max(target_words, default=-1) + 1):
        mass = weights[[place for place, owner in enumerate(target_words) if owner == word]].sum(dim=0)
        by_word = mass.new_zeros(max(source_words, default=-1) + 2)
        by_word.index_add_(0, torch.tensor(source_words) % len(by_word), mass)  # -1, EOS, is the last
        best = int(by_word.argmax())
        if best < len(by_word) - 1:
            links.append((best, word))
    return links


def word_of_each(pieces: Sequence[str], begins: Begins = begins_word) -> list[int]:
    """The word that each printed token belongs to, that of its last character; -1 for control tokens.

    Several spaces part no more words than one. White space goes with what follows.
    """
    owners: list[int] = []
    word, before = -1, " "
    for piece in pieces:
        if piece in SPECIAL_TOKEN_NAMES:
            owners.append(-1)
            continue
        text = _BYTE.sub(_character, piece).replace(SPACE, " ")
        for character in text:
            word += begins(before, character)
            before = character
        owners.append(word if text.strip() else word + 1)
    return [min(owner, word) for owner in owners]


def _character(byte: re.Match[str]) -> str:
    """The character of a byte, a letter for one of a character that takes several."""
    code = int(byte[1], 16)
    return chr(code) if code < 0x80 else "x"
