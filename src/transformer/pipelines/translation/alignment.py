"""Word alignment of translations with their sources by the model's attention."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.decoding import Tokens
from transformer.pipelines.translation.coverage import (
    alignment_weights,
    batched_alignment_weights,
    cross_attention_weights,
    decoder_inputs,
)
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.sentencepiece import SPACE
from transformer.tokenizers.special_tokens import BOS_ID, DEFAULT_SPECIAL_TOKENS, SPECIAL_TOKEN_NAMES
from transformer.transformer import Transformer

_BYTE: Final = re.compile(r"<([0-9A-F]{2})>")
Pair = tuple[Tokens, Tokens]
"""Source tokens with EOS and target tokens without EOS."""
Links = list[tuple[int, int]]
"""Pairs of a source word and a target word, both counted from 0."""
WordStart = Callable[[str, str], bool]
"""Predicate: whether a word starts with the second character, which follows the first."""


def starts_word(before: str, character: str) -> bool:
    """Whether a word, as counted by `str.split`, starts with a character."""
    return before.isspace() and not character.isspace()


def starts_unit(before: str, character: str) -> bool:
    """Whether a unit of `inline_tags` starts with a character: a run of letters and digits, or any other non-space."""
    is_letter = _is_letter(character)
    return not character.isspace() and not (is_letter and _is_letter(before))


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "_"


class Aligner:
    """Aligns translations with their sources by the attention of a model.

    Args:
        model: Model in evaluation mode.
        tokenizers: Tokenizers of both sides.
        device: Device of the model.
    """

    def __init__(self, model: Transformer, tokenizers: TokenizerPair, device: torch.device) -> None:
        self._model, self._tokenizers, self._device = model, tokenizers, device
        self._known: dict[Pair, Tensor] = {}

    def knowing(self, pairs: Collection[Pair], batch_tokens: int) -> "Aligner":
        """Returns an aligner that has computed the attention of some pairs, many at once.

        Args:
            pairs: Source tokens with EOS and target tokens without EOS.
            batch_tokens: Maximum number of tokens of the longer side in a batch, padding included.
        """
        bos = self._tokenizers.target.special_tokens.bos
        inputs = [(source, decoder_inputs(target[:-1], max(1, len(target)), bos)) for source, target in pairs]
        aligner = Aligner(self._model, self._tokenizers, self._device)
        weights = batched_alignment_weights([self._model], inputs, batch_tokens, self._device)
        aligner._known = {pair: rows[: len(pair[1])] for pair, rows in zip(pairs, weights, strict=True)}
        return aligner

    @torch.no_grad()
    def attention(self, source: Sequence[int], target: Sequence[int]) -> Float[Tensor, "N H T S"]:
        """Computes the cross-attention of every layer and head.

        Args:
            source: Source tokens with EOS.
            target: Target tokens without EOS.
        """
        inputs = decoder_inputs(target[:-1], max(1, len(target)), self._tokenizers.target.special_tokens.bos)
        src, tgt = (torch.tensor([tokens], device=self._device) for tokens in (source, inputs))
        return torch.cat(cross_attention_weights(self._model, src, tgt))[:, :, : len(target)].cpu()

    def links(
        self, segments: Sequence[tuple[Sequence[int], Sequence[int]]], starts: WordStart = starts_word
    ) -> tuple[Links, tuple[int, int]]:
        """Links each target word to the source word that it attends to most; words that attend to EOS stay unlinked.

        Args:
            segments: Source tokens with EOS and target tokens without EOS of each segment of a line.
            starts: Predicate that defines the words.

        Returns:
            The links, counted over all segments, and the number of words on both sides.
        """
        links: Links = []
        n_words = (0, 0)
        for weights in self._word_weights(segments, starts):
            links += [(n_words[0] + s, n_words[1] + t) for s, t in link_words(weights)]
            n_words = n_words[0] + weights.size(1) - 1, n_words[1] + weights.size(0)
        return links, n_words

    def origins(
        self, segments: Sequence[tuple[Sequence[int], Sequence[int]]], source_units: Sequence[int], target_units: int
    ) -> list[int | None]:
        """Maps each unit of a translation to the source unit that it attends to most; None if that is EOS.

        Args:
            segments: Tokens, see `links`.
            source_units: For each unit that the model sees, the unit of the source text. If its tokens print another
                number (a tokenizer that puts the language first), units at the same share of the length correspond.
            target_units: Number of units of the translation.
        """
        links, (n_sources, n_targets) = self.links(segments, starts_unit)
        if not source_units:
            return [None] * target_units
        origin = {target: source_units[scale_index(source, n_sources, len(source_units))] for source, target in links}
        return [origin.get(scale_index(unit, target_units, n_targets)) for unit in range(target_units)]

    def readers(
        self, segments: Sequence[tuple[Sequence[int], Sequence[int]]], source_units: Sequence[int], target_units: int
    ) -> dict[int, int]:
        """Maps each source unit to the unit of the translation that attends to it most.

        Unlike `origins`, it finds a unit for words to which no word of the translation attends more than to others.

        Args:
            segments: Tokens, see `links`.
            source_units: See `origins`.
            target_units: Number of units of the translation.
        """
        weighted_links: list[tuple[float, int, int]] = []
        n_sources = n_targets = 0
        for weights in self._word_weights(segments, starts_unit):
            if weights.size(0):
                highest, units = weights[:, :-1].max(dim=0)
                pairs = zip(highest.tolist(), units.tolist(), strict=True)
                weighted_links += [(weight, n_sources + s, n_targets + t) for s, (weight, t) in enumerate(pairs)]
            n_sources, n_targets = n_sources + weights.size(1) - 1, n_targets + weights.size(0)
        if not source_units:
            return {}
        return {
            source_units[scale_index(s, n_sources, len(source_units))]: scale_index(t, n_targets, target_units)
            for _, s, t in sorted(weighted_links)
        }

    def _word_weights(
        self, segments: Sequence[tuple[Sequence[int], Sequence[int]]], starts: WordStart
    ) -> Iterator[Float[Tensor, "t s"]]:
        """Yields the attention between the words of each segment, see `word_weights`."""
        for source, target in segments:
            weights = self._known.get((tuple(source), tuple(target)))
            if weights is None:
                weights = alignment_weights(list(self.attention(source, target)[:, None]))[0]
            pieces = (
                _printable_tokens(self._tokenizers.source, source),
                _printable_tokens(self._tokenizers.target, target),
            )
            yield word_weights(weights, *(token_word_ids(side, starts) for side in pieces))


def _printable_tokens(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """Returns printable tokens, with special tokens named as in this package, not as in the vocabulary."""
    special_tokens = tokenizer.special_tokens
    names = {
        getattr(special_tokens, name): SPECIAL_TOKEN_NAMES[getattr(DEFAULT_SPECIAL_TOKENS, name)]
        for name in ("pad", "bos", "eos")
    } | dict.fromkeys((*special_tokens.tags, *tokenizer.leading), SPECIAL_TOKEN_NAMES[BOS_ID])
    return [names.get(token, piece) for token, piece in zip(tokens, tokenizer.pieces(tokens), strict=True)]


def scale_index(index: int, count: int, new_count: int) -> int:
    """Maps the index of one of `count` units to the proportional index among `new_count` units."""
    return index if count == new_count else index * new_count // count


def word_weights(
    weights: Float[Tensor, "T S"], source_words: Sequence[int], target_words: Sequence[int]
) -> Float[Tensor, "t s"]:
    """Returns the sum of the attention between the tokens of each two words; the last column is that of EOS.

    Args:
        weights: Attention of each target token over the source tokens.
        source_words: Word of each source token; -1 for none.
        target_words: Word of each target token; -1 for none.
    """
    n_sources, n_targets = max(source_words, default=-1) + 2, max(target_words, default=-1) + 2
    rows = weights.new_zeros(n_targets, len(source_words))
    rows.index_add_(0, torch.tensor(target_words, dtype=torch.long) % n_targets, weights)
    by_word = weights.new_zeros(n_targets, n_sources)
    by_word.index_add_(1, torch.tensor(source_words, dtype=torch.long) % n_sources, rows)  # -1 is the last index
    return by_word[:-1]


def link_words(weights: Float[Tensor, "t s"]) -> Links:
    """Links each target word to the source word that it attends to most; words that attend to EOS stay unlinked."""
    n_sources = weights.size(1) - 1
    return [(source, word) for word, source in enumerate(weights.argmax(dim=1).tolist()) if source < n_sources]


def token_word_ids(pieces: Sequence[str], starts: WordStart = starts_word) -> list[int]:
    """Returns the word that each printed token belongs to, by its last character; -1 for special tokens.

    Several spaces in a row separate words like a single one. A token of spaces belongs to the next word.
    """
    word_ids: list[int] = []
    word, before = -1, " "
    for piece in pieces:
        if piece in SPECIAL_TOKEN_NAMES:
            word_ids.append(-1)
            continue
        text = _BYTE.sub(_decode_byte, piece).replace(SPACE, " ")
        for character in text:
            word += starts(before, character)
            before = character
        word_ids.append(word if text.strip() else word + 1)
    return [min(word_id, word) for word_id in word_ids]


def _decode_byte(match: re.Match[str]) -> str:
    """Returns the character of an ASCII byte; a letter for a byte of a multi-byte character."""
    code = int(match[1], 16)
    return chr(code) if code < 0x80 else "x"
