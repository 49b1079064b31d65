"""A model to int8, and what fewer bits cost: the same held-out text translated in every precision."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.bundle import Bundle, load_bundle, save_quantized
from transformer.decoding import Search
from transformer.errors import BundleError, ConfigError
from transformer.evaluation.scores import Score, Tokenization, corpus_scores
from transformer.inference.cpu import packed_bytes
from transformer.pipelines.auto import load_translator
from transformer.pipelines.translation.translator import Translator

WARM_LINES = 16
"""Lines that are translated before time is taken."""


@dataclass(frozen=True)
class Quality:
    """How a model translates a held-out text.

    Attributes:
        translations: line by line.
        scores: BLEU and chrF.
        lines_per_second: with all threads.
        weight_bytes: memory of the weights.
    """

    translations: list[str]
    scores: list[Score]
    lines_per_second: float
    weight_bytes: int

    def as_json(self) -> dict[str, Any]:
        """The figures."""
        scores = {score.name: {"score": score.value, "signature": score.signature} for score in self.scores}
        return {"scores": scores, "lines_per_second": self.lines_per_second, "weight_bytes": self.weight_bytes}


@dataclass(frozen=True)
class Comparison:
    """A model in float32 beside the same in fewer bits.

    Attributes:
        before: in float32.
        after: in bf16 or int8.
    """

    before: Quality
    after: Quality

    @property
    def differences(self) -> dict[str, float]:
        """What each score gains by it; negative where it loses."""
        pairs = zip(self.before.scores, self.after.scores, strict=True)
        return {before.name: after.value - before.value for before, after in pairs}

    @property
    def agreement(self) -> float:
        """Share of lines that are translated the same."""
        pairs = list(zip(self.before.translations, self.after.translations, strict=True))
        return sum(before == after for before, after in pairs) / len(pairs)

    @property
    def speed_up(self) -> float:
        """How many times as many lines a second."""
        return self.after.lines_per_second / self.before.lines_per_second

    def as_json(self, precision: str) -> dict[str, Any]:
        """All figures, as they are kept with the quantized model."""
        return {
            "float32": self.before.as_json(), precision: self.after.as_json(), "differences": self.differences,
            "agreement": self.agreement, "speed_up": self.speed_up, "lines": len(self.before.translations),
        }  # fmt: skip


def quantize(
    path: Path,
    out: Path,
    pairs: Sequence[tuple[str, str]],
    *,
    search: Search,
    tokenize: Tokenization = "13a",
    tolerance: float = 0.5,
    workers: int | None = None,
    told: Callable[[Mapping[str, Comparison]], None] = lambda found: None,
) -> dict[str, Comparison]:
    """Writes a model in int8, once its translations of held-out text proved as good.

    Returns:
        What bf16 and int8 cost, by these names.

    Args:
        path: bundle or run folder, in float32.
        out: folder of the quantized model; must not exist.
        pairs: held-out sources and references.
        search: how all translate.
        tokenize: how BLEU splits words.
        tolerance: most BLEU that int8 may lose.
        workers: most processes that translate at a time.
        told: of what is returned, before it is judged.

    Raises:
        BundleError: the model is not one in float32, or `out` holds something already.
        ConfigError: the tolerance is no number; or int8 loses more than it, and nothing stays at `out`.
    """
    if math.isnan(tolerance):
        raise ConfigError("tolerance=nan is no number; choose how much BLEU int8 may lose, e.g. 0.5")
    if out.exists() and any(out.iterdir()):
        raise BundleError(f"{out} is not empty; choose another folder, or remove it first")
    bundle = load_bundle(path)
    before, *after = (
        _quality(
            load_translator(path, search=search, precision=precision, workers=workers, device="cpu"), pairs, tokenize
        )
        for precision in ("float32", "bf16", "int8")
    )
    comparisons = {name: Comparison(before, each) for name, each in zip(("bf16", "int8"), after, strict=True)}
    told(comparisons)
    loss = -comparisons["int8"].differences["BLEU"]
    if not loss <= tolerance:
        raise ConfigError(f"int8 loses {loss:.2f} BLEU, more than tolerance={tolerance}; keep float32, or allow it")
    figures = comparisons["int8"].as_json("int8") | {"in bf16": comparisons["bf16"].as_json("bf16")}
    kept = {"quantized": {"from": bundle.fingerprint, **figures}}
    save_quantized(out, Bundle(bundle.config, bundle.model, bundle.text, bundle.provenance | kept))
    return comparisons


def _quality(translator: Translator, pairs: Sequence[tuple[str, str]], tokenize: Tokenization) -> Quality:
    sources, references = [source for source, _ in pairs], [reference for _, reference in pairs]
    translator.translations(sources[:WARM_LINES])
    begun = time.perf_counter()
    translations = [translation.text for translation in translator.translations(sources)]
    seconds = time.perf_counter() - begun
    translator.close()
    scores = corpus_scores(translations, references, tokenize)
    return Quality(translations, scores, len(pairs) / seconds, packed_bytes(translator.model))
