"""Time of the text functions on long texts of one repeated piece, as hostile clients send: it grows in proportion."""

import time
from collections.abc import Callable

import pytest

from transformer.text.case import ALL_CASES, Truecaser, line_case
from transformer.text.languages import count_letters, rank_languages
from transformer.text.markup import element_spans, markup_tokens, unescape
from transformer.text.markup_templates import Markup, markup_template
from transformer.text.normalization import normalize_spaces, remove_invisible, split_outer_space
from transformer.text.number_comparison import compare_numbers
from transformer.text.number_writing import adapt_copied_numbers
from transformer.text.numbers import read_numbers
from transformer.text.plain_copy import PlainCopy
from transformer.text.sentences import sentence_spans
from transformer.text.spans import blank_addresses, blank_tags, without_addresses
from transformer.text.templates import plain_template

PIECES = [
    "x", " ", "7", ".", "1,", "-", "&#160;", "&", "&#", "&lt;", "<a ", "<b>", "<b></b>", "</b>", "<a b='",
    "<!--", "<![CDATA[", "<?", '"', "'", "(", ")", "{", "${", "%s", "a@", "a@b.c ", "http://", "www.a.",
    "http://a(b", "a.", "a.b-", "Ab ", "ABC ", "Hi. ", "… ", '"Hi," he said. ', "\u200d", "👩\u200d👩\u200d👧 ",
    "e\u0301", "猫", "猫。", "Dr. ", "A. ", "1. ", "\n", "a\n\n", "\r\n", "\t", "\u00a0", "½", "1 000 ", "1:30 ",
    "1/2/3 ", "five ", "6 June ", "5 %", "€5", "[a](b)", "- ", "ا", "3x", "a1", "\\n",
]  # fmt: skip
FUNCTIONS: dict[str, Callable[[str], object]] = {
    "case of lines": line_case,
    "truecasing": lambda text: Truecaser(lambda word: (len(word), 1), "de").truecase(text, ALL_CASES),
    "scripts": lambda text: count_letters([text]),
    "language": lambda text: rank_languages(text, ["en", "de"]),
    "markup": lambda text: markup_tokens(text, "html"),
    "XML": lambda text: markup_tokens(text, "xml"),
    "template of markup": lambda text: markup_template(text, "en", Markup()),
    "template of text": lambda text: plain_template(text, "en", may_join_lines=True),
    "entities": unescape,
    "elements": element_spans,
    "invisible characters": remove_invisible,
    "spaces": normalize_spaces,
    "outer space": split_outer_space,
    "copies without quotes": PlainCopy.of,
    "sentences": lambda text: sentence_spans(text, "en"),
    "German sentences": lambda text: sentence_spans(text, "de"),
    "Chinese sentences": lambda text: sentence_spans(text, "zh"),
    "addresses": lambda text: (without_addresses(text), blank_addresses(text), blank_tags(text)),
    "numbers": lambda text: read_numbers(text, "en"),
    "comparison of numbers": lambda text: compare_numbers((text, text[1:]), ("en", "de")),
    "separators": lambda text: adapt_copied_numbers(text, text, "de", "en"),
}
SHORT, FACTOR = 8000, 4
"""Number of characters of the shorter text, and of how many such texts the longer one is made."""


def cpu_seconds(function: Callable[[str], object], text: str) -> float:
    """Returns the least CPU time of two calls."""
    times = []
    for _ in range(2):
        started = time.process_time()
        function(text)
        times.append(time.process_time() - started)
    return min(times)


@pytest.mark.soak
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_time_grows_in_proportion(name: str) -> None:
    """Catches quadratic time, by which one request of 200 kB stops a server for minutes."""
    function = FUNCTIONS[name]
    for piece in PIECES:
        for before, after in (("", ""), ("x", "x"), ("<b>", "</b>")):
            short, long = (f"{before}{piece * (n // len(piece))}{after}" for n in (SHORT, FACTOR * SHORT))
            seconds = cpu_seconds(function, long)
            if seconds > 0.2:  # less is no danger, and cannot be told from noise
                assert seconds < FACTOR**1.5 * cpu_seconds(function, short) + 0.2, (piece, before, seconds)
