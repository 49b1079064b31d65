"""Blocks of Markdown that hold text, with the position of each of their characters.

The blocks are those of the library markdown-it-py (CommonMark 0.31, with tables). What other dialects add is blanked
or dedented before, line by line: front matter, admonitions, directives, formulas, and the modules of MDX.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import regex
from markdown_it import MarkdownIt

from transformer.documents.text_file import TextFile

MAX_CHARACTERS: Final = 100_000
"""Number of characters above which a block is not translated."""
MAX_FORMULA: Final = 200
"""Maximum number of lines of a formula."""
MAX_DEPTH: Final = 20
"""Nesting of admonitions and directives above which they are kept as they are."""
_FENCE: Final = regex.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,}|:{3,})[ \t]*(?P<info>[^`\n]*)$")
_DIRECTIVE: Final = regex.compile(r"\{(?P<name>[\w:.+-]+)\}")
_TEXT_DIRECTIVES: Final = frozenset(
    [
        "admonition", "attention", "aside", "card", "caution", "danger", "dropdown", "epigraph", "error", "grid",
        "grid-item", "grid-item-card", "hint", "important", "margin", "note", "seealso", "sidebar", "tab-item",
        "tab-set", "tip", "topic", "versionadded", "versionchanged", "warning",
    ]
)  # fmt: skip
"""Directives of MyST whose content is text."""
_OPTION: Final = regex.compile(r"[ \t]*:[\w-]+:(?:[ \t]|$)")
_ADMONITION: Final = regex.compile(r"(?P<indent>[ \t]*)(?:!!!|\?\?\?\+?|===\+?)[ \t]+\S")
_NOTE: Final = regex.compile(r" {0,3}\[\^[^\]\s]+\]:[ \t]+(?=\S)")
_DEFINITION: Final = regex.compile(r" {0,3}:[ \t]{1,3}(?=\S)")
_KEPT_LINE: Final = regex.compile(
    r"\([\w.:-]+\)=[ \t]*$|%(?:[ \t]|$)|[ \t]*\{%.*%\}[ \t]*$|[ \t]*\[\[?_?TOC_?\]\]?[ \t]*$"
)
_KINDS: Final = {"th_open": "cell", "td_open": "cell", "heading_open": "heading"}
_MODULE: Final = regex.compile(r"(?:import|export)\b|\{.*\}[ \t]*$")
Line = tuple[str, int]
"""A line without its end, as CommonMark is to read it, and its number in the file; -1 for an inserted one."""


@dataclass(frozen=True)
class Block:
    """A heading, a paragraph or a cell of a table.

    Attributes:
        content: Its inline content, as written, without what precedes each line.
        origins: Position in the file of each character of the content, and that after the last one.
        kind: "paragraph", "heading" or "cell".
        line_start: Position of the start of its first line if a comment may stand before it; -1 otherwise.
        is_located: Whether its characters were found in the file; otherwise, only its line is known.
    """

    content: str
    origins: Sequence[int]
    kind: str
    line_start: int = -1
    is_located: bool = True


def make_parser() -> MarkdownIt:
    """Returns a parser of blocks, which leaves their inline content alone."""
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("inline")


def find_blocks(file: TextFile, parser: MarkdownIt, env: dict[str, Any], *, is_mdx: bool) -> Iterator[Block]:
    """Yields the blocks of a file.

    Args:
        file: The file.
        parser: Parser of blocks.
        env: Mapping to which the references of links are added.
        is_mdx: Whether lines of JavaScript are kept, as in MDX.
    """
    sources = file.text.split("\n")
    starts = [0]
    for line in sources:
        starts.append(starts[-1] + len(line) + 1)
    lines = _prepared([(line.removesuffix("\r"), number) for number, line in enumerate(sources)], is_mdx=is_mdx)
    tokens = parser.parse("\n".join(line for line, _ in lines), env)
    row, position = -1, 0
    for index, token in enumerate(tokens):
        if token.type != "inline" or not token.map or len(token.content) > MAX_CHARACTERS:
            continue
        kind = _KINDS.get(tokens[index - 1].type, "paragraph")
        first, end = token.map
        numbers = [number for _, number in lines[first:end]]
        if kind == "cell":
            position = position if first == row else 0
            row = first
            origins = _cell_origins(sources[numbers[0]], token.content, position, starts[numbers[0]])
            position = origins[-1] - starts[numbers[0]] if origins else position
        else:
            origins = _line_origins(sources, starts, numbers, token.content)
        line_start = starts[numbers[0]] if token.level == 1 and kind != "cell" else -1
        if not origins:
            yield Block(token.content, [starts[numbers[0]]], kind, line_start, is_located=False)
        else:
            yield Block(token.content, array("q", origins), kind, line_start)


def _line_origins(sources: Sequence[str], starts: Sequence[int], numbers: Sequence[int], content: str) -> list[int]:
    """Returns the positions of the characters of a content whose lines end lines of the file; none if they do not."""
    origins: list[int] = []
    for number, line in zip(numbers, content.split("\n"), strict=False):
        source = sources[number]
        place = source.rfind(line.rstrip()) if number >= 0 else -1
        if place < 0 or source[place:].rstrip(" \t\r#") != line.rstrip(" \t\r#"):
            return []
        origins += [starts[number] + place + offset for offset in range(len(line) + 1)]
    return origins if len(origins) == len(content) + 1 else []


def _cell_origins(source: str, content: str, position: int, start: int) -> list[int]:
    """Returns the positions of the characters of a cell; a pipe within it has a backslash before it in the file."""
    place = source.find(content.replace("|", "\\|"), position)
    if place < 0 or not content:
        return []
    origins: list[int] = []
    for character in content:
        origins.append(start + place)
        place += 1 + (character == "|")
    return [*origins, start + place]


def _prepared(lines: Sequence[Line], *, is_mdx: bool, depth: int = 0) -> list[Line]:
    """Returns lines as CommonMark is to read them."""
    prepared: list[Line] = []
    if depth > MAX_DEPTH:
        return [("", number) for _, number in lines]
    index = 0 if depth else _front_matter_end(lines)
    prepared += [("", number) for _, number in lines[:index]]
    while index < len(lines):
        line, number = lines[index]
        if fence := _FENCE.match(line):
            end = _fence_end(lines, index, fence["fence"])
            prepared += _fenced(lines[index:end], fence, is_mdx=is_mdx, depth=depth)
            index = end
        elif line.lstrip().startswith("$$"):
            end = _formula_end(lines, index)
            prepared += [("", kept) for _, kept in lines[index:end]]
            index = end
        elif admonition := _ADMONITION.match(line):
            indent = len(admonition["indent"].expandtabs(4)) + 4
            end = index + 1
            while end < len(lines) and (not lines[end][0].strip() or _indent(lines[end][0]) >= indent):
                end += 1
            body = [(text.expandtabs(4)[indent:], at) for text, at in lines[index + 1 : end]]
            prepared += [("", number), *_prepared(body, is_mdx=is_mdx, depth=depth + 1)]
            index = end
        else:
            prepared += _prepared_line(line, number, is_mdx=is_mdx)
            index += 1
    return prepared


def _prepared_line(line: str, number: int, *, is_mdx: bool) -> list[Line]:
    if _KEPT_LINE.match(line) or (is_mdx and _MODULE.match(line)):
        return [("", number)]
    if prefix := _NOTE.match(line) or _DEFINITION.match(line):
        return [("", -1), (line[prefix.end() :], number)]
    return [(line, number)]


def _fenced(lines: Sequence[Line], fence: "regex.Match[str]", *, is_mdx: bool, depth: int) -> list[Line]:
    """Returns the lines of a fenced block: as they are if they are code, and without the fences if they are text."""
    directive = _DIRECTIVE.match(fence["info"])
    is_colon = fence["fence"][0] == ":"
    if not (directive["name"] in _TEXT_DIRECTIVES if directive else is_colon):
        return [("" if is_colon else line, number) for line, number in lines]
    body = [*lines[1:]]
    closing = [body.pop()] if body and _FENCE.match(body[-1][0]) else []
    options = next((at for at, (line, _) in enumerate(body) if not _OPTION.match(line)), len(body))
    kept = [("", number) for _, number in (lines[0], *body[:options])]
    inner = _prepared(body[options:], is_mdx=is_mdx, depth=depth + 1)
    return [*kept, *inner, *(("", number) for _, number in closing)]


def _fence_end(lines: Sequence[Line], start: int, fence: str) -> int:
    """Returns the index after the closing fence of a block, or the number of lines."""
    closing = regex.compile(rf"[ \t]*{regex.escape(fence)}{regex.escape(fence[0])}*[ \t]*$")
    return next((at + 1 for at in range(start + 1, len(lines)) if closing.match(lines[at][0])), len(lines))


def _formula_end(lines: Sequence[Line], start: int) -> int:
    """Returns the index after the last line of a formula; one that does not end has a single line."""
    if lines[start][0].strip().endswith("$$") and len(lines[start][0].strip()) > 2:
        return start + 1
    following = range(start + 1, min(start + MAX_FORMULA, len(lines)))
    return next((at + 1 for at in following if lines[at][0].rstrip().endswith("$$")), start + 1)


def _front_matter_end(lines: Sequence[Line]) -> int:
    mark = lines[0][0].rstrip() if lines else ""
    if mark not in ("---", "+++"):
        return 0
    return next((at + 1 for at in range(1, len(lines)) if lines[at][0].rstrip() == mark), 0)


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())
