"""Translation of documents: their segments are translated, and what does not come back right is left as it is."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from transformer.documents.codes import MAX_CODES
from transformer.documents.document import KEPT, Document, Mark, Outcome, Segment, Writing
from transformer.documents.formats import Format, read_document
from transformer.errors import DataError, counted
from transformer.pipelines.translation.flag_summary import UNSURE_NOTE
from transformer.pipelines.translation.results import UNSURE, Translation
from transformer.pipelines.translation.terminology import Terminology
from transformer.storage.atomic import replace_bytes
from transformer.text.languages import base_language
from transformer.text.normalization import split_outer_space
from transformer.text.sentences import has_letter
from transformer.text.span_changes import compare_spans, quote_spans
from transformer.text.templates import LINE_END, WORD_CHARACTER, Template, Unit

if TYPE_CHECKING:
    from transformer.decoding import Search
    from transformer.pipelines.translation.translator import Translator

TranslateLines = Callable[[Sequence[str]], Sequence[Translation]]
"""Function that translates lines, e.g. `Translator.translations`."""
MAX_PROBLEMS: Final = 1000
"""Maximum number of problems of several documents that are kept one by one."""
_DOUBTS: Final = re.compile(r"unsure|the translation |longer than|no word corresponds|.* is not translated as ")
"""Pattern of the flags that make a translation unsure."""
CHUNK_LINES: Final = 1024
"""Number of lines that are translated while the next ones are prepared."""


@dataclass(frozen=True)
class DocumentOptions:
    """Choice of the segments that are translated, and of those that are marked.

    Attributes:
        only_untranslated: Whether segments that have a translation keep it.
        fuzzy: Whether translations that are to be reviewed are replaced, too.
        mark: Which machine translations are marked for review, in formats that have such a mark.
        min_confidence: Confidence below which a translation is unsure; None for the threshold of the model.
    """

    only_untranslated: bool = True
    fuzzy: bool = False
    mark: Mark = "all"
    min_confidence: float | None = None

    def selects(self, segment: Segment) -> bool:
        """Whether a segment is translated."""
        if not segment.text.strip():
            return False
        is_open = segment.state == "untranslated" or (segment.state == "fuzzy" and self.fuzzy)
        return is_open or not self.only_untranslated


class DocumentArguments(TypedDict, total=False):
    """Fields of `DocumentOptions` as keyword arguments."""

    only_untranslated: bool
    fuzzy: bool
    mark: Mark
    min_confidence: float | None


@dataclass(frozen=True)
class Problem:
    """A segment that was left untranslated, or whose translation is unsure.

    Attributes:
        document: Name of the document.
        line: Number of its line, from 1.
        reason: Why.
        source: Its text, with placeholders and tags as in the document.
        translation: Its translation; None if it was left untranslated.
    """

    document: str
    line: int
    reason: str
    source: str
    translation: str | None = None

    @property
    def place(self) -> str:
        """Document and line."""
        return f"{self.document}:{self.line}"

    def __str__(self) -> str:
        """Returns the reason, and whether the segment was left untranslated."""
        return f"left untranslated: {self.reason}" if self.translation is None else self.reason


@dataclass
class DocumentReport:
    """Counts of what became of the segments of documents.

    Attributes:
        documents: Number of documents.
        translated: Number of segments that were translated, unsure ones included.
        unsure: Number of translations that are likely to be bad.
        refused: Number of segments that were left as they are because their translation was wrong.
        kept: Number of segments that had a translation, or nothing to translate.
        words: Number of words of the segments that were to be translated.
        problems: Unsure translations and refused segments, in order; of several documents the first `MAX_PROBLEMS`.
        reasons: Number of segments by reason.
        notes: What a reader should know about how documents were read.
    """

    documents: int = 0
    translated: int = 0
    unsure: int = 0
    refused: int = 0
    kept: int = 0
    words: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])
    reasons: Counter[str] = field(default_factory=Counter[str])
    notes: list[str] = field(default_factory=list[str])

    def add(self, other: "DocumentReport") -> None:
        """Adds the counts of another report."""
        for name in ("documents", "translated", "unsure", "refused", "kept", "words"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.problems += other.problems[: MAX_PROBLEMS - len(self.problems)]
        self.reasons += other.reasons
        self.notes += other.notes

    def to_json(self) -> dict[str, Any]:
        """Returns the report as a JSON object."""
        return asdict(self) | {"reasons": dict(self.reasons)}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "DocumentReport":
        """Returns the report of `to_json`."""
        problems = [Problem(**problem) for problem in facts["problems"]]
        fields: dict[str, Any] = {**facts, "problems": problems, "reasons": Counter(facts["reasons"])}
        return cls(**fields)

    def __str__(self) -> str:
        """Returns the counts on one line."""
        n_segments = self.translated + self.refused + self.kept
        segments = counted(n_segments, "segment")
        translated = f"{self.translated:,} translated ({self.unsure:,} unsure)"
        return f"{segments}: {translated}, {self.refused:,} left untranslated, {self.kept:,} kept"


@dataclass(frozen=True)
class DocumentTranslator:
    """Translates documents.

    Attributes:
        translate: Function that translates lines.
        languages: Languages of the documents and of the translations (BCP 47); empty if not known.
        terminology: Spans that translations keep.
        options: Which segments are translated, and how they are marked.
    """

    translate: TranslateLines
    languages: tuple[str, str] = ("", "")
    terminology: Terminology = field(default_factory=Terminology)
    options: DocumentOptions = DocumentOptions()

    def __call__(self, document: Document, name: str = "") -> tuple[bytes, DocumentReport]:
        """Returns the bytes of the translated document, and a report.

        Args:
            document: The document.
            name: Name of the document, for messages.

        Raises:
            DataError: The document holds translations to another language, some of which would be kept.
        """
        document = document.in_languages(*self.languages)
        self._check_language(document, name)
        selected = [index for index, segment in enumerate(document.segments) if self.options.selects(segment)]
        report = DocumentReport(1, kept=len(document.segments) - len(selected))
        report.notes += [f"{name}: {document.note}"] if document.note else []
        outcomes = [KEPT] * len(document.segments)
        segments = [document.segments[index] for index in selected]
        for index, outcome in zip(selected, self._outcomes(segments), strict=True):
            segment = document.segments[index]
            outcomes[index] = outcome
            report.words += count_words(segment)
            report.translated += outcome.translation is not None
            report.refused += outcome.is_refused
            report.unsure += outcome.translation is not None and bool(outcome.reason)
            if outcome.reason:
                report.reasons[UNSURE_NOTE if outcome.reason.startswith(UNSURE) else outcome.reason] += 1
                report.problems.append(_problem(segment, outcome, name, document.line_of(segment.position)))
        return document.write(outcomes, Writing(self.languages[1], self.options.mark)), report

    def _outcomes(self, segments: Sequence[Segment]) -> Iterator[Outcome]:
        """Yields the outcome of each segment."""
        templates = [_template_of(segment) for segment in segments]
        pieces = [piece for template in templates for piece in template.pieces]
        translations = iter(self.translate(pieces))
        for segment, template in zip(segments, templates, strict=True):
            translated = [next(translations) for _ in template.pieces]
            text = template.fill([translation.text for translation in translated])
            if problem := self.problem(segment, text):
                yield Outcome(None, problem)
                continue
            doubts = (*map(self._doubt, translated), segment.doubt(text))
            yield Outcome(text, next(filter(None, doubts), ""))

    def _doubt(self, translation: Translation) -> str:
        """Describes why a translation is unsure; empty if it is not."""
        lowest, confidence = self.options.min_confidence, translation.confidence
        if lowest is not None and confidence is not None and confidence < lowest:
            return f"{UNSURE}{confidence:.2f})"
        is_asked = lowest is not None
        flags = (flag for flag in translation.flags if not (is_asked and flag.startswith(UNSURE)))
        return next(filter(_DOUBTS.match, flags), "")

    def problem(self, segment: Segment, translation: str) -> str:
        """Describes why a translation must not be written; empty if codes, placeholders, tags and numbers are right.

        Args:
            segment: Segment.
            translation: Its translation, with stand-ins.
        """
        if segment.source.has_too_many:
            return f"it has more than {MAX_CODES:,} tags and placeholders"
        if not translation.strip() and has_letter(segment.text):
            return "the translation is empty"
        if problem := segment.source.problem(translation) or segment.check(translation):
            return problem
        missing, added = self.terminology.changed_spans(segment.text, translation)
        if missing:
            return f"the translation lacks {quote_spans(missing)}"
        if added:
            return f"the translation adds {quote_spans(added)}"
        changes = compare_spans(segment.text, translation, self.languages)
        return changes.flag if changes else ""

    def _check_language(self, document: Document, name: str) -> None:
        """Checks that a document does not mix languages.

        Raises:
            DataError: Translations to another language would be kept.
        """
        language = document.target_language
        if not language or not self.languages[1] or base_language(language) == base_language(self.languages[1]):
            return
        if any(segment.state == "translated" and not self.options.selects(segment) for segment in document.segments):
            raise DataError(
                f"{name} holds translations to {language!r:.30}, but the model translates to {self.languages[1]!r}; "
                "give the untranslated file, or replace all translations with --all"
            )


def _problem(segment: Segment, outcome: Outcome, name: str, line: int) -> Problem:
    """Returns the problem of a segment that was left untranslated or whose translation is unsure."""
    source, translation = segment.source, outcome.translation
    written = None if translation is None else source.restore(translation)
    return Problem(name, line, outcome.reason, source.restore(segment.text), written)


def count_words(segment: Segment) -> int:
    """Returns the number of words of a segment, without its codes."""
    return sum(len(part.split()) for part in segment.source.split(segment.text) if isinstance(part, str))


def line_translator(
    translator: "Translator",
    done: Callable[[int], None] | None = None,
    *,
    search: "Search | None" = None,
    terminology: Terminology | None = None,
) -> TranslateLines:
    """Returns a function that translates lines in chunks; each is prepared while the one before is translated.

    Args:
        translator: Translator of the lines.
        done: Callback for progress, called with the number of lines translated since the last call.
        search: Options of the search, instead of the translator's.
        terminology: Terms and protected spans, instead of the translator's.
    """

    def translate(lines: Sequence[str]) -> list[Translation]:
        translations: list[Translation] = []
        pending = None
        for start in range(0, len(lines), CHUNK_LINES):
            chunk = lines[start : start + CHUNK_LINES]
            following = translator.begin(chunk, None, start, search=search, terminology=terminology)
            translations += translator.finish(pending, done) if pending else []
            pending = following
        return translations + (translator.finish(pending, done) if pending else [])

    return translate


def translate_file(
    translator: "Translator",
    path: Path,
    output: Path,
    form: Format,
    options: DocumentOptions,
    translate: TranslateLines | None = None,
) -> DocumentReport:
    """Translates a document to a file, which is written whole or not at all.

    It may be the file that is read if the format holds the source beside the translation.

    Args:
        translator: Translator of the document.
        path: File to translate.
        output: File to write.
        form: Format of the file.
        options: Which segments are translated, and how they are marked.
        translate: Function that translates lines; the default is that of the translator.

    Raises:
        DataError: The file is not of this format, or would be overwritten although it alone holds the source.
        OutputError: The output cannot be written.
    """
    if not form.holds_translations and output.exists() and output.samefile(path):
        raise DataError(f"{output} is both input and output; choose another output file")
    content, report = translated_content(translator, path, form, options, translate)
    replace_bytes(output, content)
    return report


def translated_content(
    translator: "Translator",
    path: Path,
    form: Format,
    options: DocumentOptions,
    translate: TranslateLines | None = None,
) -> tuple[bytes, DocumentReport]:
    """Returns the bytes of a translated document, and a report; see `translate_file`."""
    config = translator.config
    languages = config.source_language, config.target_language
    run = DocumentTranslator(translate or line_translator(translator), languages, translator.terminology, options)
    return run(read_document(path, form), str(path))


def pieces_of(segment: Segment) -> list[str]:
    """Returns the lines of a segment that are translated."""
    return _template_of(segment).pieces


def _template_of(segment: Segment) -> Template:
    """Splits the text of a segment into its lines; line ends and white space at the ends of lines are kept."""
    text = "" if segment.source.has_too_many else segment.text
    parts: list[str | Unit] = []
    for number, part in enumerate(LINE_END.split(text)):
        if number % 2 or not WORD_CHARACTER.search(part):
            parts.append(part)
        else:
            before, core, after = split_outer_space(part)
            parts += [before, Unit([core]), after]
    return Template(parts)
