"""Checks of the texts that pipelines are given, with messages that say what to give instead."""

from collections.abc import Iterable, Mapping, Set

from transformer.errors import DataError, printable


def texts_of(texts: object, name: str) -> list[str]:
    """Returns texts as a list.

    Args:
        texts: List or other iterable of texts.
        name: Name of the argument in messages.

    Raises:
        DataError: `texts` is a single text, or a text contains half a character.
        TypeError: `texts` is not a list of texts.
    """
    if isinstance(texts, str):
        raise DataError(f"{name} is a single text and would be read letter by letter; give a list, e.g. [text]")
    if isinstance(texts, bytes | bytearray | Mapping | Set) or not isinstance(texts, Iterable):
        raise TypeError(f"{name}={_describe(texts)} is not a list of texts; {_advice(texts)}")
    result = list(texts)
    for index, text in enumerate(result):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{index}]={_describe(text)} is not a text; {_advice(text)}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{name}[{index}] contains half a character (a surrogate without its partner) at position "
                f"{error.start}; decode the text again, e.g. with errors='replace'"
            ) from None
    return result


def _describe(value: object) -> str:
    return f"{printable(f'{value!r:.60}')} ({type(value).__name__})"


def _advice(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return 'decode bytes first, e.g. with .decode("utf-8")'
    return "give a text or a list of texts, e.g. ['A man sleeps.']"
