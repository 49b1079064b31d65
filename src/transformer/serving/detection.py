"""Detection of the language of texts, among languages that the server knows."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, Final

from transformer.text.languages import base_language, canonical_tag
from transformer.text.sentences import has_letter

SAMPLE: Final = 2000
"""Number of characters at the beginning of a text that are looked at."""
FALLBACK: Final = "en"
"""Language of a text that has no sign of any, if the server knows it."""


@dataclass(frozen=True)
class Detection:
    """A language that a text may be in.

    Attributes:
        language: Tag, as the caller of `Detector.detect` wrote it.
        confidence: Probability in percent that the text is in this language rather than in the most probable other
            one of all languages, whether the server knows that or not; 0 for a text without letters.
        probability: Probability among all languages; 0 for a text without letters.
    """

    language: str
    confidence: float
    probability: float = 0.0


class Detector:
    """Detects languages with py3langid, whose model is loaded by the first text."""

    def __init__(self) -> None:
        self._loading = Lock()

    async def detect(self, texts: Sequence[str], languages: Sequence[str]) -> list[list[Detection]]:
        """Returns for each text the given languages that can be detected, most probable first.

        The work is done in a thread, since the model takes a second to load.

        Args:
            texts: Texts of any length. Each is judged alone.
            languages: Tags to choose from, at least one.
        """
        return await asyncio.to_thread(lambda: [self._rank(text[:SAMPLE], languages) for text in texts])

    def _rank(self, text: str, languages: Sequence[str]) -> list[Detection]:
        default = FALLBACK if FALLBACK in languages else languages[0]
        if not has_letter(text):
            return [Detection(default, 0.0)]
        with self._loading:
            identifier = self._identifier
        probabilities: dict[str, float] = dict(identifier.rank(text))
        labels = {language: _label(language, probabilities) for language in reversed(languages)}
        known = {label: language for language, label in labels.items() if label}
        ranked = sorted(known, key=lambda label: (-probabilities[label], known[label] != default))
        detections = [
            Detection(known[label], _confidence(label, probabilities), probabilities[label]) for label in ranked
        ]
        return detections or [Detection(default, 0.0)]

    @cached_property
    def _identifier(self) -> Any:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _label(language: str, probabilities: dict[str, float]) -> str | None:
    """Returns the label of a language in the model; None if the model does not know it."""
    label = base_language(canonical_tag(language))
    return label if label in probabilities else None


def _confidence(label: str, probabilities: dict[str, float]) -> float:
    probability = probabilities[label]
    other = max((value for name, value in probabilities.items() if name != label), default=0.0)
    return round(100 * probability / (probability + other), 1) if probability else 0.0
