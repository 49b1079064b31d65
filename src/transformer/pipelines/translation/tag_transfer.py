"""Transfers the inline tags of a line to its translation, which was made without them."""

from collections.abc import Sequence
from dataclasses import replace

from transformer.pipelines.translation.alignment import Aligner
from transformer.pipelines.translation.inline_tags import TagFreeLine, count_units, restore_tags, tagged_word_ids
from transformer.pipelines.translation.results import Alternative, Translation


def transfer_tags(
    aligner: Aligner, line: str, tag_free: TagFreeLine, translation: Translation, source_units: Sequence[int]
) -> Translation:
    """Inserts the tags of a line into its translation, around the units that attend to the units they enclosed.

    Args:
        aligner: Aligner of the translation model.
        line: Line with tags.
        tag_free: The same line without its tags.
        translation: Translation of the line without tags.
        source_units: For each unit that the model sees, the unit of the line without tags, see `seen_units`.
    """
    alternatives: list[Alternative] = []
    flags = list(translation.flags)
    for rank, alternative in enumerate(translation.alternatives):
        segments = list(zip(translation.sources, alternative.tokens, strict=True))
        origins = aligner.origins(segments, source_units, count_units(alternative.text))
        text, empty = restore_tags(tag_free, alternative.text, origins)
        alternatives.append(replace(alternative, text=text))
        flags += [f"no word corresponds to the content of {tag!r}; the tag is empty" for tag in empty if not rank]
    best = alternatives[0].text
    word_ids = tagged_word_ids(tag_free.text, line)
    sources = (
        word_ids
        if translation.words is None
        else [word_ids[min(word, len(word_ids) - 1)] for word in translation.words[0]]
    )
    words = sources, tagged_word_ids(translation.text, best)
    return replace(translation, alternatives=tuple(alternatives), flags=tuple(flags), words=words)
