"""Attributes of tags, with their positions in the file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import regex

from transformer.text.markup import Token

_ATTRIBUTE: Final = regex.compile(
    r"(?<=[\s/\"'])(?P<name>[^\s\"'<>/=]++)\s*+=\s*+(?:\"(?P<double>[^\"]*+)\"|'(?P<single>[^']*+)'|(?P<bare>[^\s\"'>]++))"
)


@dataclass(frozen=True)
class Attribute:
    """An attribute of a tag.

    Attributes:
        name: Name in lower case.
        start: Where its value begins in the file, without the quotation mark.
        end: Exclusive end of its value.
        value: Value as written.
        quote: Quotation mark around it; empty if it has none.
    """

    name: str
    start: int
    end: int
    value: str
    quote: str


def positioned(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """Yields tokens with their positions."""
    position = 0
    for token in tokens:
        yield token, position
        position += len(token.source)


def attributes_of(token: Token, position: int) -> Iterator[Attribute]:
    """Yields the attributes of a tag.

    Args:
        token: The tag.
        position: Its position in the file.
    """
    if not token.attributes:
        return
    for match in _ATTRIBUTE.finditer(token.source):
        group, quote = next(
            (group, quote)
            for group, quote in (("double", '"'), ("single", "'"), ("bare", ""))
            if match[group] is not None
        )
        start, end = match.span(group)
        yield Attribute(match["name"].lower(), position + start, position + end, match[group], quote)


def attribute_of(token: Token, name: str) -> str:
    """Returns the value of an attribute as written; empty if the tag lacks it.

    Args:
        token: The tag.
        name: Name of the attribute, in lower case.
    """
    return next((attribute.value for attribute in attributes_of(token, 0) if attribute.name == name), "")


def with_attribute(token: Token, name: str, value: str) -> str:
    """Returns a tag with an attribute, which is replaced in its place or follows the others.

    Args:
        token: The tag.
        name: Name of the attribute.
        value: Value, unescaped.
    """
    tag, written = token.source, escape(value)
    for attribute in attributes_of(token, 0):
        if attribute.name == name.lower():
            return tag[: attribute.start] + written + tag[attribute.end :]
    end = len(tag) - (2 if tag.endswith("/>") else 1)
    end = len(tag[:end].rstrip())
    return f'{tag[:end]} {name}="{written}"{tag[end:]}'
