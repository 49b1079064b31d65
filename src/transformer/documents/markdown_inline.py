"""Inline content of Markdown: text and codes, found beside the tokens of markdown-it-py, which have no positions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import regex
from markdown_it import MarkdownIt
from markdown_it.token import Token

from transformer.documents.codes import COPIED

_BACKTICKS: Final = regex.compile(r"`+")
_AUTOLINK: Final = regex.compile(r"<[^<>\s]+>")
_TITLE: Final = r"(?:\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|\((?:[^()\\]|\\.)*+\))"
_DESTINATION: Final = r"(?:<(?:[^<>\n\\]|\\.)*+>|(?<p>(?:[^\s()\\]|\\.|\((?&p)*+\))*+))"
_LINK_END: Final = regex.compile(
    rf"\](?:\(\s*+{_DESTINATION}(?:\s++{_TITLE})?\s*+\)|(?P<label>\[(?:[^\[\]\\]|\\.)*+\])?)", regex.DOTALL
)
_BREAK: Final = regex.compile(r"(?:[ ]*+|\\)\n[ \t]*+")
_ROLE: Final = regex.compile(r"\{[\w:.+-]+\}\Z")
_MASK: Final = "\ue000"
"""Character for private use that stands for each one of a kept span, so that no markup is found within it."""
_KEPT: Final = regex.compile(
    r"(?P<code>(?<!`)(?P<ticks>`++)(?s:.{1,2000}?)(?<!`)(?P=ticks)(?!`))|"
    r"\$\$.{1,1000}?\$\$|\$[^$\s](?:[^$\n]*+(?<=[^$\s]))?\$(?!\d)|\[\^[^\]\s]{1,200}+\]|(?<![\w:]):[a-z0-9_+-]+:(?![\w:])|\{%[^\n]{0,500}?%\}"
)
_MASKED: Final = regex.compile(f"{_MASK}+")
_ELEMENT: Final = regex.compile(r"<(?P<slash>/?)(?P<name>[A-Za-z][\w-]*)[^>]*?(?P<empty>/?)>\Z", regex.DOTALL)
MARKUP: Final = "\\`*_[]<>~|#"
"""Characters that may begin or end markup."""


@dataclass(frozen=True)
class Span:
    """A part of an inline content.

    Attributes:
        kind: "text"; "special" for an escape or entity; "soft" and "hard" for line breaks; "start", "end", "empty" or
            "value" for a code.
        start: Place of its first character in the content.
        end: Place after its last one.
        text: Its text, unescaped.
        pair: Key of the pair that a code belongs to.
        label: Label of a link whose text is its label, normalized.
    """

    kind: str
    start: int
    end: int
    text: str = ""
    pair: str = ""
    label: str = ""


class UnknownMarkupError(ValueError):
    """Tokens and content do not fit together."""


@dataclass
class InlineReader:
    """Finds the spans of an inline content.

    Attributes:
        parser: Parser of Markdown.
        env: Its references.
        content: Inline content of a block.
        spans: Spans found so far.
    """

    parser: MarkdownIt
    env: dict[str, Any]
    content: str
    spans: list[Span] = field(default_factory=list[Span])

    def read(self) -> list[Span]:
        """Returns the spans, which together are the content.

        Raises:
            UnknownMarkupError: A token has no place in the content.
        """
        tokens: list[Token] = []
        self.content = _KEPT.sub(lambda match: match[0] if match["code"] else _MASK * len(match[0]), self.content)
        self.parser.inline.parse(self.content, self.parser, self.env, tokens)
        place = self._walk(tokens, 0, "")
        if self.content[place:].strip():
            raise UnknownMarkupError
        return self.spans

    def _walk(self, tokens: Sequence[Token], place: int, scope: str) -> int:
        """Adds the spans of tokens from a place, and returns the place after them."""
        open_pairs: list[tuple[str, int]] = []
        for number, token in enumerate(tokens):
            pair = f"{scope}{number}"
            if token.type == "text" or (token.type == "text_special" and token.content == token.markup):
                place = self._add_text(token.content, place)
            elif token.type == "text_special":
                place = self._add("special", place, len(token.markup), token.markup, text=token.content)
            elif token.type in ("softbreak", "hardbreak"):
                place = self._add(token.type[:4], place, self._length(_BREAK, place))
            elif token.type == "code_inline":
                place = self._add_code(token, place)
            elif token.type == "html_inline":
                place = self._add_element(token.content, place, open_pairs, pair)
            elif token.type == "image":
                place = self._add("start", place, 2, "![", pair=pair)
                place = self._walk(token.children or [], place, f"{pair}.")
                place = self._add_link_end(place, pair, place)
            elif token.markup == "autolink":
                if token.nesting > 0:
                    place = self._add("value", place, self._length(_AUTOLINK, place))
            elif token.nesting > 0:
                markup = token.markup or "["
                open_pairs.append((pair, place + len(markup)))
                place = self._add("start", place, len(markup), markup, pair=pair)
            elif token.nesting < 0 and open_pairs:
                pair, inner = open_pairs.pop()
                if token.markup:
                    place = self._add("end", place, len(token.markup), token.markup, pair=pair)
                else:
                    place = self._add_link_end(place, pair, inner)
                    self._join_copied()
            elif not (token.markup == "autolink" and token.nesting < 0):
                raise UnknownMarkupError
            if token.markup == "autolink" and token.nesting > 0:
                tokens[number + 1].content = ""
        return place

    def _add(self, kind: str, place: int, length: int, source: str = "", *, text: str = "", pair: str = "") -> int:
        """Adds a span, whose source must be at its place."""
        if not self.content.startswith(source, place) or place + length > len(self.content):
            raise UnknownMarkupError
        self.spans.append(Span(kind, place, place + length, text, pair))
        return place + length

    def _length(self, pattern: "regex.Pattern[str]", place: int) -> int:
        match = pattern.match(self.content, place)
        if match is None:
            raise UnknownMarkupError
        return len(match[0])

    def _add_text(self, text: str, place: int) -> int:
        """Adds a text; formulas, notes and the like within it are codes."""
        if not self.content.startswith(text, place):
            raise UnknownMarkupError
        end = place + len(text)
        for match in _MASKED.finditer(text):
            inner = end - len(text) + match.start()
            if place < inner:
                self._add("text", place, inner - place, text=self.content[place:inner])
            place = self._add("empty", inner, len(match[0]))
        return self._add("text", place, end - place, text=self.content[place:end]) if place < end else place

    def _add_code(self, token: Token, place: int) -> int:
        """Adds code, with the role of MyST before it."""
        length = self._length(_BACKTICKS, place)
        closing = regex.compile(rf"(?<!`)`{{{length}}}(?!`)").search(self.content, place + length)
        if closing is None or length != len(token.markup):
            raise UnknownMarkupError
        last = self.spans[-1] if self.spans else None
        if last and last.kind == "text" and (role := _ROLE.search(last.text)):
            self.spans.pop()
            if role.start():
                self._add("text", last.start, role.start(), text=last.text[: role.start()])
            place = last.start + role.start()
        return self._add("value", place, closing.end() - place)

    def _add_element(self, source: str, place: int, open_pairs: list[tuple[str, int]], pair: str) -> int:
        """Adds a tag of HTML; start and end tags of a name are a pair."""
        element = _ELEMENT.match(source)
        name = f"<{element['name'].lower()}" if element else ""
        if not element or element["empty"]:
            return self._add("empty", place, len(source), source)
        return self._add("end" if element["slash"] else "start", place, len(source), source, pair=name)

    def _add_link_end(self, place: int, pair: str, inner: int) -> int:
        """Adds the end of a link or an image; one without destination and label has its text as the label."""
        match = _LINK_END.match(self.content, place)
        if match is None:
            raise UnknownMarkupError
        is_shortcut = not match[0].startswith("](") and (match["label"] or "[]") == "[]"
        label = normalized_label(self.content[inner:place]) if is_shortcut else ""
        self.spans.append(Span("end", place, match.end(), pair=pair, label=label))
        return match.end()

    def _join_copied(self) -> None:
        """Makes the last three spans, a link and its text, one code if a translation copies the text as it is."""
        start, text, end = self.spans[-3:] if len(self.spans) >= 3 else [Span("", 0, 0)] * 3
        is_copied = text.kind == "value" or (text.kind == "text" and COPIED.fullmatch(text.text))
        if start.kind == "start" and start.pair == end.pair and not end.label and is_copied:
            self.spans[-3:] = [Span("value", start.start, end.end)]


def normalized_label(label: str) -> str:
    """Returns the label of a link as labels are compared: without case and runs of white space."""
    return " ".join(label.split()).casefold()


def unique_pairs(spans: Sequence[Span]) -> Iterator[Span]:
    """Yields spans with a key of its own for each pair of tags of HTML, which have their name as the key."""
    open_tags: dict[str, list[str]] = {}
    for number, span in enumerate(spans):
        if not span.pair.startswith("<"):
            yield span
            continue
        stack = open_tags.setdefault(span.pair, [])
        if span.kind == "start":
            stack.append(f"{span.pair}{number}")
            yield Span("start", span.start, span.end, pair=stack[-1])
        else:
            yield Span("end", span.start, span.end, pair=stack.pop() if stack else "")
