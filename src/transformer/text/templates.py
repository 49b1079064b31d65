"""Templates of texts: units to translate, and the parts between them, which are kept."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from transformer.text.joining import join_sentences
from transformer.text.line_splitting import LINE_ENDS_AS_SPACES, merge_overlapping, split_line
from transformer.text.markup import element_spans
from transformer.text.normalization import split_outer_space
from transformer.text.sentences import sentence_spans

MAX_PIECE: Final = 500
"""Number of characters above which a unit is split at sentence ends, so that other clients' texts come in between."""
MAX_SENTENCE: Final = 2000
"""Number of characters above which a sentence is split between words."""
LINE_END: Final = re.compile(r"(\r?\n)")
_PARAGRAPH_END: Final = re.compile(r"(\r?\n[^\S\n]*\r?\n\s*)")
WORD_CHARACTER: Final = re.compile(r"\w")


@dataclass(frozen=True)
class Unit:
    """A part of a text that is translated as one, e.g. a line.

    Attributes:
        pieces: Pieces that are translated separately, in order: the sentences of a long unit, else the unit itself.
        finish: Function of the joined translation that returns it as it is written in the text, e.g. with its tags.
    """

    pieces: Sequence[str]
    finish: Callable[[str], str] = str

    def join(self, translations: Iterable[str]) -> str:
        """Returns the translation of the unit from those of its pieces."""
        return self.finish(join_sentences(translation.strip() for translation in translations))


@dataclass(frozen=True)
class Template:
    """A text as a sequence of units and of strings that are kept."""

    parts: Sequence[str | Unit]

    @property
    def pieces(self) -> list[str]:
        """Pieces of all units, in order."""
        return [piece for part in self.parts if isinstance(part, Unit) for piece in part.pieces]

    def fill(self, translations: Sequence[str]) -> str:
        """Returns the translation of the text.

        Args:
            translations: Translations of `pieces`.
        """
        rest = iter(translations)
        return "".join(
            part if isinstance(part, str) else part.join([next(rest) for _ in part.pieces]) for part in self.parts
        )


def plain_template(text: str, language: str, *, may_join_lines: bool = False) -> Template:
    r"""Splits a text without markup into its lines.

    Line ends (`\n`, `\r\n`), empty lines, and white space at both ends of a line are kept.

    Args:
        text: Text.
        language: Language of the text, for sentence ends.
        may_join_lines: Whether a line end is a space, so that units are the paragraphs between empty lines.
    """
    parts: list[str | Unit] = []
    for number, part in enumerate((_PARAGRAPH_END if may_join_lines else LINE_END).split(text)):
        if number % 2 or not WORD_CHARACTER.search(part):
            parts.append(part)
        else:
            before, core, after = split_outer_space(part)
            parts += [before, split_unit(core, language), after]
    return Template(parts)


def split_unit(text: str, language: str) -> Unit:
    """Returns a unit, split into pieces at sentence ends outside its elements if it is long.

    Args:
        text: Text of the unit, which may have inline tags; its line ends become spaces.
        language: Language of the text.
    """
    text = text.translate(LINE_ENDS_AS_SPACES)
    if len(text) <= MAX_PIECE:
        return Unit([text])
    elements = [(start, end) for start, end in element_spans(text) if end - start <= MAX_SENTENCE]
    spans = merge_overlapping([*sentence_spans(text, language), *elements])
    longest = max((end - start for start, end in spans), default=0)
    limit = min(max(longest, MAX_PIECE), MAX_SENTENCE)
    return Unit(split_line(text, spans, limit, lambda texts: [len(part) for part in texts]).pieces)
