"""Translations with the tags of their lines, which were translated without them."""

from dataclasses import replace

from transformer.pipelines.translation.alignment import Aligner
from transformer.pipelines.translation.inline_tags import TagFreeLine, count_units, with_tags, words_with_tags
from transformer.pipelines.translation.results import Alternative, Translation


def tagged(aligner: Aligner, line: str, untagged: TagFreeLine, found: Translation) -> Translation:
    """A translation with the tags of its line, around the units that attend to those they enclosed.

    Args:
        aligner: tells which unit attends to which.
        line: as given.
        untagged: the same without its tags.
        found: the translation of that.
    """
    alternatives: list[Alternative] = []
    flags = list(found.flags)
    for number, each in enumerate(found.alternatives):
        pieces = list(zip(found.sources, each.tokens, strict=True))
        origins = aligner.origins(pieces, untagged.units, count_units(each.text))
        text, lost = with_tags(untagged, each.text, origins)
        alternatives.append(replace(each, text=text))
        flags += [f"no word goes with {tag!r}; it is empty" for tag in lost if not number]
    best = alternatives[0].text
    given = words_with_tags(untagged.text, line)
    sources = given if found.words is None else [given[min(word, len(given) - 1)] for word in found.words[0]]
    words = sources, words_with_tags(found.text, best)
    return replace(found, alternatives=tuple(alternatives), flags=tuple(flags), words=words)
