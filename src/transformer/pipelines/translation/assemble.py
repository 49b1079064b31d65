"""The third stage of a translation: the translations of the segments of a line become one, with the line's tags."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from transformer.pipelines.translation.alignment import Aligner, Links, scale_index
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.inline_tags import (
    TERM_MARK,
    TagFreeLine,
    count_units,
    restore_tags,
    tagged_word_ids,
)
from transformer.pipelines.translation.results import EMPTY_ALTERNATIVE, Alternative, Translation
from transformer.pipelines.translation.search import SearchedSegment
from transformer.pipelines.translation.seen_words import is_seen_whole, seen_units, seen_words
from transformer.pipelines.translation.segment import SegmentedLine
from transformer.pipelines.translation.terminology import beside_flag
from transformer.pipelines.translation.truecasing import restored_case
from transformer.text.number_writing import adapt_copied_numbers
from transformer.text.substitution import SubstitutedLine
from transformer.tokenizers.pair import TokenizerPair


@dataclass(frozen=True)
class Assembler:
    """Joins the translations of segments to translations of lines.

    Attributes:
        config: Options of the call.
        tokenizers: Tokenizers of both sides.
        aligner: Word aligner, which finds the places of inline tags.
    """

    config: TranslatorConfig
    tokenizers: TokenizerPair
    aligner: Aligner

    def assemble(
        self, lines: Sequence[SegmentedLine], searched: Sequence[Sequence[SearchedSegment]]
    ) -> list[Translation]:
        """Returns the translations of lines, with their tags and the white space around them.

        Args:
            lines: Lines.
            searched: Segments of each line, with their translations, in order.
        """
        pairs = {
            (tuple(part.tokens), tuple(hypothesis.tokens))
            for line, segments in zip(lines, searched, strict=True)
            if line.needs_alignment
            for part, result in zip(line.segments, segments, strict=True)
            for hypothesis in result.hypotheses
        }
        made = self
        if pairs:
            batch_tokens = 1 if self.config.deterministic else self.config.batch_tokens
            made = replace(self, aligner=self.aligner.knowing(list(pairs), batch_tokens))
        return [made._assemble(*pair) for pair in zip(lines, searched, strict=True)]

    def _assemble(self, line: SegmentedLine, searched: Sequence[SearchedSegment]) -> Translation:
        translation = self._copy(line) if line.is_copied else self._join(line, searched)
        if line.tag_free.elements and not line.is_copied:
            units = seen_units(line.tag_free.text, self.tokenizers.source.normalize)
            tagged = line.hidden.text if line.hidden else line.text
            translation = transfer_tags(self.aligner, tagged, line.tag_free, translation, units)
        if line.hidden:
            translation = restore_originals(line.hidden, translation)
        return translation.with_outer_space(line.text, *line.outer)

    def _copy(self, line: SegmentedLine) -> Translation:
        """Returns the line, without its language code, as its own translation."""
        code = self.tokenizers.source.language_prefix(line.text)
        text = line.text[len(code) :].lstrip() if code else line.text
        is_copied = bool(text) and not line.too_long
        return Translation((replace(EMPTY_ALTERNATIVE, text=text),), is_copied=is_copied)

    def _join(self, line: SegmentedLine, searched: Sequence[SearchedSegment]) -> Translation:
        """Joins the hypotheses of all segments of a line rank by rank, the best ones with each other."""
        target, penalty = self.tokenizers.target, self.config.search.length_penalty
        ranks = zip(*(segment.hypotheses for segment in searched), strict=False)
        joined = [self._adapt_numbers(line, Alternative.join(rank, target, penalty)) for rank in ranks]
        alternatives = tuple([self._restore_case(line, alternative) for alternative in joined]) or (EMPTY_ALTERNATIVE,)
        sources = tuple([tuple(segment.tokens) for segment in line.segments])
        words = self._source_words(line)
        mapped = None if words is None else (words, [*range(len(alternatives[0].text.split()))])
        return Translation(alternatives, (), sources, mapped)

    def _adapt_numbers(self, line: SegmentedLine, alternative: Alternative) -> Alternative:
        """Writes numbers that the model copied as the target language does, unless they are protected."""
        if self.config.task or "numbers" in self.config.terminology.kinds:
            return alternative
        languages = self.config.source_language, self.config.target_language
        text = adapt_copied_numbers(line.tag_free.text, alternative.text, *languages)
        return alternative if text == alternative.text else replace(alternative, text=text)

    def _restore_case(self, line: SegmentedLine, alternative: Alternative) -> Alternative:
        """Returns a translation in the case of its line."""
        if line.truecased is None:
            return alternative
        phrases = line.hidden.words if line.hidden else ()
        text, links = alternative.text, partial(self._word_links, line, alternative)
        return replace(alternative, text=restored_case(text, line.truecased, self.config, phrases, links))

    def _word_links(self, line: SegmentedLine, alternative: Alternative) -> Links:
        """Links the words of a line without tags to those of a translation."""
        segments = [(part.tokens, tokens) for part, tokens in zip(line.segments, alternative.tokens, strict=True)]
        links, counts = self.aligner.links(segments)
        sources, n_words = self._source_words(line) or range(counts[0]), len(alternative.text.split())
        return [
            (sources[scale_index(s, counts[0], len(sources))], scale_index(t, counts[1], n_words)) for s, t in links
        ]

    def _source_words(self, line: SegmentedLine) -> list[int] | None:
        """Maps each word that the model sees to a word of the line; None if that is the identity."""
        normalize = self.tokenizers.source.normalize
        if line.split.words is None and all(is_seen_whole(piece, normalize) for piece in line.split.pieces):
            return None
        seen, n_words = [], 0
        for piece in line.split.pieces:
            seen += [n_words + word for word in seen_words(piece, normalize)]
            n_words += len(piece.split())
        if line.split.words is not None:
            return [line.split.words[word] for word in seen]
        return None if seen == [*range(n_words)] else seen


def restore_originals(substituted: SubstitutedLine, translation: Translation) -> Translation:
    """Restores the originals in a translation of a line with substitutes; notes terms that no word corresponds to."""
    flags = [beside_flag(*term) for term in substituted.terms_beside(translation.text)]
    alternatives = tuple(replace(other, text=substituted.restore(other.text)) for other in translation.alternatives)
    maps = substituted.map_words(translation.text)
    seen = translation.words or ([*range(len(maps[0]))], [*range(len(maps[1]))])
    words = [maps[0][word] for word in seen[0]], [maps[1][word] for word in seen[1]]
    is_same = translation.words is None and words == seen
    flags = (*translation.flags, *flags)
    return replace(translation, alternatives=alternatives, words=None if is_same else words, flags=flags)


def transfer_tags(
    aligner: Aligner, line: str, tag_free: TagFreeLine, translation: Translation, source_units: Sequence[int]
) -> Translation:
    """Inserts the tags of a line into its translation, around the units that attend to the units they enclosed.

    Args:
        aligner: Aligner of the translation model.
        line: Line with tags.
        tag_free: The same line without its tags.
        translation: Translation of the line without tags.
        source_units: For each unit that the model sees, the unit of the line without tags, see `seen_units`.
    """
    alternatives: list[Alternative] = []
    flags = list(translation.flags)
    for rank, alternative in enumerate(translation.alternatives):
        segments = list(zip(translation.sources, alternative.tokens, strict=True))
        n_units = count_units(alternative.text)
        is_aligned = tag_free.needs_alignment
        origins = aligner.origins(segments, source_units, n_units) if is_aligned else [None] * n_units
        readers = partial(aligner.readers, segments, source_units, n_units)
        restored = restore_tags(tag_free, alternative.text, origins, readers if is_aligned else dict[int, int])
        alternatives.append(replace(alternative, text=restored.text))
        if rank:
            continue
        for tags, place in ((restored.empty, "is empty"), (restored.beside, "encloses the next word")):
            named = [tag for tag in tags if not TERM_MARK.match(tag)]
            flags += [f"no word corresponds to the content of {tag!r}; the tag {place}" for tag in named]
    best = alternatives[0].text
    word_ids = tagged_word_ids(tag_free.text, line)
    sources = (
        word_ids
        if translation.words is None
        else [word_ids[min(word, len(word_ids) - 1)] for word in translation.words[0]]
    )
    words = sources, tagged_word_ids(translation.text, best)
    return replace(translation, alternatives=tuple(alternatives), flags=tuple(flags), words=words)
