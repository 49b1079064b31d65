"""Tokens of HTML and XML, whose sources together are the whole text.

The parser of the standard library takes minutes for some texts of 100,000 characters and raises `AssertionError` for
others, so it cannot read what strangers send. This one takes linear time and has no errors.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import regex

RAW_TEXT_ELEMENTS: Final = frozenset({"script", "style", "textarea", "title"})
"""Elements of HTML whose contents have no tags."""
VOID_ELEMENTS: Final = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
"""Elements of HTML without an end tag."""
_TAG: Final = regex.compile(
    r"<(?P<slash>/?)(?P<name>[A-Za-z][\w:.-]*+)"
    r"(?:(?P<attributes>(?:[\s/](?:[^<>\"']++|\"[^\"]*+\"|'[^']*+')*+)?)>|(?P<broken>[\s/][^<>]*+)>)"
)
_OTHER: Final = {"<!--": "-->", "<![CDATA[": "]]>", "<?": ">", "<!": ">"}
"""Beginnings and ends of comments, sections, instructions and declarations; longest beginnings first."""


@dataclass(frozen=True)
class Token:
    """A part of a marked-up text.

    Attributes:
        kind: "text", "line end" if it is shown as such, "start" or "end" for tags, "empty" for a tag that is an element
            alone, or "other" for comments etc.
        source: The part as written.
        name: Name of the element, in lower case for HTML; empty if it is not a tag.
        attributes: Attributes as written.
    """

    kind: Literal["text", "line end", "start", "end", "empty", "other"]
    source: str
    name: str = ""
    attributes: str = ""


def markup_tokens(text: str, *, is_xml: bool) -> list[Token]:
    """Splits a text into tokens. What cannot be read as a tag is text."""
    return list(_tokens(text, is_xml))


def matching_tags(tokens: Sequence[Token]) -> dict[int, int]:
    """Returns the index of the end tag of each start tag that has one; elements that overlap another end with it."""
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


def _tokens(text: str, is_xml: bool) -> Iterator[Token]:
    position = start = 0
    while (position := text.find("<", position)) >= 0:
        token = _markup_at(text, position, is_xml)
        if token is None:
            position += 1
            continue
        if start < position:
            yield Token("text", text[start:position])
        yield token
        start = position = position + len(token.source)
        if token.kind == "start" and not is_xml and token.name in RAW_TEXT_ELEMENTS:
            end = re.compile(rf"</{token.name}[\s/>]|\Z", re.IGNORECASE).search(text, position)
            position = end.start() if end else len(text)
            if start < position:
                yield Token("text" if token.name in ("textarea", "title") else "other", text[start:position])
            start = position
    if start < len(text):
        yield Token("text", text[start:])


def _markup_at(text: str, position: int, is_xml: bool) -> Token | None:
    match = _TAG.match(text, position)
    if match is None:
        return _other_at(text, position)
    name = match["name"] if is_xml else match["name"].lower()
    attributes = match["attributes"] or match["broken"] or ""
    if match["slash"]:
        return Token("end", match.group(), name)
    is_empty = attributes.endswith("/") if is_xml else name in VOID_ELEMENTS
    return Token("empty" if is_empty else "start", match.group(), name, attributes)


def _other_at(text: str, position: int) -> Token | None:
    """Returns the comment, section, instruction or declaration at a position; one that does not end takes the rest."""
    for beginning, end in _OTHER.items():
        if text.startswith(beginning, position):
            last = text.find(end, position + len(beginning))
            return Token("other", text[position : last + len(end) if last >= 0 else len(text)])
    return None
