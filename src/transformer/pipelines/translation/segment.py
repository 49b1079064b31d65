"""The first stage of a translation: lines become segments, the texts that a model translates, with their tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from transformer.decoding import Tokens
from transformer.errors import ConfigError, DataError, counted
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.directions import check_target_language
from transformer.pipelines.translation.inline_tags import TagFreeLine
from transformer.pipelines.translation.truecasing import kept_spans
from transformer.pipelines.translation.unseen import UnseenCharacters
from transformer.text.case import ALL_CASES, LetterCase, Truecased, Truecaser, may_be_changed
from transformer.text.line_splitting import MAX_TOKEN, WORD, SplitLine, split_line
from transformer.text.normalization import split_outer_space
from transformer.text.sentences import Span, has_letter, sentence_spans
from transformer.text.spans import decode_letters, is_plain, kept_pattern, split_marks, without_addresses
from transformer.text.substitution import NAMES, SubstitutedLine
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.pair import TokenizerPair

MAX_CHARACTERS: Final = 1_000_000
"""Maximum number of characters of a line that is translated."""
MAX_UNBROKEN: Final = 1 << 14
"""Maximum number of characters without a space or a sentence end; an image as text has more."""
BLOCK_CHARACTERS: Final = 1 << 18
"""Maximum number of characters that are encoded at once, each of which takes about 200 bytes of memory."""
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
    """

    tokens: list[int]
    prefix: Tokens
    limit: int
    number: int


@dataclass(frozen=True)
class SegmentedLine:
    """A line with the segments that are translated, and what is needed to make one line of their translations again.

    Attributes:
        text: The line as given, without `outer`.
        tag_free: The line with hidden spans, without the tags that are restored at the end.
        split: How the line, with the task, is split into segments.
        segments: Segments in order; a line that is empty or copied has none.
        outer: White space, invisible characters and marks such as bullets before and after the line.
        is_copied: Whether the line is its own translation.
        too_long: What makes a copied line too long to be translated, for its readers; empty if nothing does.
        unseen: Characters that did not occur in training.
        prefix: Text that the translation must begin with.
        truecased: The line without tags in the case that the model sees; None for one that was not changed.
        hidden: The line with substitutes for its spans that are kept; None if it has none.
    """

    text: str
    tag_free: TagFreeLine
    split: SplitLine
    segments: tuple[Segment, ...]
    outer: tuple[str, str] = ("", "")
    is_copied: bool = False
    too_long: str = ""
    unseen: tuple[str, ...] = ()
    prefix: str = ""
    truecased: Truecased | None = None
    hidden: SubstitutedLine | None = None

    @property
    def needs_alignment(self) -> bool:
        """Whether parts of the translation get a place or a case by the words that they come from."""
        has_inner_case = self.truecased is not None and not all(run.is_whole for run in self.truecased.runs)
        return has_inner_case or bool(self.tag_free.elements and self.tag_free.needs_alignment)

    def without_outer(self, translation: str) -> str:
        """Returns a translation without what stands before and after the line."""
        before, after = self.outer
        return translation.removeprefix(before).removesuffix(after)

    @property
    def number(self) -> int:
        """The number of the line in its text, by which its random streams are numbered; 0 without segments."""
        return self.segments[0].number // SEEDS_PER_LINE if self.segments else 0


class _ReadLine(NamedTuple):
    """A line before it is split and encoded; the attributes are those of `SegmentedLine`."""

    text: str
    outer: tuple[str, str]
    too_long: str
    is_copied: bool
    hidden: SubstitutedLine | None
    tag_free: TagFreeLine
    truecased: Truecased | None
    prefix: str

    @property
    def seen(self) -> str:
        """The text that the model sees."""
        return (self.truecased or self.tag_free).text


@dataclass(frozen=True)
class Segmenter:
    """Splits lines into segments.

    Attributes:
        config: Options of the call.
        tokenizers: Tokenizers of both sides.
        sources: Source tokenizer of each model of the ensemble; the first one is that of the pair.
        unseen: Finds characters that did not occur in training.
        truecaser: Writes capitals in ordinary case.
        names: Names that the models copy.
    """

    config: TranslatorConfig
    tokenizers: TokenizerPair
    sources: Sequence[Tokenizer]
    unseen: UnseenCharacters
    truecaser: Truecaser
    names: Sequence[str] = ()

    def segment(
        self, lines: Sequence[str], prefixes: Sequence[str] | None = None, first_line: int = 0, attempt: int = 0
    ) -> list[SegmentedLine]:
        """Splits each line into its segments.

        Args:
            lines: Lines of text, without line ends.
            prefixes: Beginning of the translation of each line; its sentences are those of the first segments.
            first_line: Number of lines before these, from which the random streams are numbered.
            attempt: Number of the way in which spans are hidden, see `SubstitutedLine.hiding`.

        Raises:
            DataError: The numbers of prefixes and lines differ.
            ConfigError: The task is too long, or the model needs a target language.
        """
        check_target_language(self.config, self.tokenizers)
        if prefixes is not None and len(prefixes) != len(lines):
            raise DataError(
                f"{counted(len(lines), 'line')}, but prefixes for {len(prefixes):,}; give one prefix per line"
            )
        starts = [""] * len(lines) if prefixes is None else prefixes
        read = [self._read(line, start, attempt) for line, start in zip(lines, starts, strict=True)]
        texts = ["" if line.is_copied or not line.seen.strip() else self.config.task + line.seen for line in read]
        return [
            SegmentedLine(
                line.text,
                line.tag_free,
                split,
                self._segments(split, tokens, line.prefix, number),
                line.outer,
                line.is_copied,
                line.too_long,
                () if line.is_copied else self.unseen.find(self._content(line.seen)),
                line.prefix,
                line.truecased,
                line.hidden,
            )
            for number, (line, (split, tokens)) in enumerate(
                zip(read, self._split(texts), strict=True), start=first_line
            )
        ]

    def by_sentence(self, line: SegmentedLine) -> SegmentedLine:
        """Returns a line that is split at all of its sentence ends."""
        split, tokens = self._split_text(self.config.task + (line.truecased or line.tag_free).text, max_sentences=1)
        return replace(line, split=split, segments=self._segments(split, tokens, line.prefix, line.number))

    def substituted(self, line: SegmentedLine, text: str, attempt: int) -> SegmentedLine:
        """Segments a text that replaces a line, with the line's random streams, and its spans hidden in another way."""
        return self.segment([text], None, line.number, attempt)[0]

    def _read(self, line: str, prefix: str, attempt: int) -> _ReadLine:
        """Returns a line as the model sees it, without what stays as it is."""
        before, text, after = self._split_outer(line, prefix)
        too_long = self._too_long(text)
        is_copied = bool(too_long) or (not prefix and self._is_copied(text))
        hidden = None if is_copied else self._hide(text, attempt, prefix)
        tag_free = self.config.terminology.tag_free(hidden.text if hidden else text)
        truecased = None if is_copied or prefix else self._truecase(tag_free.text, hidden)
        return _ReadLine(text, (before, after), too_long, is_copied, hidden, tag_free, truecased, prefix)

    def _split_outer(self, line: str, prefix: str) -> tuple[str, str, str]:
        """Splits a line into what stays before it, what is translated, and what stays after it."""
        before, text, after = split_outer_space(line)
        if prefix or not self.config.terminology.kinds:
            return before, text, after
        code = self.tokenizers.source.language_prefix(text)
        first, inner, last = ("", text, "") if code else split_marks(text)
        if "entities" in self.config.terminology.kinds:
            inner = decode_letters(inner)
        return before + first, inner, last + after

    def _hide(self, line: str, attempt: int, prefix: str) -> SubstitutedLine | None:
        """Returns a line with substitutes for its spans that are kept, and marked terms; None if it has neither.

        With a prefix, which may have such spans, terms alone are marked.
        """
        terminology = self.config.terminology
        terms = terminology.terms(line)
        if not terms and not terminology.may_have_spans(line):
            return None
        pattern = kept_pattern(()) if prefix else terminology.span_pattern
        return SubstitutedLine.hiding(line, pattern, self.names, attempt, terms)

    def _content(self, text: str) -> str:
        """Returns a text without the language code before it."""
        code = self.tokenizers.source.language_prefix(text)
        return text[len(code) :].strip() if code else text

    def _truecase(self, text: str, hidden: SubstitutedLine | None) -> Truecased | None:
        """Returns a text in ordinary case; None if it is, or if the model knows its case."""
        config = self.config
        if config.case == "keep" or config.task or config.source_text is None or not may_be_changed(text):
            return None
        code = self.tokenizers.source.language_prefix(text)
        kept = [source for source, _ in config.terminology.terms(text)] + (hidden.words if hidden else [])
        truecased = self.truecaser.truecase(text, self._unseen_cases, [(0, len(code)), *kept_spans(text, kept)])
        return truecased if truecased.runs else None

    @cached_property
    def _unseen_cases(self) -> list[LetterCase]:
        """Cases that the training text does not have."""
        source_text = self.config.source_text
        return [case for case in ALL_CASES if source_text is None or not source_text.has_case(case)]

    def _too_long(self, text: str) -> str:
        """Returns what makes a line too long to be translated; empty if nothing does."""
        if len(text) > MAX_CHARACTERS:
            return f"longer than {MAX_CHARACTERS:,} characters"
        longest = max(MAX_UNBROKEN, self.config.max_source_tokens)
        if len(text) <= longest:
            return ""
        words = (word.group() for word in WORD.finditer(text))
        spans = (span for word in words if len(word) > longest for span in self._sentence_spans(word))
        return f"a word has more than {longest:,} characters" if any(b - a > longest for a, b in spans) else ""

    def _sentence_spans(self, text: str) -> list[Span]:
        return sentence_spans(text, self.config.source_language)

    def _is_copied(self, line: str) -> bool:
        """Whether a line is its own translation: there is nothing to translate."""
        config, source_text = self.config, self.config.source_text
        if not config.copy or self._content(config.task).strip() or config.terminology.terms(line):
            return False
        text = self._content(line)
        rest = text if is_plain(text) else without_addresses(config.terminology.span_pattern.sub("", text))
        if has_letter(rest):
            return False
        learned = source_text is not None and source_text.has_text_without_letters
        return not learned or (rest != text and not any(map(str.isnumeric, rest)))

    def _split(self, texts: Sequence[str]) -> Iterator[tuple[SplitLine, list[list[int]]]]:
        """Yields how each text is split, and the tokens of its pieces without EOS."""
        max_tokens = self.config.max_source_tokens - 1
        longest = MAX_TOKEN * max_tokens
        encodable = [text if len(text) <= longest else "" for text in texts]
        encoded = _encode(self.tokenizers.source, encodable)
        lengths = self.source_lengths(encodable, encoded)
        whole, typical = self._max_sentences
        for text, tokens, length in zip(texts, encoded, lengths, strict=True):
            if not text or not self._content(text).strip():
                yield SplitLine([]), []
            elif (
                len(text) <= longest
                and length <= max_tokens
                and (whole is None or len(self._sentence_spans(text)) <= whole)
            ):
                yield SplitLine([text]), [tokens]
            else:
                yield self._split_text(text, typical)

    @cached_property
    def _max_sentences(self) -> tuple[int | None, int | None]:
        """Numbers of sentences up to which a text that fits the model stays whole, and of the pieces of others.

        None is any number. A text stays whole if training had lines of as many sentences. The input of a task is a
        whole text.
        """
        config, source_text = self.config, self.config.source_text
        if config.split == "none" or (config.split == "auto" and config.task):
            return None, None
        if config.split == "sentence":
            return 1, 1
        return (None, 1) if source_text is None else (source_text.max_sentences, source_text.typical_sentences)

    def _split_text(self, text: str, max_sentences: int | None) -> tuple[SplitLine, list[list[int]]]:
        """Splits a text; the task, or the prefix that the source tokenizer asks for, is repeated in each piece."""
        max_tokens = self.config.max_source_tokens - 1
        lead = self.config.task.rstrip() or self.tokenizers.source.language_prefix(text)
        rest, left = text[len(lead) :], max_tokens
        if lead:
            left = max_tokens - self.source_lengths([lead])[0]
            if left < max_tokens // 2:
                raise ConfigError(f"{lead!r:.60} leaves {left} of {max_tokens} tokens for the text; give a shorter one")
        split = split_line(rest, self._sentence_spans(rest), left, self.source_lengths, max_sentences=max_sentences)
        if lead:
            split = split.with_prefix(lead, is_apart=rest[:1].isspace())
        return split, [piece[:max_tokens] for piece in _encode(self.tokenizers.source, split.pieces)]

    def _segments(
        self, split: SplitLine, tokens: Sequence[list[int]], prefix: str, line_number: int
    ) -> tuple[Segment, ...]:
        """Returns the segments of a line; the first ones begin with the sentences of the prefix."""
        end = self.tokenizers.source.special_tokens.end
        starts = self._prefixes(split, prefix) if prefix else [()] * len(tokens)
        return tuple(
            [
                Segment([*piece, end], start, self._limit(len(piece) + 1 + len(start)), number)
                for number, (piece, start) in enumerate(zip(tokens, starts, strict=True), line_number * SEEDS_PER_LINE)
            ]
        )

    def _prefixes(self, split: SplitLine, prefix: str) -> list[Tokens]:
        """Distributes the sentences of a prefix over the pieces; returns the target tokens that each begins with."""
        texts = [prefix, *([""] * len(split.pieces))][: len(split.pieces)]
        if prefix and split.is_clean and len(texts) > 1:
            sentences = sentence_spans(prefix, self.config.target_language)
            counts = [max(1, len(self._sentence_spans(piece))) for piece in split.pieces]
            starts = [0, *(sentences[count][0] for count in accumulate(counts[:-1]) if count < len(sentences))]
            parts = [prefix[start:end] for start, end in pairwise([*starts, len(prefix)])]
            texts = [*(part.rstrip() for part in parts[:-1]), parts[-1], *texts[len(parts) :]]
        return [tuple(self.tokenizers.target.encode(text)) if text else () for text in texts]

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
        first = _encode(self.tokenizers.source, texts) if encoded is None else encoded
        others = {id(source): source for source in self.sources if source is not self.tokenizers.source}.values()
        if not others:
            return [*map(len, first)]
        by_tokenizer = [first, *(_encode(source, texts) for source in others)]
        return [max(map(len, tokens)) for tokens in zip(*by_tokenizer, strict=True)]


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Encodes texts in blocks of at most `BLOCK_CHARACTERS` characters, or of one text."""
    encoded: list[list[int]] = []
    start = characters = 0
    for end, text in enumerate(texts):
        if end > start and characters + len(text) > BLOCK_CHARACTERS:
            encoded += tokenizer.encode_batch(texts[start:end])
            start, characters = end, 0
        characters += len(text)
    return encoded + tokenizer.encode_batch(texts[start:])


def copied_names(tokenizers: TokenizerPair) -> list[str]:
    """Returns names that models copy, those first that are single tokens on both sides."""
    sides = tokenizers.source, tokenizers.target
    return sorted(NAMES, key=lambda name: sum(len(tokenizer.encode(name)) for tokenizer in sides))
