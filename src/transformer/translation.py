"""Text to text: split, encode, search, decode, rejoin, in the order of the input."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from transformer.blocks import padding_mask
from transformer.decoding import Hypothesis, greedy
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
        batch_tokens: longest source x lines of one batch.
    """

    def __init__(
        self, model: Transformer, tokenizers: TokenizerPair, *, max_source_tokens: int, batch_tokens: int = 4096
    ) -> None:
        self.model = model.eval()
        self.tokenizers = tokenizers
        self.max_source_tokens = min(max_source_tokens, model.src_pos.seq_len)
        self.batch_tokens = batch_tokens

    def translate(self, lines: Iterable[str]) -> list[str]:
        """Returns one translation a line, in order; an empty line stays empty."""
        return [translation.text for translation in self.translations(list(lines))]

    def stream(self, lines: Iterable[str], chunk_lines: int = 1024) -> Iterator[Translation]:
        """Yields one translation a line while reading no more than `chunk_lines` ahead."""
        stream = iter(lines)
        while chunk := list(islice(stream, chunk_lines)):
            yield from self.translations(chunk)

    def translations(self, lines: Sequence[str], done: Callable[[int], None] | None = None) -> list[Translation]:
        """Returns one `Translation` a line, in order.

        Args:
            lines: text without line ends.
            done: called with the number of pieces finished, batch by batch.
        """
        splits = [self._split(line) for line in lines]
        pieces = [_Piece(line, tokens) for line, split in enumerate(splits) for tokens in self._encode(split)]
        hypotheses: list[list[Hypothesis]] = [[] for _ in lines]
        results: dict[int, Hypothesis] = {}
        for batch in self._batches(pieces):
            results.update(zip(batch, self._search([pieces[index].tokens for index in batch]), strict=True))
            if done is not None:
                done(len(batch))
        for index, piece in enumerate(pieces):
            hypotheses[piece.line].append(results[index])
        return [self._join(split, found) for split, found in zip(splits, hypotheses, strict=True)]

    def _split(self, line: str) -> SplitLine:
        if not line.strip():
            return SplitLine([])
        return split_line(line, lambda text: len(self.tokenizers.source.encode(text)) < self.max_source_tokens)

    def _encode(self, split: SplitLine) -> list[list[int]]:
        # A single character may still be longer than the model allows; the cut is flagged when joining.
        room = self.max_source_tokens - 1
        return [[*tokens[:room], EOS_ID] for tokens in self.tokenizers.source.encode_batch(split.pieces)]

    def _batches(self, pieces: Sequence[_Piece]) -> Iterator[list[int]]:
        """Indices of pieces of like length, longest first, so that a lack of memory shows at once."""
        order = sorted(range(len(pieces)), key=lambda index: -len(pieces[index].tokens))
        start = 0
        while start < len(order):
            size = max(1, self.batch_tokens // len(pieces[order[start]].tokens))
            yield order[start : start + size]
            start += size

    def _search(self, sources: list[list[int]]) -> list[Hypothesis]:
        device = self.model.projection_layer.proj.weight.device
        padded = np.full((len(sources), max(map(len, sources))), PAD_ID, dtype=np.int64)
        for row, tokens in zip(padded, sources, strict=True):
            row[: len(tokens)] = tokens
        src = torch.from_numpy(padded).to(device)
        limits = torch.tensor([len(tokens) + EXTRA_TOKENS for tokens in sources], device=device)
        return greedy(self.model, src, padding_mask(src, PAD_ID), limits.clamp(max=self.model.tgt_pos.seq_len))

    def _join(self, split: SplitLine, hypotheses: Sequence[Hypothesis]) -> Translation:
        texts = [self.tokenizers.target.decode(hypothesis.tokens) for hypothesis in hypotheses]
        flags: list[str] = []
        if not split.is_clean:
            flags.append(f"longer than {self.max_source_tokens} tokens without a sentence end; cut at a space")
        if not all(hypothesis.finished for hypothesis in hypotheses):
            flags.append("the translation did not end and was cut at the limit")
        text = " ".join(texts).replace("\n", " ").replace("\r", " ")
        return Translation(text, sum((hypothesis.score for hypothesis in hypotheses), 0.0), tuple(flags))
