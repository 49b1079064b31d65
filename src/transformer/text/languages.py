"""Languages of text as BCP 47 tags: from options, requests, file names, or the text itself."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import Final

import regex

from transformer.text.scripts import count_letters

COMPRESSIONS: Final = frozenset({".gz", ".zst"})
GENERIC_SUFFIXES: Final = frozenset({".txt", ".text"})
NO_LANGUAGES: Final = frozenset({"mis", "mul", "und", "zxx"})
"""Codes for text of several languages, of an unknown one, or of none."""
COMMON_CODES: Final = frozenset({"cmn", "fil", "tl", "yue"})
"""Codes that name files of corpora although they have no code of two letters, or are no longer current."""
AMBIGUOUS_CODES: Final = frozenset({
    "aa", "ab", "ae", "ba", "bi", "bo", "br", "ch", "co", "cr", "cu", "ee", "gn", "ie", "io", "kr", "kw", "lu",
    "mh", "na", "ng", "om", "pi", "sc", "sd", "se", "sg", "sm", "ss", "st", "tk", "tn", "to", "ts", "tt", "tw",
    "ve", "za",
})  # fmt: skip
"""Codes of languages that name a country, a part of a file or a program far more often as the suffix of a file."""
ALIASES: Final = {"pb": "pt-BR", "zt": "zh-Hant"}
"""Codes of LibreTranslate that are not the tags of the languages they stand for."""
MAX_TAG: Final = 35
"""Number of characters of the longest tags; longer ones would fill the memory of tags seen."""
NORWEGIAN, BOKMAL = "no", "nb"
"""Tags of one language: Norwegian is written as Bokmål unless a tag says Nynorsk."""
_LANGUAGE_NAME: Final = regex.compile(r"[\p{L}\p{M} ()'’-]{1,40}")
MIN_NAME: Final = 4
"""Minimum length of the name of a language in Latin letters; shorter words are codes of languages."""
LANGUAGE_OF_SCRIPT: Final = {
    "Armenian": "hy", "Burmese": "my", "Georgian": "ka", "Greek": "el", "Gujarati": "gu", "Gurmukhi": "pa",
    "Han": "zh", "Hangul": "ko", "Hebrew": "he", "Kana": "ja", "Kannada": "kn", "Khmer": "km", "Lao": "lo",
    "Malayalam": "ml", "Odia": "or", "Sinhala": "si", "Tamil": "ta", "Telugu": "te", "Thai": "th", "Tibetan": "bo",
}  # fmt: skip
"""The language that is meant by text in a script that few languages share."""
MIN_LETTERS, MIN_KANA_SHARE = 40, 0.05
MIN_SAMPLE_LETTERS: Final = 500
"""Minimum number of letters of a language that its script does not tell."""
SAMPLE_LINES, LINES_AT_ONCE, MIN_AGREEMENT = 500, 5, 0.8


def parse_language(tag: str) -> str | None:
    """Returns a language tag in its canonical form, e.g. `de` for `deu`, `pt-BR` for `pt_br`; None if it is none."""
    import langcodes  # takes a moment to load

    tag = tag.strip()
    if not langcodes.tag_is_valid(tag) or tag.partition("-")[0].lower() in NO_LANGUAGES:
        return None
    return langcodes.standardize_tag(tag, macro=True)


@lru_cache(maxsize=1024)
def script_of_language(tag: str) -> str:
    """Returns the usual script of a language as an ISO 15924 code, e.g. `Hans` for `zh` and `Hant` for `zh-TW`."""
    import langcodes

    return langcodes.Language.get(tag).maximize().script or ""


@lru_cache(maxsize=1024)
def language_name(tag: str) -> str:
    """Returns the English name of a language, e.g. `German`."""
    import langcodes

    return langcodes.Language.get(tag).display_name()


def canonical_tag(tag: str) -> str:
    """Returns the tag of a request in its canonical form, e.g. `pt-BR` for `PT_br`; empty if it is none."""
    return _canonical(tag) if tag.isascii() and 2 <= len(tag) <= MAX_TAG else ""


@lru_cache(maxsize=1024)
def _canonical(tag: str) -> str:
    return ALIASES.get(tag.lower()) or parse_language(tag.replace("_", "-")) or ""


def base_language(tag: str) -> str:
    """Returns the language of a canonical tag without script and region, e.g. `pt` for `pt-BR`."""
    language = tag.partition("-")[0]
    return NORWEGIAN if language == BOKMAL else language


def matching_tag(tag: str, served: Iterable[str]) -> str | None:
    """Returns the served tag that suits a requested one.

    That is the same tag, or else the first of the same language in the same script, where likely subtags tell the
    script (RFC 5646, Unicode CLDR): `zh-TW` is written in `Hant`. A language without script and region may also be
    answered in another script of it.

    Args:
        tag: Requested tag, e.g. `DE`, `de-AT` or `EN-GB`.
        served: Tags to choose from.

    Returns:
        One of `served` as it is written there; None if none suits.
    """
    wanted = canonical_tag(tag)
    if not wanted:
        return None
    candidates = [(canonical_tag(other), other) for other in served]
    same_language = [pair for pair in candidates if base_language(pair[0]) == base_language(wanted)]
    script = script_of_language(wanted)
    same_script = [pair for pair in same_language if script_of_language(pair[0]) == script]
    same = [pair for pair in same_script if pair[0] == wanted]
    fitting = same or same_script or ([] if "-" in wanted else same_language)
    return fitting[0][1] if fitting else None


def language_of_files(paths: Iterable[str]) -> str | None:
    """Returns the language that the suffixes of files name, such as `train.en` or `train.pt_BR.gz`.

    None if they name none, or different ones.
    """
    languages = {_language_of_file(path) for path in paths}
    return languages.pop() if len(languages) == 1 else None


def language_of_column(name: str) -> str | None:
    """Returns the language that the name of a column is, such as `en` or `translation.en`."""
    return _parse_name(name.rpartition(".")[2])


def language_of_header(name: str) -> str | None:
    """Returns the language that the header of a column is: a code such as `en`, or a name such as `English`."""
    import langcodes

    name = name.strip()
    if (tag := _parse_name(name)) is not None or (name.isascii() and len(name) < MIN_NAME):
        return tag
    if not _LANGUAGE_NAME.fullmatch(name):  # the table of names cannot be asked for e.g. a NUL
        return None
    try:
        return parse_language(str(langcodes.find(name)))
    except LookupError:
        return None


def detect_language(lines: Sequence[str]) -> str | None:
    """Identifies the language of a text; None if it has few letters, or its parts do not agree on one language."""
    sample = [line for line in lines[:: -(-len(lines) // SAMPLE_LINES) or 1] if line.strip()]
    letters = count_letters(sample)
    if letters.total() < MIN_LETTERS:
        return None
    if letters["Kana"] >= MIN_KANA_SHARE * (letters["Kana"] + letters["Han"]):
        letters["Kana"] += letters.pop("Han", 0)
    script, n_letters = letters.most_common(1)[0]
    if script in LANGUAGE_OF_SCRIPT:
        return LANGUAGE_OF_SCRIPT[script] if n_letters >= letters.total() / 2 else None
    if letters.total() < MIN_SAMPLE_LETTERS:
        return None
    from py3langid import classify  # loads a model, which takes a second

    parts = [" ".join(sample[start : start + LINES_AT_ONCE]) for start in range(0, len(sample), LINES_AT_ONCE)]
    language, votes = Counter(classify(part)[0] for part in parts).most_common(1)[0]
    return parse_language(language) if votes >= MIN_AGREEMENT * len(parts) else None


def _language_of_file(path: str) -> str | None:
    suffixes = PurePath(path).suffixes
    while suffixes and suffixes[-1].lower() in COMPRESSIONS | GENERIC_SUFFIXES:
        suffixes.pop()
    return _parse_name(suffixes[-1][1:]) if suffixes else None


def _parse_name(name: str) -> str | None:
    """Parses the part of a name; other words are codes of rare languages too, e.g. `src`, `tgt` and `txt`.

    Therefore, only languages with a code of two letters count, unless a script or region follows (`ceb_Latn`).
    """
    import langcodes

    language = parse_language(name)
    if language is None or "-" in name or "_" in name or name.lower() in COMMON_CODES:
        return language
    canonical = langcodes.standardize_tag(name)
    is_current = len(name) > 2 or canonical == name.lower()
    return language if len(canonical) == 2 and is_current else None
