"""Spans of a text that a translation keeps as they are: addresses, tags, entities, placeholders, numbers."""

import re
from collections.abc import Collection
from typing import Final

import regex

from transformer.text.markup import ENTITY, TAG, unescape
from transformer.text.sentences import has_letter

_BRACKETED: Final = r"\([^\s<>\"'()]*\)"
ADDRESS: Final = regex.compile(
    r"(?:(?:https?|ftps?|sftp|file)://|www\.)"
    rf"(?:{_BRACKETED}|(?!{_BRACKETED})[^\s<>\"'])*(?:{_BRACKETED}|(?!{_BRACKETED})[^\s<>\"'.,;:!?)\]}}›»”’“‘])"
    r"|(?:\bmailto:)?(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"
)
"""An address of a page, a file or mail; brackets in pairs and no punctuation at its end belong to it."""
_DOMAIN: Final = regex.compile(
    r"(?<!\S)[<(\[]*(?:[a-z0-9][a-z0-9-]*+\.(?=[a-z0-9]))++(?:[a-z]{2}|com|org|net|edu|gov|info|int|mil|app|dev)"
    r"(?::\d+)?(?:[/?#]\S*)?[>)\].,;:!?]*(?!\S)"
)
"""A word that is the name of a host, perhaps with a path. Within a sentence, two words may look so.

Labels are matched possessively, because releasing one label after another would take quadratic time.
"""
_FILE: Final = r"[\w.+@%-]*\w"
_PATH: Final = (
    rf"(?<![\w\\/.:<>])(?:(?:~|\.{{1,2}})(?:/{_FILE})+|/{_FILE}(?:/{_FILE})+)/?(?![\w/>])"
    r"|(?<!\w)(?:[A-Za-z]:\\|\\\\\w)[^\s<>\"|?*,;]*[^\s<>\"|?*.,;:!)]"
)
_EXTENSIONS: Final = (
    "html?|xml|xsl|css|scss|md|rst|txt|log|tex|pdf|docx?|xlsx?|pptx?|odt|ods|odp|rtf|csv|tsv|json|ya?ml|toml|ini|cfg|conf"
    "|env|lock|po|pot|srt|vtt|py|pyc|ipynb|js|mjs|cjs|ts|jsx|tsx|vue|java|jar|cc|cpp|hpp|cs|rs|rb|php|pl|sh|bash|bat"
    "|ps1|sql|exe|dll|deb|rpm|zip|tar|gz|bz2|xz|tgz|7z|iso|png|jpe?g|gif|svg|webp|ico|bmp|tiff?|mp3|mp4|wav|ogg|avi|mkv"
)
_LETTER: Final = r"\p{Latin}\p{Greek}\p{Cyrillic}"
"""Letters of scripts that separate words by spaces, as the inside of a character class; so are the next two."""
_ALNUM: Final = rf"{_LETTER}\d_"
_SIGNS: Final = rf"{_ALNUM}.+%-"
_START: Final = r"(?<![\w\\/.:@%+~&#-])"
_NAME: Final = (
    rf"{_START}(?:[{_ALNUM}+%-][{_SIGNS}]*+/)++[{_SIGNS}]*[{_ALNUM}]\.[a-z][a-z0-9]{{0,4}}(?![\w/]|\.\w)"
    rf"|{_START}(?:[{_ALNUM}][{_SIGNS}]*\.(?:{_EXTENSIONS}|{_EXTENSIONS.upper()})|[{_ALNUM}]{{2,32}}+\.[ch])(?![\w/-]|\.\w)"
)
"""A path within a folder, or the name of a file that its ending tells."""
_HOST: Final = (
    r"(?<![\w./@-])(?:[a-z0-9][a-z0-9-]*+\.(?=[a-z0-9]))++(?:com|org|net|edu|gov)(?:/[^\s<>\"')]*[\w/])?(?![\w-]|\.\w)"
)
_SYMBOLS: Final = r"\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa"
"""Signs of text that are pictographs too: copyright, trade mark, arrows."""
_EMOJI: Final = (
    rf"(?:\p{{Regional_Indicator}}{{2}}|[0-9#*]\ufe0f?\u20e3|[{_SYMBOLS}]\ufe0f|(?![{_SYMBOLS}])\p{{Extended_Pictographic}})"
    r"[\ufe0f\p{Emoji_Modifier}\U000e0020-\U000e007f]*(?:\u200d\p{Extended_Pictographic}[\ufe0f\p{Emoji_Modifier}]*)*"
)
_TEXT_ENTITY: Final = (
    r"&(?:quot|apos|[lrbs][sd]quo|szlig|[A-Za-z](?:uml|acute|grave|circ|tilde|cedil|ring)|#0*3[49]|#[xX]0*2[27]);"
)
"""Reference to a letter or a quotation mark, which a model needs to see."""
PATTERNS: Final[dict[str, str]] = {
    "urls": f"{ADDRESS.pattern}|{_PATH}|{_NAME}|{_HOST}",
    "tags": TAG.pattern,
    "entities": rf"(?!{_TEXT_ENTITY}){ENTITY}",
    "placeholders": r"\{\{[^{}]*\}\}|\$\{[^{}]*\}|\{[\w.:!-]*\}"
    r"|(?<!%)%(?:\d+\$|\([\w.]+\))?[-+#]?\d*(?:\.\d+)?[a-zA-Z@](?!\w)|%\w+%"
    r"|(?<![\w%])%\d{1,2}(?![\w%]|[.,]\d)",
    "identifiers": r"(?<![\w$&.-])(?:[a-z][a-z0-9]*+(?:_[a-z0-9]++)++|[A-Z][A-Z0-9]*+(?:_[A-Z0-9]++)++)"
    r"(?:\(\))?(?![\w(])"
    r"|(?<![\w$&.-])[A-Za-z_][\w.]*+\(\)|(?<![\w-])--[a-z][a-z0-9]*+(?:-[a-z0-9]++)++(?![\w-])"
    rf"|(?<![\w$&.@#/-])[{_LETTER}]{{1,32}}+\d[{_ALNUM}]{{0,32}}+(?:[.-]\d[{_ALNUM}]{{0,32}}+){{0,8}}+(?!\w)"
    r"|(?<![\w$&.@#/-])[a-z][\w.-]*+\(\d\)(?!\w)",
    "escapes": r"(?<!\\)(?:\\r\\n|\\[nrt])+(?![a-z]*\{)",
    "accelerators": r"(?<![^\s(\[\"'<>{])[&_](?=[\p{L}\d][\p{L}\d]*+(?:[^\w(;.]|[.](?:\W|$)|$))(?!_[\p{L}\d]*_)"
    r"|(?<=(?<!\w)\p{Lu}\p{Ll}{0,2})&(?=\p{Ll}{2}\p{Ll}*+(?![\w;]))",
    "mentions": r"(?<![\w@#&/.])[@#](?=\p{L})\w[\w.-]*(?<=\w)(?![\w@])",
    "emoji": _EMOJI,
    "numbers": r"(?<![\w.,:/])\d++(?:[.,:/x×-]\d++)*+(?!\w)",
}
"""Patterns by kind, for `regex`: possessive quantifiers of `re` match wrongly in early versions of Python 3.11."""
KEPT_KINDS: Final = tuple(kind for kind in PATTERNS if kind != "numbers")
"""Kinds of spans that translations keep unless others are chosen; numbers are written as the target language does."""
_BULLET: Final = r"[-*+] \[[ xX]\]|[-–*+>•‣⁃◦▪▸►●○■□✓✔✗✘]|[\d\p{L}]\)|\d\d\)"
_OPENING_MARKS: Final = regex.compile(rf"(?:(?:{_BULLET})\s+|#{{1,6}}\s+(?!\d)|[—―♪♫]\s*|(?:{_EMOJI})\s*)++")
_CLOSING_MARKS: Final = regex.compile(rf"(?:\s*(?:[♪♫]|{_EMOJI}))++$")
_QUOTES: Final = {'"': '"', "“": "”", "„": '“”‟"', "«": "»", "»": "«", "”": "”", "‚": "‘"}
"""Opening quotation marks with those that may close them."""


_ODD: Final = re.compile("[^A-Za-zÀ-ÖØ-öø-ÿ ,;:?!'’\"“”„«»()…–—-]")
_WORDS: Final = regex.compile(r"(?:[\p{L}\p{M}\s,;:?!'’\"“”„«»()…–—-]++|\.(?![\w.]))*+")


def is_plain(text: str) -> bool:
    """Whether a text has words and punctuation alone, so that no pattern of a span matches in it."""
    odd = _ODD.search(text)
    if odd is None or (odd.end() == len(text) and odd[0] == "."):
        return True
    return _WORDS.fullmatch(text) is not None


def kept_pattern(kinds: Collection[str]) -> regex.Pattern[str]:
    """Returns a pattern of the spans of some kinds, with the name of the kind as the group."""
    chosen = [f"(?P<{kind}>{pattern})" for kind, pattern in PATTERNS.items() if kind in kinds]
    return regex.compile("|".join(chosen) or r"(?!)")


def decode_letters(text: str) -> str:
    """Replaces references to letters and quotation marks by these."""
    return regex.sub(_TEXT_ENTITY, lambda match: unescape(match[0]), text) if "&" in text else text


_KEPT: Final = kept_pattern(KEPT_KINDS)
_KEPT_BUT_IDENTIFIERS: Final = kept_pattern([kind for kind in KEPT_KINDS if kind != "identifiers"])


def blank_kept(text: str, *, identifiers: bool = True) -> str:
    """Returns a text with spaces instead of the spans that are kept, such as tags and placeholders.

    Args:
        text: The text.
        identifiers: Whether identifiers are replaced too, which may have numbers.
    """
    return text if is_plain(text) else blank_spans(text, _KEPT if identifiers else _KEPT_BUT_IDENTIFIERS)


def split_marks(text: str) -> tuple[str, str, str]:
    """Splits a text into the marks at its start, the text, and the marks at its end, with the space beside them.

    Marks are bullets, dashes of a dialogue, emoji, notes, and a quotation mark whose counterpart is not in the text.
    A text without letters beside them has none.
    """
    opening = _OPENING_MARKS.match(text)
    start = opening.end() if opening else 0
    closing = _CLOSING_MARKS.search(text, start) if not text[-1:].isascii() else None
    end = closing.start() if closing else len(text)
    inner = text[start:end]
    if inner[:1] in _QUOTES and not any(map(inner[1:].__contains__, _QUOTES[inner[0]])):
        start += len(inner) - len(inner[1:].lstrip())
    return (text[:start], text[start:end], text[end:]) if has_letter(text[start:end]) else ("", text, "")


def without_addresses(text: str) -> str:
    """Returns a text without its addresses, and without words that are the names of hosts."""
    return text if is_plain(text) else _DOMAIN.sub("", ADDRESS.sub("", text))


def blank_spans(text: str, pattern: regex.Pattern[str]) -> str:
    """Returns a text with spaces instead of the matches of a pattern."""
    return pattern.sub(lambda match: " " * len(match[0]), text)


def blank_tags(text: str) -> str:
    """Returns a text with spaces instead of its tags."""
    return blank_spans(text, TAG)


def blank_addresses(text: str) -> str:
    """Returns a text with spaces instead of its addresses."""
    return blank_spans(text, ADDRESS)
