"""Fits the confidence of a translator to lines with references and to spoiled copies of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final, Unpack

import numpy as np

from transformer.bundle import load_bundle
from transformer.bundle.calibration import write_calibration
from transformer.decoding import Search
from transformer.errors import DataError
from transformer.evaluation.scores import sentence_scores
from transformer.pipelines.auto import LoadOptions, load_translator
from transformer.pipelines.translation.checks import CheckedLine
from transformer.pipelines.translation.confidence import (
    Calibration,
    ConfidenceModel,
    features_of,
    fit_confidence,
    kind_of,
)
from transformer.pipelines.translation.translator import Translator

MIN_LINES: Final = 100
"""Minimum number of lines to fit a model to."""
BEAM: Final = 4
"""Beam size for which the model for beams is fitted."""
SEARCHES: Final = (Search(beam=1), Search(beam=BEAM))
N_PASSES: Final = 2 * len(SEARCHES)
"""Number of times that each line is translated: as it is and spoiled, with each search."""


def calibrate_folder(
    path: Path,
    pairs: Sequence[tuple[str, str]],
    seed: int = 0,
    done: Callable[[int], None] | None = None,
    *,
    pair_directions: Sequence[tuple[str, str]] = (),
    **options: Unpack[LoadOptions],
) -> Calibration:
    """Fits the confidence of a model and stores it in its folder, beside what was fitted for other precisions.

    Args:
        path: Bundle or run folder.
        pairs: Held-out sources and references, neither training text nor the test set.
        seed: Seed of the spoiled copies.
        done: Callback that receives the number of lines translated since its last call, `N_PASSES` for each pair.
        pair_directions: Source and target language of each pair, for a model of several languages.
        **options: Options of `load_translator`.

    Raises:
        BundleError: The folder is not a bundle, or its model does not translate.
        DataError: There are fewer than `MIN_LINES` pairs.
        OutputError: The folder cannot be written.
    """
    if len(pairs) < MIN_LINES:
        raise DataError(f"too few lines to calibrate with: {len(pairs):,}; give {MIN_LINES} or more")
    bundle = load_bundle(path, dequantize=True)
    if bundle.folder is None:
        raise ValueError("a loaded bundle has a folder")
    translator = load_translator(bundle.folder, **options)
    calibration = calibrate(translator, pairs, seed, done, directions=pair_directions)
    translator.close()
    write_calibration(bundle.folder, bundle.calibration | calibration.to_dict())
    return calibration


def calibrate(
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    seed: int = 0,
    done: Callable[[int], None] | None = None,
    *,
    directions: Sequence[tuple[str, str]] = (),
) -> Calibration:
    """Fits confidence models for greedy search and for a beam of 4.

    Args:
        translator: Translator of the model alone.
        pairs: Held-out sources and references.
        seed: Seed of the spoiled copies.
        done: Callback that receives the number of lines translated since its last call.
        directions: Source and target language of each pair; those of the translator if empty.
    """
    precision = translator.config.calibration.precision
    sources, references = [source for source, _ in pairs], [reference for _, reference in pairs]
    lines = [*sources, *spoil(sources, references, seed)]
    languages = list(directions or [("", "")] * len(pairs)) * 2
    models: dict[str, ConfidenceModel] = {}
    for search in SEARCHES:
        checked = _translate(translator, lines, languages, search, done)
        models[f"{precision} {kind_of(search)}"] = _fit(checked, references * 2, len(pairs))
    return Calibration(models, precision)


def _translate(
    translator: Translator,
    lines: Sequence[str],
    directions: Sequence[tuple[str, str]],
    search: Search,
    done: Callable[[int], None] | None,
) -> list[CheckedLine]:
    """Translates lines, each from and to its languages, and returns them in order."""
    checked: dict[int, CheckedLine] = {}
    for source, target in dict.fromkeys(directions):
        numbers = [number for number, direction in enumerate(directions) if direction == (source, target)]
        begun = translator.begin(
            [lines[number] for number in numbers], search=search, source_language=source, target_language=target
        )
        checked |= zip(numbers, translator.finish_checked(begun, done), strict=True)
    return [checked[number] for number in range(len(lines))]


def _fit(checked: Sequence[CheckedLine], references: Sequence[str], n_plain: int) -> ConfidenceModel:
    """Fits the model of one search to translated lines, the first `n_plain` of which are not spoiled."""
    chosen = [i for i, line in enumerate(checked) if line.searched]
    scores = sentence_scores([line.translation.text for line in checked], references)
    return fit_confidence(
        np.array([features_of(checked[i]) for i in chosen]),
        np.array([scores[i] / 100 for i in chosen]),
        np.array([i < n_plain for i in chosen]),
    )


def spoil(sources: Sequence[str], references: Sequence[str], seed: int) -> list[str]:
    """Returns a spoiled copy of each source, by turns in one of four ways.

    Its words are shuffled, half of them are replaced with words of other lines, or with words of the other language, or
    letters of its words are exchanged. A line in capitals would be translated well, and differ from its reference.

    Args:
        sources: Lines.
        references: Their translations.
        seed: Seed of the choices.
    """
    random = Random(seed)
    words = [[word for line in lines for word in line.split()] or [""] for lines in (sources, references)]

    def replaced(line: str, others: Sequence[str]) -> str:
        return " ".join(word if random.random() < 0.5 else random.choice(others) for word in line.split())

    def shuffled(line: str) -> str:
        parts = line.split()
        return " ".join(random.sample(parts, len(parts)))

    def misspelled(line: str) -> str:
        return " ".join(
            "".join(random.sample(word, len(word))) if random.random() < 0.5 else word for word in line.split()
        )

    ways = (
        shuffled,
        lambda line: replaced(line, words[0]),
        lambda line: replaced(line, words[1]),
        misspelled,
    )
    return [ways[i % len(ways)](line) for i, line in enumerate(sources)]
