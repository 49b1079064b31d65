"""Segmentation of lines: the texts that a model translates, with their tokens and what is required of each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from transformer.decoding import Constraint, Tokens
from transformer.errors import ConfigError, DataError
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.constraints import ConstraintTokenizer
from transformer.pipelines.translation.inline_tags import TagFreeLine
from transformer.text.sentence_splitting import SplitLine, split_line
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.pair import TokenizerPair

SEEDS_PER_LINE: Final = 1024
"""Random streams reserved per input line; each segment uses one."""
EXTRA_TOKENS: Final = 50
"""Tokens that a translation may have beyond its source (Vaswani et al. 2017, Sec. 6.1), or beyond `min_tokens`."""


@dataclass(frozen=True)
class Segment:
    """A line, or a part of a long line, that is translated at once.

    Attributes:
        tokens: Source tokens, EOS last.
        prefix: Target tokens that the translation must begin with.
        limit: Maximum number of tokens of the translation, EOS included.
        number: Number of its random stream.
        required: Constraints on its translation.
    """

    tokens: list[int]
    prefix: Tokens
    limit: int
    number: int
    required: tuple[Constraint, ...]


@dataclass(frozen=True)
class SegmentedLine:
    """A line with the segments that are translated, and what is needed to make one line of their translations again.

    Attributes:
        text: The line as given.
        tag_free: The line without the tags that are restored at the end.
        split: How the line, with the task, is split into segments.
        segments: Segments in order; an empty line has none.
    """

    text: str
    tag_free: TagFreeLine
    split: SplitLine
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Segmenter:
    """Splits lines into segments.

    Attributes:
        config: Completed options of the translator.
        tokenizers: Tokenizers of both sides.
        sources: Source tokenizer of each model of the ensemble; the first one is that of the pair.
        constraint_tokenizer: Tokenizer of the terminology's phrases.
    """

    config: TranslatorConfig
    tokenizers: TokenizerPair
    sources: Sequence[Tokenizer]
    constraint_tokenizer: ConstraintTokenizer

    def segment(
        self, lines: Sequence[str], prefixes: Sequence[str] | None = None, first_line: int = 0
    ) -> list[SegmentedLine]:
        """Splits each line into its segments.

        Args:
            lines: Lines of text, without line ends.
            prefixes: Beginning of the translation of each line; for a split line, of its first segment.
            first_line: Number of lines before these, from which the random streams are numbered.

        Raises:
            DataError: The numbers of prefixes and lines differ.
            ConfigError: The task is too long.
        """
        if prefixes is not None and len(prefixes) != len(lines):
            raise DataError(f"{len(lines):,} lines, but {len(prefixes):,} prefixes; give one prefix per line")
        starts = [()] * len(lines) if prefixes is None else map(tuple, self.tokenizers.target.encode_batch(prefixes))
        tag_free = [self.config.terminology.tag_free(line) for line in lines]
        texts = [self.config.task * bool(line.text.strip()) + line.text for line in tag_free]
        return [
            SegmentedLine(line, without_tags, split, tuple(self._segments(split, tokens, start, first_line + number)))
            for number, (line, without_tags, (split, tokens), start) in enumerate(
                zip(lines, tag_free, self._split(texts), starts, strict=True)
            )
        ]

    def _split(self, texts: Sequence[str]) -> Iterator[tuple[SplitLine, list[list[int]]]]:
        """Yields how each text is split, and the tokens of its pieces without EOS."""
        encode, max_tokens = self.tokenizers.source.encode_batch, self.config.max_source_tokens - 1
        encoded = encode(texts)
        for text, tokens, length in zip(texts, encoded, self.source_lengths(texts, encoded), strict=True):
            if not text[len(self.tokenizers.source.language_prefix(text)) :].strip():
                yield SplitLine([]), []
            elif length <= max_tokens:
                yield SplitLine([text]), [tokens]
            else:
                split = self._split_long(text, max_tokens)
                yield split, [piece[:max_tokens] for piece in encode(split.pieces)]

    def _split_long(self, text: str, max_tokens: int) -> SplitLine:
        """Splits a long text; the task, or the prefix that the source tokenizer asks for, is repeated in each piece."""
        lead = self.config.task.rstrip() or self.tokenizers.source.language_prefix(text)
        if not lead:
            return split_line(text, max_tokens, self.source_lengths)
        left = max_tokens - self.source_lengths([lead])[0]
        if left < max_tokens // 2:
            raise ConfigError(f"{lead!r:.60} leaves {left} of {max_tokens} tokens for the text; give a shorter one")
        rest = text[len(lead) :]
        return split_line(rest, left, self.source_lengths).with_prefix(lead, is_apart=rest[:1].isspace())

    def _segments(
        self, split: SplitLine, tokens: Iterable[list[int]], prefix: Tokens, line_number: int
    ) -> Iterator[Segment]:
        """Yields the segments of a line; the first one begins with the prefix."""
        end = self.tokenizers.source.special_tokens.eos or 0
        for index, (text, piece) in enumerate(zip(split.pieces, tokens, strict=True)):
            start = () if index else prefix
            yield Segment(
                tokens=[*piece, end],
                prefix=start,
                limit=self._limit(len(piece) + 1 + len(start)),
                number=line_number * SEEDS_PER_LINE + index,
                required=self.constraint_tokenizer.constraints(text.removeprefix(self.config.task.rstrip())),
            )

    def _limit(self, n_known: int) -> int:
        """Returns the maximum number of tokens of a translation, EOS included, given those of source and prefix."""
        search = self.config.search
        longest = max(n_known, search.min_tokens + 1) + EXTRA_TOKENS
        return min(longest if search.max_tokens is None else search.max_tokens + 1, self.config.max_target_tokens)

    def source_lengths(self, texts: Sequence[str], encoded: Sequence[Sequence[int]] | None = None) -> list[int]:
        """Returns the number of tokens of each source without EOS, the largest over the models of the ensemble.

        Args:
            texts: Source texts.
            encoded: Their tokens for the first model, if known.
        """
        others = {id(source): source for source in self.sources if source is not self.tokenizers.source}.values()
        first = self.tokenizers.source.encode_batch(texts) if encoded is None else encoded
        by_tokenizer = [first, *(source.encode_batch(texts) for source in others)]
        return [max(map(len, tokens)) for tokens in zip(*by_tokenizer, strict=True)]
