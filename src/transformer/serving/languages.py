"""Language tags of requests, compared with those of models."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from transformer.text.languages import parse_language

MAX_TAG: Final = 35
"""Number of characters of the longest tags; longer ones would fill the memory of tags seen."""
NORWEGIAN, BOKMAL = "no", "nb"
"""Tags of one language: Norwegian is written as Bokmål unless a tag says Nynorsk."""


def canonical_tag(tag: str) -> str:
    """Returns a tag in its canonical form, e.g. `pt-BR` for `PT_br`; empty if it is none."""
    return _parse(tag) if tag.isascii() and 2 <= len(tag) <= MAX_TAG else ""


@lru_cache(maxsize=1024)
def _parse(tag: str) -> str:
    return parse_language(tag.replace("_", "-")) or ""


def base_language(tag: str) -> str:
    """Returns the language of a canonical tag without script and region, e.g. `pt` for `pt-BR`."""
    language = tag.partition("-")[0]
    return NORWEGIAN if language == BOKMAL else language


def matching_tag(tag: str, served: Iterable[str]) -> str | None:
    """Returns the served tag that suits a requested one: the same, or else the first of the same language.

    Args:
        tag: Requested tag, e.g. `DE`, `de-AT` or `EN-GB`.
        served: Tags to choose from.

    Returns:
        One of `served` as it is written there; None if none suits.
    """
    wanted = canonical_tag(tag)
    if not wanted:
        return None
    by_canonical = {canonical_tag(one): one for one in reversed(list(served))}
    if wanted in by_canonical:
        return by_canonical[wanted]
    same_language = (
        one for canonical, one in by_canonical.items() if base_language(canonical) == base_language(wanted)
    )
    return next(reversed(list(same_language)), None)


@lru_cache(maxsize=1024)
def language_name(tag: str) -> str:
    """Returns the English name of a language, e.g. `German`."""
    import langcodes  # takes a moment to load

    return langcodes.Language.get(tag).display_name()
