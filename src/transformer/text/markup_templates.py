"""Templates of HTML and XML: markup is kept, and the text of each block is a unit with its inline tags."""

import html
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final, Literal

from transformer.text.markup import BLOCK_ELEMENTS, ENTITY, Token, markup_tokens, matching_tags, unescape
from transformer.text.templates import LINE_END, WORD_CHARACTER, Template, Unit, split_unit

IGNORED_ELEMENTS: Final = frozenset(["code", "kbd", "math", "samp", "script", "style", "svg", "var"])
"""Elements of HTML whose contents are not translated."""
_LINES_KEPT: Final = frozenset(["pre", "textarea"])
"""Elements of HTML in which line ends are shown as such."""
_NOT_TRANSLATED: Final = re.compile(
    r"(?<![\w-])(?:translate\s*=\s*[\"']?no\b"
    r"|class\s*=\s*(?:\"[^\"]*\bnotranslate\b|'[^']*\bnotranslate\b|notranslate\b))",
    re.IGNORECASE,
)
_SPACES: Final = re.compile(r"[ \t\r\n\f]+")
_PART: Final = re.compile(rf"\s+|{ENTITY}|&|[^\s&]+")
"""A part of a text that is white space throughout or nowhere."""


@dataclass(frozen=True)
class Markup:
    """Rules by which the markup of a text is read.

    Attributes:
        kind: "html" or "xml".
        ignored: Names of further elements whose contents are not translated.
        splitting: Names of elements whose tags end a sentence; for HTML, in addition to the usual ones.
        non_splitting: Names of elements whose tags do not end a sentence.
        finds_structure: Whether elements of XML end a sentence unless they stand beside text in some element.
    """

    kind: Literal["html", "xml"] = "html"
    ignored: frozenset[str] = frozenset()
    splitting: frozenset[str] = frozenset()
    non_splitting: frozenset[str] = frozenset()
    finds_structure: bool = True


def markup_template(text: str, language: str, markup: Markup) -> Template:
    """Splits a marked-up text at the tags of block elements, comments etc.

    Entities of a unit are decoded, and its white space becomes single spaces. Its inline tags are replaced by short
    ones (`<x0>`), which the translation keeps and `Template.fill` replaces by the original ones.

    Args:
        text: HTML or XML, complete or a fragment, well-formed or not.
        language: Language of the text, for sentence ends.
        markup: How it is read.
    """
    tokens = markup_tokens(text, markup.kind)
    tokens = keep_ignored(tokens, markup)
    if markup.kind == "html":
        tokens = separate_lines(tokens)
    splitting = splitting_names(tokens, markup)
    parts: list[str | Unit] = []
    block: list[Token] = []
    for token in tokens:
        if token.kind == "line end" or (token.name in splitting and token.kind != "other"):
            parts += [*_block_parts(block, language), token.source]
            block = []
        else:
            block.append(token)
    return Template(parts + _block_parts(block, language))


def separate_lines(tokens: Sequence[Token]) -> list[Token]:
    """Makes tokens of the line ends within elements that show them."""
    separated: list[Token] = []
    depth = 0
    for token in tokens:
        depth = max(0, depth + (token.name in _LINES_KEPT) * ((token.kind == "start") - (token.kind == "end")))
        if token.kind == "text" and depth:
            lines = enumerate(LINE_END.split(token.source))
            separated += [Token("line end" if number % 2 else "text", line) for number, line in lines if line]
        else:
            separated.append(token)
    return separated


def keep_ignored(tokens: Sequence[Token], markup: Markup) -> list[Token]:
    """Replaces each element whose contents are not translated by one token."""
    ignored = markup.ignored | (IGNORED_ELEMENTS if markup.kind == "html" else frozenset())
    partners = matching_tags(tokens)
    kept: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        end = index
        if token.kind == "start" and (token.name in ignored or _NOT_TRANSLATED.search(token.attributes)):
            end = partners.get(index, index)
        if end > index:
            source = "".join(token.source for token in tokens[index : end + 1])
            kept.append(replace(token, kind="other", source=source))
        else:
            kept.append(token)
        index = end + 1
    return kept


def splitting_names(tokens: Sequence[Token], markup: Markup) -> frozenset[str]:
    """Returns the names of the elements whose tags end a sentence."""
    if markup.kind == "html":
        return (BLOCK_ELEMENTS | markup.splitting) - markup.non_splitting
    if not markup.finds_structure:
        return markup.splitting - markup.non_splitting
    names = frozenset(token.name for token in tokens if token.name)
    return ((names - _names_beside_text(tokens)) | markup.splitting) - markup.non_splitting


def _names_beside_text(tokens: Sequence[Token]) -> frozenset[str]:
    """Returns the names of the elements that have text beside them within the same element."""
    partners = matching_tags(tokens)
    ends = set(partners.values())
    names_within: defaultdict[int, set[str]] = defaultdict(set)
    parents, with_text = [-1], set[int]()
    for index, token in enumerate(tokens):
        if token.kind == "text":
            with_text |= {parents[-1]} if token.source.strip() else set()
        elif index in ends:
            parents.pop()
        else:
            names_within[parents[-1]].add(token.name)
            parents += [index] if index in partners else []
    return frozenset(name for parent in with_text for name in names_within[parent] if name)


def _block_parts(block: Sequence[Token], language: str) -> list[str | Unit]:
    """Returns the parts of a block: markup and white space at its ends, and a unit if there is text."""
    is_text = [token.kind == "text" and bool(token.source.strip()) for token in block]
    if not any(is_text):
        return ["".join(token.source for token in block)]
    first, last = trim_block(block, is_text)
    return [
        "".join(token.source for token in block[:first]),
        *_unit_parts(block[first:last], language),
        "".join(token.source for token in block[last:]),
    ]


def trim_block(block: Sequence[Token], is_text: Sequence[bool]) -> tuple[int, int]:
    """Returns the range of a block without the markup at its ends, such that no element is cut."""
    partners = matching_tags(block)
    ends = set(partners.values())
    first, last = 0, len(block)
    while True:
        while not is_text[first] and first not in partners:
            first += 1
        while not is_text[last - 1] and last - 1 not in ends:
            last -= 1
        if partners.get(first) != last - 1:
            return first, last
        first, last = first + 1, last - 1


def _unit_parts(tokens: Sequence[Token], language: str) -> list[str | Unit]:
    """Returns the parts of text with inline tags: white space at its ends, and a unit if it has letters or digits."""
    decoded = [unescape(token.source) if token.kind == "text" else "" for token in tokens]
    if not WORD_CHARACTER.search("".join(decoded)):
        return ["".join(token.source for token in tokens)]
    prefix = "x"
    while re.search(rf"</?{prefix}\d", "".join(decoded)):
        prefix += "x"
    short_tags, sources = _short_tags(tokens, prefix)
    text = _SPACES.sub(" ", "".join(short or part for short, part in zip(short_tags, decoded, strict=True))).strip()
    pattern = re.compile(rf"(</?{prefix}\d+/?>)")
    unit = replace(split_unit(text, language), finish=lambda translation: _restore(translation, pattern, sources))
    return [_outer_space(tokens[0])[0], unit, _outer_space(tokens[-1])[1]]


def _outer_space(token: Token) -> tuple[str, str]:
    """Returns the white space, as written, at both ends of a token that is text."""
    parts = _PART.findall(token.source) if token.kind == "text" else []
    leading, trailing = takewhile(_is_space, parts), [*takewhile(_is_space, reversed(parts))]
    return "".join(leading), "".join(reversed(trailing))


def _is_space(part: str) -> bool:
    return unescape(part).isspace()


def _short_tags(tokens: Sequence[Token], prefix: str) -> tuple[list[str], dict[str, str]]:
    """Returns the short tag of each token, which is empty for text, and the source of each short tag."""
    partners = matching_tags(tokens)
    short = [""] * len(tokens)
    for index, token in enumerate(tokens):
        if token.kind == "text" or short[index]:
            continue
        if index in partners:
            short[index], short[partners[index]] = f"<{prefix}{index}>", f"</{prefix}{index}>"
        else:
            short[index] = f"<{prefix}{index}/>"
    return short, {tag: token.source for tag, token in zip(short, tokens, strict=True) if tag}


def _restore(translation: str, pattern: re.Pattern[str], sources: Mapping[str, str]) -> str:
    """Replaces short tags by the original ones, and escapes everything else; missing tags follow at the end."""
    missing = dict(sources)
    parts = [
        missing.pop(part, "") if number % 2 else html.escape(part, quote=False)
        for number, part in enumerate(pattern.split(translation))
    ]
    return "".join([*parts, *missing.values()])
