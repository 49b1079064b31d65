"""Normalization of text that people and programs write differently although it reads the same."""

import re
import unicodedata
from typing import Final

SPACE: Final = "\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""White space, as the inside of a character class."""
_INVISIBLE: Final = (
    "\xad"  # soft hyphen
    "\u200b\u2060\ufeff"  # zero-width space, word joiner, byte order mark
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction marks
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"  # controls that are not white space
)
_JOINERS: Final = "\u200c\u200d"
_JOINING: Final = "\u0600-\u167f\u1681-\u1cff\u2190-\u2bff\ua800-\uabff\ufe0f\U00010a00-\U00011fff\U0001e900-\U0001faff"
"""Scripts whose letters change their shape beside a joiner, and emoji."""
INVISIBLE: Final = rf"[{_INVISIBLE}]|(?<![{_JOINING}])[{_JOINERS}]"
"""Pattern of the characters that `remove_invisible` removes."""
SPACES: Final = rf"[{SPACE}]+"
"""Pattern of a run of white space."""

_invisible = re.compile(INVISIBLE)
_outer = re.compile(rf"[{SPACE}{_INVISIBLE}{_JOINERS}]*")


def remove_invisible(text: str) -> str:
    """Returns the text in NFC without invisible characters: soft hyphens, zero-width spaces, direction marks, controls.

    Joiners (U+200C, U+200D) stay in the scripts that need them, and in emoji.
    """
    if text.isprintable():  # white space but spaces, controls and format characters are not
        return unicodedata.normalize("NFC", text)
    return unicodedata.normalize("NFC", _invisible.sub("", unicodedata.normalize("NFC", text)))


def normalize_spaces(text: str) -> str:
    """Returns `remove_invisible(text)`, stripped, with each run of white space as one space."""
    return " ".join(remove_invisible(text).split())


def split_outer_space(text: str) -> tuple[str, str, str]:
    """Splits a text into its outer white space and invisible characters, and what they enclose.

    Returns:
        The white space and invisible characters before the text, the text, and those after it.
    """
    if text.isascii() and text.isprintable() and text == text.strip(" "):
        return "", text, ""
    start = _end_of_space(text)
    if start == len(text):
        return text, "", ""
    end = len(text)
    while _outer.fullmatch(text, end - 1, end):
        end -= 1
    return text[:start], text[start:end], text[end:]


def _end_of_space(text: str) -> int:
    match = _outer.match(text)
    return match.end() if match else 0
