"""Markdown: paragraphs, headings and cells are translated; code, links, references and the layout are kept."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import regex
from markdown_it import MarkdownIt

from transformer.documents.codes import Code, CodedText, coded_text
from transformer.documents.document import Document, Outcome, Segment, Writing
from transformer.documents.line_breaks import choose_breaks
from transformer.documents.markdown_blocks import Block, find_blocks, make_parser
from transformer.documents.markdown_inline import (
    MARKUP,
    InlineReader,
    Span,
    UnknownMarkupError,
    normalized_label,
    unique_pairs,
)
from transformer.documents.text_file import Edit, TextFile, read_text_file

_LINE_START: Final = regex.compile(
    r"[-+*](?:\s|$)|>|#{1,6}(?:\s|$)|1[.)](?:\s|$)|[=-]+\s*$|~~~|```|:::|<[!?]|!!!\s|\?\?\?|\$\$|:\s|\[\^"
)
"""Beginning of a line that may end a paragraph."""
_BLOCK_START: Final = regex.compile(rf"{_LINE_START.pattern}|\d{{1,9}}[.)](?:\s|$)")
"""Beginning of a block that is not a paragraph."""
_UNKNOWN: Final = "its markup is not understood"
_BROKEN: Final = "the translation breaks its markup"


@dataclass(frozen=True)
class Paragraph:
    """A block with its text and codes.

    Attributes:
        block: The block.
        spans: Its spans; empty if they were not understood.
        source: Its text, a soft line break as a space, and a hard one as a line end.
        parser: Parser that reads translations again.
        env: References of the file.
    """

    block: Block
    spans: Sequence[Span]
    source: CodedText
    parser: MarkdownIt
    env: dict[str, Any]

    def problem(self, file: TextFile, translation: str) -> str:
        """Describes why a translation cannot be written: it would be read as other markup."""
        if not self.spans:
            return _UNKNOWN
        if missing := file.unencodable(translation):
            return f"{missing!r} cannot be written in {file.encoding}; convert the file to UTF-8"
        content = self.render(translation, ["\n"] * len(self._soft), ["\\\n"] * self.source.text.count("\n"))
        if self.block.kind == "cell":
            content = content.replace("\\|", "|")
        if self.block.kind == "paragraph" and len(self.parser.parse(content, dict(self.env))) != 3:
            return _BROKEN
        return "" if self._kinds(content) == self._kinds(self.block.content) else _BROKEN

    def _kinds(self, content: str) -> Counter[str]:
        """Counts the spans of a content that are codes, by kind."""
        try:
            spans = InlineReader(self.parser, self.env, content).read()
        except UnknownMarkupError:
            return Counter()
        return Counter(span.kind for span in spans if span.kind in ("start", "end", "empty", "value", "hard"))

    def render(self, translation: str, soft: Sequence[str], hard: Sequence[str]) -> str:
        """Returns a translation as Markdown.

        Args:
            translation: Translation with all stand-ins.
            soft: What is written at each soft line break.
            hard: What is written at each hard one.
        """
        lines = [self._rendered_line(line) for line in translation.split("\n")]
        written, used = list[str](), 0
        for (text, spaces), places, length in zip(lines, self._places, self._lengths, strict=True):
            candidates = [at for at in spaces if not _LINE_START.match(text, at + 1)]
            pieces, start = list[str](), 0
            for number, place in enumerate(choose_breaks(places, length, candidates, len(text))):
                if place is not None:
                    pieces += [text[start:place], soft[used + number]]
                    start = place + 1
            used += len(places)
            written.append("".join([*pieces, text[start:]]))
        result = written[0] + "".join(end + line for end, line in zip(hard, written[1:], strict=True))
        is_new_block = self.block.kind == "paragraph" and _BLOCK_START.match(result)
        if is_new_block and not _BLOCK_START.match(self.block.content):
            digits = len(result) - len(result.lstrip("0123456789"))
            return f"{result[:digits]}\\{result[digits:]}"
        return result

    def _rendered_line(self, line: str) -> tuple[str, list[int]]:
        """Returns a line of a translation with its codes, and the places of the spaces between its words."""
        text, spaces = "", list[int]()
        starts: dict[str, int] = {}
        for part in self.source.split(line):
            if isinstance(part, str):
                written = self._escape(part)
                spaces += [len(text) + at for at, letter in enumerate(written) if letter == " "]
                text += written
                continue
            label = self._labels.get(part.pair, "") if part.kind == "end" else ""
            if label and normalized_label(text[starts.get(part.pair, 0) :]) != label:
                inner = next(span for span in self.spans if span.pair == part.pair and span.kind == "start")
                end = next(span for span in self.spans if span.pair == part.pair and span.kind == "end")
                text += f"][{' '.join(self.block.content[inner.end : end.start].split())}]"
                continue
            text += part.source
            starts[part.pair] = len(text)
        return text, spaces

    def _escape(self, text: str) -> str:
        return "".join(map(self._written, text)) if any(map(self._special.__contains__, text)) else text

    def _written(self, character: str) -> str:
        return self._special.get(character, character)

    @cached_property
    def _special(self) -> dict[str, str]:
        """Characters that are written as in the source, or with a backslash if the source has none of them."""
        plain = {letter for span in self.spans if span.kind == "text" for letter in span.text}
        special = {letter: f"\\{letter}" for letter in MARKUP if letter not in plain}
        escaped = [span for span in self.spans if span.kind == "special" and span.text not in plain]
        special |= {span.text: self.block.content[span.start : span.end] for span in escaped}
        return special | ({"|": "\\|"} if self.block.kind == "cell" else {})

    @cached_property
    def _labels(self) -> dict[str, str]:
        return {span.pair: span.label for span in self.spans if span.label}

    @property
    def _soft(self) -> list[Span]:
        return [span for span in self.spans if span.kind == "soft"]

    @cached_property
    def _places(self) -> list[list[int]]:
        """Places of the soft line breaks in each line of the source, a break counted as one character."""
        return self._measured[0]

    @cached_property
    def _lengths(self) -> list[int]:
        """Lengths of the lines of the source."""
        return self._measured[1]

    @cached_property
    def _measured(self) -> tuple[list[list[int]], list[int]]:
        places, lengths = [list[int]()], [0]
        for span in self.spans:
            if span.kind == "hard":
                places.append([])
                lengths.append(0)
            elif span.kind == "soft":
                places[-1].append(lengths[-1])
                lengths[-1] += 1
            else:
                lengths[-1] += span.end - span.start
        return places, lengths

    def edit(self, file: TextFile, translation: str) -> Edit:
        """Returns the edit that writes a translation."""
        origins = self.block.origins
        breaks = {
            kind: [file.text[origins[span.start] : origins[span.end]] for span in self.spans if span.kind == kind]
            for kind in ("soft", "hard")
        }
        return origins[0], origins[-1], self.render(translation, breaks["soft"], breaks["hard"])


def parse(content: bytes, name: str) -> Document:
    """Reads a Markdown file: CommonMark with tables, front matter, notes, admonitions and directives; or MDX.

    Raises:
        DataError: It is not text in UTF-8.
    """
    file = read_text_file(content, name)
    parser, env, is_mdx = make_parser(), dict[str, Any](), name.lower().endswith(".mdx")
    blocks = [*find_blocks(file, parser, env, is_mdx=is_mdx)]
    paragraphs = [_paragraph(file, block, parser, env) for block in blocks]
    segments = [
        Segment(paragraph.source, paragraph.block.origins[0], check=partial(paragraph.problem, file))
        for paragraph in paragraphs
    ]
    return Document(
        segments,
        partial(_write, file, paragraphs, is_mdx),
        line_of=file.line_of,
    )


def _paragraph(file: TextFile, block: Block, parser: MarkdownIt, env: dict[str, Any]) -> Paragraph:
    try:
        if not block.is_located:
            raise UnknownMarkupError
        spans = [*unique_pairs(InlineReader(parser, env, block.content).read())]
    except UnknownMarkupError:
        return Paragraph(block, [], CodedText(" ".join(block.content.split())), parser, env)
    plain = {letter for span in spans if span.kind == "text" for letter in span.text}
    parts: list[str | Code] = []
    for span in spans:
        source = file.text[block.origins[span.start] : block.origins[span.end]]
        if span.kind == "text" or (span.kind == "special" and span.text not in plain):
            parts.append(span.text)
        elif span.kind in ("soft", "hard"):
            parts.append(" " if span.kind == "soft" else "\n")
        elif span.kind in ("start", "end"):
            parts.append(Code(source, span.kind, span.pair))  # pyright: ignore[reportArgumentType]
        else:
            parts.append(Code(source, "value" if span.kind == "value" else "empty"))
    return Paragraph(block, spans, coded_text(parts), parser, env)


def _write(
    file: TextFile, paragraphs: Sequence[Paragraph], is_mdx: bool, outcomes: Sequence[Outcome], writing: Writing
) -> bytes:
    edits: list[Edit] = []
    for paragraph, outcome in zip(paragraphs, outcomes, strict=True):
        if outcome.translation is not None:
            edits.append(paragraph.edit(file, outcome.translation))
        place = paragraph.block.line_start
        if outcome.comment and writing.mark != "none" and place >= 0:
            comment = outcome.comment.replace("--", "- -").replace("*/", "* /")
            mark = f"{{/* {comment} */}}" if is_mdx else f"<!-- {comment} -->"
            if not file.unencodable(mark):
                edits.append((place, place, f"{mark}{file.line_end}"))
    return file.splice(edits)
