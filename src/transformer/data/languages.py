"""The languages of a translation corpus: by its settings, the names of its files and columns, or its text."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformer.data.config import DataConfig, as_list
from transformer.data.readers import Pair
from transformer.text.languages import (
    AMBIGUOUS_CODES,
    detect_language,
    language_of_column,
    language_of_files,
    parse_language,
)


@dataclass(frozen=True)
class IdentifiedLanguage:
    """The language of one side of a corpus.

    Attributes:
        tag: BCP 47 tag; None if the language is unknown.
        origin: How it is known.
    """

    tag: str | None
    origin: str

    def __str__(self) -> str:
        return f"{self.tag or 'unknown'} ({self.origin})"


def identify_languages(
    settings: DataConfig, pairs: Sequence[Pair], pretrained: tuple[str | None, str | None] = (None, None)
) -> tuple[IdentifiedLanguage, IdentifiedLanguage]:
    """Identifies source and target language.

    Args:
        settings: The `data` section of the recipe.
        pairs: Text from which an unnamed language is detected.
        pretrained: Languages of the model that the run starts from.
    """
    return _identify(0, settings, pairs, pretrained), _identify(1, settings, pairs, pretrained)


def _identify(
    side: int, settings: DataConfig, pairs: Sequence[Pair], pretrained: tuple[str | None, str | None]
) -> IdentifiedLanguage:
    key = ("source_language", "target_language")[side]
    option: str | None = (settings.source_language, settings.target_language)[side]
    if option is not None:
        return IdentifiedLanguage(option, f"data.{key}")
    if settings.languages and (tag := parse_language(settings.languages[side])):
        return IdentifiedLanguage(tag, "data.languages")
    if settings.columns and (tag := language_of_column(str(settings.columns[side]))):
        return IdentifiedLanguage(tag, "name of its column")
    named = language_of_files(as_list((settings.source, settings.target)[side]))
    if named is not None and named not in AMBIGUOUS_CODES:
        return IdentifiedLanguage(named, "name of its file")
    detected = detect_language([pair[side] for pair in pairs]) if named or not pretrained[side] else None
    if named is not None and named == detected:
        return IdentifiedLanguage(named, "name of its file")
    doubt = f", the name of its file may not mean {named}" if named else ""
    if tag := pretrained[side]:
        return IdentifiedLanguage(tag, f"as in the model that the run starts from{doubt}")
    if detected:
        return IdentifiedLanguage(detected, f"detected{doubt}")
    return IdentifiedLanguage(None, f"set data.{key}{doubt}")
