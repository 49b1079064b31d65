"""Quantization of a model to int8, and its cost: a held-out text is translated in every precision."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.bundle import Bundle, load_bundle, save_quantized
from transformer.bundle.bundle import check_quantized_fits
from transformer.bundle.calibration import write_calibration
from transformer.bundle.provenance import without_folders
from transformer.decoding import Search
from transformer.errors import BundleError, ConfigError
from transformer.evaluation.scores import Score, corpus_scores
from transformer.evaluation.tokenization import TokenizationChoice
from transformer.inference.cpu import packed_bytes
from transformer.pipelines.auto import load_translator
from transformer.pipelines.translation.config import Languages
from transformer.pipelines.translation.translator import Translator

WARM_UP_LINES = 16
"""Number of lines translated before the speed is measured."""


@dataclass(frozen=True)
class Quality:
    """Quality and speed of a model on a held-out text.

    Attributes:
        translations: Translation of each line.
        scores: BLEU and chrF.
        lines_per_second: Speed with all threads.
        weight_bytes: Memory of the weights, in bytes.
    """

    translations: list[str]
    scores: list[Score]
    lines_per_second: float
    weight_bytes: int

    def as_json(self) -> dict[str, Any]:
        """Returns the figures, without the translations."""
        scores = {score.name: {"score": score.value, "signature": score.signature} for score in self.scores}
        return {"scores": scores, "lines_per_second": self.lines_per_second, "weight_bytes": self.weight_bytes}


@dataclass(frozen=True)
class Comparison:
    """A model in float32 compared with the same model at a lower precision.

    Attributes:
        before: Quality in float32.
        after: Quality in bf16 or int8.
    """

    before: Quality
    after: Quality

    @property
    def differences(self) -> dict[str, float]:
        """Change of each score; negative for a loss."""
        pairs = zip(self.before.scores, self.after.scores, strict=True)
        return {before.name: after.value - before.value for before, after in pairs}

    @property
    def agreement(self) -> float:
        """Share of lines with identical translations."""
        pairs = list(zip(self.before.translations, self.after.translations, strict=True))
        return sum(before == after for before, after in pairs) / len(pairs)

    @property
    def speed_up(self) -> float:
        """Ratio of the speeds, after to before."""
        return self.after.lines_per_second / self.before.lines_per_second

    def as_json(self, precision: str) -> dict[str, Any]:
        """Returns all figures in the form that is stored with the quantized model."""
        return {
            "float32": self.before.as_json(), precision: self.after.as_json(), "differences": self.differences,
            "agreement": self.agreement, "speed_up": self.speed_up, "lines": len(self.before.translations),
        }  # fmt: skip


def quantize_model(
    path: Path,
    out: Path,
    pairs: Sequence[tuple[str, str]],
    *,
    search: Search,
    tokenize: TokenizationChoice = "auto",
    tolerance: float = 0.5,
    workers: int | None = None,
    languages: Languages | None = None,
    on_result: Callable[[Mapping[str, Comparison]], None] = lambda comparisons: None,
) -> dict[str, Comparison]:
    """Quantizes a model to int8 and writes it if its translations of a held-out text are good enough.

    Returns:
        Comparisons of "bf16" and "int8" with float32.

    Args:
        path: Bundle or run folder, in float32.
        out: Folder of the quantized model; must not exist, or must be empty.
        pairs: Held-out sources and references.
        search: Search options of all translations.
        tokenize: Tokenization of BLEU; "auto" takes the one that fits the references.
        tolerance: Maximum loss of BLEU by int8, in points.
        workers: Maximum number of processes that translate in parallel.
        languages: Source and target language of the pairs, which a model of several languages needs.
        on_result: Callback that receives the comparisons before they are checked against the tolerance.

    Raises:
        BundleError: The model is not in float32, or `out` is not empty.
        OutputError: The quantized model does not fit on the disk.
        ConfigError: The tolerance is NaN; or int8 loses more than it, in which case nothing is written to `out`.
    """
    if math.isnan(tolerance):
        raise ConfigError("tolerance=nan is not a number; choose the BLEU that int8 may lose, e.g. 0.5")
    if out.exists() and any(out.iterdir()):
        raise BundleError(f"{out} is not empty; choose another folder, or remove it first")
    bundle = load_bundle(path)
    check_quantized_fits(out, bundle)
    before, *after = (
        _measure(
            load_translator(
                path, search=search, precision=precision, workers=workers, device="cpu", **(languages or Languages())
            ),
            pairs,
            tokenize,
        )
        for precision in ("float32", "bf16", "int8")
    )
    comparisons = {name: Comparison(before, quality) for name, quality in zip(("bf16", "int8"), after, strict=True)}
    on_result(comparisons)
    loss = -comparisons["int8"].differences["BLEU"]
    if not loss <= tolerance:
        raise ConfigError(
            f"int8 loses {loss:.2f} BLEU, more than tolerance={tolerance}; keep float32, or raise the tolerance"
        )
    figures = comparisons["int8"].as_json("int8") | {"in bf16": comparisons["bf16"].as_json("bf16")}
    provenance = without_folders(bundle.provenance) | {"quantized": {"from": bundle.fingerprint, **figures}}
    save_quantized(out, Bundle(bundle.config, bundle.model, bundle.text, provenance))
    if bundle.calibration:
        write_calibration(out, bundle.calibration)
    return comparisons


def _measure(translator: Translator, pairs: Sequence[tuple[str, str]], tokenize: TokenizationChoice) -> Quality:
    sources, references = [source for source, _ in pairs], [reference for _, reference in pairs]
    translator.translations(sources[:WARM_UP_LINES])
    start = time.perf_counter()
    translations = [translation.text for translation in translator.translations(sources)]
    seconds = time.perf_counter() - start
    translator.close()
    scores = corpus_scores(translations, references, tokenize)
    return Quality(translations, scores, len(pairs) / seconds, packed_bytes(translator.model))
