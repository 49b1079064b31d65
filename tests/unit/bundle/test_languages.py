"""Languages that bundles record."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from transformer.bundle.languages import language_entries, published_languages, recorded_languages


@pytest.mark.parametrize(
    ("provenance", "languages"),
    [
        ({}, (None, None)),
        (language_entries("en", "zh-Hant"), ("en", "zh-Hant")),
        (language_entries(None, "de"), (None, "de")),
        ({"languages": {"source": 3, "target": ["de"]}}, (None, None)),
        ({"languages": "en"}, (None, None)),
        ({"recipe": {"data": {"source": "corpus/train.en", "target": ["a.de", "b.de"]}}}, ("en", "de")),
        ({"recipe": {"data": {"source": 7, "target": [7]}}}, (None, None)),
        ({"recipe": None}, (None, None)),
        ({"languages": {"source": "fr"}, "recipe": {"data": {"source": "a.en", "target": "a.de"}}}, ("fr", "de")),
    ],
)
def test_recorded_languages(provenance: dict[str, Any], languages: tuple[str | None, str | None]) -> None:
    """Catches a hostile or an old provenance that raises, and an old bundle whose file names are not read."""
    assert recorded_languages(SimpleNamespace(provenance=provenance)) == languages


def test_published_models_name_their_languages() -> None:
    """Catches codes of language groups that are taken for a language, and settings of other types."""

    def read(**settings: object) -> tuple[str | None, str | None]:
        return published_languages({"tokenizer_config.json": json.dumps(settings).encode()})

    assert read(source_lang="eng", target_lang="zho") == ("en", "zh")
    assert read(source_lang="en", target_lang="mul") == ("en", None)
    assert read(source_lang=None, target_lang=3) == (None, None)
    assert published_languages({}) == (None, None)
