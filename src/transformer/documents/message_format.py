"""Messages with placeholders in braces, and the plurals and choices of ICU MessageFormat (Unicode, ICU user guide)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import regex

from transformer.documents.codes import Code, CodedText, coded_text
from transformer.documents.text_file import TextFile

MAX_DEPTH: Final = 10
"""Maximum nesting of plurals and choices."""
_COMPLEX: Final = regex.compile(
    r"\{\s*+[\w.-]++\s*+,\s*+(?P<type>plural|select|selectordinal)\s*+,(?:\s*+offset:\d++)?"
)
_SELECTOR: Final = regex.compile(r"\s*+(?:=\d++|[\w-]++)\s*+\{")
_PLACEHOLDER: Final = regex.compile(
    r"\{\{[^{}\n]*+\}\}|\$t\([^()\n]*+\)|[$%#]\{[^{}\n]*+\}|\{[^{}'\n]*+\}|'\{[^'\n]*+'|</?\d{1,3}/?>"
    r"|%(?:\d{1,2}\$|\([\w.]+\)|<\w+>)?[-+0#]?\d*(?:\.\d+)?(?:ll?|h)?[sdifuxXcgeb@](?!\w)"
)
_COUNT: Final = regex.compile(r"\{+\s*(?:n|i|num\w*|count\w*|total)\s*[,}]|%[^a-z]*l*[diu]$", regex.IGNORECASE)


class MessageError(ValueError):
    """A message does not follow the syntax."""


@dataclass
class Pattern:
    """A text of a message: the whole message, or that of one choice.

    Attributes:
        parts: Texts and codes; the source of the code of a plural or choice is its index among `arguments`.
        n_lines: Number of lines of the text.
    """

    parts: list[str | Code] = field(default_factory=list[str | Code])
    n_lines: int = 1


@dataclass
class Message:
    """A message with all of its patterns, outermost first.

    Attributes:
        patterns: Texts that are translated.
        arguments: Plurals and choices: what is written between patterns, and the indices of patterns in between.
        source: All patterns, each on lines of its own.
    """

    patterns: list[Pattern] = field(default_factory=list[Pattern])
    arguments: dict[str, list[str | int]] = field(default_factory=dict[str, list[str | int]])
    source: CodedText = field(default_factory=lambda: CodedText(""))

    def render(self, translation: str) -> list[tuple[str, bool]]:
        """Returns a translation as texts and the syntax between them, each with whether it is a text.

        Args:
            translation: Translation of all patterns, with as many lines as `source`.
        """
        lines, texts = translation.split("\n"), list[str]()
        for pattern in self.patterns:
            texts.append("\n".join(lines[: pattern.n_lines]))
            lines = lines[pattern.n_lines :]
        return self._rendered(0, texts)

    def _rendered(self, index: int, texts: Sequence[str]) -> list[tuple[str, bool]]:
        pieces: list[tuple[str, bool]] = []
        for part in self.source.split(texts[index]):
            if isinstance(part, str):
                pieces.append((part, True))
            elif part.source in self.arguments:
                for piece in self.arguments[part.source]:
                    pieces += self._rendered(piece, texts) if isinstance(piece, int) else [(piece, False)]
            else:
                pieces.append((part.source, False))
        return pieces

    @property
    def kinds(self) -> list[list[str]]:
        """Stand-ins of each pattern, sorted."""
        return self.order(self.source.text)

    def order(self, translation: str) -> list[list[str]]:
        """Returns the stand-ins in each pattern of a translation, sorted."""
        lines, stand_ins = translation.split("\n"), list[list[str]]()
        for pattern in self.patterns:
            stand_ins.append(sorted(self.source.order("\n".join(lines[: pattern.n_lines]))))
            lines = lines[pattern.n_lines :]
        return stand_ins


def read_message(text: str) -> Message:
    """Reads a message.

    Raises:
        MessageError: A plural or a choice is not complete.
    """
    message = Message()
    end = _read_pattern(message, text, 0, depth=0, in_plural=False, is_outer=True)
    if end != len(text):
        raise MessageError
    parts: list[str | Code] = []
    for number, pattern in enumerate(message.patterns):
        parts += ["\n"] * bool(number) + pattern.parts
        pattern.n_lines = 1 + sum(part.count("\n") for part in pattern.parts if isinstance(part, str))
    message.source = coded_text(parts)
    return message


def _read_pattern(message: Message, text: str, start: int, *, depth: int, in_plural: bool, is_outer: bool) -> int:
    """Reads a pattern from a place, adds it to a message, and returns the place after it."""
    if depth > MAX_DEPTH:
        raise MessageError
    pattern = Pattern()
    message.patterns.append(pattern)
    place = start
    stops = regex.compile(r"[{}$%'#<]")
    while (match := stops.search(text, place)) is not None:
        at = match.start()
        if text[at] == "}" and not is_outer:
            _add_text(pattern, text[start:at])
            return at
        if complex_argument := _COMPLEX.match(text, at):
            _add_text(pattern, text[start:at])
            is_plural = in_plural or complex_argument["type"] != "select"
            place = start = _read_argument(message, pattern, text, complex_argument.span(), depth, is_plural=is_plural)
        elif placeholder := _PLACEHOLDER.match(text, at):
            _add_text(pattern, text[start:at])
            pattern.parts.append(_code(placeholder[0]))
            place = start = placeholder.end()
        elif text[at] == "#" and in_plural:
            _add_text(pattern, text[start:at])
            pattern.parts.append(Code("#", "count"))
            place = start = at + 1
        else:
            place = at + 1
    if not is_outer:
        raise MessageError
    _add_text(pattern, text[start:])
    return len(text)


def _read_argument(
    message: Message, pattern: Pattern, text: str, span: tuple[int, int], depth: int, *, is_plural: bool
) -> int:
    """Reads a plural or a choice, adds it to a pattern, and returns the place after it."""
    pieces: list[str | int] = []
    start, place = span
    while selector := _SELECTOR.match(text, place):
        pieces += [text[start : selector.end()], len(message.patterns)]
        start = place = _read_pattern(
            message, text, selector.end(), depth=depth + 1, in_plural=is_plural, is_outer=False
        )
        place += 1
    closing = regex.compile(r"\s*+\}").match(text, place)
    if closing is None or not pieces:
        raise MessageError
    name = f"\0{len(message.arguments)}"
    message.arguments[name] = [*pieces, text[start : closing.end()]]
    pattern.parts.append(Code(name, "value"))
    return closing.end()


def _add_text(pattern: Pattern, text: str) -> None:
    if text:
        pattern.parts.append(text)


def _code(source: str) -> Code:
    """Returns the code of a placeholder."""
    if source.startswith("<"):
        number = source.strip("</>")
        return Code(source, "end" if source[1] == "/" else "empty" if source.endswith("/>") else "start", number)
    return Code(source, "count" if _COUNT.match(source) else "value")


def writing_problem(message: Message | None, translation: str, file: TextFile | None) -> str:
    """Describes why the translation of a message cannot be written; empty if it can.

    Args:
        message: The message; None if its format was not understood.
        translation: Its translation, with stand-ins.
        file: File whose encoding must have all characters; None if those that it lacks are escaped.
    """
    if message is None:
        return "its message format is not understood"
    if file is not None and (missing := file.unencodable(translation)):
        return f"{missing!r} cannot be written in {file.encoding}; convert the file to UTF-8"
    if message.order(translation) != message.kinds:
        return "the translation moves a placeholder to another choice"
    for brace in "{}":
        if translation.count(brace) != message.source.text.count(brace):
            return f"the translation has other braces ({brace})"
    return ""
