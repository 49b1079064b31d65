"""Translates the texts of requests: chooses models, splits texts into units of work, and joins the results."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Engine, Item, Job
from transformer.serving.pairs import LanguagePairs, Route, Step
from transformer.serving.piece_results import PieceResult, joined_confidence, joined_flags, pivoted, read_result
from transformer.serving.settings import ServerSettings
from transformer.text.languages import Detection, matching_tag, parse_language, rank_languages
from transformer.text.line_splitting import word_indices
from transformer.text.markup_templates import Markup, markup_template
from transformer.text.spans import PATTERNS
from transformer.text.templates import Template, plain_template

AUTO: Final = "auto"
"""Source language of a request whose texts' languages are to be detected."""
ZERO_SHOT: Final = "the model did not learn this pair of languages from any text; the translation may be poor"
"""Flag of translations by a model of several languages between two whose pair it did not learn."""
MIN_TARGET_SHARE: Final = 0.8
"""Probability from which a text is in the target language already rather than in the most probable source language."""
MANY_CHARACTERS: Final = 20_000
"""Number of characters above which texts are split in a thread, so that other requests need not wait."""


@dataclass(frozen=True)
class TranslateOptions:
    """Options of a translation that every interface maps its own options to; see also `TranslateFields`.

    Attributes:
        beam: Beam size; None is the server's.
        n_best: Number of translations of a text, the best included.
        alignment: Whether word alignments are returned; texts with markup have none.
        markup: How the markup of the texts is read; None for plain text.
        may_join_lines: Whether a line end is a space, except beside an empty line.
    """

    beam: int | None = None
    n_best: int = 1
    glossary: tuple[tuple[str, str], ...] = ()
    protected: tuple[str, ...] = ()
    banned: tuple[str, ...] = ()
    alignment: bool = False
    markup: Markup | None = None
    may_join_lines: bool = False
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
        expected_chrf: Lowest confidence of its parts, from 0 to 1, see `Translation.confidence`; None if it is unknown.
        unsure: First and last word of the translation of each unsure part; empty for a text with markup.
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
    expected_chrf: float | None = None
    unsure: tuple[tuple[int, int], ...] = ()


class TranslationService:
    """Translates texts of any length with the models of an engine.

    Args:
        engine: Runs the models.
        settings: Settings of the server.

    Attributes:
        characters: Number of translated characters by owner, see `Call.owner`; routes count.
    """

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self._engine, self._settings = engine, settings
        self.characters: Counter[str] = Counter()
        parse_language("en")  # loads the tables of languages now, since the first request would wait a second

    def languages(self) -> dict[str, list[str]]:
        """Returns the target languages of each source language, by tag; without those through a third language."""
        return self._pairs().targets()

    async def detect(self, texts: Sequence[str], languages: Sequence[str]) -> list[list[Detection]]:
        """Detects the languages that each text may be in, see `rank_languages`.

        The work is done in a thread, since the model takes a second to load.
        """
        return await asyncio.to_thread(lambda: [rank_languages(text, languages) for text in texts])

    def check_request(self, source: str, target: str, options: TranslateOptions) -> None:
        """Checks options and languages before there are texts.

        Raises:
            ServiceError: A limit is exceeded, an option is unknown, or no model translates the pair.
        """
        self._check((), options)
        pairs = self._pairs()
        if source == AUTO:
            pairs.sources(target, options.model, may_pivot=options.may_pivot)
        else:
            known = pairs.known_source(source, target, options.model)
            pairs.route(known, target, options.model, may_pivot=options.may_pivot)

    async def source_language(self, text: str, source: str, target: str, options: TranslateOptions) -> str:
        """Returns the tag of the language of a text that is to be translated; `source` is a tag, or "auto".

        Raises:
            ServiceError: No model translates the pair, or the named one does not.
        """
        language = (await self._sources([text], source, target, options))[0].language
        self._pairs().route(language, target, options.model, may_pivot=options.may_pivot)
        return language

    async def translate(
        self,
        texts: Sequence[str],
        source: str,
        target: str,
        options: TranslateOptions,
        *,
        client: str,
        deadline: float | None,
        is_checked: bool = False,
    ) -> list[TranslatedText]:
        """Translates texts; `source` is a tag, or "auto" for detection per text.

        The limits on a request do not hold for a part of a document, whose own limits were checked (`is_checked`).

        Tags match loosely: `de-AT` is translated by a model for `de`. A text that is in the target language already is
        returned as it is.

        Raises:
            ServiceError: A limit is exceeded, no model translates the pair, or the engine fails.
        """
        if not is_checked:
            self._check(texts, options)
        self._engine.check_capacity()  # before texts are split, which takes longer than all else of a refusal
        detections = await self._sources(texts, source, target, options)
        routes = {tag: self._pairs().route(tag, target, options.model, may_pivot=options.may_pivot)
                  for tag in {detection.language for detection in detections}}  # fmt: skip
        indices: defaultdict[str, list[int]] = defaultdict(list)
        for index, detection in enumerate(detections):
            indices[detection.language].append(index)
        translated: list[TranslatedText] = [
            TranslatedText(text, detection.language, detection.confidence)
            for text, detection in zip(texts, detections, strict=True)
        ]

        async def translate_language(tag: str, chosen: Sequence[int]) -> None:
            untranslated = [translated[index] for index in chosen]
            done = await self._translate_route(untranslated, routes[tag], options, client, deadline)
            for index, text in zip(chosen, done, strict=True):
                translated[index] = text

        failure: ServiceError | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for tag, chosen in indices.items():
                    group.create_task(translate_language(tag, chosen))
        except* ServiceError as failures:
            failure = _first_error(failures)  # the first versions of Python 3.11 would put one raised here into a group
        if failure is not None:
            raise failure from None
        return translated

    def _pairs(self) -> LanguagePairs:
        return LanguagePairs(self._engine.models)

    def _check(self, texts: Sequence[str], options: TranslateOptions) -> None:
        """Checks the limits.

        Raises:
            ServiceError: One is exceeded, or an option is unknown.
        """
        limits = self._settings.limits
        n_characters = sum(map(len, texts))
        for name, value, limit in (
            ("texts", len(texts), limits.texts),
            ("characters", n_characters, limits.characters),
            ("alternatives", options.n_best - 1, limits.alternatives),
            ("beam", options.beam or 1, limits.beam),
            ("glossary", len(options.glossary), limits.glossary_terms),
            ("banned", len(options.banned), limits.glossary_terms),
        ):
            if value > limit:
                code = "too_large" if name in ("texts", "characters") else "invalid_request"
                raise ServiceError(code, f"{name}: {value:,} are more than the limit of {limit:,}", param=name)
        unknown = sorted(set(options.protected) - set(PATTERNS))
        if unknown:
            message = f"protected: {unknown[0][:20]!r} is unknown; choose from {', '.join(PATTERNS)}"
            raise ServiceError("invalid_request", message, param="protected")

    async def _sources(
        self, texts: Sequence[str], source: str, target: str, options: TranslateOptions
    ) -> list[Detection]:
        """Returns the language of each text, detected if the request does not say it."""
        if source != AUTO:
            return [Detection(self._pairs().known_source(source, target, options.model), 100.0)] * len(texts)
        pairs = self._pairs()
        sources = pairs.sources(target, options.model, may_pivot=options.may_pivot)
        target_tag = matching_tag(target, pairs.all_languages()) or target
        ranked = await self.detect(texts, list(dict.fromkeys([*sources, target_tag])))
        return [_likely_source(detections, sources) for detections in ranked]

    async def _translate_route(
        self,
        texts: Sequence[TranslatedText],
        route: Route,
        options: TranslateOptions,
        client: str,
        deadline: float | None,
    ) -> list[TranslatedText]:
        """Translates texts of one language."""
        if not route.models:
            return list(texts)
        if len(route.models) > 1 and options.glossary:
            message = "a glossary cannot be used in a translation through a third language; leave one of the two out"
            raise ServiceError("invalid_request", message, param="glossary")
        templates = await self._templates([text.text for text in texts], route.source, options)
        pieces = [piece for template in templates for piece in template.pieces]
        results = iter(await self._translate_pieces(pieces, route.steps, options, client, deadline))
        done = [
            _assemble(text, template, list(islice(results, len(template.pieces))), route.models, options)
            for text, template in zip(texts, templates, strict=True)
        ]
        if all(step.is_learned for step in route.steps):
            return done
        return [replace(text, flags=(*text.flags, ZERO_SHOT)) for text in done]

    async def _templates(self, texts: Sequence[str], language: str, options: TranslateOptions) -> list[Template]:
        def split() -> list[Template]:
            return [_template(text, language, options) for text in texts]

        return await asyncio.to_thread(split) if sum(map(len, texts)) > MANY_CHARACTERS else split()

    async def _translate_pieces(
        self,
        pieces: Sequence[str],
        steps: Sequence[Step],
        options: TranslateOptions,
        client: str,
        deadline: float | None,
    ) -> list[PieceResult]:
        """Translates pieces with one model after the other."""
        results: list[PieceResult] = []
        for number, step in enumerate(steps):
            is_last = number + 1 == len(steps)
            job_options = self._job_options(options if is_last else replace(options, n_best=1, banned=()))
            languages = dict(zip(("source_language", "target_language"), step.languages, strict=False))
            inputs = [result.texts[0] for result in results] if number else pieces
            job = Job(
                step.model, "translate", [Item(text) for text in inputs], client, {**job_options, **languages}, deadline
            )
            stage = [read_result(result) for result in await self._engine.run(job)] if inputs else []
            results = [pivoted(*pair) for pair in zip(results, stage, strict=True)] if number else stage
        return results

    def _job_options(self, options: TranslateOptions) -> Mapping[str, Any]:
        """Returns the engine's options; defaults are left out, so that most requests share batches."""
        protected = {*options.protected, *(["tags"] if options.markup and options.protected else [])}
        chosen = {
            "n_best": options.n_best if options.n_best > 1 else None,
            "length_penalty": options.length_penalty,
            "glossary": [list(pair) for pair in options.glossary],
            "protected": sorted(protected),
            "banned": list(options.banned),
            "alignment": options.alignment and options.markup is None,
        }
        beam = max(options.beam or self._settings.beam, options.n_best)
        return {"beam": beam, **{name: value for name, value in chosen.items() if value not in (None, [], False)}}


def _likely_source(detections: Sequence[Detection], sources: Sequence[str]) -> Detection:
    """Returns the most probable source language, or the target language if that is far more probable."""
    best = detections[0]
    source = next((detection for detection in detections if detection.language in sources), Detection(sources[0], 0.0))
    is_target = best.probability > 0 and best.probability >= MIN_TARGET_SHARE * (best.probability + source.probability)
    return best if is_target else source


def _template(text: str, language: str, options: TranslateOptions) -> Template:
    if options.markup is not None:
        return markup_template(text, language, options.markup)
    return plain_template(text, language, may_join_lines=options.may_join_lines)


def _assemble(
    source: TranslatedText,
    template: Template,
    results: Sequence[PieceResult],
    models: tuple[str, ...],
    options: TranslateOptions,
) -> TranslatedText:
    """Returns the translation of a text from those of its pieces.

    The k-th alternative has the k-th translation of each piece, or the last one of a piece that has fewer.
    """
    n_best = max((len(result.texts) for result in results), default=1)
    texts = [template.fill([result.texts[min(rank, len(result.texts) - 1)] for result in results])
             for rank in range(min(n_best, options.n_best))]  # fmt: skip
    is_aligned = options.alignment and options.markup is None
    return replace(
        source,
        text=texts[0],
        alternatives=tuple(text for text in dict.fromkeys(texts) if text != texts[0]),
        score=sum(result.score for result in results),
        flags=joined_flags(results),
        alignment=_alignment(source.text, texts[0], template.pieces, results) if is_aligned else None,
        source_tokens=sum(result.source_tokens for result in results),
        target_tokens=sum(result.target_tokens for result in results),
        models=models,
        expected_chrf=joined_confidence(results),
        unsure=_unsure_words(texts[0], results) if options.markup is None else (),
    )


def _unsure_words(target: str, results: Sequence[PieceResult]) -> tuple[tuple[int, int], ...]:
    """Returns the first and the last word of each unsure piece of a translation."""
    if not any(result.is_unsure for result in results):
        return ()
    indices = word_indices(target, [result.texts[0] for result in results])
    return tuple(
        (words[0], words[-1]) for result, words in zip(results, indices, strict=True) if result.is_unsure and words
    )


def _alignment(
    source: str, target: str, pieces: Sequence[str], results: Sequence[PieceResult]
) -> tuple[tuple[int, int], ...]:
    """Returns the alignments of the pieces as one of the whole text."""
    source_words = word_indices(source, pieces)
    target_words = word_indices(target, [result.texts[0] for result in results])
    pairs = {
        (from_words[i], to_words[j])
        for result, from_words, to_words in zip(results, source_words, target_words, strict=True)
        for i, j in result.alignment
        if i < len(from_words) and j < len(to_words)
    }
    return tuple(sorted(pairs))


def _first_error(failures: ExceptionGroup[ServiceError]) -> ServiceError:
    first = failures.exceptions[0]
    return _first_error(first) if isinstance(first, ExceptionGroup) else first
