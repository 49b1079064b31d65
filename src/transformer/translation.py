"""Text to text: split, encode, search, decode, rejoin, in the order of the input."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from transformer.blocks import padding_mask
from transformer.decoding import GREEDY, Beam, Hypothesis, beam_search, greedy
from transformer.errors import DataError
from transformer.text.control import EOS_ID, PAD_ID
from transformer.text.pair import TokenizerPair
from transformer.text.splitting import SplitLine, split_line
from transformer.transformer import Transformer

EXTRA_TOKENS = 50
"""A translation may be so many tokens longer than its source (Vaswani et al. 2017, Sec. 6.1)."""


@dataclass(frozen=True)
class Translation:
    """One translated line.

    Attributes:
        text: the translation, without line ends.
        score: log-probability of its tokens, summed over the pieces of a split line; 0.0 for an empty line.
        flags: what a reader should know, e.g. that the line was cut; empty where all is well.
    """

    text: str
    score: float
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Piece:
    """A part of a line: its tokens with EOS."""

    line: int
    tokens: list[int]


class Translator:
    """A trained model with its tokenizers: text in, text out.

    Args:
        model: an encoder-decoder; put into evaluation mode.
        tokenizers: of both sides.
        max_source_tokens: longer lines are split; EOS counted. The longest source seen in training is the sensible
            choice, since positions beyond it were never learned.
        batch_tokens: longest source x hypotheses of one batch.
        beam: how translations are searched for.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizers: TokenizerPair,
        *,
        max_source_tokens: int,
        batch_tokens: int = 4096,
        beam: Beam = GREEDY,
    ) -> None:
        self.model = model.eval()
        self.tokenizers = tokenizers
        self.max_source_tokens = min(max_source_tokens, model.src_pos.seq_len)
        self.batch_tokens = batch_tokens
        self.beam = beam

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Returns one translation a line, in order; an empty line stays empty.

        What `Translation.flags` would tell is given as a warning.

        Raises:
            DataError: a single text in place of a list of lines.
        """
        if isinstance(lines, str):
            raise DataError("lines is one text, and would be translated letter by letter; give a list, e.g. [text]")
        translations = self.translations(lines)
        for number, translation in enumerate(translations, start=1):
            for flag in translation.flags:
                warnings.warn(f"line {number}: {flag}", stacklevel=2)
        return [translation.text for translation in translations]

    def translations(self, lines: Sequence[str], done: Callable[[int], None] | None = None) -> list[Translation]:
        """Returns one `Translation` a line, in order.

        Args:
            lines: text without line ends.
            done: called with the number of pieces finished, batch by batch.
        """
        splits, pieces = self._pieces(lines)
        results: dict[int, Hypothesis] = {}
        for batch in self._batches(pieces):
            results.update(zip(batch, self._search([pieces[index].tokens for index in batch]), strict=True))
            if done is not None:
                done(len(batch))
        hypotheses: list[list[Hypothesis]] = [[] for _ in lines]
        for index, piece in enumerate(pieces):
            hypotheses[piece.line].append(results[index])
        return [self._join(split, found) for split, found in zip(splits, hypotheses, strict=True)]

    def _pieces(self, lines: Sequence[str]) -> tuple[list[SplitLine], list[_Piece]]:
        """How each line is split, and the tokens of all pieces in order."""
        encode, room = self.tokenizers.source.encode_batch, self.max_source_tokens - 1

        def count(texts: list[str]) -> list[int]:
            return [len(tokens) for tokens in encode(texts)]

        splits: list[SplitLine] = []
        pieces: list[_Piece] = []
        for number, (line, tokens) in enumerate(zip(lines, encode(lines), strict=True)):
            if not line.strip():
                splits.append(SplitLine([]))
            elif len(tokens) <= room:
                splits.append(SplitLine([line]))
                pieces.append(_Piece(number, [*tokens, EOS_ID]))
            else:
                splits.append(split_line(line, room, count))
                pieces.extend(_Piece(number, [*part[:room], EOS_ID]) for part in encode(splits[-1].pieces))
        return splits, pieces

    def _batches(self, pieces: Sequence[_Piece]) -> Iterator[list[int]]:
        """Indices of pieces of like length, longest first, so that a lack of memory shows at once."""
        order = sorted(range(len(pieces)), key=lambda index: -len(pieces[index].tokens))
        start = 0
        while start < len(order):
            size = max(1, self.batch_tokens // (self.beam.size * len(pieces[order[start]].tokens)))
            yield order[start : start + size]
            start += size

    def _search(self, sources: list[list[int]]) -> list[Hypothesis]:
        device = self.model.projection_layer.proj.weight.device
        padded = np.full((len(sources), max(map(len, sources))), PAD_ID, dtype=np.int64)
        for row, tokens in zip(padded, sources, strict=True):
            row[: len(tokens)] = tokens
        src = torch.from_numpy(padded).to(device)
        limits = torch.tensor([len(tokens) + EXTRA_TOKENS for tokens in sources], device=device)
        limits = limits.clamp(max=self.model.tgt_pos.seq_len)
        mask = padding_mask(src, PAD_ID)
        if self.beam.size == 1:
            return greedy(self.model, src, mask, limits)
        return [best for best, *_ in beam_search(self.model, src, mask, limits, self.beam)]

    def _join(self, split: SplitLine, hypotheses: Sequence[Hypothesis]) -> Translation:
        texts = [self.tokenizers.target.decode(hypothesis.tokens) for hypothesis in hypotheses]
        flags: list[str] = []
        if not split.is_clean:
            flags.append(f"longer than {self.max_source_tokens} tokens without a sentence end; cut within it")
        if not all(hypothesis.finished for hypothesis in hypotheses):
            flags.append("the translation did not end and was cut at the limit")
        text = " ".join(texts).replace("\n", " ").replace("\r", " ")
        return Translation(text, sum((hypothesis.score for hypothesis in hypotheses), 0.0), tuple(flags))
