"""Passages of markup: texts with inline codes, and how their translations are written between the bytes that stay."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from transformer.documents.codes import COPIED, Code, CodedText, coded_text
from transformer.documents.document import KEPT, Document, Outcome, Segment, Writing
from transformer.documents.references import Reading, Spelling, read_text, referenced
from transformer.documents.text_file import Edit, TextFile
from transformer.text.sentences import has_letter

Rewritten = Callable[[int, int], str]
"""Function of a range of the file that returns it as it is written, with the edits within it."""
MAX_NESTING: Final = 100
"""Number of passages that may stand within each other."""


@dataclass(frozen=True)
class Piece:
    """A part of a passage.

    Attributes:
        start: Where it begins in the file, in characters.
        end: Its exclusive end.
        kind: "text", "hidden" for markup that the translator need not see, or the kind of a `Code`.
        pair: Key that the two codes of a pair have in common.
        alone: Markup and ranges of the file that are written where its neighbours are not those of the source; None if
            it is written as it is.
    """

    start: int
    end: int
    kind: Literal["text", "hidden", "start", "end", "empty"]
    pair: str = ""
    alone: Sequence[str | tuple[int, int]] | None = None

    def write_alone(self, rewritten: Rewritten) -> str:
        """Returns the piece as it is written beside other neighbours than in the source."""
        return "".join(part if isinstance(part, str) else rewritten(*part) for part in self.parts_alone())

    def parts_alone(self) -> Sequence[str | tuple[int, int]]:
        """Markup and ranges of the file that `write_alone` joins."""
        return [(self.start, self.end)] if self.alone is None else self.alone


@dataclass(frozen=True)
class Edges:
    """Markup at the beginning and at the end of a passage.

    Attributes:
        n_before: Number of characters of markup before the passage that belong to it.
        opening: Markup that a translation begins with unless it begins with the codes with which the source begins.
        closing: Markup that a translation ends with unless it ends with the codes with which the source ends.
        finish: Function of the written passage that returns it as it is spliced into the file.
    """

    n_before: int = 0
    opening: str = ""
    closing: str = ""
    finish: Callable[[str], str] = field(default=str, repr=False)


@dataclass(frozen=True)
class Passage:
    """A text within markup that is translated as one.

    Attributes:
        pieces: Its pieces, in order; they have no gaps.
        source: Text for the translator.
        spelling: How its characters are written in the file.
        codes: Piece of each stand-in.
        chunks: Pieces of text and hidden markup behind each stand-in, with the number of characters of each; those at
            the beginning have the key "".
        groups: Range in the file of stand-ins that follow each other without text between them.
        has_letters: Whether it has text to translate.
        edges: Markup at the beginning and at the end.
    """

    pieces: Sequence[Piece]
    source: CodedText
    spelling: Spelling
    codes: Mapping[str, Piece]
    chunks: Mapping[str, Sequence[tuple[Piece, int]]]
    groups: Mapping[tuple[str, ...], tuple[int, int]]
    has_letters: bool
    edges: Edges = field(default_factory=Edges)

    @property
    def start(self) -> int:
        """Start of the passage in the file, in characters."""
        return self.pieces[0].start - self.edges.n_before

    @property
    def end(self) -> int:
        """Exclusive end of the passage in the file."""
        return self.pieces[-1].end

    def write(self, translation: str, rewritten: Rewritten) -> str:
        """Returns the passage with a translation.

        Args:
            translation: Translation with all stand-ins.
            rewritten: Function that returns the markup of codes.
        """
        written: list[tuple[str, bool]] = [(rewritten(self.start, self.pieces[0].start), False)]
        groups, source_groups = self._groups_of(translation), self._groups_of(self.source.text)
        first, last = source_groups[0][0], source_groups[-1]
        begins_alike, ends_alike = groups[0][0] == first, groups[-1] == last
        if not begins_alike:
            written.append((self.edges.opening, False))
        if groups[0][0]:
            written += self._write_chunk("", "", rewritten)
        for index, (group, text) in enumerate(groups):
            is_elsewhere = (group == first and index > 0) or (
                last == (group, "") and (index, text) != (len(groups) - 1, "")
            )
            if group in self.groups and not is_elsewhere:
                written.append((rewritten(*self.groups[group]), False))
            else:
                for stand_in in group:
                    written.append((self.codes[stand_in].write_alone(rewritten), False))
                    if stand_in != group[-1]:
                        written += self._write_chunk(stand_in, "", rewritten)
            written += self._write_chunk(group[-1] if group else "", text, rewritten)
        if not ends_alike and not last[1]:
            written.append((self.edges.closing, False))
        texts = iter(self.spelling.spell([text for text, is_text in written if is_text]))
        return self.edges.finish("".join(next(texts) if is_text else text for text, is_text in written))

    def _groups_of(self, translation: str) -> list[tuple[tuple[str, ...], str]]:
        """Splits a translation into groups of adjacent stand-ins, each with the text behind it."""
        groups: list[tuple[tuple[str, ...], str]] = []
        group: list[str] = []
        stand_ins = iter(self.source.order(translation))
        for part in self.source.split(translation):
            if isinstance(part, Code):
                group.append(next(stand_ins))
            elif part:
                groups.append((tuple(group), part))
                group = []
        return [*groups, (tuple(group), "")] if group or not groups else groups

    def _write_chunk(self, stand_in: str, text: str, rewritten: Rewritten) -> list[tuple[str, bool]]:
        """Returns a text with the hidden markup of a chunk, each with whether it is text."""
        chunk = self.chunks.get(stand_in, ())
        n_before = sum(length for _, length in chunk)
        written: list[tuple[str, bool]] = []
        position = n_read = 0
        for piece, length in chunk:
            n_read += length
            if piece.kind == "hidden":
                place = _place(text, n_read, n_before)
                written += [(text[position:place], True), (rewritten(piece.start, piece.end), False)]
                position = place
        return [*written, (text[position:], True)]


def _place(text: str, n_before: int, total: int) -> int:
    """Returns where markup behind `n_before` of the `total` characters of the source stands in a translation."""
    if len(text) == total or n_before == 0:
        return n_before
    if n_before == total:
        return len(text)
    space = text.find(" ", len(text) * n_before // total)
    return space if space >= 0 else len(text)


def read_passage(file: TextFile, pieces: Sequence[Piece], reading: Reading, edges: Edges | None = None) -> Passage:
    """Reads a passage.

    Args:
        file: The file.
        pieces: Pieces of the passage, in order, without gaps.
        reading: How its text is written.
        edges: Markup at its beginning and at its end.
    """
    pieces = _joined(file, pieces)
    parts: list[str | Code] = []
    owners: list[Piece] = []
    items: list[tuple[Piece, int]] = []
    spelling = Spelling(reading, file.unencodable)
    for piece in pieces:
        if piece.kind == "text":
            for character in referenced(file.text[piece.start : piece.end], reading):
                spelling.characters[character] = []
    for piece in pieces:
        if piece.kind == "hidden":
            items.append((piece, 0))
        elif piece.kind != "text":
            markup = file.text[piece.start : piece.end] if piece.alone is None else "formatting"
            parts.append(Code(markup, piece.kind, piece.pair))
            owners.append(piece)
            items.append((piece, 0))
        else:
            position = piece.start
            for text, source in read_text(file.text[piece.start : piece.end], reading, spelling):
                part = Piece(position, position + len(source), "text" if text else "empty")
                parts.append(text or Code(source, "empty"))
                owners += [] if text else [part]
                items.append((part, len(text)))
                position = part.end
    source = coded_text(parts)
    codes = {} if source.has_too_many else dict(zip(source.codes, owners, strict=True))
    chunks, groups = ({}, {}) if source.has_too_many else _arranged(items, list(codes))
    has_letters = any(has_letter(part) for part in parts if isinstance(part, str))
    return Passage(pieces, source, spelling, codes, chunks, groups, has_letters, edges or Edges())


def _joined(file: TextFile, pieces: Sequence[Piece]) -> list[Piece]:
    """Returns pieces in which each pair with a text that a translation copies is one piece, if other text is left."""
    joined: list[Piece] = []
    for piece in pieces:
        joined.append(piece)
        if piece.kind != "end":
            continue
        first = len(joined) - 2
        while first >= 0 and joined[first].kind in ("text", "hidden"):
            first -= 1
        members = joined[max(first, 0) :]
        text = "".join(file.text[member.start : member.end] for member in members if member.kind == "text")
        if (members[0].kind, members[0].pair) == ("start", piece.pair) and COPIED.fullmatch(text):
            alone = [part for member in members for part in member.parts_alone()]
            is_as_written = all(member.alone is None for member in members)
            joined[first:] = [Piece(members[0].start, piece.end, "empty", alone=None if is_as_written else alone)]
    return joined if any(piece.kind == "text" for piece in joined) else [*pieces]


def _arranged(
    items: Sequence[tuple[Piece, int]], stand_ins: Sequence[str]
) -> tuple[dict[str, list[tuple[Piece, int]]], dict[tuple[str, ...], tuple[int, int]]]:
    """Returns the chunks and the groups of a passage."""
    chunks: dict[str, list[tuple[Piece, int]]] = {"": []}
    groups: dict[tuple[str, ...], tuple[int, int]] = {}
    group: list[str] = []
    start = end = 0
    names = iter(stand_ins)
    last = ""
    for piece, length in items:
        if piece.kind in ("text", "hidden"):
            chunks[last].append((piece, length))
            if length and group:
                groups[tuple(group)] = start, end
                group = []
            continue
        last = next(names)
        chunks[last] = []
        start = start if group else piece.start
        end = piece.end
        group.append(last)
    if group:
        groups[tuple(group)] = start, end
    return chunks, groups


@dataclass(frozen=True)
class MarkedUpText:
    """A text with markup and its passages, some of which may stand within the markup of others.

    Attributes:
        file: The file.
        passages: Its passages, in the order of the document's segments.
        edits: Function of the language of the translations that returns further edits, such as those of the language
            that the file names.
    """

    file: TextFile
    passages: Sequence[Passage]
    edits: Callable[[str], Sequence[Edit]] = lambda language: ()

    def write(self, outcomes: Sequence[Outcome], writing: Writing) -> bytes:
        """Returns the bytes of the file with translations."""
        if all(outcome == KEPT for outcome in outcomes):
            return self.file.splice(())
        translations = [outcome.translation for outcome in outcomes]
        return self.file.splice(self.written(translations, self.edits(writing.language)))

    def written(self, translations: Sequence[str | None], edits: Sequence[Edit] = ()) -> list[Edit]:
        """Returns the edits that write translations; edits within the markup of a passage are part of its own.

        Args:
            translations: Translation of each passage; None if it stays.
            edits: Further edits, which do not overlap with the text of passages.
        """
        work: list[tuple[int, int, Passage | str, str]] = [(end, -start, text, "") for start, end, text in edits]
        for passage, translation in zip(self.passages, translations, strict=True):
            if translation is not None:
                work.append((passage.end, -passage.start, passage, translation))
        stack: list[Edit] = []
        for end, minus_start, what, translation in sorted(work, key=lambda item: item[:2]):
            if isinstance(what, str):
                stack.append((-minus_start, end, what))
                continue
            inner: list[Edit] = []
            while stack and stack[-1][0] >= -minus_start:
                inner.append(stack.pop())
            inner.reverse()
            written = what.write(translation, partial(self._rewritten, inner, [edit[0] for edit in inner]))
            stack.append((-minus_start, end, written))
        return stack

    def _rewritten(self, edits: Sequence[Edit], starts: Sequence[int], start: int, end: int) -> str:
        """Returns a part of the text with the edits within it."""
        parts, position = list[str](), start
        for index in range(bisect_left(starts, start), len(edits)):
            edit_start, edit_end, text = edits[index]
            if edit_end > end:
                break
            parts += [self.file.text[position:edit_start], text]
            position = edit_end
        return "".join([*parts, self.file.text[position:end]])

    def document(self) -> Document:
        """Returns the text as a document."""
        return Document(
            [Segment(passage.source, passage.start) for passage in self.passages],
            self.write,
            line_of=self.file.line_of,
        )
