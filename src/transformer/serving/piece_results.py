"""Results of the pieces of texts, as the engine returns them for "translate"."""

from collections import defaultdict
from collections.abc import Mapping
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
    """

    texts: tuple[str, ...]
    score: float
    flags: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]
    source_tokens: int
    target_tokens: int


def read_result(result: Mapping[str, Any]) -> PieceResult:
    """Returns a result of the engine, with white space at the ends of translations removed."""
    texts = dict.fromkeys(entry["text"].strip() for entry in (result, *result["alternatives"]))
    alignment = tuple((i, j) for i, j in result["alignment"] or ())
    flags = (*result["flags"], *(["copied"] if result["copied"] else []))
    return PieceResult(
        tuple(texts), result["score"], flags, alignment, result["source_tokens"], result["target_tokens"]
    )


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
    )
