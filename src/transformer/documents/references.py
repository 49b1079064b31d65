"""Text between tags: references to characters and white space are read, and written as the source writes them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from unicodedata import category

import regex

from transformer.text.markup import unescape

_PART: Final = (
    r"(?P<space>[ \t\r\n\f]++)|(?P<reference>&(?:\#[0-9]++|\#[xX][0-9A-Fa-f]++|[A-Za-z][A-Za-z0-9]{0,40}+);?)"
    r"|(?P<broken><(?=[A-Za-z/!?])[^<>]*+>?|\{%[^%]*+%\})|(?P<escape>ESCAPE)|[^ \t\r\n\f&<{STOPS]++|[&<{STOPS]"
)
_PARTS: Final = {
    False: regex.compile(_PART.replace("ESCAPE", "(?!)").replace("STOPS", "")),
    True: regex.compile(
        _PART.replace("ESCAPE", r"\\(?:u[0-9a-fA-F]{4}|[^\r\nu])").replace("STOPS", r"\\\""), regex.DOTALL
    ),
}
"""Parts of a text, by whether it has escapes with backslashes."""
_BACKSLASHES: Final = {"\n": "\\n", "'": "\\'", '"': '\\"', "\\": "\\\\"}
"""Escapes of resources of Android."""
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_SPACES: Final = regex.compile(r"[ \t\r\n\f]++")
_MAX_WORD: Final = 64


@dataclass(frozen=True)
class Reading:
    r"""Rules by which a text between tags is written.

    Attributes:
        keeps_spaces: Whether white space is shown as it is; otherwise a run of it is one space.
        has_references: Whether `&amp;` stands for a character, unlike in CDATA sections.
        escaped: Characters that are always written as references, unless the source has them as they are.
        needs_semicolon: Whether a reference ends in a semicolon, as in XML.
        has_backslashes: Whether `\'`, `\n` or `\u00e9` stand for characters, as in resources of Android.
    """

    keeps_spaces: bool = False
    has_references: bool = True
    escaped: str = "&<>"
    needs_semicolon: bool = False
    has_backslashes: bool = False

    def escape(self, character: str) -> str:
        """Returns a character as it is written where it has a meaning of its own."""
        forms = _ESCAPES | _BACKSLASHES if self.has_backslashes else _ESCAPES
        return forms.get(character, character)


@dataclass(frozen=True)
class Spelling:
    """Spellings of the characters of a text in a file.

    Attributes:
        reading: How such a text is read.
        unencodable: Function that returns the first character that the encoding of the file lacks.
        characters: Spellings of each character that was written as a reference or could be, in order.
        spaces: Spellings of runs of white space, in order.
        width: Number of characters of the longest line.
    """

    reading: Reading
    unencodable: Callable[[str], str] = field(default=lambda text: "", repr=False, compare=False)
    characters: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict[str, list[str]](list))
    spaces: list[str] = field(default_factory=list[str])

    def spell(self, texts: Sequence[str]) -> list[str]:
        """Returns texts as they are written in the file.

        Characters that occur as often as in the source are written one by one as there, others in the most frequent
        way. Lines are broken as in the source.
        """
        if not (self.reading.has_references or self.reading.has_backslashes):
            return [*texts]
        special = {*self.characters, *self.reading.escaped}
        pattern = regex.compile(f"[{regex.escape(''.join(sorted(special)), special_only=False)}]") if special else None
        counts = Counter(character for text in texts for character in (pattern.findall(text) if pattern else ()))
        remaining: dict[str, Iterator[str]] = {
            character: iter(spellings)
            for character, spellings in self.characters.items()
            if counts[character] == len(spellings)
        }
        usual = {
            character: Counter(spellings).most_common(1)[0][0]
            for character, spellings in self.characters.items()
            if character not in self.reading.escaped
        }

        def spelled(match: "regex.Match[str]") -> str:
            character = match[0]
            escape = self.reading.escape(character)
            if character not in remaining:
                return usual.get(character, escape) if character not in self.reading.escaped else escape
            spelling = next(remaining[character])
            is_safe = spelling != character or _is_literal(match.string, match.start())
            return spelling if is_safe else escape

        written = [pattern.sub(spelled, text) if pattern else text for text in texts]
        if not self.reading.keeps_spaces:
            written = self._spaced(written)
        return [self._encodable(text) for text in written]

    def _spaced(self, texts: Sequence[str]) -> list[str]:
        """Writes white space as in the source; if its amount differs, breaks lines of about the same length."""
        n_spaces = sum(len(_SPACES.findall(text)) for text in texts)
        if n_spaces == len(self.spaces):
            spaces = iter(self.spaces)
            return [_SPACES.sub(lambda match: next(spaces), text) for text in texts]
        line_end = next((space for space in self.spaces if "\n" in space), "")
        if not line_end:
            return [*texts]
        n_lines = sum("\n" in space for space in self.spaces) + 1
        width = max(40, sum(map(len, texts)) // n_lines)
        column = 0

        def broken(text: str) -> Iterator[str]:
            nonlocal column
            for number, word in enumerate(text.split(" ")):
                if number:
                    is_full = column + len(word) >= width
                    column = 0 if is_full else column + 1
                    yield line_end if is_full else " "
                column += len(word)
                yield word

        return ["".join(broken(text)) for text in texts]

    def _encodable(self, text: str) -> str:
        """Writes characters that the encoding lacks as references."""
        if not self.unencodable(text) or not self.reading.has_references:
            return text
        return "".join(f"&#{ord(letter)};" if self.unencodable(letter) else letter for letter in text)


def _is_literal(text: str, position: int) -> bool:
    """Whether a character may stand as it is, because no reference or tag begins there."""
    following = text[position : position + _MAX_WORD]
    if following[0] == "&":
        return unescape(following) == following
    return following[0] != "<" or not (following[1:2].isalpha() or following[1:2] in ("/", "!", "?"))


def read_text(source: str, reading: Reading, spelling: Spelling) -> Iterator[tuple[str, str]]:
    """Yields a text in parts, each with how it is written; a reference that stays has no text.

    References to letters and digits of ASCII and to white space stay as they are, as do tags that cannot be read, and
    statements of templates (`{% if x %}`).

    Args:
        source: Text as written in the file.
        reading: How it is written.
        spelling: Receives the spellings of characters. It has an empty list for each that `referenced` returns.
    """
    if not (reading.has_references or reading.has_backslashes):
        yield source, source
        return
    characters = {*spelling.characters, *reading.escaped}
    text, raw = list[str](), list[str]()
    for match in _PARTS[reading.has_backslashes].finditer(source):
        part = match[0]
        if match["space"]:
            if not reading.keeps_spaces:
                spelling.spaces.append(part)
            elif "\n" in spelling.characters:
                spelling.characters["\n"] += ["\n"] * part.count("\n")
            text.append(part if reading.keeps_spaces else " ")
        elif _has_meaning(match, reading):
            character = _character(part, reading) if match["reference"] or match["escape"] else None
            if character is None:
                if text:
                    yield "".join(text), "".join(raw)
                yield "", part
                text, raw = [], []
                continue
            if character == part:
                spelling.characters["&"].append("&")
            else:
                spelling.characters[character].append(part)
            text.append(character)
        else:
            for character in part if not characters.isdisjoint(part) else ():
                if character in characters:
                    spelling.characters[character].append(character)
            text.append(part)
        raw.append(part)
    if text:
        yield "".join(text), "".join(raw)


def _has_meaning(match: "regex.Match[str]", reading: Reading) -> bool:
    """Whether a part of a text is not read as it is written."""
    is_markup = match["reference"] or match["broken"] or (match[0] == '"' and reading.has_backslashes)
    return bool(match["escape"] or (is_markup and reading.has_references))


def referenced(source: str, reading: Reading) -> set[str]:
    """Returns the characters to which a text has references."""
    if not ("&" in source and reading.has_references) and not ("\\" in source and reading.has_backslashes):
        return set()
    matches = _PARTS[reading.has_backslashes].finditer(source)
    references = [match[0] for match in matches if match["escape"] or (match["reference"] and reading.has_references)]
    characters = {_character(reference, reading) for reference in references}
    return {character for character in characters if character is not None and len(character) == 1}


def _character(reference: str, reading: Reading) -> str | None:
    """Returns the character of a reference or an escape; the reference if it is text, None if it stays as it is."""
    if reference.startswith("\\"):
        return _escaped_character(reference)
    if reading.needs_semicolon and not reference.endswith(";"):
        return reference
    character = unescape(reference)
    if character == reference:
        return None if reading.needs_semicolon else reference
    if len(character) != 1 or character == "\ufffd" or character in " \t\r\n\f":
        return None
    return None if _is_opaque(character) else character


def _is_opaque(character: str) -> bool:
    """Whether somebody had a reason to write a character as a reference, which the translation keeps as a code."""
    return (character.isascii() and character.isalnum()) or category(character) in ("Cc", "Cs", "Cn", "Co")


def _escaped_character(escape: str) -> str | None:
    """Returns the character of an escape with a backslash; None if it stays as it is."""
    if escape[1] == "u":
        character = chr(int(escape[2:], 16))
        return None if character.isspace() or _is_opaque(character) else character
    return "\n" if escape[1] == "n" else escape[1] if escape[1] in "'\"\\@?" else None
