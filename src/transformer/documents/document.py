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
        target: Translation that the document has; empty if none.
        check: Function of a translation with stand-ins that describes what this format does not allow; empty if
            nothing.
    """

    source: CodedText
    position: int = 0
    state: State = "untranslated"
    target: str = ""
    check: Callable[[str], str] = field(default=lambda translation: "", repr=False, compare=False)

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
    """

    segments: Sequence[Segment]
    write: Callable[[Sequence[Outcome], Writing], bytes] = field(repr=False)
    target_language: str = ""
    line_of: Callable[[int], int] = field(default=lambda position: position, repr=False)
