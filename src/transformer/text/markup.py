"""Markup: tokens of HTML, XML and lines with inline tags, whose sources together are the whole text.

The parser of the standard library takes minutes for some texts of 100,000 characters and raises `AssertionError` for
others, so it cannot read what strangers send. This one takes linear time and has no errors.
"""

import html
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

import regex

from transformer.text.sentences import Span

BLOCK_ELEMENTS: Final = frozenset([
    "address", "article", "aside", "blockquote", "body", "br", "button", "caption", "center", "col", "colgroup", "dd",
    "details", "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "frameset",
    "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hgroup", "hr", "html", "iframe", "legend", "li", "link",
    "main", "menu", "meta", "nav", "noscript", "ol", "optgroup", "option", "p", "pre", "search", "section", "select",
    "summary", "table", "tbody", "td", "template", "textarea", "tfoot", "th", "thead", "title", "tr", "ul",
])  # fmt: skip
"""Elements of HTML whose tags end a sentence, and separate words even without a space."""
RAW_TEXT_ELEMENTS: Final = frozenset({"script", "style", "textarea", "title"})
"""Elements of HTML whose contents have no tags."""
VOID_ELEMENTS: Final = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
"""Elements of HTML without an end tag."""
Syntax = Literal["html", "xml", "inline"]
"""Rules by which a text is read: "inline" is a line of text of which only complete tags are markup."""
_QUOTED: Final = r"\"[^\"]*+\"|'[^']*+'"
_ATTRIBUTE: Final = rf"\s++[\w:.@#*-]++\s*+=\s*+(?:{_QUOTED}|[^\s\"'<>]++)"
TAG: Final = regex.compile(rf"</?[A-Za-z][\w:-]*+(?:{_ATTRIBUTE})*+\s*+/?>")
"""A complete tag: an attribute has a value, or `<b and c>` were one; a name with a dot is that of a host."""
ENTITY: Final = r"&(?:\w+|#\w+);"
"""Pattern of a reference to a character."""
_DECIMAL: Final = re.compile(r"&#0*([0-9]{1,8})[0-9]*")
"""A reference by a decimal number; more digits stand for no character, and `int` refuses thousands of them."""
_ANY_TAG: Final = regex.compile(
    r"<(?P<slash>/?)(?P<name>[A-Za-z][\w:.-]*+)"
    rf"(?:(?P<attributes>(?:[\s/](?:[^<>\"']++|{_QUOTED})*+)?)>|(?P<broken>[\s/][^<>]*+)>)"
)
"""A tag as careless authors write it: what HTML and XML take for one."""
_OTHER: Final = {"<!--": "-->", "<![CDATA[": "]]>", "<?": ">", "<!": ">"}
"""Beginnings and ends of comments, sections, instructions and declarations; longest beginnings first."""


@dataclass(frozen=True)
class Token:
    """A part of a marked-up text.

    Attributes:
        kind: "text", "line end" if it is shown as such, "start" or "end" for tags, "empty" for a tag that is an element
            alone, or "other" for comments etc.
        source: The part as written.
        name: Name of the element, in lower case except for XML; empty if it is not a tag.
        attributes: Attributes as written.
    """

    kind: Literal["text", "line end", "start", "end", "empty", "other"]
    source: str
    name: str = ""
    attributes: str = ""


def markup_tokens(text: str, syntax: Syntax) -> list[Token]:
    """Splits a text into tokens. What cannot be read as a tag is text."""
    return list(_tokens(text, syntax))


def matching_tags(tokens: Sequence[Token]) -> dict[int, int]:
    """Maps start tags to their end tags, by index; those still open at the end of an outer element have none."""
    partners: dict[int, int] = {}
    open_tags: list[int] = []
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for index, token in enumerate(tokens):
        if token.kind == "start":
            open_tags.append(index)
            by_name[token.name].append(index)
        elif token.kind == "end" and by_name[token.name]:
            start = by_name[token.name][-1]
            while open_tags and open_tags[-1] >= start:
                by_name[tokens[open_tags.pop()].name].pop()
            partners[start] = index
    return partners


def unescape(text: str) -> str:
    """Replaces references to characters by the characters; those to none become U+FFFD."""
    return html.unescape(_DECIMAL.sub(r"&#\1", text))


def element_spans(line: str) -> list[Span]:
    """Returns where the elements of a line with inline tags begin and end, their tags included."""
    tokens = markup_tokens(line, "inline")
    edges = [0, *accumulate(len(token.source) for token in tokens)]
    return [(edges[start], edges[end + 1]) for start, end in matching_tags(tokens).items()]


def _tokens(text: str, syntax: Syntax) -> Iterator[Token]:
    position = start = 0
    while (position := text.find("<", position)) >= 0:
        token = _markup_at(text, position, syntax)
        if token is None:
            position += 1
            continue
        if start < position:
            yield Token("text", text[start:position])
        yield token
        start = position = position + len(token.source)
        if token.kind == "start" and syntax == "html" and token.name in RAW_TEXT_ELEMENTS:
            end = re.compile(rf"</{token.name}[\s/>]|\Z", re.IGNORECASE).search(text, position)
            position = end.start() if end else len(text)
            if start < position:
                yield Token("text" if token.name in ("textarea", "title") else "other", text[start:position])
            start = position
    if start < len(text):
        yield Token("text", text[start:])


def _markup_at(text: str, position: int, syntax: Syntax) -> Token | None:
    match = _ANY_TAG.match(text, position)
    if syntax == "inline" and not (match and TAG.fullmatch(match.group())):
        return None
    if match is None:
        return _other_at(text, position)
    name = match["name"] if syntax == "xml" else match["name"].lower()
    attributes = match["attributes"] or match["broken"] or ""
    if match["slash"]:
        return Token("end", match.group(), name)
    is_empty = name in VOID_ELEMENTS if syntax == "html" else attributes.endswith("/")
    return Token("empty" if is_empty else "start", match.group(), name, attributes)


def _other_at(text: str, position: int) -> Token | None:
    """Returns the comment, section, instruction or declaration at a position; one that does not end takes the rest."""
    for beginning, end in _OTHER.items():
        if text.startswith(beginning, position):
            last = text.find(end, position + len(beginning))
            return Token("other", text[position : last + len(end) if last >= 0 else len(text)])
    return None
