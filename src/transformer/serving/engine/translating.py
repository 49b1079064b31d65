"""Translations and their scores, in a worker."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from transformer.decoding import Search
from transformer.errors import ConfigError, DataError
from transformer.options.length_penalties import paper_length_penalty
from transformer.pipelines.translation.alignment_output import word_alignment
from transformer.pipelines.translation.results import UNSURE, Alternative, Translation
from transformer.pipelines.translation.scoring import PairScore, score_pairs
from transformer.pipelines.translation.terminology import Terminology
from transformer.pipelines.translation.translator import Translator
from transformer.serving.engine.generation import sampling_of
from transformer.serving.engine.options import ScoreTaskOptions, TranslateTaskOptions, without_surrogates
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Item

MIN_SCORE: Final = -1e9
"""Score of a translation that the model holds impossible, since JSON has no infinity."""


def translate(
    translator: Translator,
    items: Sequence[Item],
    options: TranslateTaskOptions,
    on_ready: Callable[[Mapping[int, dict[str, Any]]], object],
) -> list[dict[str, Any]]:
    """Returns the translation of each line.

    Args:
        translator: Translator of the model.
        items: Lines.
        options: Options of all lines.
        on_ready: Function to call before lines with a problem are searched for again, with the results of the others.

    Raises:
        ServiceError: An option is invalid.
        ConfigError: Prefixes are combined with a shortlist.
    """
    search, terminology = _search_of(translator, options), _terminology_of(options)
    lines = [without_surrogates(item.text) for item in items]
    prefixes = [without_surrogates(item.prefix) for item in items]
    # A client who chose the seed gets the same translation in any batch, so its lines are all the first of a text.
    is_alone = options.seed is not None and search.sampling is not None
    batches = [slice(i, i + 1) for i in range(len(lines))] if is_alone else [slice(None)]
    results: list[dict[str, Any]] = []
    ready: dict[int, dict[str, Any]] = {}

    def result_of(translation: Translation) -> dict[str, Any]:
        links = word_alignment(translator, translation) if options.alignment else None
        return _result(translation, links)

    def report(translations: Mapping[int, Translation]) -> None:
        ready.update({i: result_of(translation) for i, translation in translations.items()})
        on_ready(ready)

    for batch in batches:
        required = prefixes[batch] if any(prefixes[batch]) else None
        try:
            translations = translator.translations(
                lines[batch], search=search, terminology=terminology, prefixes=required,
                source_language=options.source_language, target_language=options.target_language,
                on_ready=None if is_alone else report,
            )  # fmt: skip
        except (ConfigError, DataError) as error:
            raise options.refusal(error) from error
        results += [ready[i] if i in ready else result_of(translation) for i, translation in enumerate(translations)]
    return results


def score(translator: Translator, items: Sequence[Item], options: ScoreTaskOptions) -> list[dict[str, Any]]:
    """Returns the score of each item's translation (`second`), or its error if it is too long.

    Raises:
        ServiceError: The model does not translate to the target language, or to several, of which none is chosen.
    """
    pairs = [(without_surrogates(item.text), without_surrogates(item.second)) for item in items]
    try:
        scores = score_pairs(translator, pairs, target_language=options.target_language)
    except ConfigError as error:
        raise ServiceError("invalid_request", str(error), param="target_language") from error
    return [_score_result(result) for result in scores]


def _score_result(result: PairScore) -> dict[str, Any]:
    if math.isnan(result.score):
        message = f"{'; '.join(result.flags) or 'this pair has no score'}; shorten it"
        return {"error": ServiceError("invalid_request", message).to_json()}
    return {"score": _finite(result.score), "per_token": _finite(result.per_token), "tokens": len(result.token_scores)}


def _terminology_of(options: TranslateTaskOptions) -> Terminology | None:
    """Returns the terminology of a request; None for that of the translator.

    Raises:
        ServiceError: A term or the kind of a span is invalid.
    """
    try:
        terminology = Terminology(options.banned, options.glossary, options.protected or None)
    except (ConfigError, DataError) as error:
        raise options.refusal(error) from error
    return terminology if terminology.is_active else None


def _search_of(translator: Translator, options: TranslateTaskOptions) -> Search:
    """Returns the search of a request.

    Raises:
        ServiceError: An option is invalid.
    """
    beam = options.beam or max(translator.search.beam, options.n_best)
    changes: dict[str, Any] = {"beam": beam, "n_best": options.n_best}
    try:
        if options.length_penalty is not None:
            changes["length_penalty"] = paper_length_penalty(options.length_penalty)
        return replace(translator.search, **changes, sampling=sampling_of(options))
    except (ConfigError, DataError) as error:
        raise options.refusal(error) from error


def _result(translation: Translation, links: Sequence[tuple[int, int]] | None) -> dict[str, Any]:
    best = translation.alternatives[0]
    return {
        "text": best.text,
        "score": _finite(best.score),
        "alternatives": [_alternative(alternative) for alternative in translation.alternatives],
        "flags": [flag for flag in translation.flags if not flag.startswith(UNSURE)],
        "copied": translation.is_copied,
        "confidence": translation.confidence,
        "unsure": translation.is_unsure,
        "alignment": None if links is None else [[int(source), int(target)] for source, target in links],
        "source_tokens": sum(map(len, translation.sources)),
        "target_tokens": sum(map(len, best.tokens)),
    }


def _alternative(alternative: Alternative) -> Mapping[str, Any]:
    return {"text": alternative.text, "score": _finite(alternative.score), "finished": alternative.finished}


def _finite(value: float) -> float:
    """Returns a log-probability that JSON can express."""
    return max(float(value), MIN_SCORE)
