"""Subtitles, SRT and WebVTT: sentences are translated across cues and laid back by length; times and tags are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Final

import regex

from transformer.documents.codes import Code, CodedText, coded_text
from transformer.documents.document import Document, Outcome, Segment, Writing
from transformer.documents.line_breaks import choose_breaks
from transformer.documents.subtitle_cues import Cue, find_cues, group_cues
from transformer.documents.text_file import Edit, TextFile, read_text_file
from transformer.text.markup import unescape

MAX_LINE: Final = 42
"""Usual maximum number of characters of a line; a file whose lines are longer keeps its own maximum."""
MAX_SPEED: Final = 20
"""Usual maximum number of characters that are read in a second; a cue that was faster keeps its own speed."""
_TAG: Final = regex.compile(r"</?(?P<name>[a-z]+|(?=[\d:.]))[^<>\n]*>|\{\\[^{}\n]*\}", regex.IGNORECASE)
_ENTITY: Final = regex.compile(r"&(?:amp|lt|gt|nbsp|lrm|rlm|#\d{1,7}|#x[0-9a-f]{1,6});", regex.IGNORECASE)


@dataclass(frozen=True)
class Caption:
    """Cues that are translated together.

    Attributes:
        file: The file.
        cues: Cues of one sentence or of several.
        is_vtt: Whether entities are written as in WebVTT.
        max_line: Maximum number of characters of a line.
    """

    file: TextFile
    cues: Sequence[Cue]
    is_vtt: bool
    max_line: int

    @cached_property
    def source(self) -> CodedText:
        """Text of the cues; lines that begin with a dash are separate, and other line ends are spaces."""
        parts: list[str | Code] = []
        separator = "\n" if self._is_dialogue else " "
        for number, cue in enumerate(self.cues):
            for line, text in enumerate(cue.texts(self.file)):
                if number or line:
                    parts.append(separator)
                parts += self._parts(text)
        return coded_text(parts)

    def _parts(self, text: str) -> list[str | Code]:
        parts: list[str | Code] = []
        position = 0
        for tag in _TAG.finditer(text):
            parts += self._unescaped(text[position : tag.start()])
            position = tag.end()
            name = (tag["name"] or "").lower()
            if name:
                parts.append(Code(tag[0], "end" if tag[0].startswith("</") else "start", name))
            else:
                parts.append(Code(tag[0], "empty"))
        return [*parts, *self._unescaped(text[position:])]

    def _unescaped(self, text: str) -> list[str | Code]:
        """Returns a text without entities; those of characters that are also written plainly are codes."""
        if not self.is_vtt:
            return [text]
        parts: list[str | Code] = []
        position = 0
        for entity in _ENTITY.finditer(text):
            character = unescape(entity[0])
            is_mixed = self._written.get(character) != entity[0]
            parts += [text[position : entity.start()], Code(entity[0], "empty") if is_mixed else character]
            position = entity.end()
        return [*parts, text[position:]]

    @cached_property
    def _written(self) -> dict[str, str]:
        """Characters that are written as entities: as in the source, or because they would be read as markup."""
        if not self.is_vtt:
            return {}
        raw = _TAG.sub("", "\n".join(text for cue in self.cues for text in cue.texts(self.file)))
        plain = _ENTITY.sub("", raw)
        usual = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
        forms = usual | {unescape(entity): entity for entity in _ENTITY.findall(raw)}
        return {character: form for character, form in forms.items() if character not in plain}

    def problem(self, translation: str) -> str:
        """Describes why a translation cannot be written; empty if it can."""
        if missing := self.file.unencodable(translation):
            return f"{missing!r} cannot be written in {self.file.encoding}; convert the file to UTF-8"
        if "-->" in translation and "-->" not in self.source.text:
            return "the translation has an arrow, which would be read as a time"
        if self.cues and not self._is_dialogue and self.laid_out(translation) is None:
            return f"the translation has too few words for {len(self.cues)} cues"
        return ""

    def doubt(self, translation: str) -> str:
        """Describes why viewers may not be able to read a translation; empty if they can."""
        for cue, lines in zip(self.cues, self.laid_out(translation) or (), strict=False):
            before, after = ([len(_TAG.sub("", line)) for line in side] for side in (cue.texts(self.file), lines))
            if max(after) > max(self.max_line, *before):
                return f"a line has more than {self.max_line} characters"
            seconds = cue.times[1] - cue.times[0]
            if sum(after) > max(MAX_SPEED * seconds, sum(before)):
                return f"the cue shows more than {MAX_SPEED} characters a second"
        return ""

    @cached_property
    def _is_dialogue(self) -> bool:
        return self.cues[0].is_dialogue(self.file)

    def laid_out(self, translation: str) -> list[list[str]] | None:
        """Returns the lines of each cue of a translation; None if it has too few words for the cues."""
        if self._is_dialogue:
            return [[self._rendered(line)[0] for line in translation.split("\n")]]
        text, spaces = self._rendered(translation)
        lengths = [sum(end - start + 1 for start, end in cue.lines) for cue in self.cues]
        ends = [end - 1 for end in accumulate(lengths)]
        places = choose_breaks(ends[:-1], ends[-1], spaces, len(text))
        if None in places:
            return None
        edges = [-1, *(place for place in places if place is not None), len(text)]
        return [
            self._lines(cue, text[before + 1 : after], [at - before - 1 for at in spaces if before < at < after])
            for cue, (before, after) in zip(self.cues, pairwise(edges), strict=True)
        ]

    def _lines(self, cue: Cue, text: str, spaces: Sequence[int]) -> list[str]:
        """Splits the text of a cue into lines: as many as it had, and one more if one would be too long."""
        sizes = [end - start for start, end in cue.lines]
        breaks = [end - 1 for end in accumulate(size + 1 for size in sizes)][:-1]
        lines = _split(text, choose_breaks(breaks, sum(sizes) + len(breaks), spaces, len(text)))
        if max(map(len, lines)) <= max(self.max_line, *sizes, 0) or len(lines) > 1:
            return lines
        return _split(text, choose_breaks([1], 2, spaces, len(text)))

    def _rendered(self, translation: str) -> tuple[str, list[int]]:
        """Returns a text as written in the file, and the places of the spaces between its words."""
        text, spaces = "", list[int]()
        for part in self.source.split(translation):
            written = part.source if isinstance(part, Code) else "".join(self._written.get(c, c) for c in part)
            if isinstance(part, str):
                spaces += [len(text) + at for at, character in enumerate(written) if character == " "]
            text += written
        return text, spaces

    def edits(self, translation: str) -> list[Edit]:
        """Returns the edits that write a translation."""
        return [
            (cue.lines[0][0], cue.lines[-1][1], self._joined(cue, lines))
            for cue, lines in zip(self.cues, self.laid_out(translation) or (), strict=True)
        ]

    def _joined(self, cue: Cue, lines: Sequence[str]) -> str:
        """Joins the lines of a cue by what stands between them in the file."""
        breaks = [self.file.text[before[1] : after[0]] for before, after in pairwise(cue.lines)]
        breaks += [breaks[-1] if breaks else self.file.line_end] * len(lines)
        return lines[0] + "".join(end + line for end, line in zip(breaks, lines[1:], strict=False))


def _split(text: str, places: Sequence[int | None]) -> list[str]:
    edges = [-1, *(place for place in places if place is not None), len(text)]
    return [text[before + 1 : after] for before, after in pairwise(edges)]


def parse(content: bytes, name: str) -> Document:
    """Reads a file of subtitles.

    Raises:
        DataError: It is not text in UTF-8, or has no cue.
    """
    file = read_text_file(content, name)
    is_vtt = file.text.startswith("WEBVTT")
    cues = [*find_cues(file)]
    if not cues and file.text.strip() and not is_vtt:
        raise file.error(0, "no line has the time of a subtitle (00:00:01,000 --> 00:00:02,000); check the format")
    longest = max((len(_TAG.sub("", text)) for cue in cues for text in cue.texts(file)), default=0)
    captions = [Caption(file, group, is_vtt, max(MAX_LINE, longest)) for group in group_cues(file, cues)]
    segments = [
        Segment(caption.source, caption.cues[0].lines[0][0], check=caption.problem, doubt=caption.doubt)
        for caption in captions
    ]
    return Document(segments, partial(_write, file, captions), line_of=file.line_of)


def _write(file: TextFile, captions: Sequence[Caption], outcomes: Sequence[Outcome], writing: Writing) -> bytes:
    edits: list[Edit] = []
    for caption, outcome in zip(captions, outcomes, strict=True):
        if outcome.translation is not None:
            edits += caption.edits(outcome.translation)
        if caption.is_vtt and outcome.comment and writing.mark != "none":
            note = f"NOTE {outcome.comment}".replace("-->", "->")
            if not file.unencodable(note):
                edits.append((caption.cues[0].start, caption.cues[0].start, f"{note}{file.line_end * 2}"))
    return file.splice(edits)
