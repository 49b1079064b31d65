"""PO files of gettext: a translation is written behind its source, and marked fuzzy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import regex

from transformer.documents.codes import CodedText, coded_text
from transformer.documents.document import KEPT, Document, Outcome, Segment, State, Writing
from transformer.documents.placeholders import (
    POSITIONAL,
    SYNTAXES,
    Parts,
    is_sequential,
    numbered,
    syntax_of,
    takes_width,
)
from transformer.documents.plural_forms import PluralForms
from transformer.documents.po_header import Header, header_edits, without_fuzzy
from transformer.documents.po_scanner import Entry, scan_entries
from transformer.documents.po_strings import Layout, infer_width, layout_like
from transformer.documents.text_file import Edit, TextFile, read_text_file

_CHARSET: Final = regex.compile(rb"Content-Type:[^\"\n]{0,200}charset=([\w.:-]++)")
_OBSOLETE: Final = regex.compile(r"^[ \t]*+#~[ \t]*+msgid(?=[ \t\"])", regex.MULTILINE)
_HEAD_BYTES: Final = 1 << 16
REFUSED: Final = "# not translated by the program: "
"""Comment of the entries that were left untranslated, before the reason."""


@dataclass(frozen=True)
class Message:
    """An entry to translate.

    Attributes:
        entry: The entry.
        flags: Its flags.
        segment: Source text of the entry; the plural follows the singular on a line of its own.
        syntax: Flag that names the syntax of its placeholders, e.g. `c-format`; empty if none does.
        n_lines: Number of lines of the singular.
    """

    entry: Entry
    flags: tuple[str, ...]
    segment: Segment
    syntax: str
    n_lines: int

    @property
    def has_plural(self) -> bool:
        """Whether it has a plural."""
        return "msgid_plural" in self.entry.fields

    def forms(self, translation: str) -> list[str]:
        """Returns the translation of the singular, and of the plural if there is one, as the file holds them."""
        pairs = zip(self.split(self.segment.text), self.split(translation), strict=True)
        return [self._restore(source, part) for source, part in pairs]

    def split(self, text: str) -> list[str]:
        """Splits the source, or a translation, into singular and plural; a message without a plural is one part."""
        if not self.has_plural:
            return [text]
        lines = text.split("\n")
        return ["\n".join(lines[: self.n_lines]), "\n".join(lines[self.n_lines :])]

    def _restore(self, source: str, translation: str) -> str:
        """Returns a form with its placeholders, numbered if their order changed."""
        codes = self.segment.source
        escape = SYNTAXES[self.syntax].escape if self.syntax else str
        if codes.order(source) != codes.order(translation) and self.syntax in POSITIONAL:
            codes = _numbered_codes(codes, source)
        return codes.restore(translation, escape)

    def read(self, forms: PluralForms | None) -> str:
        """Returns the translation that the file has, with stand-ins, see `Segment.target`.

        Args:
            forms: Plural forms of the file; None if they are not known.
        """
        targets = [target.text for target in self.entry.targets]
        one = min(forms.singular[0] if forms else 0, len(targets) - 1)
        texts = [targets[one], targets[-1]] if self.has_plural else targets[:1]
        pairs = zip(self.split(self.segment.text), texts, strict=True)
        aligned = [self._align(source, text) if text else None for source, text in pairs]
        has_lines = not self.has_plural or all(map(_have_equal_lines, self.split(self.segment.text), texts))
        return "\n".join(filter(None, aligned)) if all(aligned) and has_lines else ""

    def _align(self, source: str, translation: str) -> str | None:
        codes = self.segment.source
        parts = SYNTAXES[self.syntax].parts(translation) if self.syntax else [translation]
        aligned = codes.aligned(parts, source)
        if aligned is None and self.syntax in POSITIONAL:
            aligned = _numbered_codes(codes, source).aligned(parts, source)
        return aligned


def _have_equal_lines(text: str, other: str) -> bool:
    return text.count("\n") == other.count("\n")


def _numbered_codes(codes: CodedText, source: str) -> CodedText:
    """Returns a text whose placeholders in a part of it are numbered (`%1$s`) if they have neither number nor name."""
    places = {stand_in: place for place, stand_in in enumerate(codes.order(source), start=1)}
    changed = {
        stand_in: replace(code, source=numbered(code.source, places.get(stand_in, 0)))
        if is_sequential(code.source)
        else code
        for stand_in, code in codes.codes.items()
    }
    return CodedText(codes.text, changed)


def parse(content: bytes, name: str) -> Document:
    """Reads a PO file.

    Raises:
        DataError: It is not a PO file, or not in the encoding that it declares.
    """
    charset = _CHARSET.search(content[:_HEAD_BYTES])
    declared = charset[1].decode("ascii") if charset else ""
    file = read_text_file(content, name, "" if declared.upper() == "CHARSET" else declared)
    entries = [*scan_entries(file)]
    header = Header.of(next((entry for entry in entries if _is_header(entry)), None))
    messages = [_message(file, entry, header) for entry in entries if entry.targets and not _is_header(entry)]
    return Document(
        [message.segment for message in messages],
        partial(_write, file, header, messages),
        target_language=header.language,
        line_of=file.line_of,
        n_obsolete=len(_OBSOLETE.findall(file.text)),
    )


def _is_header(entry: Entry) -> bool:
    return "msgctxt" not in entry.fields and "msgid" in entry.fields and not entry.fields["msgid"].text


def _message(file: TextFile, entry: Entry, header: Header) -> Message:
    flags = tuple(entry.flags(file))
    texts = [entry.fields[keyword].text for keyword in ("msgid", "msgid_plural") if keyword in entry.fields]
    syntax = syntax_of(flags, texts)
    split: Callable[[str], Parts] = SYNTAXES[syntax].parts if syntax else lambda text: [text]
    parts: Parts = split(texts[0])
    for text in texts[1:]:
        parts += ["\n", *split(text)]
    targets = [target.text for target in entry.targets]
    state: State = "untranslated" if not all(targets) else "fuzzy" if "fuzzy" in flags else "translated"
    n_lines = texts[0].count("\n") + 1
    source = coded_text(parts)
    segment = Segment(source, entry.keywords, state)
    message = Message(entry, flags, segment, syntax, n_lines)
    target = message.read(header.forms)
    return replace(message, segment=replace(segment, target=target, check=partial(_problem, file, message)))


def _problem(file: TextFile, message: Message, translation: str) -> str:
    """Describes why a translation of a message cannot be written; empty if it can."""
    source = message.segment.source
    if missing := file.unencodable(translation):
        return f"{missing!r} cannot be written in {file.encoding}; convert the file to UTF-8"
    if message.has_plural and translation.count("\n") != source.text.count("\n"):
        return "the translation has other lines"
    for before, after in zip(message.split(source.text), message.split(translation), strict=True):
        order = source.order(before)
        sequential = [is_sequential(source.codes[stand_in].source) for stand_in in order]
        if order == source.order(after) or not any(sequential):
            continue
        directives = [source.codes[stand_in].source for stand_in in order]
        may_be_numbered = message.syntax in POSITIONAL and all(sequential) and not any(map(takes_width, directives))
        if sorted(order) != sorted(source.order(after)) or not may_be_numbered:
            return f"the translation changes the order of {' '.join(directives)!r:.60}"
    return ""


def _write(
    file: TextFile, header: Header, messages: Sequence[Message], outcomes: Sequence[Outcome], writing: Writing
) -> bytes:
    """Returns the file with translations."""
    if all(outcome == KEPT for outcome in outcomes):
        return file.splice(())
    has_plurals = any(message.has_plural for message in messages)
    forms, edits = header_edits(file, header, writing.language, has_plurals=has_plurals)
    sources = [
        (part.keyword, part.raw_lines)
        for message in messages
        for part in message.entry.fields.values()
        if part.keyword.startswith("msgid")
    ]
    width = infer_width(sources)
    for message, outcome in zip(messages, outcomes, strict=True):
        if outcome.translation is not None:
            edits += [_target_edit(file, message, outcome.translation, forms, width)]
            edits += _flag_edits(file, message, is_fuzzy=outcome.is_marked(writing.mark))
        if outcome != KEPT:
            edits += _comment_edits(file, message.entry, outcome.reason if outcome.is_refused else "", writing)
    return file.splice(edits)


def _target_edit(file: TextFile, message: Message, translation: str, forms: PluralForms | None, width: int) -> Edit:
    """Returns the edit that writes the translation of a message."""
    fields, targets = message.entry.fields, message.entry.targets
    written = message.forms(translation)
    indent = file.text[file.text.rfind("\n", 0, targets[0].start) + 1 : targets[0].start]
    if "no-wrap" in message.flags:
        width = 0
    if not message.has_plural:
        strings = [("msgstr", written[0], "msgid")]
    else:
        forms = forms or PluralForms(2, "(n != 1)")
        one, is_alone = forms.singular
        n_codes = [len(message.segment.source.order(form)) for form in message.split(message.segment.text)]
        if forms.count == 1 or (not is_alone and n_codes[0] < n_codes[1]):
            one = -1  # the form stands for other numbers too, which the singular does not show
        strings = [
            (f"msgstr[{form}]", written[form != one], "msgid" if form == one else "msgid_plural")
            for form in range(forms.count)
        ]
    lines: list[str] = []
    for keyword, text, source in strings:
        layout: Layout = layout_like(keyword, fields[source].raw_lines, width)
        lines += layout.lines(keyword, text)
    return targets[0].start, targets[-1].end, f"{file.line_end}{indent}".join(lines)


def _flag_edits(file: TextFile, message: Message, *, is_fuzzy: bool) -> list[Edit]:
    """Returns the edits that add or remove the flag `fuzzy`, and remove what belongs to the former translation."""
    entry = message.entry
    edits: list[Edit] = [(start, end, "") for start, end in entry.comment_lines(file, "#|")]
    lines = entry.comment_lines(file, "#,")
    if is_fuzzy and "fuzzy" not in message.flags:
        if lines:
            edits.append((lines[0][0], lines[0][0] + 2, "#, fuzzy,"))
        else:
            place = min([entry.keywords, *(start for start, _ in entry.comment_lines(file, "#|"))])
            edits.append((place, place, f"#, fuzzy{file.line_end}"))
    elif not is_fuzzy and "fuzzy" in message.flags:
        edits += [without_fuzzy(file, line) for line in lines]
    return edits


def _comment_edits(file: TextFile, entry: Entry, reason: str, writing: Writing) -> list[Edit]:
    """Returns the edits that write why an entry was left untranslated, instead of an earlier reason."""
    edits: list[Edit] = [(start, end, "") for start, end in entry.comment_lines(file, REFUSED)]
    comment = f"{REFUSED}{' '.join(reason.split())}"
    if not reason or writing.mark == "none" or file.unencodable(comment):
        return edits
    return [*edits, (entry.start, entry.start, f"{comment}{file.line_end}")]
