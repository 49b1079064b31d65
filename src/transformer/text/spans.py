"""Spans of a text that a translation keeps as they are: addresses, tags, entities, placeholders, numbers."""

from typing import Final

import regex

from transformer.text.markup import ENTITY, TAG

_BRACKETED: Final = r"\([^\s<>\"'()]*\)"
ADDRESS: Final = regex.compile(
    r"(?:(?:https?|ftps?|sftp|file)://|www\.)"
    rf"(?:{_BRACKETED}|(?!{_BRACKETED})[^\s<>\"'])*(?:{_BRACKETED}|(?!{_BRACKETED})[^\s<>\"'.,;:!?)\]}}])"
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
PATTERNS: Final[dict[str, str]] = {
    "urls": ADDRESS.pattern,
    "tags": TAG.pattern,
    "entities": ENTITY,
    "placeholders": r"\{\{[^{}]*\}\}|\$\{[^{}]*\}|\{[\w.:!-]*\}"
    r"|(?<!%)%(?:\d+\$|\([\w.]+\))?[-+#]?\d*(?:\.\d+)?[a-zA-Z@](?!\w)|%\w+%"
    r"|(?<![\w%])%\d{1,2}(?![\w%]|[.,]\d)",
    "numbers": r"(?<![\w.,:/])\d++(?:[.,:/x×-]\d++)*+(?!\w)",
}
"""Patterns by kind, for `regex`: possessive quantifiers of `re` match wrongly in early versions of Python 3.11."""


def without_addresses(text: str) -> str:
    """Returns a text without its addresses, and without words that are the names of hosts."""
    return _DOMAIN.sub("", ADDRESS.sub("", text))


def blank_tags(text: str) -> str:
    """Returns a text with spaces instead of its tags."""
    return TAG.sub(lambda match: " " * len(match[0]), text)


def blank_addresses(text: str) -> str:
    """Returns a text with spaces instead of its addresses."""
    return ADDRESS.sub(lambda match: " " * len(match[0]), text)
