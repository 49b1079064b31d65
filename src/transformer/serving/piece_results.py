"""Results of the pieces of texts, as the engine returns them for "translate"."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class PieceResult:
    """Translation of a piece.

    Attributes:
        texts: Translations, best first; at least one.
        score: Sum of log-probabilities of the best one.
        flags: Notes on its quality.
        alignment: Pairs of word positions in the piece and its best translation; empty if not asked for.
        source_tokens: Number of source tokens.
        target_tokens: Number of target tokens.
        confidence: Expected chrF of the best translation over 100; None if it is unknown.
        is_unsure: Whether it is below the threshold of the model.
    """

    texts: tuple[str, ...]
    score: float
    flags: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]
    source_tokens: int
    target_tokens: int
    confidence: float | None = None
    is_unsure: bool = False


def read_result(result: Mapping[str, Any]) -> PieceResult:
    """Returns a result of the engine, with white space at the ends of translations removed."""
    texts = dict.fromkeys(entry["text"].strip() for entry in (result, *result["alternatives"]))
    alignment = tuple((i, j) for i, j in result["alignment"] or ())
    flags = (*result["flags"], *(["copied"] if result["copied"] else []))
    return PieceResult(
        tuple(texts), result["score"], flags, alignment, result["source_tokens"], result["target_tokens"],
        result.get("confidence"), result.get("unsure", False),
    )  # fmt: skip


def joined_flags(results: Sequence[PieceResult]) -> tuple[str, ...]:
    """Returns the notes on all pieces, each once; the last one counts the unsure pieces."""
    flags = tuple(dict.fromkeys(flag for result in results for flag in result.flags))
    unsure = [result for result in results if result.is_unsure]
    if not unsure:
        return flags
    lowest = joined_confidence(unsure) or 0.0
    if len(results) == 1:
        return (*flags, f"unsure (confidence {lowest:.2f})")
    return (*flags, f"unsure in {len(unsure):,} of {len(results):,} parts (lowest confidence {lowest:.2f})")


def joined_confidence(results: Sequence[PieceResult]) -> float | None:
    """Returns the lowest confidence of several pieces; None if none is known."""
    return min((result.confidence for result in results if result.confidence is not None), default=None)


def pivoted(first: PieceResult, second: PieceResult) -> PieceResult:
    """Returns the result of a piece that was translated to a third language and from there."""
    targets: defaultdict[int, list[int]] = defaultdict(list)
    for middle, target in second.alignment:
        targets[middle].append(target)
    alignment = {(source, target) for source, middle in first.alignment for target in targets[middle]}
    return replace(
        second,
        score=first.score + second.score,
        flags=tuple(dict.fromkeys((*first.flags, *second.flags))),
        alignment=tuple(sorted(alignment)),
        source_tokens=first.source_tokens,
        confidence=joined_confidence([first, second]),
        is_unsure=first.is_unsure or second.is_unsure,
    )
