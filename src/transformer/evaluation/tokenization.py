"""Tokenization of BLEU: which one fits a text, by its language and script."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

from transformer.text.languages import (
    HAN,
    KANA,
    count_letters,
    is_japanese,
    language_name,
    language_of_script,
    script_of_language,
)

Tokenization = Literal["13a", "intl", "zh", "char", "ja-mecab", "none"]
"""Tokenizations of sacrebleu; `none` is for text that is already tokenized."""
TokenizationChoice = Literal["auto", Tokenization]
"""`auto` takes the one that fits the references."""
UNSPACED: Final = frozenset({"zh", "char", "ja-mecab"})
"""Tokenizations for text without spaces between words."""

TOKENIZATION_OF_SCRIPT: Final[dict[str, Tokenization]] = {
    "Hans": "zh", "Hant": "zh", "Hani": "zh", "Hanb": "zh", "Jpan": "char", "Hrkt": "char", "Hira": "char",
    "Kana": "char", "Thai": "char", "Khmr": "char", "Laoo": "char", "Mymr": "char", "Tibt": "char",
}  # fmt: skip
"""Tokenizations of scripts without spaces, by ISO 15924 code; `13a` for all other scripts."""
MIN_UNSPACED_SHARE: Final = 0.1
"""Minimum share of letters in scripts without spaces in a text that counts as written without them."""
SAMPLE_LINES: Final = 1000
LONGEST_WORDS: Final = {HAN: 3, KANA: 5}
"""Mean number of letters of words between spaces above which a text is not split into words; 10 in other scripts."""


def fitting_tokenization(lines: Sequence[str], language: str | None = None) -> Tokenization:
    """Returns the tokenization that fits a text.

    Args:
        lines: Reference translations.
        language: Their language as a BCP 47 tag. It decides unless the text is clearly in another script.
    """
    letters = count_letters(lines)
    unspaced = _unspaced_letters(letters)
    by_script = _tokenization_of_letters(letters, unspaced)
    if language is None:
        return by_script
    by_language = TOKENIZATION_OF_SCRIPT.get(script_of_language(language), "13a")
    if by_language == "13a":
        is_other_script = unspaced.total() > letters.total() / 2
    elif by_language == "zh":
        is_other_script = bool(letters) and by_script != "zh" and letters[HAN] <= unspaced.total() / 2
    else:
        is_other_script = bool(letters) and not unspaced
    return by_script if is_other_script else by_language


def tokenization_note(tokenization: Tokenization, lines: Sequence[str], language: str | None = None) -> str | None:
    """Describes in one line why a tokenization does not fit a text; None if it does."""
    fitting = fitting_tokenization(lines, language)
    if fitting == "13a":
        if tokenization not in ("char", "ja-mecab"):
            return None
        return f"BLEU tokenized by {tokenization} is for text without spaces between words; 13a fits this one"
    if tokenization in (fitting, "char"):
        return None
    script = _main_unspaced_script(lines) or script_of_language(language or "und")
    name = _script_language(script, fitting)
    if tokenization == "ja-mecab":
        return None if name == "Japanese" else f"BLEU tokenized by ja-mecab is for Japanese; {fitting} fits {name} text"
    if tokenization == "zh":
        return f"BLEU tokenized by zh does not split {name} text into characters; char does"
    if _is_segmented(lines, script):
        return None
    return f"BLEU tokenized by {tokenization} finds no words in {name} text, which has no spaces; {fitting} fits it"


def ter_note(lines: Sequence[str]) -> str | None:
    """Describes in one line that TER counts whole phrases as words; None if it does not.

    The Asian support of TER splits Chinese characters alone.
    """
    tokenization = fitting_tokenization(lines)
    if tokenization != "char" or _is_segmented(lines, script := _main_unspaced_script(lines)):
        return None
    name = _script_language(script, tokenization)
    return f"TER does not split {name} text into words, so it counts edits of phrases; BLEU and chrF are finer"


def _main_unspaced_script(lines: Sequence[str]) -> str:
    """Returns the most frequent script without spaces; empty if there is none."""
    return max(letters := _unspaced_letters(count_letters(lines)), key=letters.__getitem__, default="")


def _script_language(script: str, fitting: Tokenization) -> str:
    """Returns the name of the language that a script means in messages."""
    return language_name(language_of_script("Jpan" if fitting == "char" and script in (HAN, KANA) else script))


def _unspaced_letters(letters: Counter[str]) -> Counter[str]:
    return Counter({script: count for script, count in letters.items() if script in TOKENIZATION_OF_SCRIPT})


def _tokenization_of_letters(letters: Counter[str], unspaced: Counter[str]) -> Tokenization:
    if not unspaced or unspaced.total() < MIN_UNSPACED_SHARE * letters.total():
        return "13a"
    return "zh" if unspaced.most_common(1)[0][0] == HAN and not is_japanese(unspaced) else "char"


def _is_segmented(lines: Sequence[str], script: str) -> bool:
    """Whether spaces were put between the words of a text in a script without them."""
    sample = lines[:SAMPLE_LINES]
    counts = [count for line in sample for word in line.split() if (count := count_letters([word])[script])]
    return sum(counts) <= LONGEST_WORDS.get(script, 10) * len(counts)
