"""Assembly of lines: the translations of the segments of a line become one translation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from transformer.decoding import RETRY_NGRAM, Search
from transformer.pipelines.translation.alignment import Aligner
from transformer.pipelines.translation.completeness import lacks_sentences
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.results import EMPTY_ALTERNATIVE, Alternative, Translation
from transformer.pipelines.translation.seen_words import seen_units, seen_words
from transformer.pipelines.translation.segment_search import SearchedSegment
from transformer.pipelines.translation.segmentation import SegmentedLine
from transformer.pipelines.translation.tag_transfer import transfer_tags
from transformer.pipelines.translation.unseen import unseen_flag
from transformer.text.sentences import count_sentences
from transformer.tokenizers.pair import TokenizerPair


@dataclass(frozen=True)
class Assembler:
    """Joins the translations of segments to translations of lines.

    Attributes:
        config: Completed options of the translator.
        tokenizers: Tokenizers of both sides.
        aligner: Word aligner, which finds the places of inline tags.
    """

    config: TranslatorConfig
    tokenizers: TokenizerPair
    aligner: Aligner

    def assemble(self, line: SegmentedLine, searched: Sequence[SearchedSegment]) -> Translation:
        """Returns the translation of a line, with its tags, and with flags for what the reader should know.

        Args:
            line: The line.
            searched: Its segments with their translations, in order.
        """
        if line.is_copied:
            return self._copy(line)
        translation = self._join(line, searched)
        if line.tag_free.elements:
            units = seen_units(line.tag_free.text, self.tokenizers.source.normalize)
            translation = transfer_tags(self.aligner, line.text, line.tag_free, translation, units)
        violations = self.config.terminology.violations(line.text, translation.text)
        unseen = [unseen_flag(line.unseen)] if line.unseen else []
        translation = replace(translation, flags=(*translation.flags, *violations, *unseen), unseen=line.unseen)
        return translation.with_outer_space(line.text, *line.outer)

    def lacks_sentences(self, line: SegmentedLine, searched: Sequence[SearchedSegment]) -> bool:
        """Whether the translation of a segment seems to lack sentences of its source, see `lacks_sentences`."""
        config, target = self.config, self.tokenizers.target
        for text, segment in zip(line.split.pieces, searched, strict=True):
            n_sentences = count_sentences(text, config.source_language)
            if n_sentences < 2:
                continue
            translation = target.decode(segment.best.tokens)
            n_tokens = len(segment.segment.tokens), segment.best.length
            n_translated = count_sentences(translation, config.target_language)
            if lacks_sentences((n_sentences, n_translated), n_tokens, config.length_ratio):
                return True
        return False

    def _copy(self, line: SegmentedLine) -> Translation:
        """Returns the line, without its language code, as its own translation."""
        flags = (f"{line.too_long}; copied untranslated",) if line.too_long else ()
        code = self.tokenizers.source.language_prefix(line.text)
        warnings = self._language_warnings(line) if code else ()
        text = line.text[len(code) :].lstrip() if code else line.text
        copied = Translation((replace(EMPTY_ALTERNATIVE, text=text),), (*flags, *warnings))
        copied = replace(copied, is_copied=bool(text) and not line.too_long)
        return copied.with_outer_space(line.text, *line.outer)

    def _join(self, line: SegmentedLine, searched: Sequence[SearchedSegment]) -> Translation:
        """Joins the hypotheses of all segments of a line rank by rank, the best ones with each other."""
        target, penalty = self.tokenizers.target, self.config.search.length_penalty
        ranks = zip(*(segment.hypotheses for segment in searched), strict=False)
        alternatives = tuple(Alternative.join(rank, target, penalty) for rank in ranks) or (EMPTY_ALTERNATIVE,)
        flags = (
            *self._language_warnings(line),
            *self._splitting_warnings(line),
            *quality_warnings(searched, self.config.search),
            *self._prefix_warnings(line),
        )
        sources = tuple(tuple(segment.tokens) for segment in line.segments)
        words = self._source_words(line)
        mapped = None if words is None else (words, [*range(len(alternatives[0].text.split()))])
        return Translation(alternatives, flags, sources, mapped)

    def _source_words(self, line: SegmentedLine) -> list[int] | None:
        """Returns for each word that the model sees the word of the line; None if all are those of the line."""
        seen, n_words = [], 0
        for piece in line.split.pieces:
            seen += [n_words + word for word in seen_words(piece, self.tokenizers.source.normalize)]
            n_words += len(piece.split())
        if line.split.words is not None:
            return [line.split.words[word] for word in seen]
        return None if seen == [*range(n_words)] else seen

    def _language_warnings(self, line: SegmentedLine) -> list[str]:
        """Returns a warning about a missing or unknown language code at the start of a line."""
        text = self.config.task * bool(line.text.strip()) + line.text
        warning = self.tokenizers.source.language_warning(text)
        return [warning] if warning else []

    def _splitting_warnings(self, line: SegmentedLine) -> list[str]:
        """Returns warnings about a line that was split."""
        limit = self.config.max_source_tokens
        flags: list[str] = []
        if not line.split.is_clean:
            flags.append(f"longer than {limit} tokens without a sentence end; cut within a sentence")
        if len(line.segments) > 1 and not self.config.task and self.tokenizers.source.kind == "published":
            flags.append(f"longer than {limit} tokens; a prefix for the model only precedes its first part")
        return flags

    def _prefix_warnings(self, line: SegmentedLine) -> list[str]:
        """Returns warnings about a requested prefix that was cut."""
        flags: list[str] = []
        if any(len(segment.prefix) >= segment.limit for segment in line.segments):
            flags.append("the requested prefix is longer than the model's limit; it was cut")
        if any(self.tokenizers.target.special_tokens.unk in segment.prefix for segment in line.segments):
            flags.append("the requested prefix has characters outside the vocabulary; it was cut before them")
        return flags


def quality_warnings(searched: Sequence[SearchedSegment], search: Search) -> list[str]:
    """Returns warnings about the best translations of the segments of a line."""
    flags: list[str] = []
    if not all(segment.best.finished for segment in searched):
        flags.append("the translation did not end and was cut at the limit")
    elif any(segment.is_long(search) for segment in searched):
        flags.append("the translation is far longer than its source")
    elif any(segment.is_degenerate(search) for segment in searched):
        flags.append("the translation repeats itself")
    if any(segment.retried for segment in searched):
        flags.append(
            f"the first translation looped or did not end; searched again without repeated {RETRY_NGRAM}-grams"
        )
    return flags
