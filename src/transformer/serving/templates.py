"""Texts of requests as units to translate and what surrounds them, which is kept as it is."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from transformer.text.joining import join_sentences
from transformer.text.sentence_splitting import split_line
from transformer.text.sentences import Span, sentence_spans

MAX_PIECE: Final = 500
"""Number of characters above which a unit is split at sentence ends, so that other clients' texts come in between."""
MAX_SENTENCE: Final = 2000
"""Number of characters above which a sentence is split between words."""
_LINE_END: Final = re.compile(r"(\r?\n)")
_PARAGRAPH_END: Final = re.compile(r"(\r?\n[^\S\n]*\r?\n\s*)")
_WORD_CHARACTER: Final = re.compile(r"\w")
_AS_SPACE: Final = str.maketrans("\r\n", "  ")


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
    for number, part in enumerate((_PARAGRAPH_END if may_join_lines else _LINE_END).split(text)):
        parts += [part] if number % 2 else trimmed_unit(part, lambda core: split_unit(core, language))
    return Template(parts)


def trimmed_unit(text: str, make_unit: Callable[[str], Unit]) -> list[str | Unit]:
    """Returns the parts of a text: white space at its ends and a unit, or the text if it has no letter or digit."""
    core = text.strip()
    if not _WORD_CHARACTER.search(core):
        return [text]
    start = text.index(core)
    return [text[:start], make_unit(core), text[start + len(core) :]]


def split_unit(text: str, language: str, *, nesting: Callable[[str], int] = lambda _: 0) -> Unit:
    """Returns a unit, split into pieces at sentence ends if it is long.

    Args:
        text: Text of the unit; its line ends become spaces.
        language: Language of the text.
        nesting: Number of elements that begin in a sentence and do not end there, less those that only end there. A
            piece does not end within an element.
    """
    text = text.translate(_AS_SPACE)
    if len(text) <= MAX_PIECE:
        return Unit([text])
    spans = _outside_elements(text, sentence_spans(text, language), nesting)
    longest = max((end - start for start, end in spans), default=0)
    limit = min(max(longest, MAX_PIECE), MAX_SENTENCE)
    return Unit(split_line(text, spans, limit, lambda texts: [len(part) for part in texts]).pieces)


def word_numbers(text: str, pieces: Sequence[str]) -> list[list[int]]:
    """Returns for each piece of a text, in order, the number in the text of each word of the piece.

    Words are separated by white space. Pieces may begin within a word of the text, as in scripts without spaces.
    """
    text = text.translate(_AS_SPACE)
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    numbers: list[list[int]] = []
    position, word = 0, -1
    for piece in pieces:
        position = text.index(piece, position)
        of_piece: list[int] = []
        for match in re.finditer(r"\S+", piece):
            while word + 1 < len(starts) and starts[word + 1] <= position + match.start():
                word += 1
            of_piece.append(word)
        numbers.append(of_piece)
        position += len(piece)
    return numbers


def _outside_elements(text: str, sentences: Sequence[Span], nesting: Callable[[str], int]) -> list[Span]:
    """Joins sentences between which an element has not ended."""
    joined: list[Span] = []
    depth = 0
    for start, end in sentences:
        if depth > 0:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
        depth = max(0, depth + nesting(text[start:end]))
    return joined
