"""Languages of text: their BCP 47 tags and names, their scripts (ISO 15924), and their detection."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import PurePath
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np
import regex
from numpy.typing import NDArray

from transformer.text.lines import COMPRESSIONS

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# Tags and names. langcodes is imported where it is used, since it takes a moment to load.

NO_LANGUAGES: Final = frozenset({"mis", "mul", "und", "zxx"})
"""Codes for text of several languages, of an unknown one, or of none."""
ALIASES: Final = {"pb": "pt-BR", "zt": "zh-Hant"}
"""Codes of LibreTranslate that are not the tags of the languages they stand for."""
CANONICAL: Final = frozenset({
    "ar", "cs", "da", "de", "el", "en", "es", "fi", "fr", "hi", "hu", "it", "ja", "ko", "nl", "pl", "pt", "ro", "ru",
    "sv", "tr", "uk", "vi", "zh",
})  # fmt: skip
"""Frequent tags in their canonical form, for which langcodes need not be loaded."""
MAX_TAG: Final = 35
"""Number of characters of the longest tags; longer ones would fill the memory of tags seen."""
NORWEGIAN, BOKMAL = "no", "nb"
"""Tags of one language: Norwegian is written as Bokmål unless a tag says Nynorsk."""


def parse_language(tag: str) -> str | None:
    """Returns a tag in its canonical form, e.g. `de` for `deu`, `pt-BR` for `PT_br`; None if it names no language."""
    tag = tag.strip()
    if tag in CANONICAL:
        return tag
    return _parse(tag) if tag.isascii() and 2 <= len(tag) <= MAX_TAG else None


@lru_cache(maxsize=1024)
def _parse(tag: str) -> str | None:
    import langcodes

    tag = ALIASES.get(tag.lower(), tag.replace("_", "-"))
    if not langcodes.tag_is_valid(tag) or tag.partition("-")[0].lower() in NO_LANGUAGES:
        return None
    return langcodes.standardize_tag(tag, macro=True)


def base_language(tag: str) -> str:
    """Returns the language of a tag without script and region, e.g. `pt` for `PT_br`; empty if it names none."""
    language = (parse_language(tag) or "").partition("-")[0]
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
    wanted = parse_language(tag)
    if not wanted:
        return None
    same_language = [other for other in served if base_language(other) == base_language(wanted)]
    same_script = [other for other in same_language if script_of_language(other) == script_of_language(wanted)]
    same = [other for other in same_script if parse_language(other) == wanted]
    fitting = same or same_script or ([] if "-" in wanted else same_language)
    return fitting[0] if fitting else None


@lru_cache(maxsize=1024)
def language_name(tag: str) -> str:
    """Returns the English name of a language, e.g. `German`."""
    import langcodes

    return langcodes.Language.get(tag).display_name()


@lru_cache(maxsize=1024)
def script_of_language(tag: str) -> str:
    """Returns the usual script of a language, e.g. `Hans` for `zh` and `Hant` for `zh-TW`, by likely subtags."""
    import langcodes

    return langcodes.Language.get(tag).maximize().script or ""


def language_of_script(script: str) -> str:
    """Returns the language most often written in a script, e.g. `th` for `Thai`, by likely subtags."""
    import langcodes

    return langcodes.Language.make(script=script).maximize().language or ""


def script_name(script: str) -> str:
    """Returns the English name of a script, e.g. `Cyrillic` for `Cyrl`."""
    import langcodes

    return langcodes.Language.make(script=script).script_name()


# Languages by the names of files and columns.

GENERIC_SUFFIXES: Final = frozenset({".txt", ".text"})
COMMON_CODES: Final = frozenset({"cmn", "fil", "tl", "yue"})
"""Codes that name files of corpora although they have no code of two letters, or are no longer current."""
AMBIGUOUS_CODES: Final = frozenset({
    "aa", "ab", "ae", "ba", "bi", "bo", "br", "ch", "co", "cr", "cu", "ee", "gn", "ie", "io", "kr", "kw", "lu",
    "mh", "na", "ng", "om", "pi", "sc", "sd", "se", "sg", "sm", "ss", "st", "tk", "tn", "to", "ts", "tt", "tw",
    "ve", "za",
})  # fmt: skip
"""Codes of languages that name a country, a part of a file or a program far more often as the suffix of a file."""
MIN_NAME: Final = 4
"""Minimum length of the name of a language in Latin letters; shorter words are codes of languages."""
_LANGUAGE_NAME: Final = regex.compile(r"[\p{L}\p{M} ()'’-]{1,40}")


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


def _language_of_file(path: str) -> str | None:
    suffixes = PurePath(path).suffixes
    while suffixes and suffixes[-1].lower() in {*COMPRESSIONS, *GENERIC_SUFFIXES}:
        suffixes.pop()
    return _parse_name(suffixes[-1][1:]) if suffixes else None


def _parse_name(name: str) -> str | None:
    """Parses a part of a file name as a language.

    Words such as `src`, `tgt` and `txt` are codes of rare languages. Therefore, only codes of two letters count, unless
    a script or region follows (`ceb_Latn`).
    """
    import langcodes

    language = parse_language(name)
    if language is None or "-" in name or "_" in name or name.lower() in COMMON_CODES:
        return language
    canonical = langcodes.standardize_tag(name)
    is_current = len(name) > 2 or canonical == name.lower()
    return language if len(canonical) == 2 and is_current and canonical not in ALIASES else None


# Scripts of characters, by the properties of Unicode that `regex` knows.

HAN, KANA = "Hani", "Hrkt"
"""Chinese characters; Hiragana and Katakana, which count as one script."""
SHARED_SCRIPTS: Final = frozenset({"Arab", "Beng", "Cyrl", "Deva", "Ethi", "Latn", "Mong"})
"""Scripts of many languages, which do not identify one."""
SCRIPTS: Final = ("", *sorted({
    *SHARED_SCRIPTS, HAN, KANA, "Armn", "Geor", "Grek", "Gujr", "Guru", "Hang", "Hebr", "Khmr", "Knda", "Laoo", "Mlym",
    "Mymr", "Orya", "Sinh", "Taml", "Telu", "Thai", "Tibt",
}))  # fmt: skip
"""Scripts that are counted; the first stands for characters that are letters of none of them."""
MIN_KANA_SHARE: Final = 0.05
"""Minimum share of kana among kana and Chinese characters in a Japanese text."""
CHUNK_LINES: Final = 4096


def count_letters(lines: Sequence[str]) -> Counter[str]:
    """Counts the letters of each script, and their marks; characters that belong to no single script do not count."""
    counts = np.zeros(len(SCRIPTS), np.int64)
    for start in range(0, len(lines), CHUNK_LINES):
        codes = code_points("".join(lines[start : start + CHUNK_LINES]))
        counts += np.bincount(script_indices(codes), minlength=len(SCRIPTS))
    return Counter({script: int(count) for script, count in zip(SCRIPTS, counts, strict=True) if script and count})


def is_japanese(letters: Counter[str]) -> bool:
    """Whether enough of the Chinese characters and kana among the letters of a text are kana."""
    return letters[KANA] > 0 and letters[KANA] >= MIN_KANA_SHARE * (letters[KANA] + letters[HAN])


def script_indices(codes: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Returns the index in `SCRIPTS` of the script of each code point."""
    return _script_table()[codes]


def code_points(text: str) -> NDArray[np.int64]:
    """Returns the code points of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)


@cache
def _script_table() -> NDArray[np.uint8]:
    """Returns the index of the script of every code point."""
    classes = (r"\p{scx=Hira}\p{scx=Kana}" if script == KANA else rf"\p{{{script}}}" for script in SCRIPTS[1:])
    letters = regex.compile("|".join(rf"([[{script}]&&[\p{{L}}\p{{M}}]]+)" for script in classes), regex.VERSION1)
    table = np.zeros(sys.maxunicode + 1, np.uint8)
    for run in letters.finditer("".join(map(chr, range(0x40000)))):  # no letters are assigned above
        table[run.start() : run.end()] = run.lastindex or 0
    return table


# Detection of the language of a text. py3langid is imported where it is used, since its model takes a second to load.

MIN_LETTERS: Final = 40
"""Minimum number of letters of a file whose language is detected."""
MIN_SAMPLE_LETTERS: Final = 500
"""Minimum number of letters of a text in one of the `SHARED_SCRIPTS`."""
SAMPLE_LINES, LINES_AT_ONCE, MIN_AGREEMENT = 500, 5, 0.8
SAMPLE_CHARACTERS: Final = 2000
"""Number of characters at the beginning of a text of a request that are looked at."""
FALLBACK: Final = "en"
"""Language assumed for a text that shows none, if it is among the choices."""
_LOADING: Final = Lock()


@dataclass(frozen=True)
class Detection:
    """A language that a text may be in.

    Attributes:
        language: Tag, as the caller of `rank_languages` wrote it.
        confidence: Probability in percent that the text is in this language rather than in the most probable other
            one of all languages, whether it is one to choose from or not; 0 for a text without letters.
        probability: Probability among all languages; 0 for a text without letters.
    """

    language: str
    confidence: float
    probability: float = 0.0


def detect_language(lines: Sequence[str]) -> str | None:
    """Identifies the language of a file; None if it has few letters, or its parts do not agree on one language.

    Also None if the disk is too full for the temporary file that the identifier needs while it is loaded.
    """
    sample = [line for line in lines[:: -(-len(lines) // SAMPLE_LINES) or 1] if line.strip()]
    letters = count_letters(sample)
    if letters.total() < MIN_LETTERS:
        return None
    if is_japanese(letters):
        letters["Jpan"] = letters.pop(KANA) + letters.pop(HAN, 0)
    script, n_letters = letters.most_common(1)[0]
    if script not in SHARED_SCRIPTS:
        return language_of_script(script) if n_letters >= letters.total() / 2 else None
    if letters.total() < MIN_SAMPLE_LETTERS:
        return None
    try:
        identifier = _identifier()
    except OSError:
        return None
    parts = [" ".join(sample[start : start + LINES_AT_ONCE]) for start in range(0, len(sample), LINES_AT_ONCE)]
    language, votes = Counter(identifier.classify(part)[0] for part in parts).most_common(1)[0]
    return parse_language(language) if votes >= MIN_AGREEMENT * len(parts) else None


def classify(text: str) -> tuple[str, float]:
    """Returns the most probable language of a text, and its probability; 0 if the identifier cannot be loaded."""
    try:
        language, probability = _identifier().classify(text[:SAMPLE_CHARACTERS])
    except OSError:
        return FALLBACK, 0.0
    return language, float(probability)


def rank_languages(text: str, languages: Sequence[str]) -> list[Detection]:
    """Ranks the given languages by the probability that a short text is in them; returns at least one.

    Args:
        text: Text of a request. Its first `SAMPLE_CHARACTERS` are looked at.
        languages: Tags to choose from, at least one; of several tags of one language, the first.
    """
    text = text[:SAMPLE_CHARACTERS]
    default = FALLBACK if FALLBACK in languages else languages[0]
    if not any(map(str.isalpha, text)):
        return [Detection(default, 0.0)]
    probabilities: dict[str, float] = dict(_identifier().rank(text))
    tags = {base_language(tag): tag for tag in reversed(languages)}
    known = [language for language in tags if language in probabilities]
    known.sort(key=lambda language: (-probabilities[language], tags[language] != default))
    detections = [
        Detection(tags[language], _confidence(language, probabilities), probabilities[language]) for language in known
    ]
    return detections or [Detection(default, 0.0)]


def _confidence(language: str, probabilities: dict[str, float]) -> float:
    probability = probabilities[language]
    other = max((value for name, value in probabilities.items() if name != language), default=0.0)
    return round(100 * probability / (probability + other), 1) if probability else 0.0


def _identifier() -> "LanguageIdentifier":
    with _LOADING:  # requests arrive in several threads
        return _load_identifier()


@cache
def _load_identifier() -> "LanguageIdentifier":
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.nb_classes = [base_language(label) or label for label in identifier.nb_classes]
    return identifier
