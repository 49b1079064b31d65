"""XML files as trees of elements with their positions, for formats that edit some of their tags."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from transformer.documents.attributes import attribute_of, with_attribute
from transformer.documents.text_file import Edit, TextFile
from transformer.documents.xml_scanner import local_name, read_xml
from transformer.text.markup import Token


@dataclass(frozen=True)
class Element:
    """An element of the file.

    Attributes:
        first: Index of its start tag.
        last: Index of its end tag, or of its only tag.
        name: Name without prefix.
        children: Its children, in order.
        is_translated: Whether neither it nor an outer element has `translate="no"`.
        shows_spaces: Whether its white space is shown as it is.
    """

    first: int
    last: int
    name: str
    children: list["Element"]
    is_translated: bool
    shows_spaces: bool

    def child(self, name: str) -> "Element | None":
        """Returns the first child of a name."""
        return next((child for child in self.children if child.name == name), None)


@dataclass(frozen=True)
class XmlFile:
    """An XML file.

    Attributes:
        file: The file.
        tokens: Its tokens.
        edges: Position of each token, and of the end of the file.
        elements: Its elements in the order of their start tags; the first one is the root.
    """

    file: TextFile
    tokens: Sequence[Token]
    edges: Sequence[int]
    elements: Sequence[Element]

    @property
    def root(self) -> Element:
        """The outermost element."""
        return self.elements[0]

    def attribute(self, element: Element, name: str) -> str:
        """Returns the value of an attribute of an element as written; empty if it lacks it."""
        return attribute_of(self.tokens[element.first], name)

    def content(self, element: Element) -> Sequence[Token]:
        """Returns the tokens between the tags of an element."""
        return self.tokens[element.first + 1 : element.last]

    def start(self, element: Element) -> int:
        """Returns the position of an element."""
        return self.edges[element.first]

    def end(self, element: Element) -> int:
        """Returns the exclusive end of an element."""
        return self.edges[element.last + 1]

    def source(self, element: Element) -> str:
        """Returns an element as written."""
        return self.file.text[self.start(element) : self.end(element)]

    def indent(self, element: Element) -> str:
        """Returns the line end and the white space before an element; empty if something else stands before it."""
        return indent_at(self.file.text, self.start(element))

    def written(self, text: str) -> str:
        """Returns a text as it is written between tags; characters that the encoding lacks become references."""
        encoding = self.file.encoding
        return escape(text, quote=False).encode(encoding, "xmlcharrefreplace").decode(encoding)

    def replaced_tag(self, element: Element, name: str, value: str) -> Edit:
        """Returns the edit that sets an attribute of an element."""
        token = self.tokens[element.first]
        return self.edges[element.first], self.edges[element.first + 1], with_attribute(token, name, value)

    def removed(self, element: Element) -> Edit:
        """Returns the edit that removes an element with the white space before it."""
        return self.start(element) - len(self.indent(element)), self.end(element), ""


def read_xml_file(content: bytes, name: str) -> XmlFile:
    """Reads an XML file.

    Args:
        content: Bytes of the file.
        name: Name of the file, for messages.

    Raises:
        DataError: It is not well-formed, declares entities, or is nested too deeply.
    """
    file, tokens = read_xml(content, name)
    edges = [0]
    for token in tokens:
        edges.append(edges[-1] + len(token.source))
    return XmlFile(file, tokens, edges, _elements(tokens))


def _elements(tokens: Sequence[Token]) -> list[Element]:
    """Returns all elements, in the order of their start tags."""
    ends: dict[int, int] = {}
    open_tags: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind == "start":
            open_tags.append(index)
        elif token.kind == "end":
            ends[open_tags.pop()] = index
    elements: list[Element] = []
    outer: list[Element] = []
    for index, token in enumerate(tokens):
        while outer and outer[-1].last < index:
            outer.pop()
        if token.kind not in ("start", "empty"):
            continue
        parent = outer[-1] if outer else None
        translate = attribute_of(token, "translate")
        space = attribute_of(token, "xml:space")
        element = Element(
            index,
            ends.get(index, index),
            local_name(token.name),
            [],
            translate == "yes" or (translate != "no" and (parent is None or parent.is_translated)),
            space == "preserve" or (not space and parent is not None and parent.shows_spaces),
        )
        elements.append(element)
        if parent:
            parent.children.append(element)
        outer.append(element)
    return elements


def indent_at(text: str, position: int) -> str:
    """Returns the line end and the white space before a position; empty if something else stands before it."""
    start = position
    while start and text[start - 1] in " \t":
        start -= 1
    if not start or text[start - 1] != "\n":
        return ""
    start -= 2 if text[:start].endswith("\r\n") else 1
    return text[start:position]
