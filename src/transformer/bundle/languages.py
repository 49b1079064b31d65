"""Languages of a translation model, as its bundle records them."""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from transformer.bundle.bundle import Bundle
from transformer.config import JsonObject
from transformer.text.languages import AMBIGUOUS_CODES, language_of_files, parse_language
from transformer.tokenizers.huggingface_files import CONFIG_FILE

LANGUAGES: Final = "languages"
"""Key of the provenance."""
PAIRS: Final = "pairs"
"""Key of that entry for a model of several languages."""
SIDES: Final = ("source", "target")


def language_entries(source: str | None, target: str | None) -> dict[str, dict[str, str]]:
    """Returns the entry of the provenance that records the languages of a model; empty if both are unknown."""
    tags = {side: tag for side, tag in zip(SIDES, (source, target), strict=True) if tag is not None}
    return {LANGUAGES: tags} if tags else {}


def pair_entries(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, list[list[str]]]]:
    """Returns the entry of the provenance that records the directions that a model of several languages learned."""
    return {LANGUAGES: {PAIRS: [list(pair) for pair in dict.fromkeys(pairs)]}}


def recorded_pairs(bundle: Bundle) -> tuple[tuple[str, str], ...]:
    """Returns the directions that a model of several languages learned, as BCP 47 tags; none for other models."""
    return pairs_of_provenance(bundle.provenance)


def pairs_of_provenance(provenance: JsonObject) -> tuple[tuple[str, str], ...]:
    """Same as `recorded_pairs`, from the provenance alone."""
    pairs = _mapping(provenance.get(LANGUAGES)).get(PAIRS)
    parsed = [tuple(map(_parse, pair)) for pair in pairs if isinstance(pair, list)] if isinstance(pairs, list) else []
    return tuple((pair[0], pair[1]) for pair in parsed if len(pair) == 2 and pair[0] and pair[1])


def recorded_languages(bundle: Bundle) -> tuple[str | None, str | None]:
    """Returns the source and the target language of a model as BCP 47 tags; None for a language that is unknown."""
    return languages_of_provenance(bundle.provenance)


def languages_of_provenance(provenance: JsonObject) -> tuple[str | None, str | None]:
    """Same as `recorded_languages`, from the provenance alone.

    Bundles of earlier versions record the training files alone, whose names may contain the languages.
    """
    tags = _mapping(provenance.get(LANGUAGES))
    data = _mapping(_mapping(provenance.get("recipe")).get("data"))
    source, target = (_parse(tags.get(side)) or _language_of_files(data.get(side)) for side in SIDES)
    return source, target


def published_languages(files: Mapping[str, bytes]) -> tuple[str | None, str | None]:
    """Returns the languages that the tokenizer of a published translation model names, as OPUS-MT models do.

    Args:
        files: Contents of the published files by name.
    """
    settings = _mapping(json.loads(files.get(CONFIG_FILE, b"{}")))
    return _parse(settings.get("source_lang")), _parse(settings.get("target_lang"))


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _parse(tag: object) -> str | None:
    return parse_language(tag) if isinstance(tag, str) else None


def _language_of_files(paths: object) -> str | None:
    names = paths if isinstance(paths, list) else [paths]
    tag = language_of_files(name for name in names if isinstance(name, str))
    return None if tag in AMBIGUOUS_CODES else tag
