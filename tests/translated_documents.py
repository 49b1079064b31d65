"""Documents translated by functions that need no model."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from transformer.documents.document import Document, Mark
from transformer.documents.formats import format_named
from transformer.pipelines.translation.documents import DocumentOptions, DocumentReport, DocumentTranslator
from transformer.pipelines.translation.results import EMPTY_ALTERNATIVE, Translation
from transformer.text.spans import KEPT_KINDS, kept_pattern

KEPT_SPANS = kept_pattern(KEPT_KINDS)


def swap_case(text: str) -> str:
    """Swaps the case of the ASCII letters outside tags, placeholders, addresses etc."""
    parts, position = list[str](), 0
    for match in KEPT_SPANS.finditer(text):
        parts += [_swapped(text[position : match.start()]), match[0]]
        position = match.end()
    return "".join([*parts, _swapped(text[position:])])


def _swapped(text: str) -> str:
    return "".join(letter.swapcase() if letter.isascii() else letter for letter in text)


def translate_by(function: Callable[[str], str]) -> Callable[[Sequence[str]], list[Translation]]:
    """Returns a function that translates lines by a function of a line."""
    return lambda lines: [Translation((replace(EMPTY_ALTERNATIVE, text=function(line)),)) for line in lines]


def translated(
    content: bytes,
    form: str,
    function: Callable[[str], str] = swap_case,
    *,
    languages: tuple[str, str] = ("en", "de"),
    mark: Mark = "all",
    only_untranslated: bool = True,
    fuzzy: bool = False,
) -> tuple[bytes, DocumentReport]:
    """Returns a document translated by a function of a line, and the report."""
    options = DocumentOptions(only_untranslated, fuzzy, mark)
    translator = DocumentTranslator(translate_by(function), languages, options=options)
    return translator(parsed(content, form), "name")


def parsed(content: bytes, form: str) -> Document:
    """Returns a document."""
    return format_named(form).parse(content, "name")
