"""Words of one letter before a full stop: initials, abbreviations, or the last words of sentences."""

import tomllib
import unicodedata
from importlib.resources import files
from typing import Final

import regex

_TABLES: Final = tomllib.loads(files("transformer.text").joinpath("one_letter_words.toml").read_text(encoding="utf-8"))
_STARTERS: Final = {code: frozenset(words.split()) for code, words in _TABLES["starters"].items()}
_LETTERED: Final = frozenset(_TABLES["lettered"].split())
_VOWELS: Final = frozenset("aeiouyøæœıαεηιουωаеиіоуыэюяєѝ")
_ENDING: Final = frozenset({"p. m.", "a. m.", "т. д.", "т. п."})
"""Abbreviations that often end a sentence."""
ONE_LETTER: Final = regex.compile(r"(?<![^\s])(?<letter>\p{L}\p{M}*)\.[ ](?=\S)")
"""Pattern of a word of one letter with a full stop and the white space after it."""
_INITIAL_BEFORE: Final = regex.compile(r"(?:^|[\s.])\p{L}\p{M}*\.\Z")
_NEXT: Final = regex.compile(r"(?<word>[\p{L}\p{M}'’]+)(?<period>\.?)")
LOWER: Final = r"(?!\p{Georgian})\p{Ll}"
"""Pattern of a lower-case letter; Georgian has no capitals in sentences."""
_LOWER: Final = regex.compile(LOWER)
_MAX_WORD: Final = 40


def starts_sentence(word: str, code: str) -> bool:
    """Whether a word with a capital letter often begins a sentence, rather than being a name."""
    starters = _STARTERS.get(_TABLES["related"].get(code, code), _STARTERS["en"])
    return word in starters or word.partition("'")[0].partition("’")[0] in starters


def one_letter_word_ends(text: str, start: int, end: int, code: str) -> bool | None:
    """Whether a sentence ends after a word of one letter with a full stop; None if its script leaves that open.

    Args:
        text: Text in which each run of white space is one space.
        start: Position of the letter.
        end: Position after the full stop and the space.
        code: Language of the text (ISO 639-1).
    """
    letter = unicodedata.normalize("NFC", text[start : text.index(".", start)])
    following = _NEXT.match(text, end, end + _MAX_WORD)
    word = following["word"] if following else ""
    if _LOWER.match(word):
        return False
    previous = text[max(0, start - _MAX_WORD) : max(0, start - 1)].rpartition(" ")[2]
    is_series = _INITIAL_BEFORE.search(previous) is not None
    if following and following["period"] and len(unicodedata.normalize("NFC", word)) == 1 and _is_cased(letter):
        return False  # another initial follows
    if not _is_cased(letter):
        return False if is_series or unicodedata.name(letter[0], "").startswith("ARABIC") else None
    if not word:
        return None
    is_start = starts_sentence(word, code)
    if is_series:
        return is_start and (f"{previous} {letter}." in _ENDING or (letter.isupper() and not previous[0].islower()))
    if letter.isupper():
        return _capital_ends(letter, previous, code, is_start=is_start)
    is_word = unicodedata.normalize("NFD", letter)[0] in _VOWELS
    return is_start or (is_word and letter not in _TABLES["abbreviated_vowels"].get(code, ""))


def _capital_ends(letter: str, previous: str, code: str, *, is_start: bool) -> bool:
    """Whether a sentence ends after a capital that is not part of a series of initials."""
    if not previous or previous[-1:] in ".!?":
        return False  # the sentence begins with an initial
    if is_start or previous.lower() in _LETTERED or not previous[-1].isalpha():
        return True
    return letter == "I" and code == "en" and previous[0].islower()


def _is_cased(letter: str) -> bool:
    return letter.lower() != letter.upper() and not unicodedata.name(letter[0], "").startswith("GEORGIAN")
