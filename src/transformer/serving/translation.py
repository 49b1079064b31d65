"""Translates the texts of requests: chooses models, splits texts into units of work, and joins the results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from transformer.serving.interfaces import Engine
from transformer.serving.settings import ServerSettings


@dataclass(frozen=True)
class TranslateOptions:
    """Options of a translation that every interface maps its own options to.

    Attributes:
        beam: Beam size; None is the server's.
        n_best: Number of translations of a text, the best included.
        glossary: Pairs of source and target term.
        protected: Kinds of spans to keep unchanged, see `Terminology.protected`.
        banned: Phrases that must not occur.
        alignment: Whether word alignments are returned.
        is_html: Whether texts are HTML: tags are restored, entities are text.
        ignored_tags: Names of elements whose contents are not translated.
        model: Name of the model to use; empty chooses one by the languages.
        may_pivot: Whether a pair without a model may be translated through a third language.
        length_penalty: Exponent of the paper's length penalty; None is the default.
    """

    beam: int | None = None
    n_best: int = 1
    glossary: tuple[tuple[str, str], ...] = ()
    protected: tuple[str, ...] = ()
    banned: tuple[str, ...] = ()
    alignment: bool = False
    is_html: bool = False
    ignored_tags: frozenset[str] = frozenset()
    model: str = ""
    may_pivot: bool = False
    length_penalty: float | None = None


@dataclass(frozen=True)
class TranslatedText:
    """Translation of one text of a request.

    Attributes:
        text: Best translation, with the line ends of the source.
        source: Language tag of the source, detected or given.
        confidence: Confidence of the detection, 0 to 100; 100 if the language was given.
        alternatives: Further translations, best first, without the best one.
        score: Sum of log-probabilities; 0 for a text without words.
        flags: Notes on its quality.
        alignment: Pairs of word positions (separated by white space) in source and translation; None if not asked for.
        source_tokens: Number of source tokens.
        target_tokens: Number of target tokens.
        models: Names of the models, two if it was translated through a third language.
    """

    text: str
    source: str
    confidence: float
    alternatives: tuple[str, ...] = ()
    score: float = 0.0
    flags: tuple[str, ...] = ()
    alignment: tuple[tuple[int, int], ...] | None = None
    source_tokens: int = 0
    target_tokens: int = 0
    models: tuple[str, ...] = ()


class TranslationService(Protocol):
    """Replaced by the implementation."""

    def __init__(self, engine: Engine, settings: ServerSettings, detector: object) -> None: ...

    def languages(self) -> dict[str, list[str]]:
        """Returns the target languages of each source language, by tag."""
        ...

    async def translate(
        self,
        texts: Sequence[str],
        source: str,
        target: str,
        options: TranslateOptions,
        *,
        client: str,
        deadline: float | None,
    ) -> list[TranslatedText]:
        """Translates texts; `source` is a tag, or "auto" for detection per text.

        Raises:
            ServiceError: No model translates the pair, or the engine fails.
        """
        ...
