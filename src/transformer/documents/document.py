"""Documents as segments: texts to translate, with their states, and a function that writes translations in place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from transformer.documents.codes import CodedText

State = Literal["untranslated", "fuzzy", "translated"]
"""State of a segment in formats that hold source and translation; "fuzzy" is a translation to be reviewed."""
Mark = Literal["all", "unsure", "none"]
"""Which machine translations a format marks for review: all, those that are unsure or were refused, or none."""


@dataclass(frozen=True)
class Segment:
    r"""A text of a document that is translated as one.

    Attributes:
        source: Text, unescaped, with stand-ins for its inline codes. `\n` is a line end that the translation keeps.
        position: Position in the file, in characters, for messages.
        state: Whether the document has a translation of it; "untranslated" in formats without translations.
        target: Translation that the document has, with the stand-ins of the source; empty if it has none, or one whose
            codes are not those of the source.
        check: Function of a translation with stand-ins that describes what this format does not allow; empty if
            nothing.
        doubt: Function of a translation that may be written that describes why it should be reviewed; empty if it need
            not be.
    """

    source: CodedText
    position: int = 0
    state: State = "untranslated"
    target: str = ""
    check: Callable[[str], str] = field(default=lambda translation: "", repr=False, compare=False)
    doubt: Callable[[str], str] = field(default=lambda translation: "", repr=False, compare=False)

    @property
    def text(self) -> str:
        """Text that the translator sees."""
        return self.source.text


@dataclass(frozen=True)
class Outcome:
    """Result of the translation of a segment.

    Attributes:
        translation: Translation with all stand-ins; None for a segment that stays as it is.
        reason: Why the segment was left untranslated, or why its translation is unsure; empty otherwise.
    """

    translation: str | None
    reason: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether the segment stays as it is because its translation was wrong."""
        return self.translation is None and bool(self.reason)

    @property
    def comment(self) -> str:
        """Comment on a segment that was left untranslated, or whose translation is unsure; empty for others."""
        reason = " ".join(self.reason.split())
        if self.is_refused:
            return f"not translated: {reason}"
        return reason if not reason or reason.startswith("unsure") else f"unsure: {reason}"

    def is_marked(self, mark: Mark) -> bool:
        """Whether the format marks the segment for review."""
        return mark == "all" or (mark == "unsure" and bool(self.reason))


KEPT = Outcome(None)
"""Outcome of a segment that was not to be translated."""


@dataclass(frozen=True)
class Writing:
    """Settings of how translations are written.

    Attributes:
        language: Language of the translations (BCP 47); empty if not known.
        mark: Which translations are marked for review.
    """

    language: str = ""
    mark: Mark = "all"


@dataclass(frozen=True)
class Document:
    """A document that was read.

    Attributes:
        segments: Its segments, in order.
        write: Function of one `Outcome` per segment that returns the bytes of the document with the translations;
            bytes outside them stay as they were.
        target_language: Language of the translations that it holds, as it says; empty if not known.
        line_of: Function of a position that returns the number of its line, from 1.
        between: Function of two languages that returns the document of this pair, of a format that may hold more than
            two; None for other formats.
        n_obsolete: Number of translations that the document keeps although nothing uses them.
        note: What a reader should know about how the document was read; empty if nothing.
    """

    segments: Sequence[Segment]
    write: Callable[[Sequence[Outcome], Writing], bytes] = field(repr=False)
    target_language: str = ""
    line_of: Callable[[int], int] = field(default=lambda position: position, repr=False)
    between: "Callable[[str, str], Document] | None" = field(default=None, repr=False)
    n_obsolete: int = 0
    note: str = ""

    def in_languages(self, source: str, target: str) -> "Document":
        """Returns the document with the segments of a pair of languages.

        Args:
            source: Language of the texts (BCP 47); empty if not known.
            target: Language of the translations; empty if not known.
        """
        return self.between(source, target) if self.between else self
